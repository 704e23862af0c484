"""Measures the reference scores of the project for ten seeds:
`python tools/project_scores.py [NAME ...]`.

Each score is written into `classroom/project_scores.csv` as soon as it is measured. Scores that the
file already holds are not measured again. At the end the numbers in `docs/project.md` are renewed.
"""

import sys
import tempfile
import time
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path

import torch

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("", "tests/helpers")]
import project_notebooks

from classroom.project import (
    DOCUMENTS,
    NAME,
    REFERENCES,
    SECONDS,
    Questions,
    Timed,
    append,
    check,
    line,
    read_board,
)  # fmt: skip
from docs.site.project_page import (
    CAREFUL,
    FREQUENCIES,
    LESSON,
    NEIGHBOURS,
    NOTHING,
    PAGE,
    SHORT,
    fill,
    measured,
)  # fmt: skip
from mlm_lib.encoder import EncoderConfig
from mlm_lib.engine.files import write
from mlm_lib.grammar import Grammar
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.masking import MaskingCollator
from mlm_lib.training import TrainingConfig
from mlm_lib.training import train as run
from mlm_lib.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

DOUBT = 0.5  # the weight of the table for less context, in occurrences


def shares(counts, rest):
    """Counts, mixed with the probabilities of the table for less context. Both have shape (V,)."""
    return (counts + DOUBT * rest) / (counts.sum() + DOUBT)


def nothing(documents, vocabulary, seed):
    """Every word has the same probability."""
    even = torch.full((len(vocabulary),), 1 / len(vocabulary)).log()
    return lambda rows, asked: [even.expand(len(places), -1) for places in asked]


def frequencies(documents, vocabulary, seed):
    """The frequency of each word."""
    counts = Counter(word for words in documents for word in words)
    found = torch.tensor([counts[word] + DOUBT for word in vocabulary])
    found = (found / found.sum()).log()
    return lambda rows, asked: [found.expand(len(places), -1) for places in asked]


def neighbours(documents, vocabulary, seed):
    """Counts of the words between two words, after a word, before a word, and anywhere."""
    number = {word: n for n, word in enumerate(vocabulary)}
    tables = defaultdict(Counter)

    def contexts(words, t):
        left = words[t - 1] if t else "the start"
        right = words[t + 1] if t + 1 < len(words) else "the end"
        return (left, right), (left, None), (None, right), (None, None)

    for words in documents:
        for t, word in enumerate(words):
            for context in contexts(words, t):
                tables[context][number[word]] += 1

    def counted(context):
        counts, found = torch.zeros(len(vocabulary)), tables.get(context, {})
        counts[list(found)] = torch.tensor([float(n) for n in found.values()])
        return counts

    everywhere = shares(counted((None, None)), torch.full((len(vocabulary),), 1 / len(vocabulary)))

    def predict(rows, asked):
        answers = []
        for words, places in zip(rows, asked):
            # A neighbour that is hidden as well is a word that the tables have never counted.
            seen = [None if t in places else word for t, word in enumerate(words)]
            found = []
            for t in places:
                both, left, right, _ = contexts(seen, t)
                near = (shares(counted(left), everywhere) + shares(counted(right), everywhere)) / 2
                found.append(shares(counted(both), near).log())
            answers.append(torch.stack(found))
        return answers

    return predict


def lesson_09(documents, vocabulary, seed):
    """The model and the settings of lesson 09, its thousand steps."""
    torch.manual_seed(seed)
    tokens = [*SPECIAL_TOKENS, *vocabulary]
    tokenizer = WordPieceTokenizer({token: index for index, token in enumerate(tokens)})
    collator = MaskingCollator(tokenizer, mask_share=1.0, random_share=0.0, seed=seed)
    shape = EncoderConfig(
        vocab_size=len(tokenizer), hidden_size=128, num_layers=2, num_heads=2,
        intermediate_size=512, max_length=128, dropout=0.0, initializer_range=0.05,
    )  # fmt: skip
    config = TrainingConfig(
        steps=1000, batch_size=32, learning_rate=2e-3, warmup=0.1, seed=seed, schedule="linear",
        group_by_length=True, precision="fp32", device="cpu", progress=False,
    )  # fmt: skip
    encode, model = tokenizer.to_hf(), MaskedLanguageModel.from_config(shape)
    run(model, encode([" ".join(words) for words in documents])["input_ids"], collator, config)
    model.eval()

    @torch.no_grad()
    def predict(rows, asked):
        answers = []
        for words, places in zip(rows, asked):
            ids = torch.tensor(encode([" ".join(words)])["input_ids"])
            places = torch.tensor(places) + 1  # behind [CLS]
            ids[0, places] = tokenizer.mask_token_id
            logits = model(ids, attention_mask=torch.ones_like(ids))["logits"][0, places]
            answers.append(logits[:, len(SPECIAL_TOKENS) :].log_softmax(-1))
        return answers

    return predict


def score(reference, seed):
    """The score of a reference on the documents that a check with this seed draws."""
    grammar = Grammar.load()
    documents, since = grammar.sample(DOCUMENTS, seed=2 * seed), time.process_time()
    predict = reference(documents, grammar.vocabulary, seed)
    used = time.process_time() - since
    questions = Questions.draw(grammar, seed)
    return line(questions.above(predict(questions.documents, questions.asked)), used, seed)


def careful(seed, seconds=SECONDS):
    """The score of the reference notebook, which is checked like any other notebook."""
    cell = project_notebooks.own_cells()["16"]
    other = cell.replace("SEED = 0", f"SEED = {seed}")
    with tempfile.TemporaryDirectory() as folder:
        path = project_notebooks.save(Path(folder) / "x.ipynb", {"16": other})
        return check(path, seed, seconds)


REFERENCE = {
    NOTHING: partial(score, nothing),
    FREQUENCIES: partial(score, frequencies),
    NEIGHBOURS: partial(score, neighbours),
    LESSON: partial(score, lesson_09),
    CAREFUL: careful,
    SHORT: partial(careful, seconds=100),
}


if __name__ == "__main__":
    torch.set_num_threads(1)
    Timed.patience = 20  # it may run beside other programs
    done = {(row[NAME], row["seed"]) for row in read_board(REFERENCES)}
    for seed in range(10):
        for name in sys.argv[1:] or REFERENCE:
            if (name, str(seed)) not in done:
                row = {NAME: name} | REFERENCE[name](seed)
                append(REFERENCES, row)
                print(*row.values(), flush=True)
    write(PAGE, fill(PAGE.read_text("utf-8"), measured()))
