"""Files and folders are written whole or not at all, and a folder has one writer."""

import os
import signal
import subprocess
import sys
import time

import pytest
from hub import ROOT, answer_of, start

from mlm_lib.engine import files
from mlm_lib.engine.files import only_writer, write, write_folder

posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")
OWN = ["config.json", "*.bin"]


def contents(folder):
    """Everything below a folder: files by bytes, links by where they point, folders by None."""
    found = {}
    for path in folder.rglob("*"):
        content = None if path.is_dir() else path.read_bytes() if path.exists() else b"dead"
        name = path.relative_to(folder).as_posix()
        found[name] = os.readlink(path) if path.is_symlink() else content
    return found


def failing(monkeypatch, owner, step, error, *, at=1):
    """Let the `at`-th call of a step fail; returns the list of calls."""
    original, calls = getattr(owner, step), []

    def fail(*args, **options):
        calls.append(step)
        if len(calls) == at:
            raise error
        return original(*args, **options)

    monkeypatch.setattr(owner, step, fail)
    return calls


FULL = OSError(28, "No space left on device")
ERRORS = pytest.mark.parametrize("error", [FULL, KeyboardInterrupt()], ids=["full", "interrupt"])


# ------------------------------------------------------------------------------------ a file


@pytest.mark.parametrize("content", ["a\r\nb\n", "é", "", b"\x00\xff"])
def test_a_file_holds_what_was_written_to_the_byte(tmp_path, content):
    path = tmp_path / "new" / "file"
    for _ in range(2):  # the second time over the first
        write(path, content)
    assert path.read_bytes() == (content if isinstance(content, bytes) else content.encode())
    assert os.listdir(path.parent) == ["file"]


@ERRORS
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failing_step_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step, error):
    write(tmp_path / "file", "old")
    calls = failing(monkeypatch, os, step, error)
    with pytest.raises(type(error)):
        write(tmp_path / "file", "new")
    assert len(calls) == 1 and contents(tmp_path) == {"file": b"old"}


def test_a_text_that_cannot_be_written_leaves_the_old_file(tmp_path):
    write(tmp_path / "file", "old")
    with pytest.raises(UnicodeEncodeError):
        write(tmp_path / "file", "\ud800")
    assert contents(tmp_path) == {"file": b"old"}


@posix
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path):
    import resource

    write(tmp_path / "file", "old")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9_999, limit[1]))
    try:
        with pytest.raises(OSError):
            write(tmp_path / "file", "n" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert contents(tmp_path) == {"file": b"old"}


# ------------------------------------------------------------------------------------ a folder


@pytest.fixture
def folder(tmp_path):
    """A folder with a checkpoint of two files, a note, a sub-folder and links."""
    folder = tmp_path / "here" / "saved"
    (folder / "log" / "2024").mkdir(parents=True)
    (folder / "config.json").write_text("old")
    (folder / "weights.bin").write_text("old")
    (folder / "README.md").write_text("notes")
    (folder / "log" / "2024" / "loss.txt").write_text("1.0")
    (folder / "link").symlink_to("README.md")
    (folder / "dead link").symlink_to("nowhere")
    (folder / "log" / "link").symlink_to("2024")
    return folder


NEIGHBOURS = "README.md", "log", "log/2024", "log/2024/loss.txt", "link", "dead link", "log/link"


def save(folder, during=lambda: None):
    with write_folder(folder, OWN) as stage:
        (stage / "config.json").write_text("new")
        during()


def test_a_folder_has_the_new_files_none_of_the_old_and_all_the_others(folder):
    before = contents(folder)
    folder.chmod(0o750)
    save(folder)
    after = contents(folder)
    assert after.pop("config.json") == b"new"
    assert after == {name: before[name] for name in NEIGHBOURS}
    assert folder.stat().st_mode & 0o777 == 0o750 and os.listdir(folder.parent) == ["saved"]


@pytest.mark.parametrize("exchange", [True, False], ids=["exchange", "two steps"])
def test_neighbours_are_the_same_files_and_not_copies(folder, monkeypatch, exchange):
    """So no byte of them is written, and their size costs no time."""
    if not exchange:
        monkeypatch.setattr(files, "_exchange", lambda one, other: False)
    names = NEIGHBOURS if exchange else ("README.md", "log/2024/loss.txt")
    before = [(folder / name).lstat().st_ino for name in names]
    save(folder)
    assert [(folder / name).lstat().st_ino for name in names] == before


@pytest.mark.parametrize("name", ["README.md", "log/2024/loss.txt"])
def test_an_open_log_keeps_its_later_lines(folder, name):
    with open(folder / name, "a") as log:
        log.write("before\n")
        save(folder, during=lambda: log.write("during\n") and log.flush())
        log.write("after\n")
    assert (folder / name).read_text().splitlines()[-2:] == ["during", "after"]


@posix
def test_a_neighbour_larger_than_the_disk_has_room_for_is_no_hindrance(folder):
    import resource

    (folder / "large").write_bytes(bytes(100_000))
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limit[1]))  # any copy of it would fail
    try:
        save(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert (folder / "large").stat().st_size == 100_000


@pytest.mark.parametrize("name", ["new.txt", "log/new.txt", "log/2024/new.txt"])
def test_what_somebody_writes_into_the_folder_meanwhile_is_kept(folder, monkeypatch, name):
    replace = files._replace

    def late(one, other):  # after the neighbours were given their second names
        (folder / name).write_text("late")
        return replace(one, other)

    monkeypatch.setattr(files, "_replace", late)
    save(folder)
    assert (folder / name).read_text() == "late" and os.listdir(folder.parent) == ["saved"]


def refuse(*args, **options):
    raise OSError(1, "Operation not permitted")


def test_without_second_names_for_files_neighbours_are_copied_and_flushed(folder, monkeypatch):
    before, flushed = contents(folder), []
    fsync = os.fsync
    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "fsync", lambda file: flushed.append(os.fstat(file)) or fsync(file))
    monkeypatch.setattr(files, "_exchange", lambda one, other: False)
    save(folder)
    after = contents(folder)
    assert {name: after[name] for name in NEIGHBOURS} == {name: before[name] for name in NEIGHBOURS}
    copied = {(folder / name).stat().st_ino for name in ("README.md", "log/2024/loss.txt")}
    assert copied <= {info.st_ino for info in flushed}


def test_what_is_new_is_on_the_disk_before_it_takes_its_place(folder, monkeypatch):
    """Otherwise a power cut could lose both: the old files are deleted at the end."""
    steps, fsync, replace = [], os.fsync, files._replace
    monkeypatch.setattr(os, "fsync", lambda file: steps.append(os.fstat(file)) or fsync(file))
    monkeypatch.setattr(files, "_replace", lambda *args: steps.append("replace") or replace(*args))
    save(folder)
    flushed = {info.st_ino for info in steps[: steps.index("replace")]}
    assert (folder / "config.json").stat().st_ino in flushed


def test_a_disk_of_its_own_in_the_folder_is_refused_and_nothing_moves(folder, monkeypatch):
    before = contents(folder.parent)
    monkeypatch.setattr(os.path, "ismount", lambda path: os.path.basename(path) == "log")
    with pytest.raises(OSError, match="log is a disk of its own"):
        save(folder)
    assert contents(folder.parent) == before


STEPS = {
    "the flush": (os, "fsync", 1),
    "a second name": (files, "_double", 1),
    "the second second name": (files, "_double", 2),
    "the exchange": (files, "_exchange", 1),
    "the first of two renames": (os, "rename", 1),
    "the second of two renames": (os, "rename", 2),
}


@ERRORS
@pytest.mark.parametrize("owner, step, at", STEPS.values(), ids=STEPS)
def test_a_failing_step_leaves_the_old_folder_and_nothing_else(
    folder, monkeypatch, owner, step, at, error
):
    before = contents(folder.parent)
    with monkeypatch.context() as patch:
        if step == "rename":
            patch.setattr(files, "_exchange", lambda one, other: False)
        calls = failing(patch, owner, step, error, at=at)
        with pytest.raises(type(error)):
            save(folder)
        assert len(calls) >= at
    assert contents(folder.parent) == before
    save(folder)
    assert (folder / "config.json").read_text() == "new"


@ERRORS
def test_a_failure_after_the_exchange_leaves_the_new_folder_and_every_note(
    folder, monkeypatch, error
):
    before = contents(folder)
    failing(monkeypatch, files, "_exchange", error, at=2)
    with pytest.raises(type(error)):
        save(folder)
    after = contents(folder)
    assert after.pop("config.json") == b"new" and os.listdir(folder.parent) == ["saved"]
    assert after == {name: before[name] for name in NEIGHBOURS}


@ERRORS
def test_an_error_in_the_block_leaves_the_old_folder_and_a_first_one_nothing(folder, error):
    def fail():
        raise error

    before = contents(folder.parent)
    for place in (folder, folder.parent / "first"):
        with pytest.raises(type(error)):
            save(place, during=fail)
    assert contents(folder.parent) == before


def no_library(name):
    raise OSError("no such library")


class Unwilling:
    """A C library on a file system that cannot exchange folders."""

    def __init__(self, name):
        pass

    def renameat2(self, *args):
        return -1


@pytest.mark.parametrize(
    "library",
    [no_library, Unwilling, lambda name: object()],
    ids=["no library", "refusing", "too old"],
)
def test_without_an_exchange_in_one_step_there_are_two(folder, monkeypatch, library):
    before = contents(folder)
    monkeypatch.setattr(files.ctypes, "CDLL", library)
    save(folder)
    after = contents(folder)
    assert after.pop("config.json") == b"new" and os.listdir(folder.parent) == ["saved"]
    assert after == {name: before[name] for name in NEIGHBOURS}


@pytest.mark.skipif(sys.platform != "linux", reason="renameat2 is Linux's")
def test_the_old_folder_is_never_away_from_its_place(folder, monkeypatch):
    failing(monkeypatch, os, "rename", AssertionError("the folder was renamed, not exchanged"))
    save(folder)
    assert (folder / "config.json").read_text() == "new"


def test_the_current_folder_and_one_below_it_stay_current(folder, monkeypatch):
    for place in (folder, folder / "log"):
        monkeypatch.chdir(place)
        save(folder)
        assert os.path.samefile(os.curdir, place)  # nothing that works with relative paths is lost


def test_a_file_in_the_place_of_the_folder_is_an_error_and_stays(tmp_path):
    (tmp_path / "here").write_text("mine")
    for place in (tmp_path / "here", tmp_path / "here" / "deeper"):
        with pytest.raises(OSError, match="here"):
            save(place)
    assert contents(tmp_path) == {"here": b"mine"}


# ------------------------------------------------------------------------------------ kills


@pytest.fixture(scope="module")
def crashes(tmp_path_factory):
    """What stood in the folder after write_folder was killed at each of its steps."""
    root = tmp_path_factory.mktemp("crash") / "root"
    root.mkdir()
    return answer_of(start("crash_write_folder.py", {"ROOT": str(root)}))


@posix
@pytest.mark.parametrize("mode, before", [("over", 1), ("two steps", 1), ("fresh", None)])
def test_a_kill_at_any_step_leaves_the_old_or_the_new_folder_and_every_note(crashes, mode, before):
    found = crashes[mode]
    change = found.index(2)
    assert change > 5  # several steps before the new one is in place, and at least one after
    assert found == [before] * change + [2] * (len(found) - change)


def test_what_a_killed_writer_left_is_deleted_an_hour_later_and_nothing_like_it(
    folder, monkeypatch
):
    left = [".saved.0123abcd.stage", ".saved.0123abcd.aside"]
    mine = [
        ".saved.20240101",
        ".saved.0123abcd.old",
        ".saved.012345.stage",
        ".other.0123abcd.stage",
    ]
    for name in left + mine:
        (folder.parent / name / "sub").mkdir(parents=True)
    save(folder)
    assert sorted(os.listdir(folder.parent)) == sorted([*left, *mine, "saved"])
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + files.STALE + 1)
    save(folder)
    assert sorted(os.listdir(folder.parent)) == sorted([*mine, "saved"])


def test_a_folder_that_a_kill_left_aside_comes_back_before_it_is_written(folder):
    before = contents(folder)
    folder.rename(folder.parent / ".saved.0123abcd.aside")
    save(folder)
    after = contents(folder)
    assert after.pop("config.json") == b"new" and os.listdir(folder.parent) == ["saved"]
    assert after == {name: before[name] for name in NEIGHBOURS}


# ------------------------------------------------------------------------------------ one writer


def hold(folder):
    """A program that holds the folder, and what it says: "held", or why it cannot."""
    program = subprocess.Popen(
        [sys.executable, ROOT / "tests" / "scripts" / "hold_folder.py", folder],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    return program, program.stdout.readline().strip()


def test_a_second_program_is_refused_and_its_folder_named(tmp_path):
    with only_writer(tmp_path / "out"):
        program, said = hold(tmp_path / "out")
        assert program.wait(60) == 0
        assert said == (
            f"another program writes to {tmp_path / 'out'}; "
            "wait for its end or choose another folder"
        )
    program, said = hold(tmp_path / "out")  # now it is free
    program.kill()
    program.wait(60)
    assert said == "held"


@posix
def test_a_kill_frees_the_folder(tmp_path):
    program, said = hold(tmp_path)
    assert said == "held"
    with pytest.raises(BlockingIOError, match="another program writes to"):
        with only_writer(tmp_path):
            pass
    program.send_signal(signal.SIGKILL)
    program.wait(60)
    with only_writer(tmp_path):
        pass


def test_the_holder_may_take_it_again_and_holds_it_to_the_last_end(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with only_writer(tmp_path):
        with only_writer("."):  # by another name
            pass
        program, said = hold(tmp_path)
        assert program.wait(60) == 0 and said.startswith("another program")


def test_an_error_in_the_block_frees_the_folder(tmp_path):
    with pytest.raises(KeyError):
        with only_writer(tmp_path):
            raise KeyError
    assert files._held == {}


def test_a_folder_stays_held_while_it_is_written_whole(tmp_path):
    with only_writer(tmp_path / "saved"):
        save(tmp_path / "saved")
        program, said = hold(tmp_path / "saved")
        assert program.wait(60) == 0 and said.startswith("another program")
