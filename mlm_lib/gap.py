"""The gap between a model's loss and the lowest possible loss, word by word. Built in lesson 09.

The floor of a grammar is a mean over many words: the mean loss of the Bayes-optimal predictor, the
best possible one, which the lessons call the ideal reader. For each hidden word, `surprises` gives
the loss of the model and the loss of the ideal reader. The difference between these two losses, the
excess loss, is what the model has not learned. A *latent* of the grammar is a hidden value, such as
a mood or a country, that is drawn once for each document. To see where the excess loss is large,
group the words by the latent on which they depend (`word_kinds`), or by how often their sentence
was in the training text (`pattern`).
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
        ideal: −log P(word | the visible words) by the ideal reader, in nats.
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
        Two lists, `documents` and `observed`. `documents` has B lists of words. `observed` has B
        bool tensors with an entry for each word, which is False if the word was hidden.
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
    """In a sentence, replace each word that fills a slot by `_`, and join the words.

    Sentences that differ only in the words of their slots have the same pattern.

    >>> pattern("it was fine .".split(), {"fine": "mood", "dull": "mood"})
    'it was _ .'

    Args:
        sentence: a list of words.
        kinds: a dictionary whose keys are the words that fill slots, as `word_kinds` returns it.
    """
    return " ".join("_" if word in kinds else word for word in sentence)


def word_kinds(world, path=None):
    """Find the latents on which the words in the slots of a world's sentences depend.

    Args:
        world: the name of a world, such as "films".
        path: a grammar file. None: the grammar of the course, `data/grammar.toml`.

    Returns:
        {word: kind}. The kind is the name of the latent on which the word depends: the word is the
        value of this latent, or a fact about this value, or is drawn from a list that depends on
        this latent. The kind is "drawn freely" if the word is drawn from a list that depends on no
        latent. If a word fills several slots, its kind is that of the first slot that depends on a
        latent; if no slot does, it is "drawn freely". Words that fill no slot are missing, because
        the sentence determines them.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file has no such world, or has a mistake. The message says what is wrong.
    """
    (found,) = read_worlds(DATA / "grammar.toml" if path is None else path, world)
    return found.kinds
