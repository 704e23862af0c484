import base64
import io
import itertools
from html.parser import HTMLParser
from xml.etree import ElementTree

import matplotlib
import nbformat
import notebook_form
import numpy as np
import pytest
import torch
from dark_theme import in_the_dark

matplotlib.use("Agg")

from mlm_lib import plots
from mlm_lib.diagrams import FATES
from mlm_lib.estimates import interval

SVG = "{http://www.w3.org/2000/svg}"


def test_a_figure_without_alternative_text_is_refused():
    with pytest.raises(ValueError, match="alt"):
        plots.show(plots.axes(), " ")


@pytest.fixture
def shown(monkeypatch):
    """The display data of what is shown, as the kernel hands them on."""
    import IPython.display

    found = {}
    monkeypatch.setattr(IPython.display, "display", lambda data, raw: found.update(data))
    return found


def images(page):
    """The attributes of each image of an HTML page."""
    found, parser = [], HTMLParser()
    parser.handle_starttag = lambda tag, attributes: found.append((tag, dict(attributes)))
    parser.feed(page)
    return [attributes for tag, attributes in found if tag == "img"]


def test_show_hands_on_picture_and_text_and_closes_the_figure(shown):
    import matplotlib.pyplot as plt

    ax = plots.bars(["a", "b"], [0.7, 0.3], xlabel="p", reference=0.5, reference_name="chance")
    plots.show(ax, "two bars")
    (image,) = images(shown["text/html"])
    assert image["alt"] == shown["text/plain"] == "two bars"
    assert base64.b64decode(image["src"].split(",")[1]).startswith(b"<svg")
    assert not plt.fignum_exists(ax.figure.number)


ODD = """a < b & "c" 'd' \u2014 \u00e9"""


def test_jupyterlab_is_left_no_picture_without_its_text():
    """Of several forms it shows the richest. It drops the text of any picture that is not HTML, and
    of HTML it keeps `src` and `alt` also where the notebook is not trusted."""
    data = plots.bundle(b"<svg/>", ODD)
    assert set(data) == {"text/html", "text/plain"}
    (image,) = images(data["text/html"])
    assert image == {"src": "data:image/svg+xml;base64,PHN2Zy8+", "alt": ODD}


def test_a_notebook_turned_into_a_page_keeps_the_text():
    from nbconvert import HTMLExporter

    output = nbformat.v4.new_output("display_data", plots.bundle(b"<svg/>", ODD))
    cell = nbformat.v4.new_code_cell("plots.show(ax)", outputs=[output], execution_count=1)
    page, _ = HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
    (image,) = [one for one in images(page) if one["src"].startswith("data:image/svg+xml")]
    assert image["alt"] == ODD


def test_a_figure_stored_with_its_text_beside_it_comes_to_carry_it():
    data = {"image/png": "iVBORw0KGgo=", "text/plain": ODD}
    output = nbformat.v4.new_output("display_data", data, metadata={"image/png": {"alt": ODD}})
    cell = nbformat.v4.new_code_cell("plots.show(ax)", outputs=[output], execution_count=1)
    assert notebook_form.alternative_texts(cell) == [""]
    (cell,) = notebook_form.normalised(nbformat.v4.new_notebook(cells=[cell])).cells
    assert cell.outputs[0].data == plots.bundle(b"\x89PNG\r\n\x1a\n", ODD)
    assert "data:image/png;base64,iVBORw0KGgo=" in cell.outputs[0].data["text/html"]
    assert not cell.outputs[0].metadata and notebook_form.alternative_texts(cell) == [ODD]


def told(ax):
    return " ".join(ax.figure.told)


def test_a_figure_tells_what_it_shows():
    bars = plots.bars(["a", "b"], [0.7, 0.3], xlabel="p", reference=0.5, reference_name="chance")
    assert told(bars) == "Bars, p: a 0.7, b 0.3. A dashed line at 0.5, chance."
    curve = plots.curve([0, 2000], [9.01, 4.6], xlabel="steps", ylabel="loss", name="ours")
    assert told(curve).startswith("Curve of ours, loss against steps: from 9 at 0 to 4.6 at 2,000")
    observed = {"ours": (plots.OURS, [0.51, 0.6])}
    bands = plots.bands(["chosen", "kept"], [0.5, 0.5], [9999, 9999], observed, xlabel="points")
    assert told(bands).endswith("for chosen, kept; outside: chosen of ours, kept of ours.")
    strip = plots.token_strip(
        ["a", "b"], ["seen", "asked"], {"seen": "#EDEDED", "asked": "#000000"}
    )
    assert told(strip) == "2 tokens in boxes, coloured by their fate: 1 seen, 1 asked."


def test_a_place_between_whole_numbers_is_told_in_three_digits():
    ax = plots.curve([0.009219682876640378, 0.5], [3.0, 1.0], xlabel="rate", ylabel="loss")
    assert "from 3 at 0.00922 to 1 at 0.5" in told(ax)


def test_a_second_drawing_adds_its_sentence():
    ax = plots.curve([0, 1], [2, 1], xlabel="x", ylabel="y", name="first")
    plots.curve([0, 1], [2, 0], xlabel="x", ylabel="y", name="second", ax=ax)
    assert "first" in ax.figure.told[0] and "second" in ax.figure.told[1]


def test_dots_stand_on_a_logarithmic_axis_in_the_order_given():
    ax = plots.dots(["first", "second"], [0.4, 6e-6], xlabel="p", reference=1e-4)
    assert ax.get_xscale() == "log"
    heights = dict(zip([label.get_text() for label in ax.get_yticklabels()], ax.get_yticks()))
    assert heights["first"] > heights["second"]
    assert [text.get_text() for text in ax.texts][:2] == ["0.4", "0.000006"]
    ax.figure.draw_without_rendering()
    left = min(text.get_window_extent().x0 for text in ax.texts[:2])
    assert left > ax.get_window_extent().x0, "a label does not lie on the axis"
    assert [text.get_ha() for text in ax.texts][:2] == ["left", "right"], "off the dashed line"


def test_intervals_draw_each_mean_between_its_ends():
    values = [interval([0.1, 0.3]), interval([-0.2, -0.4])]
    ax = plots.intervals(["a", "b"], values, xlabel="nats", reference=0, reference_name="no effect")
    whisker, mean = ax.lines[0], ax.lines[1]
    assert list(whisker.get_xdata()) == [values[0].low, values[0].high]
    assert mean.get_xdata()[0] == values[0].mean and mean.get_ydata()[0] == 1
    assert told(ax).startswith("Means with intervals, nats: a 0.2 (-1.1 to 1.5), b -0.3")


def test_a_curves_band_is_shaded_and_told():
    ax = plots.curve([1, 2], [3, 4], xlabel="x", ylabel="y", low=[2, 3.5], high=[4, 4.5])
    (band,) = ax.collections
    assert band.get_datalim(ax.transData).y0 == 2
    assert told(ax).endswith("lowest 3, with a band from 3.5 to 4.5 at the end.")


def test_bars_stand_in_the_order_given_from_the_top():
    ax = plots.bars(["first", "second"], [1.0, 2.0], xlabel="x")
    heights = dict(zip([label.get_text() for label in ax.get_yticklabels()], ax.get_yticks()))
    assert heights["first"] > heights["second"]
    assert [bar.get_width() for bar in ax.patches] == [1.0, 2.0]


def test_the_band_is_1_96_standard_deviations_in_percentage_points():
    ax = plots.bands(["chosen"], [0.5], [10_000], {"ours": (plots.OURS, [0.51])}, xlabel="points")
    band, (dots, _) = ax.patches[0], ax.lines
    assert band.get_x() == pytest.approx(-0.98) and band.get_width() == pytest.approx(1.96)
    assert dots.get_xdata()[0] == pytest.approx(1.0)


def test_a_strip_draws_a_box_in_the_fates_colour_for_each_token():
    colors = {"seen": "#EDEDED", "asked": plots.OURS}
    ax = plots.token_strip(["a", "b", "c"], ["seen", "asked", "seen"], colors, per_row=2)
    assert [matplotlib.colors.to_hex(box.get_facecolor()) for box in ax.patches] == [
        "#ededed",
        plots.OURS.lower(),
        "#ededed",
    ]
    assert [text.get_text() for text in ax.texts] == ["a", "b", "c"]


COLORS = {name: getattr(plots, name) for name in ("OURS", "LIBRARY", "FLOOR", "CHANCE", "ALERT")}


def test_contrast_is_that_of_wcag():
    assert plots.contrast("#FFFFFF", "#000000") == pytest.approx(21)
    assert plots.contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("name", COLORS)
def test_words_in_a_colour_can_be_read_on_white_and_in_the_dark_theme(name):
    assert plots.contrast(COLORS[name], "#FFFFFF") >= 4.5
    assert plots.contrast(in_the_dark(COLORS[name]), in_the_dark("#FFFFFF")) >= 4.5


@pytest.mark.parametrize("color", [*COLORS.values(), *FATES.values()])
def test_words_in_a_box_can_be_read_in_both_themes(color):
    letters = matplotlib.colors.to_hex(plots.ink(color))
    assert plots.contrast(letters, color) >= 4.5
    assert plots.contrast(in_the_dark(letters), in_the_dark(color)) >= 4.5


# How people see who lack one kind of cone (Machado, Oliveira and Fernandes 2009, severity 1).
EYES = {
    "all cones": np.eye(3),
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
OKABE_ITO = ["#0072B2", "#E69F00", "#009E73", "#767676", "#D55E00"]


def least_distance(colors, eyes):
    """Of two of the colours, the least distance in OKLab, seen with these eyes."""
    shares = np.array([[int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)] for color in colors])
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    seen = np.clip(linear @ np.transpose(eyes), 0, 1)
    cones = [[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.63]]
    lab = [[0.2105, 0.7936, -0.0041], [1.978, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]
    places = np.cbrt(seen @ np.transpose(cones)) @ np.transpose(lab)
    return min(np.linalg.norm(a - b) for a, b in itertools.combinations(places, 2))


def test_colours_can_be_told_apart_with_any_eyes_as_well_as_those_of_okabe_and_ito():
    found = {name: least_distance(COLORS.values(), eyes) for name, eyes in EYES.items()}
    assert min(found.values()) >= min(least_distance(OKABE_ITO, eyes) for eyes in EYES.values())


def test_the_words_of_a_figure_stay_words_and_its_numbers_stay_as_they_are():
    def drawn():
        ax = plots.curve([0.00025, 0.12345], [1.0, 2.0], xlabel="rate 0.00025", ylabel="$ & <b>")
        ax.set_xticks([0.00025, 0.12345], ["0.00025", "0.12345"])
        return plots.svg(ax.figure)

    first = drawn()
    assert first == drawn(), "drawn in the same way, the same bytes"
    words = [element.text for element in ElementTree.fromstring(first).iter(f"{SVG}text")]
    assert {"rate 0.00025", "$ & <b>", "0.00025", "0.12345"} <= set(words)


def test_an_svg_is_smaller_than_the_png_of_the_same_figure():
    ax = plots.dots(list("abcdefgh"), [0.1] * 8, xlabel="p")
    png = io.BytesIO()
    ax.figure.savefig(png, format="png")
    assert len(plots.svg(ax.figure)) < 0.8 * len(png.getvalue())


def test_small_and_large_numbers_are_told_without_a_power_of_ten():
    told = {3.8e-05: "0.000038", 0.4231: "0.42", 9.01: "9", 100.4: "100", -0.1: "-0.1"}
    assert {number: plots.two_digits(number) for number in told} == told


def test_heatmaps_share_one_scale_from_0_to_1_and_mark_where_padding_begins():
    maps = [[[0.0, 0.5]], [[1.0, 0.25]]]
    ax = plots.heatmaps(
        maps,
        ["a"],
        ["a", "[PAD]"],
        titles=["one", "two"],
        xlabel="asked",
        ylabel="asks",
        color_label="w",
        first_padding=1,
    )
    panels = ax.figure.axes[:2]
    assert [panel.images[0].get_clim() for panel in panels] == [(0, 1), (0, 1)]
    assert [panel.images[0].get_array().tolist() for panel in panels] == maps
    assert [panel.lines[0].get_xdata()[0] for panel in panels] == [0.5, 0.5]
    assert [panel.get_title(loc="left") or panel.get_title() for panel in panels] == ["one", "two"]


def test_leak_matrices_draw_what_is_allowed_and_what_leaks_apart():
    sees = [[True, True], [True, True]]
    ax = plots.leak_matrices(
        [sees, [[True, False], [False, False]]],
        [[[False, True], [False, False]], [[False] * 2] * 2],
        titles=["a", "b"],
    )
    first, second = ax.figure.axes
    squares = [
        [
            (
                round(s.get_x() + 0.45),
                round(s.get_y() + 0.45),
                matplotlib.colors.to_hex(s.get_facecolor()),
            )
            for s in panel.patches
        ]
        for panel in (first, second)
    ]
    ours, alert = plots.OURS.lower(), plots.ALERT.lower()
    assert squares == [[(0, 0, ours), (0, 1, ours), (1, 1, ours), (1, 0, alert)], [(0, 0, ours)]]
    assert [panel.lines[0].get_xydata().tolist() for panel in (first, second)] == [[[1.0, 0.0]], []]
    assert first.yaxis_inverted() and [
        panel.get_title(loc="left") or panel.get_title() for panel in (first, second)
    ] == ["a", "b"]


def test_a_level_is_drawn_named_and_told():
    ax = plots.level(plots.curve([1, 4], [3, 1], xlabel="x", ylabel="loss"), 0.5, "floor", x=2)
    assert list(ax.lines[-1].get_ydata()) == [0.5, 0.5] and ax.texts[-1].get_text() == "floor"
    assert told(ax).endswith("A dashed line at 0.5, floor.")


def test_leak_matrices_of_tensors_tell_how_much_is_seen_and_forbidden():
    sees, leak = torch.ones(3, 3, dtype=torch.bool), torch.ones(3, 3, dtype=torch.bool).triu(1)
    ax = plots.leak_matrices([sees], [leak], titles=["a"])
    assert "a sees 9 of 9 inputs, 3 forbidden" in " ".join(ax.figure.told)


def test_a_histogram_tells_how_many_values_are_in_the_shaded_range():
    values = [1.0, 2.0, 2.0, 3.0]
    ax = plots.histogram(values, xlabel="nats", low=1.5, high=2.5, name="half", bins=3)
    assert [bar.get_height() for bar in ax.patches[:3]] == [1, 2, 1]
    assert [text.get_text() for text in ax.texts] == ["half"]
    assert "4 values of nats: mean 2.00, standard deviation 0.82; 50% of" in told(ax)
