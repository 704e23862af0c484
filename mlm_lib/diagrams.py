"""The diagrams of the lessons, drawn from boxes and arrows: the way from a text to the loss with
the parts of a lesson highlighted, the parts of a model, and the α and β of forward–backward in a
text.
"""

import matplotlib.pyplot as plt
import numpy as np

from mlm_lib.checks import choice
from mlm_lib.plots import ALERT, CHANCE, OFFSET, OURS, axes, show, square, tell

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


def trellis(words, states, turns, alpha, beta):
    """Draw α and β of the forward–backward algorithm at the borders of sentences, with a row for
    each hidden state.

    Args:
        words: the T words of a document.
        states: the names of the Z states.
        turns: the positions, from 0 to T, at which a sentence begins or ends.
        alpha: (Z, turns), the probability of a state together with the words before a border.
        beta: (Z, turns), the probability of the words after a border if the state is given.
    """
    alpha, beta = np.asarray(alpha, float), np.asarray(beta, float)
    ax = axes(width=9.0, height=1.2 + 0.9 * len(states))
    for place, word in enumerate(words):
        square(ax, place + 0.06, len(states) - 0.42, 0.88, 0.42, "#EDEDED")
        ax.text(place + 0.5, len(states) - 0.21, word, ha="center", va="center", fontsize=10)
    shares = alpha[:, -1] * beta[:, -1] / (alpha[:, -1] @ beta[:, -1])
    look = {"ha": "center", "fontsize": 10, **OFFSET}
    for row, state in enumerate(states):
        height, places = len(states) - 1 - row, []
        ax.plot(turns, [height] * len(turns), "o-", color=CHANCE, markersize=9)
        ax.text(-0.5, height, state, ha="right", va="center")
        for turn, a, b in zip(turns, alpha[row], beta[row]):
            ax.annotate(f"α {a:.3f}", (turn, height), xytext=(0, 9), color=OURS, **look)
            ax.annotate(f"β {b:.3f}", (turn, height), xytext=(0, -19), color=ALERT, **look)
            places.append(f"at {turn} α {a:.2g} β {b:.2g}")
        tell(ax, f"State {state} along {' '.join(words)}: {', '.join(places)}.")
        ax.text(len(words) + 0.8, height, f"{shares[row]:.2f}", va="center", fontsize=12)
    ax.text(len(words) + 0.8, len(states) - 0.21, "share of α·β", va="center", fontsize=10)
    ax.set(xlim=(-1.2, len(words) + 2.2), ylim=(-0.5, len(states) + 0.1))
    ax.axis("off")
    found = ", ".join(f"{state} {share:.2g}" for state, share in zip(states, shares))
    return tell(ax, f"Shares of α·β: {found}.")


def blank(width, height):
    """Make axes without a frame, with the same scale in both directions. The sizes are in
    inches."""
    ax = axes(width, height)
    ax.set_aspect("equal")
    ax.axis("off")
    return ax


def box(ax, middle, text, *, lit=False, width=WIDTH, height=HEIGHT):
    """Draw a box with a text in it. If it is lit, the box is filled with colour."""
    corner = middle[0] - width / 2, middle[1] - height / 2
    face, edge, ink = (OURS, OURS, "white") if lit else ("white", CHANCE, "black")
    ax.add_patch(plt.Rectangle(corner, width, height, facecolor=face, edgecolor=edge, zorder=2))
    ax.text(*middle, text, color=ink, ha="center", va="center", fontsize=9, zorder=3)


def path(ax, *points, color=CHANCE):
    """Draw a line through points (x, y), with an arrowhead at the last point."""
    ax.plot(*zip(*points[:-1]), color=color, linewidth=1.2, zorder=1)
    look = {"arrowstyle": "-|>", "color": color, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", points[-1], points[-2], arrowprops=look)


def caption(ax, place, text, *, ha="left", va="center"):
    """Write a text in grey at the point `place`, without a box."""
    ax.text(*place, text, color=CHANCE, ha=ha, va=va, fontsize=9)
