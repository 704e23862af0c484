"""Boxes and arrows: where a lesson stands in the whole, and how the parts of a model are joined."""

import matplotlib.pyplot as plt

from mlm_lib.checks import choice
from mlm_lib.plots import CHANCE, OURS, axes, show, tell

# The way from a text to a loss: name, what a box says, and where its middle is, (x, y).
PARTS = {
    "text": ("text", (0.0, 1.0)),
    "ids": ("token ids\n(B, T)", (1.5, 1.0)),
    "masking": ("masked ids\n(B, T)", (3.0, 1.0)),
    "labels": ("labels\n(B, T)", (3.0, 0.0)),
    "encoder": ("encoder\n(B, T, H)", (4.5, 1.0)),
    "head": ("head\n(N, V)", (6.0, 1.0)),
    "loss": ("loss", (7.5, 1.0)),
}
ARROWS = [
    ("text", "ids"), ("ids", "masking"), ("masking", "encoder"), ("encoder", "head"),
    ("head", "loss"), ("ids", "labels"), ("labels", "loss"),
]  # fmt: skip
WIDTH, HEIGHT = 1.1, 0.62  # of a box


def pipeline(*lit):
    """Show the whole way from a text to a loss, with the parts that a lesson is about lit.

    Args:
        lit: names of parts: "text", "ids", "masking", "labels", "encoder", "head", "loss".

    Raises:
        ValueError: a part that the picture has not.
    """
    lit = [choice("lit", part, PARTS) for part in lit]
    ax = blank(9.0, 2.0)
    for name, (text, middle) in PARTS.items():
        box(ax, middle, text, lit=name in lit)
    for start, end in ARROWS:
        arrow(ax, PARTS[start][1], PARTS[end][1])
    ax.set(xlim=(-0.7, 8.2), ylim=(-0.5, 1.5))
    way = "text, token ids, masked ids, encoder, head, loss; from the ids, labels lead to the loss"
    show(tell(ax, f"The way {way}. Lit in this lesson: {', '.join(lit)}."))


def blank(width, height):
    """Axes without a frame, on which a unit is as long across as upwards. Sizes in inches."""
    ax = axes(width, height)
    ax.set_aspect("equal")
    ax.axis("off")
    return ax


def box(ax, middle, text, *, lit=False, width=WIDTH, height=HEIGHT):
    """A box with a text in it; a lit one is filled."""
    corner = middle[0] - width / 2, middle[1] - height / 2
    face, edge, ink = (OURS, OURS, "white") if lit else ("white", CHANCE, "black")
    ax.add_patch(plt.Rectangle(corner, width, height, facecolor=face, edgecolor=edge, zorder=2))
    ax.text(*middle, text, color=ink, ha="center", va="center", fontsize=9, zorder=3)


def arrow(ax, start, end, *, color=CHANCE, width=WIDTH, height=HEIGHT):
    """An arrow from one box to another, from edge to edge."""
    (x, y), (to_x, to_y) = start, end
    if y == to_y:
        side = width / 2 if to_x > x else -width / 2
        begin, finish = (x + side, y), (to_x - side, to_y)
    elif x == to_x:
        side = height / 2 if to_y > y else -height / 2
        begin, finish = (x, y + side), (to_x, to_y - side)
    elif to_y < y:  # down to the left edge of a box that stands lower
        begin, finish = (x, y - height / 2), (to_x - width / 2, to_y)
    else:  # from the right edge up to the bottom of a box that stands higher
        begin, finish = (x + width / 2, y), (to_x, to_y - height / 2)
    bend = "angle,angleA=90,angleB=180" if to_y < y else "angle,angleA=180,angleB=90"
    style = "arc3" if y == to_y or x == to_x else bend
    look = {"arrowstyle": "-|>", "color": color, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", finish, begin, arrowprops=look | {"connectionstyle": style})
