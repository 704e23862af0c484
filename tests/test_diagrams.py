import IPython.display
import matplotlib
import pytest

matplotlib.use("Agg")

from mlm_lib import diagrams, plots


@pytest.fixture
def shown(monkeypatch):
    found = {}

    def display(data, raw, metadata):
        found.update(data)

    monkeypatch.setattr(IPython.display, "display", display)
    return found


def test_the_pipeline_tells_which_parts_are_lit(shown):
    diagrams.pipeline("masking", "labels")
    assert shown["text/plain"].endswith("Lit in this lesson: masking, labels.")
    assert shown["image/png"]


def test_a_part_that_the_picture_has_not_is_refused(shown):
    with pytest.raises(ValueError, match="lit='decoder'; one of text, ids, masking"):
        diagrams.pipeline("decoder")
    assert not shown


def test_a_lit_box_is_filled_and_the_others_are_not():
    ax = diagrams.blank(4, 2)
    diagrams.box(ax, (0, 0), "head", lit=True)
    diagrams.box(ax, (2, 0), "loss")
    colors = [matplotlib.colors.to_hex(patch.get_facecolor()) for patch in ax.patches]
    assert colors == [plots.OURS.lower(), "#ffffff"]
