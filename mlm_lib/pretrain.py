"""Pretraining from the command line: `python -m mlm_lib.pretrain --corpus NAME --steps N --out DIR`

A recipe says the rest: `--config FILE` repeats one, such as `data/course-bert/recipe.toml`. Under
`torchrun` the batch is shared out among the processes. DIR gets `tokenizer/` if that is a new one,
`log.jsonl`, `checkpoints/` and, at the end, `model/`, which transformers opens.

Each table of a recipe holds the arguments of one class, whose checks and defaults hold::

    [[data]]     Documents, or Texts if corpus is not "grammar", or Prepared if `prepared` names a
                 folder; several are mixed
    [tokenizer]  WordPieceTokenizer.train
    [model]      EncoderConfig; with encoder = "modern", ModernConfig
    [masking]    MaskingCollator; with objective = "diffusion" above all tables, for a model
                 that is to write, DiffusionCollator
    [training]   TrainingConfig
    [show]       ShowPredictions
    [save]       dtype = "float32", "float16" or "bfloat16"

`[model] from = "course-bert"` goes on with a checkpoint's weights, shape and tokenizer; only its
dropout may be another. Built in lessons 08, 15 and 16.
"""

import argparse
import hashlib
import json
import math
import os
import sys
import tomllib
import warnings
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch
from torch import distributed
from torch.utils.data import ConcatDataset

from mlm_lib.checks import choice, path_name, whole_number
from mlm_lib.corpus import SPLITS, load_corpus, pack_blocks, split_to_train
from mlm_lib.diffusion import DiffusionCollator
from mlm_lib.encoder import EncoderConfig
from mlm_lib.engine.checkpoints import STATE, Checkpoints
from mlm_lib.engine.files import only_writer
from mlm_lib.engine.log import TrainingStopped
from mlm_lib.engine.prepared import (
    Prepared,
    cut,
    digest_of,
    held_out_share,
    no_known_word,
    reading,
    told_of,
)
from mlm_lib.engine.text_files import read_texts, text_files
from mlm_lib.gap import answers_back
from mlm_lib.grammar import Grammar
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.masking import MaskingCollator
from mlm_lib.modern import ModernConfig
from mlm_lib.pretrained import load_checkpoint, save_pretrained
from mlm_lib.training import HeldOut, ShowPredictions, TrainingConfig, train
from mlm_lib.wordpiece import WordPieceTokenizer

# What holds where a recipe is silent and no class has a default: a model that a laptop trains. Rows
# of like length share a batch.
DEFAULTS = {
    "objective": "masked", "data": [{"corpus": "grammar"}], "tokenizer": {"vocab_size": 8192},
    "model": {"hidden_size": 128, "num_layers": 2, "num_heads": 2}, "masking": {},
    "training": {"steps": None, "group_by_length": True},
    "show": {"sentences": []}, "save": {"dtype": "float32"},
}  # fmt: skip
COLLATORS = {"masked": MaskingCollator, "diffusion": DiffusionCollator}  # by objective
# By [model] encoder, and how much wider than hidden_size the feed-forward part is, if not said.
ENCODERS = {"bert": (EncoderConfig, 4), "modern": (ModernConfig, 1.5)}
# Of [training], what the command line says, too.
OPTIONS = {"steps": int, "seconds": float, "seed": int, "batch_size": int, "learning_rate": float}
OPTIONS |= {"checkpoint_every": int, "precision": str, "device": str}


def main(arguments=None):
    """The command line. Returns its exit status: 0, 1 after one line of error, 130 after Ctrl-C."""
    unsaid = {"argument_default": argparse.SUPPRESS}  # so that the recipe's values stay
    parser = argparse.ArgumentParser("python -m mlm_lib.pretrain", **unsaid)
    parser.add_argument("--config", help="recipe, a TOML file; the options below go before it")
    parser.add_argument("--corpus", help="grammar, reviews, docs, a path, or hub:NAME")
    parser.add_argument(
        "--prepared", help="folder for the corpus's rows, made once, read from disk"
    )
    parser.add_argument("--out", required=True)
    parser.add_argument("--resume", action="store_true", help="go on from OUT's last checkpoint")
    for name, kind in OPTIONS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, help=f"[training] {name}")
    options = vars(parser.parse_args(arguments))
    out, resume = options.pop("out"), options.pop("resume", False)
    try:
        recipe = read_recipe(options.pop("config", None))
        said = {name: options.pop(name) for name in ("corpus", "prepared") if name in options}
        if said:
            recipe["data"] = [said]
        recipe["training"] |= options
        pretrain(recipe, out, resume=resume)
    except KeyboardInterrupt:
        print(f"stopped; --resume goes on from the last checkpoint of {out}", file=sys.stderr)
        return 130
    except (ValueError, OSError, TrainingStopped, MemoryError, torch.OutOfMemoryError) as error:
        print(f"error: {str(error) or 'there is not enough memory'}", file=sys.stderr)
        return 1
    except RuntimeError as error:
        if not distributed.is_initialized():
            raise
        told = f"this process failed, or was left by another one ({str(error).splitlines()[0]})"
        print(f"error: {told}; --resume goes on from {out}'s last checkpoint", file=sys.stderr)
        return 1
    return 0


# ------------------------------------------------------------------------------------ a recipe


def read_recipe(file=None):
    """A recipe as a dictionary of tables: what the file says, before `DEFAULTS`.

    Raises:
        OSError: the file cannot be read.
        ValueError: no TOML, or a table that a recipe does not have.
    """
    if file is None:
        return complete({})
    return complete(made(file, lambda: tomllib.loads(Path(file).read_text("utf-8"))))


def complete(tables):
    """A new recipe with all its tables. What they hold is left to the classes that take it."""
    recipe = DEFAULTS | tables
    for name, said in recipe.items():
        default = DEFAULTS[choice("a table of the recipe", name, DEFAULTS)]
        if not isinstance(said, type(default)):
            raise ValueError(f"[{name}] is {said!r}; something like {default!r} is needed")
        recipe[name] = default | said if isinstance(default, dict) else said
    if "from" in recipe["model"]:  # what a checkpoint settles has no defaults
        recipe["model"] = dict(tables["model"])
        recipe["tokenizer"] = tables.get("tokenizer", {})
    return recipe


def made(table, make, /, *arguments, **settings):
    """What a class or function makes of a table; the table's name goes before what it refuses."""
    try:
        return make(*arguments, **settings)
    except (TypeError, ValueError, RuntimeError) as error:  # torch has the last for too large sizes
        raise ValueError(f"{table} {error}") from error


# ------------------------------------------------------------------------------------ a run


def pretrain(recipe, out, *, resume=False):
    """Carries a recipe out.

    Args:
        recipe: a dictionary of tables, such as `read_recipe` returns.
        out: folder of the tokenizer, the log, the checkpoints and the model. One program at a time
            writes to it, and of its processes the main one.
        resume: go on from the last checkpoint in `out`, or begin if there is none.

    Returns:
        (model, tokenizer, `History`).

    Raises:
        ValueError: a recipe that does not fit together, or not to the checkpoints.
        FileExistsError: `out` holds a run and `resume` is False, or a model without checkpoints.
        BlockingIOError: another program writes to `out`.
        TrainingStopped: as `train` says; no model is saved then.
    """
    recipe, out = complete(recipe), Path(path_name("out", out))
    main_process = os.environ.get("RANK", "0") == "0"  # torchrun says so before there is a group

    # 1. What needs no look at the data comes first.
    kind = COLLATORS[choice("objective", recipe["objective"], COLLATORS)]
    config = made("[training]", TrainingConfig, **recipe["training"])
    source = recipe["model"].pop("from", None)
    start = None if source is None else made("[model]", load_checkpoint, source)
    shape = made("[model]", _shape, start, **recipe["model"])
    dtype = made("[save]", _dtype, **recipe["save"])

    with only_writer(out) if main_process else nullcontext():
        begun = _begun(out, resume)

        # 2. The data and their tokenizer; a run that goes on has its own.
        parts = [made("[[data]]", _part, config.seed, **part) for part in recipe["data"]]
        settings = {name: recipe[name] for name in ("data", "tokenizer")}
        former = begun and begun_by_former_rules(out)
        data = Mixture(parts, settings | {"max_length": shape.max_length}, former=former)
        vocab_file = out / "tokenizer" / "vocab.txt"
        words = start, data, vocab_file if begun else None
        tokenizer = made("[tokenizer]", _tokenizer, *words, **recipe["tokenizer"])
        data.encode(tokenizer, shape.max_length)
        looks, floors = data.held_out(tokenizer, bounds=kind is DiffusionCollator)

        # 3. The model and what hides its words.
        model = made("[model]", _model, shape, tokenizer, start, config.seed)
        masks = recipe["masking"]
        collator = made("[masking]", lambda: kind(tokenizer, seed=config.seed, **masks))
        callbacks = made("[show]", _shown, tokenizer, shape.max_length, **recipe["show"])

        if main_process:
            size = sum(parameter.numel() for parameter in model.parameters())
            print(f"{size:,} parameters, {len(tokenizer):,} different tokens")
            print(f"{len(data):,} rows of {sum(data.lengths):,} tokens in an epoch")
            print("\n".join(data.said()))
            for name, nats in floors.items():
                print(f"{name}: no model can go below {nats:.4f} nats a word of those held out")
            if not begun and start is None:
                tokenizer.save(vocab_file)

        # 4. Training.
        def evaluate(model):
            return {name: nats for look in looks for name, nats in look(model).items()}

        history = train(
            model, data, collator, config, out=out, resume=resume,
            evaluate=evaluate if looks else None,
            callbacks=[_print_row, *callbacks] if main_process else [],
        )  # fmt: skip

        # 5. The model, for everyone.
        if main_process:
            save_pretrained(model.cpu().eval().to(dtype), tokenizer, out / "model")
            done = f"after {history.step} steps and {history.tokens:,} tokens"
            print(f"saved {out / 'model'} {done} in {history.seconds:.0f} s")
    return model.float(), tokenizer, history


def _begun(out, resume):
    """Whether there are checkpoints to go on from. What a run has left is not written over."""
    begun = Checkpoints(out / "checkpoints").last() is not None
    if begun and not resume:
        raise FileExistsError(f"{out} holds a run; --resume goes on, or choose another folder")
    if not begun and (out / "model").exists():
        raise FileExistsError(f"{out} holds a model without checkpoints; choose another folder")
    return begun


def _shape(start, **sizes):
    """The config of a new model but for the vocabulary, or that of the checkpoint."""
    if start is None:
        config, times = ENCODERS[choice("encoder", sizes.pop("encoder", "bert"), ENCODERS)]
        inner = {"intermediate_size": int(times * sizes["hidden_size"])}
        return config(vocab_size=1, pad_token_id=None, **inner | sizes)
    for name in sizes:
        if not name.endswith("dropout"):  # another num_heads, say, would fit and be wrong
            raise ValueError(f"has {name!r}, which the checkpoint settles; only dropout is free")
    return replace(start[0].embedder.config, **sizes)


def _dtype(dtype):
    return getattr(torch, choice("dtype", dtype, ("float32", "float16", "bfloat16")))


def _part(seed, corpus="grammar", **settings):
    if "prepared" in settings:
        return Prepared(corpus, **settings)
    if corpus == "grammar":
        return Documents(**settings, seed=seed)
    return Texts(corpus, **settings)


def _tokenizer(start, data, vocab_file, **settings):
    """The checkpoint's, that of a run that goes on, or a new one."""
    if start is not None:
        if settings:
            raise ValueError("is that of [model] from; leave this table out")
        return start[1]
    if vocab_file:
        lowercase = settings.get("lowercase", True)
        return WordPieceTokenizer.from_vocab(vocab_file, lowercase=lowercase)
    return WordPieceTokenizer.train(data.texts(), **settings)


def _model(shape, tokenizer, start, seed):
    """A new model, or the checkpoint's weights under what may differ in its config."""
    if start is None:
        shape = replace(shape, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)
    torch.manual_seed(seed)
    model = MaskedLanguageModel.from_config(shape)
    if start is not None:
        model.load_state_dict(start[0].state_dict())
    return model


def _shown(tokenizer, max_length, sentences, **settings):
    """The callback that shows predictions, if there are sentences, and the model can read each."""
    callbacks = [ShowPredictions(tokenizer, sentences, **settings)] if sentences else []
    for text in sentences:
        if (length := len(tokenizer.encode(text))) > max_length:
            raise ValueError(f"{text!r} has {length} tokens; max_length={max_length}")
    return callbacks


def _print_row(model, step, row):
    """A callback that prints the rows with an evaluation."""
    if row and any(name.endswith("_loss") for name in row):
        print(json.dumps({name: round(value, 4) for name, value in row.items()}), flush=True)


# ------------------------------------------------------------------------------------ the data

HELD_OUT_SEED = 2**32 + 1  # of the grammar's held-out documents; only seed 42,948 would train on it


class Mixture:
    """`Documents`, `Texts` and `Prepared`, together one dataset: rows, new ones in each epoch.

    Rows are lists of ids. A part gives them in one sequence or several, of any kind.

    Args:
        parts: the data of a recipe.
        settings: what must be the same when a run goes on, beside the texts.
        former: whether a run goes on that was begun by the rules of an earlier version: of each
            text only what lies within `max_length` is trained on, and of the texts a tenth is not
            used. Such a run then ends as it would have ended.
    """

    def __init__(self, parts, settings, *, former=False):
        self.parts, self.settings, self.former = parts, settings, former
        if not former:
            self.settings = settings | {"rows": "a long text makes several"}
        for part in parts if former else []:
            part.follow_former_rules()
        for number, part in enumerate(parts):  # two of one name are evaluated under two
            if part.name in [other.name for other in parts[:number]]:
                part.name += f"_{number}"

    def texts(self):
        """What a tokenizer learns from."""
        return [text for part in self.parts for text in part.texts()]

    def encode(self, tokenizer, max_length):
        """Makes rows of at most `max_length` ids, by the compiled tokenizer.

        Raises:
            ValueError: no room for a token between `[CLS]` and `[SEP]`; a vocabulary that knows no
                word of the texts, or not all of the grammar's; longer documents held out.
        """
        whole_number("max_length", max_length, 3)
        tokenizer = tokenizer.to_hf() if isinstance(tokenizer, WordPieceTokenizer) else tokenizer
        for part in self.parts:
            part.encode(tokenizer, max_length)
        if not self.former:
            read = json.dumps(reading(tokenizer)).encode()
            self.settings = self.settings | {"normalizer": digest_of(read)}
        self.epoch = None
        self.set_epoch(0)

    def set_epoch(self, epoch):
        """Turns to the rows of an epoch."""
        if epoch != self.epoch:
            self.epoch = epoch
            some = [rows for part in self.parts for rows in part.epoch(epoch)]
            self.rows = ConcatDataset(some)
            self.lengths = [n for rows in some for n in getattr(rows, "lengths", map(len, rows))]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]

    def held_out(self, tokenizer, *, bounds=False):
        """Evaluations on what is held out, and {name: nats} where the least possible is known.

        With `bounds` there are also those of the bound on whole texts.
        """
        looks, floors = [], {}
        for part in [part for part in self.parts if part.held]:
            collators = {"loss": MaskingCollator(tokenizer, **part.masking, seed=1)}
            if bounds:
                collators["bound"] = DiffusionCollator(tokenizer, draw="count", seed=1)
            for name, collator in collators.items():
                look = HeldOut(part.held, collator, name=f"{part.name}_{name}")
                looks.append(look)
                if isinstance(part, Documents):
                    floors[look.name] = part.floor(look) if name == "loss" else part.bound_floor()
        return looks, floors

    def said(self):
        """A sentence for each part: what is trained on, what is held out, what is kept of it."""
        said = [part.said() for part in self.parts]
        if self.former:
            said.append("this run was begun by an earlier version, and goes on by its rules")
        return said

    def fingerprint(self):
        """What must be the same when a run goes on; the epoch is not in it."""
        texts = "\0".join(text for part in self.parts for text in part.known)
        digest = hashlib.blake2b(texts.encode(), digest_size=8).hexdigest()
        return {"texts": digest} | self.settings


class Texts:
    """A corpus of texts: `copies` of each in an epoch, and a share of it again as long blocks.

    A text longer than a row is cut into several rows. What is not held out is trained on, but for
    the test split of a corpus that has one (see `split_to_train`).

    Args:
        corpus: what `load_corpus` takes.
        copies: how often an epoch holds each text.
        blocks_every: the texts are also joined into blocks of full length, and an epoch holds one
            of so many, others in each epoch; None makes no blocks.
        validation: a file or folder of texts to evaluate on. Then nothing is held out of `corpus`;
            a file of these texts in the folder `corpus` is not trained on.
        validation_share: the share of the texts that is held out; None is a tenth, or the
            validation split that a hub data set has of its own.

    Attributes:
        counts: how many texts are trained on (`texts`), held out (`held`), left for a `test`, or
            hold no known word (`unknown`), and how many of the `tokens` to train on are `kept`.
    """

    masking = {}  # of what is held out: 80/10/10

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
                told = f"{both:,} of the texts of {validation} are also in {corpus}, and trained on"
                warnings.warn(f"{told}: the loss on them says nothing about new texts")
        self.former = False

    def follow_former_rules(self):
        """Reads the texts, and cuts their rows, as a run did that was begun by those rules."""
        self.train, self.validation, self.test = (load_corpus(self.corpus, s) for s in SPLITS)
        self.former = True

    @property
    def known(self):
        """What a run that goes on must find again."""
        return self.train + self.validation

    def texts(self):
        return self.copies * self.train

    def encode(self, tokenizer, max_length):
        cut_rows = _cut if self.former else _rows
        whole = _encoded(tokenizer, self.train)
        self.rows = cut_rows(tokenizer, whole, max_length)
        if not self.rows:
            raise ValueError(no_known_word(self.name, len(whole)))
        self.held = cut_rows(tokenizer, _encoded(tokenizer, self.validation), max_length)
        special = set(tokenizer.all_special_ids)
        self.counts = {
            "texts": len(whole), "held": len(self.validation), "test": len(self.test),
            "unknown": sum(special.issuperset(row) for row in whole),
            "tokens": sum(map(len, whole)) - 2 * len(whole),
            "kept": sum(map(len, self.rows)) - 2 * len(self.rows),
        }  # fmt: skip
        if unknown := self.counts["unknown"]:
            warnings.warn(f"{unknown:,} texts of {self.name} hold no known word and are left out")
        self.blocks = []
        if self.blocks_every:
            inner = [row[1:-1] for row in whole]  # without [CLS] and [SEP]
            ends = {"cls_id": tokenizer.cls_token_id, "sep_id": tokenizer.sep_token_id}
            blocks = pack_blocks(inner, max_length, **ends).tolist()
            self.blocks = _cut(tokenizer, blocks, max_length)

    def said(self):
        """A sentence on what is trained on, held out and not used."""
        told = told_of(self.name, self.counts, len(self.rows))
        return told + f"; {len(self.test):,}, the test split, are not used" * bool(self.test)

    def epoch(self, epoch):
        every = self.blocks_every or 1
        return [*self.copies * [self.rows], self.blocks[epoch % every :: every]]


class Documents:
    """Documents of the grammar, new ones in each epoch.

    Args:
        documents: how many an epoch holds.
        held_out: how many are held out; 0 leaves evaluation and floor away.
        worlds: names of the grammar's topics; None takes all.
        longest: only documents of at most so many words, which changes no floor: each is of a
            document whose length is known. None takes all.
        seed: of the documents to train on. Those held out are the same for every seed.
    """

    name = "grammar"
    masking = {"mask_share": 1.0, "random_share": 0.0}  # the floor knows blanks only

    def __init__(self, *, documents=20000, held_out=500, worlds=None, longest=None, seed=0):
        self.documents = whole_number("documents", documents)
        self.held_out = whole_number("held_out", held_out, least=0)
        self.longest = whole_number("longest", longest, none=True)
        self.seed = seed
        self.grammar = Grammar.load(worlds=worlds)
        self.train = self._of_epoch(0)
        self.validation = self._sample(self.held_out, HELD_OUT_SEED)
        self.known, self.former = self.train + self.validation, False

    def follow_former_rules(self):
        """Cuts long documents short, as a run did that was begun by those rules."""
        self.former = True

    def _of_epoch(self, epoch):
        return self._sample(self.documents, (self.seed + 1) * 100_000 + epoch)

    def _sample(self, number, seed):
        """The first documents of a seed that are short enough, as texts."""
        longest, most = self.longest or math.inf, 1000 + 100 * number
        documents = islice(self.grammar.documents(seed), most)
        short = (" ".join(words) for words in documents if len(words) <= longest)
        texts = list(islice(short, number))
        if len(texts) < number:
            raise ValueError(f"longest={longest}; of {most:,} documents {len(texts)} are so short")
        return texts

    def texts(self):
        # Each word many times, so that it becomes a token: a floor in words is then one in tokens.
        return self.train + 50 * [" ".join(self.grammar.vocabulary)]

    def encode(self, tokenizer, max_length):
        self.tokenizer, self.max_length = tokenizer, max_length
        vocab = tokenizer.get_vocab()
        if pieces := [word for word in self.grammar.vocabulary if word not in vocab]:
            raise ValueError(f"words of the grammar are no tokens: {pieces[:5]}; raise vocab_size")
        self.held = _encoded(tokenizer, self.validation)
        longest = max(map(len, self.held), default=0)
        if longest > max_length:  # no one knows the floor of half documents
            raise ValueError(f"max_length={max_length} cuts documents short; raise it to {longest}")

    def epoch(self, epoch):
        texts = self._of_epoch(epoch) if epoch else self.train
        cut_rows = _cut if self.former else _rows
        return [cut_rows(self.tokenizer, _encoded(self.tokenizer, texts), self.max_length)]

    def said(self):
        """A sentence on what is trained on and held out."""
        told = f"{self.documents:,} documents are trained on, others in each epoch"
        return f"{self.name}: {told}; {self.held_out:,} are held out"

    def floor(self, evaluation):
        """The exact floor, in nats, on the very words that the evaluation asks for."""
        tokens = {index: token for token, index in self.tokenizer.get_vocab().items()}
        total = 0.0
        for batch in evaluation.batches:
            # The documents with the answers put back, and which of their words were seen.
            documents, observed = answers_back(batch, tokens)
            for nats, seen in zip(self.grammar.surprise(documents, observed), observed):
                total += nats[~seen].sum().item()  # −log P(word | what was seen)
        return total / evaluation.count

    def bound_floor(self):
        """The mean of −log P(document | its length) in nats a word, over those held out."""
        documents = [text.split() for text in self.validation]
        return self.grammar.floor(documents, objective="any_order").nats


def begun_by_former_rules(out):
    """Whether the run in a folder was begun before a long text made several rows."""
    try:
        state = Checkpoints(out / "checkpoints").last() / STATE
        run = torch.load(state, map_location="cpu", weights_only=True, mmap=True)["run"]
        return "data.rows" not in run
    except Exception:  # a damaged one, whatever it holds: `train` says so
        return False


def _encoded(tokenizer, texts):
    """Rows of ids, [CLS] and [SEP] included, however long; nobody is warned of long ones here."""
    return tokenizer(texts, verbose=False)["input_ids"] if texts else []


def _rows(tokenizer, encoded, max_length):
    """All rows of some texts, of each as many as it needs."""
    special = set(tokenizer.all_special_ids)  # unknown words among them
    return [row for ids in encoded for row in cut(ids, max_length, special)]


def _cut(tokenizer, rows, max_length):
    """Rows of at most so many ids, [SEP] at the end, without those that have no word to hide."""
    rows = [row if len(row) <= max_length else row[: max_length - 1] + row[-1:] for row in rows]
    special = set(tokenizer.all_special_ids)  # unknown words among them
    return [row for row in rows if not special.issuperset(row)]


if __name__ == "__main__":
    sys.exit(main())
