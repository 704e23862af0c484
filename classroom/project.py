"""The project: a masked language model of a student's own, measured in nats above the floor.

`project.ipynb` is the skeleton of its notebook. A cell that says "Your answer to task 02.1." gets
the student's own answer to that task of a lab. The marked cells define `train(documents,
vocabulary, seconds)`, which returns `predict(rows, asked)`; docs/project.md has the contract. The
process in which they run never holds the words that are asked for: other words stand in their
places.
"""

import json
import random
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from classroom import scoreboard
from classroom.edition import HOME, own_answers, student_edition, write_new
from classroom.lab import MARK, STUB, Refused, Submission, code_cells, joined, read_submission
from classroom.marker import Cells, Limits, Stopped
from classroom.remarks import forbidden, imports, used
from classroom.runner import UNANSWERED
from mlm_lib.engine.files import write
from mlm_lib.grammar import Estimate, Grammar

SECONDS, GRACE = 300, 1.05  # of processor time, and how far beyond it is not yet refused
DOCUMENTS, ROWS, RATE = 20_000, 600, 0.15  # to train on; to be asked in; the share that is asked
PREDICTING = 60  # seconds of processor time for the answers to all rows
EXACT, NEAR = 1e-4, 1e-2  # nats: of the same batch again; of other batches, which round otherwise
SKELETON = Path(__file__).with_name("project.ipynb")
FROM = re.compile(r"^# Your answer to task (\w+\.\d+)\.$", re.M)
SOLUTION = re.compile(r"^[ \t]*### (?:BEGIN|END) SOLUTION\n?", re.M)


# ----------------------------------------------------------------------------------- the notebook


def start(folder: Path = HOME) -> tuple[Path, bool]:
    """Write the notebook with the student's answers to the labs: its path, and whether it is new.

    One that was begun is never overwritten.
    """
    text = json.dumps(notebook(own_answers(folder)), indent=1) + "\n"
    return write_new(folder / SKELETON.name, text)


def notebook(answers: dict[str, str]) -> dict:
    """The notebook to begin with; `answers` holds cells of the labs by their task, as "02.1"."""
    made = student_edition(json.loads(SKELETON.read_text("utf-8")))
    for cell in made["cells"]:
        cell["source"] = source = joined(cell)
        wanted = FROM.search(source)
        if wanted and wanted[1] in answers:
            own = SOLUTION.sub("", MARK.sub("", answers[wanted[1]])).strip("\n")
            cell["source"] = source[: wanted.start()] + own
    return made


def read_project(path: Path) -> Submission:
    """The marked cells, which the check runs, and the names that others set. Raises NotALab."""
    submission = read_submission(path, ["project"])
    own = {t: cells for t, cells in submission.answers.items() if t.startswith("project.")}
    return replace(submission, answers=own)


def remarks(answers: dict[str, list[str]]) -> list[str]:
    """What is imported beyond torch and Python's own, and what stands in for something to build."""
    given, told = imports("\n".join(cell for cells in answers.values() for cell in cells)), []
    known = {"torch", "numpy", *sys.stdlib_module_names}
    unwanted = forbidden("\n".join(code_cells(SKELETON)))
    for task, cells in answers.items():
        code = "\n".join(cells)
        names = {name.split(".")[0] for name in imports(code).values()} - known
        names |= {*used(code, unwanted, given)}
        told += [f"{task} uses {', '.join(sorted(names))}"] if names else []
    return told


# -------------------------------------------------------------------------------------- the check


@dataclass(frozen=True)
class Questions:
    """Documents of which some words are asked for, and what the ideal reader thinks of these."""

    documents: list[list[str]]
    asked: list[list[int]]
    ideal: list  # for each document (A,) float64, -log P of its asked words
    number: dict[str, int]  # of each word in the vocabulary

    @classmethod
    def draw(cls, grammar: Grammar, seed: int, rows: int = ROWS):
        rng, drawn = random.Random(seed), grammar.sample(rows, seed=2 * seed + 1)
        asked = [[t for t in range(len(words)) if rng.random() < RATE] for words in drawn]
        drawn, asked = zip(*((words, places) for words, places in zip(drawn, asked) if places))
        seen = [[t not in places for t in range(len(row))] for row, places in zip(drawn, asked)]
        surprise = grammar.surprise(drawn, [torch.tensor(row) for row in seen])
        ideal = [one[places] for one, places in zip(surprise, asked)]
        return cls(drawn, asked, ideal, {word: n for n, word in enumerate(grammar.vocabulary)})

    def exchanged(self, rng: random.Random) -> list[list[str]]:
        """The rows with any words in the asked places."""
        rows = [list(document) for document in self.documents]
        for row, places in zip(rows, self.asked):
            for t in places:
                row[t] = rng.choice(list(self.number))
        return rows

    def above(self, told: list) -> Estimate:
        """Nats above the floor of log-probabilities, one tensor (A, V) for each row."""
        sums = torch.zeros(len(told), dtype=torch.float64)
        for r, (document, places, answer) in enumerate(zip(self.documents, self.asked, told)):
            true = [self.number[document[t]] for t in places]
            losses = -answer[range(len(places)), true].double()
            if losses.isinf().any():
                t = places[int(losses.argmax())]
                raise Refused(f"at row {r}, place {t} the right word has probability 0")
            sums[r] = (losses - self.ideal[r]).sum()
        return Estimate.of_rows(sums, torch.tensor([len(places) for places in self.asked]))


def sound(told, asked: list[list[int]], words: int) -> list:
    """What `predict` told, if it is a tensor (A, V) of log-probabilities for each row."""
    if len(told) != len(asked):
        raise Refused(f"predict: {len(told)} answers for {len(asked)} rows")
    for r, (places, one) in enumerate(zip(asked, told)):
        if one.shape != (len(places), words):
            raise Refused(f"predict: row {r} needs ({len(places)}, {words}), not {(*one.shape,)}")
        total = one.double().exp().sum(-1)
        off = total[(total - 1).abs().argmax()].item()  # or NaN, if there is one
        if not abs(off - 1) < 1e-3:
            says = f"in row {r} the probabilities sum to {off:.4g}, not to 1"
            raise Refused(f"predict: {says}. Are these log-probabilities?")
    return told


class Timed(Cells):
    """Cells whose processor time counts, that of all their processes together."""

    patience = 4  # how many times as much the clock may show

    def used(self) -> float:
        """Processor seconds until now, with those of children who have ended."""
        return self.total(lambda one: sum(one.cpu_times()[:4]))

    def do(self, code: str, label: str, seconds: float) -> float:
        """Run a cell: the processor seconds that it took."""
        before = self.used()
        try:
            fault, _ = self.run(code, label, self.patience * seconds + 30)
        except Stopped as stop:
            fault = stop.fault
        waits = bool(fault) and fault["kind"] == UNANSWERED and label.startswith("task")
        if fault and not waits:  # what waits for its code may not be needed
            raise Refused(f"{label}: {fault['says']}")
        used = self.used() - before
        if used > GRACE * seconds + 1:
            raise Refused(f"{label}: it took {used:.0f} of {seconds:g} s of processor time")
        return used

    def ask(self, rows: list, asked: list[list[int]], words: int) -> list:
        """What `predict` answers to rows: for each (A, V) log-probabilities."""
        write(self.work / "asked.json", json.dumps([rows, asked]))
        self.do(PREDICT, "predict", PREDICTING)
        try:
            told = torch.load(self.work / "told.pt", weights_only=True)
        except Exception:  # whatever an answer has put there
            raise Refused("predict: what it returned cannot be read back") from None
        return sound(told, asked, words)

    def moves(self, rows: list, asked: list[list[int]], told: list) -> tuple[str, float]:
        """Where the answer to these rows differs most from what was told, and by how many nats."""
        again = self.ask(rows, asked, told[0].shape[1])
        apart = [torch.where(a == b, 0.0, (a - b).abs()).amax(-1) for a, b in zip(again, told)]
        r = max(range(len(apart)), key=lambda r: apart[r].max())
        nats, t = apart[r].max().item(), asked[r][int(apart[r].argmax())]
        return f"at row {r}, place {t} the answer moves by {nats:.3g} nats when", nats


LOAD = """
import json as _json, sys as _sys
_sys.modules["mlm_lib"] = None  # which holds the grammar, and with it every answer
with open("documents.json") as _file:
    _documents, _vocabulary, _seconds = _json.load(_file)
"""
TRAIN = """
assert "train" in globals(), "no cell with a mark defines train"
_predict = train(_documents, _vocabulary, _seconds)
"""
PREDICT = """
import json as _json, torch as _torch
with open("asked.json") as _file:
    _rows, _asked = _json.load(_file)
_told = [_torch.as_tensor(_one).detach().cpu() for _one in _predict(_rows, _asked)]
_torch.save([_one.contiguous().clone() for _one in _told], "told.pt")
"""


def check(path: Path, seed: int, seconds: float = SECONDS, limits: Limits = Limits()) -> dict:
    """Train and measure what a notebook defines: the columns of a row of the board.

    Raises:
        Refused: it gets no score. The sentence says why, and where to look.
    """
    submission = read_project(path)
    for task, cells in submission.answers.items():
        if "def train(" in cells[-1] and STUB.format(task) in cells[-1]:
            raise Refused(STUB.format(task))
    grammar, rng = Grammar.load(), random.Random(f"other words {seed}")
    documents, words = grammar.sample(DOCUMENTS, seed=2 * seed), len(grammar.vocabulary)
    questions = Questions.draw(grammar, seed)
    asked, rows = questions.asked, questions.exchanged(rng)
    with Timed(limits, submission.loose) as cells:
        write(cells.work / "documents.json", json.dumps([documents, grammar.vocabulary, seconds]))
        cells.do(LOAD, "the set-up", 60)
        for task, code in submission.answers.items():
            for cell in code:
                cells.do(cell, f"task {task}", limits.seconds)
        used = cells.do(TRAIN, "train", seconds)
        told = cells.ask(rows, asked, words)
        where, nats = cells.moves(questions.exchanged(rng), asked, told)
        if nats > EXACT and cells.moves(rows, asked, told)[1] > EXACT:
            raise Refused("predict: each time another answer to a question; is dropout still on?")
        if nats > EXACT:
            raise Refused(
                f"predict peeks: {where} nothing but the hidden words themselves is exchanged. "
                "Hide all asked words"
            )
        # The shortest rows alone, in another order: less is padded beside them.
        few = sorted(range(len(rows)), key=lambda r: len(rows[r]))[: len(rows) // 3]
        where, nats = cells.moves(*([one[r] for r in few] for one in (rows, asked, told)))
        if nats > NEAR:
            raise Refused(
                f"predict: among the {len(few)} shortest rows, {where} the others are not asked "
                "with them; does padding take part?"
            )
    found = questions.above(told)
    if found.nats < -4 * found.standard_error:
        raise Refused(f"{found.nats:.3f} nats above the floor: below it no honest reader can be")
    return scoreboard.line(found, used, seed)
