"""What a class handed in: odd archives and names, files that are no notebooks, and the table."""

import json
import os
import threading
import time
import zipfile
from datetime import datetime
from io import BytesIO

import pytest

from classroom import archives, edition, grade, hand_ins, lab
from classroom.__main__ import main
from classroom.agreement import say_who_agrees
from classroom.lab import Refused, read_notebook
from classroom.marker import Mark
from classroom.tables import as_cell, from_cell

NOTEBOOK = {"cells": [{"cell_type": "code", "source": "# TASK tiny.1\nx = 1"}]}
TEXT = json.dumps(NOTEBOOK)


def packed(members):
    """The bytes of a zip of {name: content}."""
    with zipfile.ZipFile(file := BytesIO(), "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def put(folder, members):
    for name, content in members.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def found_in(tmp_path, source, due=None):
    """What was found in a folder or in the members of an archive, and what was told."""
    if isinstance(source, dict):
        (tmp_path / "class.zip").write_bytes(packed(source))
        source = tmp_path / "class.zip"
    unpacked = archives.unpack(source, tmp_path / "place")
    return hand_ins.find(unpacked, source / "marks.csv", due), unpacked.told


def files(found):
    return [one.file for one in found]


# ------------------------------------------------------------------------------------- archives


def test_one_folder_around_a_class_is_no_student(tmp_path):
    members = {"hw/anna/lab.ipynb": TEXT, "hw/bo.ipynb": TEXT, "__MACOSX/hw/._bo.ipynb": "x"}
    found, told = found_in(tmp_path, members | {"hw/Thumbs.db": "x"})
    assert [(one.student, one.file) for one in found] == [
        ("anna", "anna/lab.ipynb"), ("bo", "bo.ipynb"),
    ]  # fmt: skip
    assert len(told) == 1 and "class.zip holds a single folder, hw" in told[0]


@pytest.mark.parametrize("name", ["anna/lab.ipynb", "Anna A_7_assignsubmission_file/a/lab.ipynb"])
def test_a_class_of_one_student_stays_that_student(tmp_path, name):
    assert files(found_in(tmp_path, {name: TEXT})[0]) == [name]


@pytest.mark.parametrize("as_folder", [True, False])
def test_students_zips_are_opened_wherever_they_are(tmp_path, as_folder):
    inner = packed({"deep/lab.ipynb": TEXT})
    members = {
        "anna.ZIP": packed({"lab.IPYNB": TEXT}),
        "anna/lab.ipynb": TEXT,
        "bo/work.zip": packed({"again.zip": inner, "notes.txt": "x"}),
        "cy/lab.ipynb.txt": TEXT,
    }
    source = put(tmp_path / "class", members) if as_folder else members
    before = sorted(tmp_path.rglob("*"))
    found, told = found_in(tmp_path, source)
    assert sorted(files(found)) == [
        "anna-2/lab.IPYNB", "anna/lab.ipynb", "bo/work/again/deep/lab.ipynb", "cy/lab.ipynb.txt",
    ]  # fmt: skip
    assert {one.student for one in found} == {"anna", "anna-2", "bo", "cy"} and not told
    if as_folder:
        assert before == [one for one in sorted(tmp_path.rglob("*")) if "place" not in one.parts]


@pytest.mark.parametrize("as_folder", [True, False])
def test_one_odd_zip_costs_no_other_student_anything(tmp_path, as_folder, monkeypatch):
    monkeypatch.setattr(archives, "STUDENT", (10_000, 10))
    bomb = packed({"lab.ipynb": "x" * 6000})
    nest = packed({"lab.ipynb": TEXT})
    for _ in range(5):
        nest = packed({"n.zip": nest})
    members = {
        "anna/lab.ipynb": TEXT,
        "bo/mine.zip/lab.ipynb": TEXT,
        "cy/own.zip": b"PK\3\4 and no more",
        "di/one.zip": bomb,
        "di/two.zip": bomb,
        "ed/n.zip": nest,
    }
    found, told = found_in(tmp_path, put(tmp_path / "c", members) if as_folder else members)
    assert {"anna/lab.ipynb", "bo/mine.zip/lab.ipynb", "cy", "di/one/lab.ipynb", "ed"} == set(
        files(found)
    )
    assert [one.split(" ")[0] for one in told] == ["cy/own.zip", "di/two.zip", "ed/n/n/n/n.zip"]


def test_no_file_of_a_zip_replaces_another(tmp_path):
    found, told = found_in(tmp_path, {"anna/lab.ipynb": TEXT, "/anna/lab.ipynb": "{}", "b": ""})
    assert found[0].path.read_text() == TEXT and "another of this name" in told[0]


def test_the_time_of_a_students_zip_is_that_of_its_files(tmp_path):
    own = tmp_path / "class" / "anna.zip"
    put(tmp_path / "class", {"anna.zip": packed({zipfile.ZipInfo("lab.ipynb"): TEXT})})
    os.utime(own, (datetime(2026, 12, 1, 8).timestamp(),) * 2)
    (found,), _ = found_in(tmp_path, own.parent, datetime(2026, 11, 30, 23, 59))
    assert found.late == 1


# ---------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    "name, student, id, late",
    [
        ("anon_x7kq2_5001_10_lab.ipynb", "anon_x7kq2", "", 0),
        ("LATE_anon_X7Kq2_5001_lab.ipynb", "anon_X7Kq2", "", 1),
        ("brownbo_LATE_12_text.html", "brownbo", "12", 1),
        ("team7_101_5001_lab.ipynb", "team7", "101", 0),
        ("Default group_assignsubmission_file/lab.ipynb", "Default group", "", None),
    ],
)
def test_names_of_anonymous_students_and_of_teams_are_read(tmp_path, name, student, id, late):
    (found,), _ = found_in(tmp_path, put(tmp_path / "class", {name: TEXT}))
    assert (found.student, found.id, found.late) == (student, id, late)


def test_what_a_student_typed_in_beside_a_notebook_is_no_second_hand_in(tmp_path):
    moodle = "Anna A_7_assignsubmission_{}/{}".format
    members = {moodle("file", "lab.ipynb"): TEXT, moodle("onlinetext", "onlinetext.html"): "<p>"}
    members |= {"Bo_8_assignsubmission_onlinetext/onlinetext.html": "<p>"}
    found, _ = found_in(tmp_path, members)
    assert [(one.student, one.is_notebook) for one in found] == [("Anna A", True), ("Bo", False)]


# ------------------------------------------------------------------------------------ not read


@pytest.mark.parametrize(
    "data, words",
    [
        (b"<!DOCTYPE html>\n<html>", "a page (HTML)"),
        (b"\xef\xbb\xbf <html lang='en'>", "a page (HTML)"),
        ("# %%\nimport torch\n".encode(), "a script of Python"),
        (b'{"url": "https://x.org", "doc_id": "1"}', "a shortcut to a place in the web"),
        (b"[InternetShortcut]\r\nURL=https://x.org", "a shortcut to a place in the web"),
        (b"https://colab.example/drive/1", "a shortcut to a place in the web"),
        (b"PK\3\4", "a zip file, or a document of an office program"),
        (b"Rar!\x1a", "an archive (RAR)"),
        (b"%PDF-1.7", "a PDF"),
        (b'{"cells": [\n<<<<<<< HEAD\n1\n=======\n2\n>>>>>>> b\n]}', "Git's marks of a conflict"),
        (TEXT[:-9].encode(), "ends in the middle"),
        (TEXT[:-9].encode("utf-16"), "ends in the middle"),
        (bytes(100), "only zero bytes"),
        (b'{"cells": "J\xfcrgen"}', "not in UTF-8"),
        (b'{"cells": [{"source": 3}]}', "damaged or of another kind"),
        (b"[1, 2]", "a file of another kind"),
        (b" \n", "is empty"),
    ],
)
def test_a_file_that_is_not_a_notebook_is_named_in_plain_words(tmp_path, data, words):
    (tmp_path / "x.ipynb").write_bytes(data)
    with pytest.raises(Refused) as told:
        read_notebook(tmp_path / "x.ipynb")
    assert words in str(told.value) and "Error" not in str(told.value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_notebooks_are_read_in_every_encoding_of_json(tmp_path, encoding):
    (tmp_path / "x.ipynb").write_text(TEXT, encoding)
    assert read_notebook(tmp_path / "x.ipynb") == NOTEBOOK


def test_a_folder_without_a_notebook_says_what_it_holds(tmp_path):
    names = ["lab.pdf", "lab.py", "a.txt", "b.txt", ".DS_Store"]
    assert grade.nothing_in(put(tmp_path, dict.fromkeys(names, "x"))) == (
        "no notebook in this folder, which holds a.txt, b.txt, lab.pdf, …"
    )


# ------------------------------------------------------------------------------------ the table


@pytest.fixture
def classroom(tmp_path, monkeypatch):
    """Marks what is in a folder, for a lab of one task that needs no process. Returns the rows."""
    sources = put(tmp_path / "sources", {"tiny_a_lab.ipynb": json.dumps({"cells": [
        {"cell_type": "code", "source": "# TASK tiny.1\nx = 1"},
        {"cell_type": "code", "source": "# CHECK tiny.1 (2 points)\nassert x"},
    ]})})  # fmt: skip
    monkeypatch.setattr(lab, "SOURCES", sources)
    monkeypatch.setattr(grade, "mark", lambda *_: [Mark("tiny.1", 2, 2, "right", "")])

    class Class:
        folder, table = tmp_path / "class", tmp_path / "marks.csv"

        def grade(self, *options):
            assert main(["grade", str(self.folder), "--out", str(self.table), *options]) == 0
            return {row["file"]: row for row in grade.read_table(self.table).values()}

        def write(self, file, **cells):
            rows = grade.read_table(self.table)
            for key in rows:
                rows[key] |= cells if key[1] == file else {}
            grade.write_table(self.table, rows)

        def hand_in(self, name, text="x = 1", day=1):
            source = {"cells": [{"cell_type": "code", "source": f"# TASK tiny.1\n{text}"}]}
            put(self.folder, {name: json.dumps(source)})
            os.utime(self.folder / name, (datetime(2026, 12, day, 8).timestamp(),) * 2)

    return Class()


def test_another_due_changes_the_days_except_where_a_teacher_wrote_them(classroom):
    for name in ("anna", "bo"):
        classroom.hand_in(f"{name}.ipynb", f"x = '{name}'", day=4)
    rows = classroom.grade("--due", "2026-12-02T23:59")
    assert [row["late"] for row in rows.values()] == ["2", "2"]
    classroom.write("bo.ipynb", late="7", id="u1")
    for options, late in ((["--due", "2026-12-03T23:59"], "1"), ([], "1"),
                          (["--due", "2026-12-05T00:00", "--again"], "0")):  # fmt: skip
        rows = classroom.grade(*options)
        assert rows["anna.ipynb"]["late"] == late
        assert (rows["bo.ipynb"]["late"], rows["bo.ipynb"]["id"]) == ("7", "u1")
    (source,) = lab.labs().values()
    source.write_text(source.read_text().replace("assert x", "assert x, 'no x'"))
    assert classroom.grade()["bo.ipynb"]["late"] == "7", "the lab changed, and the work did not"
    classroom.hand_in("bo.ipynb", "x = 'new'", day=4)
    bo = classroom.grade("--due", "2026-12-03T23:59")["bo.ipynb"]
    assert (bo["late"], bo["id"]) == ("1", "u1"), "the days were about the earlier work"


def test_work_of_several_labs_in_one_table_is_told(classroom, capsys):
    for name in ("anna", "bo", "chen"):
        classroom.hand_in(f"{name}.ipynb")
    classroom.grade()
    assert "several labs" not in capsys.readouterr().out
    classroom.write("bo.ipynb", lab="other_lab")
    classroom.grade()
    told = capsys.readouterr().out
    assert "several labs: 2 of tiny_a_lab, 1 of other_lab" in told


def test_a_folder_is_as_late_as_the_newest_of_its_files(classroom):
    put(classroom.folder, {"anna/notes.txt": "x", "bo/.DS_Store": "x"})
    os.utime(classroom.folder / "anna" / "notes.txt", (datetime(2026, 12, 1, 8).timestamp(),) * 2)
    rows = classroom.grade("--due", "2026-12-02")
    assert rows["anna"]["late"] == "0", "the time of the folder itself does not count"
    assert rows["bo"]["late"] == "", "nobody knows"


@pytest.mark.parametrize(
    "due, late", [("2026-12-03", ["0", "1"]), ("2026-12-03 07:58", ["1", "2"])]
)
def test_a_date_alone_is_due_at_the_end_of_the_day_and_the_count_is_told(
    classroom, capsys, due, late
):
    for day, name in ((3, "anna.ipynb"), (4, "bo.ipynb")):
        classroom.hand_in(name, day=day)
    assert [row["late"] for row in classroom.grade("--due", due).values()] == late
    assert (
        f"by the clock of this machine: {2 - late.count('0')} are late" in capsys.readouterr().out
    )


def test_points_by_hand_that_a_new_file_replaces_are_told(classroom, capsys):
    classroom.hand_in("anna.ipynb")
    classroom.grade()
    classroom.write("anna.ipynb", points="1,5")
    assert classroom.grade()["anna.ipynb"]["points"] == "1,5"
    assert "by hand" not in capsys.readouterr().out
    classroom.hand_in("anna.ipynb", "x = 2")
    classroom.grade()
    assert "the 1,5 points that were written by hand became 2" in capsys.readouterr().out


def test_an_entry_that_cannot_be_looked_at_costs_only_its_row(classroom, monkeypatch):
    classroom.hand_in("anna.ipynb")
    classroom.hand_in("bo.ipynb")
    real = hand_ins.real

    def fails(path):
        if path.name == "bo.ipynb":
            raise PermissionError("no access")
        return real(path)

    monkeypatch.setattr(hand_ins.Found, "leaves", property(lambda one: bool(fails(one.path)) * 0))
    rows = classroom.grade()
    assert rows["anna.ipynb"]["status"] == "complete"
    assert (
        rows["bo.ipynb"]["status"] == "could not be run" and "no access" in rows["bo.ipynb"]["says"]
    )


def test_two_runs_into_one_table_keep_each_others_rows(tmp_path):
    table = tmp_path / "marks.csv"

    def run(name):
        for n in range(20):
            row = {"student": name, "file": f"{n}.ipynb", "work": "", "points": 0}
            grade.put(table, {(name, f"{n}.ipynb"): row})

    runs = [threading.Thread(target=run, args=[name]) for name in ("anna", "bo")]
    [one.start() for one in runs], [one.join() for one in runs]
    assert len(grade.read_table(table)) == 40


def test_what_did_not_change_is_not_written_for_each_row(classroom, monkeypatch):
    for n in range(5):
        classroom.hand_in(f"{n}.ipynb", f"x = {n}")
    put(classroom.folder, {"letter.docx": "x"})
    classroom.grade()
    written = []
    monkeypatch.setattr(grade, "write_table", lambda *_: written.append(1))
    classroom.grade()
    assert len(written) == 1


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_table_that_a_spreadsheet_saved_is_read(tmp_path, encoding):
    (tmp_path / "marks.csv").write_text("student\tfile\twork\nJürgen\ta\tw1\n", encoding)
    assert list(grade.read_table(tmp_path / "marks.csv")) == [("Jürgen", "a")]


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16-le"])
def test_a_table_in_an_uncertain_encoding_is_left_as_it_is(classroom, capsys, encoding):
    classroom.hand_in("anna.ipynb")
    before = "student,file,work\nJürgen,a,w1\n".encode(encoding)
    classroom.table.write_bytes(before)
    assert main(["grade", str(classroom.folder), "--out", str(classroom.table)]) == 1
    assert "save it again as “CSV UTF-8”" in capsys.readouterr().err
    assert classroom.table.read_bytes() == before


TEXTS = ["=1", "'=1", "''=1", "'quoted", "plain", "a;=1", "a;'=1", "a\n=1", "a\r\n@x", "\r=1", "\n",
         "\t'x", "＝1", "-1;+2", "'", "a'=1", "'\n"]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_no_text_is_a_formula_and_every_text_comes_back(text):
    cell = as_cell(text)
    assert from_cell(cell) == text
    for start in ("=", "+", "-", "@", "＝"):
        for before in (";", "\t", "\r", "\n"):
            assert before + start not in cell and not cell.startswith((start, before))


# ---------------------------------------------------------------------------------- who agrees


def rows_of(**works):
    """Rows of marks by the student's name; "aabbc" stands for equal and other answers."""
    rows = []
    for name, work in works.items():
        answers = " ".join(f"02.{n + 1}={letter}" for n, letter in enumerate(work))
        row = {"student": "Bo", "file": f"{name}.ipynb", "points": "5"}
        rows.append(row | {"work": f"w{work} {answers}"})
    return rows


def look(rows):
    say_who_agrees(rows)
    return {row["file"].removesuffix(".ipynb"): row["same answers"] for row in rows}


def test_equal_work_is_told_by_file_even_under_one_name():
    told = look(rows_of(a="abcde", b="abcde", c="vwxyz"))
    assert told == {"a": "in all tasks: b.ipynb", "b": "in all tasks: a.ipynb", "c": ""}


def test_most_answers_in_common_are_told_by_task():
    told = look(rows_of(a="abcde", b="abcdx", c="abyzx"))
    assert told == {
        "a": "in 02.1, 02.2, 02.3, 02.4: b.ipynb",
        "b": "in 02.1, 02.2, 02.3, 02.4: a.ipynb; in 02.1, 02.2, 02.5: c.ipynb",
        "c": "in 02.1, 02.2, 02.5: b.ipynb",
    }


def test_what_was_said_is_renewed():
    rows = rows_of(a="abcde", b="abcde")
    assert look(rows) == look(rows) == {"a": "in all tasks: b.ipynb", "b": "in all tasks: a.ipynb"}
    rows[1]["work"] = "w"
    assert look(rows) == {"a": "", "b": ""}


def test_a_large_class_is_compared_in_a_moment():
    rows = rows_of(**{f"s{n}": f"aab{n % 9}{n % 7}" for n in range(1000)})
    start = time.process_time()
    say_who_agrees(rows)
    assert time.process_time() - start < 2
    assert max(len(row["same answers"]) for row in rows) < 2000


# ------------------------------------------------------------------------------------ one line each


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_damaged_note_of_the_last_checks_is_no_note(tmp_path, text):
    put(tmp_path, {".checks.json": text, "x.ipynb": "{}"})
    assert edition.last_checks(tmp_path) == {}
    edition.remember(tmp_path / "x.ipynb", "2 of 3", tmp_path)
    assert edition.last_checks(tmp_path) == {"x.ipynb": "2 of 3"}


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps a folder in which a program runs")
def test_a_deleted_working_folder_is_told(tmp_path, monkeypatch, capsys):
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(["grade", ".", "--out", "marks.csv"]) == 1
    assert "was deleted; cd to another" in capsys.readouterr().err
