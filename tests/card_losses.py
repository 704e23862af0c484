"""The card's table "On other text": `python tests/card_losses.py [CORPUS ...]` prints rows.

Each is a mean over the labels of several maskings of a validation split, with the standard error
that it would have if the labels were independent.
"""

import sys
from collections import Counter

import torch
import torch.nn.functional as F

from mlm_lib.corpus import load_corpus
from mlm_lib.engine.batches import example_length
from mlm_lib.labels import IGNORE
from mlm_lib.masking import MaskingCollator
from mlm_lib.pretrained import load_checkpoint

MASKINGS = {"docs": 1, "reviews": 8}  # a few labels say little: those of one masking differ by ±0.2
BATCH_SIZE = 64


@torch.no_grad()
def asked(model, rows, collator):
    """What stood in the input, the answer and its loss at each label, three tensors (N,)."""
    found = []
    for start in range(0, len(rows), BATCH_SIZE):
        batch = collator(rows[start : start + BATCH_SIZE])
        chosen = batch["labels"] != IGNORE
        logits, answers = model(**batch)["logits"], batch["labels"][chosen]  # (N, V), (N,)
        losses = F.cross_entropy(logits, answers, reduction="none")
        found.append((batch["input_ids"][chosen], answers, losses))
    return [torch.cat(column) for column in zip(*found)]


def measure(corpus):
    """{column: losses (N,)} of course-bert, and of a model that knows only frequencies."""
    model, tokenizer = load_checkpoint("course-bert")
    longest = model.embedder.config.max_length
    counts = Counter()
    for text in load_corpus(corpus, "train"):
        counts.update(tokenizer.encode(text, add_special_tokens=False))
    frequency = torch.tensor([counts[token] + 1.0 for token in range(len(tokenizer))])
    texts = load_corpus(corpus, "validation")
    rows = [tokenizer.encode(text, truncation=True, max_length=longest) for text in texts]
    rows.sort(key=example_length)
    found = {}
    for name, shares in (("blanks", {"mask_share": 1.0, "random_share": 0.0}), ("mixture", {})):
        collator = MaskingCollator(tokenizer, seed=1, **shares)
        maskings = [asked(model, rows, collator) for _ in range(MASKINGS[corpus])]
        seen, answers, losses = (torch.cat(column) for column in zip(*maskings))
        found[name] = losses
    found["kept"] = losses[seen == answers]
    found["frequency"] = -(frequency / frequency.sum()).log()[answers]
    return found


if __name__ == "__main__":
    for corpus in sys.argv[1:] or MASKINGS:
        for name, losses in measure(corpus).items():
            error = losses.std() / len(losses) ** 0.5
            print(f"{corpus:8} {name:10} {losses.mean():.2f} ± {error:.2f} of {len(losses):,}")
