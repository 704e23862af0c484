"""A tiny model, its rows, and what tests of the training ask of a run."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from toys import tokenizer_of
from transformers import BertConfig, BertForMaskedLM

from mlm_lib import training
from mlm_lib.encoder import EncoderConfig
from mlm_lib.language_model import LanguageModel, LSTMContextualizer
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.masking import MaskingCollator
from mlm_lib.training import TrainingConfig, train

ROOT = Path(training.__file__).resolve().parents[1]
TOKENIZER = tokenizer_of(*"abcdefghijklmnopqrstuvwxyz")
VOCAB = list(TOKENIZER.vocab)
# 46 rows of 5 to 15 tokens
ROWS = [[2, *(5 + (3 * i + j) % 26 for j in range(3 + 7 * i % 11)), 3] for i in range(46)]
SIZES = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "intermediate_size": 32}
SIZES["max_length"] = 16


def tiny(dropout=0.1, seed=0, **sizes):
    torch.manual_seed(seed)
    config = EncoderConfig(len(VOCAB), **SIZES | sizes, dropout=dropout)
    return MaskedLanguageModel.from_config(config)


def tiny_of_transformers(dropout=0.0, **options):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 32}
    drops = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    sizes |= {"num_attention_heads": 2, "max_position_embeddings": 16}
    return BertForMaskedLM(BertConfig(vocab_size=len(VOCAB), **sizes | drops | options))


def tiny_language_model(sparse=False, vocab_size=len(VOCAB), **options):
    torch.manual_seed(0)
    contextualizer = LSTMContextualizer(16, 16, 1, bidirectional=True)
    options = {"bidirectional": True, "sparse_embeddings": sparse} | options
    table = nn.Embedding(vocab_size, 16, sparse=sparse)
    return LanguageModel(vocab_size, table, contextualizer, **options)


def padded(rows):
    """A batch without labels, as a language model wants it."""
    ids = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    return {"input_ids": ids, "mask": ids != 0}


def collator(seed=0, **options):
    return MaskingCollator(TOKENIZER, seed=seed, **options)


def go(
    out=None, *, model=None, data=ROWS, collate=None, resume=False, evaluate=None, callbacks=(),
    **settings,
):  # fmt: skip
    """Train the tiny model; settings are those of the configuration."""
    model, collate = model or tiny(), collate or collator()
    settings = {"steps": 10, "batch_size": 8, "precision": "fp32", "device": "cpu"} | settings
    more = {"out": out, "resume": resume, "evaluate": evaluate, "callbacks": callbacks}
    return model, train(model, data, collate, TrainingConfig(**settings), **more)


def weights(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same(one, other):
    """Two models or dictionaries of weights, to the bit."""
    one, other = (x if isinstance(x, dict) else x.state_dict() for x in (one, other))
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


def assert_says(error, words):
    assert [word for word in words if word not in str(error)] == [], str(error)


def log_of(out):
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def timeless(rows):
    """Rows of the log without what a clock says."""
    clock = ("seconds", "tokens_per_second")
    return [{name: row[name] for name in row if name not in clock} for row in rows]


def checkpoints(out):
    return sorted(path.name for path in (out / "checkpoints").iterdir())


def contents(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


class Renewed:
    """A dataset that holds other rows, and another number of them, in each epoch."""

    rows = ROWS[:8]

    def set_epoch(self, epoch):
        first = 8 * epoch % 40
        self.rows = ROWS[first : first + 8 if epoch % 2 == 0 else first + 9]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]

    def fingerprint(self):
        return {"name": "renewed"}


class Seen:
    """A collator that remembers which examples it was given."""

    def __init__(self):
        self.batches, self.inner = [], collator()

    def __call__(self, examples):
        self.batches.append([ROWS.index(example) for example in examples])
        return self.inner(examples)


class Recorder(nn.Module):
    """A model that remembers its batches and losses, and whether autocast was on.

    It returns a plain dictionary.
    """

    def __init__(self, inner=None):
        super().__init__()
        self.inner, self.batches, self.losses, self.autocast = inner or tiny(), [], [], set()

    def forward(self, **batch):
        output = self.inner(**batch)
        self.batches.append(batch)
        self.losses.append(output["loss"].item())
        self.autocast.add(torch.is_autocast_enabled("cpu"))
        return {"loss": output["loss"]}


def draws(model):
    """An evaluation that draws random numbers of every kind, and leaves the model in eval mode."""
    model.eval()
    return {"drawn": torch.rand(1).item() + random.random() + np.random.rand()}


def draw_in_callback(model, step, row):
    torch.rand(step % 3), random.random(), np.random.rand(step % 2)


def run_script(name, *arguments, processes=None):
    """Run tests/scripts/NAME.py in a fresh interpreter, or in several under torchrun; what it
    printed."""
    own = {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'helpers'}", "PYTHONUTF8": "1"}
    line = [sys.executable]
    if processes:
        line += ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    line += [str(ROOT / "tests" / "scripts" / f"{name}.py"), *map(str, arguments)]
    process = subprocess.run(
        line, env=os.environ | own | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
        encoding="utf-8", timeout=600,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return process.stdout
