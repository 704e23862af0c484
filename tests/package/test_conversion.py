"""Conversion both ways: every weight finds its partner, whatever the order of transformers' names.

That the converted models compute the same is tested in `test_parity.py`.
"""

import pytest
import torch
from tiny_bert import bert
from tiny_modern import modern_bert

from mlm_lib.conversion import FAMILIES, from_hf, to_hf
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
