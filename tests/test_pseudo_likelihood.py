"""Whole texts are scored as by a loop that hides one token after the other."""

import math

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
    both_models,
    both_tokenizers,
    log_probs,
)

from mlm_lib.evaluation import pseudo_log_likelihood, pseudo_perplexity

pytestmark = pytest.mark.usefixtures("one_thread")

FRAME = "[CLS] [SEP] [PAD] [MASK]".split()
UNIFORM = torch.zeros(V)


def by_hand(model, text, whole_word):
    """(log-likelihood, tokens scored)."""
    tokens = ["[CLS]", *TOKENIZER.tokenize(text), "[SEP]"]
    total = count = 0
    for place, token in enumerate(tokens):
        if token in FRAME:
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


def shown(text, **options):
    """The rows that a model gets to see, as texts between [CLS] and [SEP]."""
    model = Says(UNIFORM)
    pseudo_log_likelihood(model, TOKENIZER, [text], **options)
    rows = torch.cat(model.shown).tolist()
    return [" ".join(TOKENIZER.tokens[index] for index in row[1:-1]) for row in rows]


@both_models
@both_tokenizers
@pytest.mark.parametrize("whole_word", [False, True])
def test_a_text_is_scored_as_by_a_loop_over_its_tokens(model, tokenizer, whole_word):
    nats, counts = zip(*(by_hand(model, text, whole_word) for text in TEXTS))
    how = {"whole_word": whole_word}
    found = pseudo_log_likelihood(model, tokenizer, TEXTS, **how)
    assert found == pytest.approx(nats, rel=1e-9)
    perplexity = pseudo_perplexity(model, tokenizer, iter(TEXTS), **how)
    assert perplexity == pytest.approx(math.exp(-sum(nats) / sum(counts)), rel=1e-9)


@both_models
@pytest.mark.parametrize("batch_size", [1, 5])
def test_the_batch_size_and_the_order_of_texts_do_not_matter(model, batch_size):
    alone = [pseudo_log_likelihood(model, TOKENIZER, [text])[0] for text in TEXTS]
    turned = iter(TEXTS[::-1])
    found = pseudo_log_likelihood(model, TOKENIZER, turned, batch_size=batch_size)
    assert found[::-1] == pytest.approx(alone, rel=1e-9)


def test_of_a_split_word_the_pieces_to_the_right_are_hidden_too():
    assert shown("c abb a") == [
        "[MASK] a ##b ##b a",
        "c [MASK] ##b ##b a",
        "c a [MASK] ##b a",
        "c a ##b [MASK] a",
        "c a ##b ##b [MASK]",
    ]
    assert shown("c abb a", whole_word=True)[1:4] == [
        "c [MASK] [MASK] [MASK] a",
        "c a [MASK] [MASK] a",
        "c a ##b [MASK] a",
    ]


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


def test_a_perplexity_counts_each_token_once_not_each_text():
    scores = UNIFORM.clone()
    scores[TOKENIZER.vocab["a"]] = 5.0
    often, once = (-scores.log_softmax(-1)[TOKENIZER.vocab[word]].item() for word in "ab")
    found = pseudo_perplexity(Says(scores), TOKENIZER, ["a a a", "b"])
    assert found == pytest.approx(math.exp((3 * often + once) / 4))


def test_what_is_impossible_has_no_likelihood_and_no_finite_perplexity():
    for least in (-math.inf, -1e4):
        scores = UNIFORM.clone()
        scores[TOKENIZER.vocab["a"]] = least
        assert pseudo_log_likelihood(Says(scores), TOKENIZER, ["a"])[0] < -9e3
        assert pseudo_perplexity(Says(scores), TOKENIZER, ["a"]) == math.inf


def test_no_more_rows_are_read_at_once_than_asked_for():
    model = Says(UNIFORM)
    pseudo_log_likelihood(model, TOKENIZER, ["a b " * 50, "c"], batch_size=7)
    sizes = [len(ids) for ids in model.shown]
    assert sum(sizes) == 101 and max(sizes) == 7 and len(sizes) == 15


@both_models
def test_scoring_leaves_no_trace(model):
    assert_leaves_no_trace(model, lambda: pseudo_log_likelihood(model, TOKENIZER, TEXTS))


def test_a_model_of_16_bits_scores_about_as_one_of_32():
    torch.manual_seed(0)
    model = type(OURS).from_config(OURS.embedder.config)
    precise = pseudo_log_likelihood(model, TOKENIZER, TEXTS)
    rough = pseudo_log_likelihood(model.bfloat16(), TOKENIZER, TEXTS)
    assert rough == pytest.approx(precise, rel=0.05) and rough != precise


@pytest.mark.parametrize("measure", [pseudo_log_likelihood, pseudo_perplexity])
@both_tokenizers
@pytest.mark.parametrize(
    "texts, words",
    [
        ("a b", "texts='a b' is one text; give a list"),
        (["a", ""], "text 1, '', has no token to hide; leave it out"),
        (["[SEP] [MASK]"], r"text 0, '\[SEP\] \[MASK\]', has no token"),
        (["a", "a " * 19], "has 21 tokens, and this model reads 20; cut the text"),
        (["a", 3], "text=3; a str is needed"),
        (["a", ["a"]], r"text=\['a'\]; a str is needed"),
    ],
)
def test_what_cannot_be_scored_is_told(measure, tokenizer, texts, words):
    for model in (OURS, HF):
        with pytest.raises(ValueError, match=words):
            measure(model, tokenizer, texts)


def test_no_texts_have_no_scores_and_no_perplexity():
    assert pseudo_log_likelihood(OURS, TOKENIZER, []) == []
    with pytest.raises(ValueError, match="no texts; a perplexity needs one"):
        pseudo_perplexity(OURS, TOKENIZER, [])
