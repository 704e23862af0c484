"""The course's site, built once for all tests of a session, and its pages as their tags."""

import subprocess
import sys
import time
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build(out):
    """What `docs/site/build.py` prints, and its exit status."""
    command = [sys.executable, ROOT / "docs" / "site" / "build.py", "--out", out]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    answer = subprocess.run(command, cwd=ROOT, **pipes)
    return answer.returncode, answer.stdout


def once(folder, patience=900):
    """The folder of the site below `folder`, which all workers of a session share: the first one
    that comes builds it, the others wait."""
    told = folder / "site.told"
    try:
        (folder / "site.lock").mkdir()
    except FileExistsError:
        end = time.monotonic() + patience
        while not told.exists() and time.monotonic() < end:
            time.sleep(0.5)
    else:
        status, output = build(folder / "site")
        draft = told.with_suffix(".draft")
        draft.write_text(f"{status}\n{output}", "utf-8")
        draft.rename(told)
    status, _, output = told.read_text("utf-8").partition("\n")
    assert status == "0", f"the site was not built:\n{output[-3000:]}"
    return folder / "site"


@dataclass
class Page:
    """An HTML page: its tags with their attributes, in order, and its text."""

    tags: list[tuple[str, dict]] = field(default_factory=list)
    text: str = ""

    @property
    def ids(self):
        return {attributes["id"] for _, attributes in self.tags if "id" in attributes}

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    def classed(self, name):
        return [a for _, a in self.tags if name in (a.get("class") or "").split()]


def read_page(path):
    page, parser, texts = Page(), HTMLParser(), []
    parser.handle_starttag = lambda tag, attributes: page.tags.append((tag, dict(attributes)))
    parser.handle_data = texts.append
    parser.feed(path.read_text("utf-8"))
    page.text = "".join(texts)
    return page
