"""What the card of course-bert states is what can be measured."""

import re

import pytest
from card_losses import measure

from mlm_lib import DATA

CARD = (DATA / "course-bert" / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_card_states_the_losses_on_reviews():
    row = re.search(r"^\| reviews \|.*$", CARD, re.M)[0]
    stated = [float(number) for number in re.findall(r"\d+\.\d\d", row)]
    found = []
    losses = measure("reviews")
    for name in ("frequency", "blanks", "mixture", "kept"):
        found += [losses[name].mean().item(), losses[name].std().item() / len(losses[name]) ** 0.5]
    assert stated == pytest.approx(found, abs=0.006)
