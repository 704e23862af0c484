"""The signal with which a batch system ends a job, as an exception."""

import os
import signal
import threading
from contextlib import contextmanager


class Terminated(KeyboardInterrupt):
    """The system asked this process to end, by SIGTERM."""


@contextmanager
def sigterm_as_exception():
    """Within this context SIGTERM raises `Terminated`, so that a program can say where it stopped.

    Processes that the program forks meanwhile, such as those with which `datasets` tokenizes a
    corpus, end at SIGTERM without an exception. Outside of the main thread this function changes
    nothing, because Python handles signals only in the main thread.
    """
    global _raises
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    _raises = True
    try:
        yield
    finally:
        _raises = False
        signal.signal(signal.SIGTERM, before)


def _terminate(number, frame):
    raise Terminated


# A forked process begins with the signal handler of its parent, and Python forgets the signals that
# reach the process before it is set up. A pool of processes that is closed soon after it was opened
# sends SIGTERM to its processes. If one of them forgot it, the parent would wait for this process
# without end. So the signal is held back during the fork, and has its default effect in the new
# process.
_raises = False


def _before_fork():
    if _raises:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _after_fork_in_parent():
    if _raises:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _after_fork_in_child():
    if _raises:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
