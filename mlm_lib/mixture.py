"""What is trained on: corpora that fit in memory, mixed into one dataset. Built in lesson 08.

A `Mixture` has parts: `Documents`, drawn anew from the grammar in each epoch, and `Texts`. Its
protocol: `texts()` is what a tokenizer learns from, `encode` makes rows of ids, `held_out` and
`floors` say how well a model can be judged, and `fingerprint()` names what must stay the same when
a run goes on.
"""

import math
from itertools import chain

from mlm_lib.checks import path_name, refused, whole_number
from mlm_lib.corpus import load_corpus, pack_blocks
from mlm_lib.gap import answers_back
from mlm_lib.grammar import Grammar
from mlm_lib.masking import MaskingCollator
from mlm_lib.rows import digest_of, row_encoder, settings_of
from mlm_lib.training import HeldOut

HELD_OUT_SEED = 2**32 + 1  # of the grammar's held-out documents, no seed of documents to train on


class Mixture:
    """Corpora that fit in memory, together one dataset: a sequence of rows, new in each epoch.

    Args:
        parts: a list of `Documents` and `Texts`. Two of one name are evaluated under two.

    Raises:
        ValueError: no parts, or a `Stream` among them.

    Attributes:
        made: what else the fingerprint is to name, {name: value}; a `Stream` has it, too.
    """

    def __init__(self, parts):
        if not isinstance(parts, (list, tuple)) or not parts:
            raise refused("parts", parts, "a list of Documents and Texts")
        names = []
        for number, part in enumerate(parts):
            if not isinstance(part, (Documents, Texts)):
                name = repr(getattr(part, "name", part))
                raise ValueError(f"{name} cannot be mixed with other corpora; give it alone")
            part.name += f"_{number}" if part.name in names else ""
            names.append(part.name)
        self.parts, self.number, self.made = list(parts), None, {}

    def texts(self):
        """What a tokenizer learns from."""
        return [text for part in self.parts for text in part.texts()]

    def encode(self, tokenizer, max_length):
        """Makes rows of at most `max_length` ids.

        Raises:
            ValueError: a vocabulary without the grammar's words; longer documents held out.
        """
        whole_number("max_length", max_length, 3)  # [CLS], a token and [SEP]
        for part in self.parts:
            part.encode(tokenizer, max_length)
        self.vocabulary, self.number = digest_of(tokenizer.vocab), None
        self.set_epoch(0)

    def set_epoch(self, epoch):
        """Turns to the rows of an epoch."""
        if epoch != self.number:
            self.number, self.of_parts = epoch, [part.epoch(epoch) for part in self.parts]
            self.rows = list(chain.from_iterable(self.of_parts))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]

    def describe(self):
        """The tokens of each part in an epoch, in words."""
        counts = []
        for part, rows in zip(self.parts, self.of_parts):
            counts.append(f"{part.name}: {sum(map(len, rows)):,}")
        return "tokens in an epoch: " + ", ".join(counts)

    def held_out(self):
        """An evaluation for each part that holds texts out."""
        return [part.evaluation for part in self.parts if part.evaluation]

    def floors(self):
        """{name: nats} of the parts whose best possible loss on the words held out is known."""
        known = [part for part in self.parts if isinstance(part, Documents) and part.evaluation]
        return {part.name: part.floor() for part in known}

    def bounds(self, collator):
        """The same of the bound on whole texts, masked by a `DiffusionCollator`."""
        parts = [part for part in self.parts if part.evaluation]
        return [HeldOut(part.held_rows, collator, name=f"{part.name}_bound") for part in parts]

    def bound_floors(self):
        """{name: nats a word} of the parts whose least possible bound is known."""
        known = [part for part in self.parts if isinstance(part, Documents) and part.evaluation]
        return {f"{part.name}_bound": part.bound_floor() for part in known}

    def fingerprint(self):
        """What must be the same when a run goes on; the epoch is not in it."""
        parts = {f"part {number}": part.settings for number, part in enumerate(self.parts, 1)}
        texts = digest_of(text for part in self.parts for text in part.own)
        return parts | {"texts": texts, "vocabulary": self.vocabulary} | self.made


class Texts:
    """A corpus of texts: `copies` of each in an epoch, and a share of it again as long blocks.

    Args:
        corpus: what `load_corpus` takes.
        copies: how often an epoch holds each text.
        blocks_every: the texts are also joined into blocks of full length, and an epoch holds one
            of so many, others in each epoch; None makes no blocks.
    """

    def __init__(self, corpus, *, copies=1, blocks_every=None):
        self.name = path_name("corpus", corpus)
        self.copies = whole_number("copies", copies)
        self.blocks_every = whole_number("blocks_every", blocks_every, none=True)
        self.settings = settings_of(corpus, copies=copies, blocks_every=blocks_every)
        self.train, self.held = (load_corpus(corpus, split) for split in ("train", "validation"))
        self.own = self.train + self.held

    def texts(self):
        return self.copies * self.train

    def encode(self, tokenizer, max_length):
        encode = row_encoder(tokenizer)
        self.encoded, self.blocks = encode(self.train, max_length), []
        if self.blocks_every:
            inner = [row[1:-1] for row in encode(self.train)]  # whole, without [CLS] and [SEP]
            ends = {"cls_id": tokenizer.cls_token_id, "sep_id": tokenizer.sep_token_id}
            self.blocks = pack_blocks(inner, max_length, **ends).tolist()
        collator = MaskingCollator(tokenizer, seed=1)
        self.held_rows = encode(self.held, max_length)
        self.evaluation = HeldOut(self.held_rows, collator, name=f"{self.name}_loss")

    def epoch(self, epoch):
        every = self.blocks_every or 1
        return self.copies * self.encoded + self.blocks[epoch % every :: every]


class Documents:
    """Documents of the grammar, new ones in each epoch.

    Args:
        corpus: "grammar".
        documents: how many an epoch holds.
        held_out: how many are held out; 0 leaves evaluation and floor away.
        worlds: names of the grammar's topics; None takes all.
        longest: only documents of at most so many words, which changes no floor: each is of a
            document whose length is known. None takes all.
        seed: of the documents to train on. Those held out are the same for every seed.

    Raises:
        ValueError: a value outside its range, `longest` below the shortest document.
    """

    def __init__(
        self, corpus="grammar", *, documents=20000, held_out=500, worlds=None, longest=None, seed=0
    ):
        if worlds is not None and not isinstance(worlds, (list, tuple)):
            raise refused("worlds", worlds, "a list of names")
        self.name = path_name("corpus", corpus)
        self.documents = whole_number("documents", documents)
        self.held_out = whole_number("held_out", held_out, least=0)
        self.seed = whole_number("seed", seed, least=0)
        self.longest = whole_number("longest", longest, none=True)
        self.settings = settings_of(corpus, documents=documents, held_out=held_out, worlds=worlds)
        self.settings |= {"longest": longest} if longest else {}
        self.grammar = Grammar.load(worlds=worlds)
        self.share = self._share()
        self.own = self._of_epoch(0)

    def _share(self):
        """How many of all documents are short enough."""
        if self.longest is None:
            return 1.0
        lengths = range(1, self.longest + 1)
        share = sum(math.exp(self.grammar.log_prob_of_length(length)) for length in lengths)
        if not share:
            raise ValueError(
                f"longest={self.longest} is too short; the grammar has no such document"
            )
        return share

    def _sample(self, number, seed):
        """Texts, the same for a seed: as many as it takes are drawn until enough are short."""
        if self.longest is None:
            return [" ".join(words) for words in self.grammar.sample(number, seed=seed)]
        drawn = math.ceil(1.05 * number / self.share)
        while True:
            documents = self.grammar.sample(drawn, seed=seed)
            texts = [" ".join(words) for words in documents if len(words) <= self.longest]
            if len(texts) >= number:
                return texts[:number]
            drawn += drawn // 10 + 1  # by chance there were fewer short ones

    def _of_epoch(self, epoch):
        return self._sample(self.documents, (self.seed + 1) * 100_000 + epoch)

    def texts(self):
        # Each word many times, so that it becomes a token: a floor in words is then one in tokens.
        return self.own + 50 * [" ".join(self.grammar.vocabulary)]

    def encode(self, tokenizer, max_length):
        pieces = [word for word in self.grammar.vocabulary if word not in tokenizer.vocab]
        if pieces:
            count = f"{len(pieces)} words of the grammar are no tokens, such as {pieces[:5]}"
            raise ValueError(f"{count}; raise vocab_size")
        self.tokens, self.max_length = tokenizer.tokens, max_length
        self.encoded, self.evaluation = row_encoder(tokenizer), None
        if self.held_out:
            rows = self.encoded(self._sample(self.held_out, HELD_OUT_SEED))
            longest = max(map(len, rows))
            if longest > max_length:  # the grammar makes no half documents
                raise ValueError(
                    f"max_length={max_length} cuts documents short, which then have no exact "
                    f"floor; raise it to {longest}, the longest that is held out"
                )
            collator = MaskingCollator(tokenizer, mask_share=1.0, random_share=0.0, seed=1)
            self.evaluation = HeldOut(rows, collator, name=f"{self.name}_loss")
            self.held_rows = rows

    def epoch(self, epoch):
        return self.encoded(self._of_epoch(epoch) if epoch else self.own, self.max_length)

    def floor(self):
        """The exact floor, in nats, on the very words that the evaluation asks for."""
        # 1. The documents with the answers put back, and which of their words were seen.
        documents, observed = [], []
        for batch in self.evaluation.batches:
            words, seen = answers_back(batch, self.tokens)
            documents += words
            observed += seen
        # 2. The mean of −log P(word | what was seen) over the words that were not.
        surprises = self.grammar.surprise(documents, observed)
        total = sum(nats[~seen].sum().item() for nats, seen in zip(surprises, observed))
        return total / self.evaluation.count

    def bound_floor(self):
        """The mean of −log P(document | its length) in nats a word, over those held out."""
        documents = [text.split() for text in self._sample(self.held_out, HELD_OUT_SEED)]
        return self.grammar.floor(documents, objective="any_order").nats
