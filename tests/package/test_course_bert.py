"""course-bert is as good as its card says, and its vocabulary fits a text of one's own."""

import re
import string

import card_course_bert as card
import pytest

from mlm_lib import DATA
from mlm_lib.corpus import load_corpus
from mlm_lib.pretrained import load_checkpoint

FOLDER = DATA / "course-bert"
SIGNS = "“”„‘’«»–—…·•′″§¶†¡¿°©®™€£¥×÷±−≤≥≠½¼¾²³←→★☆✓"


@pytest.fixture(scope="module")
def course_bert():
    return load_checkpoint(str(FOLDER))


@pytest.fixture(scope="module")
def reviews():
    return load_corpus("reviews", "validation")


def stated(row):
    """The numbers in a row of the card's tables, by the words that the row begins with."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    line = re.search(rf"^\| {re.escape(row)} .*\|$", text, re.M)[0]
    return [float(number) for number in re.findall(r"\d+\.\d+", line)]


@pytest.mark.slow
def test_it_is_at_most_six_hundredths_of_a_nat_above_the_floor(course_bert):
    floor, loss = card.above_the_floor(*course_bert)
    assert loss - floor <= 0.06
    assert stated("held-out grammar")[:3] == pytest.approx([floor, loss, loss - floor], abs=0.002)


@pytest.mark.slow
def test_it_answers_single_tokens_of_reviews_better_than_the_former_edition(course_bert, reviews):
    """By every seed of the masks, and by the words of a text, which no vocabulary changes."""
    seeds = card.by_seed(*course_bert, reviews)
    now, before = stated("reviews, single tokens hidden")[:2]
    assert sum(seeds) / len(seeds) == pytest.approx(now, abs=0.006)
    assert max(seeds) < min(stated("the former edition, by seed of the masks"))
    assert max(seeds) < before
    now, before = stated("reviews, nats per word")
    assert card.nats_per_word(*course_bert, reviews) == pytest.approx(now, abs=0.006)
    assert now < before


@pytest.mark.slow
@pytest.mark.parametrize("corpus", ["reviews", "docs"])
def test_a_piece_hidden_alone_is_easier_than_with_its_whole_word(course_bert, corpus):
    alone, together = card.pieces(*course_bert, load_corpus(corpus, "validation"))
    assert len(alone) == len(together) > 200
    less = together - alone
    assert less.mean() > 4 * less.std() / len(less) ** 0.5
    numbers = stated(f"{corpus}, the last piece")[:2]
    assert numbers == pytest.approx([alone.mean().item(), together.mean().item()], abs=0.006)


def test_a_review_of_ones_own_holds_nothing_unknown_but_emoji(course_bert):
    _, tokenizer = course_bert
    assert card.unknown(tokenizer, card.OWN_REVIEW) == 0
    assert card.unknown(tokenizer, card.OWN_REVIEW + " 🎬") == 1


def test_every_printable_sign_is_in_its_alphabet(course_bert):
    _, tokenizer = course_bert
    letters = string.ascii_letters + string.digits
    for sign in string.punctuation + letters + SIGNS:
        assert card.unknown(tokenizer, sign) == 0, sign
        assert card.unknown(tokenizer, f"film{sign}film") == 0, sign


@pytest.mark.slow
def test_ten_blanks_are_answered_as_its_card_says(course_bert):
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    for blank, best in card.answers(*course_bert).items():
        assert f"| {blank} | {', '.join(best)} |" in text
