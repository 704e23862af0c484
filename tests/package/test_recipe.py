"""A recipe table builds an object: mistakes in it are one sentence, our bugs keep a traceback."""

import pytest

from mlm_lib.engine.recipe import build_from_table, fill_in_defaults, read_recipe


class Layer:
    """It has the kinds of parameters that the classes of a recipe have."""

    def __init__(self, tokenizer, *, size: int, share: float = 0.1, names=None, seed=0):
        if size < 1:
            raise ValueError(f"size={size}; a whole number of at least 1 is needed")
        self.taken = tokenizer, size, share, names, seed


def build(values, build=Layer):
    return build_from_table("[layer]", build, values, "tokenizer", seed=7)


def test_a_table_gives_the_arguments_that_a_recipe_may_set():
    assert build({"size": 3, "share": 0}).taken == ("tokenizer", 3, 0, None, 7)


@pytest.mark.parametrize(
    "values, message",
    [
        ({}, "[layer] missing a required argument: 'size'"),
        ({"size": "3"}, "[layer] size='3'; a number is needed"),
        ({"size": 3, "share": [0.1]}, "[layer] share=[0.1]; a number is needed"),
        ({"size": 0}, "[layer] size=0; a whole number of at least 1 is needed"),
        ({"size": 3, "seed": 1}, "[layer] has no 'seed'; there are: size, share, names"),
        ({"sise": 3}, "[layer] has no 'sise'; size is the nearest name; there are: size, share,"),
    ],
)
def test_a_mistake_in_a_table_is_one_sentence_that_begins_with_the_table(values, message):
    with pytest.raises(ValueError) as caught:
        build(values)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def of_an_int(tokenizer, *, size, seed):
    return len(size)


def without_its_seed(tokenizer, *, size, seed):
    return Layer(size=size, sead=seed)


@pytest.mark.parametrize("planted", [of_an_int, without_its_seed])
def test_a_bug_of_ours_keeps_its_type_and_its_traceback(planted):
    with pytest.raises(TypeError) as caught:
        build({"size": 3}, planted)
    assert caught.traceback[-1].name == planted.__name__


@pytest.mark.parametrize("tables", [{"layer": {}}, {"model": 3}, {"data": [3]}])
def test_a_recipe_has_no_other_tables_and_nothing_else_in_their_place(tables):
    with pytest.raises(ValueError, match="a recipe has no 'layer'|\\[model\\] is 3|data holds 3"):
        fill_in_defaults(tables)


def test_an_option_replaces_what_the_file_says(tmp_path):
    (tmp_path / "recipe.toml").write_text("[training]\nsteps = 3\nbatch_size = 5\n")
    training = read_recipe(tmp_path / "recipe.toml", {"steps": 9})["training"]
    assert (training["steps"], training["batch_size"]) == (9, 5)
