"""What a model is pretrained on: texts, documents of the grammar, and mixtures of them.

Each `[[data]]` table of a recipe becomes a part: a `TextCorpus`, a `GrammarCorpus` or, for a corpus
that does not fit into memory, a `TokenizedCorpus` (in `mlm_lib.engine.prepared`). A `DataMixture`
joins the parts into the one dataset that `train` takes. For documents of the grammar it also knows
the floor, the lowest loss that any model can reach on the held-out documents. Built in lesson 09.

A part is used in this order:

1. `tokenizer_texts()` gives the texts from which a tokenizer is learned, if a new one is needed.
2. `encode(tokenizer, max_length)` makes rows of ids: the rows to train on and `held_out_rows`.
3. `rows_of_epoch(epoch)` gives the rows of an epoch, as a list of sequences of rows.

`describe()` is a sentence about the part, `fingerprint_texts` are the strings by which a resumed
run recognises its data, and `held_out_masking` is how the held-out rows are masked.
"""

import hashlib
import json
import math
import warnings
from itertools import islice

import torch
from torch.utils.data import ConcatDataset

from mlm_lib.checks import whole_number
from mlm_lib.corpus import SPLITS, load_corpus, pack_blocks, split_to_train
from mlm_lib.diffusion import DiffusionCollator
from mlm_lib.engine.checkpoints import STATE, Checkpoints
from mlm_lib.engine.prepared import (
    describe_texts,
    digest_of,
    held_out_share,
    no_known_word,
    probe_of,
    split_into_rows,
)
from mlm_lib.engine.text_files import read_texts, text_files
from mlm_lib.gap import answers_back
from mlm_lib.grammar import Grammar
from mlm_lib.masking import MaskingCollator
from mlm_lib.training import HeldOut
from mlm_lib.wordpiece import WordPieceTokenizer

# The seed of the held-out documents of the grammar. The seeds of training documents are
# (seed + 1) · 100,000 + epoch, so only a run with seed 42,948 could draw the same documents.
HELD_OUT_SEED = 2**32 + 1


class DataMixture:
    """Several corpora as one dataset, whose rows may change from epoch to epoch.

    A row is a list of token ids. After `encode`, the mixture is a sequence of the rows of the
    current epoch; `set_epoch` changes to the rows of another epoch.

    Args:
        parts: a list of `TextCorpus`, `GrammarCorpus` and `TokenizedCorpus`.
        settings: a dictionary of values that must be the same when a run is resumed, in addition to
            the texts.
        legacy: whether to make rows by the rules of an earlier version, which trained only on the
            first `max_length` ids of each text and left a tenth of the texts unused. A run that was
            begun by that version is resumed in this way, and ends as it would have ended.
    """

    def __init__(self, parts, settings, *, legacy=False):
        self.parts, self.settings, self.legacy = parts, settings, legacy
        if not legacy:
            self.settings = settings | {"rows": "a long text makes several"}
        for part in parts if legacy else []:
            part.use_legacy_rules()
        for number, part in enumerate(parts):  # two parts of one name need two names in the log
            if part.name in [other.name for other in parts[:number]]:
                part.name += f"_{number}"

    def tokenizer_texts(self):
        """The texts that a new tokenizer is learned from."""
        return [text for part in self.parts for text in part.tokenizer_texts()]

    def encode(self, tokenizer, max_length):
        """Makes rows of at most `max_length` ids from all texts.

        Args:
            tokenizer: a `WordPieceTokenizer` or a tokenizer of transformers. A `WordPieceTokenizer`
                is converted first, because the compiled tokenizer of transformers gives the same
                ids and is much faster.
            max_length: the length of the longest row, with `[CLS]` and `[SEP]`; at least 3.

        Raises:
            ValueError: `max_length` leaves no room for a token; the vocabulary knows no word of the
                texts, or not every word of the grammar; a held-out document is longer than a row.
        """
        whole_number("max_length", max_length, 3)
        tokenizer = tokenizer.to_hf() if isinstance(tokenizer, WordPieceTokenizer) else tokenizer
        for part in self.parts:
            part.encode(tokenizer, max_length)
        if not self.legacy:
            probe = json.dumps(probe_of(tokenizer)).encode()
            self.settings = self.settings | {"normalizer": digest_of(probe)}
        self.epoch = None
        self.set_epoch(0)

    def set_epoch(self, epoch):
        """Changes to the rows of an epoch. `train` calls it at the start of each epoch."""
        if epoch != self.epoch:
            self.epoch = epoch
            sequences = [rows for part in self.parts for rows in part.rows_of_epoch(epoch)]
            self.rows = ConcatDataset(sequences)
            self.lengths = [
                length for rows in sequences for length in getattr(rows, "lengths", map(len, rows))
            ]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]

    def evaluations(self, tokenizer, *, bounds=False):
        """The evaluations on the held-out rows of each part, and their floors where one is known.

        Args:
            tokenizer: the tokenizer of the model.
            bounds: whether to also evaluate the bound on the likelihood of whole texts, for a model
                that is trained with the diffusion objective.

        Returns:
            (list of `HeldOut`, {name of an evaluation: its floor in nats}).
        """
        evaluations, floors = [], {}
        for part in [part for part in self.parts if part.held_out_rows]:
            collators = {"loss": MaskingCollator(tokenizer, **part.held_out_masking, seed=1)}
            if bounds:
                collators["bound"] = DiffusionCollator(tokenizer, draw="count", seed=1)
            for measure, collator in collators.items():
                name = f"{part.name}_{measure}"
                evaluation = HeldOut(part.held_out_rows, collator, name=name)
                evaluations.append(evaluation)
                if isinstance(part, GrammarCorpus):
                    of_loss = measure == "loss"
                    floors[name] = part.floor(evaluation) if of_loss else part.bound_floor()
        return evaluations, floors

    def describe(self):
        """A list of sentences, one for each part: what is trained on and what is held out."""
        sentences = [part.describe() for part in self.parts]
        if self.legacy:
            sentences.append("this run was begun by an earlier version, and goes on by its rules")
        return sentences

    def fingerprint(self):
        """A dictionary of what must be the same when a run is resumed, such as a digest of texts.

        It is the same in each epoch.
        """
        texts = "\0".join(text for part in self.parts for text in part.fingerprint_texts)
        digest = hashlib.blake2b(texts.encode(), digest_size=8).hexdigest()
        return {"texts": digest} | self.settings


class TextCorpus:
    """Texts that fit into memory. Each epoch contains all of them and, if wanted, long blocks.

    A text that is longer than a row is split into several rows. All texts that are not held out are
    trained on, except the test split of a corpus that has one (see `split_to_train`).

    Args:
        corpus: what `load_corpus` takes, such as `"reviews"` or a path.
        copies: how many times an epoch contains each text.
        blocks_every: if it is a number n, the texts are also joined into blocks of `max_length`,
            and each epoch contains every n-th block, so that n epochs contain each block once. With
            None there are no blocks.
        validation: a file or folder of texts to evaluate on. Then no text of `corpus` is held out.
            If that file is inside the folder `corpus`, it is not trained on.
        validation_share: the share of the texts that is held out. None: if the corpus is a data set
            of the hub with a validation split, this split is held out; otherwise a tenth of the
            texts.

    Attributes:
        train, validation, test: three lists, the texts to train on, the texts held out, and the
            texts of the test split, which are not used.
        counts: after `encode`, a dictionary: how many texts are trained on (`texts`), held out
            (`held`), in the test split (`test`) and, of those to train on, without a known word
            (`unknown`); the number of `tokens` to train on, and how many of them are in a row
            (`kept`).
    """

    held_out_masking = {}  # the defaults of `MaskingCollator`: 15%, as 80/10/10

    def __init__(
        self, corpus, *, copies=1, blocks_every=None, validation=None, validation_share=None
    ):  # fmt: skip
        self.corpus = self.name = corpus
        self.copies = whole_number("copies", copies)
        self.blocks_every = whole_number("blocks_every", blocks_every, none=True)
        share = held_out_share(validation, validation_share, None)
        own = [] if validation is None else [file for file, _ in text_files(validation)]
        self.train, self.validation, self.test = split_to_train(corpus, share, without=own)
        if validation is not None:
            self.validation = read_texts(validation)
            if not self.validation:
                raise ValueError(f"{validation=} holds no text")
            if both := len(set(self.validation) & set(self.train)):
                message = (
                    f"{both:,} of the texts of {validation} are also in {corpus} and are trained on"
                )
                warnings.warn(f"{message}: the loss on them says nothing about new texts")
        self.legacy = False

    def use_legacy_rules(self):
        """Splits the texts and makes the rows as an earlier version did, to resume its run."""
        self.train, self.validation, self.test = (load_corpus(self.corpus, s) for s in SPLITS)
        self.legacy = True

    @property
    def fingerprint_texts(self):
        """The texts by which a resumed run recognises its data."""
        return self.train + self.validation

    def tokenizer_texts(self):
        """The texts to train on, each as often as an epoch contains it."""
        return self.copies * self.train

    def encode(self, tokenizer, max_length):
        """Makes the rows to train on, the held-out rows and the blocks.

        Raises:
            ValueError: no text to train on has a token that the vocabulary knows.
        """
        to_rows = _truncated_rows if self.legacy else _split_rows
        encoded = _encode(tokenizer, self.train)
        self.rows = to_rows(tokenizer, encoded, max_length)
        if not self.rows:
            raise ValueError(no_known_word(self.name, len(encoded)))
        self.held_out_rows = to_rows(tokenizer, _encode(tokenizer, self.validation), max_length)
        special = set(tokenizer.all_special_ids)
        self.counts = {
            "texts": len(encoded), "held": len(self.validation), "test": len(self.test),
            "unknown": sum(special.issuperset(row) for row in encoded),
            "tokens": sum(map(len, encoded)) - 2 * len(encoded),  # without [CLS] and [SEP]
            "kept": sum(map(len, self.rows)) - 2 * len(self.rows),
        }  # fmt: skip
        if unknown := self.counts["unknown"]:
            warnings.warn(f"{unknown:,} texts of {self.name} hold no known word and are left out")
        self.blocks = []
        if self.blocks_every:
            inner = [row[1:-1] for row in encoded]  # without [CLS] and [SEP]
            ends = {"cls_id": tokenizer.cls_token_id, "sep_id": tokenizer.sep_token_id}
            blocks = pack_blocks(inner, max_length, **ends).tolist()
            self.blocks = _truncated_rows(tokenizer, blocks, max_length)

    def describe(self):
        """A sentence on how many texts are trained on, held out and not used."""
        sentence = describe_texts(self.name, self.counts, len(self.rows))
        unused = f"; the {len(self.test):,} of the test split are not used"
        return sentence + unused * bool(self.test)

    def rows_of_epoch(self, epoch):
        """The rows of all texts, `copies` times, and the blocks that are due in this epoch."""
        every = self.blocks_every or 1
        return [*self.copies * [self.rows], self.blocks[epoch % every :: every]]


class GrammarCorpus:
    """Documents of the grammar, with new ones in each epoch and an exactly known floor.

    Args:
        documents: how many documents an epoch contains.
        held_out: how many documents are held out. With 0 there is neither an evaluation nor a
            floor.
        worlds: the names of the grammar's topics to use. None: all topics are used.
        longest: keep only documents of at most this many words. None: all documents are kept. The
            floor is still exact, because the ideal reader knows the length of each document anyway.
        seed: the seed of the documents to train on. The held-out documents are the same for every
            seed.
    """

    name = "grammar"
    held_out_masking = {
        "mask_share": 1.0,
        "random_share": 0.0,
    }  # the floor is exact for [MASK] only

    def __init__(self, *, documents=20000, held_out=500, worlds=None, longest=None, seed=0):
        self.documents = whole_number("documents", documents)
        self.held_out = whole_number("held_out", held_out, least=0)
        self.longest = whole_number("longest", longest, none=True)
        self.seed = seed
        self.grammar = Grammar.load(worlds=worlds)
        self.train = self._of_epoch(0)
        self.validation = self._sample(self.held_out, HELD_OUT_SEED)
        self.fingerprint_texts, self.legacy = self.train + self.validation, False

    def use_legacy_rules(self):
        """Cuts off the ends of long documents as an earlier version did, to resume its run."""
        self.legacy = True

    def _of_epoch(self, epoch):
        return self._sample(self.documents, (self.seed + 1) * 100_000 + epoch)

    def _sample(self, number, seed):
        """The first `number` documents of a seed that are short enough, as texts."""
        longest, most = self.longest or math.inf, 1000 + 100 * number
        documents = islice(self.grammar.documents(seed), most)
        short = (" ".join(words) for words in documents if len(words) <= longest)
        texts = list(islice(short, number))
        if len(texts) < number:
            raise ValueError(f"longest={longest}; of {most:,} documents {len(texts)} are so short")
        return texts

    def tokenizer_texts(self):
        """The documents of the first epoch, and the vocabulary of the grammar fifty times.

        Because of the repetition every word of the grammar becomes a token of its own. Otherwise a
        floor in nats per word would not be a floor in nats per token.
        """
        return self.train + 50 * [" ".join(self.grammar.vocabulary)]

    def encode(self, tokenizer, max_length):
        """Makes the held-out rows. The rows to train on are made epoch by epoch.

        Raises:
            ValueError: a word of the grammar is not a token, or a held-out document is longer than
                `max_length`, so that its floor would not be known.
        """
        self.tokenizer, self.max_length = tokenizer, max_length
        vocab = tokenizer.get_vocab()
        if pieces := [word for word in self.grammar.vocabulary if word not in vocab]:
            raise ValueError(f"words of the grammar are no tokens: {pieces[:5]}; raise vocab_size")
        self.held_out_rows = _encode(tokenizer, self.validation)
        longest = max(map(len, self.held_out_rows), default=0)
        if longest > max_length:
            raise ValueError(f"max_length={max_length} cuts documents short; raise it to {longest}")

    def rows_of_epoch(self, epoch):
        """The rows of new documents. The same epoch always has the same documents."""
        texts = self._of_epoch(epoch) if epoch else self.train
        to_rows = _truncated_rows if self.legacy else _split_rows
        return [to_rows(self.tokenizer, _encode(self.tokenizer, texts), self.max_length)]

    def describe(self):
        """A sentence on how many documents are trained on and held out."""
        trained_on = f"{self.documents:,} documents are trained on, others in each epoch"
        return f"{self.name}: {trained_on}; {self.held_out:,} are held out"

    def floor(self, evaluation):
        """The floor of an evaluation: the loss of the Bayes-optimal predictor on the same words.

        Args:
            evaluation: a `HeldOut` on `held_out_rows`.

        Returns:
            The mean of −log P(hidden word | visible words) under the grammar, in nats.
        """
        tokens = {index: token for token, index in self.tokenizer.get_vocab().items()}
        total = 0.0
        for batch in evaluation.batches:
            # `observed` is True at the words that are visible in the batch.
            documents, observed = answers_back(batch, tokens)
            for nats, seen in zip(self.grammar.surprise(documents, observed), observed):
                total += nats[~seen].sum().item()
        return total / evaluation.count

    def bound_floor(self):
        """The mean of −log P(document | its length) over the held-out documents, in nats per word.

        No model's bound on the likelihood of these documents can be lower on average.
        """
        documents = [text.split() for text in self.validation]
        return self.grammar.floor(documents, objective="any_order").nats


def has_legacy_rows(out):
    """Whether the run in the folder `out` was begun before a long text was split into several rows.

    Such a run is resumed with `DataMixture(..., legacy=True)`.
    """
    try:
        state = Checkpoints(out / "checkpoints").last() / STATE
        run = torch.load(state, map_location="cpu", weights_only=True, mmap=True)["run"]
        return "data.rows" not in run
    except Exception:  # the checkpoint is damaged, which `train` will report
        return False


# ------------------------------------------------------------------------------------ rows of ids


def _encode(tokenizer, texts):
    """The ids of each text with [CLS] and [SEP], however long the text is.

    `verbose=False` turns off the tokenizer's warning about long texts, which are split later.
    """
    return tokenizer(texts, verbose=False)["input_ids"] if texts else []


def _split_rows(tokenizer, encoded, max_length):
    """The rows of all texts, where a long text is split into several rows."""
    special = set(tokenizer.all_special_ids)  # including the id of unknown words
    return [row for ids in encoded for row in split_into_rows(ids, max_length, special)]


def _truncated_rows(tokenizer, encoded, max_length):
    """One row for each text: its first ids and [SEP]. Rows without a known word are left out."""
    rows = [ids if len(ids) <= max_length else ids[: max_length - 1] + ids[-1:] for ids in encoded]
    special = set(tokenizer.all_special_ids)  # including the id of unknown words
    return [row for row in rows if not special.issuperset(row)]
