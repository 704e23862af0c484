"""Checkpoints in files: opened whatever their age and form, refused with words that help, and saved whole or not at all."""

import hashlib
import http.server
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import torch
import torch.nn as nn
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
    BertTokenizerFast,
    PreTrainedTokenizerBase,
)

from mlm_lib import DATA, pretrained
from mlm_lib.heads import MaskedLMHead
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.pretrained import load_checkpoint, save_pretrained, to_hf
from mlm_lib.wordpiece import WordPieceTokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

ROOT = Path(pretrained.__file__).resolve().parents[1]
TEXTS = ["A b abc, abca", "cab [MASK] ca.", ""]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return write(tmp_path_factory.mktemp("original") / "tiny", bert())


@pytest.fixture
def folder(original, tmp_path):
    """A checkpoint of transformers, to be changed as one likes."""
    return Path(shutil.copytree(original, tmp_path / "tiny"))


def load_with_warning(folder):
    """The model, and the text of the one warning."""
    with pytest.warns(UserWarning) as caught:
        model, _ = load_checkpoint(folder)
    (warning,) = caught
    assert warning.filename == __file__  # it points at the caller's line
    return model, str(warning.message)


# ------------------------------------------------------------------------------------ loading: every form


FORMS = {
    "as it is written": lambda folder: None,
    "safetensors in shards": in_three,
    "pickled": pickled,
    "pickled before torch 1.6": lambda folder: pickled(folder, _use_new_zipfile_serialization=False),
    "pickled in shards": pickled_in_three,
    "float16": as_dtype(torch.float16),
    "bfloat16": as_dtype(torch.bfloat16),
    "float64": as_dtype(torch.float64),
    "gamma and beta": lambda folder: rewrite(folder, old_names),
    "with pooler and next sentence": saved(BertForPreTraining),
    "with position ids": add(lambda weights: {"bert.embeddings.position_ids": torch.arange(20)[None]}),
    "untied": saved(BertForMaskedLM, tie_word_embeddings=False),
    "untied, with pooler": saved(BertForPreTraining, tie_word_embeddings=False),
    "tied, written twice": add(lambda weights: {DECODER: weights[WORD].clone()}),
    "tied, written as the decoder": move(WORD, DECODER),
    "bias written as the decoder's": move(BIAS, DECODER_BIAS),
    "tied, with another decoder bias": add(lambda weights: {DECODER_BIAS: weights[BIAS] + torch.arange(16.0)}),
    "three layers": saved(BertForMaskedLM, num_hidden_layers=3),
    "other sizes": saved(
        BertForMaskedLM, hidden_size=12, num_attention_heads=3, intermediate_size=5, max_position_embeddings=9, type_vocab_size=4
    ),
    "other settings": saved(BertForMaskedLM, hidden_act="gelu_new", layer_norm_eps=0.1, pad_token_id=None),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_of_checkpoint_gives_the_logits_of_transformers(folder, form):
    form(folder)
    model, tokenizer = load_quietly(folder)
    assert_same_logits(model, folder)
    assert not model.training and {parameter.dtype for parameter in model.parameters()} == {
        torch.float32
    }
    assert tokenizer(TEXTS)["input_ids"] == [wordpiece().encode(text) for text in TEXTS]


def test_a_decoder_that_differs_is_not_tied_whatever_the_configuration_says(folder):
    rewrite(folder, lambda weights: weights.update({DECODER: weights[WORD] + torch.randn(16, 8)}))
    model, warning = load_with_warning(folder)
    assert_same_logits(model, folder)
    assert not model.head.tied
    assert_says(warning, [str(folder), "differs from its word embeddings", "not tied"])


@pytest.mark.parametrize("tied", [True, False])
def test_the_tie_of_a_checkpoint_is_one_parameter(folder, tied):
    bert(tie_word_embeddings=tied).save_pretrained(folder)
    model, _ = load_quietly(folder)
    with torch.no_grad():
        model.embedder.embeddings.word.weight.zero_()
    assert model.head.tied == tied == (not model.head.weight.any())


def test_opening_a_whole_checkpoint_draws_no_random_numbers(folder):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    load_quietly(folder)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("kind", [BertModel, BertForSequenceClassification])
def test_a_checkpoint_without_a_head_gets_a_fresh_one_and_says_so(folder, kind):
    theirs = bert(kind)
    theirs.save_pretrained(folder)
    model, warning = load_with_warning(folder)
    ids, mask, types = batch()
    states = getattr(theirs, "bert", theirs)(
        ids, attention_mask=mask, token_type_ids=types
    ).last_hidden_state
    torch.testing.assert_close(
        model.embedder(ids, mask, types)[mask.bool()], states[mask.bool()], rtol=1e-4, atol=1e-4
    )
    assert_says(
        warning, [str(folder), "cls.predictions.transform.dense.weight", "fresh", "train it"]
    )
    assert ("not used: classifier.bias, classifier.weight" in warning) == (
        kind is BertForSequenceClassification
    )
    head = model.head
    assert head.tied and head.dense.weight.std() > 0.1  # drawn at the configuration's 0.5
    assert not head.bias.any() and not head.dense.bias.any() and (head.norm.weight == 1).all()


def test_a_bare_encoder_of_any_age_needs_no_prefix(folder):
    model, _ = load_quietly(folder)

    def bare(weights):
        encoder = {
            name.removeprefix("bert."): weight
            for name, weight in weights.items()
            if name.startswith("bert.")
        }
        return old_names(encoder) | {
            "embeddings.position_ids": torch.arange(20)[None],
            "pooler.dense.bias": torch.ones(8),
        }

    rewrite(folder, bare)
    headless, warning = load_with_warning(folder)
    assert "position_ids" not in warning and "pooler" not in warning
    torch.testing.assert_close(
        headless.embedder(batch()[0]), model.embedder(batch()[0]), rtol=0, atol=0
    )


# ------------------------------------------------------------------------------------ loading: names and shapes


def names(part):
    return [name for name in bert().state_dict() if name.startswith(part) and "decoder" not in name]


@pytest.mark.parametrize("name", names("bert."))
def test_a_missing_weight_of_the_encoder_is_an_error_that_names_it(folder, name):
    rewrite(folder, lambda weights: {n: w for n, w in weights.items() if n != name})
    with pytest.raises(ValueError) as caught:
        load_checkpoint(folder)
    assert_says(caught.value, [str(folder), f"no weights for {name};"])


@pytest.mark.parametrize("name", names("cls."))
def test_a_missing_weight_of_the_head_is_a_warning_that_names_it(folder, name):
    rewrite(folder, lambda weights: {n: w for n, w in weights.items() if n != name})
    model, warning = load_with_warning(folder)
    assert_says(warning, [str(folder), f"no {name}:", "fresh", "train it"])
    if not name.endswith("dense.weight"):  # which transformers draws at random as well
        assert_same_logits(model, folder)


@pytest.mark.parametrize("name", [*names(""), DECODER])
def test_a_weight_of_another_shape_is_an_error_with_both_shapes(folder, name):
    if name == DECODER:
        bert(tie_word_embeddings=False).save_pretrained(folder)
    right = tuple(weights_of(folder)[name].shape)
    wrong = (right[0] + 1, *right[1:])
    rewrite(folder, lambda weights: weights.update({name: torch.ones(wrong)}))
    with pytest.raises(ValueError) as caught:
        load_checkpoint(folder)
    assert_says(caught.value, [f"{name} is {wrong}", f"asks for {right}"])


@pytest.mark.parametrize("shape", [(8, 12), (96,), (12, 8, 1), (12, 1), (1, 8), ()])
def test_a_shape_that_would_fit_after_a_reshape_or_a_broadcast_is_an_error(folder, shape):
    name = "bert.encoder.layer.1.intermediate.dense.weight"  # (12, 8)
    rewrite(folder, lambda weights: weights.update({name: torch.ones(shape)}))
    with pytest.raises(ValueError) as caught:
        load_checkpoint(folder)
    assert_says(caught.value, [f"{name} is {shape}", "asks for (12, 8)"])


def test_weights_that_are_not_used_are_named_in_a_warning(folder):
    extra = {
        "bert.encoder.layer.2.output.dense.bias": torch.ones(8),
        "cls.predictions.other": torch.ones(1),
        "lm": torch.ones(1),
    }
    rewrite(folder, lambda weights: weights.update(extra))
    model, warning = load_with_warning(folder)
    assert_says(warning, [str(folder), "not used", *extra])
    assert_same_logits(model, folder)


def test_a_long_list_of_weights_is_cut_and_counted(folder):
    configure(folder, num_hidden_layers=1)
    _, warning = load_with_warning(folder)
    assert warning.count("bert.encoder.layer.1.") == 4 and "and 12 more" in warning


# ------------------------------------------------------------------------------------ loading: names of checkpoints


# ------------------------------------------------------------------------------------ loading: bad input


def a_token_too_far(folder):
    """As many tokens as the model has, but one of them has an id that the model lacks."""
    described = json.loads((folder / "tokenizer.json").read_text())
    described["model"]["vocab"]["abc"] = 40
    (folder / "tokenizer.json").write_text(json.dumps(described))


MANY = wordpiece([*TOKENS, *"defghijklmn"])
BAD = {
    "no config.json": (gone("config.json"), FileNotFoundError, ["holds no config.json", "not a checkpoint"]),
    "no weights": (gone("*.safetensors"), FileNotFoundError, ["holds no weights", "model.safetensors", "pytorch_model.bin"]),
    "no tokenizer": (gone("tokenizer*"), FileNotFoundError, ["holds no tokenizer", "tokenizer.json or vocab.txt"]),
    "config.json cut off": (cut("config.json", 0.5), OSError, ["config.json", "damaged"]),
    "config.json empty": (text("config.json", ""), OSError, ["config.json", "damaged"]),
    "config.json in Latin-1": (text("config.json", b'{"a": "\xfc"}'), OSError, ["config.json", "utf-8", "damaged"]),
    "config.json a list": (text("config.json", "[1, 2]"), (OSError, ValueError), ["config.json"]),
    "config.json a null": (text("config.json", "null"), (OSError, ValueError), ["config.json"]),
    "config.json without sizes": (text("config.json", "{}"), ValueError, [WORD, "(16, 8)", "(30522, 768)"]),
    "no vocab_size": (settings(vocab_size=...), ValueError, [WORD, "(16, 8)", "(30522, 8)"]),
    "a size beyond all memory": (settings(vocab_size=10**12), ValueError, [WORD, "(16, 8)", "(1000000000000, 8)"]),
    "a null": (settings(hidden_size=None), ValueError, ["hidden_size", "None"]),
    "a string": (settings(hidden_size="8"), ValueError, ["hidden_size", "8"]),
    "heads that do not divide": (settings(num_attention_heads=3), ValueError, ["hidden_size=8", "heads=3"]),
    "too many layers": (settings(num_hidden_layers=3), ValueError, ["no weights for bert.encoder.layer.2.", "and 12 more"]),
    "RoBERTa": (settings(model_type="roberta"), ValueError, ["'roberta'", "only BERT"]),
    "DistilBERT": (settings(model_type="distilbert"), ValueError, ["'distilbert'", "only BERT"]),
    "a decoder": (settings(is_decoder=True), ValueError, ["is_decoder=True", "False"]),
    "cross attention": (settings(add_cross_attention=True), ValueError, ["add_cross_attention=True", "False"]),
    "relative positions": (settings(position_embedding_type="relative_key"), ValueError, ["'relative_key'", "'absolute'"]),
    "an unknown activation": (settings(hidden_act="mish"), ValueError, ["hidden_act='mish'", "gelu_new"]),
    "safetensors empty": (cut("model.safetensors", 0), OSError, ["model.safetensors", "damaged"]),
    "safetensors without data": (cut("model.safetensors", 100), OSError, ["model.safetensors", "damaged"]),
    "safetensors cut off": (cut("model.safetensors", 0.5), OSError, ["model.safetensors", "damaged"]),
    "safetensors without its last byte": (cut("model.safetensors", -1), OSError, ["model.safetensors", "damaged"]),
    "a git-lfs pointer": (text("model.safetensors", "version https://git-lfs"), OSError, ["model.safetensors", "damaged"]),
    "a missing shard": (after(in_three, gone("model-00002-*")), FileNotFoundError, ["model-00002-of-", "again"]),
    "a damaged shard": (after(in_three, text("model-00002-of-00004.safetensors", "x")), OSError, ["model-00002-of-", "damaged"]),
    "an index cut off": (after(in_three, cut(INDEX, 0.5)), OSError, [INDEX, "damaged"]),
    "an index without a map": (after(in_three, text(INDEX, "{}")), OSError, [INDEX, "damaged"]),
    "an index with a list": (after(in_three, text(INDEX, '{"weight_map": []}')), OSError, [INDEX]),
    "an index with a number": (after(in_three, text(INDEX, '{"weight_map": {"a": 3}}')), OSError, [INDEX]),
    "an index of nothing": (after(in_three, text(INDEX, '{"weight_map": {}}')), ValueError, ["no weights for", WORD]),
    "a missing pickled shard": (after(pickled_in_three, gone("*-00002-*")), FileNotFoundError, ["model-00002-of-", "again"]),
    "pickled, empty": (after(pickled, cut("pytorch_model.bin", 0)), OSError, ["pytorch_model.bin", "damaged"]),
    "pickled, cut off": (after(pickled, cut("pytorch_model.bin", 0.5)), OSError, ["pytorch_model.bin", "damaged"]),
    "pickled, a web page": (after(pickled, text("pytorch_model.bin", "<html>")), OSError, ["pytorch_model.bin", "damaged"]),
    "pickled, a list": (pickle_of([1, 2]), (OSError, ValueError), ["pytorch_model.bin"]),
    "pickled, a tensor": (pickle_of(torch.ones(3)), (OSError, ValueError), ["pytorch_model.bin"]),
    "pickled, a number for a weight": (pickle_of(bert().state_dict() | {BIAS: 3}), (OSError, ValueError), [BIAS]),
    "pickled, a number for a name": (pickle_of({3: torch.ones(2)}), (OSError, ValueError), ["pytorch_model.bin"]),
    "tokenizer.json cut off": (cut("tokenizer.json", 0.5), OSError, ["tokenizer"]),
    "tokenizer.json without a model": (text("tokenizer.json", "{}"), OSError, ["tokenizer"]),
    "tokenizer_config.json cut off": (cut("tokenizer_config.json", 0.5), OSError, ["tokenizer"]),
    "vocab.txt of other bytes": (after(gone("tokenizer*"), text("vocab.txt", b"\xff\xfe")), OSError, ["tokenizer"]),
    "a large tokenizer": (lambda folder: MANY.to_hf().save_pretrained(folder), ValueError, ["23 tokens", "16"]),
    "a token beyond the model": (a_token_too_far, ValueError, ["40", "16"]),
}  # fmt: skip


@pytest.mark.parametrize("damage, error, words", BAD.values(), ids=BAD)
def test_bad_input_is_refused_with_words_that_help(folder, damage, error, words):
    damage(folder)
    with pytest.raises(error) as caught:
        load_checkpoint(folder)
    assert_says(caught.value, words)
    assert not isinstance(caught.value, UnicodeError)


def test_a_tokenizer_may_not_bring_code(folder, tmp_path):
    trap = tmp_path / "executed"
    (folder / "code.py").write_text(f"open({str(trap)!r}, 'w')\n")
    described = json.loads((folder / "tokenizer_config.json").read_text())
    described |= {"tokenizer_class": "Mine", "auto_map": {"AutoTokenizer": ["code.Mine", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    try:
        load_checkpoint(folder)
    except (OSError, ValueError):
        pass
    assert not trap.exists()


# ------------------------------------------------------------------------------------ loading: the hub


# ------------------------------------------------------------------------------------ saving


@pytest.fixture
def ours(original):
    return load_checkpoint(original)[0]


def tokenizers():
    return {
        "ours": wordpiece(),
        "theirs": BertTokenizerFast(vocab={t: i for i, t in enumerate(TOKENS)}, model_max_length=7),
    }


FILES = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", ["ours", "theirs"])
def test_a_saved_checkpoint_opens_with_transformers_and_is_the_same(tmp_path, kind, tied):
    write(tmp_path / "first", bert(tie_word_embeddings=tied))
    ours, tokenizer = load_quietly(tmp_path / "first")[0], tokenizers()[kind]
    save_pretrained(ours, tokenizer, tmp_path / "second")
    assert_same_logits(ours, tmp_path / "second")
    theirs = BertForMaskedLM.from_pretrained(tmp_path / "second")
    for name, weight in to_hf(ours).state_dict().items():
        assert torch.equal(theirs.state_dict()[name], weight), name
    reopened = AutoTokenizer.from_pretrained(tmp_path / "second")
    assert reopened(TEXTS)["input_ids"] == [wordpiece().encode(text) for text in TEXTS]
    assert reopened.model_max_length == {"ours": 20, "theirs": 7}[kind]
    assert sorted(os.listdir(tmp_path / "second")) == FILES + ["vocab.txt"] * (kind == "ours")


@pytest.mark.parametrize("lowercase", [True, False])
def test_the_case_that_our_tokenizer_keeps_is_kept_on_disk(ours, tmp_path, lowercase):
    tokenizer = WordPieceTokenizer(
        {t: i for i, t in enumerate([*TOKENS, "A", "É"])}, lowercase=lowercase
    )
    save_pretrained(ours, tokenizer, tmp_path / "saved")
    reopened = load_quietly(tmp_path / "saved")[1]
    for sample in ("A a É e", "abc ABC"):
        assert reopened(sample)["input_ids"] == tokenizer.encode(sample)
    assert (
        WordPieceTokenizer.from_vocab(tmp_path / "saved", lowercase=lowercase).vocab
        == tokenizer.vocab
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": False},
        {
            "hidden_act": "gelu_new",
            "layer_norm_eps": 0.1,
            "pad_token_id": None,
            "type_vocab_size": 3,
        },
        {
            "hidden_act": "relu",
            "hidden_dropout_prob": 0.3,
            "attention_probs_dropout_prob": 0,
            "pad_token_id": 4,
        },
    ],
)
def test_a_checkpoint_comes_back_exactly(tmp_path, changes):
    write(tmp_path / "first", bert(**changes))
    tied = changes.get("tie_word_embeddings", True)
    model, tokenizer = load_quietly(tmp_path / "first")
    save_pretrained(model, tokenizer, tmp_path / "second")
    again, _ = load_quietly(tmp_path / "second")
    assert again.state_dict().keys() == model.state_dict().keys() and again.head.tied == tied
    for name, weight in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight), name
    assert torch.equal(logits_of(again), logits_of(model))
    assert vars(again.embedder.config) == vars(model.embedder.config)


def header(folder):
    with safe_open(folder / "model.safetensors", "pt") as file:
        return {name: file.get_tensor(name).dtype for name in file.keys()}


def test_a_tied_matrix_is_written_once(ours, tmp_path):
    save_pretrained(ours, wordpiece(), tmp_path / "saved")
    assert [name for name in header(tmp_path / "saved") if name in (WORD, DECODER)] == [WORD]
    untied = MaskedLanguageModel(ours.embedder, MaskedLMHead(8, 16))
    save_pretrained(untied, wordpiece(), tmp_path / "saved")
    assert sorted(name for name in header(tmp_path / "saved") if name in (WORD, DECODER)) == [
        WORD,
        DECODER,
    ]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_dtype_of_the_model_is_the_dtype_on_disk(ours, tmp_path, dtype):
    save_pretrained(ours.to(dtype), wordpiece(), tmp_path / "saved")
    assert set(header(tmp_path / "saved").values()) == {dtype}
    assert BertForMaskedLM.from_pretrained(tmp_path / "saved").dtype == dtype


def test_saving_changes_neither_the_model_nor_the_random_numbers(ours, tmp_path):
    ours.train()
    before = {name: weight.clone() for name, weight in ours.state_dict().items()}
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    save_pretrained(ours, wordpiece(), tmp_path / "saved")
    assert torch.equal(torch.rand(3), expected)
    assert ours.training and all(
        torch.equal(weight, before[name]) for name, weight in ours.state_dict().items()
    )


def test_other_files_of_the_folder_stay_and_stale_weights_do_not(ours, folder):
    notes = {
        "README.md": "notes",
        "log/2024/loss.txt": "1.0",
        ".hidden": "h",
        "model_card.md": "m",
        "training_log.json": "{}",
    }
    stale = [
        "pytorch_model.bin",
        "pytorch_model-00001-of-00002.bin",
        "pytorch_model.bin.index.json",
        INDEX,
        "vocab.txt",
    ]
    stale += [
        "model-00001-of-00002.safetensors",
        "special_tokens_map.json",
        "added_tokens.json",
        "generation_config.json",
    ]
    for name, content in [*notes.items(), *((name, "stale") for name in stale)]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    (folder / "link").symlink_to("README.md")
    (folder / "dead link").symlink_to("nowhere")
    (folder / "log" / "to the folder").symlink_to("2024")
    folder.chmod(0o750)
    save_pretrained(ours, tokenizers()["theirs"], folder)
    found = contents(folder)
    assert {name: found.pop(name) for name in notes} == {
        name: content.encode() for name, content in notes.items()
    }
    assert (found.pop("link"), found.pop("dead link"), found.pop("log/to the folder")) == (
        "README.md",
        "nowhere",
        "2024",
    )
    assert sorted(found) == sorted([*FILES, "log", "log/2024"])
    assert folder.stat().st_mode & 0o777 == 0o750
    assert_same_logits(ours, folder)


def test_a_note_whose_name_only_resembles_a_checkpoints_file_stays(ours, folder):
    (folder / "tokenizer_notes.json").write_text("{}")
    save_pretrained(ours, wordpiece(), folder)
    assert (folder / "tokenizer_notes.json").exists()


def test_a_checkpoint_may_be_saved_where_it_was_opened(folder):
    model, tokenizer = load_quietly(folder)
    before = logits_of(model)
    for _ in range(2):
        save_pretrained(model, tokenizer, folder)
    assert torch.equal(logits_of(load_quietly(folder)[0]), before)
    assert torch.equal(logits_of(model), before)


# ------------------------------------------------------------------------------------ saving: where to


@pytest.mark.parametrize(
    "form",
    ["new", "parents", "Path", "relative", "trailing slash", "home", "symlink", "dead symlink"],
)
def test_a_folder_to_save_to_may_be_named_in_every_usual_way(ours, tmp_path, monkeypatch, form):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    places = {
        "parents": "a/b/c",
        "home": "~/here",
        "symlink": "link",
        "dead symlink": "link",
        "trailing slash": "here/",
    }
    place = places.get(form, "here")
    if form == "symlink":
        (tmp_path / "here").mkdir()
        (tmp_path / "here" / "README.md").write_text("notes")
    if "symlink" in form:
        (tmp_path / "link").symlink_to("here")
    for _ in range(2):  # the second takes the place of the first
        save_pretrained(ours, wordpiece(), tmp_path / place if form in ("new", "Path") else place)
    there = tmp_path / ("a/b/c" if form == "parents" else "here")
    assert torch.equal(logits_of(load_quietly(there)[0]), logits_of(ours))
    assert sorted(os.listdir(there.parent)) == [there.name, *["link"] * ("symlink" in form)]
    assert "symlink" not in form or os.readlink(tmp_path / "link") == "here"
    assert form != "symlink" or (there / "README.md").read_text() == "notes"


def test_a_file_in_the_place_of_the_folder_is_an_error_and_stays(ours, tmp_path):
    (tmp_path / "here").write_text("mine")
    for place in (tmp_path / "here", tmp_path / "here" / "deeper"):
        with pytest.raises(OSError) as caught:
            save_pretrained(ours, wordpiece(), place)
        assert_says(caught.value, [str(tmp_path / "here")])
    assert contents(tmp_path) == {"here": b"mine"}


def test_an_empty_name_is_not_a_folder_to_save_to(ours, tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    try:
        with pytest.raises((OSError, ValueError)):
            save_pretrained(ours, wordpiece(), "")
    finally:
        os.chdir(tmp_path)
    assert contents(tmp_path) == {"home": None}


def test_saving_into_the_current_folder_leaves_a_current_folder(ours, folder, monkeypatch):
    monkeypatch.chdir(folder)
    try:
        try:
            save_pretrained(ours, wordpiece(), ".")
        except (OSError, ValueError):
            pass  # to refuse it would do as well
        assert os.path.samefile(os.curdir, folder)  # nothing that works with relative paths is lost
        assert (Path.cwd() / "config.json").is_file()
    finally:
        os.chdir(folder.parent)


class Recurrent(nn.Module):
    """A contextualizer that transformers does not have."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 8, batch_first=True)

    def forward(self, vectors, mask):
        return self.lstm(vectors)[0]


def unusual(kind, ours):
    """Models that no BertForMaskedLM can be."""
    embedding = nn.Embedding(16, 8)
    return {
        "embedding": lambda: MaskedLanguageModel(
            embedding, MaskedLMHead(8, token_embedding=embedding)
        ),
        "recurrent": lambda: MaskedLanguageModel(
            embedding, MaskedLMHead(8, token_embedding=embedding), Recurrent()
        ),
        "encoder and recurrent": lambda: MaskedLanguageModel(ours.embedder, ours.head, Recurrent()),
        "another head": lambda: MaskedLanguageModel(ours.embedder, nn.Linear(8, 16)),
        "another activation": lambda: MaskedLanguageModel(
            ours.embedder, MaskedLMHead(8, 16, activation="relu")
        ),
        "tied elsewhere": lambda: MaskedLanguageModel(
            ours.embedder, MaskedLMHead(8, token_embedding=embedding)
        ),
        "a larger vocabulary in the head": lambda: MaskedLanguageModel(
            ours.embedder, MaskedLMHead(8, 20)
        ),
    }[kind]()


@pytest.mark.parametrize(
    "kind, words",
    [
        ("embedding", ["Embedding + MaskedLMHead", "torch.save"]),
        ("recurrent", ["Embedding + Recurrent + MaskedLMHead", "torch.save"]),
        ("encoder and recurrent", ["BertEncoder + Recurrent + MaskedLMHead", "torch.save"]),
        ("another head", ["BertEncoder + Linear", "torch.save"]),
        ("another activation", ["activation"]),
        ("tied elsewhere", ["tied"]),
        ("a larger vocabulary in the head", ["20", "16"]),
    ],
)
def test_a_model_that_transformers_has_no_class_for_is_refused_before_anything_is_written(
    ours, tmp_path, kind, words
):
    with pytest.raises(ValueError) as caught:
        save_pretrained(unusual(kind, ours), wordpiece(), tmp_path / "a" / "b")
    assert_says(caught.value, words)
    assert contents(tmp_path) == {}


def test_a_tokenizer_larger_than_the_model_is_refused_before_anything_is_written(ours, tmp_path):
    for tokenizer in (MANY, MANY.to_hf()):
        with pytest.raises(ValueError, match="23 tokens, .*16"):
            save_pretrained(ours, tokenizer, tmp_path / "saved")
    assert contents(tmp_path) == {}


# ------------------------------------------------------------------------------------ saving: whole or not at all


def interrupt(monkeypatch, owner, step, error, *, at=1):
    """Let the `at`-th call of a step fail, after its work is done if it is a write."""
    original, calls = getattr(owner, step), []

    def failing(*args, **options):
        calls.append(step)
        if len(calls) != at:
            return original(*args, **options)
        if step.startswith("save"):
            original(*args, **options)
        raise error

    monkeypatch.setattr(owner, step, failing)
    return calls


STEPS = {
    "weights": (BertForMaskedLM, "save_pretrained", 1),
    "their tokenizer": (PreTrainedTokenizerBase, "save_pretrained", 1),
    "our tokenizer": (WordPieceTokenizer, "save", 1),
    "a note": (shutil, "copy2", 1),
    "a sub-folder": (shutil, "copytree", 1),
    "the first flush": (os, "fsync", 1),
    "the third flush": (os, "fsync", 3),
    "the exchange": (pretrained, "_exchange", 1),
    "the first of two renames": (os, "rename", 1),
    "the second of two renames": (os, "rename", 2),
}


@pytest.mark.parametrize(
    "error",
    [OSError(28, "No space left on device"), KeyboardInterrupt()],
    ids=["OSError", "interrupt"],
)
@pytest.mark.parametrize("owner, step, at", STEPS.values(), ids=STEPS)
def test_a_save_that_fails_leaves_the_old_folder_and_nothing_else(
    ours, folder, monkeypatch, owner, step, at, error
):
    (folder / "log").mkdir()
    (folder / "log" / "loss.txt").write_text("1.0")
    (folder / "README.md").write_text("notes")
    before = contents(folder.parent)
    with torch.no_grad():
        ours.head.bias += 1
    with monkeypatch.context() as patch:
        if step == "rename":
            patch.setattr(pretrained, "_exchange", lambda one, other: False)
        calls = interrupt(patch, owner, step, error, at=at)
        with pytest.raises(type(error)):
            save_pretrained(ours, wordpiece(), folder)
        assert len(calls) >= at
    assert contents(folder.parent) == before
    save_pretrained(ours, wordpiece(), folder)
    assert torch.equal(load_quietly(folder)[0].head.bias, ours.head.bias)


@pytest.mark.parametrize(
    "step",
    ["weights", "their tokenizer", "our tokenizer", "the first flush", "the first of two renames"],
)
def test_a_first_save_that_fails_leaves_nothing(ours, tmp_path, monkeypatch, step):
    owner, name, at = STEPS[step]
    interrupt(monkeypatch, owner, name, OSError(28, "No space left on device"), at=at)
    with pytest.raises(OSError):
        save_pretrained(ours, wordpiece(), tmp_path / "saved")
    assert contents(tmp_path) == {}


def no_library(name):
    raise OSError("no such library")


class Unwilling:
    """A C library on a file system that cannot exchange folders."""

    def __init__(self, name):
        pass

    def renameat2(self, *args):
        return -1


@pytest.mark.parametrize(
    "library",
    [no_library, Unwilling, lambda name: object()],
    ids=["no library", "refusing", "too old"],
)
def test_without_an_exchange_in_one_step_saving_takes_two(ours, folder, monkeypatch, library):
    (folder / "README.md").write_text("notes")
    monkeypatch.setattr(pretrained.ctypes, "CDLL", library)
    with torch.no_grad():
        ours.head.bias += 1
    save_pretrained(ours, wordpiece(), folder)
    assert torch.equal(load_quietly(folder)[0].head.bias, ours.head.bias)
    assert os.listdir(folder.parent) == ["tiny"] and (folder / "README.md").read_text() == "notes"


@pytest.mark.skipif(sys.platform != "linux", reason="renameat2 is Linux's")
def test_the_old_folder_is_never_away_from_its_place(ours, folder, monkeypatch):
    def rename(*args):
        raise AssertionError("the folder was renamed, not exchanged")

    monkeypatch.setattr(os, "rename", rename)
    save_pretrained(ours, wordpiece(), folder)
    assert (folder / "vocab.txt").is_file()


@pytest.mark.parametrize("name", ["checkpoint", "a note", "a note in a sub-folder"])
def test_what_takes_the_place_of_the_old_folder_has_been_flushed_to_the_disk(
    ours, folder, monkeypatch, name
):
    """Otherwise a power cut could lose both: the old files are deleted at the end, kept notes included."""
    (folder / "log").mkdir()
    (folder / "log" / "loss.txt").write_text("1.0")
    (folder / "README.md").write_text("notes")
    flushed = set()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: flushed.add(os.fstat(descriptor).st_ino))
        save_pretrained(ours, wordpiece(), folder)
    files = {
        "checkpoint": [*FILES, "vocab.txt"],
        "a note": ["README.md"],
        "a note in a sub-folder": ["log/loss.txt"],
    }[name]
    assert [file for file in files if (folder / file).stat().st_ino not in flushed] == []


@pytest.fixture(scope="module")
def crashes(tmp_path_factory):
    """What stood in the folder after a save was killed at each of its steps, at random, and on a full disk."""
    root = tmp_path_factory.mktemp("crash") / "root"
    root.mkdir()
    return answer_of(start(CRASH, {"ROOT": str(root), "TOKENIZERS_PARALLELISM": "false"}))


posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@posix
@pytest.mark.slow
@pytest.mark.parametrize("mode, before", [("over", 1), ("two steps", 1), ("fresh", None)])
def test_a_save_killed_at_any_step_leaves_the_old_or_the_new_checkpoint_whole(
    crashes, mode, before
):
    found = crashes[mode]
    change = found.index(2)
    assert change > 10  # many steps before the new one is in place, and at least one after
    assert found == [before] * change + [2] * (len(found) - change)


@posix
@pytest.mark.slow
def test_saves_killed_at_random_leave_a_whole_checkpoint(crashes):
    assert len(crashes["at random"]) == 10
    assert all(now <= then for now, then in crashes["at random"])
    assert crashes["at random"][-1][1] > 1  # some were written


@posix
@pytest.mark.slow
@pytest.mark.parametrize("file", [*FILES, "README.md"])
def test_a_full_disk_is_an_os_error_and_leaves_the_old_folder_and_nothing_else(crashes, file):
    kind, is_os_error, message, same, left = crashes["full disk"][file]
    assert same and left == ["saved"]
    assert is_os_error, f"{kind}: {message}"
    assert_says(message, ["File too large"])
