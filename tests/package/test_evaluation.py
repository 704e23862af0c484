"""What a model is worth: worked by hand, against loops over single rows, and the pipeline."""

import math
import random
import re

import pytest
import torch
from readers import (
    HF,
    OURS,
    TEXTS,
    TOKENIZER,
    Says,
    V,
    assert_leaves_no_trace,
    batches_of,
    both_models,
    both_tokenizers,
    log_probs,
    masked_rows,
)
from tokenizers import Tokenizer, models
from transformers import BertTokenizerFast, PreTrainedTokenizerFast, pipeline

from mlm_lib.evaluation import (
    Answers,
    calibration,
    closed_gap,
    fill_mask,
    masked_accuracy,
    masked_answers,
    mean_nats,
    pseudo_log_likelihood,
    pseudo_perplexity,
)
from mlm_lib.masking import MaskingCollator
from mlm_lib.pretrained import load_checkpoint, to_hf
from mlm_lib.training import HeldOut
from mlm_lib.wordpiece import WordPieceTokenizer

pytestmark = pytest.mark.usefixtures("one_thread")
ROWS = masked_rows()
BATCHES = batches_of(ROWS, 4)
UNIFORM = torch.zeros(V)
each_precision = pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str
)


def rough(model):
    """A model of 16 bits."""
    made = type(HF)(HF.config) if model is HF else type(model).from_config(model.embedder.config)
    return made.bfloat16()


def answers(nats, rows, targets=None, ranks=None):
    zeros = [0] * len(nats)
    nats = torch.tensor(nats, dtype=torch.float64)
    targets, ranks = torch.tensor(targets or zeros), torch.tensor(ranks or zeros)
    return Answers(targets, nats, ranks, torch.tensor(rows))


def measures(model):
    """Each way of asking a model."""
    return (
        lambda: masked_answers(model, BATCHES).nats.tolist(),
        lambda: fill_mask(model, TOKENIZER, SEVERAL),
        lambda: pseudo_log_likelihood(model, TOKENIZER, TEXTS),
    )


# ------------------------------------------------------------------------------------ answers


def by_hand(model, rows):
    """[(target, nats, rank, row)], one row and one label at a time."""
    found = []
    for number, (ids, labels) in enumerate(rows):
        for logs, target in zip(log_probs(model, ids).tolist(), labels):
            if target != -100:
                order = sorted(range(V), key=lambda token: (-logs[token], token))
                found.append((target, -logs[target], order.index(target), number))
    return found


@both_models
@pytest.mark.parametrize("size", [1, 4, 99])
def test_answers_are_those_of_a_loop_over_single_rows(model, size):
    found, expected = masked_answers(model, batches_of(ROWS, size)), by_hand(model, ROWS)
    targets, nats, ranks, rows = map(list, zip(*expected))
    assert (found.targets.tolist(), found.ranks.tolist()) == (targets, ranks)
    assert found.nats.tolist() == pytest.approx(nats, rel=1e-9) and len(set(ranks)) > 3
    assert found.rows.tolist() == rows and {0, 4, 8}.isdisjoint(rows)  # those without a label
    for top_k in (1, 3, V):
        share = sum(rank < top_k for rank in ranks) / len(ranks)
        accuracy = masked_accuracy(model, batches_of(ROWS, size), top_k=top_k)
        assert accuracy == pytest.approx(share)


@both_models
def test_asking_leaves_no_trace(model):
    for measure in measures(model):
        assert_leaves_no_trace(model, measure)
    assert not masked_answers(model, BATCHES).nats.requires_grad


def test_the_mode_is_put_back_after_an_error_too():
    model = Says(UNIFORM * math.nan).train()
    with pytest.raises(ValueError, match="best score is not finite"):
        masked_answers(model, BATCHES)
    assert model.training


def test_of_equally_likely_tokens_the_first_comes_first_so_that_silence_is_no_answer():
    ids = torch.arange(V)[None]  # each token is asked once
    batch = {"input_ids": ids, "labels": ids}
    found = masked_answers(Says(UNIFORM), [batch])
    assert found.ranks.tolist() == list(range(V))
    assert found.nats.tolist() == pytest.approx([math.log(V)] * V)
    assert masked_accuracy(Says(UNIFORM), [batch], top_k=4) == 4 / V


@both_models
def test_scores_of_16_bits_are_summed_in_more(model):
    model = rough(model)
    found = masked_answers(model, batches_of(ROWS, 1))
    expected = [nats for _, nats, *_ in by_hand(model, ROWS)]
    assert found.nats.dtype == torch.float64
    assert found.nats.tolist() == pytest.approx(expected, rel=1e-6)


@both_models
def test_batches_from_a_generator_and_of_32_bits_do(model):
    narrow = ({name: rows.int() for name, rows in batch.items()} for batch in BATCHES)
    found = masked_answers(model, narrow)
    assert found.targets.dtype == torch.long
    assert found.nats.equal(masked_answers(model, BATCHES).nats)


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_scores_that_are_no_numbers_are_refused_but_a_token_may_be_impossible(score):
    scores = torch.full((V,), score)
    with pytest.raises(ValueError, match="best score is not finite"):
        masked_answers(Says(scores), BATCHES)
    scores = torch.full((V,), -math.inf)
    scores[5] = 0.0
    found = masked_answers(Says(scores), BATCHES)
    pairs = set(zip((found.targets == 5).tolist(), found.nats.tolist()))
    assert pairs == {(True, 0.0), (False, math.inf)}


@both_models
@pytest.mark.parametrize("label", [V, -1])
def test_a_label_that_is_no_token_is_named(model, label):
    batch = {"input_ids": torch.tensor([[5, 6]]), "labels": torch.tensor([[-100, label]])}
    with pytest.raises(ValueError, match=f"labels holds {label}; a number from 0 to 15"):
        masked_answers(model, [batch])


@pytest.mark.parametrize("rows", [[], [([5, 6], [-100, -100])]])
def test_without_a_label_there_is_nothing_to_measure(rows):
    with pytest.raises(ValueError, match=f"{len(rows)} rows without a label; mask more"):
        masked_answers(OURS, batches_of(rows, 2))


# ------------------------------------------------------------------------------ loss and accuracy


@both_models
def test_the_loss_is_that_of_held_out_with_each_token_counted_once(model):
    collate = MaskingCollator(TOKENIZER, seed=3)
    held = HeldOut([[2, *[5 + i % 7] * i, 3] for i in range(1, 17)], collate, batch_size=5)
    found = mean_nats(masked_answers(model, held.batches))
    assert found.count == held.count
    assert found.nats == pytest.approx(held(model)["held_out_loss"], rel=1e-6)
    asked = [batch for batch in held.batches if (batch["labels"] > 0).any()]
    losses = [mean_nats(masked_answers(model, [batch])) for batch in asked]
    assert len({one.count for one in losses}) > 1  # a mean of means would be another number
    assert found.nats == pytest.approx(sum(x.nats * x.count for x in losses) / found.count)


def test_the_standard_error_takes_the_tokens_of_a_row_as_one_draw():
    # Rows of sums 3 and 6, counts 2 and 1; mean 9/3. What they lie off: 3 - 2·3 and 6 - 1·3.
    assert mean_nats(answers([1.0, 2.0, 6.0], [4, 4, 9])) == pytest.approx((3.0, 2.0, 3))
    assert mean_nats(answers([1.0, 2.0], [7, 7])) == (1.5, math.inf, 2)  # one row tells nothing


def test_the_standard_error_is_that_of_a_bootstrap_over_rows():
    draw, rows = random.Random(0), []
    for _ in range(200):
        hard = draw.gauss(3, 1)
        rows.append([draw.gauss(hard, 0.5) for _ in range(draw.randrange(1, 9))])
    found = mean_nats(answers(sum(rows, []), [n for n, row in enumerate(rows) for _ in row]))
    means = []
    for _ in range(2000):
        some = sum(draw.choices(rows, k=len(rows)), [])
        means.append(sum(some) / len(some))
    assert found.standard_error == pytest.approx(torch.tensor(means).std().item(), rel=0.06)


# ------------------------------------------------------------------------- calibration and the gap


def test_a_calibration_worked_by_hand():
    chances = torch.tensor([[0.6, 0.4], [0.7, 0.3], [0.2, 0.8], [1.0, 0.0]])
    found = calibration(chances, torch.tensor([0, 1, 1, 0]), bins=2)
    # All in the upper bin, three of four right at a mean of 3.1/4; the lower one is left out.
    assert found.count.tolist() == [4] and found.accuracy.tolist() == [0.75]
    assert found.confidence.tolist() == pytest.approx([0.775])
    assert found.error == pytest.approx(0.025)
    # In fifths: 0.6 is the end of the third, 0.7 and 0.8 in the fourth, 1 in the last.
    found = calibration(chances, torch.tensor([0, 1, 1, 0]), bins=5)
    assert found.count.tolist() == [1, 2, 1] and found.accuracy.tolist() == [1.0, 0.5, 1.0]
    assert found.confidence.tolist() == pytest.approx([0.6, 0.75, 1.0])
    assert found.error == pytest.approx((0.4 + 2 * 0.25 + 0) / 4)


@each_precision
@pytest.mark.parametrize("bins", [1, 5, 15, 20])
def test_a_confidence_at_the_end_of_a_bin_belongs_to_it_however_it_is_rounded(dtype, bins):
    for place in range(1, bins + 1):
        rest = 1 - place / bins
        row = [place / bins, *[rest / 40] * 40]
        if row[0] < row[1]:
            continue
        nudged = [row[0] + 0.01, *[(rest - 0.01) / 40] * 40]
        rows = torch.tensor([row, nudged], dtype=dtype) if place < bins else torch.tensor([row] * 2)
        found = calibration(rows, torch.tensor([0, 0]), bins=bins)
        assert len(found.count) == 1 + (place < bins)


def test_certain_answers_stand_in_the_last_bin_and_even_ones_in_the_first():
    chances = torch.stack([torch.eye(50)[3], torch.full((50,), 0.02)])
    found = calibration(chances, torch.tensor([3, 0]))
    assert found.confidence.tolist() == pytest.approx([0.02, 1.0])
    assert found.accuracy.tolist() == [1.0, 1.0]
    assert calibration(chances[:1], torch.tensor([4])).error == 1
    rounded = torch.tensor([[1.0, 0.0], [1.0004, 0.0]])  # a sum of 1 but for rounding
    assert calibration(rounded, torch.tensor([0, 0])).count.tolist() == [2]


@each_precision
def test_a_reader_whose_answers_come_as_often_as_he_says_is_calibrated(dtype):
    logits = 4 * torch.randn(8000, 9)
    targets = logits.softmax(-1).multinomial(1)[:, 0]
    assert calibration(logits.to(dtype).softmax(-1), targets).error < 0.025
    assert calibration((3 * logits).to(dtype).softmax(-1), targets).error > 0.1


def test_calibration_is_that_of_a_loop_over_bins():
    chances = (2 * torch.randn(300, 5)).double().softmax(-1).requires_grad_()
    targets = torch.randint(5, (300,))
    found, error = calibration(chances, targets, bins=7), 0.0
    for low in range(7):
        inside = [
            (max(row), row.index(max(row)) == target)
            for row, target in zip(chances.tolist(), targets.tolist())
            if low / 7 < max(row) <= (low + 1) / 7
        ]
        error += abs(sum(sure for sure, _ in inside) - sum(right for _, right in inside)) / 300
    assert found.error == pytest.approx(error) and found.count.sum() == 300
    assert not found.confidence.requires_grad


@pytest.mark.parametrize(
    "chances, targets, words",
    [
        ([[0.5, 0.6]], [0], "probabilities=.* sum to 1"),
        ([[1.0, 0.0], [1.5, -0.5]], [0, 0], "probabilities=.* sum to 1"),
        ([[0.5, math.nan]], [0], "probabilities=.* sum to 1"),
        ([[0.5, 0.5]], [2], "targets holds 2; a number from 0 to 1"),
        ([[0.5, 0.5]], [-100], "targets holds -100; a number from 0 to 1"),
        ([[0.5, 0.5]], [[0]], r"targets=.*a tensor \(N,\)"),
        ([[0.5, 0.5]], [0, 1], "targets=.* a target for each row"),
        ([[0.5, 0.5]][:0], [], r"probabilities=.*a tensor \(N, V\)"),
    ],
)
def test_what_is_no_distribution_or_no_target_is_refused(chances, targets, words):
    with pytest.raises(ValueError, match=words):
        calibration(torch.tensor(chances), torch.tensor(targets))


def test_the_closed_gap_is_0_at_the_start_1_at_the_floor_and_may_be_passed():
    assert [closed_gap(loss, 5, 1) for loss in (5, 2, 1, 6, 0.5)] == [0, 0.75, 1, -0.25, 1.125]
    for start in (1.0, 0.5, math.nan):
        with pytest.raises(ValueError, match=f"start={start} is not above floor=1.0"):
            closed_gap(0.7, start, 1.0)


# ------------------------------------------------------------------------------------ blanks

ONE = ["a [MASK] c", "[MASK]", "[MASK]a b", "abba [MASK] zz", "[PAD] [MASK] a [SEP] b [PAD]"]
SEVERAL = ["[MASK] [MASK]", "a [MASK] c [MASK] ab", "[PAD] [MASK] zz [MASK] [SEP] a [MASK]"]


def same(found, expected):
    """Lists of dicts, or lists of such, with scores to 1e-6 of themselves."""
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected):
        if isinstance(mine, list):
            same(mine, theirs)
        else:
            assert list(mine) == ["score", "token", "token_str", "sequence"]
            assert mine == theirs | {"score": pytest.approx(theirs["score"], rel=1e-6)}


@both_models
@both_tokenizers
@pytest.mark.parametrize("top_k", [1, V])
def test_blanks_are_filled_as_by_the_pipeline(model, tokenizer, top_k):
    fill = pipeline("fill-mask", model=HF, tokenizer=TOKENIZER.to_hf(), top_k=top_k)
    for text in ONE + SEVERAL:
        same(fill_mask(model, tokenizer, text, top_k=top_k), fill(text))


@pytest.mark.parametrize(
    "text",
    [
        "The film was [MASK] and I'd watch it again.",
        "Don't [MASK]: the [MASK] wasn't very good, was it?",
    ],
)
def test_the_models_of_the_course_fill_as_the_pipeline_does(text):
    model, fast = load_checkpoint()
    theirs, words = to_hf(model.double()), WordPieceTokenizer(fast.get_vocab())
    expected = pipeline("fill-mask", model=theirs, tokenizer=fast)(text)
    for reader in (model, theirs):
        same(fill_mask(reader, words, text), expected)
        same(fill_mask(reader, fast, text), expected)


@both_models
@pytest.mark.parametrize("batch_size", [1, 3, 32])
def test_many_texts_are_filled_as_each_alone_in_any_order(model, batch_size):
    texts = ONE + SEVERAL
    alone = [fill_mask(model, TOKENIZER, text) for text in texts]
    same(fill_mask(model, TOKENIZER, texts, batch_size=batch_size), alone)
    turned = fill_mask(model, TOKENIZER, iter(texts[::-1]), batch_size=batch_size)
    same(turned, alone[::-1])
    assert fill_mask(model, TOKENIZER, texts[:1]) == alone[:1]  # a list gives a list
    assert fill_mask(model, TOKENIZER, []) == []


def test_a_model_of_16_bits_gives_scores_that_sum_to_one():
    found = fill_mask(rough(OURS), TOKENIZER, "a [MASK] c", top_k=V)
    assert sum(one["score"] for one in found) == pytest.approx(1, abs=1e-6)


@both_models
@both_tokenizers
@pytest.mark.parametrize(
    "text, options, words",
    [
        (["a [MASK]", "a b"], {}, r"'a b' has no \[MASK\]; write it"),
        ("[MASK]" + " a" * 18, {}, "has 21 tokens; this model reads 20"),
        ("a [MASK]", {"top_k": 0}, "top_k=0"),
        (["a [MASK]"], {"batch_size": -1}, "batch_size=-1"),
    ],
)
def test_what_cannot_be_filled_is_told(model, tokenizer, text, options, words):
    with pytest.raises(ValueError, match=words):
        fill_mask(model, tokenizer, text, **options)
    assert len(fill_mask(model, tokenizer, "[MASK]" + " a" * 17)) == 5  # 20 tokens are read


@both_models
def test_more_candidates_than_there_are_tokens_are_all_tokens(model):
    every = fill_mask(model, TOKENIZER, ["a [MASK] c", "[MASK] [MASK]"], top_k=V)
    for top_k in (V + 1, 10**9):
        same(fill_mask(model, TOKENIZER, ["a [MASK] c", "[MASK] [MASK]"], top_k=top_k), every)


@both_models
@pytest.mark.parametrize("mask", ["<mask>", "[BLANK]", "__"])
def test_a_mask_token_of_another_name_fills_as_the_pipeline_and_is_called_by_it(model, mask):
    vocab = {mask if token == "[MASK]" else token: n for token, n in TOKENIZER.vocab.items()}
    tokenizer = BertTokenizerFast(vocab=vocab, mask_token=mask)
    fill = pipeline("fill-mask", model=HF, tokenizer=tokenizer)
    same(fill_mask(model, tokenizer, f"a {mask} c"), fill(f"a {mask} c"))
    assert fill_mask(model, tokenizer, f"a {mask} c")[0]["token"] != 1  # the [UNK] of another name
    with pytest.raises(ValueError, match=f"has no {re.escape(mask)}; write it"):
        fill_mask(model, tokenizer, "a b c")
    found = pseudo_log_likelihood(model, tokenizer, ["a b c"])
    assert found == pytest.approx(pseudo_log_likelihood(model, TOKENIZER, ["a b c"]))


@both_models
@pytest.mark.parametrize("measure", [fill_mask, pseudo_log_likelihood, pseudo_perplexity])
def test_a_tokenizer_without_a_mask_token_is_refused(model, measure):
    tokenizer = TOKENIZER.to_hf()
    tokenizer.mask_token = None
    with pytest.raises(ValueError, match="the tokenizer has no mask token"):
        measure(model, tokenizer, ["a b"])


@both_models
@pytest.mark.parametrize("measure", [fill_mask, pseudo_log_likelihood, pseudo_perplexity])
def test_a_token_that_only_the_tokenizer_knows_is_named(model, measure):
    tokenizer = TOKENIZER.to_hf()
    tokenizer.add_tokens(["v", "w", "x", "y", "zebra"])  # of which four find an unused row
    measure(model, tokenizer, ["a y [MASK]"])
    with pytest.raises(ValueError) as caught:
        measure(model, tokenizer, ["a zebra [MASK]"])
    words = ["'zebra' has the id 16", "16 tokens only", "resize_token_embeddings"]
    assert [word for word in words if word not in str(caught.value)] == []


@both_models
@both_tokenizers
@pytest.mark.parametrize("measure", [fill_mask, pseudo_log_likelihood, pseudo_perplexity])
@pytest.mark.parametrize("text", ["a [MASK] \ud83d", "\udc80[MASK]", "a\ud800\ud800 [MASK]"])
def test_a_lone_surrogate_is_one_clear_error(model, tokenizer, measure, text):
    with pytest.raises(ValueError, match="lone surrogate") as caught:
        measure(model, tokenizer, ["a [MASK]", text])
    str(caught.value).encode()  # the message itself can be printed


def test_a_compiled_encoder_still_tells_how_much_it_reads():
    model = type(OURS).from_config(OURS.embedder.config)
    model.embedder = torch.compile(model.embedder, backend="eager")
    with pytest.raises(ValueError, match="this model reads 20"):
        fill_mask(model, TOKENIZER, "[MASK]" + " a" * 18)


# -------------------------------------------------------------------------- pseudo-log-likelihood


def scored_by_hand(model, text, whole_word):
    """(log-likelihood, tokens scored)."""
    tokens = ["[CLS]", *TOKENIZER.tokenize(text), "[SEP]"]
    total = count = 0
    for place, token in enumerate(tokens):
        if token in ("[CLS]", "[SEP]", "[PAD]", "[MASK]"):
            continue
        hidden = [*tokens[:place], "[MASK]", *tokens[place + 1 :]]
        for after in range(place + 1, len(tokens)):
            if not whole_word or not tokens[after].startswith("##"):
                break
            hidden[after] = "[MASK]"
        row = [TOKENIZER.vocab[each] for each in hidden]
        total += log_probs(model, row)[place, TOKENIZER.vocab[token]].item()
        count += 1
    return total, count


@both_models
@both_tokenizers
@pytest.mark.parametrize("whole_word", [False, True])
def test_a_text_is_scored_as_by_a_loop_over_its_tokens(model, tokenizer, whole_word):
    nats, counts = zip(*(scored_by_hand(model, text, whole_word) for text in TEXTS))
    how = {"whole_word": whole_word}
    assert pseudo_log_likelihood(model, tokenizer, TEXTS, **how) == pytest.approx(nats, rel=1e-9)
    perplexity = pseudo_perplexity(model, tokenizer, iter(TEXTS), **how)
    assert perplexity == pytest.approx(math.exp(-sum(nats) / sum(counts)), rel=1e-9)
    turned = pseudo_log_likelihood(model, tokenizer, TEXTS[::-1], **how, batch_size=5)
    assert turned[::-1] == pytest.approx(nats, rel=1e-9)


def shown(text, **options):
    """The rows that a model gets to see, as texts between [CLS] and [SEP]."""
    model = Says(UNIFORM)
    pseudo_log_likelihood(model, TOKENIZER, [text], **options)
    rows = torch.cat(model.shown).tolist()
    return [" ".join(TOKENIZER.tokens[index] for index in row[1:-1]) for row in rows]


def test_of_a_split_word_the_pieces_to_the_right_are_hidden_too():
    assert shown("c abb a")[1:4] == ["c [MASK] ##b ##b a", "c a [MASK] ##b a", "c a ##b [MASK] a"]
    whole = shown("c abb a", whole_word=True)
    assert whole[1:3] == ["c [MASK] [MASK] [MASK] a", "c a [MASK] [MASK] a"]


def test_an_unknown_word_is_scored_and_special_tokens_are_not():
    assert shown("a [SEP] zz [MASK] [PAD] [CLS]") == [
        "[MASK] [SEP] [UNK] [MASK] [PAD] [CLS]",
        "a [SEP] [MASK] [MASK] [PAD] [CLS]",
    ]


def test_a_reader_who_knows_nothing_gives_each_token_ln_v():
    texts = ["a", "abba c c"]  # 1 and 6 tokens
    nats = pseudo_log_likelihood(Says(UNIFORM), TOKENIZER, texts)
    assert nats == pytest.approx([-math.log(V), -6 * math.log(V)])
    assert pseudo_perplexity(Says(UNIFORM), TOKENIZER, texts) == pytest.approx(V)


def test_a_perplexity_counts_each_token_once_not_each_text_and_may_be_infinite():
    scores = UNIFORM.clone()
    scores[TOKENIZER.vocab["a"]] = 5.0
    often, once = (-scores.log_softmax(-1)[TOKENIZER.vocab[word]].item() for word in "ab")
    found = pseudo_perplexity(Says(scores), TOKENIZER, ["a a a", "b"])
    assert found == pytest.approx(math.exp((3 * often + once) / 4))
    for least in (-math.inf, -1e4):
        scores[TOKENIZER.vocab["a"]] = least
        assert pseudo_log_likelihood(Says(scores), TOKENIZER, ["a"])[0] < -9e3
        assert pseudo_perplexity(Says(scores), TOKENIZER, ["a"]) == math.inf


def test_no_more_rows_are_read_at_once_than_asked_for():
    model = Says(UNIFORM)
    pseudo_log_likelihood(model, TOKENIZER, ["a b " * 50, "c"], batch_size=7)
    sizes = [len(ids) for ids in model.shown]
    assert sum(sizes) == 101 and max(sizes) == 7 and len(sizes) == 15


@pytest.mark.parametrize("measure", [pseudo_log_likelihood, pseudo_perplexity])
@both_tokenizers
@pytest.mark.parametrize(
    "texts, options, words",
    [
        ("a b", {}, "texts='a b'; a list of texts"),
        (["a", ""], {}, "text 1, '', has no token to hide; leave it out"),
        (["[SEP] [MASK]"], {}, r"text 0, '\[SEP\] \[MASK\]', has no token"),
        (["a", "a " * 19], {}, "has 21 tokens; this model reads 20"),
        (["a"], {"batch_size": -1}, "batch_size=-1"),
    ],
)
def test_what_cannot_be_scored_is_told(measure, tokenizer, texts, options, words):
    for model in (OURS, HF):
        with pytest.raises(ValueError, match=words):
            measure(model, tokenizer, texts, **options)


def test_no_texts_have_no_scores_and_no_perplexity():
    assert pseudo_log_likelihood(OURS, TOKENIZER, []) == []
    with pytest.raises(ZeroDivisionError):
        pseudo_perplexity(OURS, TOKENIZER, [])


def test_whole_words_are_refused_where_nothing_marks_their_pieces():
    vocabulary = {
        token: place for place, token in enumerate(["[MASK]", "[CLS]", "[SEP]", "a", "b"])
    }
    special = {"mask_token": "[MASK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    byte_pairs = Tokenizer(models.BPE(vocabulary, []))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_pairs, **special)
    with pytest.raises(ValueError, match="whole_word needs the ## pieces"):
        pseudo_log_likelihood(None, tokenizer, ["a b"], whole_word=True)
