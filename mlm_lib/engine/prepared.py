"""A corpus larger than the memory: its rows in an Arrow data set on disk.

`datasets` writes it with several workers and reads it by mapping the file, so that only what is
looked at is loaded. To the training loop it is a list of rows like any other.
"""

import hashlib
import json
import os
import random
import shutil
from itertools import islice
from pathlib import Path

from filelock import FileLock

from mlm_lib.checks import path_name, whole_number
from mlm_lib.engine.files import write
from mlm_lib.engine.text_files import text_files, texts_of

HELD = 100  # one text in so many is held out, chosen by what it says
SAMPLE = 50_000  # texts that a tokenizer learns from
EVALUATED = 1000  # rows held out that are read at each evaluation
AT_ONCE = 1000  # texts in one call of the tokenizer


class Prepared:
    """Files as rows of ids on disk, tokenized once, by several processes.

    Texts longer than a row are cut into several rows.

    Args:
        corpus: a file or folder, as `load_corpus` takes it. A file must fit in memory, a folder
            need not.
        prepared: the folder of the rows; they are made if it does not hold them.
        workers: how many processes make them; None is one for each processor.
    """

    masking = {}  # of what is held out: 80/10/10

    def __init__(self, corpus, *, prepared, workers=None):
        self.folder = Path(path_name("prepared", prepared))
        self.name, self.files = Path(corpus).name, text_files(corpus)
        self.workers = whole_number("workers", workers or os.cpu_count())

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
        """Opens the rows, which are made first if nobody has.

        Raises:
            ValueError: the folder holds rows of other files, tokens or lengths.
        """
        from datasets import load_from_disk  # heavy, and only this corpus needs it

        words = json.dumps(tokenizer.get_vocab(), sort_keys=True).encode()
        asked = {
            "files": [[file.name, file.stat().st_size] for file, _ in self.files],
            "vocabulary": hashlib.blake2b(words, digest_size=8).hexdigest(),
            "max_length": max_length,
        }
        told = self.folder / "prepared.json"  # written last: without it all is made anew
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / ".lock"):  # of several processes the first one makes them
            if not told.exists():
                self._make(tokenizer, max_length)
                write(told, json.dumps(asked))
        found = json.loads(told.read_text("utf-8"))
        if wrong := [name for name in asked if asked[name] != found.get(name)]:
            wrong = f"{self.folder} was prepared with other {' and '.join(wrong)}"
            raise ValueError(f"{wrong}; delete it, or give another folder")
        rows = load_from_disk(self.folder / "rows").with_format("numpy")
        lengths, held = rows["length"][:], rows["held"][:]
        self.rows = Rows(rows, lengths, (~held).nonzero()[0])
        self.held = list(islice(Rows(rows, lengths, held.nonzero()[0]), EVALUATED))
        self.known = [json.dumps(found)]

    def _make(self, tokenizer, max_length):
        from datasets import Dataset, Features, List, Value

        ids = Value("uint16" if len(tokenizer) <= 2**16 else "int32")
        kinds = {"input_ids": List(ids), "length": Value("int32"), "held": Value("bool")}
        cache = self.folder / "cache"
        shutil.rmtree(cache, ignore_errors=True)  # what a killed program left
        given = {"files": self.files, "tokenizer": tokenizer, "max_length": max_length}
        workers = min(self.workers, len(self.files))  # each takes files of its own
        Dataset.from_generator(
            rows_of, Features(kinds), cache_dir=str(cache), gen_kwargs=given,
            num_proc=workers if workers > 1 else None,
        ).save_to_disk(self.folder / "rows")  # fmt: skip
        shutil.rmtree(cache)

    def epoch(self, epoch):
        """The rows, the same in each epoch."""
        return [self.rows]


def rows_of(files, tokenizer, max_length):
    """The rows of some files, [CLS] and [SEP] around each, those without a known word left out."""
    special, most = set(tokenizer.all_special_ids), max_length - 2
    for file in files:
        texts = texts_of(*file)
        for start in range(0, len(texts), AT_ONCE):
            some = texts[start : start + AT_ONCE]
            for text, ids in zip(some, tokenizer(some, verbose=False)["input_ids"]):
                digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
                held = int.from_bytes(digest, "little") % HELD == 0
                for place in range(1, len(ids) - 1, most):
                    row = [ids[0], *ids[place : min(place + most, len(ids) - 1)], ids[-1]]
                    if not special.issuperset(row):
                        yield {"input_ids": row, "length": len(row), "held": held}


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
