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
import statistics
import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import torch
from filelock import FileLock

from classroom import tables
from classroom.edition import HOME, own_answers, student_edition, write_new
from classroom.lab import MARK, Refused, Submission, code_cells, joined, read_submission
from classroom.marker import Cells, Limits, Stopped
from classroom.remarks import forbidden, imports, used
from classroom.runner import UNANSWERED
from classroom.tables import number
from mlm_lib.engine.files import write
from mlm_lib.estimates import Estimate
from mlm_lib.grammar import Grammar

SECONDS, GRACE = 300, 1.05  # of processor time, and how far beyond it is not yet refused
DOCUMENTS, ROWS, RATE = 20_000, 600, 0.15  # to train on; to be asked in; the share that is asked
PREDICTING = 60  # seconds of processor time for the answers to all rows
EXACT = 1e-4  # nats by which an answer may move
SKELETON = Path(__file__).with_name("project.ipynb")
FROM = re.compile(r"^# Your answer to task (\w+\.\d+)\.$", re.M)
SOLUTION = re.compile(r"^[ \t]*### (?:BEGIN|END) SOLUTION\n?", re.M)


# ----------------------------------------------------------------------------------- the notebook


def start(folder: Path = HOME) -> tuple[Path, bool]:
    """Write the notebook with the student's answers to the labs: its path, and whether it is new.

    One that was begun is never overwritten.
    """
    return write_new(folder / SKELETON.name, notebook(own_answers(folder)))


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
    """The marked cells, which the check runs, and the names that others set. Raises Refused."""
    submission = read_submission(path, ["project"])
    own = {t: cells for t, cells in submission.answers.items() if t.startswith("project.")}
    return replace(submission, answers=own)


def remarks(answers: dict[str, list[str]]) -> list[str]:
    """What is imported beyond torch and Python's own, and what stands in for something to build."""
    code = "\n".join(cell for cells in answers.values() for cell in cells)
    packages = {name.split(".")[0] for name in imports(code).values()}
    foreign = sorted(packages - {"torch", "numpy", *sys.stdlib_module_names})
    return [*foreign, *used(code, forbidden("\n".join(code_cells(SKELETON))), {})]


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
            raise Refused(f"predict: in row {r} the probabilities sum to {off:.4g}, not 1: logs?")
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
        self.do(f"_rows, _asked = {rows}, {asked}\n{PREDICT}", "predict", PREDICTING)
        try:
            told = torch.load(self.work / "told.pt", weights_only=True)
        except Exception:  # whatever an answer has put there
            raise Refused("predict: what it returned cannot be read back") from None
        return sound(told, asked, words)


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
import torch as _torch
_told = [_torch.as_tensor(_one).detach().cpu() for _one in _predict(_rows, _asked)]
_torch.save([_one.contiguous().clone() for _one in _told], "told.pt")
"""


def check(path: Path, seed: int, seconds: float = SECONDS, limits: Limits = Limits()) -> dict:
    """Train and measure what a notebook defines: the columns of a row of the board.

    Raises:
        Refused: it gets no score. The sentence says why, and where to look.
    """
    submission, rng = read_project(path), random.Random(f"other words {seed}")
    grammar = Grammar.load()
    documents, vocabulary = grammar.sample(DOCUMENTS, seed=2 * seed), grammar.vocabulary
    questions = Questions.draw(grammar, seed)
    with Timed(limits, submission.loose) as cells:
        write(cells.work / "documents.json", json.dumps([documents, vocabulary, seconds]))
        cells.do(LOAD, "the set-up", 60)
        for task, code in submission.answers.items():
            for cell in code:
                cells.do(cell, f"task {task}", limits.seconds)
        used = cells.do(TRAIN, "train", seconds)
        told, again = (
            cells.ask(questions.exchanged(rng), questions.asked, len(vocabulary)) for _ in range(2)
        )
    # Nothing but the hidden words themselves was exchanged between the two.
    moved = [torch.where(a == b, 0.0, (a - b).abs()).amax(-1) for a, b in zip(told, again)]
    r = max(range(len(moved)), key=lambda r: moved[r].max())
    if moved[r].max() > EXACT:
        place, nats = questions.asked[r][int(moved[r].argmax())], moved[r].max()
        raise Refused(
            f"predict: at row {r}, place {place} the answer moves by {nats:.3g} nats when nothing "
            "but the hidden words is exchanged. Are all of them hidden, and is dropout off?"
        )
    found = questions.above(told)
    if found.nats < -4 * found.standard_error:
        raise Refused(f"{found.nats:.3f} nats above the floor: below it no honest reader can be")
    return line(found, used, seed)


# -------------------------------------------------------------------------------------- the board

NAME, NATS, ERROR = "name", "nats above the floor", "standard error"
COLUMNS = [NAME, NATS, ERROR, USED := "processor seconds", "date", "seed"]
REFERENCES = Path(__file__).with_name("project_scores.csv")


def line(found: Estimate, used: float, seed: int) -> dict:
    """The columns of a score, but for the name."""
    nats, error = f"{found.nats:.4f}", f"{found.standard_error:.4f}"
    told = [nats, error, f"{used:.0f}", date.today().isoformat(), seed]
    return dict(zip(COLUMNS[1:], told))


def read_board(path: Path) -> list[dict]:
    """The lines of a board; none where there is no file yet. Raises Refused."""
    return tables.read(path, {*COLUMNS}, "board of the project")


def append(path: Path, row: dict) -> None:
    """Add a line, whole or not at all. Two checks that end at once both have theirs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        rows = [*read_board(path), row]
        columns = dict.fromkeys([*COLUMNS, *(name for row in rows for name in row)])
        tables.write_rows(path, list(columns), rows)


def references() -> dict[str, list[float]]:
    """The scores of each reference, by its name."""
    found = defaultdict(list)
    for row in read_board(REFERENCES):
        found[row[NAME]].append(number(row[NATS]))
    return found


def board(rows: list[dict]) -> list[str]:
    """The lines to print: every score, the best first, with the references between them."""
    told = [(number(row[NATS]), row[NAME], f"± {number(row[ERROR]):.3f}") for row in rows]
    for name, one in references().items():
        spread = f"reference, {len(one)} seeds: {min(one):.3f} to {max(one):.3f}"
        told.append((statistics.mean(one), f"[{name}]", spread))
    told.append((0.0, "[the floor]", "reference, exact"))
    width = max(len(name) for _, name, _ in told)
    return [f"{nats:8.3f}  {name:<{width}}  {note}" for nats, name, note in sorted(told)]
