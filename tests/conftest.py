"""What several test files share."""

import os
import random
import re
import shutil
import tempfile
import zlib
from pathlib import Path

import built_site
import pytest
import tiny_bert
import torch

if os.environ.get("CUDA_VISIBLE_DEVICES") == "-1":  # as `course.py test` sets it
    import cpu_only  # noqa: F401


@pytest.fixture(scope="module")
def one_thread():
    """For models so small that a second thread only waits, all the more beside other programs."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A checkpoint of transformers, to be left as it is."""
    return tiny_bert.write(tmp_path_factory.mktemp("original") / "tiny", tiny_bert.bert())


@pytest.fixture
def folder(original, tmp_path):
    """A checkpoint of transformers, to be changed as one likes."""
    return Path(shutil.copytree(original, tmp_path / "tiny"))


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder of the built site. Workers of one run share it."""
    base = tmp_path_factory.getbasetemp()
    return built_site.once(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


@pytest.fixture(scope="session", autouse=True)
def own_temporary_folder(tmp_path_factory):
    """A folder for temporary files that is removed at the end of the tests, because torchrun, and
    programs that a test kills, leave files behind."""
    tmp_path_factory.getbasetemp()  # pytest's own folder is made before, and stays where it is
    own = tempfile.TemporaryDirectory(prefix="test-", ignore_cleanup_errors=True)
    with own as folder, pytest.MonkeyPatch.context() as patch:
        for name in ("TMPDIR", "TEMP", "TMP"):
            patch.setenv(name, folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield folder


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Random numbers of its own for each test, and the same ones in each run: what holds, stays."""
    seed = zlib.crc32(item.nodeid.encode())
    torch.manual_seed(seed)
    random.seed(seed)


def pytest_collection_modifyitems(items):
    """Long files first, so that at the end of a run by several workers only short ones are left:
    first those that hold slow tests, and of each kind the larger ones before the smaller."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path not in slow, -item.path.stat().st_size, item.path))


# Files that take minutes, and whose tests share only what belongs to one lesson.
BY_LESSON = ("tests/course/test_lesson_settings.py", "tests/course/test_labs.py")


@pytest.hookimpl(optionalhook=True)  # there is none without xdist
def pytest_xdist_make_scheduler(config, log):
    """By `--dist loadfile` a worker takes a file as a whole, and of the longest files a lesson."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class LoadLessonScheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file, _, test = nodeid.partition("::")
            lesson = re.search(r"\[(\w+)", test)
            return f"{file}[{lesson[1]}]" if file in BY_LESSON and lesson else file

    return LoadLessonScheduling(config, log)
