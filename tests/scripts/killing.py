"""Ends a program by SIGKILL at one of its steps that touch files."""

import os
import signal
import sys


def killed_at(step, action):
    """Run `action` in a process that is killed at its `step`-th step; whether it came so far."""
    child = os.fork()
    if child == 0:
        seen = 0

        def hook(event, args):
            nonlocal seen
            seen += event == "open" or event.startswith(("os.", "shutil."))
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        try:
            action()
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1] == signal.SIGKILL
