"""What the dark theme of the site makes of the colours of a figure."""

import re
from pathlib import Path

import matplotlib.colors
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SITE_CSS = (ROOT / "docs" / "site" / "static" / "site.css").read_text("utf-8")
INVERTED = re.search(r"--figure: invert\((\S+)\) hue-rotate\(180deg\);", SITE_CSS)


def in_the_dark(color):
    """The colour that a browser makes of "#RRGGBB" by the filter of the site's dark theme."""
    share = float(INVERTED[1])
    seen = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    turned = HUE_ROTATED_BY_180 @ [share * (1 - c) + (1 - share) * c for c in seen]
    return matplotlib.colors.to_hex(np.clip(turned, 0, 1))


# The matrix of the standard "Filter Effects 1" for hue-rotate(180deg).
HUE_ROTATED_BY_180 = np.array([[-0.574, 1.43, 0.144], [0.426, 0.43, 0.144], [0.426, 1.43, -0.856]])
