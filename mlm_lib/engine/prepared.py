"""A corpus larger than memory, which is tokenized once and kept on disk as rows of ids.

A recipe asks for it with `prepared = FOLDER`. The library `datasets` writes the rows with several
processes as an Arrow data set, and reads them by mapping the files into memory, so that only the
rows that are used are loaded. To the training loop the rows are a sequence like any other.
"""

import hashlib
import json
import os
import random
import shutil
import uuid
from collections import Counter
from itertools import islice
from pathlib import Path

from filelock import FileLock

from mlm_lib.checks import path_name, probability, refused, whole_number
from mlm_lib.engine.files import write
from mlm_lib.engine.text_files import text_files, texts_of, warn_once

HELD_OUT_SHARE = 0.01  # share of the texts; a hash of each text decides whether it is held out
TOKENIZER_SAMPLE = 50_000  # texts that a new tokenizer is learned from
EVALUATION_ROWS = 1000  # held-out rows that each evaluation reads
TEXTS_PER_CALL = 1000  # texts that the tokenizer gets at once
# Two tokenizers with the same vocabulary may still read texts differently. This text shows it: it
# has capitals, accents (as one character and as two), ligatures, other scripts, other spaces, and
# words that some tokenizers keep whole and others split.
PROBE = (
    "Anna's RÉSUMÉ: Straße, e\u0301 İi ﬁ ½ 中文 ไทย\u00a0\u3000don’t—stop… x_y 3.14\t[MASK] <mask>"
)
# What is counted while rows are made; `TokenizedCorpus` explains each count.
COUNTS = ("texts", "held", "unknown", "tokens", "kept")


class TokenizedCorpus:
    """Files that are tokenized once and then read from disk, for a corpus larger than memory.

    A text longer than a row is split into several rows. The folder also records what the rows were
    made from: digests of each file's content, of the vocabulary and of the normalizer. Therefore
    rows of other texts are never trained on by mistake. A checksum of each file of rows reveals
    damage.

    The training data of a recipe may mix this corpus with those of `mlm_lib.training_data`. That
    module describes what all corpora have in common.

    Args:
        corpus: a file or a folder, as in `load_corpus`. Each single file must fit into memory; the
            whole folder need not.
        prepared: the folder of the rows. If it has no rows yet, they are made.
        workers: how many processes make the rows. None: one process for each CPU core.
        validation: a file or folder of texts to evaluate on, which must fit into memory. Then every
            text of the corpus is trained on.
        validation_share: the share of the texts that is held out. None: one text in a hundred.

    Attributes:
        counts: after `encode`, a dictionary: how many texts are trained on (`texts`), held out
            (`held`) and left out because they have no known word (`unknown`); the number of
            `tokens` to train on, and how many of them are in a row (`kept`).
        rows: after `encode`, the rows to train on, an `ArrowRows`.
    """

    held_out_masking = {}  # the defaults of `MaskingCollator`: 15%, as 80/10/10

    def __init__(
        self, corpus, *, prepared, workers=None, validation=None, validation_share=None
    ):  # fmt: skip
        self.folder = Path(path_name("prepared", prepared)).expanduser()
        self.workers = whole_number("workers", workers or os.cpu_count())
        self.share = held_out_share(validation, validation_share, HELD_OUT_SHARE)
        self.own = [] if validation is None else text_files(validation)
        named = corpus in ("grammar", "reviews", "docs") or str(corpus).startswith("hub:")
        if named and not os.path.exists(corpus):
            reason = f"prepared rows are made of files, and {corpus!r} is not a file"
            raise ValueError(f"{reason}; this corpus fits in memory, so leave prepared out")
        self.files = text_files(corpus, [file for file, _ in self.own])
        self.name, self.legacy = Path(corpus).name, False

    def use_legacy_rules(self):
        """Makes the fingerprint as an earlier version did, so that its run can be resumed."""
        self.legacy = True

    def tokenizer_texts(self):
        """A random sample of the texts, for a tokenizer to learn from.

        Each text is in the sample with the same probability, although the number of texts is not
        known before the last one is read (reservoir sampling, algorithm R of Vitter 1985).
        """
        rng, sample = random.Random(0), []
        for number, text in enumerate(text for file in self.files for text in texts_of(*file)):
            # Text number n, from 0, enters with probability TOKENIZER_SAMPLE / (n + 1).
            place = number if number < TOKENIZER_SAMPLE else rng.randrange(number + 1)
            if place < TOKENIZER_SAMPLE:
                sample[place : place + 1] = [text]
        return sample

    def encode(self, tokenizer, max_length):
        """Opens the rows in the folder. If there are none yet, they are made first.

        To find out whether a file has changed, its content is read only if its size or one of its
        times differs from the recorded one.

        Args:
            tokenizer: a compiled tokenizer of transformers.
            max_length: the length of the longest row, with `[CLS]` and `[SEP]`; at least 3.

        Raises:
            ValueError: the folder has rows of other texts, of another tokenizer or length, or
                damaged rows; or a file cannot be read as texts (see `read_texts`).
        """
        from datasets import (
            load_from_disk,
        )  # takes seconds to import, and only this corpus needs it

        whole_number("max_length", max_length, 3)
        vocabulary = json.dumps(tokenizer.get_vocab(), sort_keys=True).encode()
        wanted = {
            "vocabulary": digest_of(vocabulary),
            "normalizer": digest_of(json.dumps(probe_of(tokenizer)).encode()),
            "max_length": max_length,
            "validation_share": self.share,
            "columns": sorted({column for _, column in self.files}),
        }
        record_file = (
            self.folder / "prepared.json"
        )  # written last; without it, all rows are made again
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / ".lock"):  # of several processes, the first makes the rows
            record = self._read_record(record_file)
            wanted |= self._file_states(record.get("seen", {}))
            seen = wanted.pop("seen")
            if not record:
                counts = self._make_rows(tokenizer, max_length)
                if self._file_states(seen)["seen"] != seen:
                    reason = f"{self.name} was changed while rows were made of it"
                    raise ValueError(f"{reason}; start again when no program writes to it")
                record = wanted | {"seen": seen, "counts": counts, "shards": self._checksums()}
                write(record_file, json.dumps(record))
            if wrong := _differences(wanted, record):
                reason = f"{self.folder} was prepared with other {' and '.join(wrong)}"
                raise ValueError(f"{reason}; delete it, or give another folder")
            if seen != record["seen"]:  # the content is the same, so the new times are noted
                write(record_file, json.dumps(record | {"seen": seen}))
        self._check_rows(record["shards"])
        rows = load_from_disk(self.folder / "rows").with_format("numpy")
        lengths, held = rows["length"][:], rows["held"][:]
        self.rows, self.counts = ArrowRows(rows, lengths, (~held).nonzero()[0]), record["counts"]
        if not len(self.rows):
            raise ValueError(no_known_word(self.name, self.counts["texts"]))
        warn_once(self.counts["doubts"])
        self.all_held_out = ArrowRows(rows, lengths, held.nonzero()[0])
        self.held_out_rows = list(islice(self.all_held_out, EVALUATION_ROWS))
        self.fingerprint_texts = [json.dumps(wanted, sort_keys=True)]
        if self.own:
            counts = Counter()
            own_rows = tokenized_rows(self.own, tokenizer, max_length, 0, counts)
            self.held_out_rows = [row["input_ids"] for row in own_rows]
            if not self.held_out_rows:
                raise ValueError(no_known_word("validation", counts["texts"]))
            self.counts = self.counts | {"held": counts["texts"]}
            self.fingerprint_texts.append(digest_of(json.dumps(self.held_out_rows).encode()))
        if self.legacy:
            sizes = [[file.name, file.stat().st_size] for file, _ in self.files]
            legacy = {"files": sizes, "vocabulary": wanted["vocabulary"], "max_length": max_length}
            self.fingerprint_texts = [json.dumps(legacy)]

    def describe(self):
        """A sentence on how many texts are trained on and held out."""
        sentence = describe_texts(self.name, self.counts, len(self.rows))
        read, all_rows = len(self.held_out_rows), len(self.all_held_out)
        if not self.own and all_rows > read:
            sentence += f"; each evaluation reads {read:,} of the {all_rows:,} rows"
            sentence += " that are held out"
        return sentence

    def rows_of_epoch(self, epoch):
        """The rows to train on, which are the same in each epoch."""
        return [self.rows]

    # -------------------------------------------------------------------------------- the folder

    def _read_record(self, file):
        """What the folder records about its rows; an empty dictionary if there are none yet."""
        if not file.exists():
            return {}
        remedy = f"delete {self.folder}, and the rows are made again"
        try:
            record = json.loads(file.read_text("utf-8"))
            names = set(record)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{file} is damaged ({error}); {remedy}") from None
        if not names >= {"seen", "counts", "shards", "contents"}:
            reason = "was prepared by an earlier version, which kept no checksums"
            raise ValueError(f"{self.folder} {reason}; {remedy}")
        return record

    def _file_states(self, before):
        """The names and digests of the text files, and the sizes and times that reveal a change.

        Args:
            before: {name: [size, times, digest]}, the `seen` of an earlier call. The digest of a
                file with the same size and times is taken from there.

        Returns:
            {"files": names, "contents": {name: digest}, "seen": {name: [size, times, digest]}}.
        """
        base = os.path.commonpath([file.parent for file, _ in self.files])
        seen = {}
        for file, _ in self.files:
            name, now = file.relative_to(base).as_posix(), file.stat()
            # A program can set the first time, that of the last modification; a copy that keeps its
            # date does so. It cannot set the second time, that of the last change of the entry.
            state = [now.st_size, now.st_mtime_ns, now.st_ctime_ns]
            *then, digest = before.get(name, [None])
            seen[name] = [*state, digest if then == state else digest_of(file)]
        contents = {name: digest for name, (*_, digest) in seen.items()}
        return {"files": list(seen), "contents": contents, "seen": seen}

    def _checksums(self):
        """{name: digest} of each file of rows."""
        rows = self.folder / "rows"
        return {file.name: digest_of(file) for file in sorted(rows.iterdir())}

    def _check_rows(self, checksums):
        """Refuses damaged rows. A wrong id would be trained on, or would crash the program."""
        for name, digest in checksums.items():
            file = self.folder / "rows" / name
            if not file.exists() or digest_of(file) != digest:
                state = "is damaged" if file.exists() else "is missing"
                raise ValueError(
                    f"{file} {state}; delete {self.folder}, and the rows are made again"
                )

    def _make_rows(self, tokenizer, max_length):
        """Writes the rows with several processes, and returns the sums of their counts."""
        from datasets import Dataset, Features, List, Value
        from datasets.exceptions import DatasetGenerationError

        ids = Value("uint16" if len(tokenizer) <= 2**16 else "int32")
        columns = {"input_ids": List(ids), "length": Value("int32"), "held": Value("bool")}
        cache, notes = self.folder / "cache", self.folder / "cache" / "notes"
        shutil.rmtree(cache, ignore_errors=True)  # files of a program that was killed
        notes.mkdir(parents=True)
        arguments = {"files": self.files, "tokenizer": tokenizer, "max_length": max_length}
        arguments |= {"share": self.share, "notes": str(notes)}
        workers = min(self.workers, len(self.files))  # `datasets` shares the files among them
        try:
            Dataset.from_generator(
                worker_rows, Features(columns), cache_dir=str(cache / "data"), gen_kwargs=arguments,
                num_proc=workers if workers > 1 else None,
            ).save_to_disk(self.folder / "rows")  # fmt: skip
        except (DatasetGenerationError, ValueError) as error:
            for note in notes.glob("error-*"):  # the message of the worker that failed
                raise ValueError(note.read_text("utf-8")) from None
            if isinstance(error.__cause__, OSError):  # a full disk
                raise error.__cause__ from None
            if not (counts := _sum_counts(notes))["kept"]:
                raise ValueError(no_known_word(self.name, counts["texts"])) from None
            raise
        counts = _sum_counts(notes)
        shutil.rmtree(cache)
        return counts


class ArrowRows:
    """Some rows of an Arrow data set, as a sequence of lists of ids.

    Args:
        rows: the data set, with a column `input_ids`.
        lengths: the number of ids of each row of the data set, an array.
        numbers: which rows of the data set belong to this sequence, an array.

    Attributes:
        lengths: the number of ids of each row of this sequence. A batch sampler that groups rows of
            similar length uses them, because reading the rows to measure them would be slow.
    """

    def __init__(self, rows, lengths, numbers):
        self.rows, self.numbers, self.lengths = rows, numbers, lengths[numbers]

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, index):
        if index >= len(self):
            raise IndexError(index)
        return self.rows[int(self.numbers[index])]["input_ids"].tolist()


# ------------------------------------------------------------------------------------ making rows


def worker_rows(files, tokenizer, max_length, share, notes):
    """`tokenized_rows` in a worker process, which writes its counts or its error into a file.

    `datasets` passes only the rows back to the main process. The message of an exception would be
    lost.
    """
    counts, doubts, name = Counter(), [], uuid.uuid4().hex
    try:
        yield from tokenized_rows(files, tokenizer, max_length, share, counts, doubts)
        write(Path(notes) / f"counts-{name}", json.dumps(counts | {"doubts": doubts}))
    except (ValueError, OSError) as error:
        write(Path(notes) / f"error-{name}", str(error))
        raise


def _sum_counts(notes):
    """The sums of the counts of all workers, and a list of all their doubts about files."""
    found = [json.loads(note.read_text("utf-8")) for note in sorted(notes.glob("counts-*"))]
    counts = {name: sum(one.get(name, 0) for one in found) for name in COUNTS}
    return counts | {"doubts": [doubt for one in found for doubt in one["doubts"]]}


def tokenized_rows(files, tokenizer, max_length, share=HELD_OUT_SHARE, counts=None, doubts=None):
    """Yields the rows of some files, each as {input_ids, length, held}.

    Args:
        files: pairs (file, column), as `text_files` returns them.
        tokenizer, max_length: as in `TokenizedCorpus.encode`.
        share: the share of the texts that is held out.
        counts: a Counter, to which the `COUNTS` of these files are added. None: nothing is counted.
        doubts: a list, to which doubts about the files are added, as in `texts_of`.
    """
    special = set(tokenizer.all_special_ids)
    counts = Counter() if counts is None else counts
    for file, column in files:
        texts = texts_of(file, column, doubts)
        for start in range(0, len(texts), TEXTS_PER_CALL):
            some = texts[start : start + TEXTS_PER_CALL]
            for text, ids in zip(some, tokenizer(some, verbose=False)["input_ids"]):
                digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
                number = int.from_bytes(digest, "little")
                # A number from 0 to 10⁸ − 1 that looks random. Its two leading digits are the last
                # two decimal digits of `number`, so a share of 0.01 depends on these two alone.
                held = number % 100 * 10**6 + number // 100 % 10**6 < round(share * 10**8)
                rows = split_into_rows(ids, max_length, special)
                counts["held" if held else "texts"] += 1
                counts["unknown"] += not rows
                if not held:
                    counts["tokens"] += len(ids) - 2
                    counts["kept"] += sum(map(len, rows)) - 2 * len(rows)
                for row in rows:
                    yield {"input_ids": row, "length": len(row), "held": held}


def split_into_rows(ids, max_length, special):
    """Splits the ids of one text into as many rows as are needed for all of them.

    >>> split_into_rows([1, 5, 6, 7, 2], 4, {0, 1, 2})
    [[1, 5, 6, 2], [1, 7, 2]]

    Args:
        ids: the ids of a text, with `[CLS]` and `[SEP]`. Each of the rows gets these two as well.
        max_length: the length of the longest row, with `[CLS]` and `[SEP]`; at least 3.
        special: the ids of the special tokens, including that of unknown words. A row that holds
            only such ids is left out, because no word in it could be hidden and predicted.
    """
    most, end = max_length - 2, len(ids) - 1
    rows = [[ids[0], *ids[at : min(at + most, end)], ids[-1]] for at in range(1, end, most)]
    return [row for row in rows if not special.issuperset(row)]


# ------------------------------------------------------------------------------------ small parts


def probe_of(tokenizer):
    """What a tokenizer makes of `PROBE`: the normalised text and its ids. They show whether two
    tokenizers with the same vocabulary read texts differently."""
    compiled = getattr(tokenizer, "backend_tokenizer", None)
    normalizer = getattr(compiled, "normalizer", None)
    text = PROBE if normalizer is None else normalizer.normalize_str(PROBE)
    return [text, tokenizer(PROBE)["input_ids"]]


def digest_of(content):
    """The checksum of bytes, or of the file at a path, as 16 hexadecimal digits."""
    if isinstance(content, bytes):
        return hashlib.blake2b(content, digest_size=8).hexdigest()
    with open(content, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()


def held_out_share(validation, share, default):
    """The share of a corpus that is held out; 0 if `validation` names other texts to evaluate on.

    Args:
        validation, share: the keys `validation` and `validation_share` of a recipe.
        default: the share if neither is given.

    Raises:
        ValueError: both are given, or the share is not a number from 0 to below 1.
    """
    if validation is None:
        if share is not None and probability("validation_share", share) == 1:
            raise refused("validation_share", share, "a number below 1")
        return default if share is None else float(share)
    if share is not None:
        both = f"{validation=} and validation_share={share}"
        raise ValueError(f"both {both} are given; leave one of them out")
    return 0.0


def no_known_word(name, texts):
    """The error message about a corpus from which nothing can be learned."""
    reason = (
        f"{name}: none of the {texts:,} texts to train on holds a word that the vocabulary knows"
    )
    return f"{reason}; add texts, or take a tokenizer for their language"


def describe_texts(name, counts, rows):
    """A sentence on the texts that are trained on and held out, and on the tokens in the rows."""
    share = int(1000 * counts["kept"] / counts["tokens"]) / 10  # rounded down: 100% means all
    sentence = f"{name}: {counts['texts']:,} texts are trained on, {counts['held']:,} are held out"
    return f"{sentence}; {rows:,} rows keep {share}% of {counts['tokens']:,} tokens"


def _differences(wanted, record):
    """What differs between two records, by name, and the names of the files whose content differs.

    A difference that follows from another one is left out: if the names of the files differ, so do
    the contents.
    """
    wrong = [name for name in wanted if wanted[name] != record.get(name)]
    for cause, effect in (("files", "contents"), ("vocabulary", "normalizer")):
        if cause in wrong and effect in wrong:
            wrong.remove(effect)
    if "contents" in wrong:
        now, then = wanted["contents"], record["contents"]
        other = [file for file in now if now[file] != then[file]]
        names = f"contents of {', '.join(other[:3])}{', …' * (len(other) > 3)}"
        wrong = [names if name == "contents" else name for name in wrong]
    return wrong
