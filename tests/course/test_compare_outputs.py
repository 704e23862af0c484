"""Outputs of one device against those of another: texts equal, numbers close."""

import json

import nbformat
import pytest
from compare_outputs import Tolerance, Unreadable, compare, difference, last_digit

EXACT = Tolerance(relative=0.0)


@pytest.mark.parametrize(
    "stored, found",
    [
        ("loss 6.91", "loss 6.92"),  # a unit of the last digit: rounding may fall on its other side
        ("loss 6.91", "loss 6.97"),  # 1% and a unit
        ("film       0.380", "film       0.383"),
        ("| a |   9.96 |", "| a |  10.01 |"),  # a column moves with its numbers
        ("  9.96", "10.01"),
        ("gained -0.001 ± 0.08", "gained 0.000 ± 0.07"),
        ("ideal − model −0.04", "ideal − model -0.05"),
        ("96% of them", "97% of them"),
        ("weights moved by 1e-04, 3.2e-04", "weights moved by 2e-04, 3.3e-04"),
        ("tensor([0.6652, 0.2447])", "tensor([0.6653, 0.2446])"),
        ("[3.9, 2.4]nats", "[3.9, 2.5]nats"),
        ("x8.3 in ½ ×1.5", "x8.4 in ½ ×1.4"),
        ("1,154.3 points", "1,160.1 points"),
        ("from 9 to 5.8", "from 8.9 to 5.8"),  # an alternative text leaves out a last 0
        ("nan inf 8192", "nan inf 8192"),
    ],
)
def test_numbers_that_are_close_are_accepted(stored, found):
    assert difference(stored, found, Tolerance()) == ""


@pytest.mark.parametrize(
    "stored, found, told",
    [
        ("loss 6.91", "loss 7.00", "6.91 and 7.00 are 0.09 apart, and 0.0791 is allowed"),
        ("film 0.380", "film 0.390", "0.380 and 0.390"),
        ("gained -0.13 ± 0.05", "gained 0.13 ± 0.05", "-0.13 and 0.13"),
        ("gained −0.13", "gained +0.13", "−0.13 and +0.13"),
        ("was 0.38 ± 0.05", "was 0.38 ± 0.09", "0.05 and 0.09"),
        ("96% of them", "90% of them", "96 and 90 are 6 apart"),
        ("moved by 1e-04", "moved by 1e-03", "1e-04 and 1e-03"),
        ("1e-04", "1e-4.", "the text differs"),
        ("tensor([0.6652, 0.2447])", "tensor([0.6652, 0.2847])", "0.2447 and 0.2847"),
        ("| a | 0.10 | 0.20 |", "| a | 0.10 | 0.30 |", "0.20 and 0.30"),
        ("x8.3", "x9.3", "8.3 and 9.3"),
        ("16,819 tokens", "16,820 tokens", "16,819 and 16,820"),
        ("1,154.3 points", "1154.3 point", "the text differs"),
        ("step 100", "step 101", "100 and 101 are 1 apart, and 0 is allowed"),
        ("at [3, 11, 19]", "at [3, 12, 19]", "11 and 12"),
        ("at [3, 11, 19]", "at [3, 11]", "the text differs"),
        ("(16, 8192)", "(16, 8191)", "8192 and 8191"),
        ("head4 asks", "head5 asks", "4 and 5"),
        ("loss 5", "loss 6", "5 and 6"),
        ("loss nan", "loss 0.5", "the text differs"),
        ("film movie", "movie film", "the text differs"),
        ("a 5", "a 5 5", "the text differs"),
    ],
)
def test_numbers_that_are_apart_and_other_texts_are_told(stored, found, told):
    assert told in difference(stored, found, Tolerance())


@pytest.mark.parametrize(
    "number, unit",
    [("3.14", 0.01), ("5e-06", 1e-6), ("-3.2E-04", 1e-5), ("96", 1), ("1,154.3", 0.1)],
)
def test_the_unit_of_the_last_digit_is_that_which_is_printed(number, unit):
    assert last_digit(number) == pytest.approx(unit)


def notebook(folder, name, *texts, metadata=None, cells=None, injected=False):
    """A notebook whose code cells printed these texts, and show them once more as a figure would.

    Args:
        metadata: the lesson's.
        cells: {the number of a cell: its metadata}.
        injected: whether papermill added its cell of parameters.
    """
    built = nbformat.v4.new_notebook(metadata=metadata or {})
    for number, text in enumerate(texts, 1):
        image = {"text/plain": text, "image/png": f"{name}{number}"}
        outputs = [nbformat.v4.new_output("stream", text=part) for part in text.splitlines(True)]
        outputs += [nbformat.v4.new_output("stream", name="stderr", text=f"a warning of {name}")]
        outputs += [nbformat.v4.new_output("display_data", data=image)]
        more = {"outputs": outputs, "metadata": (cells or {}).get(number, {})}
        built.cells.append(nbformat.v4.new_code_cell("print(…)", **more))
    if injected:
        tags = {"tags": ["injected-parameters"]}
        built.cells.insert(1, nbformat.v4.new_code_cell("DEVICE = 'cuda'", metadata=tags))
    (folder / name).mkdir(exist_ok=True)
    path = folder / name / "01_words.ipynb"
    nbformat.write(built, path)
    return path


def test_a_failure_names_lesson_cell_and_both_lines(tmp_path):
    stored = notebook(tmp_path, "stored", "before", "one 1\nloss 1.00\nlast 2.00")
    found = notebook(tmp_path, "found", "before", "one 1\nloss 2.00\nlast 3.00", injected=True)
    outcomes, lines = compare(stored, found)
    assert outcomes == ["passed", "failed"]
    assert lines == [
        "FAILED 01_words.ipynb cell 2",
        "    stored: loss 1.00",
        "    found:  loss 2.00",
        "    (1.00 and 2.00 are 1 apart, and 0.02 is allowed)",
        "    and 3 more lines of this cell",
    ]


@pytest.mark.parametrize(
    "one, other, told",
    [
        ("a\nb", "a", ["    stored: b", "    (the line is missing)"]),
        ("a", "a\nb", ["    found:  b", "    (the line is not stored)"]),
        ("took 3.1 ms\n40%|## | 2/5", "took 2 s\n9%|# | 1/5", []),
        ("of 0x7f01aa22bb10", "of 0x7fe9aa22bb10", []),
        ("/tmp/abc here", "/tmp/other here", []),
        ("998.5 tokens/s", "31,024 tokens/s", []),
    ],
)  # fmt: skip
def test_lines_are_compared_after_what_varies_was_taken_out(tmp_path, one, other, told):
    paths = notebook(tmp_path, "stored", one), notebook(tmp_path, "found", other)
    _, lines = compare(*paths)
    assert lines[1:3] == told


def test_an_output_that_is_empty_at_the_end_is_no_line(tmp_path):
    stored, found = notebook(tmp_path, "stored", "a"), notebook(tmp_path, "found", "a")
    executed = nbformat.read(found, as_version=4)
    executed.cells[0].outputs.insert(0, nbformat.v4.new_output("display_data", data={}))
    nbformat.write(executed, found)
    assert compare(stored, found) == (["passed"], [])


@pytest.mark.parametrize("tag", ["nbval-ignore-output", "drawn-on-device"])
def test_cells_that_are_tagged_are_not_compared_and_another_number_of_cells_is_told(tmp_path, tag):
    tagged = {2: {"tags": [tag]}}
    stored = notebook(tmp_path, "stored", "a", "b", cells=tagged)
    assert compare(stored, notebook(tmp_path, "found", "a", "c"))[0] == ["passed", "skipped"]
    outcomes, lines = compare(stored, notebook(tmp_path, "found", "a"))
    assert outcomes == ["failed"] and "2 code cells are stored and 1 were found" in lines[1]


@pytest.mark.parametrize(
    "metadata, cells, expected",
    [
        ({}, {}, ["failed", "failed"]),
        ({"relative": 0.2}, {}, ["passed", "failed"]),
        ({"absolute": 0.2}, {}, ["passed", "failed"]),
        ({"relative": 0.2, "integers": 0.1}, {}, ["passed", "passed"]),
        ({"relative": 0.2, "integers": 0.01}, {}, ["passed", "failed"]),
        ({"absolute": 0.001}, {}, ["failed", "failed"]),  # it adds to what is allowed anyway
        ({}, {2: {"integers": 0.1}}, ["failed", "passed"]),
        ({"relative": 0.2}, {2: {"integers": 0.1}}, ["passed", "passed"]),
    ],
)
def test_the_metadata_of_a_lesson_or_of_a_cell_widen_the_tolerance(
    tmp_path, metadata, cells, expected
):
    cells = {number: {"mlm_course": {"tolerance": given}} for number, given in cells.items()}
    whole = {"mlm_course": {"tolerance": metadata}}
    stored = notebook(tmp_path, "stored", "1.00", "100 right", metadata=whole, cells=cells)
    assert compare(stored, notebook(tmp_path, "found", "1.15", "103 right"))[0] == expected


def test_a_tolerance_never_narrows():
    given = {"mlm_course": {"tolerance": {"relative": 0.0, "absolute": 0.1}}}
    assert Tolerance().widened(given, "") == Tolerance(absolute=0.1)


@pytest.mark.parametrize(
    "given", [0.1, {"relativ": 0.1}, {"relative": -1}, {"relative": "1"}, {"integers": True}, [1]]
)
def test_what_is_no_tolerance_is_told_with_its_place(tmp_path, given):
    cells = {2: {"mlm_course": {"tolerance": given}}}
    stored = notebook(tmp_path, "stored", "a", "b", cells=cells)
    with pytest.raises(Unreadable) as refused:
        compare(stored, notebook(tmp_path, "found", "a", "b"))
    told = str(refused.value)
    assert told.startswith("01_words.ipynb cell 2: ") and json.dumps(given) in told
    assert "relative, absolute, integers" in told


def test_without_a_relative_tolerance_only_the_last_digit_may_move():
    assert difference("6.91", "6.92", EXACT) == "" != difference("6.91", "6.93", EXACT)
