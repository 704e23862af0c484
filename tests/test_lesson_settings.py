"""Each lesson with other settings: it runs to its end, or says which value is wrong."""

import sys
import types
from pathlib import Path

import matplotlib
import pytest
import torch
from nbformat import NO_CONVERT, read

from classroom.runner import execute, fresh_names

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"

# Settings that must run to the end, and those that must be refused with their name.
RUN = {
    "00": [
        {"TOP_K": 1, "SENTENCE": "[MASK] is the capital of france ."},
        {"OWN_SENTENCE": "The [MASK]!", "TOP_K": 50, "SEED": 7},
    ],
    "01": [
        {"CORPUS": "grammar", "SIZES": [500, 700, 20000]},
        {"SIZES": [300], "VOCAB_SIZE": 120, "SEED": 3},
    ],
    "02": [
        {"RATE": 0.3, "SEED": 5, "MASK_SHARE": 1, "RANDOM_SHARE": 0},
        {"RATE": 1, "MASK_SHARE": 0, "RANDOM_SHARE": 1, "EPOCHS": 1},
    ],
    "03": [
        {
            "PASSAGE": "The keeper painted the tower. Élodie thought that it looked unhappily red.",
            "HIDE": ["unhappily", "Élodie", "keeper"],
            "SEED": 3,
            "STEPS": 30,
        },
        {"PASSAGE": "film", "HIDE": ["film"]},
    ],
    "04": [
        {
            "SENTENCE": "the castaways sang unforgettably tonight .",
            "HIDDEN": ["unforgettably"],
            "SEED": 5,
            "MASKINGS": 2,
        }
    ],
    "05": [
        {
            "SENTENCE": "the [MASK] was awful .",
            "SEED": 7,
            "BATCH": 1,
            "LENGTH": 512,
            "VOCAB_SIZE": 8193,
        }
    ],
    "06": [
        {
            "SENTENCE": "paris is the capital of [MASK] .",
            "WORD": "paris",
            "OTHER": "madrid",
            "LAYER": 0,
            "DEVICE": "cpu",
        },
        {
            "SENTENCE": "raise an error if the file does not [MASK] .",
            "WORD": "file",
            "OTHER": "tokenizer",
            "LONGER": "the function returns a list of strings , and a set if you ask for one .",
            "SEED": 3,
        },
    ],
    "07": [
        {"STEPS": 1},
        {
            "SENTENCES": ["the capital of [MASK] is [MASK] and the capital of spain is [MASK] ."],
            "ANSWERS": [["france", "paris", "madrid"]],
            "STEPS": 2,
        },
    ],
    "08": [{"WORLD": "animals", "SEED": 3, "STEPS": 60, "LEARNING_RATE": 5e-4, "HELD_OUT": 60}],
    "09": [{"SEED": 2**32 - 1, "STEPS": 1}],
    "10": [{"WIDTH": 7, "STEPS": 11, "MASKED_STEPS": 13, "DOCUMENTS": 32}],
    "11": [{"CORPUS": "grammar", "SAMPLES": 1}],
    "12": [{"SEED": 3, "LENGTH": 40, "SENTENCE": "[MASK] is the capital of france ."}],
    "13": [{"SEED": 3, "LEARNING_RATE": 1e-3}],
    "14": [{"SEED": 3, "SIZES": [11, 30], "SEEDS": 2}],
    "15": [{"SEED": 3, "STEPS": 7, "HELD_OUT": 21, "WRITTEN": 11}],
    "16": [{"SEED": 5, "REVIEWS": 9, "LEARNING_RATE": 1e-3, "STEPS": 12, "DOCUMENTS": 60}],
}
REFUSED = {
    "00": [{"TOP_K": 9000}, {"SENTENCE": "no blank here ."}, {"OWN_SENTENCE": "[MASK] and [MASK]"}],
    "01": [{"VOCAB_SIZE": 50}, {"SIZES": [500, 250]}, {"SIZES": []}],
    "02": [{"RATE": 1.4}, {"MASK_SHARE": 0.8, "RANDOM_SHARE": 0.3}, {"RATE": 0}, {"BATCHES": 2.5}],
    "03": [{"HIDE": ["zebra"]}, {"HIDE": "election"}, {"PASSAGE": ""}, {"SEED": 2**33}],
    "04": [
        {"HIDDEN": []},
        {"HIDDEN": ["zebra"]},
        {"HIDDEN": "film"},
        {"HIDDEN": [["film"]]},
        {"SENTENCE": ""},
        {"DEVICE": "tpu9"},
        {"MASKINGS": 1},
        {"SEED": 2**32},
    ],
    "05": [
        {"SEED": 2**32},
        {"SENTENCE": "no blank here ."},
        {"LENGTH": 12.5},
        {"BATCH": 64, "LENGTH": 512, "VOCAB_SIZE": 30522},
        {"BATCH": 1, "LENGTH": 7, "VOCAB_SIZE": 2},
    ],
    "06": [
        {"SEED": 2**32},
        {"OTHER": ""},
        {"OTHER": "unforgettably"},
        {"LAYER": 4},
        {"WORD": "eaten"},
        {"LONGER": "too short ."},
        {"OTHER": "the [MASK]"},
    ],
    "07": [
        {"SEED": 2**32},
        {"SENTENCES": []},
        {"SENTENCES": "[MASK] [MASK]"},
        {"SENTENCES": ["only one [MASK] here ."]},
        {"ANSWERS": [["spain", "zyzzyva"], ["film"]]},
        {"STEPS": 0},
    ],
    "08": [
        {"SEED": 2**32},
        {"WORLD": ["films"]},
        {"WORLD": "opera"},
        {"LEARNING_RATE": 0.5},
        {"STEPS": 5},
        {"HELD_OUT": 2.5},
    ],
    "09": [
        {"SEED": 2**32},
        {"LEARNING_RATE": 1e-2},
        {"FACTORS": []},
        {"FACTORS": ["2"]},
        {"HELD_OUT": 1},
        {"MAX_LENGTH": 300},
        {"OTHER": "nowhere"},
        {"CORPUS": "nowhere"},
        {"SENTENCES": ["a [MASK] and [MASK]"]},
        {"SENTENCES": ["no blank here"]},
        {"CORPUS": "docs", "OTHER": "docs"},
        {"LEARNING_RATE": 1e-6},
        {"OWN": "nowhere.txt"},
    ],
    "10": [
        {"SEED": 2**32 - 1},
        {"DOCUMENTS": 10},
        {"WIDTH": 5000},
        {"MASKED_STEPS": 9.5},
        {"WORLD": "moon"},
        {"WIDTH": 0},
        {"STEPS": 5},
        {"HELD_OUT": 3},
    ],
    "11": [
        {"CORPUS": "nowhere.txt"},
        {"SAMPLES": 8192},
        {"FULL_STEPS": 7},
        {"LARGEST": 5000000},
        {"SAMPLES": 100000},
        {"LARGEST": 1000},
        {"HELD_OUT": 0},
    ],
    "12": [
        {"SENTENCE": "no blank here ."},
        {"SCORED": 50, "DOCUMENTS": 40},
        {"LENGTH": 400, "RANKED": 20},
        {"DOCUMENTS": 2.5},
        {"SEED": 2**32 - 1},
    ],
    "13": [
        {"SEEDS": 1},
        {"RESULTS": "nowhere.csv"},
        {"LEARNING_RATE": 0.5},
        {"FULL": "true"},
        {"HELD_OUT": 5},
        {"DOCUMENTS": 2.5},
    ],
    "14": [
        {"SIZES": [50, 20]},
        {"SIZES": [20, 555]},
        {"RESULTS": "nowhere.csv"},
        {"SEEDS": 1},
        {"FULL": "no"},
    ],
    "15": [
        {"SEED": -1},
        {"STEPS": 0},
        {"WRITTEN": 200},
        {"HELD_OUT": 5},
        {"RESULTS": "nowhere.csv"},
        {"FULL": 1},
    ],
    "16": [
        {"STEPS": 5},
        {"RESULTS": "nowhere.csv"},
        {"LEARNING_RATE": 0.5},
        {"REVIEWS": 561},
        {"FULL": "yes"},
        {"LONG_SEEDS": 1},
        {"HELD_OUT": 2.5},
        {"DEVICE": "tpu9"},
    ],
}


def cases(table):
    return [
        pytest.param(name, values, id=f"{name}-{'-'.join(values)}-{place}")
        for name, several in sorted(table.items())
        for place, values in enumerate(several)
    ]


def lesson_of(name):
    (path,) = NOTEBOOKS.glob(f"{name}_*.ipynb")
    return read(path, NO_CONVERT)


@pytest.fixture
def names(tmp_path, monkeypatch):
    """Where the cells of a lesson run: in this process, since the start of a kernel would take most
    of the time, in an empty `__main__` and an empty folder, as a kernel has them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    backend, threads = matplotlib.get_backend(), torch.get_num_threads()
    matplotlib.use("agg")
    names = vars(sys.modules["__main__"])
    names.update(fresh_names())
    yield names
    names.clear()  # the models, too: functions and their names would keep each other
    matplotlib.use(backend)
    torch.set_num_threads(threads)


def begin(lesson, names, *several):
    """Execute a lesson's cells up to that of the parameters, and set them. Returns the others."""
    cells = [cell for cell in lesson.cells if cell.cell_type == "code"]
    place = next(i for i, cell in enumerate(cells) if "parameters" in cell.metadata.get("tags", []))
    for number, cell in enumerate(cells[: place + 1], start=1):
        execute(cell.source, f"cell {number}", names)
    for values in several:
        unknown = values.keys() - names.keys()
        assert not unknown, f"there is no parameter {unknown}"
        names.update(values)
    return list(enumerate(cells, start=1))[place + 1 :]


def test_every_lesson_is_tried_with_three_settings():
    for lesson in NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"):
        number = lesson.name[:2]
        assert len(RUN.get(number, [])) + len(REFUSED.get(number, [])) >= 3, number


@pytest.mark.slow
@pytest.mark.parametrize("name, values", cases(RUN))
def test_a_lesson_runs_to_its_end_with_other_settings(name, values, names):
    lesson = lesson_of(name)
    quick = lesson.metadata.get("mlm_course", {}).get("quick", {})
    for number, cell in begin(lesson, names, quick, values):
        execute(cell.source, f"cell {number}", names)


@pytest.mark.slow
@pytest.mark.parametrize("name, values", cases(REFUSED))
def test_a_wrong_setting_is_refused_with_its_name_by_the_cell_that_checks(name, values, names):
    (number, check), *_ = begin(lesson_of(name), names, values)
    with pytest.raises(ValueError) as caught:
        execute(check.source, f"cell {number}", names)
    assert all(setting in str(caught.value) for setting in values), caught.value
