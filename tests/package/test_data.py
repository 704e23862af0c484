"""The course's data: balanced, free of repetition, each file described with its checksum."""

import csv
import hashlib
import re
from collections import Counter, defaultdict
from itertools import combinations

import pytest

from mlm_lib import DATA

COLUMNS = ["file", "what", "origin", "licence", "count", "SHA-256"]


def read_reviews():
    with open(DATA / "reviews.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


REVIEWS = read_reviews()
TEXTS = [review["text"] for review in REVIEWS]


def ngrams(text, n):
    words = re.findall(r"\w+(?:'\w+)?", text.lower())
    return set(zip(*(words[i:] for i in range(n))))


def test_reviews_have_text_label_and_genre():
    assert len(REVIEWS) >= 600
    assert list(REVIEWS[0]) == ["text", "label", "genre"]
    assert all(
        isinstance(cell, str) and cell == cell.strip() != ""
        for review in REVIEWS
        for cell in review.values()
    )


def test_review_labels_are_balanced():
    labels = Counter(review["label"] for review in REVIEWS)
    assert labels == {"positive": len(REVIEWS) // 2, "negative": len(REVIEWS) // 2}


def test_reviews_are_20_to_60_words_long():
    assert [text for text in TEXTS if not 20 <= len(text.split()) <= 60] == []


def test_no_review_comes_twice():
    counts = Counter(" ".join(text.lower().split()) for text in TEXTS)
    assert [text for text, count in counts.items() if count > 1] == []


def test_no_six_words_in_a_row_are_in_more_than_two_reviews():
    seen = Counter(gram for text in TEXTS for gram in ngrams(text, 6))
    assert {" ".join(gram): count for gram, count in seen.items() if count > 2} == {}


def test_no_two_reviews_share_half_their_trigrams():
    grams = [ngrams(text, 3) for text in TEXTS]
    where = defaultdict(list)
    for review, some in enumerate(grams):
        for gram in some:
            where[gram].append(review)
    shared = Counter(pair for reviews in where.values() for pair in combinations(reviews, 2))
    alike = [
        (a, b) for (a, b), count in shared.items() if 2 * count >= min(len(grams[a]), len(grams[b]))
    ]
    assert [(TEXTS[a], TEXTS[b]) for a, b in alike] == []


def passages():
    return (DATA / "passages.txt").read_text(encoding="utf-8").strip().split("\n\n")


def test_passages_are_twelve_different_paragraphs():
    assert len(set(passages())) == len(passages()) == 12
    assert all(len(passage.split()) >= 40 and "\n" not in passage for passage in passages())


def test_a_passage_tells_of_the_election_of_1860():
    assert (
        sum(
            "1860" in passage and "election" in passage and "Lincoln" in passage
            for passage in passages()
        )
        == 1
    )


def table():
    """The table in data/README.md that has our columns: file -> row."""
    for block in (DATA / "README.md").read_text(encoding="utf-8").split("\n\n"):
        lines = [line.strip() for line in block.strip().split("\n")]
        rows = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]
        if rows[0] == COLUMNS:
            return {row[0]: dict(zip(COLUMNS, row, strict=True)) for row in rows[2:]}
    raise AssertionError(f"data/README.md has no table with the columns {' | '.join(COLUMNS)}")


def data_files():
    """What git would carry: everything but the table itself, the package marker and caches."""
    files = (path.relative_to(DATA) for path in DATA.rglob("*") if path.is_file())
    left_out = {"README.md", "__init__.py"}
    return sorted(
        file.as_posix()
        for file in files
        if file.name not in left_out
        and file.suffix != ".pyc"
        and not any(part.startswith(".") or part == "__pycache__" for part in file.parts)
    )


def test_every_data_file_is_described_and_nothing_else():
    assert sorted(table()) == data_files()


def test_every_data_file_states_what_it_is_where_it_comes_from_and_its_licence():
    for name, row in table().items():
        assert all(len(row[column]) >= 3 for column in ("what", "origin", "licence")), name
        assert re.search(r"\d", row["count"]), name


@pytest.mark.parametrize("name", data_files())
def test_data_files_have_their_checksums(name):
    assert hashlib.sha256((DATA / name).read_bytes()).hexdigest() == table()[name]["SHA-256"]


@pytest.mark.parametrize(
    "name, count", [("reviews.csv", len(REVIEWS)), ("passages.txt", len(passages()))]
)
def test_data_files_have_their_counts(name, count):
    assert re.findall(r"\d+", table()[name]["count"].replace(",", ""))[0] == str(count)
