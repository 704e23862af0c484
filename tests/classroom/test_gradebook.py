"""Archives of Canvas and Moodle, gradebooks for them, and notebooks with our messages."""

import csv
import json
import os
import stat
import zipfile
from datetime import datetime

import nbformat
import pytest

from classroom import archives, grade, hand_ins
from classroom.__main__ import main
from classroom.feedback import feedback
from classroom.gradebook import column, points
from classroom.lab import Refused, labs
from classroom.marker import Mark

LAB = "02_masking_lab"


def packed(path, members):
    """A zip of {name: content}; a name may be a ZipInfo."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def found_in(archive, folder, due=None):
    """(student, id, days late, file) of everything in an archive, and what was left out."""
    unpacked = archives.unpack(archive, folder)
    found = hand_ins.find(unpacked, folder / "marks.csv", due)
    return [(one.student, one.id, one.late, one.file) for one in found], unpacked.told


def test_canvas_tells_students_ids_and_who_is_late(tmp_path):
    names = ["adamsanna_4711_815_02_lab.ipynb", "brownbo_LATE_12_816_02_lab-1.ipynb"]
    found, told = found_in(packed(tmp_path / "c.zip", dict.fromkeys(names, "{}")), tmp_path / "x")
    assert found == [("adamsanna", "4711", 0, names[0]), ("brownbo", "12", 1, names[1])]
    assert not told


@pytest.mark.parametrize(
    "name", ["_assignsubmission_file_/x.ipynb", "_assignsubmission_file/x.ipynb",
             "_assignsubmission_file_x.ipynb"]
)  # fmt: skip
def test_moodle_tells_students_by_folder_or_file(tmp_path, name):
    names = [f"Anna Adams_7{name}", f"Bo_8{name}", f"Bo_9{name}"]
    found, _ = found_in(packed(tmp_path / "m.zip", dict.fromkeys(names, "{}")), tmp_path / "x")
    assert [one[:2] for one in found] == [
        ("Anna Adams", "Participant 7"),
        ("Bo", "Participant 8"),
        ("Bo", "Participant 9"),
    ]


def test_a_students_own_zip_is_opened_and_a_damaged_one_stays(tmp_path):
    own = packed(tmp_path / "own.zip", {"lab01/lab.ipynb": "{}", "__MACOSX/._lab.ipynb": ""})
    members = {"anna/own.zip": own.read_bytes(), "bo/own.zip": b"PK\3\4 and no more"}
    found, told = found_in(packed(tmp_path / "class.zip", members), tmp_path / "x")
    assert [one[3] for one in found] == ["anna/own/lab01/lab.ipynb", "bo"]
    assert len(told) == 1 and "bo/own.zip" in told[0].replace(os.sep, "/")


def test_nothing_leaves_the_folder_and_nothing_links(tmp_path):
    link = zipfile.ZipInfo("anna/link.ipynb")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    members = {"../out.ipynb": "", "/out.ipynb": "", "..\\out.ipynb": "", link: "/etc/passwd"}
    members["anna/lab.ipynb"] = "{}"
    (tmp_path / "in").mkdir()
    archive = packed(tmp_path / "in" / "class.zip", members)
    found, told = found_in(archive, tmp_path / "in" / "x")
    assert [one[3] for one in found] == ["anna/lab.ipynb", "out.ipynb"]
    assert sum("another of this name" in one for one in told) == 2, "nothing is replaced"
    assert sum("is a link" in one for one in told) == 1
    assert not list(tmp_path.glob("*.ipynb")) and not list((tmp_path / "in").glob("*.ipynb"))


def test_an_archive_that_would_fill_the_disk_is_refused(tmp_path, monkeypatch):
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("anna/lab.ipynb", bytes(3_000_000))
    monkeypatch.setattr(archives, "CLASS", (2_000_000, 10))
    with pytest.raises(Refused, match="2 MB or 10 files"):
        archives.unpack(bomb, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_names_that_are_not_marked_as_utf8_are_read(tmp_path):
    plain = packed(tmp_path / "plain.zip", {"Jose/x.ipynb": "{}", "Jxrg/x.ipynb": "{}"})
    raw = plain.read_bytes().replace(b"Jose", "Jós".encode()).replace(b"Jxrg", b"J\xfcrg")
    plain.write_bytes(raw)
    found, _ = found_in(plain, tmp_path / "x")
    assert len(found) == 2 and "Jós" in {one[0] for one in found}


def test_the_files_time_tells_the_days_begun_since_it_was_due(tmp_path):
    times = {"anna": (11, 30, 23, 58), "bo": (11, 30, 23, 59), "chen": (12, 1, 0, 1)}
    times["dora"] = (12, 3, 8, 0)
    members = {
        zipfile.ZipInfo(f"{name}/lab.ipynb", (2026, *time, 30)): "{}"
        for name, time in times.items()
    }
    archive = packed(tmp_path / "class.zip", members)
    found, _ = found_in(archive, tmp_path / "x", datetime(2026, 11, 30, 23, 59))
    assert [one[2] for one in found] == [0, 0, 1, 3]


# ---------------------------------------------------------------------------------- gradebooks

CANVAS = """\
Student,ID,SIS User ID,SIS Login ID,Section,lab 02 (815),Essay (9),Current Score
,,,,,Manual Posting,,
    Points Possible,,,,,12,50,(read only)
"Adams, Anna",4711,u1,anna@x.org,A,,40,80
"Brown, Bo",12,u2,bo@x.org,A,5,,10
"Nobody, Nils",13,u3,nils@x.org,A,6,,
"Student, Test",99,,,A,,,
"""
MOODLE = """\
First name,Last name,ID number,Institution,Department,Email address,Quiz (Real)
Anna,Adams,u1,,,anna@x.org,3
Bo,Brown,u2,,,bo@x.org,4
Bo,Brown,u3,,,bo2@x.org,5
"""


def book_of(tmp_path, roster, rows, *options):
    """The gradebook's lines for rows of marks (student, id, file, lab, points, late)."""
    names = ["student", "id", "file", "lab", "points", "late", "status"]
    rows = [{"status": "read", "possible": 12} | dict(zip(names, row)) for row in rows]
    table = {(row["student"], row["file"]): row | {"work": "0", "says": ""} for row in rows}
    grade.write_table(tmp_path / "marks.csv", table)
    (tmp_path / "roster.csv").write_text(roster, "utf-8")
    files = [str(tmp_path / name) for name in ("marks.csv", "roster.csv", "book.csv")]
    assert main(["gradebook", *files[:2], "--out", files[2], *options]) == 0
    with open(files[2], encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_canvas_gets_back_its_lines_with_points_in_the_labs_columns(tmp_path):
    rows = [
        ("adamsanna", "4711", "a.ipynb", LAB, 7, 0),
        ("adamsanna", "4711", "z.ipynb", "zoo_lab", 12, 0),
        ("brownbo", "12", "b.ipynb", LAB, 10, 1),
    ]
    book = book_of(tmp_path, CANVAS, rows, "--late", "0.1")
    assert book[0] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section",
                       "lab 02 (815)", "lab zoo"]  # fmt: skip
    assert book[2] == ["    Points Possible", "", "", "", "", "12", "12"]
    assert [line[-2:] for line in book[3:]] == [["7", "12"], ["9", ""], ["6", ""], ["", ""]]


def test_moodle_gets_points_by_name_and_none_where_two_have_it(tmp_path, capsys):
    rows = [
        ("Anna Adams", "Participant 7", "a.ipynb", LAB, 7, 0),
        ("Bo Brown", "Participant 8", "b.ipynb", LAB, 9, 0),
        ("u3", "", "c.ipynb", LAB, 8, 0),
        ("Zoe", "", "d.ipynb", LAB, 3, 0),
    ]
    book = book_of(tmp_path, MOODLE, rows)
    assert book[0][:3] == ["First name", "Last name", "ID number"] and book[0][-1] == "lab 02"
    assert [line[-1] for line in book[1:]] == ["7", "", "8"]
    told = capsys.readouterr().out
    assert "Bo Brown, b.ipynb: several" in told and "Zoe, d.ipynb: nobody" in told


@pytest.mark.parametrize("student, id", [("brownbo", "4711"), ("team7", "12"), ("brownbo", "7")])
def test_an_id_that_contradicts_the_name_gives_no_points(tmp_path, capsys, student, id):
    name = f"{student}_{id}_900_lab.ipynb"
    book = book_of(tmp_path, CANVAS, [(student, id, name, LAB, 7, 0)])
    assert book[0][-1] == "Section"
    told = capsys.readouterr().out
    assert f"{student}, {name}: in roster.csv the id {id} is " in told and "--teams" in told


def test_an_id_that_a_teacher_has_written_counts_more_than_the_name(tmp_path, capsys):
    rows = [("somebody", "4711", "somebody_4_900_a.ipynb", LAB, 7, 0)]
    rows += [("brownbo", "4", "brownbo_12_900_b.ipynb", LAB, 8, 0)]
    assert [line[-1] for line in book_of(tmp_path, CANVAS, rows)[3:]] == ["7", "5", "6", ""]
    assert "nobody in roster.csv has the id 4" in capsys.readouterr().out


def teams_of(tmp_path, *members):
    (tmp_path / "teams.csv").write_text("team,member\n" + "\n".join(members), "utf-8")
    return "--teams", str(tmp_path / "teams.csv")


def test_every_member_of_a_team_gets_the_points(tmp_path, capsys):
    teams = teams_of(tmp_path, 'Team_7,"Adams, Anna"', "Team_7,12", "Team_7,Zoe", "Die Drei,u3")
    rows = [
        ("team", "7", "team_7_101_5001_lab.ipynb", LAB, 7, 0),
        ("brownbo", "12", "brownbo_12_816_lab.ipynb", LAB, 9, 0),
        ("diedrei", "13", "diedrei_LATE_13_5002_lab.ipynb", LAB, 10, 1),
    ]
    book = book_of(tmp_path, CANVAS, rows, *teams, "--late", "0.1")
    assert [line[-1] for line in book[3:]] == ["7", "9", "9", ""], "the best of several counts"
    assert "teams.csv, Zoe: nobody in roster.csv" in capsys.readouterr().out


def test_odd_lines_in_the_table_of_teams_are_told(tmp_path, capsys):
    teams = teams_of(tmp_path, "A,4711", "B,4711", "B,Brown", "Lost,13")
    rows = [("A", "", "A/lab.ipynb", LAB, 7, 0), ("B", "", "B/lab.ipynb", LAB, 8, 0)]
    book_of(tmp_path, CANVAS, rows, *teams)
    told = capsys.readouterr().out
    assert "teams.csv, 4711: is in A and in B" in told
    assert "teams.csv, Brown: nobody in roster.csv has this name; write a name or an id as" in told
    assert "teams.csv, Lost: marks.csv has no work of this team" in told
    assert "column id" not in told and "A: marks.csv has no work" not in told


def test_a_team_of_moodle_is_found_by_its_name(tmp_path):
    teams = teams_of(tmp_path, "Team 7,Anna Adams", "Team 7,bo2@x.org")
    rows = [("Team 7", "Participant 2", "Team 7_2_assignsubmission_file/a.ipynb", LAB, 7, 0)]
    assert [line[-1] for line in book_of(tmp_path, MOODLE, rows, *teams)[1:]] == ["7", "", "7"]


def test_a_table_of_teams_without_its_columns_is_told(tmp_path, capsys):
    (tmp_path / "teams.csv").write_text("group,who\n1,Anna\n")
    grade.write_table(tmp_path / "marks.csv", {})
    (tmp_path / "roster.csv").write_text(CANVAS)
    marks, roster, teams, out = (
        str(tmp_path / f"{n}.csv") for n in ("marks", "roster", "teams", "o")
    )
    assert main(["gradebook", marks, roster, "--teams", teams, "--out", out]) == 1
    assert "needs the columns team and member" in capsys.readouterr().err


# Moodle's grading worksheet, of an assignment for students and of one for groups.
WORKSHEET = """\
Identifier,Full name,Email address,Status,Group,Grade,Maximum Grade,Last modified (grade)
Participant 7,Anna Adams,anna@x.org,Submitted,Team 1,,100.00,-
Participant 8,Bo Brown,bo@x.org,Submitted,Team 1,3,100.00,-
Participant 9,Bo Brown,bo2@x.org,No submission,Team 2,4,100.00,-
"""


def test_a_worksheet_of_moodle_gets_grades_by_its_participants_and_groups(tmp_path, capsys):
    rows = [("Bo Brown", "Participant 9", "Bo Brown_9_assignsubmission_file/a.ipynb", LAB, 7.5, 0)]
    rows += [("Team 1", "Participant 9", "Team 1_9_assignsubmission_file/a.ipynb", LAB, 11, 0)]
    book = book_of(tmp_path, WORKSHEET, rows)
    assert book[0] == WORKSHEET.splitlines()[0].split(",")
    assert [line[5] for line in book[1:]] == ["11", "11", "7.5"]
    assert "out of 100.00 there, and out of 12 here" in capsys.readouterr().out


def test_anonymous_work_gets_grades_by_the_worksheets_numbers(tmp_path):
    sheet = "Identifier,Status,Grade\nParticipant 8,Submitted,\nParticipant 9,Submitted,\n"
    rows = [
        ("Participant", "Participant 8", "Participant_8_assignsubmission_file/a.ipynb", LAB, 7, 0)
    ]
    assert [line[-1] for line in book_of(tmp_path, sheet, rows)[1:]] == ["7", ""]


def test_a_worksheet_is_for_one_lab(tmp_path, capsys):
    rows = [
        ("Anna Adams", "", "a.ipynb", LAB, 7, 0),
        ("Anna Adams", "", "b.ipynb", "zoo_lab", 7, 0),
    ]
    with pytest.raises(AssertionError):
        book_of(tmp_path, WORKSHEET, rows)
    assert "is for one assignment, but" in capsys.readouterr().err


@pytest.mark.parametrize(
    "header, chosen",
    [
        ("lab 02 (Percentage),lab 02 (Real)", "lab 02 (Real)"),
        ("Assignment: Lab 2 (Letter),Assignment: Lab 2 (Real)", "Assignment: Lab 2 (Real)"),
        ("Lab 2 (816)", "Lab 2 (816)"),
        ("Lab 2: masking (816),Lab 3: labels (817)", "Lab 2: masking (816)"),
        ("Assignment: Lab 02 – masking (Real)", "Assignment: Lab 02 – masking (Real)"),
        ("Lab 2 bonus (816),Lab 2.5: x", "lab 02"),
        ("LAB_002", "LAB_002"),
        ("lab 20,lab 2.5,lab 02 (Percentage)", "lab 02"),
    ],
)
def test_the_column_of_a_lab_is_recognised(header, chosen):
    assert column("02", header.split(",")) == chosen


def test_two_columns_for_one_lab_are_told():
    with pytest.raises(Refused, match="Lab 2, lab 02; rename one"):
        column("02", ["Lab 2", "lab 02"])


def test_a_new_column_is_told(tmp_path, capsys):
    rows = [("brownbo", "12", "b.ipynb", LAB, 7, 0), ("brownbo", "12", "z.ipynb", "zoo_lab", 7, 0)]
    book_of(tmp_path, CANVAS, rows)
    told = capsys.readouterr().out
    assert "lab 02 are in the column lab 02 (815)\n" in told
    assert "lab zoo are in the column lab zoo, which is new" in told


def test_what_was_not_marked_is_told_and_costs_nothing(tmp_path, capsys):
    book_of(tmp_path, CANVAS, [("brownbo", "12", "notes.txt", "", 0, 0)])
    assert "brownbo, notes.txt: read" in capsys.readouterr().out


def test_students_without_points_are_named(tmp_path, capsys):
    book_of(tmp_path, CANVAS, [("brownbo", "12", "b.ipynb", LAB, 7, 0)])
    told = capsys.readouterr().out
    assert "has no points for 2 students: Adams, Anna; Nobody, Nils\n" in told
    many = CANVAS + "".join(f'"S, {n}",{n},,,A,,,\n' for n in range(100, 150))
    book_of(tmp_path, many, [("brownbo", "12", "b.ipynb", LAB, 7, 0)])
    assert "52 students: Adams, Anna; " in (told := capsys.readouterr().out)
    assert "S, 137; and 12 more\n" in told


def test_work_that_waits_for_the_marker_is_told_and_does_not_count(tmp_path, capsys):
    rows = [("brownbo", "12", "b.ipynb", LAB, 7, 0, "not marked yet")]
    assert book_of(tmp_path, CANVAS, rows)[0][-1] == "Section"
    assert "brownbo, b.ipynb: not marked yet" in capsys.readouterr().out


def test_points_for_what_cannot_be_read_count_where_the_lab_is_written(tmp_path, capsys):
    rows = [("brownbo", "12", "b.docx", "2", 7, 0, "not read")]
    rows += [("adamsanna", "4711", "a.docx", "", 8, 0, "not read")]
    book = book_of(tmp_path, CANVAS, rows)
    assert [line[-1] for line in book[3:5]] == ["", "7"]
    told = capsys.readouterr().out
    assert "a.docx: not read, ; for its points to count, write the lab's number" in told


def test_the_rules_for_several_hand_ins():
    rows = [
        {"file": f"bo/lab{part}.ipynb", "points": points, "late": late}
        for part, points, late in [("", "9", 0), ("-2", "12", 2), ("-10", "8", 2)]
    ]
    assert points(rows, "best", 0) == 12
    assert points(rows, "best", 0.2) == 9, "12 points, of which two days take 40%"
    assert points(rows, "last", 0.25) == 4, "-10 comes after -2"
    assert points(rows[1:], "best", 0.6) == 0, "never below zero"


@pytest.mark.parametrize(
    "points, late, words",
    [
        ("five", 0, "its points are 'five', which is not a number"),
        ("", 0, "its points are ''"),
        (7, "two", "its days late are 'two'"),
    ],
)
def test_what_is_not_a_number_gives_no_points_and_is_told(tmp_path, capsys, points, late, words):
    rows = [("brownbo", "12", "b.ipynb", LAB, points, late)]
    rows += [("adamsanna", "4711", "a.ipynb", LAB, 7, 0)]
    book = book_of(tmp_path, CANVAS, rows)
    assert [line[-1] for line in book[3:]] == ["7", "5", "6", ""], "as it was"
    assert words in capsys.readouterr().out


@pytest.mark.parametrize("points", [13, -1])
def test_more_than_all_points_count_and_are_told(tmp_path, capsys, points):
    book = book_of(tmp_path, CANVAS, [("brownbo", "12", "b.ipynb", LAB, points, 0)])
    assert book[4][-1] == str(points)
    assert f"b.ipynb: has {points} points of 12; it counts" in capsys.readouterr().out


def test_students_of_one_name_are_told_with_their_ids(tmp_path, capsys):
    book_of(tmp_path, MOODLE, [("Anna Adams", "", "a.ipynb", LAB, 7, 0)])
    assert "2 students: Brown, Bo (u2); Brown, Bo (u3)" in capsys.readouterr().out


def test_a_semicolon_stays_the_separator(tmp_path):
    book_of(tmp_path, MOODLE.replace(",", ";"), [("Anna Adams", "", "a.ipynb", LAB, 7, 0)])
    assert "Anna;Adams;u1;;;anna@x.org;7" in (tmp_path / "book.csv").read_text("utf-8")


def test_a_file_that_is_no_gradebook_is_told(tmp_path, capsys):
    grade.write_table(tmp_path / "marks.csv", {})
    (tmp_path / "budget.csv").write_text("month,money\nmay,3\n")
    files = [str(tmp_path / name) for name in ("marks.csv", "budget.csv", "out.csv")]
    assert main(["gradebook", *files[:2], "--out", files[2]]) == 1
    assert "no gradebook" in capsys.readouterr().err and not (tmp_path / "out.csv").exists()


# ------------------------------------------------------------------------------------ feedback


def test_each_message_stands_after_its_tasks_last_cell(tmp_path):
    source = json.loads(labs()["02"].read_text("utf-8"))
    marks = [Mark(f"02.{n}", 1, 2, "wrong", f"number {n}") for n in range(1, 4)]
    told = feedback(labs()["02"], marks)
    nbformat.validate(told)
    kept = [cell for cell in told["cells"] if cell["metadata"] != {"tags": ["feedback"]}]
    assert [cell["source"] for cell in kept] == [cell["source"] for cell in source["cells"]]
    text = ["".join(cell["source"]) for cell in told["cells"]]
    assert text[0] == "**3 of 6 points in all.**"
    for n in range(1, 4):
        place = next(place for place, one in enumerate(text) if f"number {n}" in one)
        assert f"# CHECK 02.{n}" in text[place - 1] and "1 of 2 points" in text[place]
        assert not any(f"# CHECK 02.{n}" in one for one in text[place:])


@pytest.mark.parametrize(
    "notebook",
    [
        {"cells": []},
        {"cells": [{"cell_type": "code", "source": ["# TASK 02.1\n", "x"], "metadata": None}]},
        {"cells": [{"cell_type": "code"}, {"cell_type": "raw", "source": "\ud800"}]},
        {"cells": [], "nbformat_minor": "five"},
    ],
)
def test_odd_notebooks_get_their_messages(tmp_path, notebook):
    path = tmp_path / "odd.ipynb"
    path.write_text(json.dumps(notebook), "utf-8")
    marks = [Mark("02.1", 0, 2, "error", "```\n<script>x</script>\n````")]
    told = feedback(path, marks)
    (said,) = [cell["source"] for cell in told["cells"] if "<script>" in str(cell.get("source"))]
    lines = said.splitlines()
    assert lines[2] == "`````text" and lines[-1] == "`````", "no run in the message ends it"
    path.write_text(json.dumps(told), "utf-8")
    assert len(feedback(path, marks)["cells"]) == len(told["cells"]), "replaced, not repeated"


@pytest.mark.slow
def test_a_class_of_canvas_is_marked_from_its_zip(tmp_path):
    lab = labs()["02"].read_text("utf-8")
    members = {"adamsanna_LATE_4711_815_my lab.ipynb": lab, "brownbo_12_816_letter.docx": "x"}
    archive, marks = packed(tmp_path / "class.zip", members), tmp_path / "marks.csv"
    assert main(["grade", str(archive), "--out", str(marks)]) == 0
    anna, bo = sorted(grade.read_table(marks).values(), key=lambda row: row["student"])
    assert (anna["student"], anna["id"], anna["late"], anna["points"]) == (
        "adamsanna", "4711", "1", "12",
    )  # fmt: skip
    assert (bo["student"], bo["status"]) == ("brownbo", "not read")
    rows = grade.read_table(marks)
    rows[anna["student"], anna["file"]] |= {"id": "u1", "late": "3"}
    grade.write_table(marks, rows)
    assert main(["grade", str(archive), "--out", str(marks)]) == 0
    kept = grade.read_table(marks)[anna["student"], anna["file"]]
    assert (kept["id"], kept["late"]) == ("u1", "3"), "what a teacher has written stays"
    (copy,) = (tmp_path / "marks_reports").glob("adamsanna_LATE_4711_815_my lab.ipynb")
    assert "12 of 12 points in all" in copy.read_text("utf-8")
