import IPython.display
import matplotlib
import pytest

matplotlib.use("Agg")

from mlm_lib import diagrams, plots


@pytest.fixture
def shown(monkeypatch):
    found = {}

    def display(data, raw):
        found.update(data)

    monkeypatch.setattr(IPython.display, "display", display)
    return found


def test_the_pipeline_tells_which_parts_are_lit(shown):
    diagrams.pipeline("masking", "labels")
    assert shown["text/plain"].endswith("Lit in this lesson: masking, labels.")
    assert "data:image/png" in shown["text/html"]


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


def test_a_block_is_told_in_its_order(shown):
    diagrams.encoder_block()
    told = shown["text/plain"]
    order = ["attention", "mask (B, T)", "feed-forward", "added", "normalised", "leave"]
    assert [told.index(part) for part in order] == sorted(told.index(part) for part in order)
    assert "data:image/png" in shown["text/html"]


def test_the_masked_language_model_tells_each_way_to_ask(shown):
    diagrams.masked_language_model()
    told = shown["text/plain"]
    assert "labels (B, T): N labelled ones gives logits (N, V), loss" in told
    assert "mask_positions (B, M) gives logits (B, M, V), probabilities" in told
    assert "blanks (B, M)" in told
    assert "nothing asked: all B·T positions gives logits (B, T, V)" in told
    assert "data:image/png" in shown["text/html"]


@pytest.mark.parametrize("picture", [diagrams.encoder_block, diagrams.masked_language_model])
def test_no_text_leaves_its_box_or_the_picture(picture, monkeypatch):
    kept = []
    monkeypatch.setattr(diagrams, "show", kept.append)
    picture()
    (ax,) = kept
    ax.figure.canvas.draw()
    frame = ax.get_window_extent()
    boxes = [patch.get_window_extent() for patch in ax.patches]
    for text in (t for t in ax.texts if t.get_text()):
        found = text.get_window_extent()
        middle = (found.x0 + found.x1) / 2, (found.y0 + found.y1) / 2
        around = [box for box in boxes if box.contains(*middle)] or [frame]
        for corner in ((found.x0, found.y0), (found.x1, found.y1)):
            assert around[0].contains(*corner), text.get_text()


def test_a_path_ends_in_an_arrowhead():
    ax = diagrams.blank(4, 2)
    diagrams.path(ax, (0, 0), (1, 0), (1, 1))
    assert ax.lines[0].get_xydata().tolist() == [[0, 0], [1, 0]]
    assert ax.texts[0].xy == (1, 1)


def test_a_trellis_shows_alpha_and_beta_at_each_turn_and_the_share_of_their_product():
    words, states = ["so", "dull"], ["good", "bad"]
    ax = diagrams.trellis(words, states, [0, 2], [[0.5, 0.1], [0.5, 0.3]], [[0.2, 1.0], [0.6, 1.0]])
    texts = [text.get_text() for text in ax.texts]
    assert {"so", "dull", "good", "bad", "α 0.300", "β 0.600", "0.25", "0.75"} <= set(texts)
    assert " ".join(ax.figure.told).endswith("Shares of α·β: good 0.25, bad 0.75.")
    assert "State bad along so dull: at 0 α 0.5 β 0.6, at 2 α 0.3 β 1." in " ".join(ax.figure.told)
