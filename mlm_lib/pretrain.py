"""Pretraining from the command line: `python -m mlm_lib.pretrain --corpus NAME --steps N --out DIR`. Built in lesson 08.

A configuration file says the rest, and `--config FILE` repeats a whole recipe; `data/course-bert/recipe.toml` is one.
Under `torchrun` the batch is shared out among the processes. DIR gets `tokenizer/`, `log.jsonl`, `checkpoints/` and, at
the end, `model/`, which transformers opens.
"""

import argparse
import json
import os
import sys
import tomllib
from dataclasses import fields
from glob import escape
from itertools import islice
from pathlib import Path

import torch

from mlm_lib.corpus import load_corpus, pack_blocks
from mlm_lib.encoder import EncoderConfig
from mlm_lib.grammar import Grammar
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.masking import MaskingCollator
from mlm_lib.pretrained import load_checkpoint, save_pretrained
from mlm_lib.training import (
    Checkpoints,
    HeldOut,
    ShowPredictions,
    TrainingConfig,
    TrainingStopped,
    train,
)
from mlm_lib.wordpiece import WordPieceTokenizer

# What a configuration file may hold, and what holds where it is silent. [[data]] may stand there more than once.
DEFAULTS = {
    "data": [{"corpus": "grammar", "documents": 20000, "held_out": 500, "worlds": None, "copies": 1, "blocks_every": None}],
    "tokenizer": {"from": None, "vocab_size": 8192, "min_frequency": 2},
    "model": {
        "hidden_size": 128, "num_layers": 2, "num_heads": 2, "intermediate_size": None, "max_length": 128, "dropout": 0.1,
    },
    "masking": {"rate": 0.15, "mask_share": 0.8, "random_share": 0.1, "strategy": "token"},
    "training": {
        "steps": None, "batch_size": 64, "learning_rate": 1e-3, "warmup": 0.05, "weight_decay": 0.01,
        "group_by_length": None,  # where the data have a length, which a stream has not
    },
    "show": {"sentences": [], "every": 200},
    "save": {"dtype": "float32"},
}  # fmt: skip
UNSET = {
    "worlds": list,
    "blocks_every": int,
    "from": str,
    "intermediate_size": int,
}  # kinds of what is None by default
DTYPES = ("float32", "float16", "bfloat16")
HELD_OUT_SEED = (
    2**32 + 1
)  # of the grammar's held-out documents; the training documents' seeds are below
STREAM_SAMPLE = 20000  # texts of a stream that the tokenizer is trained on
STREAM_BUFFER = 10000  # rows among which a stream is shuffled


def main(arguments=None):
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m mlm_lib.pretrain", description=__doc__.split(":")[0] + "."
    )
    parser.add_argument("--config", type=Path, help="TOML file; the options below go before it")
    parser.add_argument(
        "--corpus",
        help="grammar, reviews, docs, a path, hub:NAME, or stream:PATH for what does not fit in memory",
    )
    parser.add_argument("--steps", type=int)
    parser.add_argument(
        "--seconds", type=float, help="wall-clock budget, instead of steps or with them"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"])
    parser.add_argument("--checkpoint-every", type=int)
    parser.add_argument(
        "--resume", action="store_true", help="go on from the last checkpoint in OUT"
    )
    parser.add_argument("--device")
    options = vars(parser.parse_args(arguments))
    out, resume, file, corpus = (
        options.pop(name) for name in ("out", "resume", "config", "corpus")
    )
    try:
        recipe = read_recipe(file)
        if corpus:
            recipe["data"] = [DEFAULTS["data"][0] | {"corpus": corpus}]
        recipe["training"].update(
            {name: value for name, value in options.items() if value is not None}
        )
        pretrain(recipe, out, resume=resume)
    except (ValueError, OSError, TrainingStopped) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def read_recipe(file=None):
    """A recipe as a dictionary of tables: `DEFAULTS` and what the file says.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no TOML, or a table or key that a recipe does not have.
    """
    tables = {}
    if file is not None:
        if not Path(file).is_file():
            raise FileNotFoundError(
                f"{file} is not a file; --config takes a recipe such as data/course-bert/recipe.toml"
            )
        try:
            tables = tomllib.loads(Path(file).read_text(encoding="utf-8"))
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ValueError(f"{file} is no TOML file: {error}") from None
    for name in tables.keys() - DEFAULTS.keys():
        raise ValueError(f"a recipe has no {name!r}; it may have {', '.join(DEFAULTS)}")
    parts = tables.get("data", [{}])
    if not isinstance(parts, list) or not parts:
        raise ValueError(f"data is {parts!r}; one or more [[data]] are needed")
    recipe = {
        "data": [
            DEFAULTS["data"][0] | _checked("[[data]]", part, DEFAULTS["data"][0]) for part in parts
        ]
    }
    recipe |= {
        name: known | _checked(f"[{name}]", tables.get(name, {}), known)
        for name, known in DEFAULTS.items()
        if name != "data"
    }
    if recipe["save"]["dtype"] not in DTYPES:
        raise ValueError(f"dtype={recipe['save']['dtype']!r}; choose {', '.join(DTYPES)}")
    return recipe


def _checked(where, table, known):
    """The table, if it has only known names with values of their kind."""
    if not isinstance(table, dict):
        raise ValueError(f"{where} is {table!r}; a table is needed")
    training = where == "[training]"
    names = [f.name for f in fields(TrainingConfig)] if training else list(known)
    for name, value in table.items():
        if name not in names:
            raise ValueError(f"{where} has {name!r}; it may have {', '.join(names)}")
        if training:
            continue  # TrainingConfig looks at the values
        kind = UNSET[name] if known[name] is None else type(known[name])
        if isinstance(value, bool) or not isinstance(
            value, (int, float) if kind is float else kind
        ):
            raise ValueError(
                f"{where} has {name} = {value!r}; a value such as {known[name] or kind.__name__!r} is needed"
            )
        if kind is int and value < (0 if name == "held_out" else 1):
            raise ValueError(
                f"{where} has {name} = {value!r}; a whole number of at least 1 is needed"
            )
    return table


def pretrain(recipe, out, *, resume=False):
    """Carries a recipe out.

    Returns:
        (model, tokenizer, `History`).

    Raises:
        ValueError: a recipe that does not fit together, such as a vocabulary without the grammar's words.
    """
    main_process = os.environ.get("RANK", "0") == "0"
    out, seed = Path(out), recipe["training"].get("seed", 0)
    streams = [part for part in recipe["data"] if part["corpus"].startswith("stream:")]
    settings = dict(recipe["training"])
    settings["group_by_length"] = (
        not streams if settings["group_by_length"] is None else settings["group_by_length"]
    )
    config = TrainingConfig(**settings)
    begun = bool(Checkpoints(out / "checkpoints").steps())
    if begun and not resume:
        raise FileExistsError(
            f"{out} holds the checkpoints of a run; go on with it by --resume, or choose another folder"
        )
    if streams and len(recipe["data"]) > 1:
        raise ValueError(
            f"{streams[0]['corpus']!r} cannot be mixed with other corpora; give it alone"
        )
    data = _Stream(streams[0], seed) if streams else _Mixture(recipe["data"], seed)
    vocab_file = out / "tokenizer" / "vocab.txt"
    tokenizer = (
        WordPieceTokenizer.from_vocab(vocab_file)
        if begun
        else _tokenizer(recipe["tokenizer"], data)
    )
    max_length = recipe["model"]["max_length"]
    data.encode(tokenizer, max_length)
    held_out = data.held_out(tokenizer)

    torch.manual_seed(seed)
    shape = dict(recipe["model"])
    shape["intermediate_size"] = shape["intermediate_size"] or 4 * shape["hidden_size"]
    model = MaskedLanguageModel.from_config(
        EncoderConfig(len(tokenizer), pad_token_id=tokenizer.pad_token_id, **shape)
    )
    collator = MaskingCollator(tokenizer, **recipe["masking"], seed=seed)
    callbacks = []
    if main_process:
        print(
            f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(tokenizer):,} tokens, {data.describe()}"
        )
        for part, floor in data.floors(held_out).items():
            print(f"{part}: no model can go below {floor:.4f} nats on these held-out words")
        callbacks = [_print_row]
        if recipe["show"]["sentences"]:
            callbacks.append(ShowPredictions(tokenizer, **recipe["show"]))

    if main_process and not begun:
        vocab_file.parent.mkdir(parents=True, exist_ok=True)
        tokenizer.save(vocab_file)

    def evaluate(model):
        return {name: number for part in held_out for name, number in part(model).items()}

    history = train(
        model,
        data.dataset,
        collator,
        config,
        out=out,
        resume=resume,
        evaluate=evaluate if held_out else None,
        callbacks=callbacks,
    )
    if main_process:
        model.cpu().eval()
        save_pretrained(model.to(getattr(torch, recipe["save"]["dtype"])), tokenizer, out / "model")
        print(
            f"saved {out / 'model'} after {history.step} steps and {history.tokens:,} tokens in {history.seconds:.0f} s"
        )
    return model.float(), tokenizer, history


def _print_row(model, step, row):
    if row and any(name.endswith("_loss") for name in row):
        print(
            json.dumps(
                {
                    name: round(value, 4) if isinstance(value, float) else value
                    for name, value in row.items()
                }
            ),
            flush=True,
        )


def _tokenizer(settings, data):
    """The one asked for, or a new one."""
    source = settings["from"]
    if source is None:
        return WordPieceTokenizer.train(
            data.texts(), settings["vocab_size"], min_frequency=settings["min_frequency"]
        )
    if Path(source).is_file():
        return WordPieceTokenizer.from_vocab(source)
    return WordPieceTokenizer(load_checkpoint(source)[1].get_vocab())


def _encode(tokenizer, texts, max_length=None):
    fast = tokenizer.to_hf()
    fast.model_max_length = max_length or 10**9
    return fast(texts, truncation=max_length is not None)["input_ids"]


# ------------------------------------------------------------------------------------ what is trained on


class _Mixture:
    """Corpora that fit in memory, together one dataset. Each epoch draws new documents from a grammar."""

    def __init__(self, parts, seed):
        self.parts = [
            _Documents(part, seed) if part["corpus"] == "grammar" else _Texts(part, seed)
            for part in parts
        ]
        for number, part in enumerate(self.parts):  # two parts of one name are evaluated under two
            part.name += (
                f"_{number}"
                if part.name in [earlier.name for earlier in self.parts[:number]]
                else ""
            )
        self.dataset, self.number = self, None

    def texts(self):
        return [text for part in self.parts for text in part.texts()]

    def encode(self, tokenizer, max_length):
        for part in self.parts:
            part.encode(tokenizer, max_length)
        self.number = None
        self.set_epoch(0)

    def set_epoch(self, epoch):
        if epoch != self.number:
            self.number, self.of_parts = epoch, [part.epoch(epoch) for part in self.parts]
            self.rows = [row for rows in self.of_parts for row in rows]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]

    def describe(self):
        counts = [
            f"{part.name}: {sum(map(len, rows)):,}" for part, rows in zip(self.parts, self.of_parts)
        ]
        return "tokens in an epoch: " + ", ".join(counts)

    def held_out(self, tokenizer):
        return [part.held_out(tokenizer) for part in self.parts]

    def floors(self, held_out):
        return {
            part.name: part.floor(held)
            for part, held in zip(self.parts, held_out)
            if hasattr(part, "floor")
        }


class _Texts:
    """A corpus of texts: `copies` of each in an epoch, and a share of it again as long blocks."""

    def __init__(self, part, seed):
        self.part, self.name = part, part["corpus"]
        self.train, self.held = (load_corpus(self.name, split) for split in ("train", "validation"))

    def texts(self):
        return self.part["copies"] * self.train

    def encode(self, tokenizer, max_length):
        self.encoded, self.held_encoded = (
            _encode(tokenizer, self.train, max_length),
            _encode(tokenizer, self.held, max_length),
        )
        self.blocks = []
        if self.part["blocks_every"]:
            inner = [row[1:-1] for row in _encode(tokenizer, self.train)]
            self.blocks = pack_blocks(
                inner, max_length, cls_id=tokenizer.cls_token_id, sep_id=tokenizer.sep_token_id
            ).tolist()

    def epoch(self, epoch):
        every = self.part["blocks_every"] or 1
        return self.part["copies"] * self.encoded + self.blocks[epoch % every :: every]

    def held_out(self, tokenizer):
        return HeldOut(
            self.held_encoded, MaskingCollator(tokenizer, seed=1), name=f"{self.name}_loss"
        )


class _Documents:
    """Documents of the grammar, new ones in each epoch."""

    def __init__(self, part, seed):
        self.part, self.seed, self.name = part, seed, "grammar"
        self.grammar = Grammar.load(worlds=part["worlds"])

    def _sample(self, number, seed):
        return [" ".join(words) for words in self.grammar.sample(number, seed=seed)]

    def texts(self):
        # Every word several times, so that it becomes one token: only then the floor in words is one in tokens.
        return self._sample(self.part["documents"], self._seed(0)) + 50 * [
            " ".join(self.grammar.vocabulary)
        ]

    def encode(self, tokenizer, max_length):
        pieces = [word for word in self.grammar.vocabulary if word not in tokenizer.vocab]
        if pieces:
            raise ValueError(
                f"{len(pieces)} words of the grammar are no tokens, such as {pieces[:5]}; raise vocab_size"
            )
        self.tokenizer, self.max_length = tokenizer, max_length

    def _seed(self, epoch):
        return (self.seed + 1) * 100_000 + epoch

    def epoch(self, epoch):
        return _encode(
            self.tokenizer, self._sample(self.part["documents"], self._seed(epoch)), self.max_length
        )

    def held_out(self, tokenizer):
        rows = _encode(
            tokenizer, self._sample(self.part["held_out"], HELD_OUT_SEED), self.max_length
        )
        return HeldOut(
            rows,
            MaskingCollator(tokenizer, mask_share=1.0, random_share=0.0, seed=1),
            name=f"{self.name}_loss",
        )

    def floor(self, held_out):
        """The exact floor on the very words that the held-out evaluation asks for."""
        documents, observed = [], []
        for batch in held_out.batches:
            ids = torch.where(batch["labels"] == -100, batch["input_ids"], batch["labels"])
            for row, labels, mask in zip(ids, batch["labels"], batch["attention_mask"]):
                words = slice(1, int(mask.sum()) - 1)  # without [CLS] and [SEP]
                documents.append([self.tokenizer.tokens[index] for index in row[words].tolist()])
                observed.append(labels[words] == -100)
        surprises = self.grammar.surprise(documents, observed)
        return sum(s[~seen].sum().item() for s, seen in zip(surprises, observed)) / held_out.count


def _has_text(row):
    text = row.get("text", "")
    if "text" not in row or not isinstance(text, (str, type(None))):
        raise ValueError(
            f"a stream's rows need a column text of strings, but one has {str(row)[:80]}"
        )
    return bool(text and text.strip())


class _Stream:
    """Files larger than memory, read from the disk as they are needed. The first texts are held out."""

    def __init__(self, part, seed):
        from datasets import load_dataset

        self.name, self.size, self.seed = part["corpus"], part["held_out"], seed
        path = Path(self.name.removeprefix("stream:"))
        kinds = {".txt": "text", ".jsonl": "json", ".csv": "csv"}
        files = sorted(
            file
            for file in (path.rglob("*") if path.is_dir() else [path])
            if file.is_file() and file.suffix in kinds
        )
        suffixes = sorted({file.suffix for file in files})
        if not files:
            raise FileNotFoundError(
                f"{path} is neither a file nor a folder of files that end in {', '.join(kinds)}"
            )
        if len(suffixes) > 1:
            raise ValueError(
                f"{path} holds files that end in {' and '.join(suffixes)}; a stream is of one kind"
            )
        names = [escape(str(file)) for file in files]
        rows = load_dataset(
            kinds[suffixes[0]], data_files={"train": names}, split="train", streaming=True
        )
        self.rows = rows.filter(_has_text)
        if next(iter(self.rows.skip(self.size)), None) is None:
            raise ValueError(
                f"{path} has no more texts than held_out={self.size}, so there is none to train on; lower held_out"
            )

    def texts(self):
        return (row["text"] for row in islice(self.rows.skip(self.size), STREAM_SAMPLE))

    def encode(self, tokenizer, max_length):
        def encoded(batch):
            return {"input_ids": _encode(tokenizer, batch["text"], max_length)}

        rows = self.rows.map(encoded, batched=True, remove_columns=["text"])
        self.held = [row["input_ids"] for row in rows.take(self.size)]
        self.dataset = rows.skip(self.size).shuffle(seed=self.seed, buffer_size=STREAM_BUFFER)

    def describe(self):
        return f"a stream from {self.name}"

    def held_out(self, tokenizer):
        return (
            [HeldOut(self.held, MaskingCollator(tokenizer, seed=1), name="stream_loss")]
            if self.held
            else []
        )

    def floors(self, held_out):
        return {}


if __name__ == "__main__":
    sys.exit(main())
