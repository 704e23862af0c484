"""The project: a student's own masked language model, measured in nats above the floor.

`project.ipynb` is the skeleton of the notebook. A cell that says "Your answer to task 02.1." is
filled with the student's answer to that task of a lab. The cells with a comment `# TASK` define
`train(documents, vocabulary, seconds)`, which returns a function `predict(rows, asked)`;
docs/project.md says what both must do. The process that executes these cells never holds the words
that are to be predicted, because other words are put in their places.
"""

import io
import json
import os
import random
import re
import stat
import statistics
import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import torch
from filelock import FileLock

from classroom import tables
from classroom.cells import Cells, Limits, Stopped
from classroom.edition import HOME, own_answers, student_edition, write_new
from classroom.lab import MARK, Refused, Submission, code_cells, joined, read_submission
from classroom.remarks import changed, forbidden, imports, misleading, used
from classroom.runner import UNANSWERED
from classroom.tables import number
from mlm_lib.engine.files import write
from mlm_lib.estimates import Estimate
from mlm_lib.grammar import Grammar

SECONDS, GRACE = 300, 1.05  # of CPU time, and the factor by which it may be exceeded
DOCUMENTS = 20_000  # to train on
ROWS, RATE = 600, 0.15  # documents of the test, and the share of their words to predict
PREDICTING = 60  # seconds of CPU time for all predictions
EXACT = 1e-4  # nats by which a prediction may change when only the hidden words change
SKELETON = Path(__file__).with_name("project.ipynb")
FROM = re.compile(r"^# Your answer to task (\w+\.\d+)\.$", re.M)
SOLUTION = re.compile(r"^[ \t]*### (?:BEGIN|END) SOLUTION\n?", re.M)


# ----------------------------------------------------------------------------------- the notebook


def start(folder: Path = HOME) -> tuple[Path, bool]:
    """Write the notebook of the project with the student's answers to the labs. Returns its path,
    and whether it is new. A notebook that is there already is never overwritten.
    """
    return write_new(folder / SKELETON.name, notebook(own_answers(folder)))


def notebook(answers: dict[str, str]) -> dict:
    """The notebook to begin with. `answers` holds the student's cells by task, such as "02.1"."""
    made = student_edition(json.loads(SKELETON.read_text("utf-8")))
    for cell in made["cells"]:
        cell["source"] = source = joined(cell)
        wanted = FROM.search(source)
        if wanted and wanted[1] in answers:
            own = SOLUTION.sub("", MARK.sub("", answers[wanted[1]])).strip("\n")
            cell["source"] = source[: wanted.start()] + own
    return made


def read_project(path: Path) -> Submission:
    """The cells of the project that the check executes.

    Raises:
        Refused: the file is not a notebook of the project.
    """
    submission = read_submission(path, ["project"])
    own = {t: cells for t, cells in submission.answers.items() if t.startswith("project.")}
    return replace(submission, answers=own)


def remarks(answers: dict[str, list[str]]) -> list[str]:
    """The packages that the answers import besides torch, numpy and the standard library, and what
    else a teacher should look at, such as a finished model."""
    code = "\n".join(cell for cells in answers.values() for cell in cells)
    packages = {name.split(".")[0] for name in imports(code).values()}
    foreign = sorted(packages - {"torch", "numpy", *sys.stdlib_module_names})
    more = [*changed(code, {}), *misleading(code)]
    return [*foreign, *used(code, forbidden("\n".join(code_cells(SKELETON))), {}), *more]


# -------------------------------------------------------------------------------------- the check


@dataclass(frozen=True)
class Questions:
    """The test: documents, the positions to predict in them, and the loss of the ideal reader
    there."""

    documents: list[list[str]]
    asked: list[list[int]]
    ideal: list  # for each document (A,) float64, the ideal reader's -log P of its A hidden words
    number: dict[str, int]  # the id of each word of the vocabulary

    @classmethod
    def draw(cls, grammar: Grammar, seed: int, rows: int = ROWS):
        """Draw a test from the grammar."""
        rng, drawn = random.Random(seed), grammar.sample(rows, seed=2 * seed + 1)
        asked = [[t for t in range(len(words)) if rng.random() < RATE] for words in drawn]
        drawn, asked = zip(*((words, places) for words, places in zip(drawn, asked) if places))
        seen = [[t not in places for t in range(len(row))] for row, places in zip(drawn, asked)]
        surprise = grammar.surprise(drawn, [torch.tensor(row) for row in seen])
        ideal = [one[places] for one, places in zip(surprise, asked)]
        return cls(drawn, asked, ideal, {word: n for n, word in enumerate(grammar.vocabulary)})

    def exchanged(self, rng: random.Random) -> list[list[str]]:
        """The documents with random words in the positions to predict."""
        rows = [list(document) for document in self.documents]
        for row, places in zip(rows, self.asked):
            for t in places:
                row[t] = rng.choice(list(self.number))
        return rows

    def above(self, told: list) -> Estimate:
        """How many nats per word the predictions are above the floor. `told` holds for each
        document a tensor (A, V) of log-probabilities.

        Raises:
            Refused: a right word has probability 0.
        """
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
    """Check that `predict` returned for each document a tensor (A, V) of log-probabilities, and
    return it.

    Raises:
        Refused: a shape is wrong, or the probabilities of a position do not sum to 1.
    """
    if not (isinstance(told, list) and all(isinstance(one, torch.Tensor) for one in told)):
        raise Refused("predict: what it returned is not a list of tensors")
    if len(told) != len(asked):
        raise Refused(f"predict: {len(told)} answers for {len(asked)} rows")
    for r, (places, one) in enumerate(zip(asked, told)):
        if one.shape != (len(places), words):
            raise Refused(f"predict: row {r} needs ({len(places)}, {words}), not {(*one.shape,)}")
        total = one.double().exp().sum(-1)
        off = total[(total - 1).abs().argmax()].item()  # NaN if there is a NaN
        if not abs(off - 1) < 1e-3:
            raise Refused(f"predict: in row {r} the probabilities sum to {off:.4g}, not 1: logs?")
    return told


class Timed(Cells):
    """A process for cells whose CPU time is limited. The CPU time of all its child processes
    counts."""

    # How many times its time a cell may take before it is stopped. Until then it is only refused,
    # with the time that it took.
    patience = 4

    def do(self, code: str, label: str, seconds: float) -> float:
        """Execute a cell, and return the seconds of CPU time that it took.

        Raises:
            Refused: the cell fails, or exceeds `seconds`.
        """
        before = self.use().seconds
        try:
            fault, _ = self.run([code], label, self.patience * seconds + 30)
        except Stopped as stop:
            fault = stop.fault
        waits = bool(fault) and fault["kind"] == UNANSWERED and label.startswith("task")
        if fault and not waits:  # a function that is not written yet may not be needed
            raise Refused(f"{label}: {fault['says']}")
        used = self.use().seconds - before
        if used > GRACE * seconds + 1:
            raise Refused(f"{label}: it took {used:.0f} of {seconds:g} s of processor time")
        return used

    def ask(self, rows: list, asked: list[list[int]], words: int) -> list:
        """The predictions for some documents: for each a tensor (A, V) of log-probabilities.

        Raises:
            Refused: as `sound`, or the predictions cannot be read back.
        """
        self.do(f"_rows, _asked = {rows}, {asked}\n{PREDICT}", "predict", PREDICTING)
        most = 8 * words * sum(map(len, asked)) + 1e6  # bytes; a number has at most 8
        try:
            told = torch.load(io.BytesIO(content(self.work / "told.pt", most)), weights_only=True)
        except Exception:  # the file may hold anything
            raise Refused("predict: what it returned cannot be read back") from None
        return sound(told, asked, words)


def content(path: Path, most: float) -> bytes:
    """The content of a file that an answer has written, and that may be anything else by now.

    Raises:
        OSError: it is not a file of at most `most` bytes.
    """
    # A pipe would otherwise be waited for until somebody writes into it.
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        told = os.fstat(file.fileno())
        if not stat.S_ISREG(told.st_mode) or told.st_size > most:
            raise OSError(f"{path} is not a file of at most {most:g} bytes")
        return file.read()


LOAD = """
import json as _json, sys as _sys
_sys.modules["mlm_lib"] = None  # cannot be imported, because it holds the grammar
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
    """Train and measure the model that a notebook defines. Returns the columns of its row on the
    board, without the name.

    Raises:
        Refused: the model gets no score. The sentence says why, and where to look.
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
    # The two calls differ only in the hidden words, so the predictions must be the same.
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
    """The columns of a row of the board, without the name."""
    nats, error = f"{found.nats:.4f}", f"{found.standard_error:.4f}"
    told = [nats, error, f"{used:.0f}", date.today().isoformat(), seed]
    return dict(zip(COLUMNS[1:], told))


def read_board(path: Path) -> list[dict]:
    """The rows of a board, and no rows if the file does not exist.

    Raises:
        Refused: as `tables.read`.
    """
    return tables.read(path, {*COLUMNS}, "board of the project")


def append(path: Path, row: dict) -> None:
    """Add a row to a board. If two checks end at the same time, both rows are added."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        rows = [*read_board(path), row]
        columns = dict.fromkeys([*COLUMNS, *(name for row in rows for name in row)])
        tables.write_rows(path, list(columns), rows)


def references() -> dict[str, list[float]]:
    """The scores of the reference models, by name."""
    found = defaultdict(list)
    for row in read_board(REFERENCES):
        found[row[NAME]].append(number(row[NATS]))
    return found


def too_good(row: dict) -> bool:
    """Whether a score is less than half of the best score of our references. The predictions of a
    model that has found our grammar in the files of the course are exact, and its score is 0."""
    return number(row[NATS]) < min(map(min, references().values())) / 2


def board(rows: list[dict]) -> list[str]:
    """The lines of the board as they are printed, the best score first, with the references."""
    told = [(number(row[NATS]), row[NAME], f"± {number(row[ERROR]):.3f}") for row in rows]
    for name, one in references().items():
        spread = f"reference, {len(one)} seeds: {min(one):.3f} to {max(one):.3f}"
        told.append((statistics.mean(one), f"[{name}]", spread))
    told.append((0.0, "[the floor]", "reference, exact"))
    width = max(len(name) for _, name, _ in told)
    return [f"{nats:8.3f}  {name:<{width}}  {note}" for nats, name, note in sorted(told)]
