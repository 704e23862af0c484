"""Pretraining from the command line: `python -m mlm_lib.pretrain --corpus NAME --steps N --out DIR`

A configuration file says the rest, and `--config FILE` repeats a whole recipe, such as
`data/course-bert/recipe.toml`. Under `torchrun` the batch is shared out among the processes. DIR
gets `tokenizer/`, `log.jsonl`, `checkpoints/` and, at the end, `model/`, which transformers opens.

What a recipe may say stands in `recipes`. Built in lessons 08 and 15.
"""

import argparse
import json
import os
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch

from mlm_lib.checks import choice, flag, path_name, refused, whole_number
from mlm_lib.diffusion import DiffusionCollator
from mlm_lib.engine.checkpoints import Checkpoints
from mlm_lib.engine.files import only_writer
from mlm_lib.engine.log import TrainingStopped
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.mixture import Mixture
from mlm_lib.pretrained import load_checkpoint, save_pretrained
from mlm_lib.recipes import (
    COLLATORS,
    DTYPES,
    ENCODERS,
    argument_names,
    complete,
    kind_of,
    named,
    read_recipe,
)
from mlm_lib.stream import Stream
from mlm_lib.training import ShowPredictions, TrainingConfig, train
from mlm_lib.wordpiece import WordPieceTokenizer


def main(arguments=None):
    """The command line. Returns its exit status: 0, 1 after one line of error, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m mlm_lib.pretrain", description=__doc__.split(":")[0] + "."
    )
    corpora = "grammar, reviews, docs, a path, hub:NAME, or stream:PATH for what exceeds the memory"
    parser.add_argument("--config", help="TOML file; the options below go before it")
    parser.add_argument("--corpus", help=corpora)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seconds", type=float, help="wall-clock budget, instead of steps or too")
    parser.add_argument("--out", required=True)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"])
    parser.add_argument("--checkpoint-every", type=int)
    parser.add_argument("--resume", action="store_true", help="go on from OUT's last checkpoint")
    parser.add_argument("--device")
    options = vars(parser.parse_args(arguments))
    out, resume, file, corpus = map(options.pop, ("out", "resume", "config", "corpus"))
    try:
        path_name("--out", out)  # an unset shell variable arrives as ''
        recipe = read_recipe(file)
        if corpus is not None:
            recipe["data"] = [{"corpus": path_name("--corpus", corpus)}]
        given = {name: value for name, value in options.items() if value is not None}
        recipe["training"].update(given)
        pretrain(recipe, out, resume=resume)
    except KeyboardInterrupt:
        print(f"stopped; --resume goes on from the last checkpoint of {out}", file=sys.stderr)
        return 130
    except (ValueError, OSError, TrainingStopped, MemoryError, torch.OutOfMemoryError) as error:
        print(f"error: {str(error) or 'there is not enough memory'}", file=sys.stderr)
        return 1
    return 0


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
    recipe, out, resume = complete(recipe), Path(path_name("out", out)), flag("resume", resume)
    main_process = os.environ.get("RANK", "0") == "0"  # torchrun says so before there is a group

    # 1. What needs no look at the data is checked first.
    with named("[training]"):
        # Rows of like length share a batch wherever they have a length, which a stream's have not.
        stream = kind_of(recipe["data"][0]["corpus"]) is Stream
        config = TrainingConfig(**{"group_by_length": not stream} | recipe["training"])
    with named("[model]"):
        start = recipe["model"].get("from")
        start = load_checkpoint(start) if start is not None else None
        shape = _shape(dict(recipe["model"]), start)
    with named("[tokenizer]"):
        whole_number("vocab_size", recipe["tokenizer"]["vocab_size"])
        flag("lowercase", recipe["tokenizer"].get("lowercase", True))
    with named("[save]"):
        dtype = getattr(torch, choice("dtype", recipe["save"]["dtype"], DTYPES))

    with only_writer(out) if main_process else nullcontext():
        begun = _begun(out, resume)
        vocab_file = out / "tokenizer" / "vocab.txt"

        # 2. The data and their tokenizer; a run that goes on has its own.
        with named("[[data]]"):
            data = _data(recipe["data"], config.seed)
        tokenizer = _tokenizer(recipe["tokenizer"], data, vocab_file if begun else None)
        data.made = {"tokenizer": recipe["tokenizer"]}  # which a vocabulary does not tell
        data.encode(tokenizer, shape.max_length)
        held_out = data.held_out()

        # 3. The model and what hides its words.
        if start is None:
            shape = replace(shape, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)
        elif start[1].get_vocab() != tokenizer.vocab:
            raise ValueError("[tokenizer] is not that of [model] from; leave it out")
        model = _model(shape, config.seed)
        if start is not None:
            model.load_state_dict(start[0].state_dict())
        with named("[masking]"):
            kind = COLLATORS[recipe["objective"]]
            collator = kind(tokenizer, **recipe["masking"], seed=config.seed)
        writes = kind is DiffusionCollator
        held_out += data.bounds(kind(tokenizer, draw="count", seed=1)) if writes else []
        callbacks = _shown(recipe["show"], tokenizer, shape.max_length)

        if main_process:
            size = sum(parameter.numel() for parameter in model.parameters())
            print(f"{size:,} parameters, {len(tokenizer):,} tokens, {data.describe()}")
            for name, floor in data.floors().items():
                print(f"{name}: no model can go below {floor:.4f} nats on these held-out words")
            for name, floor in data.bound_floors().items() if writes else ():
                print(f"{name}: no bound can go below {floor:.4f} nats a word of these documents")
            if not begun:
                vocab_file.parent.mkdir(parents=True, exist_ok=True)
                tokenizer.save(vocab_file)

        # 4. Training.
        def evaluate(model):
            return {name: nats for part in held_out for name, nats in part(model).items()}

        history = train(
            model, data, collator, config, out=out, resume=resume,
            evaluate=evaluate if held_out else None,
            callbacks=[_print_row, *callbacks] if main_process else [],
        )  # fmt: skip

        # 5. The model, for everyone.
        if main_process:
            save_pretrained(model.cpu().eval().to(dtype), tokenizer, out / "model")
            done = f"after {history.step} steps and {history.tokens:,} tokens"
            print(f"saved {out / 'model'} {done} in {history.seconds:.0f} s")
    return model.float(), tokenizer, history


def _begun(out, resume):
    """Whether there are checkpoints to go on from."""
    begun = bool(Checkpoints(out / "checkpoints").steps())
    other = "or choose another folder"
    if begun and not resume:
        raise FileExistsError(
            f"{out} holds the checkpoints of a run; go on with it by --resume, {other}"
        )
    if not begun and (out / "model").exists():
        raise FileExistsError(f"{out} holds a model without checkpoints; move it away, {other}")
    return begun


def _data(parts, seed):
    """A `Stream`, or a `Mixture` of the other kinds."""
    made = []
    for part in parts:
        kind = kind_of(part["corpus"])
        made.append(kind(**part, **({"seed": seed} if "seed" in argument_names(kind) else {})))
    return made[0] if len(made) == 1 and isinstance(made[0], Stream) else Mixture(made)


def _tokenizer(table, data, vocab_file):
    """That of a run that goes on, or the one asked for, or a new one."""
    table = dict(table)
    source, lowercase = table.pop("from"), table.get("lowercase", True)
    if vocab_file:
        return WordPieceTokenizer.from_vocab(vocab_file, lowercase=lowercase)
    if source is None:
        texts = data.texts()
        with named("[tokenizer]"):
            return WordPieceTokenizer.train(texts, **table)
    if Path(path_name("[tokenizer] from", source)).is_file():
        return WordPieceTokenizer.from_vocab(source, lowercase=lowercase)
    return WordPieceTokenizer(load_checkpoint(source)[1].get_vocab(), lowercase=lowercase)


def _shape(sizes, start):
    """The config of a new model but for the vocabulary, or that of a checkpoint."""
    kind, source = sizes.pop("encoder", "bert"), sizes.pop("from", None)
    if start is None:
        wide = whole_number("hidden_size", sizes["hidden_size"])
        wide = 4 * wide if kind == "bert" else 3 * wide // 2  # as in the published ones
        return ENCODERS[kind](1, pad_token_id=None, **{"intermediate_size": wide} | sizes)
    shape = start[0].embedder.config
    for name in sizes.keys() - argument_names(type(shape)):
        raise ValueError(f"has {name!r}, which the encoder of {source} has not")
    return replace(shape, **sizes)


def _model(shape, seed):
    try:
        with torch.device("meta"):  # counts without memory
            model = MaskedLanguageModel.from_config(shape)
        # All at once, which fails at once. Part by part the system would kill the program.
        torch.empty(sum(parameter.numel() for parameter in model.parameters()))
        torch.manual_seed(seed)
        return MaskedLanguageModel.from_config(shape)
    except (RuntimeError, MemoryError, TypeError):  # torch says it in many ways
        raise ValueError(f"[model] is too large for the memory: {shape}") from None


def _shown(table, tokenizer, max_length):
    """The callback that shows predictions, if there are sentences, and the model can read each."""
    sentences = table["sentences"]
    with named("[show]"):
        if not isinstance(sentences, list) or not all(isinstance(text, str) for text in sentences):
            raise refused("sentences", sentences, "a list of texts")
        for text in sentences:
            if (length := len(tokenizer.encode(text))) > max_length:
                raise ValueError(f"{text!r} has {length} tokens; max_length={max_length}")
        return [ShowPredictions(tokenizer, **table)] if sentences else []


def _print_row(model, step, row):
    """A callback that prints the rows with an evaluation."""
    if row and any(name.endswith("_loss") for name in row):
        short = {}
        for name, value in row.items():
            short[name] = round(value, 4) if isinstance(value, float) else value
        print(json.dumps(short), flush=True)


if __name__ == "__main__":
    sys.exit(main())
