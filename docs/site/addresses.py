"""Where the course is: addresses that are made from those in pyproject.toml.

A copy of the course that is kept elsewhere changes them there, and only there. How an address edits
a file or gives the course as a zip file is known for GitHub alone. For a repository on another host
the site therefore leads to the repository and to its issues, and without any address to neither.
"""

import json
import re
import tomllib
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[2]
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"].get("urls", {})
BRANCH = "main"
# The link that `tools/notebook_form.py` writes into the title cell of a notebook.
COLAB = re.compile(r"\n*^\[Open in Colab\]\(([^)\n]*)\)[ \t]*$", re.M)


def colab(title_cell: str) -> str | None:
    """The address at which Colab opens a notebook, from the text of its title cell."""
    found = COLAB.search(title_cell)
    return found[1] if found else None


def colab_of_the_first_lesson() -> str | None:
    first = next((ROOT / "notebooks").glob("00_*.ipynb"))
    return colab("".join(json.loads(first.read_text("utf-8"))["cells"][0]["source"]))


def on_github(urls: dict[str, str]) -> bool:
    return urls.get("Repository", "").startswith("https://github.com/")


def of_course(urls: dict[str, str] = URLS) -> dict[str, str]:
    """{what a reader finds there: the address} for the course as a whole."""
    found = {}
    if repository := urls.get("Repository"):
        found["Repository"] = repository
    if on_github(urls):
        found["Download the course (zip)"] = f"{repository}/archive/refs/heads/{BRANCH}.zip"
        found["MIT licence"] = f"{repository}/blob/{BRANCH}/LICENSE"
    if issues := urls.get("Issues"):
        found["Report an error"] = issues
    return found


def of_file(path: str, title: str, urls: dict[str, str] = URLS) -> dict[str, str]:
    """The same for one file of the repository, such as "notebooks/02_masking.ipynb".

    A report begins with the title of the page.
    """
    found = {}
    if on_github(urls):
        found["Edit on GitHub"] = f"{urls['Repository']}/edit/{BRANCH}/{path}"
    if issues := urls.get("Issues"):
        new = f"{issues}/new?title={quote(f'{title}: ')}"
        found["Report an error"] = new if on_github(urls) else issues
    return found
