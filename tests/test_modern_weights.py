"""Parity with transformers' `ModernBertForMaskedLM`: outputs, gradients, there and back, on disk.

Every configuration is drawn by a seeded generator and is small. float64 must agree to 1e-9 (see
`tiny_modern.unrounded`), and float32 to 1e-5, both absolute.
"""

import copy
import json
import random
import shutil
import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_bert import TOKENS, wordpiece
from tiny_modern import H, V, modern_bert, modern_config, unrounded
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForMaskedLM,
    AutoTokenizer,
    ModernBertForMaskedLM,
    ModernBertModel,
    PreTrainedTokenizerFast,
    pipeline,
)

from mlm_lib.heads import MaskedLMHead
from mlm_lib.labels import IGNORE
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.modern import ModernConfig, ModernEncoder
from mlm_lib.modern_weights import layer_types
from mlm_lib.pretrained import from_hf, load_checkpoint, save_pretrained, to_hf

pytestmark = pytest.mark.usefixtures("one_thread")

CASES = range(30)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
each_case = pytest.mark.parametrize("seed", CASES)
each_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=["float64", "float32"])
either = pytest.mark.parametrize("unpadded", [True, False], ids=["unpadded", "padded"])


def draw_config(rng, **changes):
    """A random small ModernBERT configuration."""
    heads, width = rng.choice(
        [(h, d) for h in (1, 2, 3, 4, 6) for d in (2, 4, 6, 8, 16) if 12 <= h * d <= 48]
    )
    count, vocab_size = rng.randint(1, 6), rng.randint(20, 90)
    options = {
        **{"vocab_size": vocab_size, "hidden_size": heads * width, "num_hidden_layers": count},
        **{"num_attention_heads": heads, "intermediate_size": rng.randint(5, 60)},
        **{"local_attention": rng.randint(2, 9), "norm_eps": rng.choice([1e-5, 1e-3])},
        **{"pad_token_id": rng.choice([0, 3, vocab_size - 1, None])},
        **{"tie_word_embeddings": rng.random() < 0.5},
        **{"global_rope_theta": rng.choice([160_000.0, 50.0])},
        **{"local_rope_theta": rng.choice([10_000.0, 7.0])},
    }
    if rng.random() < 0.5:
        options["global_attn_every_n_layers"] = rng.randint(1, 4)
    else:
        options["layer_types"] = layer_types(count, rng.randint(1, 4))
    return options | changes


def draw_batch(rng, config):
    """ids, mask or None, labels, and which tokens are real."""
    g = torch.Generator().manual_seed(rng.randrange(2**31))
    B, T = rng.randint(2, 4), rng.choice([rng.randint(6, 14), rng.randint(30, 45)])
    ids = torch.randint(config.vocab_size, (B, T), generator=g)
    positions, lengths = torch.arange(T), torch.randint(3, T + 1, (B, 1), generator=g)
    padding = rng.choice(["none", "right", "left", "inside"])
    real = torch.ones(B, T, dtype=torch.bool)
    if padding != "none":
        inside = torch.rand(B, T, generator=g) < 0.6
        inside[:, 0] = True
        real = {"right": positions < lengths, "left": positions >= T - lengths, "inside": inside}
        real = real[padding]
    asked = (torch.rand(B, T, generator=g) < rng.choice([0.15, 0.5, 1.0])) & real
    asked[0, real[0].nonzero()[0]] = True  # without any label transformers returns NaN
    labels = torch.randint(config.vocab_size, (B, T), generator=g).masked_fill(~asked, IGNORE)
    return ids, None if padding == "none" else real.long(), labels, real, padding


def case(seed, dtype):
    """Their model, ours made from it, and a batch."""
    rng = random.Random(seed)
    theirs = modern_bert(seed=seed, scale=0.3, **draw_config(rng)).to(dtype)
    return theirs, from_hf(theirs), *draw_batch(rng, theirs.config)[:4]


def same(ours, theirs, dtype, what):
    assert ours.dtype == theirs.dtype == dtype
    torch.testing.assert_close(
        ours, theirs, rtol=0, atol=TOLERANCE[dtype], msg=lambda text: f"{what}: {text}"
    )


# ------------------------------------------------------------------------------------ outputs


def test_the_draws_cover_every_kind_of_configuration_and_batch():
    seen = set()
    for seed in CASES:
        rng = random.Random(seed)
        config = modern_config(**draw_config(rng))
        *_, padding = draw_batch(rng, config)
        kinds = "".join(kind[0] for kind in config.layer_types)
        seen |= {padding, ("tied", config.tie_word_embeddings), ("local", "s" in kinds)}
        seen |= {("odd window", config.local_attention % 2), f"{len(kinds)} layers"}
    assert len(seen) == 4 + 2 + 2 + 2 + 6, seen


@each_dtype
@each_case
@torch.no_grad()
def test_logits_loss_hidden_states_and_attention_maps(seed, dtype):
    theirs, ours, ids, mask, labels, real = case(seed, dtype)
    with unrounded():
        wanted = {"output_hidden_states": True, "output_attentions": True}
        expected = theirs(ids, attention_mask=mask, labels=labels, **wanted)
    for unpadded in (True, False):
        ours.embedder.unpadded = unpadded
        same(ours(ids, mask)["logits"][real], expected.logits[real], dtype, "logits")
        output = ours(ids, mask, labels=labels)
        same(output["logits"], expected.logits[labels != IGNORE], dtype, "logits at the labels")
        same(output["loss"], expected.loss, dtype, "loss")
        states = ours.embedder(ids, mask, output_hidden_states=True).hidden_states
        for layer, pair in enumerate(zip(states, expected.hidden_states, strict=True)):
            same(pair[0][real], pair[1][real], dtype, f"hidden {layer}")
    maps = ours.embedder(ids, mask, output_attentions=True).attentions
    for layer, pair in enumerate(zip(maps, expected.attentions, strict=True)):
        one, other = (weights.transpose(1, 2)[real] for weights in pair)
        same(one, other, dtype, f"attention {layer}")


@either
@each_dtype
@each_case
def test_the_gradient_of_every_parameter(seed, dtype, unpadded):
    theirs, ours, ids, mask, labels, _ = case(seed, dtype)
    ours.embedder.unpadded = unpadded
    with unrounded():
        theirs(ids, attention_mask=mask, labels=labels).loss.backward()
    ours(ids, mask, labels=labels)["loss"].backward()
    carrier = copy.deepcopy(ours)
    for copied, parameter in zip(carrier.parameters(), ours.parameters(), strict=True):
        copied.data = parameter.grad
    gradients = to_hf(carrier).state_dict()
    for name, parameter in theirs.named_parameters():
        same(gradients[name], parameter.grad, dtype, name)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@torch.no_grad()
def test_as_it_is_with_its_rounding_transformers_differs_in_the_last_digits_of_float32(
    implementation,
):
    theirs = modern_bert(scale=0.3, attn_implementation=implementation).float()
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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("seed", CASES[:6])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_there_and_back_every_bit_of_the_state_dict_and_the_configuration_stays(tied, seed, dtype):
    options = draw_config(random.Random(seed), tie_word_embeddings=tied, mlp_dropout=0.3)
    theirs = modern_bert(**options).to(dtype)
    back = to_hf(from_hf(theirs))
    before, after = theirs.state_dict(), back.state_dict()
    assert list(after) == list(before)
    for name in before:
        assert torch.equal(after[name].view(torch.uint8), before[name].view(torch.uint8)), name
    assert (back.decoder.weight is back.model.embeddings.tok_embeddings.weight) == tied
    for name in (
        "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
        "intermediate_size", "local_attention", "layer_types", "rope_parameters", "norm_eps",
        "max_position_embeddings", "pad_token_id", "initializer_range", "tie_word_embeddings",
        "embedding_dropout", "attention_dropout", "mlp_dropout", "initializer_cutoff_factor",
    ):  # fmt: skip
        assert getattr(back.config, name) == getattr(theirs.config, name), name


@pytest.mark.parametrize("every, layers", [(1, 4), (2, 5), (3, 1), (3, 7), (9, 4)])
def test_the_rhythm_of_global_layers_comes_back(every, layers):
    config = ModernConfig(V, H, layers, 3, 20, global_every=every)
    assert from_hf(to_hf(MaskedLanguageModel.from_config(config))).embedder.config == config


def test_a_rhythm_is_read_from_the_kinds_of_layers_alone():
    kinds = layer_types(6, 2)
    theirs = modern_bert(num_hidden_layers=6, layer_types=kinds)
    assert from_hf(theirs).embedder.config.global_every == 2


@pytest.mark.parametrize("training", [True, False])
def test_conversion_keeps_the_mode_and_draws_no_random_number(training):
    theirs = modern_bert().train(training)
    state = torch.random.get_rng_state()
    ours = from_hf(theirs)
    assert {module.training for module in to_hf(ours).modules()} == {training}
    assert {module.training for module in ours.modules()} == {training}
    assert torch.equal(torch.random.get_rng_state(), state)


OTHERS = {
    "biases in attention": ({"attention_bias": True}, "attention_bias=True; here it must be False"),
    "biases in the feed-forward part": ({"mlp_bias": True}, "mlp_bias=True"),
    "shifting norms": ({"norm_bias": True}, "norm_bias=True"),
    "a head with biases": ({"classifier_bias": True}, "classifier_bias=True"),
    "a decoder without": ({"decoder_bias": False}, "decoder_bias=False; here it must be True"),
    "another activation": ({"hidden_activation": "silu"}, "hidden_activation='silu'.*'gelu'"),
    "another one in the head": ({"classifier_activation": "relu"}, "classifier_activation='relu'"),
    "layers without rhythm": (
        {"layer_types": ["sliding_attention"] + ["full_attention"] * 3},
        "layer_types=.* do not repeat",
    ),
    "stretched positions": (
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        "full_attention has rope_type='linear'; here it must be 'default'",
    ),
}


@pytest.mark.parametrize("changes, words", OTHERS.values(), ids=OTHERS)
def test_a_model_that_is_no_plain_modernbert_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        from_hf(ModernBertForMaskedLM(modern_config(**changes)))


def test_parts_that_do_not_belong_together_are_refused():
    encoder, head = ModernConfig(V, H, 1, 3, 20).parts()
    for other, words in (
        (MaskedLMHead(H, token_embedding=encoder.embeddings.word, layer_norm_eps=1e-5), "biases"),
        (MaskedLMHead(H, V, bias=False, layer_norm_eps=1e-3), "ModernBertConfig has one of each"),
        (MaskedLMHead(H, V + 1, bias=False, layer_norm_eps=1e-5), "one number"),
        (ModernConfig(V, H, 1, 3, 20).parts()[1], "tied to an embedding that is not"),
    ):
        with pytest.raises(ValueError, match=words):
            to_hf(MaskedLanguageModel(encoder, other))
    with pytest.raises(TypeError, match="BertForMaskedLM or a ModernBertForMaskedLM"):
        from_hf(modern_bert().model)


# ------------------------------------------------------------------------------------ on disk


def fast_tokenizer(size=V):
    """A tokenizer as ModernBERT's: special tokens are kept apart, at the end."""
    words = {f"w{i}": i for i in range(size - 5)}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {
        f"{name}_token": f"[{name.upper()}]" for name in ("unk", "cls", "sep", "pad", "mask")
    }
    names = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=made, **special, model_input_names=names)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("modern") / "tiny"
    tokenizer = fast_tokenizer()
    modern_bert(pad_token_id=tokenizer.pad_token_id).float().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original, tmp_path / "tiny")


def load_quietly(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return load_checkpoint(folder)


def logits_of(model):
    ids = torch.randint(V, (3, 20), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(20) < torch.tensor([[20], [11], [4]])).long()
    with torch.no_grad():
        return model(ids, attention_mask=mask)["logits"][mask.bool()]


def assert_same_logits(model, folder):
    theirs = ModernBertForMaskedLM.from_pretrained(folder, dtype=torch.float32).eval()
    torch.testing.assert_close(logits_of(model), logits_of(theirs), rtol=1e-4, atol=1e-4)


def test_a_folder_that_transformers_saved_opens_with_its_logits_and_its_tokenizer(original, capfd):
    model, tokenizer = load_quietly(original)
    said = capfd.readouterr().err
    assert "token_id" not in said, said
    assert_same_logits(model, original)
    assert isinstance(model.embedder, ModernEncoder) and not model.training
    assert tokenizer("w3 w4 w0 [MASK]")["input_ids"] == [3, 4, 0, tokenizer.mask_token_id]


def test_a_configuration_from_before_transformers_5_opens(folder):
    """Such as that of answerdotai/ModernBERT-base on the hub."""
    settings = json.loads((folder / "config.json").read_text())
    for name in ("layer_types", "rope_parameters", "global_attn_every_n_layers"):
        settings.pop(name, None)
    settings |= {"global_rope_theta": 90.0, "local_rope_theta": 8.0, "position_embedding_type": "x"}
    settings |= {"global_attn_every_n_layers": 2, "reference_compile": True}
    (folder / "config.json").write_text(json.dumps(settings))
    model, _ = load_quietly(folder)
    config = model.embedder.config
    assert (config.global_theta, config.local_theta, config.global_every) == (90.0, 8.0, 2)
    assert_same_logits(model, folder)


@pytest.mark.parametrize("tied", [True, False])
def test_what_is_saved_opens_with_transformers_and_is_the_same(tmp_path, tied):
    tokenizer = fast_tokenizer()
    pad = tokenizer.pad_token_id
    ours = from_hf(modern_bert(pad_token_id=pad, tie_word_embeddings=tied).float())
    save_pretrained(ours, tokenizer, tmp_path / "saved")
    assert_same_logits(ours, tmp_path / "saved")
    theirs = AutoModelForMaskedLM.from_pretrained(tmp_path / "saved")
    assert isinstance(theirs, ModernBertForMaskedLM)
    assert theirs.config.sep_token_id == tokenizer.sep_token_id
    again, _ = load_quietly(tmp_path / "saved")
    assert again.embedder.config == ours.embedder.config and again.head.tied == tied
    for name, weight in ours.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight), name


def test_with_our_tokenizer_the_pipeline_of_transformers_fills_blanks(tmp_path):
    torch.manual_seed(0)
    model = MaskedLanguageModel.from_config(ModernConfig(len(TOKENS), 8, 3, 2, 12, window=4))
    save_pretrained(model.eval(), wordpiece(), tmp_path)
    found = pipeline("fill-mask", str(tmp_path))("a b [MASK] c")
    assert len(found) == 5
    assert "token_type_ids" not in AutoTokenizer.from_pretrained(tmp_path)("a b")
    load_quietly(tmp_path)


def test_a_bare_encoder_gets_a_fresh_head_and_says_so(folder):
    theirs = modern_bert(pad_token_id=38).float()
    theirs.model.save_pretrained(folder)
    assert isinstance(theirs.model, ModernBertModel)
    with pytest.warns(UserWarning, match=r"no head\.dense\.weight, .*fresh, so train it"):
        model, _ = load_checkpoint(folder)
    with torch.no_grad():
        ids = torch.arange(12)[None]
        torch.testing.assert_close(
            model.embedder(ids), theirs.model(ids).last_hidden_state, rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("name", ["model.layers.1.attn.Wqkv.weight", "model.final_norm.weight"])
def test_a_missing_weight_or_one_of_another_shape_is_named(folder, name):
    weights = load_file(folder / "model.safetensors")
    kept = {n: w for n, w in weights.items() if n != name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=f"no weights for {name};"):
        load_checkpoint(folder)
    wrong = kept | {name: torch.ones(3)}
    save_file(wrong, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=rf"{name} is \(3,\) in the checkpoint"):
        load_checkpoint(folder)


BAD = {
    "layers without end": ({"num_hidden_layers": 2 * 10**9}, "num_layers=2000000000; a whole"),
    "no window": ({"local_attention": 0}, "window=0; a whole number of|window=0"),
    "no rhythm": ({"global_attn_every_n_layers": 0, "layer_types": None}, "not describe a Modern"),
    "biases": ({"norm_bias": True}, "norm_bias=True; here it must be False"),
    "heads that do not divide": ({"num_attention_heads": 5}, "hidden_size=24.*num_heads=5"),
    "odd heads": ({"num_attention_heads": 8}, "a size of 3, which is odd"),
    "another shape": ({"intermediate_size": 21}, r"\(40, 24\).*\(42, 24\)"),
}


@pytest.mark.parametrize("changes, words", BAD.values(), ids=BAD)
def test_a_configuration_that_does_not_fit_is_refused_with_words_that_help(folder, changes, words):
    settings = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=words):
        load_checkpoint(folder)
