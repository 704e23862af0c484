"""The seconds that a lesson takes to run, as its title cell gives them in words."""

import json
import re

TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
SECONDS = {f"{word} seconds": 10 * ten for ten, word in enumerate(TENS, 2)}
SECONDS |= {"fifteen seconds": 15, "half a minute": 30, "a minute": 60}


def seconds_to_run(path):
    """30 for "about half a minute to run"."""
    title = "".join(json.loads(path.read_text("utf-8"))["cells"][0]["source"])
    return SECONDS[re.search(r"about ([a-z ]+) to run", title)[1]]
