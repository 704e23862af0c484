"""The project: a masked language model of a student's own, measured in nats above the floor.

A notebook's marked cells define `train(documents, vocabulary, seconds)`, which returns
`predict(rows, asked)`; docs/project.md has the contract. The process in which they run never holds
the words that are asked for: other words stand in their places.
"""

import json
import math
import random
import secrets
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from classroom import scoreboard
from classroom.lab import NotALab
from classroom.marker import Cells, CouldNotRun, Limits, Stopped, family, members
from classroom.project_notebook import reaches_for_the_grammar, read_project, remarks, start
from classroom.runner import UNANSWERED
from mlm_lib.engine.files import write
from mlm_lib.grammar import Estimate, Grammar

SECONDS, GRACE = 300, 1.05  # of processor time, and how far beyond it is not yet refused
DOCUMENTS, ROWS, RATE = 20_000, 600, 0.15  # to train on; to be asked in; the share that is asked
PREDICTING = 60  # seconds of processor time for the answers to all rows
EXACT, NEAR = 1e-4, 1e-2  # nats: of the same batch again; of other batches, which round otherwise


class Refused(ValueError):
    """The model gets no score. The sentence says why, and where to look."""


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

    def exchanged(self, rng: random.Random, unlike=None) -> list[list[str]]:
        """The rows with any words in the asked places; none of them the one that `unlike` has."""
        words, rows = list(self.number), []
        for number, (document, places) in enumerate(zip(self.documents, self.asked)):
            row = list(document)
            for t in places:
                other = words if unlike is None else [w for w in words if w != unlike[number][t]]
                row[t] = rng.choice(other)
            rows.append(row)
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
        if one.isnan().any():
            raise Refused(f"predict: row {r} has NaN among its log-probabilities")
        total = one.double().exp().sum(-1)
        if ((total - 1).abs() > 1e-3).any():
            off = total[(total - 1).abs().argmax()].item()
            raise Refused(f"predict: in row {r} the probabilities sum to {off:.4g}, not to 1")
    return told


def moved(one: list, other: list, asked: list[list[int]]) -> tuple[int, int, float]:
    """Where two answers to the same rows differ most: row, place, nats."""
    apart = [torch.where(a == b, 0.0, (a - b).abs()).amax(-1) for a, b in zip(one, other)]
    r = max(range(len(apart)), key=lambda r: apart[r].max())
    return r, asked[r][int(apart[r].argmax())], apart[r].max().item()


class Timed(Cells):
    """Cells whose processor time is limited, that of all their processes together."""

    patience = 4  # how many times as much the clock may show
    allowed, before = math.inf, 0.0

    def used(self) -> float:
        total = 0.0
        for one in members(self.process):
            with suppress(psutil.Error):
                total += sum(one.cpu_times()[:4])  # its own, and that of children who have ended
        return total - self.before

    def exceeded(self, seconds: float, passed: float) -> str:
        used = self.used()
        if used > 1.25 * self.allowed + 1:
            return f"it was stopped after {used:.0f} of {self.allowed:g} s of processor time"
        return super().exceeded(seconds, passed)

    def do(self, code: str, label: str, seconds: float) -> float:
        """Run a cell: the processor seconds that it took."""
        self.allowed, self.before = seconds, 0.0
        self.before = self.used()
        try:
            fault, _ = self.run(code, label, self.patience * seconds + 30)
        except Stopped as stop:
            raise Refused(f"{label}: {stop}") from None
        waits = bool(fault) and fault["kind"] == UNANSWERED and label.startswith("task")
        if fault and not waits:  # what waits for its code may not be needed
            raise Refused(f"{label}: {fault['says']}")
        return self.used()

    def ask(self, rows: list, asked: list[list[int]], words: int) -> list:
        """What `predict` answers to rows: for each (A, V) log-probabilities."""
        work = Path(self.folder.name) / "work"
        write(work / "asked.json", json.dumps([rows, asked]))
        self.do(PREDICT, "predict", PREDICTING)
        try:
            told = torch.load(work / "told.pt", weights_only=True)
        except Exception:  # whatever an answer has put there
            raise Refused("predict: what it returned cannot be read back") from None
        return sound(told, asked, words)


SET_UP = """
import sys
sys.modules["mlm_lib"] = None  # which holds the grammar, and with it every answer
"""
LOAD = """
import json as _json
with open("documents.json") as _file:
    _documents, _vocabulary, _seconds = _json.load(_file)
assert "train" in globals(), "no cell with a mark defines train"
"""
TRAIN = "_predict = train(_documents, _vocabulary, _seconds)"
PREDICT = """
import json as _json, torch as _torch
with open("asked.json") as _file:
    _rows, _asked = _json.load(_file)
_told = [_torch.as_tensor(_one).detach().cpu() for _one in _predict(_rows, _asked)]
_torch.save([_one.contiguous().clone() for _one in _told], "told.pt")
_number = getattr(_predict, "parameters", "")
with open("parameters", "w") as _file:
    _file.write(str(_number) if type(_number) is int else "")
"""


def check(path: Path, seed: int, seconds: float = SECONDS, limits: Limits = Limits()) -> dict:
    """Train and measure what a notebook defines: the columns of a row of the board.

    Raises Refused, NotALab, or CouldNotRun.
    """
    submission = read_project(path)
    if reaches := reaches_for_the_grammar(submission.answers):
        raise Refused(reaches)
    grammar, rng = Grammar.load(), random.Random(f"other words {seed}")
    documents, words = grammar.sample(DOCUMENTS, seed=2 * seed), len(grammar.vocabulary)
    questions = Questions.draw(grammar, seed)
    asked = questions.asked
    with Timed(limits, submission.loose) as cells:
        work = Path(cells.folder.name) / "work"
        write(work / "documents.json", json.dumps([documents, grammar.vocabulary, seconds]))
        cells.do(SET_UP, "the set-up", 60)
        for task, code in submission.answers.items():
            for cell in code:
                cells.do(cell, f"task {task}", limits.seconds)
        cells.do(LOAD, "the set-up", 60)
        used = cells.do(TRAIN, "train", seconds)
        if used > GRACE * seconds + 1:
            raise Refused(f"train: it took {used:.0f} of {seconds:g} s of processor time")
        rows = questions.exchanged(rng)
        told = cells.ask(rows, asked, words)
        r, t, nats = moved(told, cells.ask(questions.exchanged(rng, rows), asked, words), asked)
        if nats > EXACT:
            if moved(told, cells.ask(rows, asked, words), asked)[2] > EXACT:
                raise Refused(
                    "predict: the same question gets another answer each time; is dropout still on?"
                )
            raise Refused(
                f"predict peeks: at row {r}, place {t} the answer moves by {nats:.3g} nats when "
                "nothing but the hidden words themselves is exchanged. Hide all asked words"
            )
        # The shortest rows alone, in another order: less is padded beside them.
        few = sorted(range(len(rows)), key=lambda r: len(rows[r]))[: len(rows) // 3]
        rows, places, before = ([one[r] for r in few] for one in (rows, asked, told))
        r, t, nats = moved(before, cells.ask(rows, places, words), places)
        if nats > NEAR:
            raise Refused(
                f"predict: at row {few[r]}, place {t} the answer moves by {nats:.3g} nats when "
                "other rows are asked with it; does padding take part?"
            )
        parameters = (work / "parameters").read_text("utf-8")[:15]
    found = questions.above(told)
    if found.nats < -4 * found.standard_error:
        raise Refused(f"{found.nats:.3f} nats above the floor: below it no honest reader can be")
    return scoreboard.line(found, used, parameters, seed)


# ------------------------------------------------------------------------------------ the command


def begin(args) -> int:
    path, new = start()
    print(f"{path}{'' if new else ' (there already, and not yet begun)'}")
    return 0


def measure(args) -> int:
    """Say the score, or why there is none; then the board, with this score in it."""
    seed = secrets.randbelow(2**30) if args.seed is None else args.seed
    try:
        rows = scoreboard.read_board(args.board) if args.board else []
        for remark in remarks(read_project(args.file).answers):
            print(f"Look at this: {remark}")
        print(f"Training takes up to {args.seconds:g} seconds of one processor.", flush=True)
        row = {scoreboard.NAME: args.name or args.file.resolve().stem}
        with family.gathered():
            row |= check(args.file, seed, args.seconds, Limits(memory=args.memory))
        if args.board and args.seconds == SECONDS:
            scoreboard.append(args.board, row)
    except (NotALab, scoreboard.NotOurBoard, CouldNotRun) as error:
        print(error, file=sys.stderr)
        return 1
    except Refused as error:
        print(f"Refused (seed {seed}). {error}")
        return 1
    nats, error = row[scoreboard.NATS], row[scoreboard.ERROR]
    print(f"{nats} nats above the floor, standard error {error} (seed {seed})")
    if args.board and args.seconds != SECONDS:
        print(f"No line on the board, which holds runs of {SECONDS} seconds.")
    print("\n".join(scoreboard.board([*rows, row], scoreboard.references())))
    return 0
