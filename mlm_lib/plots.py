"""The figures that several lessons share. Each function takes numbers and returns the matplotlib
axes on which it has drawn them; `show` displays the figure in the notebook. A `LiveCurve` draws the
losses of a model while the model trains.

A colour means the same thing in every lesson. All five are dark enough for words on white, with a
contrast of at least 4.5, because the name of a line is written in the colour of the line. Okabe and
Ito (2008) chose colours that people with any form of colour blindness can tell apart. Theirs are
lighter; ours have the same hues, but for a purple in place of the yellow, and can be told apart at
least as well.
"""

import base64
import builtins
import html
import io
import math
import re
import time

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mlm_lib.checks import number, whole_number

OURS, LIBRARY, FLOOR, CHANCE, ALERT = "#0072B2", "#93498A", "#045C3E", "#727272", "#B45008"
SKY = "#56B4E9"  # for surfaces only: words and lines of this colour are too light on white

STYLE = {
    "figure.dpi": 100, "font.size": 11, "axes.spines.top": False, "axes.spines.right": False,
    "axes.titlesize": 12, "axes.titlelocation": "left", "legend.frameon": False,
}  # fmt: skip

OFFSET = {
    "textcoords": "offset points"
}  # the unit of the distance between a label and what it labels


def axes(width=7.0, height=3.5):
    """Make a new figure in the style of the course and return its axes. The sizes are in inches."""
    return _panels(1, width, height)[0]


def show(ax, alt=None):
    """Display the figure of `ax` in a notebook with its alternative text, and close the figure.

    Without `alt`, the alternative text is composed of the sentences that the functions of this
    module have written about what they drew. It holds the values with two digits. If the values are
    times, which differ from run to run, pass a text of your own.

    Raises:
        ValueError: there is no alternative text. A reader who cannot see the figure needs it.
    """
    alt = " ".join(getattr(ax.figure, "told", [])) if alt is None else alt
    if not isinstance(alt, str) or not alt.strip():
        raise ValueError("alt is empty; say in a sentence what the figure shows")
    from IPython.display import display

    display(bundle(svg(ax.figure), alt), raw=True)
    plt.close(ax.figure)


# The words of a figure stay words. They are drawn in the font for which matplotlib computes their
# places or, if a reader does not have this font, in one that is as wide. The salt makes the names
# of the elements the same in every run.
FONTS = ["DejaVu Sans", "Verdana"]
AS_SVG = {"svg.fonttype": "none", "svg.hashsalt": "mlm_lib", "font.sans-serif": FONTS}
# These are written by matplotlib and needed by nobody: rotations by 0 degrees, the names of groups,
# and spaces between tags.
SPARED = [(r' transform="rotate\(-0 [^"]*"', ""), (r'<g id="[^"]*"', "<g"), (r">\s+<", "><")]


def svg(figure):
    """A matplotlib figure as an SVG, in bytes.

    An SVG is sharp at every size, and most are less than half as large as a PNG of the same figure.
    Two figures that are drawn in the same way give the same bytes.
    """
    file, told = io.BytesIO(), dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with plt.rc_context(STYLE | AS_SVG):
        figure.savefig(file, format="svg", metadata=told)
    text = file.getvalue().decode()
    # Two digits after the point are enough for a coordinate. A number outside of a tag is a word of
    # the figure, and stays as it is.
    text = re.sub(r"<[^>]*>", lambda tag: LONG.sub(_hundredths, tag[0]), text[text.index("<svg") :])
    for pattern, shorter in SPARED:
        text = re.sub(pattern, shorter, text)
    return text.encode()


LONG = re.compile(r"-?\d+\.\d{3,}")


def _hundredths(number):
    """The match of a number, rounded to two digits after the point."""
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def bundle(picture, alt):
    """The output that a notebook stores for a figure: HTML that holds the picture and its text.

    HTML is used because JupyterLab shows no alternative text for an output of the type `image/png`.
    JupyterLab, `jupyter nbconvert` and the site of the course all keep the text of HTML.

    Args:
        picture: an SVG or a PNG, in bytes.
        alt: the alternative text.
    """
    kind = "png" if picture.startswith(b"\x89PNG") else "svg+xml"
    source = f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"
    image = f'<img src="{source}" alt="{html.escape(alt)}">'
    return {"text/html": image, "text/plain": alt}


def tell(ax, sentence):
    """Add a sentence to the alternative text of the figure of `ax`, and return `ax`."""
    ax.figure.told = [*getattr(ax.figure, "told", []), sentence]
    return ax


def bars(names, values, *, xlabel, reference=None, reference_name="", colors=OURS, ax=None):
    """Draw a horizontal bar with its value for each name, the first name on top. If `reference` is
    given, a dashed line is drawn at this value.

    Args:
        names, values: a name and a value for each bar.
        xlabel: what the values are, with their unit.
        reference, reference_name: the value and the label of the dashed line.
        colors: a colour for all bars, or a list with one for each bar.
        ax: the axes to draw on; new ones by default.
    """
    ax, places = _rows(ax, names, xlabel)
    drawn = ax.barh(places, values, color=colors, height=0.7)
    ax.bar_label(drawn, fmt="{:.2f}", padding=4, fontsize=10)
    ax.margins(x=0.12)
    tell(ax, f"Bars, {xlabel}: {_pairs(names, values)}.")
    return _reference_line(ax, reference, reference_name)


def dots(names, values, *, xlabel, reference=None, reference_name="", color=OURS, ax=None):
    """Draw a dot with its value for each name on a logarithmic axis, the first name on top. The
    arguments are those of `bars`, with one `color` for all dots.

    On a logarithmic axis bars would be wrong, because the axis has no zero at which they could
    begin.
    """
    ax, places = _rows(ax, names, xlabel)
    ax.plot(values, places, "o", color=color, markersize=7)
    for place, value in zip(places, values):
        # The label of a value below the reference is on the left, away from the dashed line.
        below = reference is not None and value < reference
        label = {"xytext": (-8, 0) if below else (8, 0), "ha": "right" if below else "left"}
        label |= {"va": "center", "fontsize": 10}
        ax.annotate(two_digits(value), (value, place), **label, **OFFSET)
    ax.set_xscale("log")
    # A long label such as 0.0000058 needs the room of a power of ten on its left.
    ax.set_xlim(min([*values, reference or min(values)]) / 15, max(values) * 3)
    ax.grid(axis="y", color="#E5E5E5")
    tell(ax, f"Dots, {xlabel}: {_pairs(names, values)}.")
    return _reference_line(ax, reference, reference_name)


def curve(
    x, y, *, xlabel, ylabel, name="", reference=None, reference_name="", low=None, high=None,
    log_x=False, color=OURS, marker="o-", ax=None,
):  # fmt: skip
    """Draw a line through points, with its name at the last point. If `reference` is given, a
    dashed line is drawn at this value of y. If `low` and `high` are given, the band between them is
    shaded.

    Args:
        x, y: the coordinates of the points.
        xlabel, ylabel: what the axes show, with their units.
        name: the label of the line.
        reference, reference_name: the value and the label of the dashed line.
        low, high: the lower and the upper edge of the band, a value for each point.
        log_x: whether the x-axis is logarithmic, with a tick at each point.
        color, marker: how matplotlib draws the line.
        ax: the axes to draw on; new ones by default. For a second line, call `curve` again with the
            axes that the first call returned.
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
    ends = f"from {two_digits(y[0])} at {_place(x[0])} to {two_digits(y[-1])} at {_place(x[-1])}"
    what = f"Curve{' of ' * bool(name)}{name}, {ylabel} against {xlabel}: {ends}"
    band = ""
    if low is not None:
        band = f", with a band from {two_digits(low[-1])} to {two_digits(high[-1])} at the end"
    tell(ax, f"{what}, lowest {two_digits(min(y))}{band}.")
    if reference is None:
        return ax
    look = {"xycoords": ("axes fraction", "data"), "xytext": (0, 4), "ha": "right"}
    return _dashed(ax, ax.axhline, reference, reference_name, (0.99, reference), **look)


def intervals(names, values, *, xlabel, reference=None, reference_name="", colors=OURS, ax=None):
    """Draw a mean and its confidence interval for each name, the first name on top. `values` holds
    an `Interval` for each name, which is drawn as a dot with a line from `low` to `high`. The other
    arguments are those of `bars`."""
    ax, places = _rows(ax, names, xlabel)
    colors = [colors] * len(names) if isinstance(colors, str) else colors
    for place, value, color in zip(places, values, colors):
        ax.plot([value.low, value.high], [place, place], color=color, linewidth=2)
        ax.plot(value.mean, place, "o", color=color, markersize=6)
    ax.grid(axis="y", color="#E5E5E5")
    told = []
    for name, value in zip(names, values):
        ends = f"{two_digits(value.low)} to {two_digits(value.high)}"
        told.append(f"{name} {two_digits(value.mean)} ({ends})")
    tell(ax, f"Means with intervals, {xlabel}: {', '.join(told)}.")
    return _reference_line(ax, reference, reference_name)


def bands(names, nominal, counts, observed, *, xlabel, ax=None):
    """Compare observed shares with nominal ones. For each row the 95% band of a binomial is drawn
    in grey, and the observed shares as dots. The x-axis shows the difference from the nominal share
    in percentage points.

    Args:
        names: the names of the rows.
        nominal: the nominal share p of each row.
        counts: the number of draws n of each row.
        observed: {name: (color, shares)} for each set of dots, with a share for each row.
        xlabel: the label of the x-axis.
        ax: the axes to draw on; new ones by default.
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
    """Draw tokens in reading order. The colour of a token's box says what happened to the token,
    for example that it was masked.

    Args:
        tokens: the texts of the tokens.
        fates: for each token, what happened to it.
        colors: maps each fate to its colour "#RRGGBB", in the order of the legend.
        per_row: how many tokens are in a row.
        ax: the axes to draw on; new ones by default.
    """
    rows = -(-len(tokens) // per_row)
    ax = ax or axes(width=9.5, height=0.6 + 0.34 * rows)
    middle = {"ha": "center", "va": "center", "fontsize": 8}
    for i, (token, fate) in enumerate(zip(tokens, fates)):
        row, column = divmod(i, per_row)
        square(ax, column + 0.03, -row - 0.9, 0.94, 0.8, colors[fate])
        ax.text(column + 0.5, -row - 0.5, token, color=ink(colors[fate]), **middle)
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
    """Draw matrices of shares, such as attention weights, side by side as shaded squares. All
    matrices have the same scale, from 0 to 1.

    Args:
        matrices: 2-D arrays.
        row_names, column_names: the labels of the rows and columns, the same for all matrices.
        titles: a title for each matrix.
        xlabel, ylabel: the labels of the axes.
        color_label: what the shades mean.
        first_padding: the number of the first column that is padding. A dashed line is drawn before
            this column.
    """
    panels = _panels(len(matrices), 1.2 + 2.6 * len(matrices), 1.6 + 0.24 * len(row_names))
    for ax, matrix, title in zip(panels, matrices, titles):
        look = {"cmap": "Blues", "vmin": 0, "vmax": 1, "aspect": "auto"}
        # Without interpolation an SVG holds one pixel for each number, which stays a sharp square.
        image = ax.imshow(np.asarray(matrix, float), interpolation="none", **look)
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
    """Draw which inputs each output of a model depends on, for several models side by side. A
    dependence that is forbidden, a leak, has a white cross.

    Args:
        dependencies: a bool array (T, T) for each model, indexed by [output, input].
        leaks: a bool array (T, T) for each model, true at the dependencies that are leaks.
        titles: a title for each model.
    """
    panels, told = _panels(len(titles), 0.6 + 2.5 * len(titles), 3.2), []
    for ax, depends, leak, title in zip(panels, dependencies, leaks, titles):
        depends, leak = np.asarray(depends), np.asarray(leak)
        for matrix, color in ((depends & ~leak, OURS), (leak, ALERT)):
            for output, seen in zip(*matrix.nonzero()):
                square(ax, seen - 0.45, output - 0.45, 0.9, 0.9, color)
        ax.plot(*leak.nonzero()[::-1], "x", color="white", markersize=5)
        edges = (-0.5, len(leak) - 0.5)
        ticks = range(0, len(leak), 1 if len(leak) <= 12 else 2)  # more labels would touch
        ax.set(xticks=ticks, yticks=ticks, xlim=edges, ylim=edges[::-1])
        ax.set(aspect="equal", title=title)
        sees = f"{depends.sum()} of {depends.size} inputs"
        told.append(f"{title} sees {sees}, {leak.sum()} forbidden")
    panels[0].set_ylabel("output at position")
    panels[0].figure.supxlabel("input at position", fontsize=11)
    return tell(panels[0], f"Squares of outputs by inputs: {'; '.join(told)}.")


def _panels(count, width, height):
    """Make a figure with `count` axes side by side, which share their y-axis. Sizes in inches."""
    with plt.rc_context(STYLE):
        options = {"sharey": True, "layout": "constrained", "squeeze": False}
        return plt.subplots(1, count, figsize=(width, height), **options)[1][0]


def _rows(ax, names, xlabel):
    """Prepare axes with a row for each name, the first on top. Returns the axes, new ones if `ax`
    is None, and the y-coordinates of the rows."""
    ax = ax or axes(height=0.9 + 0.36 * len(names))
    places = np.arange(len(names))[::-1]
    ax.set_yticks(places, names)
    ax.set_xlabel(xlabel)
    return ax, places


def _place(value):
    """A coordinate as text: a whole number in full, any other number with three digits."""
    return f"{value:,.0f}" if value == round(value) else f"{value:.3g}"


def _pairs(names, values):
    """Names and values as text, such as "ours 1.2, theirs 1.3"."""
    return ", ".join(f"{name} {two_digits(value)}" for name, value in zip(names, values))


def two_digits(value):
    """A number as text, with two digits that say something and without a power of ten.

    >>> two_digits(0.4231), two_digits(3.8e-05), two_digits(9.01)
    ('0.42', '0.000038', '9')
    """
    text = f"{value:.2g}"
    return np.format_float_positional(float(text), trim="-") if "e" in text else text


def ink(color):
    """The colour of letters that can be read on the colour "#RRGGBB": "white" or "black",
    whichever has the higher contrast."""
    return "white" if contrast("#FFFFFF", color) > contrast("#000000", color) else "black"


def contrast(one, other):
    """The contrast of two colours "#RRGGBB" as WCAG 2 defines it, from 1 to 21. Letters can be read
    from 4.5 on."""
    lights = []
    for color in (one, other):
        shares = np.array([*bytes.fromhex(color[1:7])]) / 255
        linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
        lights.append(float(linear @ (0.2126, 0.7152, 0.0722)) + 0.05)
    return max(lights) / min(lights)


def square(ax, left, bottom, width, height, color):
    """Draw a filled rectangle without a border."""
    ax.add_patch(plt.Rectangle((left, bottom), width, height, color=color, linewidth=0))


def level(ax, value, name, *, x):
    """Draw a dashed horizontal line at `value`, for example at the floor, with its name above it at
    `x`."""
    return _dashed(ax, ax.axhline, value, name, (x, value), xytext=(0, 4))


def _reference_line(ax, value, name):
    """Draw a dashed vertical line with its name above the axes. Nothing is drawn if `value` is
    None."""
    if value is None:
        return ax
    look = {"xycoords": ("data", "axes fraction"), "xytext": (0, 3)}
    return _dashed(ax, ax.axvline, value, name, (value, 1.0), **look)


def _dashed(ax, line, value, name, place, **look):
    """Draw a dashed line with its name at a place, and add both to the alternative text."""
    line(value, color=CHANCE, linestyle="--", linewidth=1)
    ax.annotate(name, place, color=CHANCE, fontsize=10, **look, **OFFSET)
    return tell(ax, f"A dashed line at {two_digits(value)}{', ' * bool(name)}{name}.")


# ------------------------------------------------------------------------------------ live curves

# The live figure is renewed at most once in `BETWEEN` seconds, and so seldom that this takes at
# most the share `SHARE` of the time.
BETWEEN, SHARE = 1.0, 0.005
MOST_POINTS = 100  # a curve of more losses is drawn through the means of neighbouring losses
LIVE_LOOKS = {
    "training": {"color": OURS},
    "held out": {"color": LIBRARY, "linestyle": ":", "linewidth": 2.5},
    "others": [{"color": color} for color in (FLOOR, ALERT, "#000000")],
}


class LiveCurve:
    """Draws the losses of a model while the model trains, in a figure that is renewed in place.

    It is a callback of `train`::

        live = plots.LiveCurve(STEPS, levels={"ln V": math.log(V), "floor": floor.nats})
        train(model, rows, collator, config, evaluate=evaluate, callbacks=[live])

    A loop of your own calls `add` once in each step, with all losses that it has at this step::

        live = plots.LiveCurve(STEPS, levels={"ln V": math.log(V), "floor": floor.nats})
        for step in range(1, STEPS + 1):
            ...
            live.add(step, loss=loss)

    During the training the title says how far the run has come and how many seconds are left. When
    the last step is added, the figure becomes an ordinary output, as `show` would make it: the
    output is stored with the notebook, has alternative text, and holds no time. The same happens at
    the end of the cell if the run did not come to its last step, for example because it was
    interrupted. Outside of a notebook nothing is drawn.

    The model is trained as it would be without the figure. No random number is drawn, and a loss on
    a GPU is read only when the figure is renewed, because the program has to wait for it.

    Args:
        steps: the number of steps of the run. None if it is not known, for example because the
            budget of the run is in seconds.
        levels: {name: loss} for each dashed line, for example the floor.
        ylabel: what the losses are, with their unit.

    Raises:
        ValueError: `steps` is not a whole number of at least 1, or a level is not a finite number.
    """

    def __init__(self, steps=None, *, levels=None, ylabel="loss, nats"):
        self.steps, self.ylabel = whole_number("steps", steps, none=True), ylabel
        levels = {name: number(f"levels[{name!r}]", at) for name, at in (levels or {}).items()}
        self.levels = dict(sorted(levels.items(), key=lambda level: level[1]))  # from the lowest
        self.step, self._added, self._ax = 0, {}, None

    @property
    def losses(self):
        """The losses that were added so far, a dictionary with two lists (steps, losses) under the
        name of each curve."""
        for _, some in self._added.values():
            some[:] = map(float, some)  # this reads the tensors, each only once
        return {name: (list(at), list(some)) for name, (at, some) in self._added.items()}

    def __call__(self, model, step, row):
        """Adds what `train` has logged at a step: `loss`, the mean since the last row, and the
        numbers of the evaluation whose names end in `_loss`, such as the `held_out_loss` of a
        `HeldOut`."""
        row = row or {}
        losses = {name: row[name] for name in row if name == "loss" or name.endswith("_loss")}
        self.add(step, **losses)

    def add(self, step, **losses):
        """Adds the losses of a step, and renews the figure if it is time.

        Args:
            step: the number of the step. The first step has the number 1; what is measured before
                it has the number 0.
            losses: a loss for each curve, a number or a tensor without axes, under the names that
                the log of `train` gives them: `loss` is drawn as "training", `held_out_loss` as
                "held out", and any other name in the same way.

        Raises:
            ValueError: the step comes after the last one, or before the step that was added last.
        """
        if self.steps and step > self.steps:
            told = f"step {step:,} of a LiveCurve of {self.steps:,} steps"
            raise ValueError(f"{told}; give LiveCurve the number of steps of the run")
        if step < self.step:
            told = f"step {step:,} after step {self.step:,}"
            raise ValueError(f"{told}; make a new LiveCurve for each run, in the cell that trains")
        self.step = step
        for name, loss in losses.items():
            name = "training" if name == "loss" else name.removesuffix("_loss").replace("_", " ")
            at, some = self._added.setdefault(name, ([], []))
            at.append(step)
            # The copy of a tensor stays on the GPU until the figure is renewed.
            some.append(loss.detach().clone() if hasattr(loss, "detach") else float(loss))
        if self._ax is None and (notebook := _notebook()):
            self._begin(notebook)
        if self._ax is not None:
            if step == self.steps:
                self._end()
            elif time.perf_counter() >= self._due:
                self._renew()

    def _begin(self, notebook):
        """Makes the figure and shows it for the first time."""
        from IPython.display import display

        with plt.rc_context(STYLE):
            # pyplot would show its own figures once more at the end of the cell.
            canvas = FigureCanvasAgg(Figure(figsize=(7.0, 3.3)))
            self._ax = ax = canvas.figure.add_axes((0.1, 0.15, 0.86, 0.67))
        ax.set(xlabel="step", ylabel=self.ylabel)
        self._title = ax.set_title("", loc="left", pad=24, animated=True)
        look = {"transform": ax.transAxes, "va": "center", "color": CHANCE, "fontsize": 10}
        self._lines, self._names = {}, []
        for name, value in self.levels.items():
            ax.axhline(value, color=CHANCE, linestyle="--", linewidth=1)
            self._names.append(ax.text(1.015, 0, f"{name} {value:.2f}", **look))
        # The names need room on the right. A layout engine would take longer to find this room than
        # everything else in the drawing takes.
        widths = [name.get_window_extent(canvas.get_renderer()).width for name in self._names]
        room = max(widths, default=0) / canvas.figure.bbox.width
        ax.set_position((0.1, 0.15, 0.86 - room, 0.67))
        self._limits, self._background = (-1, 0, 0), None  # they hold nothing yet
        # This output is empty at first and at the end. nbval compares what an output holds at
        # first, and a notebook stores what it holds at the end; so the two have to be the same.
        self._output = display({}, raw=True, display_id=True)
        self._notebook = notebook
        notebook.events.register("post_run_cell", self._end)
        self._began, self._first_step = time.perf_counter(), self.step
        self._renew()
        self._due = time.perf_counter() + BETWEEN  # the first drawing takes longer than the others

    def _renew(self):
        """Renews the live figure."""
        start, left = time.perf_counter(), ""
        if self.steps and self.step > self._first_step:
            seconds_per_step = (start - self._began) / (self.step - self._first_step)
            left = f", about {seconds_per_step * (self.steps - self.step):,.0f} s left"
        self._output.update(self._picture(left), raw=True)
        end = time.perf_counter()
        self._due = end + max(BETWEEN, (end - start) / SHARE)

    def _end(self, _=None):
        """Shows the figure as an ordinary output. IPython calls this at the end of the cell."""
        from IPython.display import display

        told = self._draw("")
        figure, self._ax = self._ax.figure, None
        self._notebook.events.unregister("post_run_cell", self._end)
        self._output.update({}, raw=True)
        display(bundle(svg(figure), told), raw=True)

    def _picture(self, left):
        """The figure and its alternative text as they are now, in the form of `bundle`. `left` is
        the end of the title, which says how much time is left.

        The picture is a PNG, because an SVG would take longer to write."""
        told = self._draw(left)
        canvas, png = self._ax.figure.canvas, io.BytesIO()
        # The axes are drawn only once, and kept. Curves, legend and title are drawn on top of them.
        if self._background is None:
            canvas.draw()
            self._background = canvas.copy_from_bbox(self._ax.figure.bbox)
        canvas.restore_region(self._background)
        for artist in (self._title, self._ax.get_legend(), *self._lines.values()):
            self._ax.draw_artist(artist)
        fast = {"compress_level": 1}
        plt.imsave(png, np.asarray(canvas.buffer_rgba()), format="png", pil_kwargs=fast)
        return bundle(png.getvalue(), told)

    def _draw(self, left):
        """Brings the figure up to date, and returns its alternative text.

        Args:
            left: the end of the title, which says how much time is left.
        """
        ax, of = self._ax, f" of {self.steps:,}" if self.steps else ""
        self._title.set_text(f"Step {self.step:,}{of}{left}")
        told = []
        for name, (at, some) in self.losses.items():
            steps, losses, every = _means(at, some)
            if name not in self._lines:
                look = LIVE_LOOKS.get(name, LIVE_LOOKS["others"][len(self._lines) % 3])
                (self._lines[name],) = ax.plot([], [], animated=True, markersize=5, **look)
            line = self._lines[name]
            line.set_data(steps, losses)
            line.set_marker("o" if len(steps) <= 20 else "")
            line.set_label(f"{name} {losses[-1]:.2f}" + f" (mean of {every})" * (every > 1))
            told.append(f"{name} from {two_digits(losses[0])} to {two_digits(losses[-1])}")
        place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderpad": 0, "frameon": False}
        ax.legend(handles=self._lines.values(), ncols=4, columnspacing=1.2, **place).set_animated(
            True
        )
        self._stretch()
        curves = f": {', '.join(told)}" if told else ""
        told = [f"Losses against steps, at step {self.step:,}{of}{left}{curves}."]
        for name, value in self.levels.items():
            told.append(f"A dashed line at {two_digits(value)}, {name}.")
        return " ".join(told)

    def _stretch(self):
        """Makes the axes larger if they do not hold all curves and levels."""
        ax, (right, bottom, top) = self._ax, self._limits
        values = [value for line in self._lines.values() for value in line.get_ydata()]
        values = [value for value in [*values, *self.levels.values()] if math.isfinite(value)]
        low, high = min([0, *values]), max([0, *values])
        if self.step <= right and bottom <= low and high <= top:
            return
        # If the last step is not known, the axis ends at the next power of 2, so that it seldom
        # changes.
        right = self.steps or 2 ** self.step.bit_length()
        height = 1.1 * (high - low) or 1.0
        bottom, top = low, low + height
        self._limits, self._background = (right, bottom, top), None
        ax.set(xlim=(0, right), ylim=(bottom, top))
        places = _apart([(value - bottom) / height for value in self.levels.values()], gap=0.075)
        for name, place in zip(self._names, places):
            name.set_y(place)


def _means(steps, losses):
    """The steps and the mean losses of at most `MOST_POINTS` points, and the number of losses in
    each mean. The first may have fewer losses. The step of a point is that of its last loss."""
    every = -(-len(losses) // MOST_POINTS)
    ends = range(len(losses), 0, -every)[::-1]
    means = [sum(part) / len(part) for part in (losses[max(0, e - every) : e] for e in ends)]
    return [steps[end - 1] for end in ends], means, every


def _apart(places, *, gap):
    """Moves rising places up or down until neighbours are at least `gap` apart and none is above
    1."""
    lowest = -math.inf
    for i, place in enumerate(places):
        places[i] = lowest = max(place, lowest + gap)
    highest = 1.0
    for i in reversed(range(len(places))):
        places[i] = min(places[i], highest)
        highest = places[i] - gap
    return places


def _notebook():
    """The IPython shell of the notebook in which this program runs, or None outside of one."""
    shell = getattr(builtins, "get_ipython", lambda: None)()
    return shell if hasattr(shell, "kernel") else None


def histogram(values, *, xlabel, low=None, high=None, name="", bins=40, color=OURS, ax=None):
    """Draw how often the values fall into each of some equally wide bins. If `low` and `high` are
    given, the range between them is shaded and labelled with `name`.

    Args:
        values: the numbers to count.
        xlabel: what the values are, with their unit.
        low, high: the ends of the shaded range.
        name: the label of the range, written above it.
        bins: the number of bins between the smallest and the largest value.
        color: the colour of the bars.
        ax: the axes to draw on; new ones by default.
    """
    ax, values = ax or axes(), np.asarray(values, float)
    ax.hist(values, bins=bins, color=color)
    ax.set(xlabel=xlabel, ylabel="how often")
    what = f"Histogram of {len(values):,} values of {xlabel}"
    spread = f"mean {values.mean():.2f}, standard deviation {values.std(ddof=1):.2g}"
    if low is None:
        return tell(ax, f"{what}: {spread}.")
    ax.axvspan(low, high, color=CHANCE, alpha=0.15, linewidth=0, zorder=0)
    middle = ((low + high) / 2, 1)
    label = {"xytext": (0, 4), "ha": "center", "color": CHANCE, "annotation_clip": False}
    ax.annotate(name, middle, xycoords=("data", "axes fraction"), **label, **OFFSET)
    inside = ((values >= low) & (values <= high)).mean()
    band = f"{inside:.0%} of the values are between {low:.2f} and {high:.2f}"
    return tell(ax, f"{what}: {spread}; {band}.")
