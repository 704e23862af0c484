"""Checkpoints as models: opened whatever their age, refused in words, saved whole or not at all."""

import copy
import json
import os
import pickle
import re
import shutil
import warnings
from dataclasses import replace

import pytest
import tiny_modern
import torch
import torch.nn as nn
import transformers
from hub import COMMIT, HEAVY, answer_of, serve, start
from safetensors.torch import save
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
    pickle_of,
    pickled,
    pickled_in_three,
    rewrite,
    saved,
    settings,
    text,
    weights_of,
    wordpiece,
    write,
)
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoTokenizer,
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
    BertTokenizerFast,
    ModernBertForMaskedLM,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    pipeline,
)

from mlm_lib.encoder import BertEncoder, EncoderConfig
from mlm_lib.heads import MaskedLMHead
from mlm_lib.language_model import LanguageModel, LSTMContextualizer
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.modern import ModernConfig, ModernEncoder
from mlm_lib.pretrain import pretrain
from mlm_lib.pretrained import from_hf, load_checkpoint, save_pretrained, to_hf
from mlm_lib.wordpiece import WordPieceTokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = ["A b abc, abca", "cab [MASK] ca.", ""]
FILES = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
SAFE, PICKLE, SECOND = "model.safetensors", "pytorch_model.bin", "model-00002-of-00004.safetensors"
posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


# ------------------------------------------------------------------------------------ names


@pytest.fixture
def no_network(monkeypatch):
    monkeypatch.setattr("socket.socket.connect", lambda *a: pytest.fail("a connection was opened"))


def test_the_shipped_checkpoint_opens_anywhere_and_without_a_network(
    tmp_path, monkeypatch, no_network
):
    monkeypatch.chdir(tmp_path)
    model, _ = load_checkpoint()
    assert not model.training and model.head.bias.dtype == torch.float32


@pytest.mark.parametrize("form", ["Path", "trailing slash", "home", "shipped"])
def test_a_folder_may_be_named_in_every_usual_way(folder, monkeypatch, form):
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.setenv("USERPROFILE", str(folder.parent))
    (folder.parent / "course-bert").symlink_to("tiny")  # a folder comes before a shipped name
    names = {"home": "~/tiny", "shipped": "course-bert", "Path": folder, "trailing slash": "tiny/"}
    assert_same_logits(load_quietly(names[form])[0], folder)


@pytest.mark.parametrize("name", ["~/nowhere", "~nosuchuser/x", "no/where/at/all", "C:\\no"])
def test_a_folder_that_is_none_is_an_error_without_a_network(
    tmp_path, monkeypatch, no_network, name
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError) as caught:
        load_checkpoint(name)
    assert_says(caught.value, [name, "no folder with a config.json"])


@pytest.mark.parametrize("name", ["", " ", None])
def test_an_empty_name_is_not_the_current_folder(folder, monkeypatch, name):
    monkeypatch.chdir(folder)
    with pytest.raises(ValueError, match=re.escape(f"name={name!r}")):
        load_checkpoint(name)
    with pytest.raises(ValueError, match=re.escape(f"folder={name!r}")):
        save_pretrained(load_checkpoint(folder)[0], wordpiece(), name)


def test_a_device_that_is_not_there_is_refused_before_anything_is_read():
    with pytest.raises(ValueError, match="device='cuda:99'"):
        load_checkpoint("./no-such-bert", device="cuda:99")


# ------------------------------------------------------------------------------------ forms


FORMS = {
    "as it is written": lambda folder: None,
    "safetensors in shards": in_three,
    "pickled": pickled,
    "pickled in shards": pickled_in_three,
    "float16": as_dtype(torch.float16),
    "bfloat16": as_dtype(torch.bfloat16),
    "gamma and beta": lambda folder: rewrite(folder, old_names),
    "no model_type": settings(model_type=...),
    "with pooler and next sentence": saved(BertForPreTraining),
    "with position ids": add(lambda _: {"bert.embeddings.position_ids": torch.arange(20)[None]}),
    "untied": saved(BertForMaskedLM, tie_word_embeddings=False),
    "tied, written twice": add(lambda weights: {DECODER: weights[WORD].clone()}),
    "tied, written as the decoder": move(WORD, DECODER),
    "bias written as the decoder's": move(BIAS, DECODER_BIAS),
    "tied, with another matrix": add(lambda old: {DECODER: old[WORD] + torch.ones(16, 8)}),
    "other settings": saved(
        BertForMaskedLM, hidden_act="gelu_new", layer_norm_eps=0.1, pad_token_id=None
    ),
    "a billion classes": settings(num_labels=10**9),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_of_checkpoint_gives_the_logits_of_transformers(folder, form):
    form(folder)
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    model, tokenizer = load_quietly(folder)
    assert torch.equal(torch.rand(3), expected)  # a whole checkpoint draws no random numbers
    if form is not FORMS["a billion classes"]:  # which costs transformers a minute and more
        assert_same_logits(model, folder)
    assert not model.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert tokenizer(TEXTS)["input_ids"] == [wordpiece().encode(text) for text in TEXTS]


def renamed(change):
    """Other names for all weights of the file."""
    return lambda folder: rewrite(
        folder, lambda weights: {change(name): weight for name, weight in weights.items()}
    )


def under(prefix):
    return renamed(lambda name: prefix + name)


def packed(wrap):
    """A pickled file of a trainer's own, which holds the weights somewhere."""
    return lambda folder: pickled(folder, wrap(weights_of(folder)))


MOMENTS = {"state": {0: {"exp_avg": torch.zeros(3)}}, "param_groups": [{"lr": 0.1}]}
WRAPPED = {
    "DataParallel": under("module."),
    "torch.compile": under("_orig_mod."),
    "both": under("module._orig_mod."),
    "gamma and beta": after(lambda folder: rewrite(folder, old_names), under("module.")),
    "beside a teacher": add(lambda old: {f"teacher.{name}": old[name] + 1 for name in old}),
    "torch.compile of each block": renamed(
        lambda name: re.sub(r"(r\.\d\.)", r"\1_orig_mod.", name)
    ),
    "Lightning's names": under("model."),
    "an attribute like its own": under("mybert."),
    "a head that stands apart": renamed(lambda name: name.replace("bert.", "net.encoder.", 1)),
    "averaged weights": after(under("module."), add(lambda _: {"n_averaged": torch.tensor(5)})),
    "in shards": after(
        pickled_in_three,
        lambda folder: [
            torch.save({f"module.{n}": w for n, w in torch.load(file).items()}, file)
            for file in folder.glob("pytorch_model-*.bin")
        ],
    ),
    "state_dict": packed(lambda weights: {"state_dict": weights, "epoch": 3}),
    "model, beside an optimizer": packed(lambda weights: {"optimizer": MOMENTS, "model": weights}),
    "deep, and with a prefix": packed(
        lambda weights: {"run": {"state_dict": {f"model.{n}": w for n, w in weights.items()}}}
    ),
}


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_what_a_trainer_puts_around_the_weights_is_taken_off(folder, original, wrap):
    wrap(folder)
    found, expected = (load_quietly(place)[0].state_dict() for place in (folder, original))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("kind", [BertModel, BertForSequenceClassification])
def test_a_checkpoint_without_a_head_gets_a_fresh_one_and_says_so(
    folder, kind, caplog, monkeypatch
):
    from transformers.utils import logging

    monkeypatch.setattr(logging.get_logger("transformers"), "propagate", True)
    theirs = bert(kind)
    theirs.save_pretrained(folder)
    model, warning = load_with_warning(folder)
    ids, mask, types = batch()
    expected = getattr(theirs, "bert", theirs)(ids, attention_mask=mask, token_type_ids=types)
    ours, expected = model.embedder(ids, mask, types), expected.last_hidden_state
    torch.testing.assert_close(ours[mask.bool()], expected[mask.bool()], rtol=1e-4, atol=1e-4)
    words = [str(folder), "cls.predictions.transform.dense.weight", "fresh", "train it"]
    assert_says(warning, words)
    assert model.head.tied and model.head.dense.weight.std() > 0.1  # the configuration's 0.5
    assert (model.head.norm.weight == 1).all() and not model.head.bias.any()
    assert "corrupted" not in caplog.text and "MISSING" in caplog.text  # transformers' own words


# ------------------------------------------------------------------------------------ refusals


def without(name):
    return lambda at: rewrite(at, lambda weights: {n: w for n, w in weights.items() if n != name})


def cast(name, dtype):
    return lambda at: rewrite(at, lambda weights: weights.update({name: weights[name].to(dtype)}))


def shaped(*shape, name="bert.encoder.layer.1.intermediate.dense.weight"):  # (12, 8)
    return lambda at: rewrite(at, lambda weights: weights.update({name: torch.ones(shape)}))


MANY = wordpiece([*TOKENS, *"defghijklmn"])
DENSE = "encoder.layer.0.output.dense.bias"
BAD = {
    "config.json without sizes": (text("config.json", "{}"), ["lacks"]),
    "layers without end": (settings(num_hidden_layers=2 * 10**9), ["num_hidden_layers=2000000000"]),
    "one layer too many": (settings(num_hidden_layers=3), ["lacks 16", ".layer.2."]),
    "RoBERTa": (settings(model_type="roberta"), ["'roberta'", "bert or a modernbert"]),
    "a list of kinds": (settings(model_type=["bert"]), ["['bert']", "bert or a modernbert"]),
    "scaled float8": (settings(quantization_config={"quant_method": "fp8"}), ["quantised"]),
    "a decoder": (settings(is_decoder=True), ["is_decoder=True", "False"]),
    "relative positions": (
        settings(position_embedding_type="relative_key"),
        ["position_embedding_type='relative_key'", "'absolute'"],
    ),
    "a padding id below 0": (settings(pad_token_id=-1), ["pad_token_id=-1"]),
    "an unknown activation": (settings(hidden_act="mish"), ["activation='mish'", "gelu"]),
    "a weight missing": (without(f"bert.{DENSE}"), ["lacks 1", DENSE]),
    "a missing embedding": (without(WORD), ["lacks 1", WORD]),
    "another name": (
        move(WORD, "bert.words.weight"),
        [WORD, "bert.words.weight, for which the model has no"],
    ),
    "two models": (
        after(
            under("student."), add(lambda old: {f"teacher.{n[8:]}": w + 1 for n, w in old.items()})
        ),
        ["several models", "'student.…'", "'teacher.…'"],
    ),
    "two models in a file": (
        packed(lambda weights: {"ema": weights, "model": weights}),
        ["2 models"],
    ),
    "int8 under a prefix": (
        after(under("module."), cast(f"module.{WORD}", torch.int8)),
        [f"module.{WORD}", "torch.int8"],
    ),
    "another shape": (shaped(12, 8, 1), ["intermediate", "(12, 8, 1)", "(12, 8)"]),
    "a shape that broadcasts": (shaped(1, 8), ["(1, 8)", "(12, 8)"]),
    "another shape in the head": (shaped(17, name=BIAS), [BIAS, "(17,)", "(16,)"]),
    "int8": (cast(WORD, torch.int8), [WORD, "torch.int8", "original"]),
    "float8": (cast(WORD, torch.float8_e4m3fn), [WORD, "torch.float8_e4m3fn"]),
    "int8 in a pickle": (after(cast(WORD, torch.int8), pickled), [WORD, "torch.int8"]),
    "a large tokenizer": (lambda at: MANY.to_hf().save_pretrained(at), ["up to 22", "16"]),
}


@pytest.mark.parametrize("damage, words", BAD.values(), ids=BAD)
def test_what_does_not_fit_is_refused_by_name(folder, damage, words):
    damage(folder)
    with pytest.raises(ValueError) as caught:
        load_checkpoint(folder)
    assert_says(caught.value, words)


TOKENIZER, HUGE = "tokenizer.json", 10**12
UNREADABLE = {
    "config.json cut off": cut("config.json", 0.5),
    "config.json a list": text("config.json", "[1, 2]"),
    "heads that do not divide": settings(num_attention_heads=3),
    "a null": settings(hidden_size=None),
    "a size beyond all memory": settings(vocab_size=HUGE),
    "no weights": gone(SAFE),
    "safetensors without its last byte": cut(SAFE, -1),
    "a git-lfs pointer": text(SAFE, "version https://git-lfs"),
    "a damaged shard": after(in_three, text(SECOND, "x")),
    "a missing shard": after(in_three, gone("model-00002-*")),
    "an index cut off": after(in_three, cut(INDEX, 0.5)),
    "pickled, cut off": after(pickled, cut(PICKLE, 0.5)),
    "pickled, a list": pickle_of([1, 2]),
    "pickled, a number for a weight": pickle_of(bert().state_dict() | {BIAS: 3}),
    "no tokenizer": gone("tokenizer*"),
    "tokenizer.json cut off": cut(TOKENIZER, 0.5),
    "vocab.txt of other bytes": after(gone("tokenizer*"), text("vocab.txt", b"\xff\xfe")),
}


@pytest.mark.parametrize("damage", UNREADABLE.values(), ids=UNREADABLE)
def test_a_file_that_is_damaged_or_missing_is_one_line_that_names_the_place(folder, damage):
    damage(folder)
    with pytest.raises(OSError) as caught:
        load_checkpoint(folder)
    assert_says(caught.value, [str(folder), "cannot be read"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("error", [ImportError("protobuf is missing"), TypeError("a bug")], ids=str)
@pytest.mark.parametrize(
    "place",
    [(AutoTokenizer, "from_pretrained"), ("mlm_lib.pretrained._models_in",)],
    ids=["transformers", "ours"],
)
def test_a_missing_package_and_a_bug_of_ours_are_not_blamed_on_the_file(
    folder, monkeypatch, place, error
):
    def failing(*_, **options):
        raise error

    monkeypatch.setattr(*place, failing)
    of_a_file = place[0] is AutoTokenizer and isinstance(error, TypeError)  # as far as one can see
    with pytest.raises(OSError if of_a_file else type(error), match=str(error)) as caught:
        load_checkpoint(folder)
    assert error in (caught.value, caught.value.__cause__)  # and so its traceback is shown


def test_a_bug_while_saving_is_not_blamed_on_the_disk(ours, tmp_path, monkeypatch):
    monkeypatch.setattr(WordPieceTokenizer, "save", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save_pretrained(ours, wordpiece(), tmp_path / "saved")
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("value", [float("nan"), 1e300])  # beyond the range of float32
@pytest.mark.parametrize("name", [WORD, BIAS])
def test_weights_that_are_not_finite_are_named_in_a_warning(folder, name, value):
    weights = {each: weight.double() for each, weight in weights_of(folder).items()}
    weights[name][-1:] = value
    rewrite(folder, lambda _: weights)
    assert_says(load_with_warning(folder)[1], [str(folder), "NaN or infinity", name])


def test_weights_that_are_left_over_are_reported(folder, caplog, monkeypatch):
    from transformers.utils import logging

    monkeypatch.setattr(logging.get_logger("transformers"), "propagate", True)
    configure(folder, num_hidden_layers=1)
    load_quietly(folder)
    assert "bert.encoder.layer.{0, 1}" in caplog.text or "encoder.layer.1." in caplog.text


class Creates:
    """Unpickling it creates a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("form", ["zip", "bare pickle"])
def test_code_in_a_pickled_file_is_not_executed(folder, tmp_path, form):
    trap = tmp_path / "executed"
    pickled(folder, weights_of(folder) | {"trap": Creates(trap)})
    if form == "bare pickle":
        (folder / PICKLE).write_bytes(pickle.dumps(Creates(trap), protocol=2))
    with pytest.raises(OSError) as caught:
        load_checkpoint(folder)
    assert not trap.exists()
    assert_says(caught.value, [PICKLE, "more than tensors"])  # and not how to open it all the same
    assert "weights_only" not in str(caught.value)
    if form == "bare pickle":
        pickle.loads((folder / PICKLE).read_bytes())
    else:
        torch.load(folder / PICKLE, weights_only=False)
    assert trap.exists()  # so the trap works


def test_code_beside_a_checkpoint_is_not_executed(folder, tmp_path):
    trap = tmp_path / "executed"
    (folder / "code.py").write_text(f"open({str(trap)!r}, 'w')\nMine = None\n")
    configure(folder, auto_map={"AutoConfig": "code.Mine", "AutoModelForMaskedLM": "code.Mine"})
    configure(folder, attn_implementation="acme/kernel", _attn_implementation="acme/kernel")
    load_quietly(folder)
    described = json.loads((folder / "tokenizer_config.json").read_text())
    described |= {"tokenizer_class": "Mine", "auto_map": {"AutoTokenizer": ["code.Mine", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    try:
        load_checkpoint(folder)
    except OSError:
        pass
    assert not trap.exists()


# ------------------------------------------------------------------------------------ doubts


MORE = [*TOKENS, *(f"token{i}" for i in range(300))]  # 312
ORDER = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]


def with_vocabulary(folder, tokens, **changes):
    """A model of 312 tokens and these lines of vocab.txt."""
    bert(vocab_size=len(MORE), **changes).save_pretrained(folder)
    gone("tokenizer*")(folder)
    (folder / "vocab.txt").write_text("\n".join(tokens))


@pytest.mark.parametrize("lost", [1, 2, 5])
def test_a_vocabulary_without_its_first_lines_is_refused(folder, lost):
    """All ids shift, and transformers adds the special tokens that are missing at the end."""
    with_vocabulary(folder, MORE[lost:])
    with pytest.raises(ValueError, match="lacks .*PAD") as caught:
        load_checkpoint(folder)
    assert_says(caught.value, [str(folder), "pad_token_id=0", repr(MORE[lost])])


# Real models are padded to a multiple of up to 128, which leaves up to 127 rows unused. And many
# checkpoints have [PAD] at 3 and the default of 0 in their configuration, and work.
DOUBTS = {
    "[MASK] missing": (lambda at: with_vocabulary(at, [t for t in MORE if t != "[MASK]"]), "lacks"),
    "128 too few": (lambda at: with_vocabulary(at, MORE[:-128]), "184 tokens, the model 312"),
    "127 too few": (lambda at: with_vocabulary(at, MORE[:-127]), None),
    "another padding": (
        lambda at: with_vocabulary(at, [*ORDER, *MORE[5:]], pad_token_id=0),
        "pad_token_id=0 in its configuration is '[UNK]', not '[PAD]'",
    ),
    "no padding": (lambda at: with_vocabulary(at, [*ORDER, *MORE[5:]], pad_token_id=None), None),
}


@pytest.mark.parametrize("change, words", DOUBTS.values(), ids=DOUBTS)
def test_a_tokenizer_that_may_not_fit_is_doubted(folder, change, words):
    change(folder)
    if words:
        assert_says(load_with_warning(folder)[1], [str(folder), words])
    else:
        load_quietly(folder)


GERMAN = [*TOKENS, "über", "schön"]
CASED = [*GERMAN, "Anna", "##Anna", "Paris"]


def with_words(tokens, **options):
    """A folder with these tokens, and a tokenizer of transformers; `...` leaves a setting out."""

    def change(folder):
        bert(vocab_size=len(tokens)).save_pretrained(folder)
        vocab = {token: place for place, token in enumerate(tokens)}
        given = {name: value for name, value in options.items() if value is not ...}
        BertTokenizerFast(vocab=vocab, **given).save_pretrained(folder)
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        settings = {name: value for name, value in settings.items() if options.get(name) is not ...}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))

    return change


def vocab_alone(tokens):
    vocabulary = text("vocab.txt", "\n".join(tokens))
    return after(with_words(tokens), gone("tokenizer*"), vocabulary)


def with_added(folder):
    with_words([*TOKENS, "[unused1]", "<S>", "Kyiv"])(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["Kyiv", "Covid"])
    bert(vocab_size=len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


LOWER, ACCENTS = '"do_lower_case": false', '"strip_accents": false'
CASES = {
    "cased, vocab.txt alone": (vocab_alone(CASED), ["4 words", "'Anna'", "lower-cases", LOWER]),
    "cased, not said": (with_words(CASED, do_lower_case=...), ["'Anna'", LOWER]),
    "cased, said otherwise": (with_words(CASED, do_lower_case=True), ["'Anna'", LOWER]),
    "cased, and kept": (with_words(CASED, do_lower_case=False), None),
    "cased, accents kept": (with_words(CASED, strip_accents=False), ["2 words", "'Anna'", LOWER]),
    "accents, vocab.txt alone": (vocab_alone(GERMAN), ["2 words", "'schön'", "accents", ACCENTS]),
    "accents, and kept": (with_words(GERMAN, strip_accents=False), None),
    "Hangul": (with_words([*TOKENS, "한국"]), ["'한국'", ACCENTS]),
    "Chinese words": (with_words([*TOKENS, "中国"]), ["'中国'", '"tokenize_chinese_chars": false']),
    "Chinese letters": (with_words([*TOKENS, "中", "国"]), None),
    "capitals kept, none known": (
        with_words(TOKENS, do_lower_case=False),
        ["keeps capital", '"do_lower_case": true'],
    ),
    "no letters of two cases": (with_words([*TOKENS[:5], "中"], do_lower_case=False), None),
    "marks, and words that were added": (with_added, None),
}


@pytest.mark.parametrize("change, words", CASES.values(), ids=CASES)
def test_a_tokenizer_that_changes_the_letters_of_its_vocabulary_is_doubted(folder, change, words):
    change(folder)
    if words:
        assert_says(load_with_warning(folder)[1], [str(folder), *words])
    else:
        load_quietly(folder)


# ------------------------------------------------------------------------------------ the hub


CACHED = ["acme/tiny", "acme/both", "acme/pickled", "acme/shards", "acme/broken"]
REFUSED = ["untokenized", "unconfigured", "gated", "gpt", "expired", "none"]
REFUSED = [f"acme/{name}" for name in REFUSED]
FAULTS = {"failing": "500", "mute": "timed out", "stalled": "timed out", "dropped": "complete"}
FAULTS |= {"page": "something else", "empty": "0 bytes instead of", "endless": "again and again"}
FAULTS = {f"acme/{kind}": why for kind, why in FAULTS.items()}
ONLINE = [*CACHED, *REFUSED, "none-at-all"]
AWAY = [*CACHED, "acme/parts", "acme/stump", "acme/never", "never"]
SILENT = ["acme/tiny", "acme/never"]  # of which the hub, later, says nothing at all
OFFERED = [name.removeprefix("acme/") for name in (*CACHED, "parts", *REFUSED[:4])]


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
    configure(root / "gpt", model_type="gpt2")
    return {
        f"acme/{name}": {file.name: file.read_bytes() for file in (root / name).iterdir()}
        for name in OFFERED
    }


@pytest.fixture(scope="module")
def hub(original, tmp_path_factory):
    """What a load gave, what one without a network gave in a new process, and what was asked."""
    root = tmp_path_factory.mktemp("hub")
    for name in ("broken", "stump"):  # what a download leaves that is broken off in the middle
        cache = root / "home" / "hub" / f"models--acme--{name}"
        (cache / "refs").mkdir(parents=True)
        (cache / "refs" / "main").write_text(COMMIT)
        (cache / "snapshots" / COMMIT).mkdir(parents=True)
        shutil.copy(original / "config.json", cache / "snapshots" / COMMIT)

    def ask(*calls, **environment):
        environment |= {"HF_HOME": str(root / "home"), "CALLS": json.dumps(calls)}
        return start("ask_checkpoints.py", environment)

    whole = {file.name: file.read_bytes() for file in original.iterdir()}
    offered = offer(original, root) | dict.fromkeys(FAULTS, whole)
    heavy = weights_of(original) | {"filler": torch.zeros(HEAVY // 4 + 1)}
    offered["acme/endless"] = whole | {SAFE: save(heavy, {"format": "pt"})}
    faults = {name: name.removeprefix("acme/") for name in FAULTS}
    only = {"gated": ["acme/gated"], "expired": ["acme/expired"], "faults": faults}
    with serve({}) as (closed, _):
        pass
    with serve(offered, **only) as (url, asked):
        # A second for what is 10 by default.
        hasty = {"PARTS_OF": "acme/parts", "HF_HUB_DOWNLOAD_TIMEOUT": "1"}
        online = ask(ONLINE, *([name] for name in FAULTS), HF_ENDPOINT=url, **hasty)
        found = {"online": answer_of(online)}
        faults.clear()
        faults.update(dict.fromkeys(SILENT, "silent"))
        away = {
            "down": ask(AWAY, HF_ENDPOINT=closed),
            "offline": ask(AWAY, HF_ENDPOINT=url, HF_HUB_OFFLINE="1"),
            "later": ask(list(FAULTS), *([name] for name in SILENT), HF_ENDPOINT=url),
        }
        found |= {state: answer_of(process) for state, process in away.items()}
    return found | {"asked": asked}


@pytest.mark.slow
@pytest.mark.parametrize("state", ["online", "down", "offline", "later"])
def test_hub_checkpoints_are_downloaded_and_then_open_without_a_network(hub, original, state):
    """Those that others have cached in part, too, and broken-off ones once they are completed.
    Later the faults are mended, and a hub that says nothing is no network."""
    model, tokenizer = load_checkpoint(original)
    expected = model(torch.tensor([tokenizer("a [MASK] abc").input_ids]))["logits"]
    names = {*CACHED, "acme/parts", *(FAULTS if state == "later" else ())}
    for name in names & hub[state].keys():
        assert len(hub[state][name]) == 1, hub[state][name]  # logits, or an error in three parts
        torch.testing.assert_close(torch.tensor(hub[state][name]), expected)


@pytest.mark.slow
def test_hub_files_that_are_not_needed_are_not_downloaded(hub):
    shards = [*(f"model-0000{i}-of-00004.safetensors" for i in (1, 2, 3, 4)), INDEX]
    for name, weights in {
        **{"acme/tiny": [SAFE], "acme/both": [SAFE], "acme/pickled": [PICKLE]},
        **{"acme/shards": shards, "acme/untokenized": [SAFE]},
    }.items():
        asked = [path for *call, path in hub["asked"] if call == [name, "GET"]]
        fetched = {path.split("/")[-1] for path in asked if not path.startswith("/api/")}
        assert fetched - {"tokenizer.json", "tokenizer_config.json"} == {"config.json", *weights}


@pytest.mark.slow
@pytest.mark.parametrize(
    "state, name, words",
    [
        ("online", "acme/none", ["acme/none", "no folder", "hub"]),
        ("online", "none-at-all", ["none-at-all", "no folder", "hub"]),
        ("online", "acme/gated", ["acme/gated", "hub", "gated repo"]),
        ("online", "acme/expired", ["acme/expired", "credentials"]),
        ("online", "acme/unconfigured", ["acme/unconfigured", "config.json"]),
        ("online", "acme/untokenized", ["acme--untokenized", "no tokenizer.json"]),
        ("online", "acme/gpt", ["acme--gpt", "'gpt2' model", "bert"]),
        *((state, "never", ["never", "hub"]) for state in ("down", "offline")),
        *((state, "acme/never", ["acme/never", "hub"]) for state in ("down", "offline", "later")),
        *((state, "acme/stump", ["stump", "model.safetensors"]) for state in ("down", "offline")),
        *(("online", name, [name, "hub", why]) for name, why in FAULTS.items()),
    ],
)
def test_hub_failures_are_one_sentence(hub, state, name, words):
    _, is_os_error, message = hub[state][name]
    assert is_os_error == (name != "acme/gpt") and "\n" not in message
    assert_says(message, words)


# ------------------------------------------------------------------------------------ ModernBERT


def fast_tokenizer(size=tiny_modern.V):
    """A tokenizer as ModernBERT's: special tokens are kept apart, at the end."""
    made = Tokenizer(models.WordLevel({f"w{i}": i for i in range(size - 5)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {f"{name}_token": f"[{name.upper()}]" for name in "unk cls sep pad mask".split()}
    names = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=made, **special, model_input_names=names)


@pytest.fixture
def modern(tmp_path):
    tokenizer = fast_tokenizer()
    theirs = tiny_modern.modern_bert(pad_token_id=tokenizer.pad_token_id).float()
    theirs.save_pretrained(tmp_path / "modern")
    tokenizer.save_pretrained(tmp_path / "modern")
    return tmp_path / "modern"


def assert_same_modern(model, folder):
    theirs = ModernBertForMaskedLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.randint(tiny_modern.V, (3, 20), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(20) < torch.tensor([[20], [11], [4]])).long()
    with torch.no_grad():
        ours, expected = model(ids, mask)["logits"], theirs(ids, attention_mask=mask).logits
    torch.testing.assert_close(ours[mask > 0], expected[mask > 0], rtol=1e-4, atol=1e-4)


def test_a_modernbert_opens_with_its_logits_and_its_own_tokenizer(modern, capfd):
    model, tokenizer = load_quietly(modern)
    assert "token_id" not in capfd.readouterr().err
    assert_same_modern(model, modern)
    assert isinstance(model.embedder, ModernEncoder) and not model.training
    assert tokenizer("w3 w4 w0 [MASK]")["input_ids"] == [3, 4, 0, tokenizer.mask_token_id]


def test_a_configuration_from_before_transformers_5_opens(modern):
    """Such as that of answerdotai/ModernBERT-base on the hub."""
    configure(modern, layer_types=..., rope_parameters=..., global_attn_every_n_layers=2)
    old = {"position_embedding_type": "absolute", "reference_compile": True}
    configure(modern, global_rope_theta=90.0, local_rope_theta=8.0, **old)
    model, _ = load_quietly(modern)
    config = model.embedder.config
    assert (config.global_theta, config.local_theta, config.global_every) == (90.0, 8.0, 2)
    assert_same_modern(model, modern)


@pytest.mark.parametrize("tied", [True, False])
def test_a_saved_modernbert_opens_with_transformers_and_comes_back_exactly(tmp_path, tied):
    tokenizer = fast_tokenizer()
    changes = {"pad_token_id": tokenizer.pad_token_id, "tie_word_embeddings": tied}
    ours = from_hf(tiny_modern.modern_bert(**changes).float())
    save_pretrained(ours, tokenizer, tmp_path)
    assert_same_modern(ours, tmp_path)
    again, _ = load_quietly(tmp_path)
    assert again.embedder.config == ours.embedder.config and again.head.tied == tied
    for name, weight in ours.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight), name
    assert AutoConfig.from_pretrained(tmp_path).sep_token_id == tokenizer.sep_token_id


@pytest.mark.parametrize("prefix", ["model.", "_orig_mod.", "module.model."])
def test_what_a_trainer_puts_before_the_names_of_a_modernbert_is_taken_off(modern, prefix):
    expected = load_quietly(modern)[0].state_dict()
    under(prefix)(modern)
    found = load_quietly(modern)[0].state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_with_our_tokenizer_the_pipeline_of_transformers_fills_blanks(tmp_path):
    model = MaskedLanguageModel.from_config(ModernConfig(len(TOKENS), 8, 3, 2, 12, window=4))
    save_pretrained(model.eval(), wordpiece(), tmp_path)
    assert len(pipeline("fill-mask", str(tmp_path))("a b [MASK] c")) == 5
    assert "token_type_ids" not in AutoTokenizer.from_pretrained(tmp_path)("a b")
    load_quietly(tmp_path)


@pytest.mark.parametrize("every, layers", [(1, 4), (2, 5), (3, 1), (3, 7), (9, 4)])
def test_the_rhythm_of_global_layers_comes_back(every, layers):
    config = ModernConfig(tiny_modern.V, tiny_modern.H, layers, 3, 20, global_every=every)
    theirs = to_hf(MaskedLanguageModel.from_config(config))
    assert from_hf(theirs).embedder.config == config
    theirs.config.global_attn_every_n_layers = 77  # it is read from the kinds of layers alone
    kinds = from_hf(theirs).embedder.config
    assert [kinds.half_window(i) for i in range(layers)] == [
        config.half_window(i) for i in range(layers)
    ]


OTHERS = {
    "biases in attention": ({"attention_bias": True}, "query_key_value.bias"),
    "shifting norms": ({"norm_bias": True}, "norm.bias"),
    "a head with biases": ({"classifier_bias": True}, "head.dense.bias"),
    "another activation": ({"hidden_activation": "silu"}, "hidden_activation='silu'.*'gelu'"),
    "layers without rhythm": (
        {"layer_types": ["sliding_attention"] + ["full_attention"] * 3},
        "layer_types=",
    ),
    "stretched positions": ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "linear"),
    "no window": ({"local_attention": 0}, "window=0"),
}


@pytest.mark.parametrize("changes, words", OTHERS.values(), ids=OTHERS)
def test_a_model_that_is_no_plain_modernbert_is_refused(changes, words):
    with pytest.raises((ValueError, RuntimeError), match=words):
        from_hf(ModernBertForMaskedLM(tiny_modern.modern_config(**changes)))


# ------------------------------------------------------------------------------------ saving


@pytest.fixture
def ours(original):
    return load_checkpoint(original)[0]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", ["ours", "theirs"])
def test_a_saved_checkpoint_opens_with_transformers_and_is_the_same(tmp_path, kind, tied):
    write(tmp_path / "first", bert(tie_word_embeddings=tied))
    ours = load_quietly(tmp_path / "first")[0]
    words = BertTokenizerFast(vocab={t: i for i, t in enumerate(TOKENS)}, model_max_length=7)
    tokenizer = words if kind == "theirs" else wordpiece()
    save_pretrained(ours, tokenizer, tmp_path / "second")
    assert_same_logits(ours, tmp_path / "second")
    reopened = load_quietly(tmp_path / "second")[0]
    assert vars(reopened.embedder.config) == vars(ours.embedder.config)
    for name, weight in ours.state_dict().items():
        assert torch.equal(reopened.state_dict()[name], weight), name
    again = AutoTokenizer.from_pretrained(tmp_path / "second")
    assert again(TEXTS)["input_ids"] == [wordpiece().encode(text) for text in TEXTS]
    assert again.model_max_length == (7 if kind == "theirs" else 20)
    vocab = ["vocab.txt"] if kind == "ours" else []
    assert sorted(os.listdir(tmp_path / "second")) == sorted(FILES + vocab)
    modes = {file.stat().st_mode for file in (tmp_path / "second").iterdir()}
    assert len(modes) == 1  # whoever may read one file may read all


@pytest.mark.parametrize("lowercase", [True, False])
def test_the_case_that_our_tokenizer_keeps_is_kept_on_disk(ours, tmp_path, lowercase):
    vocab = {t: i for i, t in enumerate([*TOKENS, "A", "É"])}
    tokenizer = WordPieceTokenizer(vocab, lowercase=lowercase)
    save_pretrained(ours, tokenizer, tmp_path / "saved")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if lowercase else "error")
        reopened = load_checkpoint(tmp_path / "saved")[1]
        again = WordPieceTokenizer.from_vocab(tmp_path / "saved")
    for sample in ("A a É e", "abc ABC"):
        assert reopened(sample)["input_ids"] == tokenizer.encode(sample) == again.encode(sample)
    assert (again.vocab, again.lowercase) == (vocab, lowercase)


@pytest.mark.parametrize("dropout, attention", [(0.1, None), (0.0, None), (0.2, 0.1), (0.1, 0.0)])
def test_attention_follows_the_dropout_of_a_loaded_model_unless_it_has_its_own(
    tmp_path, dropout, attention
):
    sizes = (len(TOKENS), 8, 1, 2, 12)
    config = EncoderConfig(*sizes, dropout=dropout, attention_dropout=attention)
    save_pretrained(MaskedLanguageModel.from_config(config), wordpiece(), tmp_path)
    again = load_quietly(tmp_path)[0].embedder.config
    assert again == config
    assert replace(again, dropout=0.3).attention_dropout_p == (
        0.3 if attention is None else attention
    )
    assert (
        AutoConfig.from_pretrained(tmp_path).attention_probs_dropout_prob
        == config.attention_dropout_p
    )


def test_a_tied_matrix_is_written_once_and_in_the_dtype_of_the_model(ours, tmp_path):
    save_pretrained(ours.half(), wordpiece(), tmp_path / "saved")
    found = weights_of(tmp_path / "saved")
    assert WORD in found and DECODER not in found
    assert {weight.dtype for weight in found.values()} == {torch.float16}
    untied = MaskedLanguageModel(ours.embedder, MaskedLMHead(8, 16))
    save_pretrained(untied, wordpiece(), tmp_path / "saved")
    assert {WORD, DECODER} <= weights_of(tmp_path / "saved").keys()


def test_saving_changes_neither_the_model_nor_the_random_numbers(ours, tmp_path):
    before = copy.deepcopy(ours.train().state_dict())
    state = torch.random.get_rng_state()
    save_pretrained(ours, wordpiece(), tmp_path / "saved")
    assert ours.training and torch.equal(torch.random.get_rng_state(), state)
    for name, weight in ours.state_dict().items():
        assert torch.equal(weight, before[name]), name


def test_other_files_of_the_folder_stay_and_stale_weights_do_not(ours, folder):
    mine = ["README.md", "log/2024/loss.txt", "tokenizer_notes.json"]
    mine += ["model-best.safetensors", "pytorch_model-old.bin"]  # which only resemble shards
    stale = [PICKLE, "pytorch_model-00001-of-00002.bin", INDEX, "special_tokens_map.json"]
    stale += ["model-00001-of-00002.safetensors", "added_tokens.json"]
    for name in [*mine, *stale, "generation_config.json"]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    with open(folder / "log.txt", "w") as log:
        save_pretrained(ours, wordpiece(), folder)
        log.write("saved\n")
    found = contents(folder)
    assert {name: found.pop(name) for name in mine} == {name: name.encode() for name in mine}
    assert found.pop("log.txt") == b"saved\n"
    assert sorted(found) == sorted([*FILES, "vocab.txt", "log", "log/2024"])
    assert_same_logits(ours, folder)


@pytest.mark.parametrize("form", ["a/b/c", "~/here", "link", "."])
def test_a_folder_to_save_to_may_be_named_in_every_usual_way(ours, tmp_path, monkeypatch, form):
    home = tmp_path / "home"
    (home / "there").mkdir(parents=True)
    (home / "link").symlink_to("there")
    monkeypatch.chdir(home)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    for _ in range(2):  # the second takes the place of the first
        save_pretrained(ours, wordpiece(), form)
    there = {"~/here": "here", "link": "there"}.get(form, form)
    assert torch.equal(logits_of(load_quietly(home / there)[0]), logits_of(ours))
    assert os.readlink(home / "link") == "there" and os.path.samefile(".", home)
    assert [path.name for path in tmp_path.rglob(".*")] == []


def gelu(x):
    return nn.functional.gelu(x, approximate="tanh")


def adapted(encoder):
    """An encoder with one more layer, whose weights no model of transformers has."""
    encoder.blocks[0].adapter = nn.Linear(8, 8)
    return encoder


UNUSUAL = {
    "a contextualizer": lambda ours: (ours.embedder, ours.head, nn.Identity()),
    "another activation": lambda ours: (ours.embedder, MaskedLMHead(8, 16, activation="relu")),
    "another one of its name": lambda ours: (ours.embedder, MaskedLMHead(8, 16, activation=gelu)),
    "another eps": lambda ours: (ours.embedder, MaskedLMHead(8, 16, layer_norm_eps=0.1)),
    "no biases": lambda ours: (ours.embedder, MaskedLMHead(8, 16, bias=False)),
    "an adapter in a block": lambda ours: (adapted(ours.embedder), ours.head),
    "no segment embeddings": lambda ours: (
        BertEncoder(replace(ours.embedder.config, type_vocab_size=0)),
        MaskedLMHead(8, 16),
    ),
    "tied elsewhere": lambda ours: (
        ours.embedder,
        MaskedLMHead(8, token_embedding=nn.Embedding(16, 8)),
    ),
}


@pytest.mark.parametrize("parts", UNUSUAL.values(), ids=UNUSUAL)
def test_a_model_that_transformers_has_no_class_for_is_refused_before_anything_is_written(
    ours, tmp_path, parts
):
    with pytest.raises(ValueError, match="torch.save"):
        save_pretrained(MaskedLanguageModel(*parts(ours)), wordpiece(), tmp_path / "a" / "b")
    assert contents(tmp_path) == {}


class Classifier(nn.Module):
    """As lesson 17 has one: an encoder, and a linear layer on the state of [CLS]."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(8, 2)


OTHER_MODULES = {
    "Classifier": lambda ours: Classifier(ours.embedder),
    "BertEncoder": lambda ours: ours.embedder,
    "Linear": lambda ours: nn.Linear(8, 8),
    "OptimizedModule": lambda ours: torch.compile(ours, backend="eager"),
    "DataParallel": lambda ours: nn.DataParallel(ours),
    "BertForMaskedLM": to_hf,
    "LanguageModel": lambda ours: LanguageModel(
        16, nn.Embedding(16, 8), LSTMContextualizer(8, 8, 1, bidirectional=False)
    ),
    "MaskedLanguageModel": lambda ours: MaskedLanguageModel(nn.Embedding(16, 8), ours.head),
    "MaskedLanguageModel with another head": lambda ours: MaskedLanguageModel(
        ours.embedder, nn.Linear(8, 16)
    ),
}


@pytest.mark.parametrize(
    "kind", ["RobertaForMaskedLM", "BertForSequenceClassification", "BertModel"]
)
def test_a_model_of_another_class_is_not_taken_for_a_masked_bert(kind):
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 8, "vocab_size": 40}
    make = getattr(transformers, kind)
    with pytest.raises(ValueError, match=f"from_hf got a {kind}; a BertForMaskedLM or"):
        from_hf(make(make.config_class(**sizes)))
    with pytest.raises(ValueError, match="from_hf got a Linear;"):
        from_hf(torch.nn.Linear(2, 2))


@pytest.mark.parametrize("name", OTHER_MODULES)
def test_a_module_that_is_no_masked_bert_is_refused_by_its_name(ours, tmp_path, name):
    other = OTHER_MODULES[name](ours)
    for door in (to_hf, lambda model: save_pretrained(model, wordpiece(), tmp_path / "a")):
        with pytest.raises(ValueError) as caught:
            door(other)
        assert_says(caught.value, [f"this {name.split()[0]};", "MaskedLanguageModel", "torch.save"])
    assert contents(tmp_path) == {}


def test_a_tokenizer_larger_than_the_model_is_refused_before_anything_is_written(ours, tmp_path):
    with pytest.raises(ValueError, match="up to 22, .*16.*resize_token_embeddings"):
        save_pretrained(ours, MANY, tmp_path / "saved")
    assert contents(tmp_path) == {}


# ------------------------------------------------------------------------------------ new words


@pytest.mark.slow
@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("place", ["over the old folder", "elsewhere"])
def test_words_added_through_transformers_are_read_and_trained_on(
    tmp_path, monkeypatch, lowercase, place
):
    monkeypatch.chdir(tmp_path)
    words = "the a cat dog sees likes".split()
    known = wordpiece([*TOKENS[:5], *words, *([] if lowercase else ["The"])]).vocab
    config = EncoderConfig(len(known), 8, 1, 2, 12, max_length=20)
    before = MaskedLanguageModel.from_config(config)
    save_pretrained(before, WordPieceTokenizer(known, lowercase=lowercase), "old")

    tokenizer = AutoTokenizer.from_pretrained("old")
    assert tokenizer.add_tokens(["zebra", "Quokka"]) == 2
    theirs = BertForMaskedLM.from_pretrained("old")
    theirs.resize_token_embeddings(len(tokenizer))
    folder = "old" if place == "over the old folder" else "new"
    theirs.save_pretrained(folder)
    tokenizer.save_pretrained(folder)

    model, opened = load_quietly(folder)
    assert opened.tokenize("The zebra likes a Quokka")[1:4] == ["zebra", "likes", "a"]
    assert opened.encode("Quokka", add_special_tokens=False) == [len(known) + 1]
    rows = model.embedder.embeddings.word.weight
    assert len(rows) == len(known) + 2 == model.head.vocab_size
    assert torch.equal(rows[: len(known)], before.embedder.embeddings.word.weight)
    with pytest.raises((ValueError, FileNotFoundError), match="added_tokens=.*Quokka"):
        WordPieceTokenizer.from_vocab(folder)  # which would cut them

    with open("corpus.txt", "w") as file:
        file.writelines(f"the zebra likes a {who} .\n" for who in 20 * ["Quokka", "cat", "dog"])
    training = {"steps": 3, "batch_size": 8, "learning_rate": 1e-2, "device": "cpu"}
    recipe = {"data": [{"corpus": "corpus.txt"}], "model": {"from": folder, "dropout": 0.3}}
    trained, _, _ = pretrain(recipe | {"training": training}, "out")
    assert trained.embedder.blocks[0].attention.dropout == 0.3
    again, reopened = load_quietly("out/model")
    assert reopened.get_vocab() == opened.get_vocab()
    moved = (again.embedder.embeddings.word.weight - rows).abs().amax(1)
    assert moved[opened.convert_tokens_to_ids("zebra")] > 1e-3


# ------------------------------------------------------------------------------------ whole


FULL = OSError(28, "No space left on device")
STEPS = {
    "weights": (BertForMaskedLM, "save_pretrained"),
    "their tokenizer": (PreTrainedTokenizerBase, "save_pretrained"),
    "our tokenizer": (WordPieceTokenizer, "save"),
    "the flush": (os, "fsync"),
}


@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt()], ids=["full", "interrupt"])
@pytest.mark.parametrize("owner, step", STEPS.values(), ids=STEPS)
def test_a_save_that_fails_leaves_the_old_folder_and_nothing_else(
    ours, folder, monkeypatch, owner, step, error
):
    (folder / "log").mkdir()
    (folder / "log" / "loss.txt").write_text("1.0")
    before, original = contents(folder.parent), getattr(owner, step)

    def failing(*args, **options):
        original(*args, **options)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(owner, step, failing)
        for place in (folder, folder.parent / "first"):
            with pytest.raises(type(error)):
                save_pretrained(ours, wordpiece(), place)
    assert contents(folder.parent) == before
    save_pretrained(ours, wordpiece(), folder)
    assert torch.equal(load_quietly(folder)[0].head.bias, ours.head.bias)


@pytest.fixture(scope="module")
def crashes(tmp_path_factory):
    """What stood in the folder after kills at each step and at random, and on a full disk."""
    root = tmp_path_factory.mktemp("crash") / "root"
    root.mkdir()
    environment = {"ROOT": str(root), "TOKENIZERS_PARALLELISM": "false"}
    return answer_of(start("crash_saving.py", environment))


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
