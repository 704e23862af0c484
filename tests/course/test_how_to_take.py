"""docs/how_to_take.md: the hours of each way are those of its lessons and labs."""

import re
from pathlib import Path

import pytest
from notebook_form import main_path_and_deeper, minutes, read

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how_to_take.md").read_text("utf-8")
GUIDE = (ROOT / "docs" / "instructors.md").read_text("utf-8")
WAYS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if re.match(r"\| A |\| Four ", line)
]
LAB_MINUTES = {
    name: int(number) for name, number in re.findall(r"^\| (\d\d|zoo)[^|]*\| (\d+)", GUIDE, re.M)
}


def numbered(text):
    """The numbers of "00–03, 13" as a list: 0, 1, 2, 3, 13."""
    found = []
    for part in text.split(", "):
        first, _, last = part.partition("–")
        found += range(int(first), int(last or first) + 1)
    return found


def reading_minutes(numbers):
    paths = [next((ROOT / "notebooks").glob(f"{number:02}_*.ipynb")) for number in numbers]
    return sum(minutes(main_path_and_deeper(read(path))[0]) for path in paths)


def lab_minutes(text):
    if text == "–":
        return 0
    labs = LAB_MINUTES if text == "all" else text.split(", ")
    return sum(LAB_MINUTES[name] for name in labs)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way[0])
def test_the_hours_of_a_way_are_the_sums_of_its_minutes(way):
    _, lessons, labs, reading, in_labs = way
    expected = reading_minutes(numbered(lessons)) / 60, lab_minutes(labs) / 60
    assert (int(reading), int(in_labs)) == pytest.approx(expected, abs=0.8)


def test_there_are_three_ways_and_each_holds_the_lessons_of_the_one_above_it():
    assert len(WAYS) == 3
    first, second, third = (set(numbered(way[1])) for way in WAYS)
    assert first < second < third == set(range(20))
