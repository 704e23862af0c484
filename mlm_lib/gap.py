"""The gap between a model's loss and the lowest possible loss, word by word. Built in lesson 09.

The floor of a grammar is a mean over many words: the mean loss of the best possible predictor (the
Bayes-optimal one, which the lessons call the ideal reader). For each hidden word, `surprises` gives
the loss of the model and the loss of the ideal reader. Their difference, the excess loss, is what
the model has not learned. To see where it is large, group the words by what decides them
(`word_kinds`), or by how often their sentence was in the training text (`pattern`).
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from mlm_lib import DATA
from mlm_lib.engine.grammar_file import read_worlds
from mlm_lib.engine.modes import modes_kept
from mlm_lib.labels import IGNORE


class Surprise(NamedTuple):
    """The losses of a model and of the ideal reader at one hidden word.

    Args:
        word: the word that was hidden.
        sentence: the list of the words of its sentence, with the hidden word.
        model: −log P(word | the visible words) by the model, in nats.
        ideal: the same by the ideal reader.
    """

    word: str
    sentence: list
    model: float
    ideal: float


@torch.no_grad()
def surprises(model, evaluation, grammar, tokens):
    """Compute the loss of a model and of the ideal reader at each hidden word of a held-out set.

    Args:
        model: a `MaskedLanguageModel`.
        evaluation: a `training.HeldOut` whose collator replaces every chosen token by `[MASK]`
            (mask_share=1.0, random_share=0.0).
        grammar: the `Grammar` from which the documents were drawn. Each of its words must be one
            token.
        tokens: {id: token}, such as the attribute `tokens` of a `WordPieceTokenizer`.

    Returns:
        A list of `Surprise`, one for each of the `evaluation.count` hidden words.

    Raises:
        ValueError: the grammar cannot produce one of the documents.
    """
    device, found = next(model.parameters()).device, []
    with modes_kept(model):
        model.eval()
        for batch in evaluation.batches:
            labels = batch["labels"]  # (B, T)
            targets = labels[labels != IGNORE]  # (N,), in the order of the model's logits
            batch = {name: rows.to(device) for name, rows in batch.items()}
            logits = model(**batch)["logits"].float().cpu()  # (N, V)
            ours = iter(F.cross_entropy(logits, targets, reduction="none").tolist())
            documents, observed = answers_back(batch, tokens)
            ideals = grammar.surprise(documents, observed)
            for words, seen, ideal in zip(documents, observed, ideals):
                sentences = [sentence for sentence in split_sentences(words) for _ in sentence]
                for place in (~seen).nonzero().flatten().tolist():
                    pair = next(ours), ideal[place].item()
                    found.append(Surprise(words[place], sentences[place], *pair))
    return found


def answers_back(batch, tokens):
    """Restore the documents of a masked batch, and say which of their words were hidden.

    Args:
        batch: a dictionary of `input_ids`, `attention_mask` and `labels`, each (B, T). Each row is
            a whole document, which begins with `[CLS]`, ends with `[SEP]` and is padded on the
            right.
        tokens: {id: token}.

    Returns:
        documents, a list of B lists of words, and observed, a list of B bool tensors with an entry
        for each word, False where the word was hidden.
    """
    hidden = (batch["labels"] != IGNORE).cpu()
    ids = torch.where(hidden, batch["labels"].cpu(), batch["input_ids"].cpu())
    documents, observed = [], []
    for row, hidden_there, real in zip(ids, hidden, batch["attention_mask"]):
        words = slice(1, int(real.sum()) - 1)  # without [CLS], [SEP] and padding
        documents.append([tokens[index] for index in row[words].tolist()])
        observed.append(~hidden_there[words])
    return documents, observed


def split_sentences(words):
    """Split the words of a document into sentences, each with its full stop.

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
    """Replace each word of a sentence that fills a slot by a blank, and join the words.

    The result is the sentence as the grammar file has it, so that sentences which differ only in
    the words of their slots have the same pattern.

    >>> pattern("it was fine .".split(), {"fine": "mood", "dull": "mood"})
    'it was _ .'

    Args:
        sentence: a list of words.
        kinds: a dictionary whose keys are the words that fill slots, as `word_kinds` returns it.
    """
    return " ".join("_" if word in kinds else word for word in sentence)


def word_kinds(world, path=None):
    """Find what decides the words that fill the slots of a world's sentences.

    Args:
        world: the name of a world, such as "films".
        path: a grammar file. None: the grammar of the course, `data/grammar.toml`.

    Returns:
        {word: kind}. The kind is the name of the latent that decides the word: the word is the
        value of this latent, or a fact about its value, or is drawn from a list that depends on it.
        The kind is "drawn freely" if the word is drawn from a list that depends on no latent. For a
        word that fills several slots the first of them counts, and slots that are drawn freely
        count last. Words that fill no slot are missing, because their sentence determines them.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file has no such world, or is malformed; the message says what is wrong.
    """
    (found,) = read_worlds(DATA / "grammar.toml" if path is None else path, world)
    return found.kinds
