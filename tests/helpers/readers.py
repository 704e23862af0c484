"""Two tiny masked models that are one, two tokenizers that are one, and what spies on a model."""

import pytest
import tiny_bert
import torch
import torch.nn as nn

from mlm_lib.engine.padding import pad_examples
from mlm_lib.pretrained import from_hf

HF = tiny_bert.bert().double()  # reads 20 tokens; 16 rows, of which 12 are tokens
OURS = from_hf(HF)
V = 16
TOKENIZER = tiny_bert.wordpiece()
both_models = pytest.mark.parametrize("model", [OURS, HF], ids=["ours", "transformers"])
both_tokenizers = pytest.mark.parametrize(
    "tokenizer", [TOKENIZER, TOKENIZER.to_hf()], ids=["words", "fast"]
)
TEXTS = [
    "a b c",
    "abc",
    "ab cab a zz",
    "c c [SEP] [UNK] b",
    "[PAD] c [PAD] ab",
    "abba [MASK] cc b a b c",
]


def log_probs(model, row):
    """(T, V): what a model says of one row alone, in float64."""
    with torch.no_grad():
        return model.eval()(torch.tensor([row]))["logits"][0].double().log_softmax(-1)


def masked_rows(number=9, seed=0):
    """(ids, labels) of rows, some of which are asked nothing."""
    draw = torch.Generator().manual_seed(seed)
    rows = []
    for place in range(number):
        ids = torch.randint(5, 12, (3 + 5 * place % 11,), generator=draw)
        asked = torch.rand(ids.shape, generator=draw) < (0.4 if place % 4 else 0.0)
        rows.append((ids.where(~asked, 4).tolist(), ids.where(asked, -100).tolist()))
    return rows


def batches_of(rows, size):
    """Masked batches, as a collator makes them."""
    batches = []
    for start in range(0, len(rows), size):
        ids, labels = zip(*rows[start : start + size])
        batch = pad_examples(list(ids), 0)
        batch["attention_mask"] = (batch["input_ids"] != 0).long()
        labels = [[*row, *[-100] * (batch["input_ids"].shape[1] - len(row))] for row in labels]
        batches.append({**batch, "labels": torch.tensor(labels)})
    return batches


class Says(nn.Module):
    """A model that says the same of each place, and remembers what it was shown."""

    def __init__(self, scores):
        super().__init__()
        self.scores, self.shown = nn.Parameter(torch.as_tensor(scores)), []

    def forward(self, input_ids, attention_mask=None, labels=None):
        self.shown.append(input_ids)
        return {"logits": self.scores.expand(*input_ids.shape, -1)}


def assert_leaves_no_trace(model, measure):
    """A measure turns dropout off, keeps no gradient, and puts each part back into its mode."""
    model.train()
    part = next(module for module in model.modules() if isinstance(module, nn.LayerNorm))
    part.eval()
    before = [module.training for module in model.modules()]
    try:
        assert measure() == measure()
        assert [module.training for module in model.modules()] == before
        assert {parameter.grad for parameter in model.parameters()} == {None}
    finally:
        model.eval()
