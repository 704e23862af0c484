"""The diagrams of the lessons, drawn from boxes and arrows: the way from a text to the loss with
the parts of a lesson highlighted, the parts of a model, and what happens to the numbers of a lesson
in masking, in the loss, in the head, in attention and in forward–backward.

Letters have at least 9 points, and most diagrams are not wider than a page of print, so that they
can be read on paper and on a phone.
"""

import itertools
import math
from fractions import Fraction

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from mlm_lib.checks import choice, ids, refused, same_shape, whole_number
from mlm_lib.labels import IGNORE
from mlm_lib.plots import ALERT, CHANCE, OURS, SKY, axes, ink, show, square, tell

# The parts between a text and the loss: name, the text in the box, and the middle of the box (x,
# y).
PARTS = {
    "text": ("text", (0.0, 1.0)),
    "ids": ("token ids\n(B, T)", (1.5, 1.0)),
    "masking": ("masked ids\n(B, T)", (3.0, 1.0)),
    "labels": ("labels\n(B, T)", (3.0, 0.0)),
    "encoder": ("encoder\n(B, T, H)", (4.5, 1.0)),
    "head": ("head\n(N, V)", (6.0, 1.0)),
    "loss": ("loss", (7.5, 1.0)),
}
WIDTH, HEIGHT = 1.1, 0.62  # of a box


def pipeline(*lit):
    """Show all steps from a text to the loss, with the parts that a lesson is about highlighted.
    Each lesson begins with this diagram.

    Args:
        lit: names of parts: "text", "ids", "masking", "labels", "encoder", "head", "loss".

    Raises:
        ValueError: the diagram has no part of this name.
    """
    lit = [choice("lit", part, PARTS) for part in lit]
    ax = blank(9.0, 2.0)
    for name, (text, middle) in PARTS.items():
        box(ax, middle, text, lit=name in lit)
    for left in (0.0, 1.5, 3.0, 4.5, 6.0):
        path(ax, (left + WIDTH / 2, 1.0), (left + 1.5 - WIDTH / 2, 1.0))
    below = 1.0 - HEIGHT / 2
    path(ax, (1.5, below), (1.5, 0.0), (3.0 - WIDTH / 2, 0.0))  # from the token ids to the labels
    path(ax, (3.0 + WIDTH / 2, 0.0), (7.5, 0.0), (7.5, below))  # from the labels to the loss
    ax.set(xlim=(-0.7, 8.2), ylim=(-0.5, 1.5))
    way = "text, token ids, masked ids, encoder, head, loss; from the ids, labels lead to the loss"
    show(tell(ax, f"The way {way}. Lit in this lesson: {', '.join(lit)}."))


def encoder_block():
    """Show one block of the encoder: attention and feed-forward. The output of each is added to its
    input, and the sum is normalised."""
    ax = blank(10.0, 2.9)
    box(ax, (0.0, 0.0), "vectors\n(B, T, H)")
    box(ax, (2.0, 0.0), "attention\neach asks all", lit=True, width=1.5)
    box(ax, (3.9, 0.0), "add\n& norm")
    box(ax, (5.9, 0.0), "feed-forward\nH → 4H → H", lit=True, width=1.5)
    box(ax, (7.8, 0.0), "add\n& norm")
    box(ax, (9.6, 0.0), "vectors\n(B, T, H)")
    box(ax, (2.0, -1.15), "mask\n(B, T)")
    for left, right in ((0.55, 1.25), (2.75, 3.35), (4.45, 5.15), (6.65, 7.25), (8.35, 9.05)):
        path(ax, (left, 0.0), (right, 0.0))
    path(ax, (2.0, -0.84), (2.0, -HEIGHT / 2))
    for start, end in ((0.8, 3.9), (4.7, 7.8)):  # the residual connections
        path(ax, (start, 0.0), (start, 0.85), (end, 0.85), (end, HEIGHT / 2))
        caption(ax, ((start + end) / 2, 0.95), "unchanged", ha="center", va="bottom")
    caption(ax, (2.7, -1.15), "weights (B, A, T, T),\nzero where the mask is 0")
    caption(ax, (5.15, -0.62), "each token alone")
    ax.set(xlim=(-0.65, 10.25), ylim=(-1.55, 1.35))
    attention = "attention, in which each token asks all, with a mask (B, T)"
    feed_forward = "feed-forward, H to 4H to H, each token alone"
    tell(ax, f"One block: vectors (B, T, H) go through {attention}, then through {feed_forward}.")
    branch = "goes around each of the two unchanged and is added, and the sum is normalised"
    show(tell(ax, f"What came in {branch}. Vectors (B, T, H) leave."))


def masked_language_model():
    """Show the parts of a `MaskedLanguageModel`, and what it returns for each kind of arguments."""
    ax = blank(10.5, 3.2)
    box(ax, (0.0, 0.0), "input_ids\n(B, T)")
    box(ax, (1.65, 0.0), "embedder\n(B, T, E)", lit=True)
    box(ax, (3.4, 0.0), "contextualizer\n(B, T, H)", lit=True, width=1.3)
    box(ax, (7.85, 0.0), "head", lit=True, width=0.8, height=3.1)
    caption(ax, (3.4, -0.45), "if there is one", ha="center", va="top")
    path(ax, (0.55, 0.0), (1.1, 0.0))
    path(ax, (2.2, 0.0), (2.75, 0.0))
    likeliest = "probabilities (B, M, k)\ntop_indices (B, M, k)\nblanks (B, M)"
    ways = {
        1.1: ("nothing asked:\nall B·T positions", "logits (B, T, V)"),
        0.0: ("labels (B, T):\nN labelled ones", "logits (N, V)\nloss"),
        -1.1: ("mask_positions\n(B, M)", f"logits (B, M, V)\n{likeliest}\nwith target_ids: loss"),
    }
    for y, (question, answer) in ways.items():
        box(ax, (6.0, y), question, width=1.7)
        box(ax, (9.75, y), answer, width=1.9, height=1.05)
        path(ax, (4.05, 0.0), (4.6, 0.0), (4.6, y), (5.15, y))
        path(ax, (6.85, y), (7.45, y))
        path(ax, (8.25, y), (8.8, y))
    ax.set(xlim=(-0.65, 10.8), ylim=(-1.65, 1.65))
    flat = {" ".join(q.split()): ", ".join(a.split("\n")) for q, a in ways.values()}
    told = "; ".join(f"{question} gives {answer}" for question, answer in flat.items())
    way = "input_ids, embedder, perhaps a contextualizer, the asked vectors, head"
    show(tell(ax, f"A masked language model: {way}. {told}."))


# --------------------------------------------------------- diagrams of the numbers of a lesson

# What masking does to a token, and its colour.
FATES = {"no label": "#EDEDED", "[MASK]": OURS, "random": ALERT, "kept": SKY}
LINES = FATES | {
    "no label": "#C8C8C8",
    "kept": CHANCE,
}  # of frames and arrows, which must be darker


def masking(tokens, masked_tokens, labels, *, mask_token="[MASK]"):
    """Show what masking did to one row of tokens: which tokens were chosen, what the model reads in
    their place, and the labels.

    Args:
        tokens: the T tokens before masking, a list of texts.
        masked_tokens: the T tokens after masking.
        labels: (T,) the original id of each chosen token, and −100 at all other positions.
        mask_token: how the tokenizer writes `[MASK]`.

    Raises:
        ValueError: there are not as many masked tokens or labels as tokens, there are more than 40
            tokens, or a token was changed that has no label.
    """
    labels = torch.as_tensor(labels)
    ids("labels", labels, "(T,)")
    length = whole_number("the number of tokens", len(tokens), 1, 40)
    for name, value in (("masked_tokens", masked_tokens), ("labels", labels)):
        if len(value) != length:
            raise ValueError(f"{name} has {len(value)} entries; {length} are needed, as in tokens")
    fates = []
    for place, (token, masked) in enumerate(zip(tokens, masked_tokens)):
        if labels[place] == IGNORE:
            fates.append("no label")
            if masked != token:
                change = f"at position {place} {token!r} became {masked!r}"
                raise ValueError(f"{change}, but its label is −100; give the labels of this row")
        elif masked == mask_token:
            fates.append("[MASK]")
        else:
            fates.append("kept" if masked == token else "random")

    width = max(0.66, *(text_width(text, 10) + 0.2 for text in [*tokens, *masked_tokens]))
    per_row = math.ceil(length / math.ceil(length / max(1, int(5.6 / width))))
    rows, step = math.ceil(length / per_row), 1.7
    ax = blank(1.0 + per_row * width, rows * step)
    for place, fate in enumerate(fates):
        row, column = divmod(place, per_row)
        x, y = 0.95 + (column + 0.5) * width, -row * step
        chosen, color, line = fate != "no label", FATES[fate], LINES[fate]
        size = {"width": width - 0.07, "height": 0.34, "fontsize": 10}
        box(ax, (x, y), tokens[place], edge=line, **size)
        box(ax, (x, y - 0.77), masked_tokens[place], lit=True, color=color, **size)
        if chosen:
            path(ax, (x, y - 0.17), (x, y - 0.6), color=line)
            if fate != "[MASK]":
                write_at(ax, (x + 0.07, y - 0.35), fate)
            write_at(ax, (x, y - 1.17), str(labels[place].item()), ha="center", fontweight="bold")
        else:
            caption(ax, (x, y - 1.17), "−100", ha="center")
    for row in range(rows):
        for below, name in ((0, "tokens"), (0.77, "the model\nreads"), (1.17, "labels")):
            caption(ax, (0.85, -row * step - below), name, ha="right")
    bottom = 0.18 - rows * step
    caption(ax, (0.95, bottom), "label: the id of the token that was chosen;")
    caption(ax, (0.95, bottom - 0.2), "−100: not chosen, does not count in the loss")
    crop(ax, max(1.0 + per_row * width, 4.1), bottom - 0.35, 0.25)

    changes = []
    for place, fate in enumerate(fates):
        if fate != "no label":
            became = "is kept" if fate == "kept" else f"becomes {masked_tokens[place]}"
            changes.append(f"{tokens[place]} at position {place} {became}")
    counts = ", ".join(f"{fates.count(fate)} {fate}" for fate in list(FATES)[1:])
    tell(ax, f"The tokens {' '.join(tokens)}. Chosen: {len(changes)} of {length} ({counts}).")
    if changes:
        tell(ax, f"{', '.join(changes)}.")
    tell(ax, "The label of a chosen token is its original id.")
    show(
        tell(
            ax, f"Positions that were not chosen and have the label −100: {length - len(changes)}."
        )
    )


def masked_loss(labels, losses, tokens=None):
    """Show over which positions of a batch the loss is a mean: only those with a label count.
    Positions whose label is −100 are ignored.

    Args:
        labels: (B, T), −100 at the positions that are ignored.
        losses: (B, T) the loss at each position. It is shown only at positions with a label.
        tokens: the texts of the tokens, a list of T texts for each of the B rows. None: no texts
            are shown.

    Raises:
        ValueError: the shapes differ, or there are more than 6 rows or 12 columns.
    """
    ids("labels", labels)
    same_shape("losses", losses, "labels", labels)
    rows, length = labels.shape
    whole_number("the number of rows of labels", rows, 1, 6)
    whole_number("the number of columns of labels", length, 1, 12)
    if tokens is not None and [len(row) for row in tokens] != [length] * rows:
        raise refused("tokens", tokens, f"a list of {length} texts for each of {rows} rows")
    has_label = labels != IGNORE
    names = ["label", "loss"] if tokens is None else ["token", "label", "loss"]
    least = 0.5 if tokens is None else 0.58  # so that [MASK] is not cut
    width, line = max(least, min(0.8, 5.7 / length)), 0.21
    step = line * len(names) + 0.2
    ax = blank(6.4, rows * step)
    for row in range(rows):
        heights = [-row * step - line * i for i in range(len(names))]
        for name, y in zip(names, heights):
            caption(ax, (0.62, y), name, ha="right")
        for column in range(length):
            left, lit = 0.7 + column * width, has_label[row, column].item()
            color = FATES["[MASK]" if lit else "no label"]
            square(ax, left + 0.02, heights[-1] - 0.14, width - 0.04, step - 0.08, color)
            texts = ["−100", ""]
            if lit:
                texts = [str(labels[row, column].item()), f"{losses[row, column].item():.2f}"]
            if tokens is not None:
                texts.insert(0, shortened(tokens[row][column], width - 0.08, 9))
            look = {"ha": "center", "color": "white" if lit else "#595959"}
            for text, y in zip(texts, heights):
                weight = "bold" if lit and y == heights[-1] else "normal"
                write_at(ax, (left + width / 2, y), text, fontweight=weight, **look)

    counted = losses[has_label].tolist()
    shown = [f"{loss:.2f}" for loss in counted]
    shown = shown if len(shown) <= 6 else [*shown[:4], "…", shown[-1]]
    found = "There is no label, so there is nothing to average"
    if counted:
        found = f"loss = ({' + '.join(shown)}) / {len(counted)} = {np.mean(counted):.2f}"
    ignored = f"positions with −100 ({labels.numel() - len(counted)}) are left out"
    how = f"the mean over the positions with a label ({len(counted)}); the {ignored}"
    y = -rows * step
    write_at(ax, (0.1, y), found, fontsize=11, fontweight="bold")
    caption(ax, (0.1, y - 0.28), how)
    crop(ax, max(0.75 + length * width, 6.1), y - 0.42, 0.2)
    tell(ax, f"The labels of {rows} × {length} positions, and the losses at the labels.")
    show(tell(ax, f"{found}. This is {how}." if counted else f"{found}. The {ignored}."))


def lm_head(hidden_size, vocab_size, words=(), products=(), biases=()):
    """Show how the masked-LM head makes a score for each token from one hidden state: dense layer,
    activation, layer norm, dot product with each row of the embedding matrix, bias.

    Without `words` the diagram shows symbols. With them it shows the numbers of these words.

    Args:
        hidden_size: H, the width of a hidden state.
        vocab_size: V, the number of tokens.
        words: up to six tokens, for example those with the highest scores.
        products: for each of the words, the dot product of its row with the state.
        biases: for each of the words, its bias. The score is the sum of the two.

    Raises:
        ValueError: there are more than six words, or not one dot product and one bias for each.
    """
    whole_number("the number of words", len(words), 0, 6)
    products, biases = torch.as_tensor(products).tolist(), torch.as_tensor(biases).tolist()
    if not len(words) == len(products) == len(biases):
        count = f"{len(words)} words, {len(products)} products and {len(biases)} biases"
        raise ValueError(f"there are {count}; as many of each are needed")
    table = []
    for word, product, bias in zip(words, products, biases):
        numbers = f"{product:.2f} {bias:+.2f} {product + bias:.2f}".replace("-", "−")
        table.append((word, *numbers.split()))
    table = table or [(f"token {i}", f"e{i} · s", f"+ b{i}", f"score {i}") for i in "012"]
    best = int(np.argmax(np.add(products, biases))) if words else None
    ax, H = blank(6.6, 3.5), f"({hidden_size},)"
    steps = (
        f"hidden state\n{H}", f"dense\n{hidden_size} → {hidden_size}", "activation\n(GELU)",
        "layer norm", f"state s\n{H}",
    )  # fmt: skip
    for i, text in enumerate(steps):
        box(ax, (0.58 + 1.36 * i, 0), text, lit=0 < i < 4, width=1.06, height=0.5)
        if i:
            path(ax, (1.36 * i - 0.25, 0), (1.36 * i + 0.05, 0))
    path(ax, (6.02, -0.25), (6.02, -0.5), (3.95, -0.5), (3.95, -0.85))
    caption(ax, (5.9, -0.63), "dot product with each row", ha="right")
    write_at(ax, (1.15, -1.0), f"embedding matrix ({vocab_size:,}, {hidden_size})")
    for x, name in ((3.95, "row · s"), (5.0, "+ bias"), (6.02, "= score")):
        write_at(ax, (x, -1.0), name, ha="center")
    for i, (word, product, bias, score) in enumerate(table):
        y = -1.36 - 0.36 * i
        write_at(ax, (1.05, y), shortened(word, 1.0, 10), ha="right", fontsize=10)
        strip(ax, 1.15, y, 2.1)
        path(ax, (3.3, y), (3.55, y))
        write_at(ax, (3.95, y), product, ha="center", fontsize=10)
        write_at(ax, (5.0, y), bias, ha="center", fontsize=10)
        box(ax, (6.02, y), score, lit=i == best, width=0.8, height=0.29, fontsize=10)
    y = -1.36 - 0.36 * len(table)
    for x in (1.0, 6.02):
        caption(ax, (x, y), "⋮", ha="center")
    caption(ax, (1.15, y), f"a row for each of the {vocab_size:,} tokens")
    write_at(ax, (6.42, y - 0.3), f"{vocab_size:,} scores (logits)", ha="right")
    if best is not None:
        write_at(ax, (1.15, y - 0.3), f"highest score: {words[best]}", fontweight="bold")
    crop(ax, 6.6, y - 0.45, 0.3)
    way = f"a hidden state {H} goes through a dense layer, an activation and layer norm"
    tell(ax, f"The masked-LM head: {way}, which gives a state s {H}.")
    rows = f"the rows of the embedding matrix ({vocab_size:,}, {hidden_size})"
    tell(ax, f"s is multiplied with {rows}; a dot product plus the bias is the score of a token.")
    scores = [f"{word} {dot} {bias} = {score}" for word, dot, bias, score in table if words]
    if scores:
        tell(ax, f"Dot product, bias and score: {', '.join(scores)}.")
    show(ax)


def tying(vocab_size, hidden_size, words):
    """Show what it means that a model is tied: one matrix is the table in which the vector of a
    token is looked up, and also the matrix whose rows are multiplied with the state for the scores.

    Args:
        vocab_size: V, the number of rows of the matrix.
        hidden_size: H, the number of columns.
        words: two to six tokens, whose rows are drawn. The first one is looked up.

    Raises:
        ValueError: there are fewer than two words, or more than six.
    """
    count = whole_number("the number of words", len(words), 2, 6)
    ax, shape = blank(6.6, 4), f"E ({vocab_size:,}, {hidden_size})"
    entrance, leave, width = 1.1, 3.95, 1.2  # the left edges of the two drawings of the matrix
    ys = [-0.34 * i for i in range(count)]
    titles = {
        entrance: "entrance: the row of\none token is looked up",
        leave: "exit: the state s is\nmultiplied with every row",
    }
    for left, title in titles.items():
        middle = left + width / 2
        write_at(ax, (middle, 0.72), title, ha="center", fontsize=10)
        write_at(ax, (middle, 0.28), shape, ha="center", color=OURS, fontweight="bold")
        caption(ax, (middle, ys[-1] - 0.25), "⋮", ha="center")
        ax.plot([middle, middle], [ys[-1] - 0.4, ys[-1] - 0.62], color=OURS, linewidth=2)
    for i, (word, y) in enumerate(zip(words, ys)):
        strip(ax, entrance, y, width, cells=7, color=None if i else OURS)
        strip(ax, leave, y, width, cells=7, color=OURS)
        look = {"color": CHANCE} if i else {"fontweight": "bold"}
        write_at(ax, (entrance - 0.3, y), shortened(word, 0.75, 9, bold=i == 0), ha="right", **look)
        path(ax, (leave - 0.2, y), (leave - 0.03, y))
        path(ax, (leave + width + 0.04, y), (leave + width + 0.2, y))
        write_at(ax, (leave + width + 0.24, y), f"score of {shortened(word, 0.6, 9)}")
    path(ax, (entrance - 0.26, 0), (entrance - 0.03, 0))
    path(ax, (entrance + width + 0.04, 0), (2.6, 0))
    box(ax, (3.02, -0.15), "encoder\nand head", width=0.84, height=0.62)
    ax.plot([3.44, leave - 0.2, leave - 0.2], [0, 0, ys[-1]], color=CHANCE, linewidth=1.2)
    write_at(ax, (3.6, 0.13), "s", ha="center", fontsize=10)
    y = ys[-1] - 0.62
    ax.plot([entrance + width / 2, leave + width / 2], [y, y], color=OURS, linewidth=2)
    middle = entrance + leave + width
    numbers = f"{vocab_size:,} · {hidden_size} = {vocab_size * hidden_size:,} numbers"
    both = f"one and the same embedding matrix E: {numbers},\nstored once and trained at both ends"
    write_at(ax, (middle / 2, y - 0.28), both, ha="center", color=OURS)
    crop(ax, 6.6, y - 0.5, 0.95)
    tell(ax, f"The matrix {shape} is drawn twice, with the rows of {', '.join(words)}.")
    looked_up = f"the row of {words[0]} is looked up, and encoder and head make the state s of it"
    tell(ax, f"At the entrance {looked_up}. At the exit s is multiplied with every row.")
    same = f"Both drawings are one and the same matrix of {numbers}."
    show(tell(ax, f"Each product is a score. {same}"))


def attention(tokens, query, scores, head_size):
    """Show how one token attends to all tokens in one head: its query is multiplied with every key,
    softmax makes weights of the scores, and the values are averaged with these weights.

    Args:
        tokens: the texts of the T tokens.
        query: the position of the token that attends, from 0 to T − 1.
        scores: (T,) the dot products of its query with the keys, divided by √D.
        head_size: D, the number of entries of a query, a key or a value.

    Raises:
        ValueError: there is not one score for each token, there are more than 24 tokens, or `query`
            is not the position of a token.
    """
    scores = torch.as_tensor(scores, dtype=torch.float64).detach().cpu()
    length = whole_number("the number of tokens", len(tokens), 1, 24)
    whole_number("query", query, 0, length - 1)
    if scores.shape != (length,):
        raise refused("scores", scores, f"a tensor ({length},), a score for each token,")
    weights = scores.softmax(0).tolist()
    line, size = 0.3, f"({head_size},)"
    ax = blank(6.6, line * length)
    ys = [-line * i for i in range(length)]
    middle, most = ys[-1] / 2, max(weights)
    columns = {
        1.72: f"keys\n{size} each", 2.95: "scores\nq · k / √D",
        4.0: "weights\n(softmax)", 5.12: f"values\n{size} each",
    }  # fmt: skip
    for x, text in columns.items():
        write_at(ax, (x, 0.42), text, ha="center")
    asks = f"query q of\n{shortened(tokens[query], 0.85, 9)}\n{size}"
    box(ax, (0.5, middle), asks, lit=True, width=0.92, height=0.7)
    box(ax, (6.13, middle), f"weighted\naverage\n{size}", lit=True, width=0.82, height=0.7)
    for token, y, score, weight in zip(tokens, ys, scores.tolist(), weights):
        share = weight / most
        ax.plot([0.96, 1.2], [middle, y], color=CHANCE, linewidth=0.8)
        box(ax, (1.72, y), shortened(token, 0.95, 9), width=1.04, height=0.24)
        path(ax, (2.26, y), (2.55, y))
        write_at(ax, (3.2, y), f"{score:.2f}".replace("-", "−"), ha="right")
        square(ax, 3.5, y - 0.1, 0.62 * share, 0.2, OURS)
        write_at(ax, (3.5 + 0.62 * share + 0.05, y), f"{weight:.2f}")
        box(ax, (5.12, y), shortened(token, 0.78, 9), width=0.84, height=0.24)
        ax.plot([5.54, 5.72], [y, middle], color=OURS, linewidth=0.4 + 2 * share, zorder=1)
    caption(ax, (3.5, ys[-1] - 0.3), "They sum to 1.")
    crop(ax, 6.6, ys[-1] - 0.42, 0.65)
    pairs = ", ".join(f"{token} {weight:.2f}" for token, weight in zip(tokens, weights))
    asks = f"The query of {tokens[query]}, of {head_size} numbers, is multiplied with {length} keys"
    tell(ax, f"{asks}. Softmax of the scores gives the weights {pairs}.")
    show(tell(ax, f"The output is the sum of the {length} values, each times its weight."))


def forward_backward(
    words, boundaries, factors, alpha, beta, *, hidden="mood", mask_token="[MASK]"
):
    """Show how α from the left and β from the right meet at a blank, in a document whose sentences
    depend on one hidden fact, such as the mood of the writer.

    `factors`, `alpha` and `beta` map each value of the fact, such as "good" and "bad", to its
    numbers. There are S sentences and S + 1 boundaries.

    Args:
        words: the words of a document. The first `mask_token` among them is the blank.
        boundaries: S + 1 positions, from 0 to `len(words)`, at which sentences begin and end.
        factors: for each of the S sentences, the probability of what is seen of it.
        alpha: at each boundary, the probability of the value and of the words to the left.
        beta: at each boundary, the probability of the words to the right, given the value.
        hidden: what the hidden fact is called.
        mask_token: how a blank is written.

    Raises:
        ValueError: there is no blank, there are more than three sentences, the boundaries do not
            divide the words, a value does not have one number for each sentence or boundary, or a
            number is not the product of its neighbour and the factor between the two.
    """
    boundaries = list(boundaries)
    sentences = whole_number("the number of sentences", len(boundaries) - 1, 1, 3)
    if boundaries != sorted({*boundaries, 0, len(words)}):
        raise refused("boundaries", boundaries, f"a list that rises from 0 to {len(words)}")
    if mask_token not in words:
        raise refused("words", words, f"a list that holds {mask_token}")
    tables = {"factors": (factors, 0), "alpha": (alpha, 1), "beta": (beta, 1)}
    for name, (table, more) in tables.items():
        if [*table] != [*alpha] or {len(row) for row in table.values()} != {sentences + more}:
            wanted = f"a list of {sentences + more} numbers for each of {', '.join(alpha)}"
            raise refused(name, table, wanted)
    for value, s in itertools.product(alpha, range(sentences)):
        factor = factors[value][s]
        for name, table, first, then in (("alpha", alpha, s, s + 1), ("beta", beta, s + 1, s)):
            product = table[value][first] * factor
            if not math.isclose(table[value][then], product, rel_tol=1e-6, abs_tol=1e-12):
                found = f"{name}[{value!r}][{then}] is {in_short(table[value][then])}"
                wanted = f"{in_short(table[value][first])} × {in_short(factor)}"
                raise ValueError(f"{found}, but {name} there is {wanted} = {in_short(product)}")
    blank_at = words.index(mask_token)
    before = sum(blank_at >= end for end in boundaries[1:])  # the boundary before the blank

    widest = max(end - begin for begin, end in zip(boundaries, boundaries[1:]))
    start, column, line = 1.1, max(2.6, 0.66 * widest), 0.4
    xs = [start + column * i for i in range(sentences + 1)]
    ax = blank(xs[-1] + 0.5, 4.5)
    alphas = [-1.15 - line * i for i in range(len(alpha))]
    meet = alphas[-1] - 0.7
    betas = [meet - 0.7 - line * i for i in range(len(beta))]
    for s in range(sentences):
        caption(ax, (xs[s] + column / 2, 0.33), f"sentence {s + 1}", ha="center")
        count = boundaries[s + 1] - boundaries[s]
        width = (column - 0.1) / count
        for i in range(count):
            at = boundaries[s] + i
            size = {"width": width - 0.05, "height": 0.32, "edge": "#C8C8C8"}
            place = xs[s] + 0.05 + (i + 0.5) * width, 0
            box(ax, place, shortened(words[at], width - 0.1, 9), lit=at == blank_at, **size)
    for i, x in enumerate(xs):
        caption(ax, (x, -0.32), f"boundary {i}", ha="center")
        ax.plot([x, x], [-0.43, betas[-1]], ":", color=CHANCE, linewidth=1, zorder=0)
    side = {
        "α": (alphas, alpha, OURS, before, f"from the left: P({hidden} and the words to the left)"),
        "β": (betas, beta, ALERT, before + 1, f"from the right: P(words to the right | {hidden})"),
    }
    for letter, (ys, table, color, met, meaning) in side.items():
        title = {"color": color, "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 1}}
        y = ys[0] + 0.35 if letter == "α" else ys[-1] - 0.35
        write_at(ax, (xs[0] - 0.34, y), f"{letter} {meaning}", fontsize=10, **title)
        for (value, numbers), y in zip(table.items(), ys):
            caption(ax, (start - 0.44, y), shortened(value, 0.6, 9), ha="right")
            for i, (x, number) in enumerate(zip(xs, numbers)):
                size = {"width": 0.68, "height": 0.3, "fontsize": 10}
                box(ax, (x, y), in_short(number), lit=i == met, color=color, edge=color, **size)
            for s, factor in enumerate(factors[value]):
                ends = [(xs[s] + 0.36, y), (xs[s + 1] - 0.36, y)]
                path(ax, *(ends if letter == "α" else ends[::-1]), color=color)
                on_white = {"bbox": {"facecolor": "white", "edgecolor": "none", "pad": 1.5}}
                middle = xs[s] + column / 2, y
                write_at(ax, middle, f"× {in_short(factor)}", ha="center", zorder=3, **on_white)
    x = xs[before] + column / 2
    values = shortened(" and ".join(alpha), 1.05, 9)
    rule = f"P(word in the blank) ∝\nsum over {values} of\nα · P(word | {hidden}) · β"
    box(ax, (x, meet), rule, width=1.95, height=0.62, edge="black")
    path(ax, (xs[before], alphas[-1]), (xs[before], meet), (x - 0.99, meet), color=OURS)
    path(ax, (xs[before + 1], betas[0]), (xs[before + 1], meet), (x + 0.99, meet), color=ALERT)
    factor = "Each arrow multiplies by the factor of its sentence, which is written on it."
    caption(ax, (xs[0] - 0.34, betas[-1] - 0.63), factor)
    crop(ax, max(xs[-1] + 0.5, 6), betas[-1] - 0.78, 0.48)
    told = {
        f"{letter} {row[-1]}, at boundaries 0 to {sentences}": row[1]
        for letter, row in side.items()
    }
    for what, table in {"Factors of the sentences": factors, **told}.items():
        rows = (f"{value} {', '.join(map(in_short, row))}" for value, row in table.items())
        tell(ax, f"{what}: {'; '.join(rows)}.")
    tell(ax, f"The blank of {' '.join(words)} is in sentence {before + 1}.")
    show(tell(ax, f"There α at boundary {before} meets β at boundary {before + 1}."))


def rotary(positions, angle, *, lead=40):
    """Show how rotary positions act on a query and a key that have two numbers each: both are
    rotated by their positions, and their product depends only on the signed offset.

    The first panel shows the two vectors before the rotation, and each further panel shows them for
    one pair of positions.

    Args:
        positions: a list of pairs, the position of the query and the position of the key.
        angle: by how many degrees a vector is rotated for each position.
        lead: the angle from the query to the key before the rotation, in degrees.

    Raises:
        ValueError: there are no pairs of positions, or more than three.
    """
    whole_number("the number of pairs of positions", len(positions), 1, 3)
    radius, column = 0.62, 1.62
    panels = [("not rotated", 0, lead)]
    for q, k in positions:
        panels.append((f"query at {q}, key at {k}", q * angle, k * angle + lead))
    ax = blank(column * len(panels), 2.4)
    for number, (title, of_query, of_key) in enumerate(panels):
        x = column * (number + 0.5)
        round_about = np.linspace(0, 2 * math.pi, 90)
        circle = x + radius * np.cos(round_about), radius * np.sin(round_about)
        ax.plot(*circle, color="#D0D0D0", linewidth=1, zorder=0)
        for name, degrees, color in (("q", of_query, OURS), ("k", of_key, ALERT)):
            along = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
            path(ax, (x, 0), (x + radius * along[0], radius * along[1]), color=color)
            at = (x + 1.18 * radius * along[0], 1.18 * radius * along[1])
            write_at(ax, at, name, color=color, ha="center", fontsize=10)
        between = np.radians(np.linspace(of_query, of_key, 30))
        ax.plot(x + 0.22 * np.cos(between), 0.22 * np.sin(between), color=CHANCE, linewidth=1)
        write_at(ax, (x, 1.0), title, ha="center")
        product = f"{math.cos(math.radians(of_key - of_query)):.2f}".replace("-", "−")
        turn = f"{of_key - of_query:g}°".replace("-", "−")
        caption(ax, (x, -0.94), f"angle {turn}", ha="center")
        write_at(ax, (x, -1.12), f"q · k = {product}", ha="center")
        tell(ax, f"{title}: from query to key {turn}, product {product}.")
    crop(ax, column * len(panels), -1.25, 1.12)
    show(tell(ax, f"Each position rotates a vector by {angle:g}° more."))


def ablation(arms, judge, *, seeds=(0, 1, 2), results=None):
    """Show what an ablation is made of: two arms, a run of each arm for each seed, a judge that
    measures all runs in the same way, and the differences seed by seed.

    Args:
        arms: {name: what this arm does, such as "hides 15%"} of two arms. The base comes first.
        judge: what the judge measures, a few words in each line.
        seeds: the seeds of the runs, two to four.
        results: for each arm, the number that the judge gives to each of its runs. None if there
            are no runs yet; then letters are drawn.

    Raises:
        ValueError: there are not two arms, there are fewer than two seeds or more than four, or an
            arm does not have one result for each seed.
    """
    whole_number("the number of arms", len(arms), 2, 2)
    count = whole_number("the number of seeds", len(seeds), 2, 4)
    if results is not None and {*results} != {*arms}:
        raise refused("results", results, f"a list for each of {', '.join(arms)}")
    for name, values in (results or {}).items():
        if len(values) != count:
            raise refused(f"results[{name!r}]", values, f"a number for each of {count} seeds")
    told = {name: [f"{letter}{seed}" for seed in seeds] for name, letter in zip(arms, "ab")}
    apart = [f"b{seed} − a{seed}" for seed in seeds]
    if results:
        told = {name: [f"{value:.2f}" for value in results[name]] for name in arms}
        pairs = zip(*(results[name] for name in arms))
        apart = [f"{b - a:+.2f}".replace("-", "−") for a, b in pairs]
    runs, gap = 0.68, 0.1
    group = 1.75, count * (runs + gap) + gap  # the left edge and the width of a row of runs
    width = max(text_width(line, 9) for line in judge.splitlines()) + 0.25  # of the judge's box
    judged = sum(group) + 0.3 + width / 2
    column = max(text_width(text, 9) for text in apart) + 0.2
    start = judged + width / 2 + 0.35  # of the results
    numbers = [start + column * (i + 0.5) for i in range(count)]
    right, ys = numbers[-1] + column / 2 + 0.05, (0.0, -1.2)
    ax = blank(right, 3)
    titles = {0.75: "arms", group[0] + group[1] / 2: "runs", judged: "judge"}
    for x, title in {**titles, sum(numbers) / count: "results"}.items():
        write_at(ax, (x, 0.62), title, ha="center", fontsize=10, fontweight="bold")
    for i, (y, (name, what), color) in enumerate(zip(ys, arms.items(), (CHANCE, OURS))):
        box(ax, (0.75, y), f"{name}\n{what}", width=1.4, height=0.6, edge=color, lit=i == 1)
        path(ax, (1.45, y), (group[0], y), color=color)
        frame = {"facecolor": "white", "edgecolor": color, "zorder": 1}
        ax.add_patch(plt.Rectangle((group[0], y - 0.3), group[1], 0.6, **frame))
        for k, seed in enumerate(seeds):
            x = group[0] + gap + k * (runs + gap) + runs / 2
            box(ax, (x, y), f"seed {seed}", width=runs, height=0.36, edge=color)
            if i:  # a dotted line joins the two runs of a seed
                look = {"color": CHANCE, "linewidth": 1.2, "linestyle": ":", "zorder": 0}
                ax.plot([x, x], [ys[0] - 0.3, ys[1] + 0.3], **look)
            write_at(ax, (numbers[k], y), told[name][k], ha="center", fontsize=9)
        path(ax, (sum(group), y), (judged - width / 2, y), color=color)
        path(ax, (judged + width / 2, y), (start, y), color=color)
    box(ax, (judged, sum(ys) / 2), judge, width=width, height=1.8, edge="black")
    same = "the same first weights,\nthe same order of the texts"
    on_white = {"bbox": {"facecolor": "white", "edgecolor": "none", "pad": 1}}
    middle = group[0] + group[1] / 2, sum(ys) / 2
    write_at(ax, middle, same, ha="center", color=CHANCE, **on_white)
    below = ys[1] - 0.55  # of the differences
    ax.plot([start, right], [below + 0.2, below + 0.2], color="black", linewidth=1.0)
    for x, text in zip(numbers, apart):
        write_at(ax, (x, below), text, ha="center", color=OURS)
    write_at(ax, (start - 0.1, below), "difference, seed by seed", ha="right", color=OURS)
    crop(ax, right, below - 0.25, 0.85)
    tell(ax, f"Each arm has a run with each of the seeds {', '.join(map(str, seeds))}.")
    tell(ax, f"The judge of all runs: {' '.join(judge.split())}.")
    for name, what in arms.items():
        tell(ax, f"Results of the arm {name}, which {what}: {', '.join(told[name])}.")
    show(tell(ax, f"The differences, seed by seed: {', '.join(apart)}."))


# ------------------------------------------------------------------------------------ parts


def blank(width, height):
    """Make axes without a frame, with the same scale in both directions. The sizes are in
    inches."""
    ax = axes(width, height)
    ax.set_aspect("equal")
    ax.axis("off")
    return ax


def crop(ax, right, bottom, top):
    """Set the limits of the axes, from 0 to `right` and from `bottom` to `top`, and give the figure
    the same size in inches."""
    ax.set(xlim=(0, right), ylim=(bottom, top))
    ax.figure.set_size_inches(right, top - bottom)


def box(
    ax, middle, text, *, lit=False, width=WIDTH, height=HEIGHT, color=OURS, edge=CHANCE, fontsize=9
):
    """Draw a box with a text in it. If `lit` is true, the box is filled with `color`; otherwise
    it is white and has a border of the colour `edge`."""
    corner = middle[0] - width / 2, middle[1] - height / 2
    face, edge = (color, color) if lit else ("white", edge)
    ax.add_patch(plt.Rectangle(corner, width, height, facecolor=face, edgecolor=edge, zorder=2))
    letters = ink(color) if lit else "black"
    write_at(ax, middle, text, color=letters, ha="center", fontsize=fontsize, zorder=3)


def strip(ax, left, y, width, *, color=None, cells=10):
    """Draw a vector as a row of cells, with "…" in the last but one. `color` fills the cells."""
    size = width / cells
    for i in range(cells):
        face = color or "white"
        look = {"facecolor": face, "edgecolor": "white" if color else "#9A9A9A", "linewidth": 0.8}
        ax.add_patch(plt.Rectangle((left + i * size, y - 0.11), size, 0.22, **look))
    write_at(ax, (left + (cells - 1.5) * size, y), "…", ha="center", color=ink(color or "#FFFFFF"))


def path(ax, *points, color=CHANCE):
    """Draw a line through points (x, y), with an arrowhead at the last point."""
    ax.plot(*zip(*points[:-1]), color=color, linewidth=1.2, zorder=1)
    look = {"arrowstyle": "-|>", "color": color, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", points[-1], points[-2], arrowprops=look)


def caption(ax, place, text, *, ha="left", va="center"):
    """Write a text in grey at the point `place`, without a box."""
    write_at(ax, place, text, color=CHANCE, ha=ha, va=va)


def write_at(ax, place, text, *, ha="left", va="center", fontsize=9, **look):
    """Write a text at the point `place`. A dollar sign in the text does not begin a formula,
    because a token may contain one."""
    ax.text(*place, text, ha=ha, va=va, fontsize=fontsize, parse_math=False, **look)


def text_width(text, fontsize, *, bold=False):
    """The width of a text in inches."""
    if not text.strip():
        return 0.0
    font = FontProperties(size=fontsize, weight="bold" if bold else "normal")
    outline = TextPath((0, 0), text.replace("$", "S"), prop=font).get_extents().width / 72
    return 1.08 * outline  # letters become a little wider when they are fitted to whole pixels


def shortened(text, width, fontsize, *, bold=False):
    """The text, or so much of its beginning as fits into `width` inches, followed by "…"."""
    kept, end = text, ""
    while len(kept) > 1 and text_width(kept + end, fontsize, bold=bold) > width:
        kept, end = kept[:-1], "…"
    return kept + end


def in_short(value):
    """A number as the fraction that it is, such as 2/3, or with three digits after the point.

    >>> in_short(2 / 9), in_short(1.0), in_short(0.12345)
    ('2/9', '1', '0.123')
    """
    fraction = Fraction(float(value)).limit_denominator(99)
    return str(fraction) if abs(fraction - value) < 1e-9 else f"{value:.3f}"


# ------------------------------------------------------------------ the time of a training step


def step_time(parts, *, unit="ms", longest=None):
    """Show where the time of a training step goes: a row for each part of the step, with a bar that
    begins where the bar of the part before it ends.

    The alternative text holds the times. Times differ from run to run, so a cell that shows this
    diagram has the tag `nbval-ignore-output`.

    Args:
        parts: {name: time} of the parts, in the order in which they are computed.
        unit: the unit of the times.
        longest: the time at which the axis ends, so that two diagrams can be compared. None: the
            axis ends where the step ends.

    Raises:
        ValueError: there is no part, a time is negative, all times are 0, or the step takes longer
            than `longest`.
    """
    whole_number("the number of parts", len(parts), 1, 12)
    times = list(parts.values())
    total = sum(times)
    if min(times) < 0 or total == 0:
        raise refused("parts", parts, "times of at least 0, and one above 0,")
    end = total if longest is None else longest
    if total > end:
        raise ValueError(f"longest={longest}; the parts take {total:.4g} {unit} together")
    ax = axes(7.0, 0.9 + 0.34 * len(parts))
    shares = [f"{time:,.0f} {unit}, {time / total:.0%}" for time in times]
    begin = 0.0
    for row, (time, share) in enumerate(zip(times, shares)):
        square(ax, begin, -row - 0.35, time, 0.7, OURS)
        before = begin + time > 0.72 * end  # there is no room on the right of the bar
        place = (begin if before else begin + time), -row
        offset = {"textcoords": "offset points", "xytext": (-5 if before else 5, 0)}
        look = {"ha": "right" if before else "left", "va": "center", "fontsize": 10}
        ax.annotate(share, place, **offset, **look)
        begin += time
    ax.set_yticks(range(0, -len(parts), -1), list(parts))
    ax.set(xlim=(0, 1.02 * end), ylim=(0.6 - len(parts), 0.6), xlabel=f"{unit} since the beginning")
    told = ", ".join(f"{name} {share}" for name, share in zip(parts, shares))
    show(tell(ax, f"The parts of a training step of {total:,.0f} {unit}, in their order: {told}."))
