"""What docs/reliability.md promises of other machines, and what docs/scaling.md shows."""

import os
import re
import tomllib
from pathlib import Path

import pytest
from hub import answer_of, start

from mlm_lib.corpus import load_corpus
from mlm_lib.pretrain import pretrain

ROOT = Path(__file__).resolve().parents[2]


def test_the_plan_of_the_page_on_scaling_prints_what_stands_below_it(capsys):
    page = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    code, told = re.search(r"```python\n(.*?)```\n```\n(.*?)```", page, re.S).groups()
    exec(code)
    assert capsys.readouterr().out == told


@pytest.mark.slow
def test_the_recipe_of_the_page_on_scaling_makes_a_run(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    recipe = tomllib.loads(re.search(r"```toml\n(.*?)```", page, re.S)[1])
    small = {"num_layers": 1, "hidden_size": 8, "num_heads": 1, "intermediate_size": 16}
    recipe["model"] |= small
    recipe["training"] |= {"steps": 2, "batch_size": 2, "device": "cpu", "progress": False}
    monkeypatch.chdir(tmp_path)
    Path("my_folder").mkdir()
    texts = load_corpus("reviews")[:200]
    Path("my_folder", "texts.txt").write_text("\n\n".join(texts), encoding="utf-8")
    _, _, history = pretrain(recipe, "run")
    assert history.step == 2 and Path("run/model/model.safetensors").is_file()


@pytest.fixture(scope="module")
def found():
    """By the settings of a processor: what was drawn, a floor, and some trained weights."""
    settings = {
        "one thread": {"OMP_NUM_THREADS": "1"},
        "again": {"OMP_NUM_THREADS": "1"},
        "two threads": {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"},
        "an old processor": {"OMP_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": "default"},
    }
    started = {name: start("seeded_digests.py", env) for name, env in settings.items()}
    return {name: answer_of(process) for name, process in started.items()}


@pytest.mark.slow
def test_the_same_program_gives_the_same_bits(found):
    assert found["one thread"] == found["again"]


@pytest.mark.slow
@pytest.mark.parametrize("other", ["two threads", "an old processor"])
def test_what_a_seed_draws_is_the_same_everywhere_and_what_is_computed_nearly(found, other):
    one, two = found["one thread"], found[other]
    assert one["drawn"] == two["drawn"]
    assert one["floor"] == pytest.approx(two["floor"], rel=1e-12)
    assert one["weights"] == pytest.approx(two["weights"], abs=1e-5)
    if other == "an old processor" and os.uname().machine == "x86_64":
        assert one["weights"] != two["weights"]  # or the setting did nothing
