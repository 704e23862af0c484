"""What a model loses above the ideal reader, word by word, and what decides each word. Lesson 08.

The floor of a grammar is a mean. Behind it stands the ideal reader's own surprise at each hidden
word. Subtracted from the model's surprise at the same word, it leaves what the model has not
learned; sorted by what decides a word, or by how often its sentence was met, it shows where.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from mlm_lib import DATA
from mlm_lib.engine.grammar_file import read_worlds
from mlm_lib.engine.modes import modes_kept
from mlm_lib.labels import IGNORE


class Surprise(NamedTuple):
    """One hidden word.

    word: the word that was hidden.
    sentence: the list of words of its sentence, itself among them.
    model, ideal: -log P(word | what was seen), in nats, of the model and of the ideal reader.
    """

    word: str
    sentence: list
    model: float
    ideal: float


@torch.no_grad()
def surprises(model, evaluation, grammar, tokens):
    """What each hidden word of a held-out set costs a model, and what it costs the ideal reader.

    Args:
        model: a `MaskedLanguageModel`.
        evaluation: a `HeldOut` whose collator hides what it selects, every time.
        grammar: the `Grammar` that the documents are from, each of its words one token.
        tokens: id -> token, as of `WordPieceTokenizer`.

    Returns:
        A list of `evaluation.count` `Surprise`.

    Raises:
        ValueError: documents that the grammar cannot say.
    """
    device, found = next(model.parameters()).device, []
    with modes_kept(model):
        model.eval()
        for batch in evaluation.batches:
            labels = batch["labels"]  # (B, T)
            answers = labels[labels != IGNORE]  # (N,), in the order of the model's logits
            batch = {name: rows.to(device) for name, rows in batch.items()}
            logits = model(**batch)["logits"].float().cpu()  # (N, V)
            ours = iter(F.cross_entropy(logits, answers, reduction="none").tolist())
            documents, observed = answers_back(batch, tokens)
            ideals = grammar.surprise(documents, observed)
            for words, seen, ideal in zip(documents, observed, ideals):
                sentences = [sentence for sentence in split_sentences(words) for _ in sentence]
                for place in (~seen).nonzero().flatten().tolist():
                    pair = next(ours), ideal[place].item()
                    found.append(Surprise(words[place], sentences[place], *pair))
    return found


def answers_back(batch, tokens):
    """The documents of a masked batch with the hidden words put back.

    Args:
        batch: `input_ids`, `attention_mask` and `labels`, each (B, T), of whole documents, which
            begin with `[CLS]` and end with `[SEP]`; padding stands on the right.
        tokens: id -> token.

    Returns:
        (documents, observed): B lists of words, and for each (its words,) bool, False where a word
        was hidden.
    """
    hidden = (batch["labels"] != IGNORE).cpu()
    ids = torch.where(hidden, batch["labels"].cpu(), batch["input_ids"].cpu())
    documents, observed = [], []
    for row, asked, real in zip(ids, hidden, batch["attention_mask"]):
        words = slice(1, int(real.sum()) - 1)  # without [CLS], [SEP] and padding
        documents.append([tokens[index] for index in row[words].tolist()])
        observed.append(~asked[words])
    return documents, observed


def split_sentences(words):
    """A document's sentences, each with the full stop that ends it.

    >>> split_sentences("it was fine . really fine .".split())
    [['it', 'was', 'fine', '.'], ['really', 'fine', '.']]
    """
    sentences = [[]]
    for word in words:
        sentences[-1].append(word)
        if word == ".":
            sentences.append([])
    return [sentence for sentence in sentences if sentence]


def pattern(sentence, kinds):
    """A sentence with a blank for each word that fills a slot: what its author wrote down.

    >>> pattern("it was fine .".split(), {"fine": "mood", "dull": "mood"})
    'it was _ .'
    """
    return " ".join("_" if word in kinds else word for word in sentence)


def word_kinds(world, path=None):
    """What decides the words that fill the slots of a world's sentences.

    Args:
        world: the name of a world.
        path: a grammar file; None is the course's own, `data/grammar.toml`.

    Returns:
        {word: kind}. The kind is the latent whose value or fact the word is, or on which its list
        hangs; "drawn freely" if its list hangs on none. A word that fills several slots counts for
        the first of them, one drawn freely after the others. What no slot holds is not there: such
        words are fixed by their sentence.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a world that the file lacks; a malformed file, with what is wrong in it.
    """
    (found,) = read_worlds(DATA / "grammar.toml" if path is None else path, world)
    return found.kinds
