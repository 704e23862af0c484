"""What a model loses above the ideal reader, and what decides each word."""

import math

import pytest
import torch
from small_runs import GRAMMAR

from mlm_lib.encoder import EncoderConfig
from mlm_lib.gap import answers_back, pattern, split_sentences, surprises, word_kinds
from mlm_lib.grammar import Grammar
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.masking import MaskingCollator
from mlm_lib.training import HeldOut
from mlm_lib.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

KINDS = """
[zoo.latents]
mood = { good = 2, bad = 1 }
[zoo.latents.keeper]
facts = "keeper his"
rows = ["he his", "she her"]
[zoo.words]
day = ["monday", "sunday"]
opinion.good = ["great", "fine"]
opinion.bad = { dull = 1, sunday = 2 }
[zoo.steps.first]
sentences = ["on {day} {keeper} was {opinion|mood} .", { say = "{keeper.his} day ." }]
"""


@pytest.fixture
def zoo(tmp_path):
    path = tmp_path / "zoo.toml"
    path.write_text(GRAMMAR)
    return Grammar.load(path)


def set_up(grammar, number=40):
    names = [*SPECIAL_TOKENS, *grammar.vocabulary]
    tokenizer = WordPieceTokenizer({name: index for index, name in enumerate(names)})
    documents = grammar.sample(number, seed=1)
    rows = [tokenizer.encode(" ".join(words)) for words in documents]
    collator = MaskingCollator(tokenizer, rate=0.4, mask_share=1.0, random_share=0.0, seed=0)
    torch.manual_seed(0)
    shape = EncoderConfig(len(names), 16, 1, 2, 32, max_length=32)
    evaluation = HeldOut(rows, collator, batch_size=7)
    return MaskedLanguageModel.from_config(shape).train(), evaluation, tokenizer, documents


def test_the_models_surprises_are_its_held_out_loss_word_by_word(zoo):
    model, evaluation, tokenizer, _ = set_up(zoo)
    found = surprises(model, evaluation, zoo, tokenizer.tokens)
    assert len(found) == evaluation.count and model.training
    mean = sum(one.model for one in found) / len(found)
    assert mean == pytest.approx(evaluation(model)["held_out_loss"], rel=1e-5)
    assert all(one.word in one.sentence and one.sentence[-1] == "." for one in found)


def test_the_ideal_surprises_are_those_of_the_whole_documents_at_the_same_words(zoo):
    model, evaluation, tokenizer, documents = set_up(zoo)
    found, whole = iter(surprises(model, evaluation, zoo, tokenizer.tokens)), []
    for batch in evaluation.batches:
        for words, seen in zip(*answers_back(batch, tokenizer.tokens)):
            chances = zoo.posteriors(words, seen)
            for place in (~seen).nonzero().flatten().tolist():
                one, chance = next(found), chances[place, zoo.vocabulary.index(words[place])]
                assert one.word == words[place]
                assert one.ideal == pytest.approx(-math.log(chance))
            whole.append(words)
    assert sorted(whole) == sorted(documents) and next(found, None) is None


def test_a_word_is_of_the_kind_that_decides_it(tmp_path):
    path = tmp_path / "zoo.toml"
    path.write_text(KINDS)
    assert word_kinds("zoo", path) == {
        "monday": "drawn freely",
        **dict.fromkeys(["sunday", "great", "fine", "dull"], "mood"),
        **dict.fromkeys(["he", "she", "his", "her"], "keeper"),
    }


@pytest.mark.parametrize("world", Grammar.load().worlds)
def test_the_words_that_our_grammar_says_are_found(world):
    kinds, said = word_kinds(world), set(Grammar.load(worlds=[world]).vocabulary)
    unsaid = kinds.keys() - said  # a fact that only decides which sentence is told
    assert len(unsaid) <= 1 and len(kinds) > 90


def test_an_unknown_world_is_named():
    with pytest.raises(ValueError, match="opera"):
        word_kinds("opera")


def test_a_text_without_a_last_full_stop_keeps_its_last_sentence():
    assert split_sentences("it is . so what ?".split()) == [["it", "is", "."], ["so", "what", "?"]]
    assert pattern(["so", "dull", "?"], {"dull": "mood"}) == "so _ ?"
