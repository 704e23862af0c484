"""Prints the lowest versions that `pyproject.toml` allows, in the form of a constraints file.

With them one finds out whether the lower bounds are right. If the printed lines replace
`constraints.txt`, `course.py` installs and tests the oldest packages instead of the newest ones:

    python3 tools/lowest_versions.py > lowest.txt && mv lowest.txt constraints.txt
    python3 course.py test --quick
    git checkout constraints.txt

The packages are those of `constraints.txt`: the course's, and those of the extras test and docs.
"""

import re
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def lowest_versions():
    """One line `name==version` for each direct dependency, in the order of `pyproject.toml`."""
    project = tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    requirements = [*project["dependencies"], *extras["test"], *extras["docs"]]
    return [re.sub(r"^([\w-]+)>=([\w.]+).*", r"\1==\2", text) for text in requirements]


if __name__ == "__main__":
    print(*lowest_versions(), sep="\n")
