"""docs/how_to_take.md and the map of README.md: hours and minutes are those of lessons and labs."""

import math
import re
from pathlib import Path

import pytest
from lesson_times import seconds_to_run
from notebook_form import main_path_and_deeper, minutes, read

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how_to_take.md").read_text("utf-8")
GUIDE = (ROOT / "docs" / "instructors.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
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


def hours(minutes):
    """The nearest whole number of hours. Half an hour is rounded up, so that nobody plans too
    little time."""
    return math.floor(minutes / 60 + 0.5)


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
    expected = hours(reading_minutes(numbered(lessons))), hours(lab_minutes(labs))
    assert (int(reading), int(in_labs)) == expected


def test_the_guide_for_instructors_gives_the_hours_of_a_term():
    reading, in_labs = WAYS[-1][3:]
    assert f"take about {reading} hours to read and the labs about {in_labs} hours" in GUIDE


def test_the_map_gives_the_minutes_of_each_lesson_and_of_its_lab():
    told = re.findall(r"^\| (\d\d) \|.*\| (\S+) \| (.+) \|$", README, re.M)
    expected = []
    for number in range(20):
        name = f"{number:02}"
        lab = LAB_MINUTES.get(name, f"in lab {number + 1:02}" if number else "–")
        expected.append((name, str(reading_minutes([number])), str(lab)))
    assert told == expected


def test_the_seconds_that_a_lesson_takes_to_run_are_those_of_the_page():
    seconds = sorted(map(seconds_to_run, (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")))
    assert f"takes {seconds[0]} to {seconds[-1]} seconds" in PAGE


def test_there_are_three_ways_and_each_holds_the_lessons_of_the_one_above_it():
    assert len(WAYS) == 3
    first, second, third = (set(numbered(way[1])) for way in WAYS)
    assert first < second < third == set(range(20))
