"""Masking: which tokens are chosen, what becomes of them, and what their labels say.

Rates and shares of 0 and 1 give random code exact answers. Where a rate lies between, the test
states how far a fair draw may stray: five standard deviations, unless it says otherwise.
"""

import copy
import json
import math
import pickle
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from torch.utils.data import DataLoader
from toys import tokenizer_of
from transformers import (
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

from mlm_lib.diffusion import DiffusionCollator
from mlm_lib.masking import STRATEGIES, MaskingCollator, Strategy, mask_tokens
from mlm_lib.wordpiece import WordPieceTokenizer

PAD, UNK, CLS, SEP, MASK = range(5)
# 5..49 are words, 50..79 continue them (##), 80..99 are words again.
TOKENIZER = tokenizer_of(*(f"{'##' if 50 <= i < 80 else ''}w{i}" for i in range(5, 100)))
HF_TOKENIZER = TOKENIZER.to_hf()
# The batches below hold no such id, so that a replaced token cannot look like a kept one.
REPLACEMENTS = torch.arange(50, 100)

exact = settings(deadline=None, max_examples=60)


def batch(rows=8, length=24, seed=0):
    """[CLS] words [SEP] words [SEP], padding of another length in each row; and where these are."""
    ids = torch.randint(5, 50, (rows, length), generator=torch.Generator().manual_seed(seed))
    ids[:, 0], ids[:, length // 2] = CLS, SEP
    for row in range(rows):
        end = length - row % (length // 3)
        ids[row, end - 1], ids[row, end:] = SEP, PAD
    return ids, ids < 5


def words_of(ids, special, seed=1):
    """Word numbers: now and then two or three neighbours share one."""
    new = torch.rand(ids.shape, generator=torch.Generator().manual_seed(seed)) < 0.6
    return (new | special).cumsum(1).masked_fill(special, -1)


def mask(ids, special=None, seed=0, **options):
    special = torch.zeros_like(ids, dtype=torch.bool) if special is None else special
    options = {
        "mask_token_id": MASK,
        "random_token_ids": REPLACEMENTS,
        "special_tokens_mask": special,
    } | options
    return mask_tokens(ids, generator=torch.Generator().manual_seed(seed), **options)


def by_word(mode):
    return STRATEGIES[mode].by_word


def in_mode(mode, ids, special):
    """The options of `mask_tokens` for a strategy."""
    return {"strategy": mode} | ({"word_ids": words_of(ids, special)} if by_word(mode) else {})


def share(chosen):
    return chosen.double().mean().item()


def close(share, expected, n, deviations=5):
    return abs(share - expected) <= deviations * math.sqrt(expected * (1 - expected) / n)


every_mode = pytest.mark.parametrize("mode", STRATEGIES)

# ------------------------------------------------------------------------------------ exact answers

FATES = {
    "nothing is chosen": ({"rate": 0}, False, None),
    "[MASK]": ({"mask_share": 1, "random_share": 0, "random_token_ids": []}, True, MASK),
    "replaced": ({"mask_share": 0, "random_share": 1, "random_token_ids": [77]}, True, 77),
    "kept": ({"mask_share": 0, "random_share": 0}, True, None),
}


@pytest.mark.parametrize("options, chosen, shown", FATES.values(), ids=FATES)
def test_with_rates_and_shares_of_0_and_1_all_ordinary_tokens_have_one_fate(options, chosen, shown):
    ids, special = batch()
    masked, labels = mask(ids, special, **{"rate": 1} | options)
    assert torch.equal(masked, ids if shown is None else ids.masked_fill(~special, shown))
    assert torch.equal(labels, ids.masked_fill(special | (not chosen), -100))


@pytest.mark.parametrize(
    "shares",
    [(0.7, 0.3), (0.1, 0.9), (1 / 3, 2 / 3), (0.3, 1 - 0.3), (0.9, 1 - 0.9), (0.8, 2.2 - 2)],
)
@pytest.mark.parametrize("rate", [1.0, 0.37])
def test_shares_that_sum_to_1_give_or_take_a_rounding_keep_no_chosen_token(shares, rate):
    ids = torch.full((500, 100), 7)
    masked, labels = mask(ids, rate=rate, mask_share=shares[0], random_share=shares[1])
    assert torch.equal(masked != ids, labels != -100)


# ------------------------------------------------------------------------------------ rates


@pytest.mark.parametrize("rate", [0.05, 0.15, 0.4, 0.8])
def test_of_100k_tokens_rate_are_chosen_and_of_these_80_10_10_masked_replaced_kept(rate):
    ids = torch.randint(5, 50, (1000, 100), generator=torch.Generator().manual_seed(3))
    masked, labels = mask(ids, rate=rate, seed=4)
    chosen = labels != -100
    assert close(share(chosen), rate, ids.numel())
    after, before = masked[chosen], ids[chosen]
    assert share(after == MASK) == pytest.approx(0.8, abs=0.01)
    assert share(after >= 50) == pytest.approx(0.1, abs=0.01)
    assert share(after == before) == pytest.approx(0.1, abs=0.01)


@every_mode
@pytest.mark.parametrize("rate", [0.05, 0.15, 0.5, 0.9])
def test_each_place_of_a_row_is_chosen_at_the_rate_also_at_its_edges(mode, rate):
    pieces = torch.arange(1, 6).repeat(5)  # words of one to five pieces, over and over
    word_ids = torch.arange(25).repeat_interleave(pieces).expand(5000, -1)
    options = {"strategy": mode} | ({"word_ids": word_ids} if by_word(mode) else {})
    chosen = mask(torch.full(word_ids.shape, 7), rate=rate, **options)[1] != -100
    assert all(close(share(column), rate, 5000) for column in chosen.T)


def test_replacements_cover_the_ids_passed_evenly_and_do_not_depend_on_the_batch():
    ids = torch.full((500, 200), 7)  # the batch itself holds one id only
    masked, _ = mask(ids, rate=1, mask_share=0, random_share=1)
    counts = torch.bincount(masked.flatten(), minlength=100)
    assert counts[:50].sum() == 0
    assert all(close(count / ids.numel(), 1 / 50, ids.numel()) for count in counts[50:].tolist())


# ------------------------------------------------------------------- special tokens, labels, inputs


@every_mode
@pytest.mark.parametrize("rate", [0.15, 0.9, 1.0])
def test_special_tokens_padding_and_what_is_no_word_are_never_chosen_nor_changed(mode, rate):
    ids, special = batch(rows=200)
    assert special[:, 1:-1].any(), "the batch must hold special tokens in the middle of its rows"
    options = {"word_ids": torch.zeros_like(ids)} if by_word(mode) else {}
    protected = special.clone()
    if options:
        options["word_ids"][:, 3::5] = -1
        protected[:, 3::5] = True
    masked, labels = mask(ids, special, rate=rate, strategy=mode, **options)
    assert (labels[protected] == -100).all()
    assert torch.equal(masked[protected], ids[protected])
    assert (labels[~protected] != -100).any()


def test_a_row_of_special_tokens_alone_stays_as_it_is():
    ids = torch.tensor([[CLS, SEP, PAD, PAD]])
    for word_ids in (None, torch.tensor([[-1, -1, -1, -1]])):
        masked, labels = mask(ids, ids < 5, rate=1, word_ids=word_ids)
        assert torch.equal(masked, ids) and (labels == -100).all()


@exact
@given(
    rows=st.integers(1, 6), length=st.integers(1, 40), seed=st.integers(0, 2**31),
    rate=st.floats(0, 1), mask_share=st.floats(0, 1), rest=st.floats(0, 1),
    mode=st.sampled_from(list(STRATEGIES)),
)  # fmt: skip
def test_labels_are_the_original_ids_and_only_chosen_tokens_change(
    rows, length, rate, mask_share, rest, seed, mode
):
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, 50, (rows, length), generator=g)
    special = torch.rand(rows, length, generator=g) < 0.2
    before, options = ids.clone(), in_mode(mode, ids, special)
    options |= {"rate": rate, "mask_share": mask_share, "random_share": (1 - mask_share) * rest}
    masked, labels = mask(ids, special, seed, **options)
    chosen = labels != -100
    assert torch.equal(labels[chosen], before[chosen])
    assert torch.equal(masked[~chosen], before[~chosen])
    assert not (chosen & special).any()
    assert ((masked == before) | (masked == MASK) | (masked >= 50)).all()
    assert torch.equal(ids, before)


INPUTS = {
    "contiguous": lambda ids: ids.clone(),
    "int32": lambda ids: ids.int(),
    "transposed": lambda ids: ids.t().contiguous().t(),
    "every second column": lambda ids: torch.stack([ids, ids], dim=2).flatten(1)[:, ::2],
    "expanded": lambda ids: ids[:1].expand_as(ids),
}


@pytest.mark.parametrize("make", INPUTS.values(), ids=INPUTS)
@pytest.mark.parametrize("rate", [0.0, 0.5, 1.0])
def test_whatever_the_memory_of_the_input_it_is_not_changed_and_the_outputs_are_new(make, rate):
    ids, special = batch()
    odd, odd_special = make(ids), make(special)
    passed = {"word_ids": make(words_of(ids, special)), "random_token_ids": REPLACEMENTS.clone()}
    before = [one.clone() for one in (odd, odd_special, *passed.values())]
    masked, labels = mask(odd, odd_special, rate=rate, **passed)
    assert all(map(torch.equal, before, (odd, odd_special, *passed.values())))
    assert masked.dtype == labels.dtype == odd.dtype
    assert len({x.untyped_storage().data_ptr() for x in (odd, masked, labels)}) == 3
    plain = mask(before[0].long().contiguous(), odd_special.bool(), rate=rate, **passed)
    assert torch.equal(masked.long(), plain[0]) and torch.equal(labels.long(), plain[1])


# ---------------------------------------------------------------------------- whole words and spans


@pytest.mark.parametrize("mode", ["whole_word", "span"])
def test_the_pieces_of_a_word_share_one_fate(mode):
    ids, special = batch(rows=300)
    options = in_mode(mode, ids, special)
    masked, labels = mask(ids, special, rate=0.5, mask_share=0.4, random_share=0.3, **options)
    fate = (labels != -100).long() + (masked != ids) + (masked >= 50)
    assert set(fate.unique().tolist()) == {0, 1, 2, 3}
    for row, words in zip(fate, options["word_ids"]):
        for word in words.unique().tolist():
            assert word == -1 or len(row[words == word].unique()) == 1


def test_each_piece_of_a_replaced_word_gets_its_own_replacement():
    ids = torch.full((1, 200), 7)
    masked, _ = mask(ids, rate=1, mask_share=0, random_share=1, word_ids=torch.zeros_like(ids))
    assert len(masked.unique()) > 20


def test_no_word_straddles_a_special_token():
    ids = torch.tensor([[7, 8, SEP, 9, 10]]).expand(200, -1)
    chosen = mask(ids, ids < 5, rate=0.5, word_ids=torch.zeros_like(ids))[1] != -100
    assert torch.equal(chosen[:, 0], chosen[:, 1]) and torch.equal(chosen[:, 3], chosen[:, 4])
    assert 0.3 < share(chosen[:, 0] == chosen[:, 3]) < 0.7, "the two sides must be drawn apart"


def test_spans_are_spanberts_3_8_words_long_on_average():
    # So rare that hardly two meet: about 5200 runs, whose mean strays by 2.8 / sqrt(5200) = 0.04.
    word_ids = torch.arange(5000).expand(400, -1)
    ids = torch.full(word_ids.shape, 7)
    chosen = mask(ids, rate=0.01, word_ids=word_ids, strategy="span")[1] != -100
    begins = chosen & ~torch.nn.functional.pad(chosen, (1, 0))[:, :-1]
    assert 4800 < begins.sum() < 5700
    assert chosen.sum() / begins.sum() == pytest.approx(3.8, abs=0.2)
    of_length_1 = begins & ~torch.nn.functional.pad(chosen, (0, 1))[:, 1:]
    assert of_length_1.sum() / begins.sum() == pytest.approx(0.22, abs=0.03)


# --------------------------------------------------------------------------- randomness and devices


@every_mode
def test_a_generator_repeats_itself_and_leaves_the_global_one_alone(mode):
    ids, special = batch()
    options = in_mode(mode, ids, special)
    state = torch.get_rng_state()
    first, again, other = (mask(ids, special, seed, rate=0.5, **options) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(map(torch.equal, first, again)) and not torch.equal(first[1], other[1])


def test_without_a_generator_the_global_seed_decides():
    ids, special = batch()
    options = {"mask_token_id": MASK, "random_token_ids": REPLACEMENTS, "rate": 0.5}
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(mask_tokens(ids, special_tokens_mask=special, **options)[1])
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@every_mode
def test_masking_works_on_the_gpu(mode):
    ids, special = batch(rows=400)
    masked, labels = mask_tokens(
        ids.cuda(), mask_token_id=MASK, random_token_ids=REPLACEMENTS, rate=0.5,
        special_tokens_mask=special.cuda(), generator=torch.Generator("cuda").manual_seed(0),
        **in_mode(mode, ids, special),
    )  # fmt: skip
    assert masked.is_cuda and labels.is_cuda
    masked, labels = masked.cpu(), labels.cpu()
    chosen = labels != -100
    assert torch.equal(labels[chosen], ids[chosen]) and torch.equal(masked[~chosen], ids[~chosen])
    assert not (chosen & special).any()
    assert share(chosen[~special]) == pytest.approx(0.5, abs=0.05)


# ------------------------------------------------------------------------------------ errors


IDS = torch.full((2, 3), 7)
REFUSED = {
    "shares above 1": {"random_share": 0.3},
    "one row": {"input_ids": torch.tensor([7, 8, 9])},
    "ids of 8 bits": {"input_ids": IDS.to(torch.uint8)},
    "a label among the ids": {"input_ids": torch.tensor([[7, -100, 8], [7, 7, 7]])},
    "special tokens of one row": {"special_tokens_mask": torch.zeros(3)},
    "words of another shape": {"word_ids": torch.zeros(2, 4)},
    "spans without words": {"strategy": "span"},
    "an unknown strategy": {"strategy": "spans"},
    "[MASK] as a replacement": {"random_token_ids": [5, MASK]},
    "no replacements": {"random_token_ids": []},
    "replacements beyond int32": {"input_ids": IDS.int(), "random_token_ids": [2**31]},
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_what_would_be_masked_wrongly_is_refused_by_name(change):
    arguments = {"input_ids": IDS, "special_tokens_mask": torch.zeros(2, 3)} | change
    given = {"mask_token_id": MASK, "random_token_ids": REPLACEMENTS}
    with pytest.raises(ValueError, match=list(change)[-1]):
        mask_tokens(**given | arguments)


# ------------------------------------------------------------------------------------ the collator

TEXTS = ["w5 w6w50 w7", "w8w50w51 w9 w10 w11w55 w12 w13", "w80"]
EXAMPLES = [TOKENIZER.encode(text) for text in TEXTS]
TOKENIZERS = pytest.mark.parametrize(
    "tokenizer", [TOKENIZER, HF_TOKENIZER], ids=["ours", "transformers"]
)


def long_examples(n=40, length=30, seed=0):
    ids = torch.randint(5, 100, (n, length), generator=torch.Generator().manual_seed(seed))
    return [[CLS, *row, SEP] for row in ids.tolist()]


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


KINDS = {
    "lists": EXAMPLES,
    "ids": [{"input_ids": ids} for ids in EXAMPLES],
    "a tokenizer's output": [HF_TOKENIZER(text) for text in TEXTS],
    "all fields": [HF_TOKENIZER(text, return_special_tokens_mask=True) for text in TEXTS],
}


@TOKENIZERS
@pytest.mark.parametrize("multiple", [None, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_with_nothing_masked_the_batch_is_that_of_transformers(tokenizer, multiple, kind):
    options = {"pad_to_multiple_of": multiple}
    theirs = DataCollatorForLanguageModeling(HF_TOKENIZER, mlm_probability=0, **options)
    theirs = dict(theirs(copy.deepcopy(KINDS[kind])))
    ours = MaskingCollator(tokenizer, rate=0, **options)(KINDS[kind])
    if kind == "lists":  # where transformers returns no attention mask
        theirs["attention_mask"] = (theirs["input_ids"] != PAD).long()
    assert same(ours, theirs) and all(field.dtype == torch.long for field in ours.values())


def test_rates_are_those_of_transformers():
    examples = long_examples(n=500, length=100)
    ours = MaskingCollator(TOKENIZER, seed=0)(examples)
    theirs = DataCollatorForLanguageModeling(HF_TOKENIZER, seed=0)(examples)
    for fields in (ours, theirs):
        chosen = fields["labels"] != -100
        after, before, n = fields["input_ids"][chosen], fields["labels"][chosen], int(chosen.sum())
        assert close(share(chosen[:, 1:-1]), 0.15, 50_000)
        assert close(share(after == MASK), 0.8, n)
        # A replacement is the token itself now and then.
        assert close(share(after == before), 0.1 + 0.1 / 100, n)


@TOKENIZERS
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_collator_never_chooses_special_tokens_nor_draws_them(tokenizer, strategy):
    examples = [[CLS, 5, 50, SEP, 6, UNK, 7, 51, 52, SEP], [CLS, 8, MASK, 9, SEP, PAD, PAD]] * 200
    options = {"rate": 1, "mask_share": 0, "random_share": 1, "strategy": strategy}
    fields = MaskingCollator(tokenizer, **options)(examples)
    labels, after = fields["labels"], fields["input_ids"]
    special = labels == -100
    assert torch.equal(special.sum(1), torch.tensor([4, 8] * 200)) and (after[special] < 5).all()
    assert set(after[~special].tolist()) == set(range(5, 100))


def test_special_tokens_added_to_a_transformers_tokenizer_count_as_special():
    tokenizer = TOKENIZER.to_hf()
    tokenizer.add_special_tokens({"additional_special_tokens": ["[ENTITY]"]})
    added = tokenizer.convert_tokens_to_ids("[ENTITY]")
    replacing = MaskingCollator(tokenizer, rate=1, mask_share=0, random_share=1)
    fields = replacing([[CLS, 7, added, 8, SEP]] * 300)
    assert (fields["labels"][:, 2] == -100).all() and (fields["input_ids"][:, 2] == added).all()
    assert (fields["input_ids"][:, [1, 3]] != added).all()


ATTENDED = {
    "padded here": ([[CLS, 7, 8, SEP], [CLS, SEP]], [[1, 1, 1, 1], [1, 1, 0, 0]], [2, 0]),
    "padded before": ([[CLS, 7, SEP, PAD], [CLS, SEP]], [[1, 1, 1, 0], [1, 1, 0, 0]], [1, 0]),
    "hidden by hand": (
        [{"input_ids": [CLS, 7, 8, 9, SEP], "attention_mask": [1, 1, 1, 0, 0]}],
        [[1, 1, 1, 0, 0]],
        [2],
    ),
    "called special": (
        [{"input_ids": [CLS, 7, 8, SEP], "special_tokens_mask": [0, 1, 0, 0]}],
        [[1, 1, 1, 1]],
        [1],
    ),
}


@pytest.mark.parametrize("examples, attention, asked", ATTENDED.values(), ids=ATTENDED)
def test_padding_and_what_is_not_attended_to_are_not_chosen(examples, attention, asked):
    fields = MaskingCollator(TOKENIZER, rate=1)(examples)
    assert fields.keys() == {"input_ids", "attention_mask", "labels"}
    assert fields["attention_mask"].tolist() == attention
    assert (fields["labels"] != -100).sum(1).tolist() == asked


FORMS = {
    "tensors": torch.tensor,
    "int32": lambda ids: torch.tensor(ids, dtype=torch.int32),
    "arrays": np.array,
    "tuples": tuple,
    "with other keys": lambda ids: {"input_ids": ids, "text": "…", "label": 1, "labels": ids},
}


@pytest.mark.parametrize("convert", FORMS.values(), ids=FORMS)
def test_examples_have_many_forms_and_are_not_changed(convert):
    examples = [convert(ids) for ids in EXAMPLES]
    before = repr(examples)
    expected = MaskingCollator(TOKENIZER, seed=1)(EXAMPLES)
    assert same(MaskingCollator(TOKENIZER, seed=1)(examples), expected)
    assert repr(examples) == before


@TOKENIZERS
def test_whole_words_are_found_by_their_pieces(tokenizer):
    examples = [TOKENIZER.encode("w5w50w51 w6 w7w52")] * 200  # three words, of 3, 1 and 2 pieces
    fields = MaskingCollator(tokenizer, rate=0.5, strategy="whole_word", seed=0)(examples)
    chosen = fields["labels"] != -100
    patterns = {"".join("x" if c else "." for c in row) for row in chosen.tolist()}
    assert patterns == {f".{3 * a}{b}{2 * c}." for a in "x." for b in "x." for c in "x."}


def test_a_piece_right_after_a_special_token_is_a_word_of_its_own():
    words = MaskingCollator(TOKENIZER, rate=0.5, strategy="whole_word", seed=0)
    chosen = words([[CLS, 50, 51, MASK, 52, SEP]] * 100)["labels"] != -100
    assert torch.equal(chosen[:, 1], chosen[:, 2]) and not torch.equal(chosen[:, 2], chosen[:, 4])


@pytest.mark.parametrize("strategy", ["whole_word", "span"])
def test_a_vocabulary_without_pieces_has_no_words_to_find(strategy):
    plain = tokenizer_of("a", "b")
    MaskingCollator(plain)  # single tokens can be masked all the same
    with pytest.raises(ValueError, match=f"strategy='{strategy}' needs the ## pieces"):
        MaskingCollator(plain, strategy=strategy)


def test_a_byte_level_vocabulary_has_no_word_pieces_though_it_may_hold_hashes():
    vocabulary = {"<mask>": 0, "<pad>": 1, "#": 2, "##": 3, "a": 4}
    byte_level = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE(vocabulary, [("#", "#")])),
        mask_token="<mask>",
        pad_token="<pad>",
    )
    with pytest.raises(ValueError, match="WordPiece"):
        MaskingCollator(byte_level, strategy="whole_word")


def every_second(maskable, rate, generator):
    """u = 0 for the first of a row, the third, the fifth and so on."""
    return (torch.arange(maskable.shape[1]) % 2).expand(maskable.shape).float()


@pytest.mark.parametrize(
    "words, rows", [(False, ["x.x.x.", "x.x.x."]), (True, ["xx..x.", "x..x.."])]
)
def test_a_strategy_is_a_row_of_the_table(monkeypatch, words, rows):
    monkeypatch.setitem(STRATEGIES, "every_second", Strategy(every_second, by_word=words))
    collate = MaskingCollator(TOKENIZER, strategy="every_second")
    labels = collate([[5, 50, 6, 51, 7, PAD], [8, CLS, 9, 10, 11, SEP]])["labels"]
    assert ["".join("x" if c else "." for c in row) for row in (labels != -100).tolist()] == rows


BAD_BATCHES = {
    "no example": ([], ValueError, "batch is empty"),
    "an empty example": ([EXAMPLES[0], []], ValueError, "example 1 has 0 input_ids"),
    "a field that one lacks": ([{"input_ids": [7], "attention_mask": [1]}, [7]], KeyError, "atten"),
    "fields whose sums agree and rows do not": (
        [
            {"input_ids": [7, 8], "token_type_ids": [0]},
            {"input_ids": [7], "token_type_ids": [0, 0]},
        ],
        ValueError,
        "example 0 has 2 input_ids and 1 token_type_ids",
    ),
    "an id beyond the vocabulary": ([[7, 100]], ValueError, "input_ids holds 100"),
    "a negative id": ([[7, -1]], ValueError, "input_ids holds -1"),
    "attention of 7": ([{"input_ids": [7], "attention_mask": [7]}], ValueError, "mask holds 7"),
}


@pytest.mark.parametrize("examples, error, message", BAD_BATCHES.values(), ids=BAD_BATCHES)
def test_a_batch_that_would_be_read_wrongly_is_refused(examples, error, message):
    with pytest.raises(error, match=message):
        MaskingCollator(TOKENIZER)(examples)


@pytest.mark.parametrize("missing", ["mask", "pad"])
def test_a_tokenizer_without_mask_or_pad_is_refused_by_that_name(missing):
    tokenizer = TOKENIZER.to_hf()
    setattr(tokenizer, f"{missing}_token", None)
    with pytest.raises(ValueError, match=f"{missing}_token_id=None"):
        MaskingCollator(tokenizer)


# ------------------------------------------------------------------------------------ seeds

ROWS = torch.randint(5, 90, (40, 30), generator=torch.Generator().manual_seed(0)).tolist()
quiet = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


def masks(**options):
    return MaskingCollator(TOKENIZER, **{"rate": 0.3, "seed": 5} | options)


def epochs_of(workers, number=3, collator=None, rows=ROWS, set_epoch=True, **options):
    """The labels of some epochs of one DataLoader, a list of batches for each."""
    collator = collator or masks()
    batches = DataLoader(rows, 4, collate_fn=collator, num_workers=workers, **options)
    found = []
    for epoch in range(number):
        torch.manual_seed(3)  # torch's own seed does not matter
        if set_epoch:
            collator.set_epoch(epoch)
        found.append([fields["labels"] for fields in batches])
    return found


def equal(ones, others):
    return len(ones) == len(others) and all(map(torch.equal, ones, others))


def all_new(epochs):
    """No batch of one epoch has the labels of the same batch in another."""
    return all(not torch.equal(*pair) for rows in zip(*epochs) for pair in combinations(rows, 2))


@pytest.mark.parametrize("seed", [None, 5])
def test_masks_are_dynamic(seed):
    collator = masks(seed=seed)
    assert all_new([[collator(ROWS)["labels"]] for _ in range(3)])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_collators_with_one_seed_agree_call_by_call(strategy):
    one, other, third = (masks(strategy=strategy, seed=seed) for seed in (0, 0, 6))
    state = torch.get_rng_state()
    for _ in range(3):
        expected = one(ROWS)["labels"]
        assert torch.equal(other(ROWS)["labels"], expected)
        assert not torch.equal(third(ROWS)["labels"], expected)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_masks_of_a_seed_are_those_of_every_version():
    collator = masks(seed=7)
    sums = [int(collator(ROWS)["input_ids"].sum()) for _ in range(3)]
    assert sums == [42652, 44763, 43282]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it)), None])
def test_a_copy_and_a_stored_state_go_on_with_the_next_batch(copied):
    collator, other = masks(), masks()
    collator.set_epoch(2)
    collator(ROWS)
    if copied:
        other = copied(collator)
    else:
        other.load_state_dict(collator.state_dict())
    assert torch.equal(other(ROWS)["labels"], collator(ROWS)["labels"])
    assert collator.state_dict() == other.state_dict() == {"epoch": 2, "batches": 2}


@quiet
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_masks_of_an_epoch_do_not_depend_on_the_number_of_workers(workers):
    epochs = epochs_of(workers)
    assert all(map(equal, epochs, epochs_of(0))) and all_new(epochs)


def without_set_epoch(workers, collator, seed=3, number=3, persistent=False):
    """The labels of some epochs of a DataLoader whose collator is never told the epoch."""
    torch.manual_seed(seed)
    options = {"num_workers": workers, "persistent_workers": persistent}
    batches = DataLoader(ROWS, 4, collate_fn=collator, **options)
    return [[fields["labels"] for fields in batches] for _ in range(number)]


MAKERS = {
    "masking": masks,
    "whole words": lambda: masks(strategy="whole_word"),
    "without a seed": lambda: masks(seed=None),
    "diffusion": lambda: DiffusionCollator(TOKENIZER, seed=5),
    "counts": lambda: DiffusionCollator(TOKENIZER, draw="count", seed=5),
}


@quiet
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("workers, persistent", [(0, 0), (1, 0), (2, 1)])
def test_each_epoch_has_new_masks_though_nobody_tells_it_and_a_run_can_be_repeated(
    make, workers, persistent
):
    epochs = without_set_epoch(workers, make(), persistent=bool(persistent))
    assert all_new(epochs)
    assert all(map(equal, epochs, without_set_epoch(workers, make(), persistent=bool(persistent))))
    # No two batches of a run have the same draws, in whatever epoch: their rows are of one length.
    each = [tuple(labels.flatten().tolist()) for epoch in epochs for labels in epoch]
    assert len(set(each)) == len(each) == 30


@quiet
def test_the_seed_matters_in_workers_as_well_and_so_does_torchs_own():
    first = without_set_epoch(2, masks())
    assert not any(map(equal, first, without_set_epoch(2, masks(seed=6))))
    assert not any(map(equal, first, without_set_epoch(2, masks(), seed=4)))
    assert all(map(equal, first, without_set_epoch(1, masks())))


class Kept(torch.nn.Module):
    """A model of one weight that keeps the labels that a Trainer hands it."""

    def __init__(self):
        super().__init__()
        self.weight, self.labels = torch.nn.Parameter(torch.ones(())), []

    def forward(self, input_ids, labels, attention_mask=None, weights=None):
        self.labels.append((input_ids.where(labels == -100, labels), labels != -100))
        return {"loss": self.weight**2}


@quiet
@pytest.mark.slow
@pytest.mark.parametrize("workers, persistent", [(0, 0), (2, 0), (2, 1)])
@pytest.mark.parametrize("kind", ["masking", "diffusion"])
def test_transformers_trainer_gets_new_masks_in_each_epoch(tmp_path, kind, workers, persistent):
    runs = []
    for _ in range(2):
        model = Kept()
        settings = TrainingArguments(
            tmp_path, num_train_epochs=3, per_device_train_batch_size=10, use_cpu=True, seed=0,
            dataloader_num_workers=workers, dataloader_persistent_workers=bool(persistent),
            report_to="none", save_strategy="no", disable_tqdm=True, remove_unused_columns=False,
        )  # fmt: skip
        data = [{"input_ids": row} for row in ROWS]
        Trainer(model, settings, data_collator=MAKERS[kind](), train_dataset=data).train()
        # By row, what was hidden in the first, the second and the third epoch.
        hidden = {tuple(row): [] for row in ROWS}
        for ids, asked in model.labels:
            for row, places in zip(ids.tolist(), asked.tolist()):
                hidden[tuple(row)].append(tuple(places))
        runs.append(hidden)
    assert runs[0] == runs[1]
    assert {len(places) for places in runs[0].values()} == {3}
    assert sum(len(set(places)) < 3 for places in runs[0].values()) <= 1  # two rows may be alike


@quiet
@pytest.mark.parametrize("seed", [None, 5])
def test_workers_do_not_repeat_one_anothers_masks(seed):
    (batches,) = epochs_of(3, 1, masks(seed=seed), rows=[ROWS[0]] * 24)
    assert len({tuple(labels.flatten().tolist()) for labels in batches}) == 6


@quiet
@pytest.mark.slow
@pytest.mark.parametrize("method, workers, epochs", [("spawn", 1, 2), ("forkserver", 2, 1)])
def test_workers_that_are_not_forked_give_the_same_masks(method, workers, epochs):
    found = epochs_of(workers, epochs, multiprocessing_context=method)
    assert all(map(equal, found, epochs_of(0, epochs)))


# ---------------------------------------------------------------------------------- the fingerprint

OTHER = WordPieceTokenizer(TOKENIZER.vocab | {"w98": 99, "w99": 98})  # two ids have changed places
SETTINGS = {
    "rate": 0.3, "mask_share": 0.7, "random_share": 0.2, "strategy": "span",
    "pad_to_multiple_of": 8, "seed": 6, "tokenizer": OTHER,
}  # fmt: skip


def test_the_fingerprint_is_plain_and_that_of_the_same_settings():
    collator = MaskingCollator(TOKENIZER, seed=5)
    before = collator.fingerprint()
    collator(EXAMPLES)
    others = MaskingCollator(HF_TOKENIZER, seed=5).fingerprint()
    assert json.loads(json.dumps(before)) == before == collator.fingerprint() == others


@pytest.mark.parametrize("name", SETTINGS)
def test_the_fingerprint_tells_other_masks_from_these(name):
    settings = {"tokenizer": TOKENIZER, "seed": 5}
    before = MaskingCollator(**settings).fingerprint()
    after = MaskingCollator(**settings | {name: SETTINGS[name]}).fingerprint()
    changed = [key for key in before if before[key] != after[key]]
    assert changed == ["vocabulary" if name == "tokenizer" else name]
