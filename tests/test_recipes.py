"""Recipes: what a file may say, what holds where it is silent, and names that no recipe has.

That each mistake costs the command one line, before training, is in `test_pretrain`.
"""

import copy
import inspect
import json

import pytest

from mlm_lib import DATA, pretrain, recipes
from mlm_lib.encoder import EncoderConfig
from mlm_lib.masking import MaskingCollator
from mlm_lib.recipes import argument_names, complete, named, read_recipe
from mlm_lib.training import TrainingConfig


def test_a_recipe_that_says_nothing_is_a_small_model_on_the_grammar():
    assert read_recipe() == {
        "objective": "masked",
        "data": [{"corpus": "grammar"}],
        "tokenizer": {"from": None, "vocab_size": 8192},
        "model": {"hidden_size": 128, "num_layers": 2, "num_heads": 2},
        "masking": {},
        "training": {"steps": None},
        "show": {"sentences": []},
        "save": {"dtype": "float32"},
    }


def test_what_the_file_says_goes_before_the_defaults(tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_text('[[data]]\ncorpus = "reviews"\ncopies = 4\n[model]\nnum_layers = 3\n')
    recipe = read_recipe(file)
    assert recipe["data"] == [{"corpus": "reviews", "copies": 4}]
    assert recipe["model"] == {"hidden_size": 128, "num_layers": 3, "num_heads": 2}
    assert recipe["tokenizer"] == read_recipe()["tokenizer"]


@pytest.mark.parametrize("name", ["course-bert", "course-writer"])
def test_a_recipe_that_is_complete_stays_as_it_is(name):
    recipe = read_recipe(DATA / name / "recipe.toml")
    before = copy.deepcopy(recipe)
    assert complete(recipe) == before == recipe


def test_completing_changes_neither_the_tables_nor_the_defaults():
    tables, own = {"model": {"num_layers": 1}}, json.dumps(recipes.OWN)
    recipe = complete(tables)
    for name in ("model", "training", "tokenizer"):
        recipe[name]["steps"] = 5
    assert tables == {"model": {"num_layers": 1}} and json.dumps(recipes.OWN) == own


def test_tables_take_the_arguments_of_their_classes_less_those_that_follow():
    assert argument_names(lambda one, two, *, three=3: None, "two") == ["one", "three"]
    fields = set(inspect.signature(EncoderConfig).parameters)
    assert set(recipes.KEYS["model"]) == {"encoder", *fields} - {"vocab_size", "pad_token_id"}
    fields = set(inspect.signature(TrainingConfig).parameters)
    assert set(recipes.KEYS["training"]) == fields and "seed" in fields
    fields = set(inspect.signature(MaskingCollator).parameters)
    assert set(recipes.KEYS["masking"]) == fields - {"tokenizer", "seed"}


def test_the_objective_says_what_the_table_of_masking_may_hold():
    recipe = complete({"objective": "diffusion", "masking": {"draw": "count"}})
    assert recipe["masking"] == {"draw": "count"}
    with pytest.raises(ValueError, match=r"^\[masking\] has 'draw'; it may have rate, "):
        complete({"masking": {"draw": "count"}})
    with pytest.raises(ValueError, match=r"^\[masking\] has 'rate'; it may have draw, "):
        complete({"objective": "diffusion", "masking": {"rate": 0.2}})


@pytest.mark.parametrize(
    "tables, message",
    [
        ([], r"^recipe=\[\]; a dictionary of tables"),
        ({"modle": {}}, "^a recipe has no 'modle'; it may have objective, data, tokenizer, model"),
        ({"objective": "flow"}, "^objective='flow'; one of masked, diffusion"),
        ({"model": 3}, r"^\[model\] is 3; a table is needed"),
        ({"training": {"step": 1}}, r"^\[training\] has 'step'; it may have steps, "),
        (
            {"model": {"vocab_size": 9}},
            r"^\[model\] has 'vocab_size'; it may have encoder, hidden_size",
        ),
        ({"data": {}}, r"^data is {}; one or more \[\[data\]\] are needed"),
        ({"data": []}, r"^data is \[\]; one or more \[\[data\]\] are needed"),
        ({"data": [3]}, r"^\[\[data\]\] is 3; a table is needed"),
        ({"data": [{"corpus": 5}]}, r"^\[\[data\]\] corpus=5; "),
        ({"data": [{"copies": 2}]}, r"^\[\[data\]\] of 'grammar' has 'copies'; it may have corpus"),
        ({"data": [{"seed": 2}]}, r"^\[\[data\]\] of 'grammar' has 'seed'; "),
    ],
)
def test_a_name_or_a_table_that_a_recipe_does_not_have_is_refused(tables, message):
    with pytest.raises(ValueError, match=message):
        complete(tables)


def test_a_file_that_is_no_recipe_is_refused_by_its_name(tmp_path):
    with pytest.raises(FileNotFoundError, match="no.toml is not a file; --config takes a recipe"):
        read_recipe(tmp_path / "no.toml")
    (tmp_path / "wrong.toml").write_text("[masking\n")
    with pytest.raises(ValueError, match="wrong.toml is no TOML file: "):
        read_recipe(tmp_path / "wrong.toml")
    with pytest.raises(ValueError, match="^file=''; "):
        read_recipe("")


def test_a_refusal_begins_with_the_name_of_its_table():
    with pytest.raises(ValueError, match=r"^\[model\] heads=3$"), named("[model]"):
        raise ValueError("heads=3")
    with pytest.raises(OSError, match="^disk$"), named("[model]"):
        raise OSError("disk")


def test_read_recipe_is_found_where_lessons_import_it_from():
    assert pretrain.read_recipe is read_recipe
