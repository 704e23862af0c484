"""The ideal reader answers as the grammar does, and stands wherever a model can."""

import math

import pytest
import torch
from toys import tokenizer_of
from writing_toys import GRAMMARS, World

from mlm_lib.evaluation import fill_mask, masked_answers
from mlm_lib.masking import MaskingCollator
from mlm_lib.training import HeldOut
from mlm_lib.writing import IdealReader

pytestmark = pytest.mark.usefixtures("one_thread")

TALES = World(GRAMMARS / "tales.toml")
DOCUMENTS = TALES.grammar.sample(40, seed=1)


def test_its_answers_are_the_posteriors_of_the_grammar():
    tokenizer, grammar = TALES.tokenizer, TALES.grammar
    batch = MaskingCollator(tokenizer, rate=0.5, mask_share=1.0, random_share=0.0, seed=0)(
        [[2, *TALES.encode(words), 3] for words in DOCUMENTS]
    )
    logits = TALES.reader(batch["input_ids"], batch["attention_mask"])["logits"]
    assert logits.shape == (*batch["labels"].shape, len(tokenizer.vocab))
    for row, labels, words in zip(logits, batch["labels"], DOCUMENTS):
        place = slice(1, len(words) + 1)
        expected = grammar.posteriors(words, labels[place] == -100)
        found = row[place][:, TALES.reader.columns].exp()
        assert torch.allclose(found, expected, rtol=1e-12, atol=1e-15)
        assert row[place].exp().sum(-1).allclose(torch.ones(1, dtype=torch.float64))
    asked = TALES.reader(**batch)
    assert torch.equal(asked["logits"], logits[batch["labels"] != -100])
    nats = -logits[batch["labels"] != -100].gather(
        1, batch["labels"][batch["labels"] != -100][:, None]
    )
    assert asked["loss"].item() == pytest.approx(nats.mean().item())


def test_its_loss_on_masked_words_is_the_floor_of_the_same_words():
    collator = MaskingCollator(TALES.tokenizer, rate=0.4, mask_share=1.0, random_share=0.0, seed=0)
    held_out = HeldOut([[2, *TALES.encode(words), 3] for words in DOCUMENTS], collator)
    answers = masked_answers(TALES.reader, held_out.batches)
    assert answers.nats.mean().item() == pytest.approx(held_out(TALES.reader)["held_out_loss"])


def test_it_fills_blanks_with_words_in_the_order_of_their_chances():
    found = fill_mask(TALES.reader, TALES.tokenizer, "rome again . no [MASK] .", top_k=2)
    assert {one["token_str"] for one in found} == {"city", "town"}
    assert sum(one["score"] for one in found) == pytest.approx(1.0)


def test_it_has_nothing_to_learn():
    assert [weight.numel() for weight in TALES.reader.parameters()] == [0]
    assert "travel" in repr(TALES.reader)


def test_a_text_that_the_grammar_cannot_say_is_an_error_or_leaves_it_lost():
    row = torch.tensor([[2, *TALES.encode("rome rome".split()), 4, 4, 4, 4, 3]])
    with pytest.raises(ValueError, match="no document of this grammar reads so: 'rome rome"):
        TALES.reader(row)
    lost = IdealReader(TALES.grammar, TALES.tokenizer, lost=True)
    chances = lost(row)["logits"][0, 3].exp()
    size = len(TALES.grammar.vocabulary)
    assert chances[TALES.reader.columns].allclose(torch.full((size,), 1 / size).double())


def test_a_length_that_no_document_has_is_an_error_for_the_lost_too():
    row = torch.tensor([[2, 4, 3]])
    for lost in (False, True):
        reader = IdealReader(TALES.grammar, TALES.tokenizer, lost=lost)
        with pytest.raises(ValueError, match="no document of this grammar has 1 words"):
            reader(row)


def test_what_cannot_be_a_reader_is_told():
    with pytest.raises(ValueError, match="words of the grammar are no tokens, such as"):
        IdealReader(TALES.grammar, tokenizer_of("a"))
    with pytest.raises(ValueError, match="grammar is a str; a Grammar is needed"):
        IdealReader("films", TALES.tokenizer)
    with pytest.raises(ValueError, match="lost=1; True or False is needed"):
        IdealReader(TALES.grammar, TALES.tokenizer, lost=1)


def test_the_transformers_form_of_the_tokenizer_serves_as_well():
    row = torch.tensor([[2, *TALES.encode("no tea in italy .".split()), 4, 4, 4, 4, 4, 3]])
    theirs = IdealReader(TALES.grammar, TALES.tokenizer.to_hf())
    assert torch.equal(theirs(row)["logits"], TALES.reader(row)["logits"])
    assert theirs(row)["logits"].max() <= math.log(1.0 + 1e-12)
