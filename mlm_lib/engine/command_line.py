"""The options of `python -m mlm_lib.pretrain`, and hints for names that do not exist.

This file imports nothing large, so that `--help` and a mistyped option are answered at once, before
torch and transformers are imported, which takes seconds.
"""

import argparse
import difflib

USAGE = "python -m mlm_lib.pretrain --out FOLDER [--corpus CORPUS] [--steps N] [more options]"
DESCRIPTION = """\
Trains a masked language model on your texts, and saves it so that transformers can open it.

FOLDER gets a log (log.jsonl), the vocabulary (tokenizer/), checkpoints from which an interrupted
run can go on (checkpoints/) and, at the end, the model (model/)."""
EXAMPLES = """\
files of texts:
  .txt, .text           Blank lines separate the texts. Without blank lines, each line is a text.
  .csv, .tsv, .jsonl, .json, .parquet
                        Each line of the table holds one text, in the column 'text'. If it is in
                        another column, write a colon and the name of the column after the name of
                        the file: --corpus films.csv:body reads the column 'body'.
  .gz                   Any of the files above, except .parquet, compressed with gzip.

examples:
  A small new model, from a text file with one text per line:
    python -m mlm_lib.pretrain --corpus my_texts.txt --steps 2000 --out my-run
  To go on with this run after Ctrl-C or a crash:
    python -m mlm_lib.pretrain --corpus my_texts.txt --steps 2000 --out my-run --resume
  A trained model, trained further on your texts:
    python -m mlm_lib.pretrain --from bert-base-uncased --corpus my_texts.txt --steps 500 \\
        --learning-rate 5e-5 --out further

All other settings (the sizes of the model, the masking, several corpora at once) belong in a
recipe, a file that --config reads. docs/scaling.md explains an example.

The exit status is 0 after a run that reached its end, 1 after an error, 2 after an option that does
not exist, 130 after Ctrl-C, and 143 after SIGTERM, with which a batch system ends a job. Under
torchrun the exit status is that of torchrun."""

# {group: {name: arguments of `add_argument`}}. The help texts state the defaults of
# `TrainingConfig` and of `DEFAULTS` in recipe.py; a test compares them.
OPTIONS = {
    "the model and its texts": {
        "corpus": {
            "help": "the texts: a file, a folder of files, hub:NAME for a data set of the Hugging "
            "Face hub, or one of the course's own corpora, which are called grammar, reviews and "
            "docs. Which files are read, and how, is explained below (default: grammar)"
        },
        "prepared": {
            "metavar": "FOLDER",
            "help": "tokenize the corpus only once, store the tokens in this folder, and read them "
            "from the disk during the training. Use this for a corpus that is larger than the "
            "memory",
        },
        "from": {
            "metavar": "MODEL",
            "help": "begin with the weights of a trained model, and take its sizes and its "
            "vocabulary. MODEL is course-bert, which comes with the course, a folder, or the name "
            "of a model on the Hugging Face hub (default: a new model with 2 layers "
            "of width 128)",
        },
        "config": {
            "metavar": "FILE",
            "help": "a recipe, which is a TOML file with more settings. If the command line and "
            "the recipe give the same setting, the command line counts. If --corpus is given, "
            "the corpora of the recipe are not used",
        },
    },
    "how it is trained": {
        "steps": {
            "type": int,
            "help": "how many optimizer steps; required unless --seconds is given",
        },
        "seconds": {
            "type": float,
            "help": "stop after X seconds of training. If a run is continued by --resume, the "
            "seconds of its earlier parts count as well",
        },
        "batch_size": {
            "type": int,
            "help": "how many rows a step reads. A row is a text, or a part of a text that is "
            "longer than the model's max_length. If several processes train together under "
            "torchrun, their rows count together (default: 32)",
        },
        "learning_rate": {
            "type": float,
            "help": "the highest learning rate, which is reached after the warm-up "
            "(default: 0.0005)",
        },
        "seed": {
            "type": int,
            "help": "the seed of everything that is drawn at random: the first weights, the order "
            "of the rows, the masks and dropout (default: 0)",
        },
        "precision": {
            "help": "fp32, bf16, or auto. With auto the run takes the one of the two that is "
            "faster on this machine (default: auto)"
        },
        "device": {
            "help": "cpu, cuda, mps, or auto. With auto the run takes a GPU if there is one "
            "(default: auto)"
        },
    },
    "what is kept": {
        "out": {
            "metavar": "FOLDER",
            "required": True,
            "help": "the folder that everything is written to; required",
        },
        "resume": {
            "action": "store_true",
            "help": "go on from the last checkpoint in FOLDER, or begin at step 0 if there is none",
        },
        "checkpoint_seconds": {
            "type": float,
            "help": "the longest time between two checkpoints, in seconds. At the beginning "
            "checkpoints are written more often: 30, 60, 120 and 240 seconds after the start. Of "
            "all checkpoints the last two are kept (default: 300)",
        },
        "checkpoint_every": {
            "type": int,
            "help": "also write a checkpoint each time N steps have been made (default: none)",
        },
    },
}
# The options that are settings of `TrainingConfig`.
TRAINING_OPTIONS = [*OPTIONS["how it is trained"], "checkpoint_seconds", "checkpoint_every"]

# {table of a recipe: {setting: its names elsewhere}}. The other names are mostly those of
# `TrainingArguments` and of the example scripts of transformers.
NAMES_ELSEWHERE = {
    "[training]": {
        "steps": "epochs num_epochs num_train_epochs max_epochs max_steps num_steps train_steps",
        "seconds": "max_time time",
        "batch_size": "per_device_train_batch_size train_batch_size batch",
        "learning_rate": "lr peak_lr max_lr",
        "warmup": "warmup_steps warmup_ratio num_warmup_steps",
        "schedule": "lr_scheduler_type lr_scheduler scheduler",
        "optimizer": "optim",
        "betas": "adam_beta1 adam_beta2 beta1 beta2",
        "eps": "adam_epsilon epsilon",
        "max_grad_norm": "clip_grad gradient_clipping grad_clip",
        "precision": "fp16 bf16 mixed_precision",
        "device": "use_cpu no_cuda cuda gpu",
        "checkpoint_every": "save_steps save_every",
        "keep": "save_total_limit",
        "log_every": "logging_steps",
        "evaluate_every": "eval_steps eval_every",
        "evaluate_at_start": "eval_on_start",
        "progress": "disable_tqdm",
    },
    "[masking]": {
        "rate": "mlm_probability mask_probability masking_rate mask_rate",
        "strategy": "whole_word_mask whole_word_masking wwm",
    },
    "[model]": {
        "from": "model_name_or_path model_name checkpoint",
        "max_length": "max_seq_length max_seq_len block_size seq_length max_position_embeddings",
        "num_layers": "num_hidden_layers layers",
        "num_heads": "num_attention_heads heads",
        "hidden_size": "width",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "activation": "hidden_act",
    },
    "[tokenizer]": {
        "vocab_size": "",
        "vocab_file": "tokenizer_name vocab vocabulary",
        "lowercase": "do_lower_case lower_case uncased",
    },
    "[[data]]": {
        "corpus": "train_file dataset dataset_name texts",
        "validation": "validation_file eval_file",
        "prepared": "",
    },
    "[save]": {"dtype": "torch_dtype"},
}


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that prints an error as one line, after the usage."""

    def error(self, message):
        """Prints the error, and ends the program with exit status 2."""
        self.exit(2, f"usage: {USAGE}\nerror: {message}; --help explains every option\n")


def parse(arguments=None):
    """Parses the command line into {name: value} of the options that are given.

    Options that are not given are absent from the result, so that they replace no value of a
    recipe. An option that does not exist, or --help, ends the program.

    >>> parse(["--out", "my-run", "--batch-size", "8"])
    {'out': 'my-run', 'batch_size': 8}
    """
    parser = Parser(
        usage=USAGE, description=DESCRIPTION, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,  # leaves out the options that are not given
    )  # fmt: skip
    for title, options in OPTIONS.items():
        group = parser.add_argument_group(title)
        for name, settings in options.items():
            kind = settings.get("type")
            metavar = {"metavar": "N" if kind is int else "X"} if kind else {}
            group.add_argument(option(name), **metavar, **settings)
    given, unknown = parser.parse_known_args(arguments)
    if unknown:
        options = [option(name) for group in OPTIONS.values() for name in group]
        parser.error(no_such("the command", unknown[0].split("=")[0], options))
    return vars(given)


def option(name):
    """How the option of a setting is written.

    >>> option("batch_size")
    '--batch-size'
    """
    return f"--{name.replace('_', '-')}"


def no_such(place, name, names):
    """The error message about a name that does not exist: it says what was probably meant.

    Args:
        place: where the name does not exist, for example "[model]" for a table of a recipe, or "the
            command" for an option.
        name: the name that was given.
        names: the names that exist there, which the message lists.

    >>> no_such("[training]", "lr", ["steps", "learning_rate"])
    "[training] has no 'lr'; its name here is learning_rate; there are: steps, learning_rate"
    >>> no_such("[save]", "dtyp", ["dtype"])
    "[save] has no 'dtyp'; dtype is the nearest name; there are: dtype"
    """
    plain, hints = name.lstrip("-").replace("-", "_"), []
    for table, keys in NAMES_ELSEWHERE.items():
        for key, elsewhere in keys.items():
            if plain in (key, *elsewhere.split()):
                here = option(key) if name.startswith("-") else key
                if here in names and (name.startswith("-") or table == place):
                    hints = [f"its name here is {here}"]
                elif not place.startswith(table):
                    hints = [f"a recipe has {key} in its table {table}"]
    if "epoch" in plain and hints:
        hints += [
            "steps = epochs * rows / batch_size, and a run prints how many steps an epoch takes"
        ]
    near = [] if hints else difflib.get_close_matches(name, names, 1)
    hints += [f"{one} is the nearest name" for one in near]
    return "; ".join([f"{place} has no {name!r}", *hints, f"there are: {', '.join(names)}"])
