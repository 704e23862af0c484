"""Time several sides in turns: whatever else the machine does falls on all of them alike."""

import gc
import math
import os
import platform
import statistics
import time

import torch
import transformers


def versions():
    """The line above a table: what was measured on what."""
    libraries = f"torch {torch.__version__}, transformers {transformers.__version__}"
    machine = f"{os.cpu_count()} CPUs, {torch.get_num_threads()} threads"
    return f"{libraries}, Python {platform.python_version()}, {machine}"


def medians(sides, *, prepare=tuple, calls=1, warm_up=3, rounds=300, least=25, seconds=4.0):
    """Median milliseconds of each side; NaN for a side that is None.

    Args:
        sides: functions, called with what `prepare` returns, a tuple made anew for each call and
            not timed.
        calls: how often a side is called in its turn; the last call is timed. With two, the first
            one finds the caches and the heap as the other side left them.
        warm_up, rounds, least, seconds: turns not counted, turns at most, turns at least, and the
            time after which no new turn begins once there were enough.
    """
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
            taken.append(last)
    gc.enable()
    return [statistics.median(taken[warm_up:]) * 1000 if taken else math.nan for taken in times]
