"""The samplers against exact distributions, each rule, and the ideal reader in a model's place."""

import itertools
import math
from collections import defaultdict

import pytest
import torch
from readers import (
    HF,
    OURS,
    TOKENIZER,
    Says,
    V,
    assert_leaves_no_trace,
    both_models,
    both_tokenizers,
    log_probs,
)
from test_grammar import every_document
from toys import tokenizer_of
from writing_toys import GRAMMARS, World, too_far

from mlm_lib.evaluation import fill_mask, masked_answers
from mlm_lib.grammar import Grammar
from mlm_lib.masking import MaskingCollator
from mlm_lib.training import HeldOut
from mlm_lib.writing import RULES, SCHEDULES, IdealReader, reveal_counts, sample_tokens, write

pytestmark = pytest.mark.usefixtures("one_thread")

PAIRS = World(GRAMMARS / "pairs.toml", lost=True)
DOCUMENTS = every_document((GRAMMARS / "pairs.toml").read_text())
every_rule = pytest.mark.parametrize("rule", RULES)
MASK = 4


def given_length(length):
    """{document: P(document | its length)}."""
    chances = {words: chance for words, chance in DOCUMENTS.items() if len(words) == length}
    return {words: chance / sum(chances.values()) for words, chance in chances.items()}


def written(number, length=3, world=PAIRS, **options):
    rows = write(world.reader, world.tokenizer, [length] * number, **options)
    return [world.decode(row) for row in rows]


def product(places):
    """{words: probability} of independent draws from each place's {word: probability}."""
    found = {}
    for choice in itertools.product(*(place.items() for place in places)):
        words, chances = zip(*choice)
        found[words] = math.prod(chances)
    return found


# ------------------------------------------------------------------------------------ exact


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["random", "confident", "threshold"])
@pytest.mark.parametrize("length", [2, 3])
def test_one_word_a_step_every_document_comes_as_often_as_the_grammar_says(rule, length):
    expected = given_length(length)
    assert len(expected) >= 9
    options = {"threshold": 1.0} if rule == "threshold" else {}  # never above: one word a step
    assert abs(too_far(written(2000, length, rule=rule, **options), expected)) < 4


@pytest.mark.slow
def test_a_threshold_that_only_the_sure_pass_is_exact_too():
    # After "no" the last word is the mood, and what is certain may be written beside it.
    assert abs(too_far(written(2000, rule="threshold", threshold=0.999), given_length(3))) < 4


@pytest.mark.parametrize("rule", ["random", "confident", "keep_confident"])
def test_all_in_one_step_is_the_product_of_the_marginals(rule):
    marginals = [defaultdict(float) for _ in range(3)]
    for words, chance in given_length(3).items():
        for place, word in zip(marginals, words):
            place[word] += chance
    found = written(2000, rule=rule, steps=1)
    assert abs(too_far(found, product(marginals))) < 4
    impossible = sum(words not in DOCUMENTS for words in found)
    expected = sum(p for words, p in product(marginals).items() if words not in DOCUMENTS)
    assert abs(impossible / 2000 - expected) < 4 * (expected * (1 - expected) / 2000) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["random", "confident"])
def test_between_given_words_the_rest_is_written_as_the_grammar_would(rule):
    beginning = [*PAIRS.encode(["fine"]), MASK, MASK]
    found = written(2000, rule=rule, given=[beginning] * 2000)
    chances = {words: p for words, p in DOCUMENTS.items() if words[0] == "fine" and len(words) == 3}
    expected = {words: p / sum(chances.values()) for words, p in chances.items()}
    assert abs(too_far(found, expected)) < 4


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_a_temperature_is_a_power_of_the_chances(temperature):
    scores = torch.full((V,), -math.inf)
    scores[5:9] = torch.tensor([4.0, 2.0, 1.0, 1.0]).log()
    rows = write(Says(scores), TOKENIZER, [1] * 4000, temperature=temperature)
    powers = torch.tensor([4.0, 2.0, 1.0, 1.0]).double() ** (1 / temperature)
    expected = dict(zip(range(5, 9), (powers / powers.sum()).tolist()))
    assert abs(too_far([row[0] for row in rows], expected)) < 4


@both_models
def test_next_to_no_temperature_draws_what_is_likeliest(model):
    cold = write(model, TOKENIZER, [6, 3], rule="confident", temperature=1e-300)
    assert cold == write(model, TOKENIZER, [6, 3], rule="greedy")
    assert len(write(model, TOKENIZER, [6], temperature=1e300)[0]) == 6


@pytest.mark.slow
def test_on_the_course_s_grammar_one_word_a_step_is_always_possible():
    grammar = Grammar.load(worlds=["films"])
    tokenizer = tokenizer_of(*grammar.vocabulary)
    lengths = [len(words) for words in grammar.sample(4, seed=2)]
    rows = write(IdealReader(grammar, tokenizer), tokenizer, lengths)
    for row, length in zip(rows, lengths):
        words = [tokenizer.tokens[index] for index in row]
        assert len(words) == length and grammar.log_prob(words) > -math.inf


# ------------------------------------------------------------------------------------ biased


@pytest.fixture(scope="module")
def coins(tmp_path_factory):
    path = tmp_path_factory.mktemp("coins") / "coins.toml"
    path.write_text(
        "[coins]\n[coins.words]\n"
        "first = { heads = 9, tails = 1 }\nsecond = { head = 6, tail = 4 }\n"
        '[coins.steps.both]\nsentences = ["{first} {second}"]\n'
    )
    return World(path)


@pytest.mark.slow
def test_of_two_coins_the_rule_that_looks_at_the_draw_loses_the_rare_side(coins):
    # The first coin's tails (0.1) is less likely than either side of the second, so it is kept
    # only if it is drawn again: 0.1 · 0.1.
    seconds = {"head": 0.6, "tail": 0.4}
    biased = product([{"heads": 0.99, "tails": 0.01}, seconds])
    fair = product([{"heads": 0.9, "tails": 0.1}, seconds])
    found = written(2000, 2, coins, rule="keep_confident")
    assert abs(too_far(found, biased)) < 4 and too_far(found, fair) > 20
    for rule in ("random", "confident", "threshold"):
        assert abs(too_far(written(1000, 2, coins, rule=rule), fair)) < 4
    assert set(written(20, 2, coins, rule="greedy")) == {("heads", "head")}


@pytest.mark.slow
def test_the_biased_rule_s_documents_are_possible_but_come_too_often_or_too_rarely():
    found = written(2000, rule="keep_confident")
    assert set(found) <= DOCUMENTS.keys() and too_far(found, given_length(3)) > 10


@both_models
def test_greedy_takes_the_likeliest_token_of_the_most_confident_blank(model):
    row = [MASK] * 5
    for _ in range(5):
        chances = log_probs(model, [2, *row, 3])[1:-1].exp()
        chances[:, :5] = chances[:, 12:] = 0  # special tokens, and rows without a token
        chances = chances / chances.sum(-1, keepdim=True)
        blanks = [place for place in range(5) if row[place] == MASK]
        place = max(blanks, key=lambda place: chances[place].max().item())
        row[place] = chances[place].argmax().item()
    for temperature in (1.0, 5.0):  # has no say in it
        assert write(model, TOKENIZER, [5], rule="greedy", temperature=temperature) == [row]


def test_a_threshold_fills_what_is_sure_at_once_and_else_the_surest():
    class Sure(Says):
        """Sure of b at places 1 and 3, less sure of c elsewhere, least in the last place."""

        def forward(self, input_ids, attention_mask=None, labels=None):
            logits = super().forward(input_ids)["logits"].clone()
            logits[:, [1, 3], 6] = 9.0
            logits[:, [2, 4], 7] = 3.0
            logits[:, 5, 7] = 2.0
            return {"logits": logits}

    steps = []
    write(Sure(torch.zeros(V)), TOKENIZER, [5], rule="threshold", threshold=0.9,
          watch=lambda step, rows: steps.append([index != MASK for index in rows[0]]))  # fmt: skip
    assert [[place for place in range(5) if row[place]] for row in steps] == [
        [0, 2],
        [0, 1, 2],
        [0, 1, 2, 3],
        [0, 1, 2, 3, 4],
    ]


# ------------------------------------------------------------------------------------ steps


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_blanks_are_shared_out_over_the_steps(schedule):
    for blanks in range(1, 40):
        for steps in range(1, 45):
            counts = reveal_counts(blanks, steps, schedule)
            assert sum(counts) == blanks and len(counts) == min(blanks, steps) and min(counts) >= 1
            if schedule == "equal":
                assert max(counts) - min(counts) <= 1 and counts[0] == min(counts)


def test_the_cosine_writes_few_words_first():
    assert reveal_counts(48, 6, "cosine") == [2, 4, 8, 10, 12, 12]
    assert reveal_counts(48, 6) == [8] * 6


@both_models
@pytest.mark.parametrize("rule", ["random", "confident", "keep_confident", "greedy"])
def test_each_step_fills_as_many_blanks_as_are_its_share(model, rule):
    seen = []
    rows = write(
        model, TOKENIZER, [7, 2], steps=3, rule=rule, watch=lambda step, rows: seen.append(rows)
    )
    assert [[row.count(MASK) for row in rows] for rows in seen] == [[5, 1], [3, 0], [0, 0]]
    assert seen[-1] == rows
    for before, after in itertools.pairwise(seen):  # what is written stays
        for old, new in zip(before, after):
            assert all(a == b for a, b in zip(old, new) if a != MASK)


@every_rule
@both_models
@both_tokenizers
def test_texts_have_their_lengths_their_given_tokens_and_no_special_ones(model, tokenizer, rule):
    given = [None, [5, MASK, 1, MASK, 11], [MASK]]
    rows = write(model, tokenizer, [4, 5, 1], rule=rule, given=given, temperature=5.0)
    assert [len(row) for row in rows] == [4, 5, 1]
    assert rows[1][::2] == [5, 1, 11] and given[1][1] == MASK  # what was handed in stays
    new = rows[0] + rows[1][1:4:2] + rows[2]
    assert all(5 <= index < 12 for index in new)  # the model has 16 rows, and 12 tokens


def test_drawing_meets_no_index_without_a_chance():
    chances = torch.tensor([[0.0, 0.3, 0.0, 0.7, 0.0]], dtype=torch.float64).expand(4, -1)
    ends = torch.tensor([0.0, 0.3, 1 - 2**-53, 1.0], dtype=torch.float64)
    assert sample_tokens(chances, ends).tolist() == [1, 3, 3, 3]


def test_drawing_is_exact_far_below_what_float32_noise_can_reach():
    # With Gumbel noise of float32 a token of e⁻²⁰ would never be drawn; here its share is found.
    chances = torch.tensor([[1.0, math.exp(-20)]], dtype=torch.float64)
    share = (chances / chances.sum())[0, 0].item()
    just = torch.tensor([share - 1e-14, share + 1e-14], dtype=torch.float64)
    assert sample_tokens(chances.expand(2, -1), just).tolist() == [0, 1]


# ------------------------------------------------------------------------------------ seeds


@every_rule
@both_models
def test_what_is_written_hangs_on_the_seed_and_the_place_and_on_nothing_else(model, rule):
    def texts(lengths, **options):
        return write(model, TOKENIZER, lengths, rule=rule, temperature=20.0, **options)

    lengths = [3, 9, 1, 5, 7]
    rows = texts(lengths, seed=1)
    for options in ({}, {"batch_size": 1}, {"batch_size": 2}):
        assert texts(lengths, seed=1, **options) == rows
    assert texts(lengths[:2], seed=1) == rows[:2]
    assert (texts(lengths, seed=2) == rows) == (rule == "greedy")


def test_texts_of_one_seed_differ_and_so_do_seeds_of_equal_last_bits():
    rows = write(Says(torch.zeros(V)), TOKENIZER, [12] * 20)
    assert len(set(map(tuple, rows))) == 20
    seeds = (0, 1, 2, 2**16, 2**31)
    found = [write(Says(torch.zeros(V)), TOKENIZER, [12], seed=seed)[0] for seed in seeds]
    assert len(set(map(tuple, found))) == 5


@every_rule
def test_ours_and_transformers_write_alike(rule):
    ours, theirs = (
        write(model, TOKENIZER, [6, 3], rule=rule, temperature=20.0) for model in (OURS, HF)
    )
    assert ours == theirs


@both_models
def test_writing_leaves_no_trace(model):
    assert_leaves_no_trace(model, lambda: write(model, TOKENIZER, [4, 2], temperature=20.0))


# ------------------------------------------------------------------------------------ refused


@every_rule
def test_a_length_that_the_grammar_has_not_is_told(rule):
    with pytest.raises(
        ValueError, match="no document of this grammar has 7 words; ask for another"
    ):
        write(PAIRS.reader, PAIRS.tokenizer, [3, 7], rule=rule)


def test_a_text_without_a_blank_comes_back_as_it_is():
    given = [[5, 6, 7], None]
    assert write(OURS, TOKENIZER, [3, 1], steps=2, given=given)[0] == [5, 6, 7]


def test_a_model_that_gives_no_word_a_chance_is_told():
    scores = torch.full((V,), -math.inf)
    scores[MASK] = 0.0
    with pytest.raises(ValueError, match="gives no word a chance at a blank"):
        write(Says(scores), TOKENIZER, [2])


@pytest.mark.parametrize(
    "lengths, options, told",
    [
        ([3, -1], {}, r"lengths\[1\]=-1"),
        ([19], {}, "21 tokens; this model reads 20"),
        ([3], {"steps": 0}, "steps=0"),
        ([3], {"steps": 2, "rule": "threshold"}, "steps=2"),
        ([3], {"rule": "best"}, "rule='best'"),
        ([3], {"schedule": "linear"}, "schedule='linear'"),
        ([3], {"temperature": 0}, "temperature=0"),
        ([3], {"threshold": 1.5}, "threshold=1.5"),
        ([3], {"batch_size": 0}, "batch_size=0"),
        ([3], {"given": [[2, 5, 4, 6, 3]]}, r"given\[0\] has 5 tokens and lengths\[0\] is 3"),
        ([3], {"given": [[4, -5, 5]]}, r"given\[0\]\[1\]=-5"),
    ],
)
def test_what_cannot_be_written_is_told(lengths, options, told):
    with pytest.raises(ValueError, match=told):
        write(OURS, TOKENIZER, lengths, **options)


# ------------------------------------------------------------------------------ the ideal reader

TALES = World(GRAMMARS / "tales.toml")
TOLD = TALES.grammar.sample(40, seed=1)


def test_its_answers_are_the_posteriors_of_the_grammar():
    tokenizer, grammar = TALES.tokenizer, TALES.grammar
    batch = MaskingCollator(tokenizer, rate=0.5, mask_share=1.0, random_share=0.0, seed=0)(
        [[2, *TALES.encode(words), 3] for words in TOLD]
    )
    logits = TALES.reader(batch["input_ids"], batch["attention_mask"])["logits"]
    assert logits.shape == (*batch["labels"].shape, len(tokenizer.vocab))
    for row, labels, words in zip(logits, batch["labels"], TOLD):
        place = slice(1, len(words) + 1)
        expected = grammar.posteriors(words, labels[place] == -100)
        found = row[place][:, TALES.reader.columns].exp()
        assert torch.allclose(found, expected, rtol=1e-12, atol=1e-15)
        assert row[place].exp().sum(-1).allclose(torch.ones(1, dtype=torch.float64))
    asked = TALES.reader(**batch)
    assert torch.equal(asked["logits"], logits[batch["labels"] != -100])
    nats = -logits[batch["labels"] != -100].gather(
        1, batch["labels"][batch["labels"] != -100][:, None]
    )
    assert asked["loss"].item() == pytest.approx(nats.mean().item())


def test_its_loss_on_masked_words_is_the_floor_of_the_same_words():
    collator = MaskingCollator(TALES.tokenizer, rate=0.4, mask_share=1.0, random_share=0.0, seed=0)
    held_out = HeldOut([[2, *TALES.encode(words), 3] for words in TOLD], collator)
    answers = masked_answers(TALES.reader, held_out.batches)
    assert answers.nats.mean().item() == pytest.approx(held_out(TALES.reader)["held_out_loss"])


def test_it_fills_blanks_with_words_in_the_order_of_their_chances():
    found = fill_mask(TALES.reader, TALES.tokenizer, "rome again . no [MASK] .", top_k=2)
    assert {one["token_str"] for one in found} == {"city", "town"}
    assert sum(one["score"] for one in found) == pytest.approx(1.0)


def test_it_has_nothing_to_learn():
    assert [weight.numel() for weight in TALES.reader.parameters()] == [0]
    assert "travel" in repr(TALES.reader)


def test_a_text_that_the_grammar_cannot_say_is_an_error_or_leaves_it_lost():
    row = torch.tensor([[2, *TALES.encode("rome rome".split()), 4, 4, 4, 4, 3]])
    with pytest.raises(ValueError, match="no document of this grammar reads so: 'rome rome"):
        TALES.reader(row)
    lost = IdealReader(TALES.grammar, TALES.tokenizer, lost=True)
    chances = lost(row)["logits"][0, 3].exp()
    size = len(TALES.grammar.vocabulary)
    assert chances[TALES.reader.columns].allclose(torch.full((size,), 1 / size).double())


def test_a_length_that_no_document_has_is_an_error_for_the_lost_too():
    row = torch.tensor([[2, 4, 3]])
    for lost in (False, True):
        reader = IdealReader(TALES.grammar, TALES.tokenizer, lost=lost)
        with pytest.raises(ValueError, match="no document of this grammar has 1 words"):
            reader(row)


def test_the_transformers_form_of_the_tokenizer_serves_as_well():
    row = torch.tensor([[2, *TALES.encode("no tea in italy .".split()), 4, 4, 4, 4, 4, 3]])
    theirs = IdealReader(TALES.grammar, TALES.tokenizer.to_hf())
    assert torch.equal(theirs(row)["logits"], TALES.reader(row)["logits"])
    assert theirs(row)["logits"].max() <= math.log(1.0 + 1e-12)


def test_a_word_that_is_no_token_is_told():
    with pytest.raises(KeyError):
        IdealReader(TALES.grammar, tokenizer_of("a"))
