"""Texts larger than memory, read as they are trained on. Built in lesson 08.

A `Stream` has the protocol of a `Mixture`: `texts()` is what a tokenizer learns from, `encode`
makes rows of ids, `held_out` says how well a model can be judged, and `fingerprint()` names what
must stay the same when a run goes on.
"""

from itertools import islice

from mlm_lib.checks import path_name, whole_number
from mlm_lib.engine.text_files import iter_texts
from mlm_lib.masking import MaskingCollator
from mlm_lib.rows import digest_of, row_encoder, settings_of
from mlm_lib.training import HeldOut

SAMPLE = 20000  # texts that the tokenizer learns from and the fingerprint covers
BUFFER = 10000  # rows among which a stream is shuffled


class Stream:
    """Texts larger than memory, read from the disk as they are needed. The first are held out.

    An iterable of rows, shuffled within a buffer, in another way in each epoch.

    Args:
        corpus: "stream:" and what `iter_texts` takes: a file, a column after a colon, or a folder.
        held_out: how many texts are held out.
        seed: of the shuffling.

    Raises:
        FileNotFoundError: no file at that path.
        ValueError: files without texts, a missing column, or no more texts than are held out.
    """

    def __init__(self, corpus, *, held_out=500, seed=0):
        self.name = path_name("corpus", corpus)
        self.source = path_name("stream:", self.name.removeprefix("stream:"))
        self.size = whole_number("held_out", held_out, least=0)
        self.seed = whole_number("seed", seed, least=0)
        # A hash of all would mean to read all, and then a stream could not grow while a run waits.
        self.settings, self.made = settings_of(corpus, held_out=held_out), {}
        self.first = digest_of(islice(iter_texts(self.source), self.size + SAMPLE))
        if next(self.texts(), None) is None:
            raise ValueError(
                f"{self.source} has no more texts than held_out={self.size}, "
                "so there is none to train on; lower held_out"
            )

    def texts(self):
        """What a tokenizer learns from."""
        return islice(iter_texts(self.source), self.size, self.size + SAMPLE)

    def encode(self, tokenizer, max_length):
        """Makes rows of at most `max_length` ids of the texts, as they are read."""
        from datasets import IterableDataset  # heavy, and only a stream needs it

        whole_number("max_length", max_length, 3)  # [CLS], a token and [SEP]
        encode, self.vocabulary = row_encoder(tokenizer), digest_of(tokenizer.vocab)

        def encoded(batch):
            return {"input_ids": encode(batch["text"], max_length)}

        rest = {"source": self.source, "skip": self.size}
        rows = IterableDataset.from_generator(_columns, gen_kwargs=rest)
        rows = rows.map(encoded, batched=True, remove_columns=["text"])
        self.rows = rows.shuffle(seed=self.seed, buffer_size=BUFFER)
        self.held = encode(list(islice(iter_texts(self.source), self.size)), max_length)
        self.collator = MaskingCollator(tokenizer, seed=1)

    def set_epoch(self, epoch):
        """Turns to the order of an epoch."""
        self.rows.set_epoch(epoch)

    def __iter__(self):
        return (row["input_ids"] for row in self.rows)

    def describe(self):
        """Where it comes from, in words."""
        return f"a stream from {self.name}"

    def held_out(self):
        """The evaluation on the texts held out, if there are any."""
        return [HeldOut(self.held, self.collator, name="stream_loss")] if self.held else []

    def bounds(self, collator):
        """The same of the bound on whole texts, masked by a `DiffusionCollator`."""
        return [HeldOut(self.held, collator, name="stream_bound")] if self.held else []

    def floors(self):
        """None is known."""
        return {}

    bound_floors = floors

    def fingerprint(self):
        """What must be the same when a run goes on; of the texts the first ones."""
        own = {"texts": self.first, "vocabulary": self.vocabulary}
        return {"part 1": self.settings} | own | self.made


def _columns(source, skip):
    """The texts as `datasets` takes them: one dictionary each."""
    for text in islice(iter_texts(source), skip, None):
        yield {"text": text}
