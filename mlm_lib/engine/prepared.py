"""A corpus larger than the memory: its rows in an Arrow data set on disk.

`datasets` writes it with several workers and reads it by mapping the file, so that only what is
looked at is loaded. To the training loop it is a list of rows like any other.
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
from mlm_lib.engine.text_files import text_files, texts_of, warn_of

HELD = 0.01  # the share of the texts that is held out; a hash of each text decides
SAMPLE = 50_000  # texts that a tokenizer learns from
EVALUATED = 1000  # rows held out that are read at each evaluation
AT_ONCE = 1000  # texts in one call of the tokenizer
# This text shows whether two tokenizers with one vocabulary read texts in the same way. It has
# capitals, accents (composed and not), ligatures, other scripts, other spaces, and words that some
# tokenizers keep whole and others split.
PROBE = (
    "Anna's RÉSUMÉ: Straße, e\u0301 İi ﬁ ½ 中文 ไทย\u00a0\u3000don’t—stop… x_y 3.14\t[MASK] <mask>"
)


class Prepared:
    """Files as rows of ids on disk, tokenized once, by several processes.

    Texts longer than a row are cut into several rows. The folder of the rows also records what they
    were made of: a digest of the contents of each file, of the vocabulary and of the normalizer. It
    has a checksum for each file of rows.

    Args:
        corpus: a file or folder, as `load_corpus` takes it. A file must fit in memory, a folder
            need not.
        prepared: the folder of the rows; they are made if it does not hold them.
        workers: how many processes make them; None is one for each processor.
        validation: a file or folder of texts to evaluate on, which must fit in memory. Then every
            text of the corpus is trained on.
        validation_share: the share of the texts that is held out; None is one in a hundred.

    Attributes:
        counts: how many texts are trained on (`texts`), held out (`held`) and left out because they
            hold no known word (`unknown`), and how many of the `tokens` to train on are `kept`.
    """

    masking = {}  # of what is held out: 80/10/10

    def __init__(
        self, corpus, *, prepared, workers=None, validation=None, validation_share=None
    ):  # fmt: skip
        self.folder = Path(path_name("prepared", prepared)).expanduser()
        self.workers = whole_number("workers", workers or os.cpu_count())
        self.share = held_out_share(validation, validation_share, HELD)
        self.own = [] if validation is None else text_files(validation)
        named = corpus in ("grammar", "reviews", "docs") or str(corpus).startswith("hub:")
        if named and not os.path.exists(corpus):
            told = f"prepared rows are made of files, and {corpus!r} is not a file"
            raise ValueError(f"{told}; this corpus fits in memory, so leave prepared out")
        self.files = text_files(corpus, [file for file, _ in self.own])
        self.name, self.former = Path(corpus).name, False

    def follow_former_rules(self):
        """Lets a run that was begun by an earlier version recognise its texts."""
        self.former = True

    def texts(self):
        """A sample of texts, each as likely as any other, for a tokenizer to learn from."""
        draw, sample = random.Random(0), []
        for number, text in enumerate(text for file in self.files for text in texts_of(*file)):
            # Vitter (1985), algorithm R: the text number n is taken with chance SAMPLE / n.
            place = number if number < SAMPLE else draw.randrange(number + 1)
            if place < SAMPLE:
                sample[place : place + 1] = [text]
        return sample

    def encode(self, tokenizer, max_length):
        """Opens the rows. If the folder does not hold them yet, they are made first.

        A file is read for its digest only if its size or one of its times has changed.

        Raises:
            ValueError: the folder holds rows of other texts, tokens or lengths, or damaged rows;
                or what `read_texts` refuses.
        """
        from datasets import load_from_disk  # heavy, and only this corpus needs it

        whole_number("max_length", max_length, 3)  # [CLS], one token, [SEP]
        words = json.dumps(tokenizer.get_vocab(), sort_keys=True).encode()
        asked = {
            "vocabulary": digest_of(words),
            "normalizer": digest_of(json.dumps(reading(tokenizer)).encode()),
            "max_length": max_length,
            "validation_share": self.share,
            "columns": sorted({column for _, column in self.files}),
        }
        told = self.folder / "prepared.json"  # written last: without it all is made anew
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / ".lock"):  # of several processes the first one makes them
            found = self._found(told)
            asked |= self._looked_at(found.get("seen", {}))
            seen = asked.pop("seen")
            if not found:
                counts = self._make(tokenizer, max_length)
                if self._looked_at(seen)["seen"] != seen:
                    told = f"{self.name} was changed while rows were made of it"
                    raise ValueError(f"{told}; start again when no program writes to it")
                found = asked | {"seen": seen, "counts": counts, "shards": self._checksums()}
                write(told, json.dumps(found))
            if wrong := _differences(asked, found):
                told = f"{self.folder} was prepared with other {' and '.join(wrong)}"
                raise ValueError(f"{told}; delete it, or give another folder")
            if seen != found["seen"]:  # touched or copied, but the same: not read again next time
                write(told, json.dumps(found | {"seen": seen}))
        self._refuse_damage(found["shards"])
        rows = load_from_disk(self.folder / "rows").with_format("numpy")
        lengths, held = rows["length"][:], rows["held"][:]
        self.rows, self.counts = Rows(rows, lengths, (~held).nonzero()[0]), found["counts"]
        if not len(self.rows):
            raise ValueError(no_known_word(self.name, self.counts["texts"]))
        warn_of(self.counts["doubts"])
        self.set_aside = Rows(rows, lengths, held.nonzero()[0])
        self.held = list(islice(self.set_aside, EVALUATED))
        self.known = [json.dumps(asked, sort_keys=True)]
        if self.own:
            counts = Counter()
            self.held = [
                row["input_ids"] for row in rows_of(self.own, tokenizer, max_length, 0, counts)
            ]
            if not self.held:
                raise ValueError(no_known_word("validation", counts["texts"]))
            self.counts = self.counts | {"held": counts["texts"]}
            self.known.append(digest_of(json.dumps(self.held).encode()))
        if self.former:
            sizes = [[file.name, file.stat().st_size] for file, _ in self.files]
            former = {"files": sizes, "vocabulary": asked["vocabulary"], "max_length": max_length}
            self.known = [json.dumps(former)]

    def said(self):
        """A sentence on what is trained on and what is held out."""
        told = told_of(self.name, self.counts, len(self.rows))
        if not self.own and len(self.set_aside) > len(self.held):
            told += (
                f"; each evaluation reads {len(self.held):,} of the {len(self.set_aside):,} rows"
            )
            told += " that are held out"
        return told

    def epoch(self, epoch):
        """The rows, the same in each epoch."""
        return [self.rows]

    # -------------------------------------------------------------------------------- the folder

    def _found(self, told):
        """What the folder records about its rows; empty if they have not been made yet."""
        if not told.exists():
            return {}
        remedy = f"delete {self.folder}, and the rows are made again"
        try:
            found = json.loads(told.read_text("utf-8"))
            names = set(found)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{told} is damaged ({error}); {remedy}") from None
        if not names >= {"seen", "counts", "shards", "contents"}:
            former = "was prepared by an earlier version, which kept no checksums"
            raise ValueError(f"{self.folder} {former}; {remedy}")
        return found

    def _looked_at(self, before):
        """Names and digests of the files, and the sizes and times that show a change of a file.

        Args:
            before: {name: [size, times, digest]} of an earlier look.
        """
        base = os.path.commonpath([file.parent for file, _ in self.files])
        seen = {}
        for file, _ in self.files:
            name, now = file.relative_to(base).as_posix(), file.stat()
            # No program can set the second time: a copy that keeps its file's date has a new one.
            state = [now.st_size, now.st_mtime_ns, now.st_ctime_ns]
            *then, digest = before.get(name, [None])
            seen[name] = [*state, digest if then == state else digest_of(file)]
        contents = {name: digest for name, (*_, digest) in seen.items()}
        return {"files": list(seen), "contents": contents, "seen": seen}

    def _checksums(self):
        """A digest of each file of rows."""
        rows = self.folder / "rows"
        return {file.name: digest_of(file) for file in sorted(rows.iterdir())}

    def _refuse_damage(self, shards):
        """Reads all rows once, because a wrong id would be trained on, or would end the program."""
        for name, digest in shards.items():
            file = self.folder / "rows" / name
            if not file.exists() or digest_of(file) != digest:
                told = "is damaged" if file.exists() else "is missing"
                raise ValueError(
                    f"{file} {told}; delete {self.folder}, and the rows are made again"
                )

    def _make(self, tokenizer, max_length):
        """Writes the rows, and returns the counts of `rows_of`."""
        from datasets import Dataset, Features, List, Value
        from datasets.exceptions import DatasetGenerationError

        ids = Value("uint16" if len(tokenizer) <= 2**16 else "int32")
        kinds = {"input_ids": List(ids), "length": Value("int32"), "held": Value("bool")}
        cache, notes = self.folder / "cache", self.folder / "cache" / "notes"
        shutil.rmtree(cache, ignore_errors=True)  # what a killed program left
        notes.mkdir(parents=True)
        given = {"files": self.files, "tokenizer": tokenizer, "max_length": max_length}
        given |= {"share": self.share, "notes": str(notes)}
        workers = min(self.workers, len(self.files))  # each takes files of its own
        try:
            Dataset.from_generator(
                noted_rows, Features(kinds), cache_dir=str(cache / "data"), gen_kwargs=given,
                num_proc=workers if workers > 1 else None,
            ).save_to_disk(self.folder / "rows")  # fmt: skip
        except (DatasetGenerationError, ValueError) as error:
            for note in notes.glob("error-*"):  # the message of the worker process that failed
                raise ValueError(note.read_text("utf-8")) from None
            if isinstance(error.__cause__, OSError):  # a full disk
                raise error.__cause__ from None
            if not (counts := _summed(notes))["kept"]:
                raise ValueError(no_known_word(self.name, counts["texts"])) from None
            raise
        counts = _summed(notes)
        shutil.rmtree(cache)
        return counts


COUNTS = ("texts", "held", "unknown", "tokens", "kept")


def noted_rows(files, tokenizer, max_length, share, notes):
    """`rows_of` for a worker, whose exceptions are lost: it writes counts or error to a file."""
    counts, doubts, name = Counter(), [], uuid.uuid4().hex
    try:
        yield from rows_of(files, tokenizer, max_length, share, counts, doubts)
        write(Path(notes) / f"counts-{name}", json.dumps(counts | {"doubts": doubts}))
    except (ValueError, OSError) as error:
        write(Path(notes) / f"error-{name}", str(error))
        raise


def _summed(notes):
    """The sums of the counts of all processes, and all their doubts about files."""
    found = [json.loads(note.read_text("utf-8")) for note in sorted(notes.glob("counts-*"))]
    counts = {name: sum(one.get(name, 0) for one in found) for name in COUNTS}
    return counts | {"doubts": [doubt for one in found for doubt in one["doubts"]]}


def rows_of(files, tokenizer, max_length, share=HELD, counts=None, doubts=None):
    """The rows of some files, as `cut` makes them, each with its length and whether it is held out.

    Args:
        files: pairs (file, column).
        share: the share of the texts that is held out.
        counts: a Counter, to which the `COUNTS` of these files are added.
        doubts: a list, to which doubts about these files are added.
    """
    special = set(tokenizer.all_special_ids)
    counts = Counter() if counts is None else counts
    for file, column in files:
        texts = texts_of(file, column, doubts)
        for start in range(0, len(texts), AT_ONCE):
            some = texts[start : start + AT_ONCE]
            for text, ids in zip(some, tokenizer(some, verbose=False)["input_ids"]):
                digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
                number = int.from_bytes(digest, "little")
                # It looks random in 0..10⁸ − 1. For a share of 0.01 only two digits count.
                held = number % 100 * 10**6 + number // 100 % 10**6 < round(share * 10**8)
                rows = cut(ids, max_length, special)
                counts["held" if held else "texts"] += 1
                counts["unknown"] += not rows
                if not held:
                    counts["tokens"] += len(ids) - 2
                    counts["kept"] += sum(map(len, rows)) - 2 * len(rows)
                for row in rows:
                    yield {"input_ids": row, "length": len(row), "held": held}


def cut(ids, max_length, special):
    """The rows of one text: as many as are needed for all of its ids.

    >>> cut([1, 5, 6, 7, 2], 4, {0, 1, 2})
    [[1, 5, 6, 2], [1, 7, 2]]

    Args:
        ids: the ids of a text, with `[CLS]` and `[SEP]`, which each of the rows gets.
        max_length: the length of a row, with `[CLS]` and `[SEP]`; 3 or more.
        special: the ids that stand for no known word. A row that has only such ids is left out,
            because nothing in it could be hidden.
    """
    most, end = max_length - 2, len(ids) - 1
    rows = [[ids[0], *ids[at : min(at + most, end)], ids[-1]] for at in range(1, end, most)]
    return [row for row in rows if not special.issuperset(row)]


def reading(tokenizer):
    """How a tokenizer reads `PROBE`: two tokenizers with one vocabulary may differ in this."""
    compiled = getattr(tokenizer, "backend_tokenizer", None)
    normalizer = getattr(compiled, "normalizer", None)
    text = PROBE if normalizer is None else normalizer.normalize_str(PROBE)
    return [text, tokenizer(PROBE)["input_ids"]]


def digest_of(content):
    """A checksum of bytes, or of the file that a path names."""
    if isinstance(content, bytes):
        return hashlib.blake2b(content, digest_size=8).hexdigest()
    with open(content, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()


def held_out_share(validation, share, default):
    """The share of a corpus that is held out: none if `validation` names other texts."""
    if validation is None:
        if share is not None and probability("validation_share", share) == 1:
            raise refused("validation_share", share, "a number below 1")
        return default if share is None else float(share)
    if share is not None:
        told = f"{validation=} and validation_share={share}"
        raise ValueError(f"both {told} are given; leave one of them out")
    return 0.0


def no_known_word(name, texts):
    """The message about a corpus that nothing can be learned from."""
    told = f"{name}: none of the {texts:,} texts to train on holds a word that the vocabulary knows"
    return f"{told}; add texts, or take a tokenizer for their language"


def told_of(name, counts, rows):
    """A sentence on the texts that are trained on and those held out, and the tokens kept."""
    share = int(1000 * counts["kept"] / counts["tokens"]) / 10  # never rounded up to all
    told = f"{name}: {counts['texts']:,} texts are trained on, {counts['held']:,} are held out"
    return f"{told}; {rows:,} rows keep {share}% of {counts['tokens']:,} tokens"


def _differences(asked, found):
    """The names of what differs; if only the contents of files differ, the names of the files."""
    wrong = [name for name in asked if asked[name] != found.get(name)]
    for cause, effect in (("files", "contents"), ("vocabulary", "normalizer")):
        if cause in wrong and effect in wrong:
            wrong.remove(effect)
    if "contents" in wrong:
        now, then = asked["contents"], found["contents"]
        other = [file for file in now if now[file] != then[file]]
        names = f"contents of {', '.join(other[:3])}{', …' * (len(other) > 3)}"
        wrong = [names if name == "contents" else name for name in wrong]
    return wrong


class Rows:
    """Some rows of an Arrow data set, as a sequence of lists of ids, and the length of each."""

    def __init__(self, rows, lengths, numbers):
        self.rows, self.numbers, self.lengths = rows, numbers, lengths[numbers]

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, index):
        if index >= len(self):
            raise IndexError(index)
        return self.rows[int(self.numbers[index])]["input_ids"].tolist()
