"""Parity with transformers' `BertForMaskedLM`: outputs, gradients, trained weights, there and back.

Every configuration is drawn by a seeded generator and is small; dropout is 0, since two
implementations draw theirs differently. float64 must agree to 1e-9, which no slip in a formula
survives, and float32 to 1e-5, both absolute.
"""

import copy
import pickle
import random

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from mlm_lib import DATA
from mlm_lib.labels import IGNORE
from mlm_lib.pretrained import from_hf, load_checkpoint, to_hf
from mlm_lib.wordpiece import WordPieceTokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

CASES = range(36)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}

each_case = pytest.mark.parametrize("seed", CASES)
each_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=["float64", "float32"])


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


def draw_batch(rng, config):
    """What both models are called with, labels, the padding's name, and which rows hold a token."""
    g = torch.Generator().manual_seed(rng.randrange(2**31))
    B, T = rng.randint(2, 4), rng.randint(6, config.max_position_embeddings)
    ids = torch.randint(config.vocab_size, (B, T), generator=g)
    positions, lengths = torch.arange(T), torch.randint(3, T + 1, (B, 1), generator=g)
    padding = rng.choice(["none", "right", "left", "inside"])
    mask = None
    if padding != "none":
        inside = torch.rand(B, T, generator=g) < 0.6
        inside[0, :3] = True
        inside[-1] &= rng.random() < 0.5  # now and then a row without any real token
        mask = {"right": positions < lengths, "left": positions >= T - lengths, "inside": inside}[
            padding
        ].long()
        ids = (
            ids if config.pad_token_id is None else ids.masked_fill(mask == 0, config.pad_token_id)
        )
    types = (
        torch.randint(config.type_vocab_size, (B, T), generator=g) if rng.random() < 0.6 else None
    )
    filled = torch.ones(B, dtype=torch.bool) if mask is None else mask.any(1)
    # Labels fall on padding as well, where a real row has well-defined outputs, too.
    asked = (torch.rand(B, T, generator=g) < rng.choice([0.05, 0.15, 0.5, 1.0])) & filled[:, None]
    asked[0, 0] = True  # without any label transformers returns NaN
    labels = torch.randint(config.vocab_size, (B, T), generator=g).masked_fill(~asked, IGNORE)
    return (
        {"input_ids": ids, "attention_mask": mask, "token_type_ids": types},
        labels,
        padding,
        filled,
    )


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


def case(seed, dtype):
    """Their model, ours made from it, inputs, labels, rows with a real token."""
    rng = random.Random(seed)
    theirs = build(draw_config(rng), dtype, seed)
    inputs, labels, _, filled = draw_batch(rng, theirs.config)
    return theirs, from_hf(theirs), inputs, labels, filled


def same(ours, theirs, dtype, what):
    assert ours.dtype == theirs.dtype == dtype
    torch.testing.assert_close(
        ours, theirs, rtol=0, atol=TOLERANCE[dtype], msg=lambda text: f"{what}: {text}"
    )


def in_their_names(ours, value):
    """The value or the gradient of each of our parameters, cut and named as transformers' are."""
    carrier = from_hf(to_hf(ours))
    for copied, parameter in zip(carrier.parameters(), ours.parameters(), strict=True):
        copied.data = value(parameter).detach()
    return to_hf(carrier).state_dict()


def trained(theirs):
    """(name, parameter) that their model trains: untied, its `cls.predictions.bias` is unused."""
    unused = set() if theirs.config.tie_word_embeddings else {"cls.predictions.bias"}
    return [
        (name, parameter) for name, parameter in theirs.named_parameters() if name not in unused
    ]


def adamw_steps(model, batch, steps=3, **settings):
    """The model after some steps of AdamW on one batch."""
    optimizer = torch.optim.AdamW(model.parameters(), **settings)
    for _ in range(steps):
        optimizer.zero_grad()
        model(**batch)["loss"].backward()
        optimizer.step()
    return model


# ------------------------------------------------------------------------------------ outputs


def test_the_draws_cover_every_kind_of_configuration_and_batch():
    seen = set()
    for seed in CASES:
        rng = random.Random(seed)
        config = draw_config(rng)
        inputs, labels, padding, filled = draw_batch(rng, config)
        seen |= {
            config.hidden_act, padding, f"{config.num_hidden_layers} layers",
            ("tied", config.tie_word_embeddings),
            ("types", inputs["token_type_ids"] is not None),
            ("pads", config.pad_token_id is not None),
            ("full", bool(filled.all())), ("all labelled", bool((labels != IGNORE)[filled].all())),
        }  # fmt: skip
    assert len(CASES) >= 30
    assert len(seen) == 3 + 4 + 4 + 5 * 2, seen


@each_dtype
@each_case
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
    fused = ours.embedder(
        **inputs, output_hidden_states=True
    )  # attention in one kernel, as in training
    for kind, states in (("hidden", encoded.hidden_states), ("fused", fused.hidden_states)):
        assert len(states) == len(expected.hidden_states)
        for layer, pair in enumerate(zip(states, expected.hidden_states)):
            same(pair[0][filled], pair[1][filled], dtype, f"{kind} {layer}")
    assert len(encoded.attentions) == len(expected.attentions)
    for layer, pair in enumerate(zip(encoded.attentions, expected.attentions)):
        same(pair[0][filled], pair[1][filled], dtype, f"attention {layer}")


@each_dtype
@each_case
def test_the_gradient_of_every_parameter(seed, dtype):
    theirs, ours, inputs, labels, _ = case(seed, dtype)
    theirs(**inputs, labels=labels).loss.backward()
    ours(**inputs, labels=labels)["loss"].backward()
    gradients = in_their_names(ours, lambda parameter: parameter.grad)
    for name, parameter in trained(theirs):
        same(gradients[name], parameter.grad, dtype, name)


@each_dtype
@each_case
def test_the_weights_after_three_steps_of_adamw(seed, dtype):
    # The bias of the keys shifts all scores of a query alike: softmax ignores it, its gradient is
    # 0. In floating point that is noise, in float32 up to 5e-9, which Adam divides by its own size
    # plus eps. With torch's eps of 1e-8 each side would walk its own way: measured, they part by
    # 6e-5 after three steps at a learning rate of 5e-5, by 1e-4 at 1e-4 and by 8e-4 at 1e-3. BERT's
    # own eps is 1e-6, which drowns the noise: 1e-6 at 1e-4.
    settings = {torch.float64: {"lr": 1e-3}, torch.float32: {"lr": 1e-4, "eps": 1e-6}}[dtype]
    theirs, ours, inputs, labels, _ = case(seed, dtype)
    before = to_hf(ours).state_dict()
    adamw_steps(theirs, {**inputs, "labels": labels}, **settings)
    adamw_steps(ours, {**inputs, "labels": labels}, **settings)
    after = in_their_names(ours, lambda parameter: parameter)
    for name, parameter in trained(theirs):
        same(after[name], parameter.detach(), dtype, name)
        if "key.bias" not in name:
            assert (after[name] - before[name]).abs().max() > 2 * TOLERANCE[dtype], (
                f"{name} hardly moved"
            )


@pytest.mark.parametrize("seed", CASES[:8])
def test_with_torchs_eps_in_float32_only_the_bias_of_the_keys_strays_and_nothing_comes_of_it(seed):
    theirs, ours, inputs, labels, filled = case(seed, torch.float32)
    for model in (theirs, ours):
        adamw_steps(model, {**inputs, "labels": labels}, lr=1e-4)
    after = in_their_names(ours, lambda parameter: parameter)
    for name, parameter in trained(theirs):
        if "key.bias" not in name:
            same(after[name], parameter.detach(), torch.float32, name)
    same(ours(**inputs)["logits"][filled], theirs(**inputs).logits[filled], torch.float32, "logits")


# ------------------------------------------------------------------------------------ and back


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str
)
@pytest.mark.parametrize("seed", CASES[:6])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_there_and_back_every_bit_of_the_state_dict_and_the_configuration_stays(tied, seed, dtype):
    config = draw_config(random.Random(seed))
    config.tie_word_embeddings = tied
    theirs = build(config, dtype)
    back = to_hf(from_hf(theirs))
    before, after = theirs.state_dict(), back.state_dict()
    assert list(after) == list(before)
    for name in before:
        assert after[name].dtype == dtype
        assert torch.equal(after[name].view(torch.uint8), before[name].view(torch.uint8)), name
    word, projection = (
        back.bert.embeddings.word_embeddings.weight,
        back.cls.predictions.decoder.weight,
    )
    assert (projection is word) == tied
    for name in (
        "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
        "intermediate_size", "hidden_act", "max_position_embeddings", "type_vocab_size",
        "hidden_dropout_prob", "attention_probs_dropout_prob",
        "layer_norm_eps", "pad_token_id", "initializer_range", "tie_word_embeddings", "is_decoder",
    ):  # fmt: skip
        assert getattr(back.config, name) == getattr(config, name), name


@pytest.mark.parametrize("field", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_each_dropout_arrives_in_its_own_place(field):
    config = draw_config(random.Random(0))
    setattr(config, field, 0.25)
    ours = from_hf(build(config))
    assert ours.embedder.config.dropout == config.hidden_dropout_prob
    assert ours.embedder.config.attention_dropout == config.attention_probs_dropout_prob
    assert ours.dropout.p == 0  # a BertForMaskedLM drops nothing before its head
    assert getattr(to_hf(ours).config, field) == 0.25


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_the_bias_is_the_one_that_transformers_adds(tied):
    config = draw_config(random.Random(1))
    config.tie_word_embeddings = tied
    theirs = build(config, torch.float64).eval()
    # Untied, `cls.predictions.bias` stays behind and is not used.
    theirs.cls.predictions.decoder.bias.data.normal_()
    ids = torch.arange(8)[None]
    same(from_hf(theirs)(ids)["logits"], theirs(ids).logits, torch.float64, "ours")
    same(to_hf(from_hf(theirs))(ids).logits, theirs(ids).logits, torch.float64, "theirs again")


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_a_checkpoint_that_transformers_has_trained_and_saved_loads_with_its_logits(tied, tmp_path):
    config = draw_config(random.Random(1))
    config.tie_word_embeddings = tied
    theirs = build(config)
    ids = torch.arange(8)[None]
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=0.1)
    theirs(ids, labels=ids).loss.backward()
    optimizer.step()
    theirs.eval().save_pretrained(tmp_path)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    WordPieceTokenizer({word: index for index, word in enumerate(words)}).to_hf().save_pretrained(
        tmp_path
    )
    ours, _ = load_checkpoint(tmp_path)
    same(ours(ids)["logits"], theirs(ids).logits, torch.float32, "logits")


@pytest.mark.parametrize("training", [True, False])
def test_conversion_keeps_the_mode(training):
    ours = from_hf(build(draw_config(random.Random(0))).train(training))
    assert {module.training for module in ours.modules()} == {training}
    assert {module.training for module in to_hf(ours).modules()} == {training}


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_conversion_copies(tied):
    config = draw_config(random.Random(0))
    config.tie_word_embeddings = tied
    theirs = build(config)
    ours = from_hf(theirs)
    back = to_hf(ours)
    models = theirs, ours, back
    storages = [
        {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
        for model in models
    ]
    assert not storages[0] & storages[1] and not storages[1] & storages[2]
    assert all(
        parameter.requires_grad and parameter.is_leaf
        for model in models
        for parameter in model.parameters()
    )
    before = copy.deepcopy(theirs.state_dict())
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(1)
    assert all(
        torch.equal(tensor, before[name])
        for model in (theirs, back)
        for name, tensor in model.state_dict().items()
    )


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_conversion_draws_no_random_number(tied):
    config = draw_config(random.Random(0))
    config.tie_word_embeddings = tied
    theirs = build(config)
    state = torch.random.get_rng_state()
    ours = from_hf(theirs)
    assert torch.equal(torch.random.get_rng_state(), state)
    to_hf(ours)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_pytorch_tanh", "relu", "silu"])
def test_a_deep_copy_and_a_pickled_copy_convert_like_the_original(hidden_act):
    config = draw_config(random.Random(0))
    config.hidden_act = hidden_act
    theirs = build(config)
    for copied in (copy.deepcopy(from_hf(theirs)), pickle.loads(pickle.dumps(from_hf(theirs)))):
        back = to_hf(copied)
        assert back.config.hidden_act == hidden_act
        assert all(
            torch.equal(tensor, theirs.state_dict()[name])
            for name, tensor in back.state_dict().items()
        )


# ------------------------------------------------------------------------------------ course-bert


@pytest.mark.parametrize("padding_side", ["right", "left"])
@torch.no_grad()
def test_course_bert_has_the_logits_that_transformers_gives(padding_side):
    ours, tokenizer = load_checkpoint("course-bert")
    theirs = BertForMaskedLM.from_pretrained(DATA / "course-bert", dtype=torch.float32)
    texts = [
        "A [MASK].",
        "The film was so [MASK] that I left before the end.",
        "It returns a new [MASK], and the old one stays.",
    ]
    batch = tokenizer(texts, padding=True, padding_side=padding_side, return_tensors="pt")
    assert not batch["attention_mask"].all() and not ours.training
    # Its logits are as large as 20, where float32 itself has steps of 2e-6: so relative, too.
    close = {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(ours(**batch)["logits"], theirs(**batch).logits, **close)
    blanks = batch["input_ids"] == tokenizer.mask_token_id
    output = ours(**batch, mask_positions=blanks.nonzero()[:, 1:])
    their_logits = theirs(**batch).logits[blanks]
    torch.testing.assert_close(output["logits"].squeeze(1), their_logits, **close)
