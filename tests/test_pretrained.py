"""Checkpoints as models: opened whatever their age, refused in words, saved whole or not at all."""

import json
import os
import re
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.nn as nn
from hub import answer_of, start
from safetensors import safe_open
from tiny_bert import (
    BIAS,
    DECODER,
    DECODER_BIAS,
    INDEX,
    TOKENS,
    WORD,
    add,
    after,
    as_dtype,
    assert_same_logits,
    assert_says,
    batch,
    bert,
    configure,
    contents,
    cut,
    gone,
    in_three,
    load_quietly,
    load_with_warning,
    logits_of,
    move,
    old_names,
    pickled,
    pickled_in_three,
    rewrite,
    saved,
    settings,
    text,
    wordpiece,
    write,
)
from transformers import (
    AutoTokenizer,
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
    BertTokenizerFast,
    PreTrainedTokenizerBase,
)

from mlm_lib.engine import files
from mlm_lib.heads import MaskedLMHead
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.pretrained import load_checkpoint, save_pretrained, to_hf
from mlm_lib.wordpiece import WordPieceTokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = ["A b abc, abca", "cab [MASK] ca.", ""]


# ------------------------------------------------------------------------------------ forms


NORM = "bert.embeddings.LayerNorm"
FORMS = {
    "as it is written": lambda folder: None,
    "safetensors in shards": in_three,
    "pickled": pickled,
    "pickled before torch 1.6": lambda at: pickled(at, _use_new_zipfile_serialization=False),
    "pickled in shards": pickled_in_three,
    "float16": as_dtype(torch.float16),
    "bfloat16": as_dtype(torch.bfloat16),
    "float64": as_dtype(torch.float64),
    "gamma and beta": lambda folder: rewrite(folder, old_names),
    "with pooler and next sentence": saved(BertForPreTraining),
    "with position ids": add(lambda _: {"bert.embeddings.position_ids": torch.arange(20)[None]}),
    "untied": saved(BertForMaskedLM, tie_word_embeddings=False),
    "untied, with pooler": saved(BertForPreTraining, tie_word_embeddings=False),
    "tied, written twice": add(lambda weights: {DECODER: weights[WORD].clone()}),
    "tied, written as the decoder": move(WORD, DECODER),
    "bias written as the decoder's": move(BIAS, DECODER_BIAS),
    "tied, with another decoder bias": add(lambda old: {DECODER_BIAS: old[BIAS] + torch.ones(16)}),
    "gamma as well as weight": add(lambda old: {f"{NORM}.gamma": old[f"{NORM}.weight"].clone()}),
    "three layers": saved(BertForMaskedLM, num_hidden_layers=3),
    "other width": saved(BertForMaskedLM, hidden_size=12, num_attention_heads=3),
    "other sizes": saved(
        BertForMaskedLM, intermediate_size=5, max_position_embeddings=9, type_vocab_size=4
    ),
    "other settings": saved(
        BertForMaskedLM, hidden_act="gelu_new", layer_norm_eps=0.1, pad_token_id=None
    ),
}


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


# ------------------------------------------------------------------------------------ refusals


def a_token_too_far(folder):
    """As many tokens as the model has, but one of them has an id that the model lacks."""
    described = json.loads((folder / "tokenizer.json").read_text())
    described["model"]["vocab"]["abc"] = 40
    (folder / "tokenizer.json").write_text(json.dumps(described))


MANY = wordpiece([*TOKENS, *"defghijklmn"])
TOKENIZER = "tokenizer.json"
HUGE = 2 * 10**9  # far more than memory holds, and still a size
BAD = {
    "config.json without sizes": (text("config.json", "{}"), [WORD, "(16, 8)", "(30522, 768)"]),
    "no vocab_size": (settings(vocab_size=...), [WORD, "(16, 8)", "(30522, 8)"]),
    "a size beyond all memory": (
        settings(vocab_size=10**12),
        ["vocab_size=1000000000000; a whole number"],
    ),
    "a size beyond all integers": (
        settings(vocab_size=2**70),
        [f"vocab_size={2**70}; a whole number"],
    ),
    "a width beyond all memory": (
        settings(hidden_size=10**12),
        ["hidden_size=1000000000000; a whole number"],
    ),
    "a length beyond all memory": (
        settings(max_position_embeddings=2**70),
        [f"max_length={2**70}; a whole"],
    ),
    "an inner width of its own": (settings(intermediate_size=HUGE), [f"({HUGE}, 8)"]),
    "a null": (settings(hidden_size=None), ["hidden_size", "None"]),
    "a string": (settings(hidden_size="8"), ["hidden_size", "8"]),
    "heads that do not divide": (settings(num_attention_heads=3), ["hidden_size=8", "heads=3"]),
    "one layer too many": (
        settings(num_hidden_layers=3),
        [".layer.2.", "and 12 more", "of 3 layers"],
    ),
    "layers without end": (settings(num_hidden_layers=HUGE), [f"num_layers={HUGE}; a whole"]),
    "an index of nothing": (
        after(in_three, text(INDEX, '{"weight_map": {}}')),
        ["weights for", WORD],
    ),
    "RoBERTa": (settings(model_type="roberta"), ["'roberta'", "only BERT"]),
    "DistilBERT": (settings(model_type="distilbert"), ["'distilbert'", "only BERT"]),
    "a decoder": (settings(is_decoder=True), ["is_decoder=True", "False"]),
    "cross attention": (settings(add_cross_attention=True), ["add_cross_attention=True", "False"]),
    "relative positions": (
        settings(position_embedding_type="relative_key"),
        ["position_embedding_type='relative_key'", "'absolute'"],
    ),
    "an unknown activation": (settings(hidden_act="mish"), ["hidden_act='mish'", "gelu_new"]),
    "two different gammas": (
        add(lambda old: {f"{NORM}.gamma": old[f"{NORM}.weight"] + 1}),
        [f"{NORM}.weight has an old and a new name", "two values"],
    ),
    "a large tokenizer": (lambda at: MANY.to_hf().save_pretrained(at), ["23 tokens", "16"]),
    "a token beyond the model": (a_token_too_far, ["40", "16"]),
}


@pytest.mark.parametrize("damage, words", BAD.values(), ids=BAD)
def test_what_does_not_fit_is_refused_with_words_that_help(folder, damage, words):
    damage(folder)
    with pytest.raises(ValueError) as caught:
        load_checkpoint(folder)
    assert_says(caught.value, words)


UNREADABLE = {
    "tokenizer.json cut off": cut(TOKENIZER, 0.5),
    "tokenizer.json without a model": text(TOKENIZER, "{}"),
    "tokenizer_config.json cut off": cut("tokenizer_config.json", 0.5),
    "vocab.txt of other bytes": after(gone("tokenizer*"), text("vocab.txt", b"\xff\xfe")),
}


@pytest.mark.parametrize("damage", UNREADABLE.values(), ids=UNREADABLE)
def test_a_damaged_tokenizer_is_an_os_error(folder, damage):
    damage(folder)
    with pytest.raises(OSError, match="tokenizer") as caught:
        load_checkpoint(folder)
    assert not isinstance(caught.value, UnicodeError)


HUGE = {"num_labels": 5_000_000, "num_hidden_layers": 1000}


@pytest.mark.parametrize("setting", HUGE)
@pytest.mark.parametrize("without", ["tokenizer*", "vocab.txt"])
def test_a_number_in_the_configuration_costs_neither_time_nor_memory(folder, setting, without):
    """It took a minute and 4 GB, or had no end. A masked language model needs no labels at all."""
    (folder / "vocab.txt").write_text("\n".join(TOKENS))
    gone(without)(folder)
    expected = logits_of(load_quietly(folder)[0])
    configure(folder, **{setting: HUGE[setting]})
    memory, started = peak_memory(), time.process_time()
    if setting == "num_labels":
        assert torch.equal(logits_of(load_quietly(folder)[0]), expected)
    else:
        with pytest.raises(ValueError, match="of 1000 layers"):
            load_checkpoint(folder)
    assert time.process_time() - started < 5
    assert peak_memory() - memory < 200


def peak_memory():
    """What this process has taken at most so far, in MB."""
    resource = pytest.importorskip("resource")
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


# ------------------------------------------------------------------------------------ doubts


MORE = [*TOKENS, *(f"token{i}" for i in range(300))]  # 312


def with_vocabulary(folder, tokens, **changes):
    """A model of 312 tokens and these lines of vocab.txt."""
    bert(vocab_size=len(MORE), **changes).save_pretrained(folder)
    gone("tokenizer*")(folder)
    (folder / "vocab.txt").write_text("\n".join(tokens))


@pytest.mark.parametrize("lost", [1, 2, 3, 5])
def test_a_vocabulary_without_its_first_lines_is_refused(folder, lost):
    """All ids shift, and transformers adds the special tokens that are missing at the end."""
    with_vocabulary(folder, MORE[lost:])
    with pytest.raises(ValueError) as caught:
        load_checkpoint(folder)
    assert_says(caught.value, [str(folder), "lacks [PAD]", "pad_token_id=0", repr(MORE[lost])])


def test_a_vocabulary_that_lacks_another_special_token_is_doubted(folder):
    with_vocabulary(folder, [token for token in MORE if token != "[MASK]"])
    assert_says(load_with_warning(folder)[1], [str(folder), "lacks [MASK]", "at the end"])


@pytest.mark.parametrize("spare, warned", [(0, False), (127, False), (128, True), (300, True)])
def test_a_vocabulary_with_clearly_fewer_tokens_than_the_model_is_doubted(folder, spare, warned):
    """Real models are padded to a multiple of up to 128, which leaves up to 127 rows unused."""
    with_vocabulary(folder, MORE[: len(MORE) - spare])
    if warned:
        words = [f"has {len(MORE) - spare} tokens and the model 312", "cut off"]
        assert_says(load_with_warning(folder)[1], words)
    else:
        load_quietly(folder)


@pytest.mark.parametrize("said, warned", [(0, True), (3, False), (None, False)])
def test_a_padding_id_that_only_the_configuration_gives_otherwise_is_doubted(folder, said, warned):
    """Many checkpoints have [PAD] at 3 and the default of 0 in their configuration, and work."""
    order = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    with_vocabulary(folder, [*order, *MORE[5:]], pad_token_id=said)
    if warned:
        words = ["pad_token_id=0 in its configuration is '[UNK]'", "whose padding is 3"]
        assert_says(load_with_warning(folder)[1], words)
    else:
        load_quietly(folder)


@pytest.mark.parametrize("device", ["xx", "cuda:99", "", None, True, 1.5])
def test_a_device_that_is_not_there_is_refused_before_anything_is_read(device):
    with pytest.raises(ValueError, match=re.escape(f"device={device!r}; a device of this machine")):
        load_checkpoint("./no-such-bert", device=device)


def test_a_device_may_be_named_or_given(folder):
    for device in ("cpu", torch.device("cpu")):
        assert load_checkpoint(folder, device=device)[0].head.bias.device.type == "cpu"


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
    padding_last = [*TOKENS[1:5], "[PAD]", *TOKENS[5:]]
    tokens = padding_last if changes.get("pad_token_id") else TOKENS
    write(tmp_path / "first", bert(**changes), tokens)
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


def test_a_log_that_is_open_in_the_folder_keeps_its_later_lines(ours, folder):
    with open(folder / "log.txt", "w") as log:
        save_pretrained(ours, wordpiece(), folder)
        log.write("saved\n")
    assert (folder / "log.txt").read_text() == "saved\n"


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


# ------------------------------------------------------------------------------------ where to


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


# ------------------------------------------------------------------------------------ whole


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
    "the first flush": (os, "fsync", 1),
    "the third flush": (os, "fsync", 3),
    "a note": (files, "_double", 1),
    "the exchange": (files, "_exchange", 1),
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
        calls = interrupt(patch, owner, step, error, at=at)
        with pytest.raises(type(error)):
            save_pretrained(ours, wordpiece(), folder)
        assert len(calls) >= at
    assert contents(folder.parent) == before
    save_pretrained(ours, wordpiece(), folder)
    assert torch.equal(load_quietly(folder)[0].head.bias, ours.head.bias)


@pytest.mark.parametrize("step", ["weights", "their tokenizer", "our tokenizer", "the first flush"])
def test_a_first_save_that_fails_leaves_nothing(ours, tmp_path, monkeypatch, step):
    owner, name, at = STEPS[step]
    interrupt(monkeypatch, owner, name, OSError(28, "No space left on device"), at=at)
    with pytest.raises(OSError):
        save_pretrained(ours, wordpiece(), tmp_path / "saved")
    assert contents(tmp_path) == {}


@pytest.fixture(scope="module")
def crashes(tmp_path_factory):
    """What stood in the folder after kills at each step and at random, and on a full disk."""
    root = tmp_path_factory.mktemp("crash") / "root"
    root.mkdir()
    environment = {"ROOT": str(root), "TOKENIZERS_PARALLELISM": "false"}
    return answer_of(start("crash_saving.py", environment))


posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@posix
@pytest.mark.slow
@pytest.mark.parametrize("mode, before", [("over", 1), ("fresh", None)])
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
@pytest.mark.parametrize("file", FILES)
def test_a_full_disk_is_an_os_error_and_leaves_the_old_folder_and_nothing_else(crashes, file):
    said, same = crashes["full disk"][file]
    assert_says(said, ["cannot be written", "File too large", "what it held is still there"])
    assert same
