"""BERT's weights by name: every one is found, of its shape and kind, or named."""

import pytest
import torch
from tiny_bert import (
    BIAS,
    DECODER,
    WORD,
    assert_same_logits,
    assert_says,
    batch,
    bert,
    configure,
    load_quietly,
    load_with_warning,
    old_names,
    rewrite,
    weights_of,
)

from mlm_lib.pretrained import from_hf, load_checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")


def names(part):
    return [name for name in bert().state_dict() if name.startswith(part) and "decoder" not in name]


@pytest.mark.parametrize("name", names("bert."))
def test_a_missing_weight_of_the_encoder_is_an_error_that_names_it(folder, name):
    rewrite(folder, lambda weights: {n: w for n, w in weights.items() if n != name})
    with pytest.raises(ValueError) as caught:
        load_checkpoint(folder)
    assert_says(caught.value, [str(folder), f"no weights for {name};"])


@pytest.mark.parametrize("name", names("cls."))
def test_a_missing_weight_of_the_head_is_a_warning_that_names_it(folder, name):
    rewrite(folder, lambda weights: {n: w for n, w in weights.items() if n != name})
    model, warning = load_with_warning(folder)
    assert_says(warning, [str(folder), f"no {name}:", "fresh", "train it"])
    if not name.endswith("dense.weight"):  # which transformers draws at random as well
        assert_same_logits(model, folder)


@pytest.mark.parametrize("name", [*names(""), DECODER])
def test_a_weight_of_another_shape_is_an_error_with_both_shapes(folder, name):
    if name == DECODER:
        bert(tie_word_embeddings=False).save_pretrained(folder)
    right = tuple(weights_of(folder)[name].shape)
    wrong = (right[0] + 1, *right[1:])
    rewrite(folder, lambda weights: weights.update({name: torch.ones(wrong)}))
    with pytest.raises(ValueError) as caught:
        load_checkpoint(folder)
    assert_says(caught.value, [f"{name} is {wrong}", f"asks for {right}"])


@pytest.mark.parametrize("shape", [(8, 12), (96,), (12, 8, 1), (12, 1), (1, 8), ()])
def test_a_shape_that_would_fit_after_a_reshape_or_a_broadcast_is_an_error(folder, shape):
    name = "bert.encoder.layer.1.intermediate.dense.weight"  # (12, 8)
    rewrite(folder, lambda weights: weights.update({name: torch.ones(shape)}))
    with pytest.raises(ValueError) as caught:
        load_checkpoint(folder)
    assert_says(caught.value, [f"{name} is {shape}", "asks for (12, 8)"])


def test_weights_that_are_not_used_are_named_in_a_warning(folder):
    extra = {
        "bert.encoder.layer.2.output.dense.bias": torch.ones(8),
        "cls.predictions.other": torch.ones(1),
        "lm": torch.ones(1),
    }
    rewrite(folder, lambda weights: weights.update(extra))
    model, warning = load_with_warning(folder)
    assert_says(warning, [str(folder), "not used", *extra])
    assert_same_logits(model, folder)


def test_a_long_list_of_weights_is_cut_and_counted(folder):
    configure(folder, num_hidden_layers=1)
    _, warning = load_with_warning(folder)
    assert warning.count("bert.encoder.layer.1.") == 4 and "and 12 more" in warning


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.int64, torch.complex64], ids=str)
@pytest.mark.parametrize("name", [WORD, BIAS])
def test_weights_that_are_not_floating_point_are_refused(folder, name, dtype):
    rewrite(folder, lambda weights: weights.update({name: weights[name].to(dtype)}))
    with pytest.raises(ValueError) as caught:
        load_checkpoint(folder)
    assert_says(caught.value, [f"{name} is {dtype}", "floating-point"])


KEY = "bert.encoder.layer.1.attention.self.key.weight"


def spoil(folder, name, value):
    """Write a value into the last row of a weight."""
    weights = weights_of(folder)
    weights[name][-1:] = value
    rewrite(folder, lambda _: weights)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", [WORD, KEY, BIAS])
def test_weights_that_are_not_finite_are_named_in_a_warning(folder, name, value):
    spoil(folder, name, value)
    _, warning = load_with_warning(folder)
    assert_says(warning, [str(folder), f"NaN or infinity stands in {name},"])


def test_a_weight_beyond_the_range_of_float32_is_not_finite_here(folder):
    bert().double().save_pretrained(folder)
    spoil(folder, KEY, 1e300)
    assert_says(load_with_warning(folder)[1], [KEY])


def test_a_model_of_theirs_that_its_configuration_does_not_fit_is_refused():
    theirs = bert()
    theirs.bert.encoder.layer = theirs.bert.encoder.layer[:1]
    with pytest.raises(ValueError, match=r"no weights for bert\.encoder\.layer\.1\."):
        from_hf(theirs)


def test_a_bare_encoder_of_any_age_needs_no_prefix(folder):
    model, _ = load_quietly(folder)

    def bare(weights):
        encoder = {
            name.removeprefix("bert."): weight
            for name, weight in weights.items()
            if name.startswith("bert.")
        }
        return old_names(encoder) | {
            "embeddings.position_ids": torch.arange(20)[None],
            "pooler.dense.bias": torch.ones(8),
        }

    rewrite(folder, bare)
    headless, warning = load_with_warning(folder)
    assert "position_ids" not in warning and "pooler" not in warning
    torch.testing.assert_close(
        headless.embedder(batch()[0]), model.embedder(batch()[0]), rtol=0, atol=0
    )
