import itertools

import IPython.display
import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch

matplotlib.use("Agg")

from mlm_lib import diagrams, plots
from mlm_lib.losses import masked_cross_entropy


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


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
    assert "data:image/svg+xml" in shown["text/html"]


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
    assert "data:image/svg+xml" in shown["text/html"]


def test_the_masked_language_model_tells_each_way_to_ask(shown):
    diagrams.masked_language_model()
    told = shown["text/plain"]
    assert "labels (B, T): N labelled ones gives logits (N, V), loss" in told
    assert "mask_positions (B, M) gives logits (B, M, V), probabilities" in told
    assert "blanks (B, M)" in told
    assert "nothing asked: all B·T positions gives logits (B, T, V)" in told
    assert "data:image/svg+xml" in shown["text/html"]


TOKENS = "[CLS] i have watched this film and it was unforgettable . [SEP]".split()
MASKED = "[CLS] i have [MASK] this film and it was physics . [SEP]".split()
LABELS = torch.tensor([-100, -100, -100, 14, -100, 48, -100, -100, -100, 50, -100, -100])

WORDS = "it was [MASK] . really great .".split()
FACTORS = {"good": [1, 1 / 3], "bad": [1, 0]}
ALPHA = {"good": [2 / 3, 2 / 3, 2 / 9], "bad": [1 / 3, 1 / 3, 0]}
BETA = {"good": [1 / 3, 1 / 3, 1], "bad": [0, 0, 1]}

ARMS = {"base": "hides 15%", "40%": "hides 40%"}

DRAWN = {
    "a block": diagrams.encoder_block,
    "a model": diagrams.masked_language_model,
    "masking": lambda: diagrams.masking(TOKENS, MASKED, LABELS),
    "one token, kept": lambda: diagrams.masking(["a"], ["a"], [7]),
    "the widest batch": lambda: diagrams.masked_loss(
        torch.arange(9900, 9912)[None], torch.full((1, 12), 12.34)
    ),
    "tokens over losses": lambda: diagrams.masked_loss(
        LABELS.view(2, 6), torch.ones(2, 6), [TOKENS[:6], TOKENS[6:]]
    ),
    "the widest batch of tokens": lambda: diagrams.masked_loss(
        LABELS[None], torch.full((1, 12), 12.34), [MASKED]
    ),
    "no label": lambda: diagrams.masked_loss(torch.full((1, 3), -100), torch.zeros(1, 3)),
    "the head of a large model": lambda: diagrams.lm_head(1024, 250_112),
    "the head, with numbers": lambda: diagrams.lm_head(
        256, 8192, ["unforgettable", "$"], [11.0, -12.5], [-0.25, 0.5]
    ),
    "tying": lambda: diagrams.tying(250_112, 1024, ["unforgettable", "film", "it"]),
    "attention": lambda: diagrams.attention(TOKENS, 9, torch.arange(12.0), 64),
    "rotary positions": lambda: diagrams.rotary([(5, 9), (108, 112), (9, 5)], 25),
    "forward and backward": lambda: diagrams.forward_backward(
        WORDS, [0, 4, 7], FACTORS, ALPHA, BETA
    ),
    "one sentence": lambda: diagrams.forward_backward(
        ["[MASK]"], [0, 1], {"a": [0.1234]}, {"a": [1, 0.1234]}, {"a": [0.1234, 1]}
    ),
    "an ablation before its runs": lambda: diagrams.ablation(ARMS, "the same\ntexts", seeds=[7, 8]),
    "an ablation with its results": lambda: diagrams.ablation(
        ARMS, "the same\nheld-out texts", seeds=range(4), results=dict.fromkeys(ARMS, [12.34] * 4)
    ),
}


@pytest.mark.parametrize("picture", DRAWN.values(), ids=DRAWN)
def test_no_text_leaves_its_box_or_covers_another_and_nothing_leaves_the_picture(
    picture, monkeypatch
):
    kept = []
    monkeypatch.setattr(diagrams, "show", kept.append)
    picture()
    (ax,) = kept
    ax.figure.canvas.draw()
    frame = ax.get_window_extent()
    boxes = [patch.get_window_extent() for patch in ax.patches]
    texts = {text: text.get_window_extent() for text in ax.texts if text.get_text()}
    for text, found in texts.items():
        middle = (found.x0 + found.x1) / 2, (found.y0 + found.y1) / 2
        around = [box for box in boxes if box.contains(*middle)] or [frame]
        for corner in ((found.x0, found.y0), (found.x1, found.y1)):
            assert around[0].contains(*corner), text.get_text()
    for box in boxes:
        assert frame.contains(box.x0, box.y0) and frame.contains(box.x1, box.y1)
    for (one, found), (other, place) in itertools.combinations(texts.items(), 2):
        assert not found.padded(-1).overlaps(place), (one.get_text(), other.get_text())


def test_a_path_ends_in_an_arrowhead():
    ax = diagrams.blank(4, 2)
    diagrams.path(ax, (0, 0), (1, 0), (1, 1))
    assert ax.lines[0].get_xydata().tolist() == [[0, 0], [1, 0]]
    assert ax.texts[0].xy == (1, 1)


# ------------------------------------------------------------ diagrams of the numbers of a lesson


def texts(ax):
    return [text.get_text() for text in ax.texts]


def drawn(monkeypatch, picture, *arguments):
    """The axes on which a diagram has been drawn, which is not shown."""
    kept = []
    monkeypatch.setattr(diagrams, "show", kept.append)
    picture(*arguments)
    return kept[0]


def test_masking_tells_what_became_of_each_chosen_token(shown):
    diagrams.masking(TOKENS, MASKED, LABELS)
    told = shown["text/plain"]
    assert "Chosen: 3 of 12 (1 [MASK], 1 random, 1 kept)." in told
    assert "watched at position 3 becomes [MASK], film at position 5 is kept" in told
    assert "unforgettable at position 9 becomes physics" in told
    assert told.endswith("the label −100: 9.")


def test_masking_colours_what_the_model_reads_by_what_happened_to_it(monkeypatch):
    ax = drawn(monkeypatch, diagrams.masking, TOKENS, MASKED, LABELS)
    faces = [matplotlib.colors.to_hex(patch.get_facecolor()) for patch in ax.patches]
    reads = dict(zip(TOKENS, faces[1::2]))  # boxes come in pairs: the token, what is read
    expected = {"i": "#ededed", "watched": plots.OURS.lower(), "film": plots.SKY.lower()}
    assert {token: reads[token] for token in expected} == expected
    assert reads["unforgettable"] == plots.ALERT.lower()
    assert texts(ax).count("−100") == 9 and {"14", "48", "50"} <= set(texts(ax))


def test_masking_shows_a_row_in_which_nothing_was_chosen(shown):
    diagrams.masking(["a", "b"], ["a", "b"], [-100, -100])
    assert "Chosen: 0 of 2 (0 [MASK], 0 random, 0 kept). The label" in shown["text/plain"]


@pytest.mark.parametrize(
    "masked, labels, message",
    [
        (MASKED[:-1], LABELS, "masked_tokens has 11 entries; 12 are needed, as in tokens"),
        (MASKED, LABELS[1:], "labels has 11 entries; 12 are needed, as in tokens"),
        (MASKED, LABELS[None], r"labels=a torch.int64 tensor \(1, 12\); a tensor \(T,\) is needed"),
        (MASKED, [-100] * 12, "at position 3 'watched' became '\\[MASK\\]', but its label is −100"),
    ],
)
def test_masking_refuses_rows_that_do_not_belong_together(masked, labels, message, shown):
    with pytest.raises(ValueError, match=message):
        diagrams.masking(TOKENS, masked, labels)
    assert not shown


def test_the_loss_is_the_mean_over_labels_and_the_other_losses_are_not_shown(monkeypatch):
    labels = torch.tensor([[-100, 7, -100], [8, -100, -100]])
    losses = torch.tensor([[9.0, 1.0, 9.0], [3.0, 9.0, 9.0]])
    ax = drawn(monkeypatch, diagrams.masked_loss, labels, losses)
    assert "loss = (1.00 + 3.00) / 2 = 2.00" in texts(ax) and "9.00" not in texts(ax)
    told = " ".join(ax.figure.told)
    assert "positions with a label (2); the positions with −100 (4) are left out" in told


def test_the_shown_mean_is_the_loss_of_the_package(monkeypatch):
    torch.manual_seed(0)
    logits, labels = torch.randn(2, 5, 11), torch.randint(11, (2, 5))
    labels[:, ::2] = -100
    losses = torch.nn.functional.cross_entropy(logits.mT, labels, reduction="none")
    ax = drawn(monkeypatch, diagrams.masked_loss, labels, losses)
    assert any(t.endswith(f"= {masked_cross_entropy(logits, labels):.2f}") for t in texts(ax))


def test_many_losses_are_not_all_written_into_the_sum_but_all_count(monkeypatch):
    labels, losses = torch.zeros(1, 8).long(), torch.arange(8.0)[None]
    ax = drawn(monkeypatch, diagrams.masked_loss, labels, losses)
    assert "loss = (0.00 + 1.00 + 2.00 + 3.00 + … + 7.00) / 8 = 3.50" in texts(ax)


@pytest.mark.parametrize(
    "labels, losses, tokens, message",
    [
        (torch.zeros(2, 3).long(), torch.zeros(6), None, r"a tensor \(2, 3\), the shape of labels"),
        (torch.zeros(2, 3).long(), torch.zeros(2, 3), [["a"] * 3], "tokens=.* for each of 2 rows"),
        (torch.zeros(7, 3).long(), torch.zeros(7, 3), None, "rows of labels=7; .* from 1 to 6"),
        (torch.zeros(1, 13).long(), torch.zeros(1, 13), None, "columns of labels=13; .* 1 to 12"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(labels, losses, tokens, message):
    with pytest.raises(ValueError, match=message):
        diagrams.masked_loss(labels, losses, tokens)


def test_the_head_adds_the_bias_and_lights_the_highest_score(monkeypatch):
    words, products, biases = ["the", "film"], torch.tensor([3.0, 2.5]), torch.tensor([-1.0, 0.25])
    ax = drawn(monkeypatch, diagrams.lm_head, 256, 8192, words, products, biases)
    assert {"3.00", "−1.00", "2.00", "2.50", "+0.25", "2.75"} <= set(texts(ax))
    assert "highest score: film" in texts(ax)
    lit = [p for p in ax.patches if p.get_facecolor() == matplotlib.colors.to_rgba(plots.OURS)]
    (height,) = {round(text.get_position()[1], 3) for text in ax.texts if text.get_text() == "film"}
    assert round(lit[-1].get_center()[1], 3) == height
    assert "the 3.00 −1.00 = 2.00, film 2.50 +0.25 = 2.75." in ax.figure.told[-1]
    with pytest.raises(ValueError, match="2 words, 1 products and 2 biases; as many of each"):
        diagrams.lm_head(256, 8192, words, [1.0], biases)


def test_tying_fills_one_row_at_the_entrance_and_all_at_the_exit(monkeypatch):
    ax = drawn(monkeypatch, diagrams.tying, 1000, 4, ["film", "the", "it"])
    filled = [p for p in ax.patches if p.get_facecolor() == matplotlib.colors.to_rgba(plots.OURS)]
    rows = sorted((p.get_x() > 3, p.get_y()) for p in filled)
    assert len(set(rows)) == 1 + 3
    told = " ".join(ax.figure.told)
    assert "the row of film is looked up" in told and "1,000 · 4 = 4,000 numbers" in told


def test_attention_weighs_by_the_softmax_of_the_scores(monkeypatch):
    scores = torch.tensor([0.0, 0.0, 2.0], dtype=torch.float64).log1p().requires_grad_()
    ax = drawn(monkeypatch, diagrams.attention, ["a", "b", "c"], 1, scores, 64)
    assert {"0.20", "0.60", "1.10"} <= set(texts(ax))
    told = " ".join(ax.figure.told)
    assert "The query of b, of 64 numbers" in told and "weights a 0.20, b 0.20, c 0.60." in told
    with pytest.raises(ValueError, match="a score for each token, is needed"):
        diagrams.attention(["a", "b"], 1, scores, 64)
    with pytest.raises(ValueError, match="query=3; a whole number from 0 to 2"):
        diagrams.attention(["a", "b", "c"], 3, scores, 64)


def test_rotary_products_are_equal_where_offset_and_side_are_equal(monkeypatch):
    ax = drawn(monkeypatch, diagrams.rotary, [(5, 9), (8, 12), (9, 5)], 25)
    products = [text for text in texts(ax) if text.startswith("q · k")]
    assert products == [f"q · k = {product}" for product in ("0.77", "−0.77", "−0.77", "0.50")]
    assert "query at 9, key at 5: from query to key −60°, product 0.50." in ax.figure.told
    with pytest.raises(ValueError, match="the number of pairs of positions=4; a whole number"):
        diagrams.rotary([(0, 1)] * 4, 25)


def test_alpha_before_the_blank_meets_beta_after_it(monkeypatch):
    given = WORDS, [0, 4, 7], FACTORS, ALPHA, BETA
    ax = drawn(monkeypatch, diagrams.forward_backward, *given)
    lit = {
        color: {
            round(patch.get_center()[0], 2)
            for patch in ax.patches
            if matplotlib.colors.to_hex(patch.get_facecolor()) == color.lower()
            and patch.get_y() < -1
        }
        for color in (plots.OURS, plots.ALERT)
    }
    boundaries = {t.get_text(): round(t.get_position()[0], 2) for t in ax.texts}
    assert lit[plots.OURS] == {boundaries["boundary 0"]}
    assert lit[plots.ALERT] == {boundaries["boundary 1"]}
    told = " ".join(ax.figure.told)
    assert "Factors of the sentences: good 1, 1/3; bad 1, 0." in told
    assert (
        "the words to the left), at boundaries 0 to 2: good 2/3, 2/3, 2/9; bad 1/3, 1/3, 0." in told
    )
    assert "the right | mood), at boundaries 0 to 2: good 1/3, 1/3, 1; bad 0, 0, 1." in told
    assert told.endswith("is in sentence 1. There α at boundary 0 meets β at boundary 1.")
    assert texts(ax).count("× 1/3") == 2  # once for α, once for β


def test_a_blank_in_a_later_sentence_meets_the_numbers_at_its_own_ends(shown):
    words = "it was great . really [MASK] .".split()
    factors = {"good": [2 / 3, 0.5], "bad": [0, 0.5]}
    alpha = {"good": [2 / 3, 4 / 9, 2 / 9], "bad": [1 / 3, 0, 0]}
    beta = {"good": [1 / 3, 0.5, 1], "bad": [0, 0.5, 1]}
    diagrams.forward_backward(words, [0, 4, 7], factors, alpha, beta)
    end = "sentence 2. There α at boundary 1 meets β at boundary 2."
    assert shown["text/plain"].endswith(end)


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"words": ["it"] * 7}, r"words=.*; a list that holds \[MASK\] is needed"),
        ({"boundaries": [0, 4, 8]}, r"boundaries=\[0, 4, 8\]; a list that rises from 0 to 7"),
        ({"boundaries": [0, 4, 4, 7]}, "a list that rises from 0 to 7"),
        (
            {"factors": {"good": [1, 1 / 3]}},
            "factors=.*; a list of 2 numbers for each of good, bad",
        ),
        (
            {"beta": {"good": [1, 1], "bad": [0, 1]}},
            "beta=.*; a list of 3 numbers for each of good",
        ),
        (
            {"alpha": {**ALPHA, "good": [2 / 3, 2 / 3, 2 / 3]}},
            r"alpha\['good'\]\[2\] is 2/3, but alpha there is 2/3 × 1/3 = 2/9",
        ),
        (
            {"beta": {**BETA, "bad": [1, 0, 1]}},
            r"beta\['bad'\]\[0\] is 1, but beta there is 0 × 1 = 0",
        ),
    ],
)
def test_numbers_that_are_not_those_of_the_two_passes_are_refused(changed, message, shown):
    given = {"words": WORDS, "boundaries": [0, 4, 7], "factors": FACTORS}
    given |= {"alpha": ALPHA, "beta": BETA} | changed
    with pytest.raises(ValueError, match=message):
        diagrams.forward_backward(**given)
    assert not shown


def test_a_text_that_is_too_long_is_cut_and_says_so():
    assert diagrams.shortened("film", 1.0, 9) == "film"
    cut = diagrams.shortened("unforgettable", 0.6, 9)
    assert cut.endswith("…") and "unforgettable".startswith(cut[:-1])
    assert diagrams.text_width(cut, 9) <= 0.6 < diagrams.text_width("unforgettable", 9)


STEP = {"blocks": 60.0, "head": 30.0, "AdamW": 10.0}


def test_the_parts_of_a_step_follow_one_another_and_their_shares_are_told(shown, monkeypatch):
    drawn = []
    monkeypatch.setattr(diagrams, "show", drawn.append)
    diagrams.step_time(STEP, longest=200)
    (ax,) = drawn
    bars = [(bar.get_x(), bar.get_width()) for bar in ax.patches]
    assert bars == [(0, 60), (60, 30), (90, 10)]
    assert ax.get_xlim()[1] >= 200  # so that two diagrams have one axis
    assert "100 ms" in ax.figure.told[0] and "head 30 ms, 30%" in ax.figure.told[0]


@pytest.mark.parametrize(
    "parts, longest, message",
    [
        ({}, None, "the number of parts"),
        ({"blocks": -1.0, "head": 2.0}, None, "times of at least 0"),
        ({"blocks": 0.0}, None, "one above 0"),
        (STEP, 90, "longest=90; the parts take 100 ms together"),
    ],
)
def test_times_that_no_step_can_have_are_refused(parts, longest, message, shown):
    with pytest.raises(ValueError, match=message):
        diagrams.step_time(parts, longest=longest)
    assert not shown


def test_an_ablation_subtracts_the_base_seed_by_seed(shown):
    results = {"40%": [1.0, 2.5], "base": [1.5, 2.0]}
    diagrams.ablation(ARMS, "the same\ntexts", seeds=[3, 4], results=results)
    told = shown["text/plain"]
    assert "each of the seeds 3, 4." in told and "The judge of all runs: the same texts." in told
    assert "Results of the arm base, which hides 15%: 1.50, 2.00." in told
    assert told.endswith("The differences, seed by seed: −0.50, +0.50.")


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"arms": {"base": "hides 15%"}}, "the number of arms=1"),
        ({"seeds": range(5)}, "the number of seeds=5"),
        (
            {"results": {"base": [1, 2, 3], "40%": [1, 2]}},
            r"results\['40%'\]=.*for each of 3 seeds",
        ),
        ({"results": {"base": [1, 2, 3]}}, "results=.*; a list for each of base, 40% is needed"),
    ],
)
def test_an_ablation_needs_two_arms_and_a_result_for_each_seed(changed, message, shown):
    with pytest.raises(ValueError, match=message):
        diagrams.ablation(**{"arms": ARMS, "judge": "the same texts"} | changed)
    assert not shown
