"""Pretraining from the command line: `python -m mlm_lib.pretrain --corpus NAME --steps N --out DIR`

A recipe holds all settings that are not options: `--config FILE` reads one, such as
`data/course-bert/recipe.toml`. Under `torchrun` the batch is shared out among the processes. DIR
gets `tokenizer/` if the vocabulary is a new one, `log.jsonl`, `checkpoints/` and, at the end,
`model/`, which transformers opens.

Each table of a recipe holds the arguments of one class, whose checks and defaults hold::

    [[data]]     Documents, or Texts if corpus is not "grammar", or Prepared if `prepared` names a
                 folder; several are mixed
    [tokenizer]  WordPieceTokenizer.train; with `vocab_file`, a vocab.txt or the folder of one, no
                 vocabulary is learned, and `lowercase` is the only other key
    [model]      EncoderConfig; with encoder = "modern", ModernConfig
    [masking]    MaskingCollator; with objective = "diffusion" above all tables, for a model
                 that is to write, DiffusionCollator
    [training]   TrainingConfig
    [show]       ShowPredictions
    [save]       dtype = "float32", "float16" or "bfloat16"

`[model] from = "course-bert"` goes on with the weights, the sizes and the tokenizer of a
checkpoint. A recipe may then set only another dropout and a smaller `max_length`, which makes the
rows shorter and leaves the model all its positions. The evaluation also runs before the first step,
so that the log shows what training has changed. Built in lessons 08, 15 and 16.
"""

import sys

from mlm_lib.engine.command_line import TRAINING, no_such, parse

if __name__ == "__main__":
    parse()  # --help and a wrong option are answered here, before torch is loaded

import hashlib
import json
import math
import os
import re
import signal
import threading
import tomllib
import warnings
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from inspect import signature
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import get_args

import torch
from torch import distributed
from torch.utils.data import ConcatDataset

from mlm_lib.checks import choice, path_name, refused, string, whole_number
from mlm_lib.corpus import SPLITS, load_corpus, pack_blocks, split_to_train
from mlm_lib.diffusion import DiffusionCollator
from mlm_lib.encoder import EncoderConfig
from mlm_lib.engine.checkpoints import STATE, Checkpoints
from mlm_lib.engine.files import only_writer, write
from mlm_lib.engine.log import TrainingStopped
from mlm_lib.engine.precision import device_taken, precision_taken
from mlm_lib.engine.prepared import (
    Prepared,
    cut,
    digest_of,
    held_out_share,
    no_known_word,
    reading,
    told_of,
)
from mlm_lib.engine.run import FIRST_CHECKPOINT
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
SHORTEST = 3  # ids in a row: [CLS], a word, [SEP]
# The types that a value in a recipe may have, by its key, if neither annotation nor default tells.
KINDS = {
    "sentences": [list], "worlds": [list], "initial_alphabet": [str, list], "lowercase": [bool],
}  # fmt: skip
WORDS = {bool: "true or false", Real: "a number", str: "a text in quotes", list: "a list"}
AS_TOML = {int: Real, float: Real, tuple: list}
# Keys that are read here, before the rest of the table goes to its class.
READ_HERE = {
    "[[data]]": ["corpus", "prepared"],
    "[tokenizer]": ["vocab_file"],
    "[model]": ["encoder", "from"],
}


def main(arguments=None):
    """The command line. Returns its exit status: 0, 1 after one line of error, 130 after Ctrl-C.

    SIGTERM, by which a batch system ends a job, is told like Ctrl-C; the exit status is then 143.
    """
    options = parse(arguments)
    out, resume = options.pop("out"), options.pop("resume", False)
    try:
        with _terminated_as_by_ctrl_c():
            pretrain(read_recipe(options.pop("config", None), options), out, resume=resume)
    except KeyboardInterrupt as error:
        early = f"stopped before the first step; {remains(out)}"
        print(_ended([], error) or early, file=sys.stderr)
        return 143 if isinstance(error, Terminated) else 130
    except (ValueError, OSError, TrainingStopped, MemoryError, torch.OutOfMemoryError) as error:
        said = str(error) or "there is not enough memory"
        print(_ended([f"error: {said}"], error), file=sys.stderr)
        return 1
    except RuntimeError as error:
        if not distributed.is_initialized():
            raise
        told = f"this process failed, or another one ended ({str(error).splitlines()[0]})"
        print(_ended([f"error: {told}"], error), file=sys.stderr)
        return 1
    return 0


class Terminated(KeyboardInterrupt):
    """The system asked this process to end, by SIGTERM."""


@contextmanager
def _terminated_as_by_ctrl_c():
    """Turns SIGTERM into `Terminated`, but for several processes, which torchrun ends itself."""

    def terminate(number, frame):
        raise Terminated

    alone = int(os.environ.get("WORLD_SIZE", 1)) == 1
    if not alone or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _ended(said, error):
    """One line: what is said of an error, and the notes that `pretrain` left on it."""
    return "; ".join(said + getattr(error, "__notes__", []))


def remains(out):
    """What a run that has ended too soon can go on from, as a sentence."""
    step = Checkpoints(Path(out) / "checkpoints").last_step()
    if step is None:
        return "there is no checkpoint yet; --resume would begin anew"
    return f"the last checkpoint is of step {step:,}; --resume goes on from there"


# ------------------------------------------------------------------------------------ a recipe


def read_recipe(file=None, options=None):
    """A recipe as a dictionary of tables: what the options say, then the file, then `DEFAULTS`.

    Args:
        file: a TOML file, or None.
        options: what the command line says, by name. It takes the place of what the file says.

    Raises:
        OSError: the file cannot be read.
        ValueError: no TOML, or a table that a recipe does not have.
    """
    tables = {} if file is None else _tables_of(file)
    recipe, options = complete(tables), options or {}  # which looks at the tables
    if said := {name: options[name] for name in ("corpus", "prepared") if name in options}:
        tables = tables | {"data": [said]}
    if "from" in options:
        tables = tables | {"model": tables.get("model", {}) | {"from": options["from"]}}
    training = {name: options[name] for name in TRAINING if name in options}
    return complete(tables | {"training": recipe["training"] | training})


def _tables_of(file):
    try:
        return tomllib.loads(Path(file).read_text("utf-8"))
    except ValueError as error:  # no TOML, or not UTF-8
        raise ValueError(f"{file}: {error}") from error


def complete(tables):
    """A new recipe with all its tables. What they hold is left to the classes that take it."""
    recipe = DEFAULTS | tables
    for name, said in recipe.items():
        if name not in DEFAULTS:
            raise ValueError(no_such("a recipe", name, DEFAULTS))
        default = DEFAULTS[name]
        if not isinstance(said, type(default)):
            raise ValueError(f"[{name}] is {said!r}; something like {default!r} is needed")
        recipe[name] = default | said if isinstance(default, dict) else said
    for part in recipe["data"]:
        if not isinstance(part, dict):
            raise ValueError(f"data holds {part!r}; something like {DEFAULTS['data'][0]} is needed")
    # What a checkpoint or a vocabulary decides has no defaults.
    if "from" in recipe["model"]:
        recipe["model"] = dict(tables["model"])
    if "from" in recipe["model"] or "vocab_file" in recipe["tokenizer"]:
        recipe["tokenizer"] = dict(tables.get("tokenizer", {}))
    return recipe


def made(table, make, said, /, *arguments, **given):
    """What a class or function makes of a table.

    A mistake in a recipe is found here before the call, or by a check in `make`. Any other error is
    a mistake in the course, and keeps its traceback.

    Args:
        table: the name of the table, which goes before what is refused.
        make: the class or function whose parameters are the keys of the table.
        said: the table, a dictionary.
        arguments, given: what else `make` takes, which a recipe cannot set.

    Raises:
        ValueError: a key that does not exist, a value of another kind, or one that `make` refuses.
    """
    call = signature(make)
    parameters = list(call.parameters.values())[len(arguments) :]
    keys = {each.name: each for each in parameters if each.name not in given}
    for name, value in said.items():
        if name not in keys:
            names = [*dict.fromkeys([*keys, *READ_HERE.get(table, [])])]
            raise ValueError(no_such(table, name, names))
        kinds = KINDS.get(name) or _kinds_of(keys[name])
        if kinds and value is not None and not isinstance(value, tuple(kinds)):
            wanted = " or ".join(WORDS[kind] for kind in kinds)
            raise ValueError(f"{table} {refused(name, value, wanted)}")
    try:
        call.bind(*arguments, **given, **said)
    except TypeError as error:  # of a key that is needed
        raise ValueError(f"{table} {error}") from error
    try:
        return make(*arguments, **given, **said)
    except ValueError as error:
        raise ValueError(f"{table} {error}") from error


def _kinds_of(parameter):
    """The types of a value in TOML, by its annotation or default; no type if neither shows one."""
    said = parameter.annotation is not parameter.empty
    kind = parameter.annotation if said else type(parameter.default)
    kinds = {AS_TOML.get(one, one) for one in get_args(kind) or [kind]} - {type(None)}
    return list(kinds) if kinds <= WORDS.keys() else []


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

    An error or Ctrl-C after the first step carries a note that says at which step the run stopped,
    and from which checkpoint it can go on.
    """
    recipe, out = complete(recipe), Path(path_name("out", out))
    main_process = os.environ.get("RANK", "0") == "0"  # torchrun says so before there is a group

    # 1. What needs no look at the data comes first.
    kind = COLLATORS[choice("objective", recipe["objective"], COLLATORS)]
    source = recipe["model"].pop("from", None)
    start = None if source is None else _start(source)
    if start is not None:  # what the checkpoint can do before it is trained is worth knowing
        recipe["training"].setdefault("evaluate_at_start", True)
    config = made("[training]", TrainingConfig, recipe["training"])
    shape, max_length = _shape(start, recipe["model"])
    dtype = made("[save]", _dtype, recipe["save"])

    with only_writer(out) if main_process else nullcontext():
        begun = _begun(out, resume)
        if main_process and resume:
            anew = f"{out} holds no checkpoint, so the run begins at step 0"
            print(anew if begun is None else f"going on from step {begun:,}")

        # 2. The data and their tokenizer; a run that goes on has its own.
        parts = [_part(config.seed, part) for part in recipe["data"]]
        settings = {name: recipe[name] for name in ("data", "tokenizer")}
        former = begun is not None and begun_by_former_rules(out)
        data = Mixture(parts, settings | {"max_length": max_length}, former=former)
        vocab_file = out / "tokenizer" / "vocab.txt"
        tokenizer = _tokenizer(start, data, vocab_file if begun else None, recipe["tokenizer"])
        data.encode(tokenizer, max_length)
        looks, floors = data.held_out(tokenizer, bounds=kind is DiffusionCollator)

        # 3. The model and what hides its words.
        model = _model(shape, tokenizer, start, config.seed)
        collator = made("[masking]", kind, recipe["masking"], tokenizer, seed=config.seed)
        shown = _shown(recipe["show"], tokenizer, shape.max_length)
        progress = Position(quiet=not main_process)

        if main_process:
            size = sum(parameter.numel() for parameter in model.parameters())
            learned = start is None and tokenizer.lowercase
            how = ", of lower-cased texts without accents" if learned else ""
            print(f"{size:,} parameters, {len(tokenizer):,} different tokens{how}")
            print("\n".join(data.said()))
            steps = -(-len(data) // config.batch_size)  # the last batch of an epoch may be smaller
            rows = f"{len(data):,} rows with {sum(data.lengths):,} tokens in all"
            print(f"an epoch has {rows}, and takes {steps:,} steps of {config.batch_size} rows")
            if max_length < shape.max_length:
                told = f"the model keeps its {shape.max_length} positions"
                print(f"a row has at most {max_length} tokens; {told}")
            print(_what_is_kept(config, out))
            if told := _precision(config, begun):
                print(told)
            for name, nats in floors.items():
                told = f"no model can go below {nats:.4f} nats for each hidden word"
                print(f"{name}: {told} of the documents held out")
            if not begun and start is None:
                _save_vocabulary(tokenizer, vocab_file)

        # 4. Training.
        def evaluate(model):
            return {name: nats for look in looks for name, nats in look(model).items()}

        try:
            history = train(
                model, data, collator, config, out=out, resume=resume,
                evaluate=evaluate if looks else None,
                callbacks=[progress, *shown] if main_process else [progress],
            )  # fmt: skip

            # 5. The model, for everyone.
            if main_process:
                save_pretrained(model.cpu().eval().to(dtype), tokenizer, out / "model")
                done = f"after {history.step} steps and {history.tokens:,} tokens"
                print(f"saved {out / 'model'} {done} in {history.seconds:.0f} s")
                print(_how_to_use(out / "model"))
        except BaseException as error:  # Ctrl-C is none of the others
            if progress.step is not None or not isinstance(error, ValueError):
                error.add_note(f"stopped at step {progress.step or begun or 0}; {remains(out)}")
            raise
    return model.float(), tokenizer, history


def _begun(out, resume):
    """The step of the last checkpoint, or None. What a run has left is not written over."""
    begun = Checkpoints(out / "checkpoints").last_step()
    if begun is not None and not resume:
        raise FileExistsError(f"{out} holds a run; --resume goes on, or choose another folder")
    if begun is None and (out / "model").exists():
        raise FileExistsError(f"{out} holds a model without checkpoints; choose another folder")
    return begun


def _start(source):
    """The model and the tokenizer of the checkpoint that a run goes on from."""
    try:
        return load_checkpoint(source)
    except (ValueError, RuntimeError) as error:  # the second is torch's, for weights of other names
        raise ValueError(f"[model] from: {' '.join(str(error).split())}") from error


def _shape(start, said):
    """The sizes of the encoder, without the vocabulary of a new one, and of the longest row."""
    said = dict(said)
    if start is None:
        encoder = choice("[model] encoder", said.pop("encoder", "bert"), ENCODERS)
        config, times = ENCODERS[encoder]
        if isinstance(said["hidden_size"], Real):
            said.setdefault("intermediate_size", int(times * said["hidden_size"]))
        shape = made("[model]", config, said, vocab_size=1, pad_token_id=None)
        return shape, whole_number("[model] max_length", shape.max_length, SHORTEST)
    shape = start[0].embedder.config
    settled = vars(shape) | {"encoder": None}
    free = [name for name in settled if name.endswith("dropout")] + ["max_length"]
    for name in said:
        if name not in settled:
            raise ValueError(no_such("[model]", name, ["from", *free]))
        if name not in free:  # another num_heads, say, would fit and be wrong
            told = f"beside from, only {', '.join(free)} may be given"
            raise ValueError(f"[model] has {name!r}, which the checkpoint decides; {told}")
    most, max_length = shape.max_length, said.pop("max_length", shape.max_length)
    if whole_number("[model] max_length", max_length, SHORTEST) > most:
        told = f"the checkpoint was made for rows of at most {most} tokens; lower it"
        raise ValueError(f"[model] max_length={max_length}; {told}")
    kept = {name: value for name, value in vars(shape).items() if name not in said}
    return made("[model]", type(shape), said, **kept), max_length


def _dtype(dtype):
    return getattr(torch, choice("dtype", dtype, ("float32", "float16", "bfloat16")))


def _part(seed, said):
    """What is trained on: the grammar's documents, texts, or rows on disk."""
    if "prepared" in said:
        return made("[[data]]", Prepared, said)
    if said.get("corpus", "grammar") == "grammar":
        rest = {name: value for name, value in said.items() if name != "corpus"}
        return made("[[data]]", Documents, rest, seed=seed)
    return made("[[data]]", Texts, said)


def _tokenizer(start, data, own, said):
    """The tokenizer: that of the checkpoint, of a vocab.txt, or one that the texts make.

    `own` is the vocabulary of a run that goes on, which takes the place of the last two.
    """
    if start is not None:
        if said:
            told = "[tokenizer] cannot be set, because the checkpoint of [model] from has its own"
            raise ValueError(f"{told}; leave this table out")
        return start[1]
    if "vocab_file" in said:
        return made("[tokenizer] with vocab_file", _read_vocabulary, said, own)
    if own:
        return WordPieceTokenizer.from_vocab(own, lowercase=said.get("lowercase", True))
    return made("[tokenizer]", WordPieceTokenizer.train, said, data.texts())


def _read_vocabulary(own, vocab_file, lowercase=None):
    """The tokenizer of a vocab.txt, or of its copy in the folder of a run that goes on."""
    file = own or Path(path_name("vocab_file", vocab_file)).expanduser()
    if own and lowercase is None:  # as the files beside the original said when the run began
        lowercase = json.loads(_beside(own).read_text("utf-8"))["do_lower_case"]
    try:
        how = {} if lowercase is None else {"lowercase": lowercase}
        return WordPieceTokenizer.from_vocab(file, **how)
    except FileNotFoundError:
        there = "a vocab.txt with one token a line, or the folder of one, is needed"
        told = (
            f"[tokenizer] vocab_file={str(vocab_file)!r}; there is no file {str(file)!r}; {there}"
        )
        raise FileNotFoundError(told) from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8 ({error})") from error


def _save_vocabulary(tokenizer, vocab_file):
    """Writes a vocab.txt, and beside it a file of transformers' that says how texts are read."""
    told = {"tokenizer_class": "BertTokenizer", "do_lower_case": tokenizer.lowercase}
    write(_beside(vocab_file), json.dumps(told))
    tokenizer.save(vocab_file)


def _beside(vocab_file):
    return vocab_file.with_name("tokenizer_config.json")


def _model(shape, tokenizer, start, seed):
    """A new model, or the checkpoint's weights under what may differ in its config."""
    if start is None:
        shape = replace(shape, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)
    _refuse_what_no_memory_holds(shape)
    torch.manual_seed(seed)
    model = MaskedLanguageModel.from_config(shape)
    if start is not None:
        model.load_state_dict(start[0].state_dict())
    return model


def _refuse_what_no_memory_holds(shape):
    """Asks for the memory of all weights at once, without filling it."""
    try:
        with torch.device("meta"):
            model = MaskedLanguageModel.from_config(shape)
        torch.empty(sum(weight.numel() for weight in model.parameters()))
    except RuntimeError as error:  # torch has no other name for it
        if not re.search("memory|overflow", str(error)):
            raise
        told = f"a model of {shape} does not fit into the memory; lower its sizes"
        raise ValueError(f"[model] {told}") from error


def _shown(said, tokenizer, max_length):
    """The callback that shows predictions, if there are sentences, and the model can read each."""
    for text in said["sentences"]:
        string("[show] sentences", text)
    shown = made("[show]", ShowPredictions, said, tokenizer)
    for text, ids in shown.rows:  # ids (1, T)
        if ids.shape[1] > max_length:
            raise ValueError(f"[show] {text!r} has {ids.shape[1]} tokens; max_length={max_length}")
    return [shown] if shown.rows else []


def _what_is_kept(config, out):
    """When checkpoints are written, and where, in one line."""
    clock = config.checkpoint_seconds
    sooner = " (the first ones sooner)" if clock and clock > FIRST_CHECKPOINT else ""
    when = [f"{clock:g} seconds{sooner}"] if clock else []
    when += [f"{config.checkpoint_every:,} steps"] if config.checkpoint_every else []
    when = f"every {' and every '.join(when)}, and at the end" if when else "at the end"
    return (
        f"checkpoints are written {when}, to {out / 'checkpoints'}; it keeps the last {config.keep}"
    )


def _precision(config, begun):
    """Which precision "auto" is, and why, in one line; None where a precision was asked for."""
    device = "cpu" if config.device == "cpu" else device_taken().type
    if config.precision != "auto" or config.device not in ("auto", device):  # `train` refuses this
        return None
    if begun is not None:
        return "precision: the one in which the run began"
    name, why = precision_taken(device)
    return f"precision: {name}, because {why}"


def _how_to_use(folder):
    """What to write in Python to use a saved model, in one line."""
    name = str(folder)
    ours = f"mlm_lib.pretrained.load_checkpoint({name!r})"
    return f"to use it in Python: transformers.pipeline('fill-mask', {name!r}) or {ours}"


class Position:
    """A callback that knows the last step, and prints the rows with an evaluation."""

    def __init__(self, quiet):
        self.quiet, self.step = quiet, None

    def __call__(self, model, step, row):
        self.step = step
        if row and not self.quiet and any(name.endswith("_loss") for name in row):
            print(json.dumps({name: _rounded(value) for name, value in row.items()}), flush=True)


def _rounded(value):
    """Four decimals, or four digits of a number that is smaller than 0.1, such as a learning rate.

    >>> _rounded(2.345678), _rounded(0.0000512345), _rounded(1200)
    (2.3457, 5.123e-05, 1200)
    """
    return round(value, 4) if abs(value) >= 0.1 else float(f"{value:.4g}")


# ------------------------------------------------------------------------------------ the data

HELD_OUT_SEED = 2**32 + 1  # of the grammar's held-out documents; only seed 42,948 would train on it


class Mixture:
    """`Documents`, `Texts` and `Prepared` as one dataset, which has new rows in each epoch.

    Rows are lists of ids. A part gives them in one sequence or several, of any kind.

    Args:
        parts: the data of a recipe.
        settings: what must be the same when a run goes on, beside the texts.
        former: whether the run was begun by an earlier version, which trained only on the first
            `max_length` ids of each text, and left a tenth of the texts unused. Such a run goes on
            by these rules, and ends as it would have ended.
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
        """A sentence for each part: what is trained on, what is held out, how much is kept."""
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

    A text longer than a row is cut into several rows. All texts that are not held out are trained
    on, except the test split of a corpus that has one (see `split_to_train`).

    Args:
        corpus: what `load_corpus` takes.
        copies: how often an epoch holds each text.
        blocks_every: the texts are also joined into blocks of full length, and an epoch holds one
            of so many, others in each epoch; None makes no blocks.
        validation: a file or folder of texts to evaluate on. Then nothing is held out of `corpus`;
            a file of these texts in the folder `corpus` is not trained on.
        validation_share: the share of the texts that is held out; None is a tenth, or the own
            validation split of a hub data set.

    Attributes:
        counts: how many texts are trained on (`texts`), held out (`held`) and in the test split
            (`test`), how many of the first hold no known word (`unknown`), and how many of the
            `tokens` to train on are `kept`.
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
                told = (
                    f"{both:,} of the texts of {validation} are also in {corpus} and are trained on"
                )
                warnings.warn(f"{told}: the loss on them says nothing about new texts")
        self.former = False

    def follow_former_rules(self):
        """Reads the texts, and cuts their rows, as the earlier version did."""
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
        return told + f"; the {len(self.test):,} of the test split are not used" * bool(self.test)

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
        """Cuts off the ends of long documents, as the earlier version did."""
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
    except Exception:  # the checkpoint is damaged, and `train` will say so
        return False


def _encoded(tokenizer, texts):
    """Rows of ids, [CLS] and [SEP] included, however long; nobody is warned of long ones here."""
    return tokenizer(texts, verbose=False)["input_ids"] if texts else []


def _rows(tokenizer, encoded, max_length):
    """The rows of some texts; each text has as many rows as it needs."""
    special = set(tokenizer.all_special_ids)  # unknown words among them
    return [row for ids in encoded for row in cut(ids, max_length, special)]


def _cut(tokenizer, rows, max_length):
    """Rows of at most so many ids, [SEP] at the end, without those that have no word to hide."""
    rows = [row if len(row) <= max_length else row[: max_length - 1] + row[-1:] for row in rows]
    special = set(tokenizer.all_special_ids)  # unknown words among them
    return [row for row in rows if not special.issuperset(row)]


if __name__ == "__main__":
    warnings.formatwarning = lambda message, *place: f"warning: {message}\n"
    sys.exit(main())
