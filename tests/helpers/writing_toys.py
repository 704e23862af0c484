"""Small grammars with their ideal readers, and how far counts are from what was expected."""

from collections import Counter
from pathlib import Path

from toys import tokenizer_of

from mlm_lib.grammar import Grammar
from mlm_lib.writing import IdealReader

GRAMMARS = Path(__file__).parents[1] / "grammars"


class World:
    """A grammar, a tokenizer of its words, and its ideal reader."""

    def __init__(self, path, **options):
        self.grammar = Grammar.load(path)
        self.tokenizer = tokenizer_of(*self.grammar.vocabulary)
        self.reader = IdealReader(self.grammar, self.tokenizer, **options)

    def encode(self, words):
        return [self.tokenizer.vocab[word] for word in words]

    def decode(self, row):
        return tuple(self.tokenizer.tokens[index] for index in row)


def too_far(found, chances, least=5.0):
    """How far counts are from chances: (χ² − its mean) / its standard deviation.

    found: a list of outcomes. chances: {outcome: probability}, which sum to 1. Outcomes expected
    less than `least` times are counted together.
    """
    counts, total = Counter(found), len(found)
    assert abs(sum(chances.values()) - 1) < 1e-9
    if not counts.keys() <= {outcome for outcome, chance in chances.items() if chance}:
        return float("inf")  # what is impossible came
    cells, rare = [], [0.0, 0.0]
    for outcome, chance in chances.items():
        if chance * total >= least:
            cells.append((counts[outcome], chance * total))
        else:
            rare[0], rare[1] = rare[0] + counts[outcome], rare[1] + chance * total
    if rare[1]:
        cells.append(rare)
    freedom = len(cells) - 1
    statistic = sum((seen - due) ** 2 / due for seen, due in cells)
    return (statistic - freedom) / (2 * freedom) ** 0.5
