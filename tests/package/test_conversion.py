"""Conversion both ways: every weight finds its partner, whatever the order of transformers' names.

That the converted models of the package's own families compute the same is tested in
`test_parity.py`. Here one more family is added, to show that its entry in the table is enough.
"""

import pytest
import torch
from tiny_bert import bert, configure, load_quietly, wordpiece, write
from tiny_modern import modern_bert
from toys import drawn
from transformers import DistilBertConfig, DistilBertForMaskedLM

from mlm_lib.conversion import FAMILIES, Family, from_hf, to_hf
from mlm_lib.encoder import EncoderConfig
from mlm_lib.heads import ACTIVATIONS
from mlm_lib.masked_lm import MaskedLanguageModel

either_tie = pytest.mark.parametrize("tied", [True, False])
MAKE = {"bert": bert, "modernbert": modern_bert}


@either_tie
@pytest.mark.parametrize("kind", FAMILIES)
def test_every_weight_of_a_family_has_its_partner(kind, tied):
    family, theirs = FAMILIES[kind], MAKE[kind](tie_word_embeddings=tied)
    ours, names = from_hf(theirs).state_dict(), theirs.state_dict().keys()
    pairs = dict(family.weight_pairs(theirs.config.num_hidden_layers, tied))
    assert ours.keys() <= pairs.keys()
    named = [name for our_name in ours for name in pairs[our_name]]
    assert len(set(named)) == len(named)
    assert names - named <= {family.second_bias}


def test_query_key_and_value_keep_their_places_in_any_order_of_the_names(monkeypatch):
    theirs = bert()
    expected, names = from_hf(theirs).state_dict(), theirs.state_dict()
    backwards = {name: names[name] for name in reversed(names)}
    monkeypatch.setattr(theirs, "state_dict", lambda: backwards)
    found = from_hf(theirs).state_dict()
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS.keys() - {"softmax"}))
def test_each_activation_is_that_of_the_same_meaning_in_transformers(activation):
    config = EncoderConfig(12, 8, 2, 2, 12, activation=activation, initializer_range=0.5)
    ours, ids = MaskedLanguageModel.from_config(config).eval(), torch.arange(12)[None]
    theirs = to_hf(ours)
    torch.testing.assert_close(ours(ids)["logits"], theirs(ids).logits, rtol=1e-5, atol=1e-5)
    assert from_hf(theirs).embedder.config == config


def test_an_activation_that_transformers_lacks_is_refused():
    model = MaskedLanguageModel.from_config(EncoderConfig(12, 8, 1, 2, 12, activation="softmax"))
    assert model(torch.arange(12)[None])["logits"].isfinite().all()
    with pytest.raises(ValueError, match="activation='softmax'; one of gelu"):
        to_hf(model)


def test_a_checkpoint_that_says_it_is_no_decoder_is_loaded_and_a_decoder_is_refused(tmp_path):
    theirs = modern_bert(vocab_size=16)
    configure(write(tmp_path, theirs), is_decoder=False)
    model, _ = load_quietly(tmp_path)
    ids = torch.arange(12)[None]
    expected = theirs(ids).logits.float()
    torch.testing.assert_close(model(ids)["logits"], expected, rtol=1e-4, atol=1e-4)
    configure(tmp_path, is_decoder=True)
    with pytest.raises(ValueError, match="is_decoder=True in the checkpoint; here .* False"):
        load_quietly(tmp_path)


# ------------------------------------------------------------------------------------ a new family


DISTILBERT = Family(
    model_class=DistilBertForMaskedLM,
    config_class=EncoderConfig,
    weight_names={
        "embedder.embeddings.word": "distilbert.embeddings.word_embeddings",
        "embedder.embeddings.position": "distilbert.embeddings.position_embeddings",
        "embedder.embeddings.norm": "distilbert.embeddings.LayerNorm",
        "embedder.blocks.*.attention.query_key_value": (
            "distilbert.transformer.layer.*.attention.q_lin",
            "distilbert.transformer.layer.*.attention.k_lin",
            "distilbert.transformer.layer.*.attention.v_lin",
        ),
        "embedder.blocks.*.attention.output": "distilbert.transformer.layer.*.attention.out_lin",
        "embedder.blocks.*.attention_norm": "distilbert.transformer.layer.*.sa_layer_norm",
        "embedder.blocks.*.expand": "distilbert.transformer.layer.*.ffn.lin1",
        "embedder.blocks.*.contract": "distilbert.transformer.layer.*.ffn.lin2",
        "embedder.blocks.*.feed_forward_norm": "distilbert.transformer.layer.*.output_layer_norm",
        "head.dense": "vocab_transform",
        "head.norm": "vocab_layer_norm",
    },
    projection="vocab_projector",
    config_names={  # as in a config.json; `hidden_size`, for example, is only an alias of `dim`
        "vocab_size": "vocab_size",
        "hidden_size": "dim",
        "num_layers": "n_layers",
        "num_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "max_length": "max_position_embeddings",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "activation": "activation",
        "initializer_range": "initializer_range",
        "pad_token_id": "pad_token_id",
    },
    # A DistilBERT has no segments, and its epsilon is not a setting.
    our_settings=lambda theirs: {"type_vocab_size": 0, "layer_norm_eps": 1e-12},
)


@pytest.fixture
def distilbert_known(monkeypatch):
    """Adds DistilBERT to the table of families, and changes nothing else of the package."""
    monkeypatch.setitem(FAMILIES, "distilbert", DISTILBERT)


def distilbert(**changes):
    """A small DistilBERT. None of its sizes is a default, so a size that is not read is noticed."""
    sizes = {"vocab_size": 16, "dim": 8, "n_layers": 3, "n_heads": 2, "hidden_dim": 12}
    config = DistilBertConfig(**sizes | {"max_position_embeddings": 20} | changes)
    return drawn(DistilBertForMaskedLM(config), seed=0, scale=0.4).float().eval()


@either_tie
def test_a_new_family_needs_only_its_entry_in_the_table(distilbert_known, tmp_path, tied):
    theirs = distilbert(tie_word_embeddings=tied)
    ids, real = torch.arange(18).view(2, 9) % 16, torch.ones(2, 9, dtype=torch.long)
    real[1, 6:] = 0
    expected = theirs(ids, attention_mask=real).logits
    opened, _ = load_quietly(write(tmp_path, theirs))
    for ours in (from_hf(theirs), opened):
        logits = ours(ids, attention_mask=real)["logits"]
        torch.testing.assert_close(logits[real > 0], expected[real > 0], rtol=1e-5, atol=1e-5)
        back = to_hf(ours)
        assert type(back) is DistilBertForMaskedLM
        assert back.config.tie_word_embeddings == tied
        assert torch.equal(back(ids, attention_mask=real).logits, expected)


def test_a_family_that_shares_the_classes_of_another_leaves_its_models_alone(distilbert_known):
    assert to_hf(from_hf(bert())).config.model_type == "bert"


def test_a_tokenizer_gives_no_segments_to_a_model_that_has_none(distilbert_known, tmp_path):
    write(tmp_path, distilbert())
    assert "token_type_ids" in wordpiece().to_hf()("a b")
    model, tokenizer = load_quietly(tmp_path)
    batch = tokenizer(["a b"], return_tensors="pt")
    assert batch.keys() == {"input_ids", "attention_mask"}
    assert model(**batch)["logits"].shape == (1, 4, 16)


def test_a_setting_that_a_family_does_not_have_must_have_the_value_of_the_family(distilbert_known):
    config = EncoderConfig(12, 8, 1, 2, 12, type_vocab_size=0, layer_norm_eps=1e-5)
    with pytest.raises(ValueError, match="layer_norm_eps=1e-05, but DistilBertForMaskedLM"):
        to_hf(MaskedLanguageModel.from_config(config))
