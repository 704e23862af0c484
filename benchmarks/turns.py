"""Time several sides in turns, so that whatever else the machine does falls on all of them alike;
and tell what was found: a row for each comparison, a table, and whether the claims hold."""

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import transformers

HEADER = ["what", "precision", "against", "theirs", "ours", "ratio", "spread", "at least"]


@dataclass
class Row:
    """One comparison.

    Attributes:
        what: what is done.
        precision: "fp32", "bf16" or "".
        against: whom `theirs` belongs to; None stands for a side that cannot do it.
        theirs, ours: medians, in `unit`: "ms", "MB", "nats", or a rate such as "tokens/s".
        at_least: the ratio that we claim, or None.
        low, high: the quartiles of the ratio over the turns, or None where there was one turn.
    """

    what: str
    precision: str
    against: str
    theirs: float | None
    ours: float
    unit: str = "ms"
    at_least: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def ratio(self):
        """How many times better ours is: faster, smaller, or less far from the truth."""
        if self.theirs is None:
            return None
        return self.ours / self.theirs if self.unit.endswith("/s") else self.theirs / self.ours

    @property
    def missed(self):
        """What is to be said if a claim does not hold, or ""."""
        if self.at_least is None or self.ratio >= self.at_least:
            return ""
        what = f"{self.what} {self.precision}".strip()
        return f"{what}: {self.ratio:.3f}, and at least {self.at_least} is claimed"

    def cells(self):
        """The row of a table, in the order of HEADER."""
        theirs, ours = (
            "–" if value is None else f"{value:,.{0 if value >= 100 else 2}f} {self.unit}"
            for value in (self.theirs, self.ours)
        )
        ratio = "–" if self.ratio is None else f"{self.ratio:.2f}"
        middle = "–" if self.low is None else f"{self.low:.2f} to {self.high:.2f}"
        claim = "–" if self.at_least is None else f"{self.at_least:g}"
        return [self.what, self.precision, self.against, theirs, ours, ratio, middle, claim]


def line(cells):
    """A line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


HEAD = line(HEADER) + "\n|---|---|---|---:|---:|---:|---:|---:|"


def versions(device="cpu"):
    """The line above a table: what was measured on what."""
    libraries = f"torch {torch.__version__}, transformers {transformers.__version__}"
    machine = f"{os.cpu_count()} CPUs, {torch.get_num_threads()} threads"
    if device != "cpu":
        machine = f"{torch.cuda.get_device_name()}, {machine}"
    return f"{libraries}, Python {platform.python_version()}, {machine}"


def arguments(text, **more):
    """The options that every suite has, and `more`: {"--flag": its keywords}."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one turn each; no claim is judged")
    parser.add_argument("--threads", type=int, help="of torch; by default what it finds")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--json", type=Path, help="a file for the rows, beside the table")
    for flag, keywords in more.items():
        parser.add_argument(flag, **keywords)
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch finds no such device here; leave it out for the CPU")
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    return args


def report(rows, args):
    """Prints rows as they are measured, and ends the program with 1 where a claim is missed."""
    print(f"{versions(args.device)}{', quick' * args.quick}\n\n{HEAD}", flush=True)
    found = []
    for row in rows:
        if args.quick:
            row.at_least = None
        print(line(row.cells()), flush=True)
        found.append(row)
    if args.json:
        told = {"on": versions(args.device), "rows": [asdict(row) for row in found]}
        args.json.write_text(json.dumps(told), encoding="utf-8")
    if missed := [row.missed for row in found if row.missed]:
        sys.exit("\n" + "\n".join(missed))


def compared(what, precision, against, sides, *, tokens=None, at_least=None, **options):
    """A row of two sides, the other one and ours, timed by `turns`.

    Args:
        tokens: how many a turn has, for a row of tokens a second.
        options: those of `turns`.
    """
    theirs, ours = (milliseconds or None for milliseconds in turns(sides, **options))
    ratios = [their / our for their, our in zip(theirs, ours)] if theirs else []
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 3 else (None,) * 3
    medians = [side and statistics.median(side) for side in (theirs, ours)]
    if tokens is None:
        return Row(what, precision, against, *medians, "ms", at_least, low, high)
    rates = [median and 1000 * tokens / median for median in medians]
    return Row(what, precision, against, *rates, "tokens/s", at_least, low, high)


def turns(sides, *, prepare=tuple, calls=1, warm_up=3, rounds=300, least=25, seconds=4.0,
          quick=False):  # fmt: skip
    """Milliseconds of each turn of each side; an empty list for a side that is None.

    Args:
        sides: functions, called with what `prepare` returns, a tuple made anew for each call and
            not timed.
        calls: how often a side is called in its turn; the last call is timed. With two, the first
            one finds the caches and the heap as the other side left them.
        warm_up, rounds, least, seconds: turns not counted, turns at most, turns at least, and the
            time after which no new turn begins once there were enough.
        quick: two turns, whatever else is asked.
    """
    if quick:
        warm_up, rounds, calls = 0, 2, 1
    times = [[] for _ in sides]
    gc.disable()
    begin = time.perf_counter()
    for turn in range(warm_up + rounds):
        if turn >= warm_up + least and time.perf_counter() - begin > seconds:
            break
        for side, taken in zip(sides, times):
            if side is None:
                continue
            for _ in range(calls):
                given = prepare()
                start = time.perf_counter()
                side(*given)
                last = time.perf_counter() - start
            taken.append(1000 * last)
    gc.enable()
    return [taken[warm_up:] for taken in times]
