"""Arrays in, matplotlib axes out: the few figures that the lessons share, in one style.

The same colour means the same thing in every lesson. The colours are those of Okabe and Ito (2008),
which people with any form of colour blindness can tell apart, and which differ in grey.
"""

import base64
import html
import io

import matplotlib.pyplot as plt
import numpy as np

OURS, LIBRARY, FLOOR, CHANCE, ALERT = "#0072B2", "#E69F00", "#009E73", "#767676", "#D55E00"

STYLE = {
    "figure.dpi": 100, "font.size": 11, "axes.spines.top": False, "axes.spines.right": False,
    "axes.titlesize": 12, "axes.titlelocation": "left", "legend.frameon": False,
}  # fmt: skip

OFFSET = {"textcoords": "offset points"}  # of a name from what it names


def axes(width=7.0, height=3.5):
    """A new figure's only axes, in the course's style. Sizes in inches."""
    return _panels(1, width, height)[0]


def show(ax, alt=None):
    """Display the figure of `ax` in a notebook with alternative text, and close it; see `bundle`.

    Without `alt` the text is what the functions below told of what they drew. It holds the values
    to two digits; where they are times, which differ from run to run, pass a text of your own.

    Raises:
        ValueError: no alternative text; who cannot see the figure would be left with nothing.
    """
    alt = " ".join(getattr(ax.figure, "told", [])) if alt is None else alt
    if not isinstance(alt, str) or not alt.strip():
        raise ValueError("alt is empty; say in a sentence what the figure shows")
    from IPython.display import display

    figure, png = ax.figure, io.BytesIO()
    with plt.rc_context(STYLE):
        figure.savefig(png, format="png")
    plt.close(figure)
    display(bundle(base64.b64encode(png.getvalue()).decode(), alt), raw=True)


def bundle(png, alt):
    """What a notebook stores of a figure: HTML, which holds the picture and its text together.

    JupyterLab gives an `image/png` no alternative text, whatever the metadata say. Of HTML it keeps
    the text, and so do `jupyter nbconvert` and the course's site.

    Args:
        png: the picture in base64, str.
        alt: the alternative text.
    """
    image = f'<img src="data:image/png;base64,{png}" alt="{html.escape(alt)}">'
    return {"text/html": image, "text/plain": alt}


def tell(ax, sentence):
    """Add a sentence to the alternative text that `show` composes for the figure of `ax`."""
    ax.figure.told = [*getattr(ax.figure, "told", []), sentence]
    return ax


def bars(names, values, *, xlabel, reference=None, reference_name="", colors=OURS, ax=None):
    """Horizontal bars, the first on top, each with its value, and a dashed line at `reference`."""
    ax, places = _rows(ax, names, xlabel)
    drawn = ax.barh(places, values, color=colors, height=0.7)
    ax.bar_label(drawn, fmt="{:.2f}", padding=4, fontsize=10)
    ax.margins(x=0.12)
    tell(ax, f"Bars, {xlabel}: {_pairs(names, values)}.")
    return _reference_line(ax, reference, reference_name)


def dots(names, values, *, xlabel, reference=None, reference_name="", color=OURS, ax=None):
    """A dot for each name on a logarithmic axis, the first on top, each with its value.

    Lengths of bars mean nothing there: a logarithm has no zero to start them from.
    """
    ax, places = _rows(ax, names, xlabel)
    ax.plot(values, places, "o", color=color, markersize=7)
    for place, value in zip(places, values):
        below = reference is not None and value < reference  # its label stays off the line
        label = {"xytext": (-8, 0) if below else (8, 0), "ha": "right" if below else "left"}
        label |= {"va": "center", "fontsize": 10}
        ax.annotate(f"{value:.2g}", (value, place), **label, **OFFSET)
    ax.set_xscale("log")
    ax.set_xlim(min([*values, reference or min(values)]) / 6, max(values) * 3)
    ax.grid(axis="y", color="#E5E5E5")
    tell(ax, f"Dots, {xlabel}: {_pairs(names, values)}.")
    return _reference_line(ax, reference, reference_name)


def curve(
    x, y, *, xlabel, ylabel, name="", reference=None, reference_name="", low=None, high=None,
    log_x=False, color=OURS, marker="o-", ax=None,
):  # fmt: skip
    """A line through points, named at its last point, and a dashed line at `reference`.

    Where `low` and `high` are given, the band between them is shaded.
    """
    ax = ax or axes()
    ax.plot(x, y, marker, color=color)
    if low is not None:
        ax.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
    if name:
        ax.annotate(name, (x[-1], y[-1]), xytext=(8, 0), va="center", color=color, **OFFSET)
    if log_x:
        ax.set_xscale("log", base=2)
        ax.set_xticks(x, [f"{value:,}" for value in x])
        ax.minorticks_off()
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ends = f"from {y[0]:.2g} at {_place(x[0])} to {y[-1]:.2g} at {_place(x[-1])}"
    what = f"Curve{' of ' * bool(name)}{name}, {ylabel} against {xlabel}: {ends}"
    band = "" if low is None else f", with a band from {low[-1]:.2g} to {high[-1]:.2g} at the end"
    tell(ax, f"{what}, lowest {min(y):.2g}{band}.")
    if reference is None:
        return ax
    look = {"xycoords": ("axes fraction", "data"), "xytext": (0, 4), "ha": "right"}
    return _dashed(ax, ax.axhline, reference, reference_name, (0.99, reference), **look)


def intervals(names, values, *, xlabel, reference=None, reference_name="", colors=OURS, ax=None):
    """A dot with a whisker from `low` to `high` for each `Interval`, the first on top."""
    ax, places = _rows(ax, names, xlabel)
    colors = [colors] * len(names) if isinstance(colors, str) else colors
    for place, value, color in zip(places, values, colors):
        ax.plot([value.low, value.high], [place, place], color=color, linewidth=2)
        ax.plot(value.mean, place, "o", color=color, markersize=6)
    ax.grid(axis="y", color="#E5E5E5")
    told = (f"{name} {v.mean:.2g} ({v.low:.2g} to {v.high:.2g})" for name, v in zip(names, values))
    tell(ax, f"Means with intervals, {xlabel}: {', '.join(told)}.")
    return _reference_line(ax, reference, reference_name)


def bands(names, nominal, counts, observed, *, xlabel, ax=None):
    """Observed shares against the 95% band of a binomial, in percentage points from nominal ones.

    Args:
        names, nominal, counts: per row, its name, its nominal share p and the number of draws n.
        observed: {name: (color, shares)}, a set of dots for each.
    """
    ax, places = _rows(ax or axes(height=1.2 + 0.55 * len(names)), names, xlabel)
    p, n = np.asarray(nominal, float), np.asarray(counts, float)
    half = 196 * np.sqrt(p * (1 - p) / n)  # 1.96 standard deviations, in percentage points
    off = {name: 100 * (np.asarray(shares) - p) for name, (_, shares) in observed.items()}
    ax.barh(places, 2 * half, left=-half, height=0.62, color="#D9D9D9", label="95% band")
    for shift, marker, (name, (color, _)) in zip((0.13, -0.13, 0.0), "oDD", observed.items()):
        ax.plot(off[name], places + shift, marker, color=color, label=name, markersize=7)
    ax.axvline(0, color=CHANCE, linestyle="--", linewidth=1)
    reach = 1.15 * np.abs([half, *off.values()]).max()
    ax.set_xlim(-reach, reach)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    outside = []
    for dots, distances in off.items():
        outside += [f"{name} of {dots}" for name in np.asarray(names)[np.abs(distances) > half]]
    where = "all inside" if not outside else f"outside: {', '.join(outside)}"
    what = f"Dots of {' and '.join(observed)} against 95% bands, {xlabel}"
    return tell(ax, f"{what}, for {', '.join(names)}; {where}.")


def token_strip(tokens, fates, colors, *, per_row=12, ax=None):
    """Tokens in reading order, each in a box of its fate's colour.

    `colors` maps fates to colours, "#RRGGBB", in the order of the legend.
    """
    rows = -(-len(tokens) // per_row)
    ax = ax or axes(width=9.5, height=0.6 + 0.34 * rows)
    middle = {"ha": "center", "va": "center", "fontsize": 8}
    for i, (token, fate) in enumerate(zip(tokens, fates)):
        row, column = divmod(i, per_row)
        square(ax, column + 0.03, -row - 0.9, 0.94, 0.8, colors[fate])
        red, green, blue = bytes.fromhex(colors[fate][1:7])
        dark = 0.3 * red + 0.59 * green + 0.11 * blue < 140  # as grey, of 255
        ax.text(column + 0.5, -row - 0.5, token, color="white" if dark else "black", **middle)
    ax.set(xlim=(0, per_row), ylim=(-rows, 0))
    ax.axis("off")
    handles = [plt.Rectangle((0, 0), 1, 1, color=color, linewidth=0) for color in colors.values()]
    place = {"loc": "outside lower center", "ncols": len(colors), "frameon": False}
    ax.figure.legend(handles, list(colors), **place)
    counts = ", ".join(f"{fates.count(fate)} {fate}" for fate in colors)
    return tell(ax, f"{len(tokens)} tokens in boxes, coloured by their fate: {counts}.")


def heatmaps(
    matrices, row_names, column_names, *, titles, xlabel, ylabel, color_label, first_padding=None
):
    """Matrices of shares from 0 to 1 side by side, on one scale.

    A dashed line stands before column `first_padding`.
    """
    panels = _panels(len(matrices), 1.2 + 2.6 * len(matrices), 1.6 + 0.24 * len(row_names))
    for ax, matrix, title in zip(panels, matrices, titles):
        image = ax.imshow(np.asarray(matrix, float), cmap="Blues", vmin=0, vmax=1, aspect="auto")
        ax.set_xticks(range(len(column_names)), column_names, rotation=90, fontsize=8.5)
        ax.set_yticks(range(len(row_names)), row_names, fontsize=9)
        ax.set_title(title)
        if first_padding is not None:
            ax.axvline(first_padding - 0.5, color=ALERT, linestyle="--", linewidth=1.5)
    panels[0].figure.supxlabel(xlabel, fontsize=11)
    panels[0].set_ylabel(ylabel)
    panels[0].figure.colorbar(image, ax=panels, label=color_label)
    what = f"Shaded squares of {color_label}, {ylabel} by {xlabel}: {', '.join(titles)}."
    if first_padding is not None:
        held = [np.asarray(matrix, float)[:, first_padding:].sum(1).max() for matrix in matrices]
        most = ", ".join(f"{share:.2f}" for share in held)
        what += f" Right of the dashed line a row holds at most {most}."
    return tell(panels[0], what)


def leak_matrices(dependencies, leaks, *, titles):
    """Which inputs each output depends on, for several models side by side; leaks bear a cross.

    Args:
        dependencies, leaks: lists of (T, T) bool, [output, input]; a leak is a dependence, too.
        titles: one for each.
    """
    panels, told = _panels(len(titles), 0.6 + 2.5 * len(titles), 3.2), []
    for ax, depends, leak, title in zip(panels, dependencies, leaks, titles):
        depends, leak = np.asarray(depends), np.asarray(leak)
        for matrix, color in ((depends & ~leak, OURS), (leak, ALERT)):
            for output, seen in zip(*matrix.nonzero()):
                square(ax, seen - 0.45, output - 0.45, 0.9, 0.9, color)
        ax.plot(*leak.nonzero()[::-1], "x", color="white", markersize=5)
        edges, ticks = (-0.5, len(leak) - 0.5), range(len(leak))
        ax.set(xticks=ticks, yticks=ticks, xlim=edges, ylim=edges[::-1])
        ax.set(aspect="equal", title=title)
        sees = f"{depends.sum()} of {depends.size} inputs"
        told.append(f"{title} sees {sees}, {leak.sum()} forbidden")
    panels[0].set_ylabel("output at position")
    panels[0].figure.supxlabel("input at position", fontsize=11)
    return tell(panels[0], f"Squares of outputs by inputs: {'; '.join(told)}.")


def _panels(count, width, height):
    """Axes of one figure, side by side, with one vertical scale. Sizes in inches."""
    with plt.rc_context(STYLE):
        options = {"sharey": True, "layout": "constrained", "squeeze": False}
        return plt.subplots(1, count, figsize=(width, height), **options)[1][0]


def _rows(ax, names, xlabel):
    """Axes, new ones if need be, with a row for each name, the first on top; the rows' places."""
    ax = ax or axes(height=0.9 + 0.36 * len(names))
    places = np.arange(len(names))[::-1]
    ax.set_yticks(places, names)
    ax.set_xlabel(xlabel)
    return ax, places


def _place(value):
    """Where on an axis: a whole number whole, another in three digits."""
    return f"{value:,.0f}" if value == round(value) else f"{value:.3g}"


def _pairs(names, values):
    return ", ".join(f"{name} {value:.2g}" for name, value in zip(names, values))


def square(ax, left, bottom, width, height, color):
    """A filled rectangle without a frame."""
    ax.add_patch(plt.Rectangle((left, bottom), width, height, color=color, linewidth=0))


def level(ax, value, name, *, x):
    """A dashed line across the axes at `value`, named above its place `x`: a landmark."""
    return _dashed(ax, ax.axhline, value, name, (x, value), xytext=(0, 4))


def _reference_line(ax, value, name):
    """A dashed line from bottom to top, named above the axes, unless the value is None."""
    if value is None:
        return ax
    look = {"xycoords": ("data", "axes fraction"), "xytext": (0, 3)}
    return _dashed(ax, ax.axvline, value, name, (value, 1.0), **look)


def _dashed(ax, line, value, name, place, **look):
    """A dashed line, its name at a place, and both told."""
    line(value, color=CHANCE, linestyle="--", linewidth=1)
    ax.annotate(name, place, color=CHANCE, fontsize=10, **look, **OFFSET)
    return tell(ax, f"A dashed line at {value:.2g}{', ' * bool(name)}{name}.")
