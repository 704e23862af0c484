"""Files and folders are written whole or not at all, and a folder has one writer."""

import os
import signal
import subprocess
import sys
import time

import pytest
from hub import ROOT, answer_of, start
from tiny_bert import contents

from mlm_lib.engine import files
from mlm_lib.engine.files import only_writer, write, write_folder

posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")
OWN = ["config.json", "*.bin"]
FULL = OSError(28, "No space left on device")
ERRORS = [FULL, KeyboardInterrupt()]


def failing(monkeypatch, owner, step, error, *, at=1):
    """Let the `at`-th call of a step fail."""
    original, calls = getattr(owner, step), []

    def fail(*args):
        calls.append(step)
        if len(calls) == at:
            raise error
        return original(*args)

    monkeypatch.setattr(owner, step, fail)


# ------------------------------------------------------------------------------------ a file


@pytest.mark.parametrize("content", ["a\r\nb\n", "é", "", b"\x00\xff"])
def test_a_file_holds_what_was_written_to_the_byte(tmp_path, content):
    path = tmp_path / "new" / "file"
    for _ in range(2):  # the second time over the first
        write(path, content)
    assert path.read_bytes() == (content if isinstance(content, bytes) else content.encode())
    assert os.listdir(path.parent) == ["file"]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failing_step_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step, error):
    write(tmp_path / "file", "old")
    failing(monkeypatch, os, step, error)
    with pytest.raises(type(error)):
        write(tmp_path / "file", "new")
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


def assert_new(folder, before):
    """It holds the new file, none of the old, and every neighbour; beside it stands nothing."""
    after = contents(folder)
    assert after.pop("config.json") == b"new" and os.listdir(folder.parent) == ["saved"]
    assert after == {name: before[name] for name in NEIGHBOURS}


def test_a_folder_has_the_new_files_none_of_the_old_and_all_the_others_uncopied(folder):
    before, folder_of = contents(folder), [(folder / n).lstat().st_ino for n in NEIGHBOURS]
    folder.chmod(0o750)
    save(folder)
    assert_new(folder, before)
    assert [(folder / name).lstat().st_ino for name in NEIGHBOURS] == folder_of
    assert folder.stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("name", ["README.md", "log/2024/loss.txt"])
def test_an_open_log_keeps_its_later_lines(folder, name):
    with open(folder / name, "a") as log:
        save(folder, during=lambda: log.write("during\n") and log.flush())
        log.write("after\n")
    assert (folder / name).read_text().endswith("during\nafter\n")


def test_what_is_new_is_on_the_disk_before_it_takes_its_place(folder, monkeypatch):
    """Otherwise a power cut could lose both: the old files are deleted at the end."""
    steps, fsync, rename = [], os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda file: steps.append(os.fstat(file)) or fsync(file))
    monkeypatch.setattr(os, "rename", lambda *args: steps.append("rename") or rename(*args))
    save(folder)
    flushed = {info.st_ino for info in steps[: steps.index("rename")]}
    assert (folder / "config.json").stat().st_ino in flushed


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("step, at", [("fsync", 1), ("rename", 1), ("rename", 2), (None, 0)])
def test_a_failing_step_or_block_leaves_the_old_folder_and_nothing_else(
    folder, monkeypatch, step, at, error
):
    def fail():
        raise error

    before = contents(folder.parent)
    with monkeypatch.context() as patch:
        if step:
            failing(patch, os, step, error, at=at)
        with pytest.raises(type(error)):
            save(folder, during=(lambda: None) if step else fail)
    with pytest.raises(type(error)):
        save(folder.parent / "first", during=fail)
    assert contents(folder.parent) == before
    save(folder)
    assert (folder / "config.json").read_text() == "new"


def test_a_neighbour_that_cannot_move_is_told_and_lost_in_no_case(folder, monkeypatch):
    """Such as a disk of its own that is mounted in the folder."""
    before, rename = contents(folder), os.rename

    def stuck(one, other):
        if os.path.basename(one) == "log":
            raise OSError(16, "Device or resource busy")
        rename(one, other)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", stuck)
        with pytest.raises(OSError, match="busy"):
            save(folder)
    assert (folder / "config.json").read_text() == "new"
    save(folder)
    assert_new(folder, before)


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
@pytest.mark.parametrize("mode, before", [("over", 1), ("fresh", None)])
def test_a_kill_at_any_step_leaves_the_old_or_the_new_folder_and_every_note(crashes, mode, before):
    found = crashes[mode]
    change = found.index(2)
    assert change > 5  # several steps before the new one is in place, and at least one after
    assert found == [before] * change + [2] * (len(found) - change)


def test_what_a_killed_writer_left_is_deleted_an_hour_later_and_nothing_like_it(
    folder, monkeypatch
):
    left = ".saved.0123abcd.new"
    mine = [".saved.20240101", ".saved.012345.new", ".other.12345678.new"]
    for name in (left, *mine):
        (folder.parent / name / "sub").mkdir(parents=True)
    save(folder)
    assert sorted(os.listdir(folder.parent)) == sorted([left, *mine, "saved"])
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + files.STALE + 1)
    save(folder)
    assert sorted(os.listdir(folder.parent)) == sorted([*mine, "saved"])


def test_a_folder_that_a_kill_left_under_its_other_name_comes_back_first(folder):
    before = contents(folder)
    folder.rename(folder.parent / ".saved.old")
    with pytest.raises(OSError):
        save(folder, during=lambda: (_ for _ in ()).throw(FULL))
    assert contents(folder) == before
    folder.rename(folder.parent / ".saved.old")
    save(folder)
    assert_new(folder, before)


def test_notes_that_a_kill_left_behind_come_back_beside_those_written_since(folder):
    before = contents(folder)
    folder.rename(folder.parent / ".saved.old")
    folder.mkdir()
    (folder / "config.json").write_text("between")
    (folder / "README.md").write_text("since")
    save(folder)
    assert contents(folder)["README.md"] == b"since"
    (folder / "README.md.old").replace(folder / "README.md")
    assert_new(folder, before)


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


def assert_held(folder):
    program, said = hold(folder)
    assert program.wait(60) == 0
    assert said.startswith(f"another program writes to {folder}; wait for its end")


def test_a_second_program_is_refused_while_the_folder_is_held_or_written_whole(tmp_path):
    with only_writer(tmp_path / "out"):
        assert_held(tmp_path / "out")
        save(tmp_path / "out")
        assert_held(tmp_path / "out")
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
        with pytest.raises(KeyError):
            with only_writer("."):  # by another name
                raise KeyError
        assert_held(tmp_path)
