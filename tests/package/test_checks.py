"""One guard for each kind of argument, and one table of doors: what no door lets through."""

import math

import numpy as np
import pytest
import torch
import torch.nn as nn
from toys import tokenizer_of

from mlm_lib import checks
from mlm_lib.corpus import load_corpus, pack_blocks
from mlm_lib.encoder import BertEncoder, EncoderConfig, drop
from mlm_lib.engine.batches import BatchSampler
from mlm_lib.evaluation import calibration, fill_mask, masked_accuracy
from mlm_lib.evaluation import pseudo_log_likelihood as pll
from mlm_lib.grammar import Grammar
from mlm_lib.heads import MaskedLMHead
from mlm_lib.language_model import LanguageModel, LSTMContextualizer
from mlm_lib.leakage import find_leaks
from mlm_lib.losses import masked_cross_entropy
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.masking import MaskingCollator, mask_tokens
from mlm_lib.pretrained import load_checkpoint
from mlm_lib.softmax import SampledSoftmaxLoss, SoftmaxLoss, log_uniform_sample
from mlm_lib.training import HeldOut, ShowPredictions, TrainingConfig
from mlm_lib.wordpiece import WordPieceTokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

NAN = math.nan
# What would be computed with in silence, or what a command line may hold, kind by kind.
BAD = {
    "size": (0, -1),
    "count": (-1,),
    "probability": (-0.1, 1.1, NAN),
    "number of 0 or more": (-0.1, math.inf, NAN),
    "number above 0": (0, -0.1, math.inf, NAN),
    "name": ("nonsense", ""),
    "path": ("", "  "),
    "texts": ("a",),  # would be read letter by letter
    "ids": (torch.ones(2, 3), torch.full((2, 3), 99)),
    "labels": (torch.ones(2, 3), torch.full((2, 3), 99), torch.full((2, 1), 1)),
    "mask": (torch.ones(2, 4), torch.ones(6), torch.full((2, 3), 7)),
}

TOKENIZER = tokenizer_of(*"abcdefgh", "##a")
IDS = torch.tensor([[2, 5, 3], [2, 6, 3]])
TINY = MaskedLanguageModel.from_config(EncoderConfig(14, 8, 1, 2, 16, max_length=8))
GRAMMAR = Grammar.load(worlds="films")
STORIES = GRAMMAR.sample(2)
READER = LSTMContextualizer(4, 4, 1, bidirectional=False)
CHANCES = torch.full((3, 14), 1 / 14)


def encoder(**changes):
    sizes = {"hidden_size": 8, "num_layers": 1, "num_heads": 2, "intermediate_size": 16}
    return BertEncoder(EncoderConfig(**{"vocab_size": 14} | sizes | changes))


def mask(**changes):
    given = {"mask_token_id": 4, "random_token_ids": [5, 6], "special_tokens_mask": IDS < 5}
    return mask_tokens(IDS, **given | changes)


def masks(**changes):
    return MaskingCollator(TOKENIZER, **changes)


def model(**changes):
    return MaskedLanguageModel(TINY.embedder, TINY.head, **changes)


def language_model(**changes):
    return LanguageModel(14, nn.Embedding(14, 4), READER, **changes)


def options(door, kind, *names):
    """Doors of one function, whose arguments are passed by name."""
    return {name: (kind, lambda value, name=name: door(**{name: value})) for name in names}


# (whose door, {the argument's name: (its kind, how it gets there)})
DOORS = [
    ("encoder", options(encoder, "size", "vocab_size", "hidden_size", "num_layers", "num_heads")),
    ("encoder", options(encoder, "size", "intermediate_size", "max_length")),
    ("encoder", options(encoder, "probability", "dropout")),
    ("encoder", options(encoder, "number of 0 or more", "layer_norm_eps")),
    ("encoder", options(encoder, "name", "activation")),
    ("encoder", {"input_ids": ("ids", TINY.embedder)}),
    ("encoder", {"attention_mask": ("mask", lambda v: TINY.embedder(IDS, v))}),
    ("drop", {"p": ("probability", lambda v: drop(torch.ones(3), v))}),
    ("head", options(lambda **kw: MaskedLMHead(4, 5, **kw), "name", "activation")),
    ("model", options(model, "size", "top_k")),
    ("model", {"input_ids": ("ids", TINY)}),
    ("model", {"attention_mask": ("mask", lambda v: TINY(IDS, v))}),
    ("model", {"labels": ("labels", lambda v: TINY(IDS, labels=v))}),
    ("LM", options(language_model, "size", "num_samples")),
    ("LM", {"input_ids": ("ids", lambda v: language_model()(v))}),
    ("LM", {"mask": ("mask", lambda v: language_model()(IDS, v))}),
    ("leaks", {"direction": ("name", lambda v: find_leaks(READER, 4, direction=v))}),
    ("mask_tokens", options(mask, "probability", "rate", "mask_share", "random_share")),
    ("collator", options(masks, "probability", "rate", "mask_share", "random_share")),
    ("collator", options(masks, "name", "strategy") | options(masks, "size", "pad_to_multiple_of")),
    ("softmax", {"targets": ("count", lambda v: SoftmaxLoss(9, 14)(CHANCES, IDS[0] * v))}),
    ("loss", {"labels": ("labels", lambda v: masked_cross_entropy(torch.zeros(2, 3, 14), v))}),
    ("softmax", {"num_samples": ("size", lambda v: SampledSoftmaxLoss(9, 3, v))}),
    ("sample", {"num_samples": ("size", lambda v: log_uniform_sample(9, v))}),
    ("corpus", {"source": ("path", load_corpus)}),
    ("corpus", {"split": ("name", lambda v: load_corpus("reviews", v))}),
    ("blocks", {"block_size": ("size", lambda v: pack_blocks([[5, 6]], v, cls_id=2, sep_id=3))}),
    ("wordpiece", {"vocab_size": ("size", lambda v: WordPieceTokenizer.train(["a b"], v))}),
    ("wordpiece", {"path": ("path", WordPieceTokenizer.from_vocab)}),
    ("grammar", {"n": ("count", GRAMMAR.sample)}),
    ("grammar", {"rate": ("probability", lambda v: GRAMMAR.floor(STORIES, rate=v))}),
    ("grammar", {"objective": ("name", lambda v: GRAMMAR.floor(STORIES, objective=v))}),
    *(
        ("training", options(lambda **kw: TrainingConfig(**{"steps": 1} | kw), kind, *names))
        for kind, names in {
            "size": "steps batch_size log_every keep checkpoint_every".split()
            + ["gradient_accumulation_steps"],
            "number above 0": ("learning_rate", "max_grad_norm", "seconds", "checkpoint_seconds"),
            "number of 0 or more": ("warmup", "weight_decay"),
            "name": ("schedule", "precision", "optimizer"),
        }.items()
    ),
    ("sampler", {"batch_size": ("size", lambda v: BatchSampler([[1]], v))}),
    ("held out", {"batch_size": ("size", lambda v: HeldOut([[2, 5, 3]], masks(), batch_size=v))}),
    ("show", {"every": ("size", lambda v: ShowPredictions(TOKENIZER, ["a [MASK]"], every=v))}),
    ("fill_mask", {"top_k": ("size", lambda v: fill_mask(TINY, TOKENIZER, "a [MASK]", top_k=v))}),
    ("likelihood", {"texts": ("texts", lambda v: pll(TINY, TOKENIZER, v))}),
    (
        "accuracy",
        {"top_k": ("size", lambda v: masked_accuracy(TINY, [masks()([[5, 6]])], top_k=v))},
    ),
    ("calibration", {"bins": ("size", lambda v: calibration(CHANCES, IDS[0], bins=v))}),
    ("calibration", {"targets": ("ids", lambda v: calibration(CHANCES, v[0]))}),
    ("checkpoint", {"name": ("path", load_checkpoint)}),
    ("checkpoint", {"device": ("name", lambda v: load_checkpoint(device=v))}),
]
ROWS = {f"{door}-{name}": (name, *row) for door, rows in DOORS for name, row in rows.items()}


@pytest.mark.parametrize("name, kind, call", ROWS.values(), ids=ROWS)
def test_no_door_lets_through_what_would_be_computed_with_in_silence(name, kind, call):
    for value in BAD[kind]:
        with pytest.raises((ValueError, TypeError, RuntimeError, IndexError)) as caught:
            call(value)
            pytest.fail(f"{name}={value!r} was accepted")
        if type(caught.value) is ValueError:  # ours, and not torch's or Python's
            assert name in str(caught.value)


# ------------------------------------------------------------------------------------ the guards


def test_a_guard_returns_a_plain_python_number():
    for guard, value in (checks.whole_number, np.int64(3)), (checks.number, np.float32(0.5)):
        assert guard("x", value) == value and type(guard("x", value)) in (int, float)


@pytest.mark.parametrize("wrong", [True, "1", None, [1], NAN, math.inf, torch.ones(2)], ids=str)
def test_what_is_no_number_is_refused(wrong):
    with pytest.raises(ValueError, match="^x=.*; a whole number of at least 1 is needed$"):
        checks.whole_number("x", wrong)
    with pytest.raises(ValueError, match="^x=.*; a finite number is needed$"):
        checks.number("x", wrong)


def test_bounds_are_met_and_named():
    assert checks.whole_number("x", 3, 3, 3) == 3 and checks.whole_number("x", -3, None) == -3
    assert checks.whole_number("x", None, none=True) is checks.number("x", None, none=True) is None
    for guard, value, limits, wanted in [
        (checks.whole_number, 2, {"least": 3, "most": 5}, "a whole number from 3 to 5"),
        (checks.whole_number, 6, {"least": 3, "most": 5}, "a whole number from 3 to 5"),
        (checks.whole_number, 1.0, {}, "a whole number of at least 1"),
        (checks.number, 0, {"above": 0}, "a finite number above 0"),
        (checks.number, -1, {"least": 0}, "a finite number of at least 0"),
        (checks.number, 10**400, {}, "a finite number"),
        (checks.probability, 1.1, {}, "a number from 0 to 1"),
    ]:
        with pytest.raises(ValueError, match=f"^x={checks.shown(value)}; {wanted} is needed$"):
            guard("x", value, **limits)


def test_the_two_shares_leave_room_for_each_other():
    assert checks.shares(0.7, 0.3) == (0.7, 0.3)
    with pytest.raises(ValueError, match="mask_share=0.8 and random_share=0.3 sum to more than 1"):
        checks.shares(0.8, 0.3)


def test_a_long_value_is_cut_and_a_tensor_is_described():
    assert len(checks.shown("a" * 1000)) == 80
    assert checks.shown(torch.ones(2, 3)) == "a torch.float32 tensor (2, 3)"


def test_ids_are_looked_at_where_that_is_free_and_left_alone_elsewhere(monkeypatch):
    for size, ignore in ((6, None), (7, -1)):
        with pytest.raises(ValueError, match="x holds (6|-1)"):
            checks.ids("x", torch.tensor([[-1, 6]]), size=size, ignore=5 if ignore is None else 0)
    checks.ids("x", torch.tensor([[-100, 5]]), size=6, ignore=-100)
    monkeypatch.setattr(checks, "can_read_without_sync", lambda tensor: False)
    checks.ids("x", torch.tensor([[9]]), size=6)


@pytest.mark.parametrize("axes, shape", [(2, "(B, T)"), (1, "(N,)"), (0, "()"), (5, "(...)")])
def test_a_tensor_has_as_many_axes_as_its_shape_names(axes, shape):
    assert checks.tensor("x", torch.ones([1] * axes), shape).dim() == axes
    if "..." not in shape:
        with pytest.raises(ValueError, match="x="):
            checks.tensor("x", torch.ones([1] * (axes + 1)), shape)


def test_auto_is_cuda_or_the_cpu_and_never_anything_else(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert checks.torch_device("DEVICE", "auto") == torch.device("cpu")


@pytest.mark.parametrize("device", ["meta", "cuda:99", "tpu", None, 1.5])
def test_a_device_without_tensors_to_look_at_is_refused(device):
    with pytest.raises(ValueError, match="DEVICE="):
        checks.torch_device("DEVICE", device)
