"""Pretraining from the command line: `python -m mlm_lib.pretrain --corpus NAME --steps N --out DIR`

The options cover what most runs need. A recipe, a TOML file that `--config FILE` reads, can set
everything else; `data/course-bert/recipe.toml` is an example. Under `torchrun` each batch is shared
among the processes. The folder DIR receives `log.jsonl`, `checkpoints/`, `tokenizer/` if a new
vocabulary is used and, at the end, `model/`, which transformers can open.

Each table of a recipe contains the arguments of one class. The class checks them and has defaults
for most of them::

    [[data]]     TextCorpus; GrammarCorpus if corpus = "grammar"; TokenizedCorpus if `prepared`
                 names a folder. Several of these tables make a mixture.
    [tokenizer]  WordPieceTokenizer.train, which learns a vocabulary. With `vocab_file`, a vocab.txt
                 or its folder, none is learned; then `lowercase` is the only other key.
    [model]      EncoderConfig, or ModernConfig with encoder = "modern"
    [masking]    MaskingCollator. With objective = "diffusion" above all tables, DiffusionCollator,
                 which trains a model that can write.
    [training]   TrainingConfig
    [show]       ShowPredictions
    [save]       dtype = "float32", "float16" or "bfloat16"

`[model] from = "course-bert"` continues the training of a checkpoint, with its weights, sizes and
tokenizer. Such a recipe may only set other dropout probabilities and a smaller `max_length`, which
makes the rows shorter; the model keeps all its positions. An evaluation before the first step then
shows in the log where the training started. Built in lessons 09, 16 and 18.
"""

import sys

from mlm_lib.engine.command_line import no_such, parse

if __name__ == "__main__":
    parse()  # --help and a wrong option are answered here, before torch is loaded

import json
import os
import re
import warnings
from contextlib import nullcontext
from dataclasses import replace
from numbers import Real
from pathlib import Path

import torch
from torch import distributed

from mlm_lib.checks import choice, path_name, string, whole_number
from mlm_lib.diffusion import DiffusionCollator
from mlm_lib.encoder import EncoderConfig
from mlm_lib.engine.checkpoints import Checkpoints
from mlm_lib.engine.files import only_writer, write
from mlm_lib.engine.log import TrainingStopped
from mlm_lib.engine.precision import device_taken, precision_taken
from mlm_lib.engine.prepared import TokenizedCorpus
from mlm_lib.engine.recipe import build_from_table, fill_in_defaults, read_recipe
from mlm_lib.engine.run import FIRST_CHECKPOINT
from mlm_lib.engine.signals import Terminated, sigterm_as_exception
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.masking import MaskingCollator
from mlm_lib.modern import ModernConfig
from mlm_lib.pretrained import load_checkpoint, save_pretrained
from mlm_lib.training import ShowPredictions, TrainingConfig, train
from mlm_lib.training_data import DataMixture, GrammarCorpus, TextCorpus, has_legacy_rows
from mlm_lib.wordpiece import WordPieceTokenizer

COLLATORS = {"masked": MaskingCollator, "diffusion": DiffusionCollator}  # by objective
# {[model] encoder: (the class of its settings, the default ratio of intermediate_size to
# hidden_size)}.
ENCODERS = {"bert": (EncoderConfig, 4), "modern": (ModernConfig, 1.5)}
SHORTEST_ROW = 3  # [CLS], one token, [SEP]

# ------------------------------------------------------------------------------------ the command


def main(arguments=None):
    """Runs the command line, and returns the exit status.

    The status is 0 after a complete run, 1 after an error, which is printed as one line, and 130
    after Ctrl-C. SIGTERM, with which a batch system ends a job, is handled like Ctrl-C, with the
    exit status 143. A bug of this package is not an error in this sense: it keeps its traceback.

    Args:
        arguments: a list of str. None: the arguments of the program are used.
    """
    options = parse(arguments)
    out, resume = options.pop("out"), options.pop("resume", False)
    try:
        # With several processes the signal keeps its usual effect: torchrun ends them itself.
        alone = int(os.environ.get("WORLD_SIZE", 1)) == 1
        with sigterm_as_exception() if alone else nullcontext():
            pretrain(read_recipe(options.pop("config", None), options), out, resume=resume)
    except KeyboardInterrupt as error:
        early = f"stopped before the first step; {describe_last_checkpoint(out)}"
        print(_with_notes([], error) or early, file=sys.stderr)
        return 143 if isinstance(error, Terminated) else 130
    except (ValueError, OSError, TrainingStopped, MemoryError, torch.OutOfMemoryError) as error:
        message = str(error) or "there is not enough memory"
        print(_with_notes([f"error: {message}"], error), file=sys.stderr)
        return 1
    except RuntimeError as error:
        if not distributed.is_initialized():
            raise
        message = f"this process failed, or another one ended ({str(error).splitlines()[0]})"
        print(_with_notes([f"error: {message}"], error), file=sys.stderr)
        return 1
    return 0


def _with_notes(messages, error):
    """The messages and the notes that `pretrain` added to an error, in one line."""
    return "; ".join(messages + getattr(error, "__notes__", []))


def describe_last_checkpoint(out):
    """From which step a run that has stopped can be resumed, as a sentence."""
    step = Checkpoints(Path(out) / "checkpoints").last_step()
    if step is None:
        return "there is no checkpoint yet; --resume would begin anew"
    return f"the last checkpoint is of step {step:,}; --resume goes on from there"


# ------------------------------------------------------------------------------------ a run


def pretrain(recipe, out, *, resume=False):
    """Trains and saves a model as a recipe says.

    Args:
        recipe: a dictionary of tables, such as `read_recipe` returns.
        out: the folder for the tokenizer, the log, the checkpoints and the model. Only one program
            at a time may write to it. If a program has several processes, the main one writes.
        resume: whether to continue from the last checkpoint in `out`. If there is none, the run
            begins at step 0.

    Returns:
        (model, tokenizer, `History`).

    Raises:
        ValueError: the recipe contradicts itself, or the checkpoints in `out`.
        FileExistsError: `out` holds a run and `resume` is False, or a model without checkpoints.
        BlockingIOError: another program writes to `out`.
        TrainingStopped: in the cases that `train` describes. No model is saved then.

    An error or Ctrl-C after the first step carries a note that says at which step the run stopped,
    and from which checkpoint it can be resumed.
    """
    recipe, out = fill_in_defaults(recipe), Path(path_name("out", out))
    main_process = os.environ.get("RANK", "0") == "0"  # torchrun sets RANK for each process

    # 1. What can be checked without the data.
    collator_class = COLLATORS[choice("objective", recipe["objective"], COLLATORS)]
    source = recipe["model"].pop("from", None)
    checkpoint = None if source is None else _load_source(source)
    if checkpoint is not None:  # the log should show what the checkpoint can do without training
        recipe["training"].setdefault("evaluate_at_start", True)
    config = build_from_table("[training]", TrainingConfig, recipe["training"])
    encoder_config, max_length = _encoder_config(checkpoint, recipe["model"])
    dtype = build_from_table("[save]", _dtype, recipe["save"])

    with only_writer(out) if main_process else nullcontext():
        first_step = _step_to_resume(out, resume)  # None: a new run
        if main_process and resume:
            anew = f"{out} holds no checkpoint, so the run begins at step 0"
            print(anew if first_step is None else f"going on from step {first_step:,}")

        # 2. The data and the tokenizer. A resumed run takes the tokenizer in `out`.
        parts = [_data_part(config.seed, table) for table in recipe["data"]]
        settings = {name: recipe[name] for name in ("data", "tokenizer")}
        legacy = first_step is not None and has_legacy_rows(out)
        data = DataMixture(parts, settings | {"max_length": max_length}, legacy=legacy)
        vocab_file = out / "tokenizer" / "vocab.txt"
        saved_vocab = vocab_file if first_step else None
        tokenizer = _tokenizer(checkpoint, data, saved_vocab, recipe["tokenizer"])
        data.encode(tokenizer, max_length)
        bounds = collator_class is DiffusionCollator
        evaluations, floors = data.evaluations(tokenizer, bounds=bounds)

        # 3. The model and the collator.
        model = _model(encoder_config, tokenizer, checkpoint, config.seed)
        collator = build_from_table(
            "[masking]", collator_class, recipe["masking"], tokenizer, seed=config.seed
        )
        show = _show_predictions(recipe["show"], tokenizer, encoder_config.max_length)
        progress = PrintEvaluations(quiet=not main_process)

        if main_process:
            size = sum(parameter.numel() for parameter in model.parameters())
            learned = checkpoint is None and tokenizer.lowercase
            how = ", of lower-cased texts without accents" if learned else ""
            print(f"{size:,} parameters, {len(tokenizer):,} different tokens{how}")
            print("\n".join(data.describe()))
            steps = -(-len(data) // config.batch_size)  # the last batch of an epoch may be smaller
            rows = f"{len(data):,} rows with {sum(data.lengths):,} tokens in all"
            print(f"an epoch has {rows}, and takes {steps:,} steps of {config.batch_size} rows")
            if max_length < encoder_config.max_length:
                kept = f"the model keeps its {encoder_config.max_length} positions"
                print(f"a row has at most {max_length} tokens; {kept}")
            print(_describe_checkpoints(config, out))
            if precision := _describe_precision(config, first_step):
                print(precision)
            for name, nats in floors.items():
                floor = f"no model can go below {nats:.4f} nats for each hidden word"
                print(f"{name}: {floor} of the documents held out")
            if not first_step and checkpoint is None:
                _save_vocabulary(tokenizer, vocab_file)

        # 4. Training.
        def evaluate(model):
            return {name: nats for each in evaluations for name, nats in each(model).items()}

        try:
            history = train(
                model, data, collator, config, out=out, resume=resume,
                evaluate=evaluate if evaluations else None,
                callbacks=[progress, *show] if main_process else [progress],
            )  # fmt: skip

            # 5. The model, in a form that transformers can open.
            if main_process:
                save_pretrained(model.cpu().eval().to(dtype), tokenizer, out / "model")
                done = f"after {history.step} steps and {history.tokens:,} tokens"
                print(f"saved {out / 'model'} {done} in {history.seconds:.0f} s")
                print(_describe_use(out / "model"))
        except BaseException as error:  # also Ctrl-C, which is not an Exception
            if progress.step is not None or not isinstance(error, ValueError):
                step = progress.step or first_step or 0
                error.add_note(f"stopped at step {step}; {describe_last_checkpoint(out)}")
            raise
    return model.float(), tokenizer, history


def _step_to_resume(out, resume):
    """The step of the last checkpoint, or None for a new run. Refuses to overwrite a run."""
    step = Checkpoints(out / "checkpoints").last_step()
    if step is not None and not resume:
        raise FileExistsError(f"{out} holds a run; --resume goes on, or choose another folder")
    if step is None and (out / "model").exists():
        raise FileExistsError(f"{out} holds a model without checkpoints; choose another folder")
    return step


# ------------------------------------------------------------------------------------ its parts


def _load_source(source):
    """The model and the tokenizer of the checkpoint that `[model] from` names."""
    try:
        return load_checkpoint(source)
    except (ValueError, RuntimeError) as error:  # the second if names of weights differ
        raise ValueError(f"[model] from: {' '.join(str(error).split())}") from error


def _encoder_config(checkpoint, table):
    """The settings of the encoder, and the length of the longest row.

    The vocabulary of a new model is not known yet, so its settings have the vocabulary size 1 until
    `_model` replaces it.
    """
    table = dict(table)
    if checkpoint is None:
        encoder = choice("[model] encoder", table.pop("encoder", "bert"), ENCODERS)
        config_class, ratio = ENCODERS[encoder]
        if isinstance(table["hidden_size"], Real):
            table.setdefault("intermediate_size", int(ratio * table["hidden_size"]))
        config = build_from_table("[model]", config_class, table, vocab_size=1, pad_token_id=None)
        return config, whole_number("[model] max_length", config.max_length, SHORTEST_ROW)
    config = checkpoint[0].embedder.config
    known = vars(config) | {"encoder": None}
    may_change = [name for name in known if name.endswith("dropout")] + ["max_length"]
    for name in table:
        if name not in known:
            raise ValueError(no_such("[model]", name, ["from", *may_change]))
        if name not in may_change:  # another num_heads would be loaded, and be wrong
            rule = f"beside from, only {', '.join(may_change)} may be given"
            raise ValueError(f"[model] has {name!r}, which the checkpoint decides; {rule}")
    most, max_length = config.max_length, table.pop("max_length", config.max_length)
    if whole_number("[model] max_length", max_length, SHORTEST_ROW) > most:
        reason = f"the checkpoint was made for rows of at most {most} tokens; lower it"
        raise ValueError(f"[model] max_length={max_length}; {reason}")
    kept = {name: value for name, value in vars(config).items() if name not in table}
    return build_from_table("[model]", type(config), table, **kept), max_length


def _dtype(dtype):
    """The torch type that `[save] dtype` names."""
    return getattr(torch, choice("dtype", dtype, ("float32", "float16", "bfloat16")))


def _data_part(seed, table):
    """The corpus that a `[[data]]` table describes."""
    if "prepared" in table:
        return build_from_table("[[data]]", TokenizedCorpus, table)
    if table.get("corpus", "grammar") == "grammar":
        rest = {name: value for name, value in table.items() if name != "corpus"}
        return build_from_table("[[data]]", GrammarCorpus, rest, seed=seed)
    return build_from_table("[[data]]", TextCorpus, table)


def _tokenizer(checkpoint, data, saved_vocab, table):
    """The tokenizer of the checkpoint, of a vocabulary file, or a new one learned from the texts.

    Args:
        checkpoint: (model, tokenizer) of `[model] from`, or None.
        data: the `DataMixture` to learn from.
        saved_vocab: the vocab.txt in the folder of a resumed run, which is used in place of a given
            vocabulary file and of a new vocabulary; None for a new run.
        table: the table `[tokenizer]`.
    """
    if checkpoint is not None:
        if table:
            reason = "[tokenizer] cannot be set, because the checkpoint of [model] from has its own"
            raise ValueError(f"{reason}; leave this table out")
        return checkpoint[1]
    if "vocab_file" in table:
        place = "[tokenizer] with vocab_file"
        return build_from_table(place, _read_vocabulary, table, saved_vocab)
    if saved_vocab:
        return WordPieceTokenizer.from_vocab(saved_vocab, lowercase=table.get("lowercase", True))
    texts = data.tokenizer_texts()
    return build_from_table("[tokenizer]", WordPieceTokenizer.train, table, texts)


def _read_vocabulary(saved_vocab, vocab_file, lowercase=None):
    """The tokenizer of a vocab.txt, or of its copy in the folder of a resumed run."""
    file = saved_vocab or Path(path_name("vocab_file", vocab_file)).expanduser()
    if saved_vocab and lowercase is None:  # then as at the start of the run
        config = _config_beside(saved_vocab).read_text("utf-8")
        lowercase = json.loads(config)["do_lower_case"]
    try:
        how = {} if lowercase is None else {"lowercase": lowercase}
        return WordPieceTokenizer.from_vocab(file, **how)
    except FileNotFoundError:
        wanted = "a vocab.txt with one token a line, or the folder of one, is needed"
        raise FileNotFoundError(
            f"[tokenizer] vocab_file={str(vocab_file)!r}; there is no file {str(file)!r}; {wanted}"
        ) from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8 ({error})") from error


def _save_vocabulary(tokenizer, vocab_file):
    """Writes a vocab.txt and, beside it, the file in which transformers keeps `do_lower_case`."""
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": tokenizer.lowercase}
    write(_config_beside(vocab_file), json.dumps(config))
    tokenizer.save(vocab_file)


def _config_beside(vocab_file):
    return vocab_file.with_name("tokenizer_config.json")


def _model(encoder_config, tokenizer, checkpoint, seed):
    """A new model, or one with the weights of the checkpoint, whose dropout may be different."""
    if checkpoint is None:
        encoder_config = replace(
            encoder_config, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id
        )
    _check_that_memory_suffices(encoder_config)
    torch.manual_seed(seed)
    model = MaskedLanguageModel.from_config(encoder_config)
    if checkpoint is not None:
        model.load_state_dict(checkpoint[0].state_dict())
    return model


def _check_that_memory_suffices(encoder_config):
    """Refuses a model whose weights do not fit into memory, before any of them is drawn.

    The memory for all weights is requested at once, without filling it. If the system refuses,
    torch raises a RuntimeError, which only its message distinguishes from other errors.
    """
    try:
        with torch.device("meta"):
            model = MaskedLanguageModel.from_config(encoder_config)
        torch.empty(sum(weight.numel() for weight in model.parameters()))
    except RuntimeError as error:
        if not re.search("memory|overflow", str(error)):
            raise
        reason = f"a model of {encoder_config} does not fit into the memory; lower its sizes"
        raise ValueError(f"[model] {reason}") from error


def _show_predictions(table, tokenizer, max_length):
    """A list with the callback of `[show]`, or an empty list if there are no sentences.

    Raises:
        ValueError: a sentence that is not a text, has no blank, or is too long for the model.
    """
    for text in table["sentences"]:
        string("[show] sentences", text)
    show = build_from_table("[show]", ShowPredictions, table, tokenizer)
    for text, ids in show.rows:  # ids (1, T)
        if ids.shape[1] > max_length:
            raise ValueError(f"[show] {text!r} has {ids.shape[1]} tokens; max_length={max_length}")
    return [show] if show.rows else []


# ------------------------------------------------------------------------------------ printing


def _describe_checkpoints(config, out):
    """When checkpoints are written, and where, in one line."""
    clock = config.checkpoint_seconds
    sooner = " (the first ones sooner)" if clock and clock > FIRST_CHECKPOINT else ""
    when = [f"{clock:g} seconds{sooner}"] if clock else []
    when += [f"{config.checkpoint_every:,} steps"] if config.checkpoint_every else []
    when = f"every {' and every '.join(when)}, and at the end" if when else "at the end"
    return (
        f"checkpoints are written {when}, to {out / 'checkpoints'}; it keeps the last {config.keep}"
    )


def _describe_precision(config, first_step):
    """Which precision "auto" stands for, and why, in one line; None if a precision was given."""
    device = "cpu" if config.device == "cpu" else device_taken().type
    if config.precision != "auto" or config.device not in ("auto", device):  # `train` refuses this
        return None
    if first_step is not None:
        return "precision: the one in which the run began"
    name, why = precision_taken(device)
    return f"precision: {name}, because {why}"


def _describe_use(folder):
    """How to use a saved model in Python, in one line."""
    name = str(folder)
    ours = f"mlm_lib.pretrained.load_checkpoint({name!r})"
    return f"to use it in Python: transformers.pipeline('fill-mask', {name!r}) or {ours}"


class PrintEvaluations:
    """A callback of `train` that prints each row of the log that has an evaluation.

    Args:
        quiet: whether to print nothing. This is so in all processes except the main one.

    Attributes:
        step: the last step that was finished; None before the first.
    """

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


if __name__ == "__main__":
    warnings.formatwarning = lambda message, *place: f"warning: {message}\n"
    sys.exit(main())
