"""The project: an honest model gets its score, and whatever cannot have one is told why."""

import csv
import json
import math
import os
import sys

import project_notebooks
import pytest
import torch
from project_notebooks import own_cells, save
from test_grade import notebook as lab_notebook

from classroom import project
from classroom.__main__ import main
from classroom.edition import own_answers, student_edition
from classroom.lab import Refused, labs
from classroom.project import (
    COLUMNS,
    NAME,
    NATS,
    USED,
    Questions,
    append,
    board,
    check,
    notebook,
    read_board,
    read_project,
    remarks,
    sound,
    start,
)  # fmt: skip
from docs.site.project_page import PAGE, fill, measured, scale
from mlm_lib.grammar import Grammar

# A model that is a table, with a place for what goes wrong.
TABLE = """# TASK project.16: train, and predict
import torch

def train(documents, vocabulary, seconds):
    number = {{word: n for n, word in enumerate(vocabulary)}}
    counts = torch.ones(len(vocabulary))
    for words in documents:
        for word in words:
            counts[number[word]] += 1
    table = (counts / counts.sum()).log()
    {training}

    def predict(rows, asked):
        found = [table.repeat(len(places), 1) for places in asked]
        {predicting}
        return found

    return predict
"""
# What stands in it, and what the refusal says.
FAULTS = {
    "peeks": ("", "found[7][0, number[rows[7][asked[7][0]]]] += 1; found = "
              "[one.log_softmax(-1) for one in found]", "at row 7, place .* all of them hidden"),
    "dice": ("", "found = [(one * (1 + torch.rand(1))).log_softmax(-1) for one in found]",
             "the answer moves by .* is dropout off"),
    "not begun": ("raise NotImplementedError", "", "train: not answered yet"),
    "never": ("table[:], table[0] = -torch.inf, 0", "", "has probability 0"),
    "late": ("import time\n    end = time.process_time() + 4\n"
             "    while time.process_time() < end: pass", "", "of processor time"),
    "imports": ("import mlm_lib.grammar", "", "No module named .mlm_lib.grammar"),
}  # fmt: skip


def table(path, training="", predicting=""):
    """A notebook that was only just begun, with the cell above."""
    made, source = notebook({}), TABLE.format(training=training, predicting=predicting)
    for cell in made["cells"]:
        if project_notebooks.mark_of(cell["source"]) == "16":
            cell["source"] = source
    path.write_text(json.dumps(made), "utf-8")
    return path


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(project, "ROWS", 60)
    monkeypatch.setattr(project, "DOCUMENTS", 2000)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_what_cannot_have_a_score_is_refused_with_its_reason(name, tmp_path):
    training, predicting, says = FAULTS[name]
    with pytest.raises(Refused, match=says):
        check(table(tmp_path / "x.ipynb", training, predicting), seed=0, seconds=1)


UNSOUND = {
    "is not a list of tensors": lambda told: 5,
    "not a list of tensors": lambda told: [told[0].tolist(), 3],
    "3 answers for 2 rows": lambda told: [*told, told[0]],
    "0 answers for 2 rows": lambda told: [],
    r"row 1 needs \(2, 5\), not \(2, 4\)": lambda told: [told[0], told[1][:, 1:]],
    "in row 0 the probabilities sum to nan": lambda told: [told[0] * torch.nan, told[1]],
    "in row 1 the probabilities sum to 10": lambda told: [told[0], told[1] + math.log(10)],
}


@pytest.mark.parametrize("says", UNSOUND)
def test_only_log_probabilities_of_the_right_shape_are_scored(says):
    told = [torch.randn(n, 5).log_softmax(-1) for n in (1, 2)]
    assert sound(told, [[3], [0, 4]], 5) is told
    with pytest.raises(Refused, match=says):
        sound(UNSOUND[says](told), [[3], [0, 4]], 5)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
@pytest.mark.parametrize("kind", ["pipe", "sparse", "link"])
def test_predictions_are_read_only_from_a_file_of_their_size(kind, tmp_path):
    path = tmp_path / "told.pt"
    path.write_bytes(b"x" * 100)
    assert project.content(path, 100) == b"x" * 100
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/dev/zero")
    else:
        with open(path, "wb") as file:
            file.truncate(10**12)
    with pytest.raises(OSError, match="is not a file of at most 100 bytes"):
        project.content(path, 100)


@pytest.mark.slow
def test_the_reference_beats_a_table_of_frequencies(tmp_path):
    frequent = check(table(tmp_path / "table.ipynb"), seed=0)
    reference = check(save(tmp_path / "reference.ipynb"), seed=0, seconds=6)
    assert float(reference[NATS]) < float(frequent[NATS]), "on the very same questions"
    assert 4 <= int(reference[USED]) <= 7


def test_the_ideal_reader_is_at_the_floor_and_a_uniform_one_as_far_above_as_he_ought_to_be():
    grammar = Grammar.load()
    questions = Questions.draw(grammar, seed=5, rows=40)
    seen = [
        torch.tensor([t not in places for t in range(len(words))])
        for words, places in zip(questions.documents, questions.asked)
    ]
    exchanged = questions.exchanged(project.random.Random(0))
    ideal = grammar.posteriors_of(exchanged, seen)
    told = [one[places].log() for one, places in zip(ideal, questions.asked)]
    assert abs(questions.above(told).nats) < 1e-9
    words = len(grammar.vocabulary)
    uniform = [torch.full((len(places), words), 1 / words).log() for places in questions.asked]
    surprise = torch.cat(questions.ideal).mean().item()
    assert questions.above(uniform).nats == pytest.approx(torch.tensor(words).log() - surprise)


def test_no_asked_word_is_given_away_and_nearly_every_one_is_exchanged():
    questions = Questions.draw(Grammar.load(), seed=6, rows=40)
    rng = project.random.Random(0)
    one = questions.exchanged(rng)
    other = questions.exchanged(rng)
    for words, places, first, second in zip(questions.documents, questions.asked, one, other):
        kept = [t for t in range(len(words)) if t not in places]
        assert all(first[t] == second[t] == words[t] for t in kept)
    true = [words[t] for words, places in zip(questions.documents, questions.asked) for t in places]
    shown = [row[t] for row, places in zip(one, questions.asked) for t in places]
    later = [row[t] for row, places in zip(other, questions.asked) for t in places]
    for first, second in ((true, shown), (true, later), (shown, later)):
        assert sum(a == b for a, b in zip(first, second)) <= 3, "as rare as chance has it"


def test_the_notebook_begins_with_the_students_own_answers(tmp_path):
    (tmp_path / "02_masking_lab.ipynb").write_text(json.dumps(lab_notebook()), "utf-8")
    path, new = start(tmp_path)
    answers = read_project(path).answers
    assert new and "return eligible & (coins < rate)" in answers["project.3"][0]
    assert "SOLUTION" not in answers["project.3"][0] and "# TASK 02" not in answers["project.3"][0]
    assert "project.4 waits for your code here" in answers["project.4"][0]
    assert start(tmp_path) == (path, False)
    path.write_text(path.read_text("utf-8").replace("BETAS", "MOMENTA"), "utf-8")
    begun = path.read_bytes()
    assert start(tmp_path) == (path, False) and path.read_bytes() == begun


def test_an_answer_that_waits_is_not_taken_for_one(tmp_path):
    edition = student_edition(json.loads(labs()["02"].read_text("utf-8")))
    (tmp_path / "02_masking_lab.ipynb").write_text(json.dumps(edition), "utf-8")
    assert own_answers(tmp_path) == {}


def test_the_reference_fills_every_cell_that_the_students_notebook_leaves_open():
    made = project_notebooks.reference()
    assert "waits for your code" not in json.dumps(made)
    marks = [project_notebooks.mark_of(cell["source"]) for cell in notebook({})["cells"]]
    assert set(own_cells()) < set(marks)


def test_the_page_says_what_was_measured_and_what_is_checked():
    page, known = PAGE.read_text("utf-8"), measured()
    assert fill(page, known) == page, "tools/project_scores.py writes it anew"
    assert all(f"| {name} |" in page for name in known)
    assert f"{project.EXACT:.4f} nats" in page and f"{project.SECONDS} in the end" in page
    points = scale(known)
    assert sorted(points.values()) == [points[n] for n in (10, 9, 8, 7, 6, 3)]


def test_what_stands_in_for_something_to_build_is_remarked_upon(tmp_path):
    cell = "# TASK project.14: AdamW\nimport numpy, pandas\nstep = torch.optim.AdamW"
    told = remarks(read_project(save(tmp_path / "x.ipynb", {"14": cell})).answers)
    assert told == ["pandas", "torch.optim"]


def test_a_board_keeps_every_line_and_a_file_of_others_is_left_alone(tmp_path, monkeypatch):
    path, foreign = tmp_path / "scores.csv", tmp_path / "budget.csv"
    row = dict.fromkeys(COLUMNS, "1")
    append(path, row | {NAME: "=cmd", NATS: "0.2"})
    text = path.read_text("utf-8-sig").replace("seed", "seed,room").replace("1\n", "1,B\n")
    path.write_text(text, "utf-8")
    append(path, row | {NAME: "anna", NATS: "0.1"})
    rows = read_board(path)
    assert [(row[NAME], row["room"]) for row in rows] == [("=cmd", "B"), ("anna", "")]
    with open(path, encoding="utf-8-sig", newline="") as file:
        assert next(csv.DictReader(file))[NAME] == "'=cmd"
    monkeypatch.setattr(project, "references", lambda: {"a table": [0.1, 0.2]})
    order = [line.split()[1].strip("[") for line in board(rows)]
    assert order == ["the", "anna", "a", "=cmd"]
    foreign.write_text("month,money\nmay,3\n")
    with pytest.raises(Refused):
        append(foreign, row)
    assert foreign.read_text() == "month,money\nmay,3\n"


@pytest.mark.parametrize(
    "content, says",
    [("", "is empty"), ('{"cells": []}', "has no mark of a lab"), ("PK", "is not a notebook")],
)
def test_a_file_without_a_project_is_told(content, says, tmp_path, capsys):
    path = tmp_path / "x.ipynb"
    path.write_text(content)
    assert main(["project", "check", str(path)]) == 1
    assert says in capsys.readouterr().err
