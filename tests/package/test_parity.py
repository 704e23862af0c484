"""Parity with transformers: outputs, gradients, trained weights, there and back, for both kinds.

Every configuration is drawn by a seeded generator and is small; dropout is 0, since two
implementations draw theirs differently. float64 must agree to 1e-9, which no slip in a formula
survives (see `tiny_modern.unrounded`), and float32 to 1e-5, both absolute.
"""

import copy
import pickle
import random

import pytest
import torch
from tiny_modern import V, modern_bert, unrounded
from transformers import BertConfig, BertForMaskedLM

from mlm_lib import DATA
from mlm_lib.labels import IGNORE
from mlm_lib.pretrained import from_hf, load_checkpoint, to_hf

pytestmark = pytest.mark.usefixtures("one_thread")

# Twelve of each kind that hold whatever the first 40 do: each padding, activation, depth and tie.
BERTS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 14)
MODERN = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 20)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
each_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=["float64", "float32"])
each_bert = pytest.mark.parametrize("seed", BERTS)
each_modern = pytest.mark.parametrize("seed", MODERN)
either_tie = pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])


# ------------------------------------------------------------------------------------ draws


def draw_config(rng):
    """A random small BERT configuration."""
    heads, width = rng.choice(
        [(h, d) for h in (1, 2, 3, 4, 6) for d in (4, 8, 12, 16) if 16 <= h * d <= 48]
    )
    vocab_size = rng.randint(20, 90)
    return BertConfig(
        vocab_size=vocab_size, hidden_size=heads * width,
        num_hidden_layers=rng.randint(1, 4), num_attention_heads=heads,
        intermediate_size=rng.randint(5, 80), max_position_embeddings=rng.randint(8, 40),
        type_vocab_size=rng.randint(1, 4),
        hidden_act=rng.choice(["gelu", "gelu_pytorch_tanh", "relu"]),
        tie_word_embeddings=rng.random() < 0.5,
        pad_token_id=rng.choice([0, 0, 3, vocab_size - 1, None]),
        initializer_range=rng.choice([0.02, 0.1]), layer_norm_eps=rng.choice([1e-12, 1e-5]),
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip


def draw_modern(rng):
    """A random small ModernBERT configuration, as changes of `tiny_modern.SIZES`."""
    heads, width = rng.choice(
        [(h, d) for h in (1, 2, 3, 4, 6) for d in (2, 4, 6, 8, 16) if 12 <= h * d <= 48]
    )
    count, vocab_size = rng.randint(1, 6), rng.randint(20, 90)
    options = {
        "vocab_size": vocab_size, "hidden_size": heads * width, "num_hidden_layers": count,
        "num_attention_heads": heads, "intermediate_size": rng.randint(5, 60),
        "local_attention": rng.randint(2, 9), "norm_eps": rng.choice([1e-5, 1e-3]),
        "pad_token_id": rng.choice([0, 3, vocab_size - 1, None]),
        "tie_word_embeddings": rng.random() < 0.5,
        "global_rope_theta": rng.choice([160_000.0, 50.0]),
        "local_rope_theta": rng.choice([10_000.0, 7.0]),
    }  # fmt: skip
    if rng.random() < 0.5:
        return options | {"global_attn_every_n_layers": rng.randint(1, 4)}
    every = rng.randint(1, 4)
    kinds = ["sliding_attention" if i % every else "full_attention" for i in range(count)]
    return options | {"layer_types": kinds}


def draw_batch(rng, config):
    """What both models are called with, labels, and which tokens are real."""
    g = torch.Generator().manual_seed(rng.randrange(2**31))
    modern = config.model_type == "modernbert"
    B, T = rng.randint(2, 4), rng.randint(6, min(45, config.max_position_embeddings))
    ids = torch.randint(config.vocab_size, (B, T), generator=g)
    positions, lengths = torch.arange(T), torch.randint(3, T + 1, (B, 1), generator=g)
    inside = torch.rand(B, T, generator=g) < 0.6
    inside[:, 0] = True
    inside[-1] &= modern or rng.random() < 0.5  # now and then a row without any real token
    padding = rng.choice(["none", "right", "left", "inside"])
    real = {
        "none": torch.ones(B, T, dtype=torch.bool),
        **{"right": positions < lengths, "left": positions >= T - lengths, "inside": inside},
    }[padding]
    inputs = {"input_ids": ids, "attention_mask": None if padding == "none" else real.long()}
    if not modern and rng.random() < 0.6:
        inputs["token_type_ids"] = torch.randint(config.type_vocab_size, (B, T), generator=g)
    # In a BERT labels fall on padding as well, where a real row has well-defined outputs, too.
    allowed = real if modern else real.any(1, keepdim=True)
    asked = (torch.rand(B, T, generator=g) < rng.choice([0.05, 0.15, 0.5, 1.0])) & allowed
    asked[0, real[0].nonzero()[0]] = True  # without any label transformers returns NaN
    labels = torch.randint(config.vocab_size, (B, T), generator=g).masked_fill(~asked, IGNORE)
    return inputs, labels, allowed.expand(B, T)


def roughen(model):
    """Give biases and layer norms, which start as 0 and 1, values that show a mix-up."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=0.1)
            elif "LayerNorm" in name:
                parameter.normal_(1, 0.1)
        # Tied, these are one parameter. Untied, only the decoder's is ever used.
        model.cls.predictions.bias.copy_(model.cls.predictions.decoder.bias)
    return model


def build(config, dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    config._attn_implementation = "eager"  # the others return no attention weights
    return roughen(BertForMaskedLM(config)).to(dtype)


def a_bert(tied=True, seed=0, dtype=torch.float32, **changes):
    config = draw_config(random.Random(seed))
    config.update({"tie_word_embeddings": tied} | changes)
    return build(config, dtype)


def case(seed, dtype):
    """Their BERT, ours made from it, inputs, labels, and which outputs have a meaning."""
    rng = random.Random(seed)
    theirs = build(draw_config(rng), dtype, seed)
    inputs, labels, filled = draw_batch(rng, theirs.config)
    return theirs, from_hf(theirs), inputs, labels, filled


def modern_case(seed, dtype):
    rng = random.Random(seed)
    theirs = modern_bert(seed=seed, scale=0.3, **draw_modern(rng)).to(dtype)
    inputs, labels, real = draw_batch(rng, theirs.config)
    return theirs, from_hf(theirs), inputs, labels, real


def same(ours, theirs, dtype, what):
    assert ours.dtype == theirs.dtype == dtype
    torch.testing.assert_close(
        ours, theirs, rtol=0, atol=TOLERANCE[dtype], msg=lambda text: f"{what}: {text}"
    )


def in_their_names(ours, value):
    """The value or the gradient of each of our parameters, cut and named as transformers' are."""
    carrier = copy.deepcopy(ours)
    for copied, parameter in zip(carrier.parameters(), ours.parameters(), strict=True):
        copied.data = value(parameter).detach()
    return to_hf(carrier).state_dict()


def trained(theirs):
    """(name, parameter) that their model trains: untied, its `cls.predictions.bias` is unused."""
    unused = set() if theirs.config.tie_word_embeddings else {"cls.predictions.bias"}
    return [(name, p) for name, p in theirs.named_parameters() if name not in unused]


# ------------------------------------------------------------------------------------ outputs


@each_dtype
@each_bert
@torch.no_grad()
def test_logits_loss_hidden_states_and_attention_maps(seed, dtype):
    theirs, ours, inputs, labels, filled = case(seed, dtype)
    theirs.eval(), ours.eval()
    expected = theirs(**inputs, labels=labels, output_hidden_states=True, output_attentions=True)
    # A row without a real token has no meaning: transformers attends to its padding, we to nothing.
    same(ours(**inputs)["logits"][filled], expected.logits[filled], dtype, "logits")
    output = ours(**inputs, labels=labels)
    same(output["logits"], expected.logits[labels != IGNORE], dtype, "logits at the labels")
    same(output["loss"], expected.loss, dtype, "loss")
    encoded = ours.embedder(**inputs, output_hidden_states=True, output_attentions=True)
    fused = ours.embedder(**inputs, output_hidden_states=True)  # one kernel, as in training
    for kind, states in (("hidden", encoded.hidden_states), ("fused", fused.hidden_states)):
        for layer, pair in enumerate(zip(states, expected.hidden_states, strict=True)):
            same(pair[0][filled], pair[1][filled], dtype, f"{kind} {layer}")
    for layer, pair in enumerate(zip(encoded.attentions, expected.attentions, strict=True)):
        one, other = (weights.transpose(1, 2)[filled] for weights in pair)
        same(one, other, dtype, f"attention {layer}")


@each_dtype
@each_modern
@torch.no_grad()
def test_a_modernberts_logits_loss_hidden_states_and_attention_maps(seed, dtype):
    theirs, ours, inputs, labels, real = modern_case(seed, dtype)
    wanted = {"output_hidden_states": True, "output_attentions": True}
    with unrounded():
        expected = theirs(**inputs, labels=labels, **wanted)
    for unpadded in (True, False):
        ours.embedder.unpadded = unpadded
        same(ours(**inputs)["logits"][real], expected.logits[real], dtype, "logits")
        output = ours(**inputs, labels=labels)
        same(output["logits"], expected.logits[labels != IGNORE], dtype, "logits at the labels")
        same(output["loss"], expected.loss, dtype, "loss")
        states = ours.embedder(**inputs, output_hidden_states=True).hidden_states
        for layer, pair in enumerate(zip(states, expected.hidden_states, strict=True)):
            same(pair[0][real], pair[1][real], dtype, f"hidden {layer}")
    maps = ours.embedder(**inputs, output_attentions=True).attentions
    for layer, pair in enumerate(zip(maps, expected.attentions, strict=True)):
        one, other = (weights.transpose(1, 2)[real] for weights in pair)
        same(one, other, dtype, f"attention {layer}")


@each_modern
def test_the_gradient_of_every_parameter_of_a_modernbert(seed):
    theirs, ours, inputs, labels, _ = modern_case(seed, torch.float64)
    with unrounded():
        theirs(**inputs, labels=labels).loss.backward()
    for unpadded in (True, False):
        ours.zero_grad()
        ours.embedder.unpadded = unpadded
        ours(**inputs, labels=labels)["loss"].backward()
        gradients = in_their_names(ours, lambda parameter: parameter.grad)
        for name, parameter in theirs.named_parameters():
            same(gradients[name], parameter.grad, torch.float64, name)


def adamw_steps(model, batch, steps=3, **settings):
    """The model after some steps of AdamW on one batch."""
    optimizer = torch.optim.AdamW(model.parameters(), **settings)
    for _ in range(steps):
        optimizer.zero_grad()
        model(**batch)["loss"].backward()
        optimizer.step()
    return model


@each_dtype
@each_bert
def test_the_gradient_of_every_parameter_and_the_weights_after_three_steps_of_adamw(seed, dtype):
    # The bias of the keys shifts all scores of a query alike: softmax ignores it, its gradient is
    # 0. In floating point that is noise, in float32 up to 5e-9, which Adam divides by its own size
    # plus eps. With torch's eps of 1e-8 each side would walk its own way: measured, they part by
    # 6e-5 after three steps at a learning rate of 5e-5, by 1e-4 at 1e-4 and by 8e-4 at 1e-3. BERT's
    # own eps is 1e-6, which drowns the noise: 1e-6 at 1e-4.
    settings = {torch.float64: {"lr": 1e-3}, torch.float32: {"lr": 1e-4, "eps": 1e-6}}[dtype]
    theirs, ours, inputs, labels, _ = case(seed, dtype)
    theirs(**inputs, labels=labels).loss.backward()
    ours(**inputs, labels=labels)["loss"].backward()
    gradients = in_their_names(ours, lambda parameter: parameter.grad)
    for name, parameter in trained(theirs):
        same(gradients[name], parameter.grad, dtype, name)
    before = to_hf(ours).state_dict()
    adamw_steps(theirs, {**inputs, "labels": labels}, **settings)
    adamw_steps(ours, {**inputs, "labels": labels}, **settings)
    after = in_their_names(ours, lambda parameter: parameter)
    for name, parameter in trained(theirs):
        same(after[name], parameter.detach(), dtype, name)
        if "key.bias" not in name:
            moved = (after[name] - before[name]).abs().max()
            assert moved > 2 * TOLERANCE[dtype], f"{name} hardly moved"


@torch.no_grad()
def test_as_it_is_with_its_rounding_modernbert_differs_in_the_last_digits_of_float32():
    theirs = modern_bert(scale=0.3, attn_implementation="sdpa").float()
    ids = torch.randint(V, (3, 50), generator=torch.Generator().manual_seed(0))
    real = torch.arange(50) < torch.tensor([[50], [20], [7]])
    logits = from_hf(theirs)(ids, real)["logits"]
    same(logits[real], theirs(ids, attention_mask=real.long()).logits[real], torch.float32, "")


@torch.no_grad()
def test_a_window_of_128_masks_what_that_of_transformers_masks():
    theirs = modern_bert(scale=0.3, local_attention=128, num_hidden_layers=2)
    ids = torch.randint(V, (2, 200), generator=torch.Generator().manual_seed(0))
    real = torch.arange(200) < torch.tensor([[200], [150]])
    with unrounded():
        expected = theirs(ids, attention_mask=real.long(), output_attentions=True)
    ours = from_hf(theirs)
    seen = expected.attentions[1][0, 0] > 0  # (T, T) of the local layer
    assert seen[100].sum() == 129 and seen[0].sum() == 65
    weights = ours.embedder(ids, real, output_attentions=True).attentions[1]
    assert torch.equal(weights[0, 0] > 0, seen)
    for unpadded in (True, False):
        ours.embedder.unpadded = unpadded
        same(ours(ids, real)["logits"][real], expected.logits[real], torch.float64, "logits")


@torch.no_grad()
def test_long_documents_read_in_windows_are_those_of_transformers():
    theirs = modern_bert(scale=0.3, local_attention=8)  # 33 tokens and more are cut in windows
    ids = torch.randint(V, (3, 90), generator=torch.Generator().manual_seed(0))
    real = torch.arange(90) < torch.tensor([[90], [61], [5]])
    with unrounded():
        expected = theirs(ids, attention_mask=real.long()).logits
    same(from_hf(theirs)(ids, real)["logits"][real], expected[real], torch.float64, "logits")


# ------------------------------------------------------------------------------------ and back


# Of another library's making, or of no meaning to a model that fills blanks.
NOT_OURS = {"architectures", "dtype", "transformers_version", "_name_or_path"}


def one_of(kind, tied, seed=0, dtype=torch.float32):
    """A BERT or a ModernBERT with a dropout of its own."""
    if kind == "bert":
        rates = {"hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.25}
        return a_bert(tied, seed, dtype, **rates)
    options = draw_modern(random.Random(seed)) | {"tie_word_embeddings": tied, "mlp_dropout": 0.3}
    return modern_bert(**options).to(dtype)


either_kind = pytest.mark.parametrize("kind", ["bert", "modernbert"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("seed", [0, 1, 2])
@either_tie
@either_kind
def test_there_and_back_every_bit_of_the_state_dict_and_the_configuration_stays(
    kind, tied, seed, dtype
):
    theirs = one_of(kind, tied, seed, dtype)
    back = to_hf(from_hf(theirs))
    before, after = theirs.state_dict(), back.state_dict()
    assert list(after) == list(before)
    for name in before:
        assert after[name].dtype == dtype
        assert torch.equal(after[name].view(torch.uint8), before[name].view(torch.uint8)), name
    projection = back.get_output_embeddings().weight
    assert (projection is back.get_input_embeddings().weight) == tied
    said, again = theirs.config.to_dict(), back.config.to_dict()
    changed = {name for name in said if said[name] != again[name]}
    assert changed <= NOT_OURS, changed


@either_tie
def test_the_bias_is_the_one_that_transformers_adds(tied):
    theirs = a_bert(tied, 1, torch.float64).eval()
    # Untied, `cls.predictions.bias` stays behind and is not used.
    theirs.cls.predictions.decoder.bias.data.normal_()
    ids = torch.arange(8)[None]
    same(from_hf(theirs)(ids)["logits"], theirs(ids).logits, torch.float64, "ours")
    same(to_hf(from_hf(theirs))(ids).logits, theirs(ids).logits, torch.float64, "theirs again")


@either_tie
@either_kind
def test_conversion_copies_keeps_the_mode_and_draws_no_random_number(kind, tied):
    theirs = one_of(kind, tied)
    state = torch.random.get_rng_state()
    for training in (True, False):
        ours = from_hf(theirs.train(training))
        back = to_hf(ours)
        assert {module.training for module in [*ours.modules(), *back.modules()]} == {training}
    assert torch.equal(torch.random.get_rng_state(), state)
    models = theirs, ours, back
    stored = [{p.untyped_storage().data_ptr() for p in model.parameters()} for model in models]
    assert not stored[0] & stored[1] and not stored[1] & stored[2]
    for parameter in (parameter for model in models for parameter in model.parameters()):
        assert parameter.requires_grad and parameter.is_leaf


def test_a_deep_copy_and_a_pickled_copy_convert_like_the_original():
    theirs = a_bert(hidden_act="gelu_pytorch_tanh")
    for copied in (copy.deepcopy(from_hf(theirs)), pickle.loads(pickle.dumps(from_hf(theirs)))):
        back = to_hf(copied)
        assert back.config.hidden_act == "gelu_pytorch_tanh"
        for name, tensor in back.state_dict().items():
            assert torch.equal(tensor, theirs.state_dict()[name])


# ------------------------------------------------------------------------------------ course-bert


@torch.no_grad()
def test_course_bert_has_the_logits_that_transformers_gives():
    ours, tokenizer = load_checkpoint("course-bert")
    theirs = BertForMaskedLM.from_pretrained(DATA / "course-bert", dtype=torch.float32)
    texts = ["A [MASK].", "The film was so [MASK] that I left before the end."]
    batch = tokenizer(texts, padding=True, padding_side="left", return_tensors="pt")
    expected = theirs(**batch).logits
    # Its logits are as large as 20, where float32 itself has steps of 2e-6: so relative, too.
    close = {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(ours(**batch)["logits"], expected, **close)
    blanks = batch["input_ids"] == tokenizer.mask_token_id
    output = ours(**batch, mask_positions=blanks.nonzero()[:, 1:])
    torch.testing.assert_close(output["logits"].squeeze(1), expected[blanks], **close)
