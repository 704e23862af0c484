"""Measures the numbers on the model card of course-writer:
`python tools/card_writing.py [CHECKPOINT [DOCUMENTS]]`.

They are the bound on the loss of held-out documents beside the floor, and how the grammar judges
the documents that the model writes: how many are possible, their nats given their length, and how
many different words and documents there are.
"""

import math
import sys

import torch

from mlm_lib.diffusion import nelbo
from mlm_lib.grammar import Grammar
from mlm_lib.pretrained import load_checkpoint
from mlm_lib.training_data import HELD_OUT_SEED
from mlm_lib.writing import write

WORLDS, LONGEST = ["films"], 32
GENRES = {"comedy", "thriller", "western", "adventure", "romance"}
RULES = [
    {"rule": "random"},
    {"rule": "confident"},
    {"rule": "random", "temperature": 0.5},
    {"rule": "confident", "temperature": 0.7},
    {"rule": "confident", "temperature": 0.5},
    {"rule": "keep_confident"},
    {"rule": "keep_confident", "temperature": 0.7},
    {"rule": "greedy"},
    {"rule": "threshold"},
    *({"steps": steps, "schedule": name} for steps in (16, 8, 4) for name in ("equal", "cosine")),
]


def judged(grammar, documents):
    """The share of documents that are possible. Then the nats per possible text: the mean of minus
    the log-probability that the grammar gives to a text among all texts of its length, with its
    standard error."""
    nats = [grammar.log_prob_of_length(len(one)) - grammar.log_prob(one) for one in documents]
    finite = [value for value in nats if value < math.inf]
    mean = sum(finite) / max(1, len(finite))
    spread = sum((value - mean) ** 2 for value in finite) / max(1, len(finite) - 1)
    return len(finite) / len(nats), mean, (spread / max(1, len(finite))) ** 0.5


@torch.no_grad()
def second_genre(model, tokenizer):
    """The mean probability that the model gives to a genre which the text has named before."""
    found = []
    for words in Grammar.load(worlds=WORLDS).sample(4000, seed=9):
        told = [at for at, word in enumerate(words, 1) if word in GENRES]
        if len(told) == 2 and len(words) <= LONGEST:
            ids = torch.tensor([tokenizer.encode(" ".join(words))])
            answer, ids[0, told[1]] = ids[0, told[1]].item(), tokenizer.mask_token_id
            found.append(model(ids)["logits"][0, told[1]].softmax(-1)[answer].item())
    return sum(found) / len(found)


def main(name="course-writer", number="200"):
    model, tokenizer = load_checkpoint(name)
    grammar = Grammar.load(worlds=WORLDS)
    drawn = grammar.sample(20 * int(number), seed=HELD_OUT_SEED)
    documents = [words for words in drawn if len(words) <= LONGEST][: int(number)]
    rows = [tokenizer.encode(" ".join(words)) for words in documents]
    bound, floor = (
        nelbo(model, tokenizer, rows, samples=8),
        grammar.floor(documents, objective="any_order"),
    )
    words = bound.count / len(rows)
    print(f"bound {bound.nats * words:.2f} ± {bound.standard_error * words:.2f} nats a document")
    print(f"floor {floor.nats * words:.2f} ± {floor.standard_error * words:.2f}")
    print(f"a genre named a second time has a probability of {second_genre(model, tokenizer):.2f}")
    lengths = [len(words) for words in documents]
    told = [("the grammar's own", documents)]
    for options in RULES:
        written = write(model, tokenizer, lengths, **options)
        texts = [tokenizer.convert_ids_to_tokens(row) for row in written]
        told.append((" ".join(map(str, options.values())), texts))
    for label, texts in told:
        share, mean, error = judged(grammar, texts)
        different = len({word for text in texts for word in text})
        whole = len(set(map(tuple, texts)))
        print(
            f"{label:18} possible texts {share:6.1%}  nats per possible text {mean:5.2f} ± "
            f"{error:.2f}  different words {different:4}  different texts {whole:4}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
