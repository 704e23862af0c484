"""Renews the figure of README.md, `docs/floor.svg`: `python docs/site/floor.py`.

The figure is taken from the stored outputs of lesson 09, so it shows what the lesson printed.
"""

import base64
import json
import re
import sys
from html import unescape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LESSON = ROOT / "notebooks" / "09_pretraining.ipynb"
TOLD = "floor"  # a word of the alternative text, by which the figure is found
PICTURE = re.compile(r'src="data:image/svg\+xml;base64,([^"]+)"')


def floor() -> bytes:
    """The figure as an SVG.

    Raises:
        ValueError: the lesson has no such figure, or more than one.
    """
    from docs.site.ext.stored_figure import images

    figures = images(json.loads(LESSON.read_text("utf-8")))
    found = [figure for figure in figures if TOLD in unescape(figure)]
    if len(found) != 1:
        raise ValueError(f"{len(found)} figures of {LESSON.name} tell of {TOLD!r}, not one")
    return base64.b64decode(PICTURE.search(found[0])[1])


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    (ROOT / "docs" / "floor.svg").write_bytes(floor())
