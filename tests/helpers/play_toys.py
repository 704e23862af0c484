"""What the tests of docs/site/play share: its functions, asked in node."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "site" / "play"
SCRIPT = Path(__file__).parents[1] / "scripts" / "play.mjs"


def ask(*calls):
    """What the functions of `tests/scripts/play.mjs` answer, in the order of the calls."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node is installed")
    asked = json.dumps({"folder": str(FOLDER), "calls": calls}).encode()
    done = subprocess.run([node, SCRIPT], input=asked, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)
