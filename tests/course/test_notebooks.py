"""What every lesson owes its reader. Outputs are compared by nbval, style is `notebook_style`'s."""

import ast
import re
from pathlib import Path

import lesson_sizes
import nbformat
import pytest
from lesson_questions import in_html, is_questions
from notebook_doors import EDITIONS, LINK, REPOSITORY, is_guard
from notebook_form import (
    ANSWER,
    FOLDED,
    alternative_texts,
    main_path_and_deeper,
    normalised,
    read,
    text,
)
from notebook_style import of_code, of_prose, remarks

from classroom.lab import labs
from classroom.questions import questions
from classroom.work import with_own_lab

ROOT = Path(__file__).parents[2]
LESSONS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))


@pytest.fixture(scope="module", params=LESSONS, ids=lambda path: path.stem)
def lesson(request):
    return read(request.param)


def code(lesson):
    """The code cells that teach: the guard, which gets the course for Colab, is none of them."""
    return [cell for cell in lesson.cells if cell.cell_type == "code" and not is_guard(cell)]


def markdown(lesson):
    cells = [cell.source for cell in lesson.cells if cell.cell_type == "markdown"]
    return [LINK.sub("", cell) for cell in cells]


def outputs(lesson):
    return [output for cell in code(lesson) for output in cell.outputs]


def test_the_lessons_are_numbered_without_gaps():
    assert [path.stem[:2] for path in LESSONS] == [
        f"{number:02d}" for number in range(len(LESSONS))
    ]
    assert len(LESSONS) >= 5


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_the_file_is_in_its_stored_form(path):
    assert path.read_text(encoding="utf-8") == text(normalised(read(path), path)), (
        f"run: python tools/notebook_form.py {path}"
    )


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_the_file_stays_small(path):
    assert path.stat().st_size < 500_000


def test_every_code_cell_was_executed_in_order_and_without_an_error(lesson):
    cells = [cell for cell in lesson.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert all(output.output_type != "error" for output in outputs(lesson))


def test_nothing_was_written_to_standard_error(lesson):
    assert [
        o.text for o in outputs(lesson) if o.output_type == "stream" and o.name == "stderr"
    ] == []


def test_outputs_name_no_path_of_a_machine(lesson):
    stored = nbformat.writes(lesson)
    assert not re.search(
        r"/(?:home|root|Users|work|tmp)/|[A-Z]:\\\\|ipykernel_\d+|site-packages/", stored
    )


def test_one_cell_holds_plain_parameters(lesson):
    tagged = [cell for cell in lesson.cells if "parameters" in cell.metadata.get("tags", [])]
    assert len(tagged) == 1 and tagged[0].cell_type == "code"
    values = {}
    for line in ast.parse(tagged[0].source).body:
        assert isinstance(line, ast.Assign) and len(line.targets) == 1, "only NAME = literal"
        values[line.targets[0].id] = ast.literal_eval(line.value)
    assert values["SEED"] == 0 and values["DEVICE"] == "auto"
    assert values["CHECKPOINT"] in ("course-bert", "course-writer")  # both come with the course


def names_in(cell):
    return {node.id for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Name)}


def test_the_cell_after_the_parameters_checks_them(lesson):
    cells = code(lesson)
    place = next(i for i, c in enumerate(cells) if "parameters" in c.metadata.get("tags", []))
    unchecked = names_in(cells[place]) - names_in(cells[place + 1]) - {"CHECKPOINT", "CORPUS"}
    assert not unchecked, "a wrong value should meet a sentence there, not an error further down"


def test_it_opens_with_the_pipeline_and_its_own_part_lit(lesson):
    setup = code(lesson)[0]
    assert re.search(r"^diagrams\.pipeline\(", setup.source, re.M)
    assert "Lit in this lesson: " in str(setup.outputs)


def test_the_answer_to_a_prediction_is_folded(lesson):
    asked = False
    for cell in lesson.cells:
        if cell.cell_type == "markdown" and "**Predict.**" in cell.source:
            asked = True
        elif asked and cell.get("outputs"):
            assert FOLDED in cell.metadata.get("tags", []), cell.source
            asked = False
    assert not asked, "a prediction that no cell answers"


def test_each_task_is_answered_at_once_in_folded_cells_that_run(lesson):
    start = next(i for i, c in enumerate(lesson.cells) if c.source.startswith("## Your turn"))
    answers = [ANSWER in cell.metadata.get("tags", []) for cell in lesson.cells[start + 1 :]]
    tasks = re.findall(r"^\d\. ", lesson.cells[start].source, re.M)
    assert answers == [True] * len(tasks) + [False] * 3  # recap, questions and references
    assert all(cell.outputs for cell in lesson.cells[start + 1 : -3])


def test_it_shows_equality_and_a_check_that_fails(lesson):
    assert any(re.search(r"^## Equal to", cell, re.M) for cell in markdown(lesson))
    tries = [
        node
        for cell in code(lesson)
        for node in ast.walk(ast.parse(cell.source))
        if isinstance(node, ast.Try)
    ]
    caught = [handler.type.id for node in tries for handler in node.handlers]
    assert "AssertionError" in caught, "break one thing and show the check failing"


@pytest.mark.parametrize("path", LESSONS[1:], ids=lambda path: path.stem)
def test_its_tasks_lead_to_its_lab(path):
    """Lessons 08 and 16 have no lab of their own: the lab of the next lesson has their tasks."""
    (tasks,) = [cell for cell in markdown(read(path)) if cell.startswith("## Your turn")]
    number = min(key for key in labs() if key >= path.stem[:2])
    assert f"(labs/{labs()[number].name})" in with_own_lab(tasks)
    assert f"({REPOSITORY}/blob/{EDITIONS}/{labs()[number].name})" in tasks
    assert f"course.py labs start {number}`" in tasks


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_its_three_questions_say_for_each_option_whether_it_is_right_and_why(path):
    (cell,) = [cell for cell in read(path).cells if is_questions(cell)]
    folds = re.findall(r"<summary>([A-D])\. .+</summary>\n\n\*\*(\w+)\.\*\*", cell.source)
    options = [option for one in questions(path.stem[:2], "site") for option in one.options]
    right = ["Wrong" if option.mistake else "Right" for option in options]
    assert folds == list(zip("ABCD" * 3, right))
    assert all(option.because in cell.source for option in options)


def test_an_option_is_shown_as_html():
    shown = in_html("`x < 1` & 2")
    assert shown == "<code>x &lt; 1</code> &amp; 2"
    with pytest.raises(ValueError, match="no other Markdown .*: 'a \\*word\\*'"):
        in_html("a *word*")


def test_every_figure_has_alternative_text(lesson):
    figures = [alternative_texts(cell) for cell in lesson.cells if alternative_texts(cell)]
    assert figures and min(len(told) for figure in figures for told in figure) > 30


PROSE, CODE = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell
SHORT = [PROSE("# 02 · Masks\n\nTwo minutes to read."), PROSE("word " * 800), CODE("x = 1\n" * 20)]
OPTIONAL = [PROSE("## Deeper"), PROSE("### 1. Why?\n\n" + "word " * 400), CODE("let = lambda: 1")]
TURN = [PROSE("## Your turn"), CODE("x = 1\n" * 99, metadata={"tags": [ANSWER]})]


def test_minutes_of_the_main_path_and_of_the_section_deeper_are_told_apart():
    lesson = normalised(nbformat.v4.new_notebook(cells=[*SHORT, *OPTIONAL, *TURN]))
    told = "About 15 minutes to read, and 5 more for Deeper."
    assert lesson.cells[0].source.endswith(told)
    assert normalised(lesson).cells[0].source.endswith(told)
    lesson = normalised(nbformat.v4.new_notebook(cells=[*SHORT, *TURN]))
    assert lesson.cells[0].source.endswith("About 15 minutes to read.")


def test_the_sizes_of_a_lesson_leave_out_what_is_folded():
    lesson = nbformat.v4.new_notebook(cells=[*SHORT, *OPTIONAL, *TURN])
    main, deeper = (lesson_sizes.sizes(cells) for cells in main_path_and_deeper(lesson))
    assert main[1:] == (811, 20) and deeper[1:] == (405, 1)


def test_in_the_section_deeper_style_is_free_and_its_place_is_not():
    def told(*cells):
        return list(remarks(nbformat.v4.new_notebook(cells=list(cells))))

    assert not any("lambda" in one for one in told(*SHORT, *OPTIONAL, *TURN, *TURN))
    assert any("lambda" in one for one in told(*SHORT, *OPTIONAL[1:], *TURN, *TURN))
    misplaced = told(*SHORT, *OPTIONAL, PROSE("## Recap"), *TURN, *TURN)
    assert any("directly before Your turn" in one for one in misplaced)


def test_a_remark_on_style_is_made_where_a_cell_is_too_loud_or_a_line_too_long():
    assert list(of_prose("A sentence that says enough. " * 50)) == []
    assert len(list(of_prose("Let's simply go!"))) == 2
    assert len(list(of_code("named = lambda x: x\n" + "x = 1\n" * 50))) == 1
    assert len(list(of_code("x" * 101))) == 1
