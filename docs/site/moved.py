"""Pages that lead from old addresses to new ones, so that old links still find their lesson.

The lessons were renumbered once: 08 became 08 and 09, 15 became 16 and 17, and the lessons after
them moved up. An old lesson that became two leads to the second, which has its name.
"""

from html import escape
from pathlib import Path

MOVED = {  # {old page: new page}, without their folder and ending
    "08_pretraining": "09_pretraining",
    "09_fine_tuning": "10_fine_tuning",
    "10_language_model": "11_language_model",
    "11_sampled_softmax": "12_sampled_softmax",
    "12_evaluation": "13_evaluation",
    "13_ablations": "14_ablations",
    "14_sentiment": "15_sentiment",
    "15_writing": "17_writing",
    "16_modern_encoder": "18_modern_encoder",
    "17_scaling_out": "19_scaling_out",
}
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>This page has moved</title>
<link rel="canonical" href="{new}">
<meta http-equiv="refresh" content="0; url={new}">
</head>
<body>
<main>
<h1>This page has moved</h1>
<p>The lessons have new numbers. <a href="{new}">Go to the page under its new address</a>.</p>
</main>
</body>
</html>
"""


def write_moved(site: Path) -> None:
    """Write a page at each old address of a site, for lessons, labs and slides. A page that the
    site does not have, such as slides where none were made, gets none."""
    for old, new in MOVED.items():
        for pattern in ("notebooks/{}.html", "notebooks/labs/{}_lab.html", "slides/{}.html"):
            target = site / pattern.format(new)
            if target.is_file():
                page = PAGE.format(new=escape(target.name))
                (site / pattern.format(old)).write_text(page, "utf-8")
