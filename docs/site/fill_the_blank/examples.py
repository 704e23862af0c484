"""What the page offers to begin with, and the exact answers for what the grammar can say.

An exact answer belongs to a whole document of the grammar, whose length the reader knows.
"""

from mlm_lib.grammar import Grammar

MASK = "[MASK]"
LEAST = 1e-6  # rarer words are left out
# A name for each, and the text; what stands between stars is hidden.
EXAMPLES = [
    (
        "a thriller",
        "i almost fell asleep during this thriller . in short , this thriller was *dull* .",
    ),
    (
        "a thriller, three blanks",
        "i almost fell asleep during this *thriller* . in *short* , this *thriller* was dull .",
    ),
    (
        "a good movie",
        "what a great *movie* this was . the music was wonderful , and the costumes were great "
        "too . if you like a good comedy , do not miss this one .",
    ),
    (
        "a sum",
        "at school she has to add two and three . molly writes the number *five* in big letters .",
    ),
    (
        "a sum, backwards",
        "at school she has to add two and *three* . molly writes the number five in big letters .",
    ),
    (
        "a journey",
        "last summer my friend flew to *kenya* . would you like to travel to kenya with john ?",
    ),
    (
        "a capital",
        "my friend once lived in warsaw for two years . the capital of *poland* is warsaw . in the "
        "end paul said goodbye to polish friends and flew home .",
    ),
    (
        "a president",
        "today we looked at a portrait of ulysses grant . grant became president after the "
        "november *1868* presidential election .",
    ),
    (
        "an animal",
        "last week he saw a mammal in the savanna . people everywhere tell stories about the "
        "*elephant* .",
    ),
    (
        "rain",
        "heavy rain was falling when my neighbour woke up at five . that evening *she* stayed at "
        "home because of the rain .",
    ),
    ("a review, no document of the grammar", "i have watched this *film* and it was awesome ."),
    ("another review", "the acting was brilliant but the *plot* was far too long ."),
    ("documentation", "the function returns a *list* of strings ."),
]


def read(marked):
    """The words of a marked text, and the places of those between stars.

    >>> read("it was *dull* .")
    (['it', 'was', 'dull', '.'], [2])
    """
    words = marked.split()
    hidden = [place for place, word in enumerate(words) if word.startswith("*")]
    return [word.strip("*") for word in words], hidden


def hide(words, places):
    """The words with blanks at some places."""
    return [MASK if place in places else word for place, word in enumerate(words)]


def exact(grammar, words, hidden):
    """The grammar's answers for a document as it stands and with any one word hidden.

    Args:
        grammar: a `Grammar`.
        words: the document.
        hidden: the places of its own blanks.

    Returns:
        {text with blanks: [for each blank {word: probability}]}; None if the grammar cannot say it.
    """
    if any(word not in grammar.vocabulary for word in words) or not _possible(grammar, words):
        return None
    variants = [hidden, *([place] for place in range(len(words)) if [place] != hidden)]
    seen = [[place not in places for place in range(len(words))] for places in variants]
    found = grammar.posteriors_of([words] * len(variants), seen)
    return {
        " ".join(hide(words, places)): [_likely(grammar, chances[place]) for place in places]
        for places, chances in zip(variants, found)
    }


def _possible(grammar, words):
    return grammar.log_prob(words) > -float("inf")


def _likely(grammar, chances):
    """{word: probability} of a row (V,), likeliest first."""
    pairs = zip(grammar.vocabulary, chances.tolist())
    pairs = sorted((pair for pair in pairs if pair[1] >= LEAST), key=lambda pair: -pair[1])
    return {word: float(f"{chance:.6g}") for word, chance in pairs}


def examples(tokenizer):
    """The list that the page reads: label, words, hidden places and exact answers or None.

    Raises:
        ValueError: a word of an example that is not one token, so that places would shift.
    """
    grammar, out = Grammar.load(), []
    for label, marked in EXAMPLES:
        words, hidden = read(marked)
        tokens = tokenizer.tokenize(" ".join(words))
        if tokens != words:
            raise ValueError(f"the example {marked!r} is read as {tokens}; use words of one token")
        known = exact(grammar, words, hidden)
        out.append({"label": label, "words": words, "hidden": hidden, "exact": known})
    return out
