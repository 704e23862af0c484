"""What several test files share."""

import pytest
import torch


@pytest.fixture(scope="module")
def one_thread():
    """For models so small that a second thread only waits, and far more so while other programs run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
