"""One guard for each kind of argument, and every public door behind one."""

import math

import numpy as np
import pytest
import torch
import torch.nn as nn
from toys import tokenizer_of

from mlm_lib import checks
from mlm_lib.corpus import load_corpus, pack_blocks
from mlm_lib.encoder import BertEncoder, Dropout, EncoderConfig, drop
from mlm_lib.engine.batches import Order
from mlm_lib.engine.checkpoints import Checkpoints
from mlm_lib.engine.padding import pad_examples
from mlm_lib.evaluation import (
    Answers,
    by_frequency,
    calibration,
    closed_gap,
    fill_mask,
    masked_accuracy,
    masked_answers,
    masked_loss,
    pseudo_log_likelihood,
    pseudo_perplexity,
)
from mlm_lib.grammar import Grammar
from mlm_lib.heads import MaskedLMHead
from mlm_lib.labels import labels_to_positions, labels_to_targets, positions_to_labels
from mlm_lib.language_model import (
    LanguageModel,
    LanguageModelEmbedder,
    LSTMContextualizer,
    TransformerContextualizer,
)
from mlm_lib.leakage import find_leaks
from mlm_lib.losses import masked_cross_entropy
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.masking import BatchSeeds, MaskingCollator, draw_spans, mask_tokens
from mlm_lib.pretrain import Documents, Texts, pretrain
from mlm_lib.pretrained import load_checkpoint, save_pretrained
from mlm_lib.softmax import SampledSoftmaxLoss, SoftmaxLoss, log_uniform_sample
from mlm_lib.training import HeldOut, ShowPredictions, TrainingConfig, train
from mlm_lib.wordpiece import WordPieceTokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

NAN = math.nan
NO_NUMBER = (True, "1", None, NAN, [1], torch.ones(2))
# What each kind of argument must refuse, whatever the door.
BAD = {
    "size": (*NO_NUMBER, 0, -1, 1.5, math.inf),
    "count": (*NO_NUMBER, -1, 1.5, math.inf),
    "size or None": (True, "1", NAN, [1], 0, -1, 1.5),
    "count or None": (True, "1", NAN, [1], -1, 1.5),
    "any whole number": (True, "1", NAN, [1], 1.5),
    "probability": (*NO_NUMBER, -0.1, 1.1, math.inf),
    "number of 0 or more": (*NO_NUMBER, -0.1, math.inf),
    "finite number": (*NO_NUMBER, math.inf, -math.inf),
    "number above 0": (*NO_NUMBER, 0, -0.1, math.inf),
    "flag": ("yes", 1, 0, None, torch.tensor(True)),
    "name": ("nonsense", "", None, 3, ["linear"]),
    "path": ("", "  ", None, 3, ["folder"]),
    "function": ("evaluate", 3, {}),
    "text": (None, 3, [3], [None], b"a"),
    "texts": ("a", b"a", None, 3),
    "batches": (None, 3, "batches", {"labels": []}, [{"input_ids": []}], [torch.ones(2, 3)]),
    "counts": (None, "1", [0.5] * 14, [-1] * 14, [[1] * 14], {5: 1}),
    "ids": ([[1, 2]], None, "ids", torch.ones(2, 3), torch.ones(2, 3).bool(), torch.tensor(1)),
    "floats": ([[1.0]], None, torch.ones(2, 3).long(), torch.ones(2, 3).bool()),
    "mask": ([[1, 1, 1]] * 2, "mask", torch.ones(2, 4), torch.ones(6), torch.full((2, 3), 7)),
}

TOKENIZER = tokenizer_of(*"abcdefgh", "##a")
IDS = torch.tensor([[2, 5, 3], [2, 6, 3]])
CONFIG = EncoderConfig(14, 8, 1, 2, 16, max_length=8)
TINY = MaskedLanguageModel.from_config(CONFIG)
GRAMMAR = Grammar.load(worlds="films")
READER = LSTMContextualizer(4, 4, 1, bidirectional=False)
ANSWERS = Answers(IDS[0], torch.ones(3).double(), IDS[0], torch.zeros(3).long())
CHANCES = torch.full((3, 14), 1 / 14)


def config(**changes):
    return TrainingConfig(**{"steps": 1} | changes)


def encoder_config(**changes):
    sizes = {"hidden_size": 8, "num_layers": 1, "num_heads": 2, "intermediate_size": 16}
    return EncoderConfig(**{"vocab_size": 14} | sizes | changes)


def mask(ids=IDS, **changes):
    special = torch.zeros(2, 3).bool()
    given = {"mask_token_id": 4, "random_token_ids": [5, 6], "special_tokens_mask": special}
    return mask_tokens(ids, **given | changes)


def collator(**changes):
    return MaskingCollator(TOKENIZER, **changes)


def run(**changes):
    return train(TINY, [[2, 5, 3]] * 4, collator(), config(), **changes)


def language_model(**changes):
    return LanguageModel(14, nn.Embedding(14, 4), READER, **changes)


# (door, the argument's name, its kind, how it gets there)
DOORS = [
    *(
        (EncoderConfig, name, "size", lambda value, name=name: encoder_config(**{name: value}))
        for name in ("vocab_size", "hidden_size", "num_layers", "num_heads", "intermediate_size")
    ),
    (EncoderConfig, "max_length", "size", lambda v: encoder_config(max_length=v)),
    (EncoderConfig, "dropout", "probability", lambda v: encoder_config(dropout=v)),
    (
        EncoderConfig,
        "layer_norm_eps",
        "number of 0 or more",
        lambda v: encoder_config(layer_norm_eps=v),
    ),
    (EncoderConfig, "activation", "name", lambda v: encoder_config(activation=v)),
    (BertEncoder.forward, "input_ids", "ids", lambda v: TINY.embedder(v)),
    (BertEncoder.forward, "attention_mask", "mask", lambda v: TINY.embedder(IDS, v)),
    (MaskedLMHead, "hidden_size", "size", lambda v: MaskedLMHead(v, 5)),
    (MaskedLMHead, "vocab_size", "size or None", lambda v: MaskedLMHead(4, v)),
    (
        MaskedLMHead,
        "layer_norm_eps",
        "number of 0 or more",
        lambda v: MaskedLMHead(4, 5, layer_norm_eps=v),
    ),
    (MaskedLMHead.forward, "hidden", "floats", lambda v: MaskedLMHead(4, 5)(v)),
    (
        MaskedLanguageModel,
        "dropout",
        "probability",
        lambda v: MaskedLanguageModel(TINY.embedder, TINY.head, dropout=v),
    ),
    (
        MaskedLanguageModel,
        "top_k",
        "size",
        lambda v: MaskedLanguageModel(TINY.embedder, TINY.head, top_k=v),
    ),
    (MaskedLanguageModel.forward, "input_ids", "ids", lambda v: TINY(v)),
    (MaskedLanguageModel.forward, "attention_mask", "mask", lambda v: TINY(IDS, v)),
    (
        LSTMContextualizer,
        "hidden_size",
        "size",
        lambda v: LSTMContextualizer(4, v, 1, bidirectional=False),
    ),
    (
        LSTMContextualizer,
        "dropout",
        "probability",
        lambda v: LSTMContextualizer(4, 4, 1, bidirectional=False, dropout=v),
    ),
    (
        TransformerContextualizer,
        "num_heads",
        "size",
        lambda v: TransformerContextualizer(4, 1, v, bidirectional=False),
    ),
    (
        TransformerContextualizer,
        "bidirectional",
        "flag",
        lambda v: TransformerContextualizer(4, 1, 1, bidirectional=v),
    ),
    (LanguageModel, "vocab_size", "size", lambda v: LanguageModel(v, nn.Embedding(14, 4), READER)),
    (LanguageModel, "dropout", "probability", lambda v: language_model(dropout=v)),
    (LanguageModel, "num_samples", "size or None", lambda v: language_model(num_samples=v)),
    (LanguageModel, "pad_token_id", "any whole number", lambda v: language_model(pad_token_id=v)),
    (LanguageModel.forward, "input_ids", "ids", lambda v: language_model()(v)),
    (LanguageModel.forward, "mask", "mask", lambda v: language_model()(IDS, v)),
    (
        LanguageModelEmbedder,
        "trainable",
        "flag",
        lambda v: LanguageModelEmbedder(language_model(), trainable=v),
    ),
    (find_leaks, "input_size", "size", lambda v: find_leaks(READER, v, direction="forward")),
    (find_leaks, "direction", "name", lambda v: find_leaks(READER, 4, direction=v)),
    (drop, "share", "probability", lambda v: drop(torch.ones(3), v)),
    (Dropout, "dropout", "probability", Dropout),
    (mask_tokens, "input_ids", "ids", mask),
    (mask_tokens, "rate", "probability", lambda v: mask(rate=v)),
    (mask_tokens, "mask_share", "probability", lambda v: mask(mask_share=v)),
    (mask_tokens, "random_share", "probability", lambda v: mask(random_share=v)),
    (mask_tokens, "mask_token_id", "count", lambda v: mask(mask_token_id=v)),
    (MaskingCollator, "rate", "probability", lambda v: collator(rate=v)),
    (MaskingCollator, "mask_share", "probability", lambda v: collator(mask_share=v)),
    (MaskingCollator, "strategy", "name", lambda v: collator(strategy=v)),
    (
        MaskingCollator,
        "pad_to_multiple_of",
        "size or None",
        lambda v: collator(pad_to_multiple_of=v),
    ),
    (draw_spans, "rate", "probability", lambda v: draw_spans((2, 3), v)),
    (pad_examples, "multiple", "size or None", lambda v: pad_examples([[1]], 0, multiple=v)),
    (labels_to_positions, "labels", "ids", labels_to_positions),
    (labels_to_targets, "labels", "ids", labels_to_targets),
    (labels_to_positions, "max_masks", "count or None", lambda v: labels_to_positions(IDS, v)),
    (
        positions_to_labels,
        "length",
        "count",
        lambda v: positions_to_labels(IDS, IDS, IDS.float(), v),
    ),
    (masked_cross_entropy, "logits", "floats", lambda v: masked_cross_entropy(v, IDS)),
    (SoftmaxLoss, "vocab_size", "size", lambda v: SoftmaxLoss(v, 4)),
    (SoftmaxLoss, "embedding_dim", "size", lambda v: SoftmaxLoss(4, v)),
    (SoftmaxLoss.forward, "embeddings", "floats", lambda v: SoftmaxLoss(9, 3)(v, IDS[0])),
    (SampledSoftmaxLoss, "num_samples", "size", lambda v: SampledSoftmaxLoss(9, 3, v)),
    (SampledSoftmaxLoss, "sparse", "flag", lambda v: SampledSoftmaxLoss(9, 3, 2, sparse=v)),
    (log_uniform_sample, "num_samples", "size", lambda v: log_uniform_sample(9, v)),
    (load_corpus, "source", "path", load_corpus),
    (load_corpus, "split", "name", lambda v: load_corpus("reviews", v)),
    (pack_blocks, "block_size", "size", lambda v: pack_blocks([[5, 6]], v, cls_id=2, sep_id=3)),
    (
        WordPieceTokenizer.train,
        "vocab_size",
        "size",
        lambda v: WordPieceTokenizer.train(["a b"], v),
    ),
    (
        WordPieceTokenizer.train,
        "lowercase",
        "flag",
        lambda v: WordPieceTokenizer.train(["a b"], 50, lowercase=v),
    ),
    (WordPieceTokenizer.from_vocab, "path", "path", WordPieceTokenizer.from_vocab),
    (Grammar.sample, "n", "count", GRAMMAR.sample),
    (Grammar.sample, "seed", "count", lambda v: GRAMMAR.sample(1, seed=v)),
    (Grammar.floor, "rate", "probability", lambda v: GRAMMAR.floor(GRAMMAR.sample(2), rate=v)),
    (Grammar.floor, "objective", "name", lambda v: GRAMMAR.floor(GRAMMAR.sample(2), objective=v)),
    *(
        (TrainingConfig, name, "size", lambda value, name=name: config(**{name: value}))
        for name in ("batch_size", "log_every", "keep")
    ),
    (TrainingConfig, "checkpoint_every", "size or None", lambda v: config(checkpoint_every=v)),
    (TrainingConfig, "learning_rate", "number above 0", lambda v: config(learning_rate=v)),
    (TrainingConfig, "weight_decay", "number of 0 or more", lambda v: config(weight_decay=v)),
    (TrainingConfig, "schedule", "name", lambda v: config(schedule=v)),
    (TrainingConfig, "precision", "name", lambda v: config(precision=v)),
    (TrainingConfig, "group_by_length", "flag", lambda v: config(group_by_length=v)),
    (train, "evaluate", "function", lambda v: run(evaluate=v)),
    (train, "resume", "flag", lambda v: run(resume=v)),
    (Order, "batch_size", "size", lambda v: Order([[1]], v)),
    (Checkpoints, "keep", "size", lambda v: Checkpoints("nowhere", v)),
    (HeldOut, "batch_size", "size", lambda v: HeldOut([[2, 5, 3]], collator(rate=1), batch_size=v)),
    (ShowPredictions, "every", "size", lambda v: ShowPredictions(TOKENIZER, ["a [MASK]"], every=v)),
    (ShowPredictions, "top_k", "size", lambda v: ShowPredictions(TOKENIZER, ["a [MASK]"], top_k=v)),
    (BatchSeeds, "seed", "any whole number", BatchSeeds),
    (fill_mask, "text", "text", lambda v: fill_mask(TINY, TOKENIZER, v)),
    *(
        (fill_mask, name, "size", lambda v, name=name: fill_mask(TINY, TOKENIZER, "", **{name: v}))
        for name in ("top_k", "batch_size")
    ),
    *(
        (door, name, kind, lambda v, door=door, name=name: door(TINY, TOKENIZER, [], **{name: v}))
        for door in (pseudo_log_likelihood, pseudo_perplexity)
        for name, kind in (("whole_word", "flag"), ("batch_size", "size"))
    ),
    (pseudo_log_likelihood, "texts", "texts", lambda v: pseudo_log_likelihood(TINY, TOKENIZER, v)),
    (pseudo_perplexity, "texts", "texts", lambda v: pseudo_perplexity(TINY, TOKENIZER, v)),
    *(
        (door, "batches", "batches", lambda v, door=door: door(TINY, v))
        for door in (masked_answers, masked_loss, masked_accuracy)
    ),
    (masked_accuracy, "top_k", "size", lambda v: masked_accuracy(TINY, [], top_k=v)),
    (by_frequency, "counts", "counts", lambda v: by_frequency(ANSWERS, v)),
    (by_frequency, "edges", "size", lambda v: by_frequency(ANSWERS, [1] * 14, edges=[v])),
    (calibration, "probabilities", "floats", lambda v: calibration(v, IDS[0])),
    (calibration, "targets", "ids", lambda v: calibration(CHANCES, v)),
    (calibration, "bins", "size", lambda v: calibration(CHANCES, IDS[0], bins=v)),
    (closed_gap, "loss", "finite number", lambda v: closed_gap(v, 3, 1)),
    (closed_gap, "start", "finite number", lambda v: closed_gap(2, v, 1)),
    (closed_gap, "floor", "finite number", lambda v: closed_gap(2, 3, v)),
    (Documents, "documents", "size", lambda v: Documents(documents=v)),
    (Documents, "held_out", "count", lambda v: Documents(held_out=v)),
    (Texts, "copies", "size", lambda v: Texts("reviews", copies=v)),
    (pretrain, "out", "path", lambda v: pretrain({}, v)),
    (load_checkpoint, "name", "path", load_checkpoint),
    (load_checkpoint, "device", "name", lambda v: load_checkpoint(device=v)),
    (save_pretrained, "folder", "path", lambda v: save_pretrained(TINY, TOKENIZER, v)),
]


@pytest.mark.parametrize(
    "name, kind, call",
    [door[1:] for door in DOORS],
    ids=[f"{door.__qualname__}-{name}" for door, name, *_ in DOORS],
)
def test_every_door_refuses_what_its_argument_cannot_be_in_one_wording(name, kind, call):
    for value in BAD[kind]:
        with pytest.raises(ValueError) as caught:
            call(value)
            pytest.fail(f"{name}={value!r} was accepted")
        said = str(caught.value)
        assert said.startswith((f"{name}=", f"{name} holds ")), said
        assert said.endswith(" is needed") or "; " in said, said


@pytest.mark.parametrize(
    "guard, value, plain",
    [
        (checks.whole_number, np.int64(3), 3),
        (checks.number, np.float32(0.5), 0.5),
        (checks.probability, np.float64(0.25), 0.25),
        (checks.probability, 1, 1),
    ],
)
def test_a_guard_returns_a_plain_python_number(guard, value, plain):
    found = guard("x", value)
    assert found == plain and type(found) is type(plain)


def test_bounds_are_met_and_named():
    assert checks.whole_number("x", 3, 3, 3) == 3 and checks.whole_number("x", -3, None) == -3
    assert checks.whole_number("x", None, none=True) is None
    with pytest.raises(ValueError, match=r"^x=2; a whole number from 3 to 5 is needed$"):
        checks.whole_number("x", 2, 3, 5)
    with pytest.raises(ValueError, match=r"^x=0; a finite number above 0 is needed$"):
        checks.number("x", 0, above=0)
    with pytest.raises(ValueError, match="a finite number"):
        checks.number("x", 10**400)


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
    monkeypatch.setattr(checks, "can_look", lambda tensor: False)
    checks.ids("x", torch.tensor([[9]]), size=6)


def test_small_integers_are_widened():
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        assert checks.integers("x", torch.ones(1, 2, dtype=dtype)).dtype == torch.int64


def test_auto_is_cuda_or_the_cpu_and_never_anything_else(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert checks.torch_device("DEVICE", "auto") == torch.device("cpu")
