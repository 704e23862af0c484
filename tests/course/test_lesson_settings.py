"""Each lesson with other settings: it runs to its end, or says which value is wrong."""

import csv
import json
import sys
import types
from pathlib import Path

import matplotlib
import other_checkpoints
import pytest
import torch
from hub import answer_of, serve, start
from nbformat import NO_CONVERT, read

from classroom.runner import execute, fresh_names
from mlm_lib.corpus import load_corpus

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"

SMALL, OTHER, MODERN = ({"CHECKPOINT": name} for name in ("small", "other", "modern"))
# Settings that must run to the end, and those that must be refused with their name.
RUN = {
    "00": [{"TOP_K": 1, "SENTENCE": "[MASK] is the capital of france ."},
        {"OWN_SENTENCE": "The [MASK]!", "TOP_K": 50, "SEED": 7} | SMALL],
    "01": [{"CORPUS": "grammar", "SIZES": [500, 700, 20000]}, {"SIZES": [300], "VOCAB_SIZE": 120,
        "SEED": 3}],
    "02": [{"RATE": 0.3, "SEED": 5, "MASK_SHARE": 1, "RANDOM_SHARE": 0}, {"RATE": 1,
        "MASK_SHARE": 0, "RANDOM_SHARE": 1, "EPOCHS": 1} | OTHER],
    "03": [{"PASSAGE": "The keeper painted the tower. Élodie thought that it looked unhappily red.",
        "HIDE": ["unhappily", "Élodie", "keeper"], "SEED": 3, "STEPS": 30}, {"PASSAGE": "film",
        "HIDE": ["film"]} | SMALL],
    "04": [{"SENTENCE": "the castaways sang unforgettably tonight .", "HIDDEN": ["unforgettably"],
        "SEED": 5, "MASKINGS": 2} | SMALL],
    "05": [{"SENTENCE": "the [MASK] was awful .", "SEED": 7} | SMALL],
    "06": [{"SENTENCE": "paris is the capital of [MASK] .", "WORD": "paris", "OTHER": "madrid",
        "LAYER": 0, "DEVICE": "cpu"} | SMALL,
        {"SENTENCE": "raise an error if the file does not [MASK] .", "WORD": "file",
        "OTHER": "tokenizer",
        "LONGER": "the function returns a list of strings , and a set if you ask for one .",
        "SEED": 3}],
    "07": [{"SENTENCES": ["the capital of [MASK] is [MASK] and the capital of spain is [MASK] ."],
        "ANSWERS": [["france", "paris", "madrid"]], "STEPS": 1} | SMALL],
    "08": [{"WORLD": "animals", "SEED": 3, "HELD_OUT": 60}],
    "09": [{"WORLD": "animals", "SEED": 3, "STEPS": 60, "LEARNING_RATE": 5e-4, "HELD_OUT": 60}
        | SMALL],
    "10": [{"SEED": 2**32-1, "STEPS": 1} | SMALL],
    "11": [{"WIDTH": 7, "STEPS": 11, "MASKED_STEPS": 13, "DOCUMENTS": 32} | SMALL],
    "12": [{"CORPUS": "grammar", "SAMPLES": 1} | SMALL],
    "13": [{"SEED": 3, "LENGTH": 40, "SENTENCE": "[MASK] is the capital of france ."} | OTHER],
    "14": [{"SEED": 3, "LEARNING_RATE": 1e-3}],
    "15": [{"SEED": 3, "SIZES": [11, 30], "SEEDS": 2, "LABEL_COLUMN": "genre"} | OTHER],
    "16": [{"SEED": 3, "STEPS": 7, "HELD_OUT": 21} | OTHER],
    "17": [{"SEED": 3, "HELD_OUT": 21, "WRITTEN": 11} | OTHER],
    "18": [{"SEED": 5, "REVIEWS": 9, "LEARNING_RATE": 1e-3, "STEPS": 12, "DOCUMENTS": 60} | SMALL],
    "19": [{"SEED": 5, "BATCH_SIZE": 9, "ROUNDS": 2} | SMALL],
}  # fmt: skip
REFUSED = {
    "00": [{"TOP_K": 9000}, {"SENTENCE": "no blank here ."},
        {"OWN_SENTENCE": "[MASK] and [MASK]"}],
    "01": [{"VOCAB_SIZE": 50}, {"SIZES": [500, 250]}, {"SIZES": []}],
    "02": [MODERN, {"RATE": 1.4}, {"MASK_SHARE": 0.8, "RANDOM_SHARE": 0.3}, {"RATE": 0},
        {"BATCHES": 2.5}],
    "03": [MODERN, {"HIDE": ["zebra"]}, {"HIDE": "election"}, {"PASSAGE": ""}, {"SEED": 2**33}],
    "04": [{"HIDDEN": []}, {"HIDDEN": ["zebra"]}, {"HIDDEN": "film"}, {"HIDDEN": [["film"]]},
        {"SENTENCE": ""}, {"DEVICE": "tpu9"}, {"MASKINGS": 1}, {"SEED": 2**32}],
    "05": [MODERN, {"SEED": 2**32}, {"SENTENCE": "no blank here ."}],
    "06": [MODERN, {"SEED": 2**32}, {"OTHER": ""}, {"OTHER": "unforgettably"}, {"LAYER": 4},
        {"WORD": "eaten"}, {"LONGER": "too short ."}, {"OTHER": "the [MASK]"}],
    "07": [MODERN, {"SEED": 2**32}, {"SENTENCES": []}, {"SENTENCES": "[MASK] [MASK]"},
        {"SENTENCES": ["only one [MASK] here ."]}, {"ANSWERS": [["spain", "zyzzyva"], ["film"]]},
        {"STEPS": 0}],
    "08": [{"SEED": 2**32}, {"WORLD": ["films"]}, {"WORLD": "opera"}, {"HELD_OUT": 2.5}],
    "09": [{"SEED": 2**32}, {"WORLD": ["films"]}, {"WORLD": "opera"}, {"LEARNING_RATE": 0.5},
        {"STEPS": 5}, {"HELD_OUT": 2.5}],
    "10": [MODERN, {"SEED": 2**32}, {"LEARNING_RATE": 1e-2}, {"FACTORS": []}, {"FACTORS": ["2"]},
        {"HELD_OUT": 1}, {"MAX_LENGTH": 300}, {"OTHER": "nowhere"}, {"CORPUS": "nowhere"},
        {"SENTENCES": ["a [MASK] and [MASK]"]}, {"SENTENCES": ["no blank here"]},
        {"CORPUS": "docs", "OTHER": "docs"}, {"LEARNING_RATE": 1e-6}, {"OWN": "nowhere.txt"},
        {"OWN": "unknown.txt"}],
    "11": [MODERN, {"SEED": 2**32-1}, {"DOCUMENTS": 10}, {"WIDTH": 5000}, {"MASKED_STEPS": 9.5},
        {"WORLD": "moon"}, {"WIDTH": 0}, {"STEPS": 5}, {"HELD_OUT": 3}],
    "12": [{"CORPUS": "nowhere.txt"}, {"SAMPLES": 8192}, {"FULL_STEPS": 7}, {"LARGEST": 5000000},
        {"SAMPLES": 100000}, {"LARGEST": 1000}, {"HELD_OUT": 0}],
    "13": [MODERN, {"SENTENCE": "no blank here ."}, {"SCORED": 50, "DOCUMENTS": 40},
        {"LENGTH": 400, "RANKED": 20}, {"DOCUMENTS": 2.5}, {"SEED": 2**32-1}],
    "14": [{"SEEDS": 1}, {"RESULTS": "nowhere.csv"}, {"LEARNING_RATE": 0.5}, {"FULL": "true"},
        {"HELD_OUT": 5}, {"DOCUMENTS": 2.5}],
    "15": [MODERN, {"SIZES": [50, 20]}, {"SIZES": [20, 555]}, {"RESULTS": "nowhere.csv"},
        {"SEEDS": 1}, {"FULL": "no"}, {"OWN": "nowhere.csv"}, {"OWN": "mine.txt"},
        {"LABEL_COLUMN": "stars"}, {"LABEL_COLUMN": "text"}, {"OWN_RATE": 1}],
    "16": [MODERN, {"SEED": -1}, {"STEPS": 0}, {"HELD_OUT": 5}, {"RESULTS": "nowhere.csv"},
        {"FULL": 1}],
    "17": [MODERN, {"SEED": -1}, {"WRITTEN": 200}, {"HELD_OUT": 5}],
    "18": [{"STEPS": 5}, {"RESULTS": "nowhere.csv"}, {"LEARNING_RATE": 0.5}, {"REVIEWS": 561},
        {"FULL": "yes"}, {"LONG_SEEDS": 1}, {"HELD_OUT": 2.5}, {"DEVICE": "tpu9"}],
    "19": [MODERN, {"ROUNDS": 1}, {"BATCH_SIZE": 100}, {"RESULTS": "nowhere.csv"}, {"SEED": 2**32}],
}  # fmt: skip


def cases(table):
    return [
        pytest.param(name, values, id=f"{name}-{'-'.join(values)}-{place}")
        for name, several in sorted(table.items())
        for place, values in enumerate(several)
    ]


def lesson_of(name):
    (path,) = NOTEBOOKS.glob(f"{name}_*.ipynb")
    return read(path, NO_CONVERT)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """A folder of checkpoints, by the names that settings give them."""
    folder = tmp_path_factory.mktemp("checkpoints")
    other_checkpoints.a_small_bert(folder / "small")
    other_checkpoints.another_bert(folder / "other")
    other_checkpoints.a_modernbert(folder / "modern")
    (folder / "unknown.txt").write_text("\n\n".join(n * "😭 " for n in range(1, 20)), "utf-8")
    return folder


@pytest.fixture
def names(checkpoints, monkeypatch):
    """Where the cells of a lesson run: in this process, since the start of a kernel would take most
    of the time, in an empty `__main__` and a folder of checkpoints alone."""
    monkeypatch.chdir(checkpoints)
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    backend, threads = matplotlib.get_backend(), torch.get_num_threads()
    matplotlib.use("agg")
    names = vars(sys.modules["__main__"])
    names.update(fresh_names())
    yield names
    names.clear()  # the models, too: functions and their names would keep each other
    matplotlib.use(backend)
    torch.set_num_threads(threads)
    torch.set_grad_enabled(True)


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


def run(name, values, names):
    """A lesson to its end, in its quick form but for these values."""
    lesson = lesson_of(name)
    quick = lesson.metadata.get("mlm_course", {}).get("quick", {})
    for number, cell in begin(lesson, names, quick, values):
        execute(cell.source, f"cell {number}", names)


def test_every_lesson_is_tried_with_three_settings():
    for lesson in NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"):
        number = lesson.name[:2]
        assert len(RUN.get(number, [])) + len(REFUSED.get(number, [])) >= 3, number


@pytest.mark.slow
@pytest.mark.parametrize("name, values", cases(RUN))
def test_a_lesson_runs_to_its_end_with_other_settings(name, values, names):
    run(name, values, names)


@pytest.mark.slow
@pytest.mark.parametrize("name, values", cases(REFUSED))
def test_a_wrong_setting_is_refused_with_its_name_by_the_cell_that_checks(name, values, names):
    (number, check), *_ = begin(lesson_of(name), names, values)
    with pytest.raises(ValueError) as caught:
        execute(check.source, f"cell {number}", names)
    assert all(setting in str(caught.value) for setting in values), caught.value


def written(path):
    """A table of reviews as people have them: other columns, another name, cells left empty."""
    rows = [{"stars": 3, "review": text} for text in ["", *load_corpus("reviews")[:120], ""]]
    with open(path, "w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, ["stars", "review"])
        table.writeheader()
        table.writerows(rows)
    return path


@pytest.mark.slow
def test_models_and_data_sets_of_the_hub_are_what_lessons_run_on(checkpoints, tmp_path):
    offered = {
        f"acme/{name}": {file.name: file.read_bytes() for file in (checkpoints / name).iterdir()}
        for name in ("small", "modern")
    }
    offered["acme/films"] = {"train.csv": written(tmp_path / "train.csv").read_bytes()}
    small, modern = {"CHECKPOINT": "acme/small"}, {"CHECKPOINT": "acme/modern"}
    films = {"CORPUS": "hub:acme/films:review"}
    calls = [("00", small), ("00", modern), ("04", small), ("04", modern), ("07", small)]
    calls.append(("10", small | films))
    with serve(offered) as (url, asked):
        home = {"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": url, "CALLS": json.dumps(calls)}
        said = answer_of(start("run_lessons.py", home))
    assert "acme/small" in said[0] and "acme/modern" in said[1] and "films:review, known" in said[5]
    assert {name for name, *_ in asked} >= offered.keys()


@pytest.mark.slow
def test_own_texts_go_by_the_last_part_of_their_path(names, tmp_path, capsys):
    path = written(tmp_path / "films.csv")
    run("10", {"CORPUS": f"{path}:review"} | SMALL, names)
    said = capsys.readouterr().out
    assert "films.csv:review, known" in said and str(tmp_path) not in said


@pytest.mark.slow
def test_an_evaluation_asks_once_for_each_token_but_for_no_special_one(names):
    for number, cell in begin(lesson_of("10"), names, SMALL):
        execute(cell.source, f"cell {number}", names)
        if "token_losses" in names:
            break
    special = set(names["tokenizer"].all_special_ids)
    texts = ["the film was great .", "i cried 😭 at the end", "a [MASK] here [SEP] and [CLS] there",
             "😭 [UNK] 😭", "味味 was unforgettably good 😭"]  # fmt: skip
    for row in map(names["tokenizer"].encode, texts):
        own = [index not in special for index in row]
        asked = names["each_token_once"](row)["labels"] != -100
        assert asked.sum(0).tolist() == own
        (found,) = names["token_losses"](names["model"], [row])
        assert len(found) == sum(own) and (found > 0).all()
    (cell,) = (one for one in lesson_of("10").cells if "def unknown_share" in one.source)
    execute(cell.source, "the share of [UNK]", names)
    assert names["unknown_share"](names["tokenizer"].encode(texts[1])) == 1 / 6


# Three labels with names of their own, semicolons and quotes in the texts, other column names.
TOPICS = {
    "food; drink": 'the soup is salty ; the bread "of the house" is fresh , table {} .',
    "Straßen": "the road is closed ; take the bridge , and turn left at kilometre {} .",
    "0": "the {} planets turn around a star ; the moon turns with them .",
}


def table_of_topics(path, each=30, more=()):
    """A table of texts with their topic; `more` are rows that are added to it."""
    rows = [(name, text.format(k)) for name, text in TOPICS.items() for k in range(each)]
    with open(path, "w", encoding="utf-8-sig", newline="") as file:
        table = csv.writer(file)
        table.writerows([("topic", "body"), *rows, *more])
    return {"OWN": str(path), "TEXT_COLUMN": "body", "LABEL_COLUMN": "topic"}


@pytest.mark.slow
def test_labels_of_ones_own_are_learned_from_texts_of_ones_own(names, tmp_path, capsys):
    more = [("", "no label ."), ("0", " "), ("food; drink", "the film is long . " * 200)]
    more += [("Straßen", TOPICS["food; drink"].format(0))]  # a text that had a label before
    run("15", table_of_topics(tmp_path / "own.csv", more=more) | SMALL, names)
    assert names["own_names"] == ["0", "Straßen", "food; drink"]
    learned, held = map(len, (names["own_train"], names["own_held"]))
    assert (learned + held, held) == (91, 18) and names["own_sizes"] == [18, 36, 73]
    assert sum(map(sum, names["own_counts"].values())) == 91
    for reader in ("naive Bayes", "tuned"):  # these topics have no word in common
        assert names["own_right"][reader].double().mean() > 0.9, reader
    said = capsys.readouterr().out
    assert "texts without a label, left out: 1" in said and "cut there: 1" in said
    assert names["held_out"] == [
        *load_corpus("reviews", "validation"),
        *load_corpus("reviews", "test"),
    ]


def labels_of(names, path, each, more=()):
    """How many texts each label has to learn from and held out, or what the check refuses."""
    (number, check), *_ = begin(lesson_of("15"), names, table_of_topics(path, each, more), SMALL)
    try:
        execute(check.source, f"cell {number}", names)
    except ValueError as error:
        return str(error)
    return {name: tuple(counts) for name, counts in names["own_counts"].items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "each, more, told",
    [
        (30, [("rare", "one text ."), ("rare", "two texts .")], "'rare' has"),
        (2, [], "each label needs 5 texts to learn from and 2 of the fifth that is held out"),
        (0, [("same", f"text {k} .") for k in range(20)], "two labels or more are needed"),
        (0, [("", f"text {k} .") for k in range(20)], "two labels or more are needed"),
    ],
)
def test_a_label_with_too_few_texts_is_told_with_its_counts(names, tmp_path, each, more, told):
    refused = labels_of(names, tmp_path / "own.csv", each, more)
    assert told in refused and "LABEL_COLUMN='topic'" in refused and "own.csv" in refused


@pytest.mark.slow
def test_a_table_that_semicolons_part_is_refused_with_the_remedy(names, tmp_path):
    settings = table_of_topics(tmp_path / "own.csv")
    (tmp_path / "own.csv").write_text("topic;body\nred;a text .\n", encoding="utf-8")
    (number, check), *_ = begin(lesson_of("15"), names, settings, SMALL)
    with pytest.raises(ValueError, match="separated by semicolons.*save it with commas"):
        execute(check.source, f"cell {number}", names)
