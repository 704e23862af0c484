"""A checkpoint's files: found under every usual name, opened, and refused in words if damaged."""

import json
import pickle
import re
import shutil
from pathlib import Path

import pytest
import torch
from hub import COMMIT, answer_of, serve, start
from tiny_bert import (
    BIAS,
    INDEX,
    WORD,
    after,
    assert_same_logits,
    assert_says,
    bert,
    cut,
    gone,
    in_three,
    load_quietly,
    pickle_of,
    pickled,
    pickled_in_three,
    text,
    weights_of,
)
from transformers import BertForMaskedLM

from mlm_lib import DATA
from mlm_lib.pretrained import load_checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")


# ------------------------------------------------------------------------------------ names


def test_the_shipped_checkpoint_opens_anywhere_and_without_a_network(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "socket.socket.connect", lambda *args: pytest.fail("a connection was opened")
    )
    model, tokenizer = load_checkpoint()
    theirs = BertForMaskedLM.from_pretrained(DATA / "course-bert", dtype=torch.float32).eval()
    inputs = tokenizer("i have watched this [MASK] and it was awesome .", return_tensors="pt")
    with torch.no_grad():
        torch.testing.assert_close(
            model(**inputs)["logits"], theirs(**inputs).logits, rtol=1e-4, atol=1e-4
        )
    assert not model.training and model.head.bias.dtype == torch.float32


def test_a_folder_comes_before_the_shipped_checkpoint_of_its_name(folder, monkeypatch):
    folder.rename(folder.parent / "course-bert")
    monkeypatch.chdir(folder.parent)
    assert load_checkpoint("course-bert")[0].embedder.config.hidden_size == 8


@pytest.mark.parametrize(
    "form", ["str", "Path", "relative", "trailing slash", "home", "home as a Path", "symlink"]
)
def test_a_folder_may_be_named_in_every_usual_way(folder, monkeypatch, form):
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.setenv("USERPROFILE", str(folder.parent))
    if form == "symlink":
        (folder.parent / "link").symlink_to("tiny")
    names = {"home": "~/tiny", "home as a Path": Path("~/tiny"), "symlink": "link"}
    names |= {"str": str(folder), "Path": folder, "relative": "tiny", "trailing slash": "./tiny/"}
    model, _ = load_quietly(names[form])
    assert_same_logits(model, folder)


NOWHERE = (
    "./no/where",
    "/no/where/at/all",
    "~/nowhere",
    "no/where/at/all",
    "two words",
    "C:\\no\\where",
)


@pytest.mark.parametrize("name", NOWHERE)
def test_a_folder_that_is_not_there_is_an_error_without_a_network(name, monkeypatch):
    monkeypatch.setattr(
        "socket.socket.connect", lambda *args: pytest.fail("a connection was opened")
    )
    with pytest.raises(FileNotFoundError) as caught:
        load_checkpoint(name)
    assert_says(caught.value, [f"no folder {name}", "bert-base-uncased"])


def test_a_file_instead_of_a_folder_is_an_error(folder):
    with pytest.raises(OSError) as caught:
        load_checkpoint(folder / "model.safetensors")
    assert_says(caught.value, [str(folder / "model.safetensors"), "folder"])


@pytest.mark.parametrize("name", ["", " ", None, 3])
def test_an_empty_name_is_not_the_current_folder(folder, monkeypatch, name):
    monkeypatch.chdir(folder)
    with pytest.raises(ValueError, match=re.escape(f"name={name!r}; a name that is not empty")):
        load_checkpoint(name)


# ------------------------------------------------------------------------------------ damage


SAFE, PICKLE, SECOND = "model.safetensors", "pytorch_model.bin", "model-00002-of-00004.safetensors"
DAMAGED = {
    "config.json cut off": (cut("config.json", 0.5), "config.json"),
    "config.json empty": (text("config.json", ""), "config.json"),
    "config.json in Latin-1": (text("config.json", b'{"a": "\xfc"}'), "utf-8"),
    "safetensors empty": (cut(SAFE, 0), SAFE),
    "safetensors without data": (cut(SAFE, 100), SAFE),
    "safetensors cut off": (cut(SAFE, 0.5), SAFE),
    "safetensors without its last byte": (cut(SAFE, -1), SAFE),
    "a git-lfs pointer": (text(SAFE, "version https://git-lfs"), SAFE),
    "a damaged shard": (after(in_three, text(SECOND, "x")), SECOND),
    "an index cut off": (after(in_three, cut(INDEX, 0.5)), INDEX),
    "an index without a map": (after(in_three, text(INDEX, "{}")), INDEX),
    "an index with a list": (after(in_three, text(INDEX, '{"weight_map": []}')), INDEX),
    "an index with a number": (after(in_three, text(INDEX, '{"weight_map": {"a": 3}}')), INDEX),
    "an index to above": (after(in_three, text(INDEX, '{"weight_map": {"a": "../b"}}')), "'../b'"),
    "an index to the root": (after(in_three, text(INDEX, '{"weight_map": {"a": "/b"}}')), "'/b'"),
    "pickled, empty": (after(pickled, cut(PICKLE, 0)), PICKLE),
    "pickled, cut off": (after(pickled, cut(PICKLE, 0.5)), PICKLE),
    "pickled, a web page": (after(pickled, text(PICKLE, "<html>")), PICKLE),
    "pickled, a list": (pickle_of([1, 2]), "a list, not tensors"),
    "pickled, a tensor": (pickle_of(torch.ones(3)), "a Tensor, not tensors"),
}


@pytest.mark.parametrize("damage, words", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_an_os_error_that_names_it(folder, damage, words):
    damage(folder)
    with pytest.raises(OSError) as caught:
        load_checkpoint(folder)
    assert_says(caught.value, [str(folder), words, "damaged"])


MISSING = {
    "no config.json": (gone("config.json"), ["holds no config.json", "not a checkpoint"]),
    "no weights": (gone(SAFE), ["holds no weights", SAFE, PICKLE]),
    "no tokenizer": (gone("tokenizer*"), ["holds no tokenizer", "tokenizer.json or vocab.txt"]),
    "a missing shard": (after(in_three, gone("model-00002-*")), ["model-00002-of-", "again"]),
    "a pickled one": (after(pickled_in_three, gone("*-00002-*")), ["model-00002-of-", "again"]),
}


@pytest.mark.parametrize("damage, words", MISSING.values(), ids=MISSING)
def test_a_missing_file_is_an_error_that_names_it(folder, damage, words):
    damage(folder)
    with pytest.raises(FileNotFoundError) as caught:
        load_checkpoint(folder)
    assert_says(caught.value, words)


OTHER = {
    "config.json a list": (text("config.json", "[1, 2]"), "a list, not the settings"),
    "config.json a null": (text("config.json", "null"), "a NoneType, not the settings"),
    "a number for a weight": (
        pickle_of(bert().state_dict() | {BIAS: 3}),
        f"{BIAS!r} does not name",
    ),
    "a number for a name": (pickle_of({3: torch.ones(2)}), "3 does not name a tensor"),
}


@pytest.mark.parametrize("change, words", OTHER.values(), ids=OTHER)
def test_a_file_of_something_else_is_an_os_error_that_says_of_what(folder, change, words):
    change(folder)
    with pytest.raises(OSError) as caught:
        load_checkpoint(folder)
    assert_says(caught.value, [str(folder), words])


def test_a_shard_outside_the_folder_is_not_read(folder):
    """It would let a downloaded checkpoint read any file of the reader's that holds tensors."""
    in_three(folder)
    weight_map = json.loads((folder / INDEX).read_text())["weight_map"]
    outside = folder.parent / "outside.safetensors"
    (folder / weight_map[WORD]).rename(outside)
    for name in (str(outside), "../outside.safetensors"):
        changed = {
            key: name if file == weight_map[WORD] else file for key, file in weight_map.items()
        }
        (folder / INDEX).write_text(json.dumps({"weight_map": changed}))
        with pytest.raises(OSError, match="is not a file beside it"):
            load_checkpoint(folder)


class Creates:
    """Unpickling it creates a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("form", ["zip", "legacy", "bare pickle"])
def test_code_in_a_pickled_file_is_not_executed(folder, tmp_path, form):
    trap = tmp_path / "executed"
    content = weights_of(folder) | {"trap": Creates(trap)}
    pickled(folder, content, _use_new_zipfile_serialization=form == "zip")
    if form == "bare pickle":
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Creates(trap), protocol=2))
    with pytest.raises(OSError) as caught:
        load_checkpoint(folder)
    assert not trap.exists()
    assert_says(caught.value, ["pytorch_model.bin", "more than tensors", "not opened"])
    if form == "bare pickle":
        pickle.loads((folder / "pytorch_model.bin").read_bytes())
    else:
        torch.load(folder / "pytorch_model.bin", weights_only=False)
    assert trap.exists()  # so the trap works


@pytest.mark.parametrize("legacy", [False, True])
def test_a_refused_pickle_comes_without_advice_to_open_it_all_the_same(folder, tmp_path, legacy):
    pickled(
        folder, {"trap": Creates(tmp_path / "executed")}, _use_new_zipfile_serialization=not legacy
    )
    with pytest.raises(OSError) as caught:
        load_checkpoint(folder)
    for words in ("set to `False`", "two options", "\x1b"):  # the last is a terminal's colour
        assert words not in str(caught.value)


# ------------------------------------------------------------------------------------ the hub


CACHED = ["acme/tiny", "acme/both", "acme/pickled", "acme/shards", "acme/broken"]
REFUSED = [f"acme/{name}" for name in ("untokenized", "unconfigured", "gated", "expired", "none")]
ONLINE = [*CACHED, *REFUSED, "none-at-all", "acme/tiny", "acme/pickled"]
AWAY = [*CACHED, "acme/parts", "acme/never", "acme/stump", "never"]
OFFERED = [name.removeprefix("acme/") for name in (*CACHED, "parts", *REFUSED[:3])]


def offer(original, root):
    """The repositories, made in folders: {name: {file: bytes}}."""
    for name in OFFERED:
        shutil.copytree(original, root / name)
        for other in ("README.md", "tf_model.h5", "flax_model.msgpack", ".gitattributes"):
            (root / name / other).write_text(f"{other} of {name}")
    for name in ("both", "untokenized"):
        torch.save(weights_of(root / name), root / name / PICKLE)
    pickled(root / "pickled")
    in_three(root / "shards")
    gone("tokenizer*")(root / "untokenized")
    gone("config.json")(root / "unconfigured")
    return {
        f"acme/{name}": {file.name: file.read_bytes() for file in (root / name).iterdir()}
        for name in OFFERED
    }


@pytest.fixture(scope="module")
def hub(original, tmp_path_factory):
    """What a first and a second load gave, a new process without a network, and what was asked."""
    root = tmp_path_factory.mktemp("hub")
    for name in ("broken", "stump"):  # what a download leaves that is broken off in the middle
        cache = root / "home" / "hub" / f"models--acme--{name}"
        (cache / "refs").mkdir(parents=True)
        (cache / "refs" / "main").write_text(COMMIT)
        (cache / "snapshots" / COMMIT).mkdir(parents=True)
        shutil.copy(original / "config.json", cache / "snapshots" / COMMIT)
    home = {"HF_HOME": str(root / "home"), "CALLS": json.dumps(ONLINE), "PARTS_OF": "acme/parts"}
    only = {"gated": ["acme/gated"], "expired": ["acme/expired"]}
    with serve(offer(original, root), **only) as (url, asked):
        home["HF_ENDPOINT"] = url
        online = answer_of(start("ask_checkpoints.py", home))
    home |= {"CALLS": json.dumps(AWAY), "PARTS_OF": ""}
    states = {"down": home, "offline": home | {"HF_HUB_OFFLINE": "1"}}
    away = {state: start("ask_checkpoints.py", states[state]) for state in states}
    found = {state: dict(zip(AWAY, answer_of(away[state]), strict=True)) for state in states}
    found |= {
        "first": dict(zip(ONLINE[:-2], online)),
        "second": dict(zip(ONLINE[-2:], online[-2:])),
    }
    return found | {"asked": asked}


def fetched(hub, name):
    """The files of a repository that were downloaded, in order of their names; each once."""
    asked = [path for *call, path in hub["asked"] if call == [name, "GET"]]
    return sorted(path.split("/")[-1] for path in asked if not path.startswith("/api/"))


@pytest.fixture(scope="module")
def expected(original):
    model, tokenizer = load_checkpoint(original)
    return model(torch.tensor([tokenizer("a [MASK] abc").input_ids]))["logits"]


@pytest.mark.slow
@pytest.mark.parametrize("state", ["first", "down", "offline"])
@pytest.mark.parametrize("name", CACHED)
def test_hub_checkpoints_are_downloaded_once_and_then_open_without_a_network(
    hub, expected, name, state
):
    torch.testing.assert_close(torch.tensor(hub[state][name]), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["acme/tiny", "acme/pickled"])
def test_hub_checkpoints_in_the_cache_are_opened_without_asking_the_hub(hub, expected, name):
    torch.testing.assert_close(torch.tensor(hub["second"][name]), expected)
    downloads = 1 if name == "acme/tiny" else 2  # the second adds the pickled weights
    assert [asked for asked, _, path in hub["asked"] if "/revision/" in path].count(
        name
    ) <= downloads


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, weights",
    [
        ("acme/tiny", ["model.safetensors"]),
        ("acme/both", ["model.safetensors"]),
        ("acme/pickled", ["pytorch_model.bin"]),
        ("acme/shards", [*(f"model-0000{i}-of-00004.safetensors" for i in (1, 2, 3, 4)), INDEX]),
        ("acme/untokenized", ["model.safetensors"]),
    ],
)
def test_hub_files_that_are_not_needed_are_not_downloaded(hub, name, weights):
    tokenizer = [] if name == "acme/untokenized" else ["tokenizer.json", "tokenizer_config.json"]
    assert fetched(hub, name) == sorted(["config.json", *tokenizer, *weights])


@pytest.mark.slow
def test_hub_download_that_was_broken_off_is_completed(hub, expected):
    torch.testing.assert_close(torch.tensor(hub["first"]["acme/broken"]), expected)
    assert fetched(hub, "acme/broken") == [
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "state, name, words",
    [
        ("first", "acme/none", ["acme/none", "no folder", "hub", "spelling"]),
        ("first", "none-at-all", ["none-at-all", "no folder", "hub", "spelling"]),
        ("first", "acme/gated", ["acme/gated is gated", "accept its terms", "hf auth login"]),
        ("first", "acme/untokenized", ["acme--untokenized", "no tokenizer"]),
        *(
            (state, name, [name, "connect to a network", "course-bert"])
            for state in ("down", "offline")
            for name in AWAY[-3:]
        ),
    ],
)
def test_hub_failures_are_one_sentence_on_what_to_do(hub, state, name, words):
    _, is_os_error, message = hub[state][name]
    assert is_os_error
    assert_says(message, words)
    assert "\n" not in message


@pytest.mark.slow
@pytest.mark.parametrize("state", ["down", "offline"])
def test_hub_checkpoints_that_others_have_cached_open_without_a_network(hub, expected, state):
    """The client then knows of files left out on purpose, and calls the cache incomplete."""
    found = hub[state]["acme/parts"]
    assert len(found) == 1, found  # one batch of logits, or an error in three parts
    torch.testing.assert_close(torch.tensor(found), expected)


@pytest.mark.slow
def test_hub_repository_that_is_no_checkpoint_is_not_taken_for_a_refusal(hub):
    _, is_os_error, message = hub["first"]["acme/unconfigured"]
    assert is_os_error
    assert_says(message, ["acme/unconfigured", "config.json"])
    assert "log in" not in message


@pytest.mark.slow
def test_hub_refusal_of_a_token_is_not_taken_for_a_missing_network(hub):
    _, is_os_error, message = hub["first"]["acme/expired"]
    assert is_os_error and re.search("token|credentials|log in", message), message
