"""What several test files share."""

import pytest
import torch


@pytest.fixture(scope="module")
def one_thread():
    """For models so small that a second thread only waits, all the more beside other programs."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_collection_modifyitems(items):
    """Long files first, so that at the end of a run by several workers only short ones are left:
    first those that hold slow tests, and of each kind the larger ones before the smaller."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path not in slow, -item.path.stat().st_size, item.path))
