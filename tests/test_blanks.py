"""Blanks are filled as transformers' pipeline fills them, one text or many, ours or theirs."""

import pytest
import torch
from readers import HF, OURS, TOKENIZER, V, assert_leaves_no_trace, both_models, both_tokenizers
from transformers import pipeline

from mlm_lib.evaluation import fill_mask
from mlm_lib.pretrained import load_checkpoint, to_hf
from mlm_lib.wordpiece import WordPieceTokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

ONE = ["a [MASK] c", "[MASK]", "[MASK]a b", "abba [MASK] zz", "[PAD] [MASK] a [SEP] b [PAD]"]
SEVERAL = ["[MASK] [MASK]", "a [MASK] c [MASK] ab", "[PAD] [MASK] zz [MASK] [SEP] a [MASK]"]
OF_COURSE = [
    "The film was [MASK] and I'd watch it again.",
    "Don't [MASK]: the [MASK] wasn't very good, was it?",
]


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


@pytest.mark.parametrize("text", OF_COURSE)
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


def test_a_list_gives_a_list_even_of_one_text_or_none():
    alone = fill_mask(OURS, TOKENIZER, "a [MASK]")
    assert fill_mask(OURS, TOKENIZER, ["a [MASK]"]) == [alone]
    assert fill_mask(OURS, TOKENIZER, []) == []


@both_models
def test_filling_leaves_no_trace(model):
    assert_leaves_no_trace(model, lambda: fill_mask(model, TOKENIZER, SEVERAL))


def test_a_model_of_16_bits_gives_scores_that_sum_to_one():
    model = type(OURS).from_config(OURS.embedder.config).bfloat16()
    found = fill_mask(model, TOKENIZER, "a [MASK] c", top_k=V)
    assert sum(one["score"] for one in found) == pytest.approx(1, abs=1e-6)


@both_models
@both_tokenizers
@pytest.mark.parametrize(
    "text, options, words",
    [
        ("a b", {}, r"'a b' has no \[MASK\]; write it"),
        (["a [MASK]", ""], {}, r"'' has no \[MASK\]; write it"),
        ("a [MASK]", {"top_k": 17}, "top_k=17 of a vocabulary of 16; ask for fewer"),
        ("[MASK]" + " a" * 18, {}, "has 21 tokens, and this model reads 20; cut"),
    ],
)
def test_what_cannot_be_filled_is_told(model, tokenizer, text, options, words):
    with pytest.raises(ValueError, match=words):
        fill_mask(model, tokenizer, text, **options)


@both_models
def test_a_text_may_be_as_long_as_the_model_reads(model):
    assert len(fill_mask(model, TOKENIZER, "[MASK]" + " a" * 17)) == 5


def test_a_compiled_encoder_still_tells_how_much_it_reads():
    torch.manual_seed(0)
    model = type(OURS).from_config(OURS.embedder.config)
    model.embedder = torch.compile(model.embedder, backend="eager")
    with pytest.raises(ValueError, match="this model reads 20"):
        fill_mask(model, TOKENIZER, "[MASK]" + " a" * 18)
