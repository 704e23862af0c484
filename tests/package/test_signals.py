"""SIGTERM as an exception, and what it does to processes that are forked meanwhile."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# In a program of its own. Each child is ended at once, as by a pool that is closed when it has just
# been opened: half of the signals arrive before Python has set up the child.
FORKS = """
import contextlib, os, signal, sys, time
from mlm_lib.engine.signals import Terminated, sigterm_as_exception

ends = []
with sigterm_as_exception():
    for _ in range(40):
        child = os.fork()
        if not child:
            time.sleep(20)
            os._exit(7)  # the signal was lost
        os.kill(child, signal.SIGTERM)
        ends.append(os.waitpid(child, 0)[1])
    with contextlib.suppress(Terminated):
        signal.raise_signal(signal.SIGTERM)
        sys.exit("the parent was not told")
    with contextlib.suppress(Terminated):  # and it is told again
        signal.raise_signal(signal.SIGTERM)
        sys.exit("the parent was told only once")
print({os.waitstatus_to_exitcode(end) for end in ends})
print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
def test_a_process_that_is_forked_meanwhile_ends_at_sigterm_however_early_it_comes():
    run = [sys.executable, "-c", FORKS]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.stdout.splitlines() == ["{-15}", "True"], done.stderr
