"""Functions that are right for the usual example and wrong for another size."""

import functools

import pytest
import torch

from mlm_lib.engine.sizes import difference, try_sizes


def doubled(x):
    """The right function: x (B, T) -> (B, T)."""
    return x * 2


def numbers(B, T):
    return (torch.rand(B, T),)


def into_the_argument(x):
    x *= 2
    return x


def by_row(x):
    return torch.stack([row * 2 for row in x[:10]])


def half(x):
    return (x * 2).half()


def fails_on_one_token(x):
    return x * 2 if x.shape[1] > 1 else x[:, 1]


@pytest.mark.parametrize(
    "wrong, words",
    [
        (lambda x: (x * 2).squeeze(), r"with 1 row of 5 tokens, .* \(5,\), and \(1, 5\).*squeeze"),
        (lambda x: (x * 2).squeeze(1), r"with 4 rows of 1 token, .* \(4,\), and \(4, 1\).*squeeze"),
        (into_the_argument, "`into_the_argument` changed its argument `x`"),
        (by_row, r"with 50 rows of 70 tokens, .* \(10, 70\), and \(50, 70\) is needed\.$"),
        (half, "the result of `half` is torch.float16, and torch.float32 is needed"),
        (lambda x: x.tolist(), "the result of your function is .*, and a tensor is needed"),
        (lambda x: x * 2 + (len(x) == 4), r"with 4 rows .*, `your function\(...\)\[0, 0\]` is 1.9"),
        (fails_on_one_token, r"with 4 rows of 1 token, .* IndexError.* in the line `return x \* 2"),
    ],
)
def test_a_mistake_at_one_size_is_told_with_the_size(wrong, words):
    with pytest.raises(AssertionError, match=words):
        try_sizes(wrong, doubled, numbers)


def test_a_size_is_told_in_words_that_fit_it():
    with pytest.raises(AssertionError, match="In a test with 1 row and 5 classes, "):
        try_sizes(half, doubled, numbers, ("row", "class"), between=" and ")


def test_an_argument_or_its_view_is_no_new_result():
    def nothing_hidden(ids, hidden):
        return (ids.view(-1).view(ids.shape) if not hidden.any() else ids * ~hidden), hidden.clone()

    def right(ids, hidden):
        return ids * ~hidden, hidden

    def make(B, T):
        return torch.randint(9, (B, T)), torch.rand(B, T) < 0

    with pytest.raises(AssertionError, match="5 tokens without blanks, .* its argument `ids` itse"):
        try_sizes(nothing_hidden, right, make, where=" without blanks")
    try_sizes(nothing_hidden, right, make, fresh=False)
    with pytest.raises(AssertionError, match="with 1 text, `given` returned its argument `texts`"):
        given = lambda texts: texts  # noqa: E731
        given.__name__ = "given"
        try_sizes(given, list, lambda n: (["a"] * n,), ("text",))


def test_generators_are_new_for_each_call_and_the_global_one_is_left_alone():
    def draw(x, generator):
        return x + torch.rand(x.shape, generator=generator)

    state = torch.get_rng_state()
    try_sizes(draw, draw, lambda B, T: (torch.rand(B, T), torch.Generator().manual_seed(B)))
    assert torch.equal(state, torch.get_rng_state())


class Times:
    """An object that can be called, and that has no `__name__`."""

    def __init__(self, change=None):
        self.change = change

    def __call__(self, x):
        if self.change:
            self.change(x)
        return x * 2


def times(change, x):
    return Times(change)(x)


@pytest.mark.parametrize("kind", [Times, lambda change=None: functools.partial(times, change)])
def test_whatever_can_be_called_is_tried_like_a_function(kind):
    try_sizes(kind(), doubled, numbers)
    with pytest.raises(AssertionError, match="your function changed its argument `x`"):
        try_sizes(kind(torch.Tensor.zero_), doubled, numbers)
    with pytest.raises(AssertionError, match=r"your function ended in .*line `self.change\(x\)`"):
        try_sizes(kind(int), doubled, numbers)


def test_arguments_without_a_name_are_told_by_their_number():
    def second(*both):
        both[1].zero_()
        return both[0] * 2

    two = lambda B, T: (torch.rand(B, T), torch.rand(B, T))  # noqa: E731
    with pytest.raises(AssertionError, match="`second` changed its argument 2"):
        try_sizes(second, lambda x, y: x * 2, two)
    with pytest.raises(AssertionError, match="`neg_` changed its argument 1"):
        try_sizes(torch.neg_, torch.neg, numbers)


def test_code_that_is_not_written_yet_is_not_called_wrong():
    def waits(x):
        raise NotImplementedError("Task 02.1 waits for your code here, in place of this line.")

    with pytest.raises(NotImplementedError, match="waits"):
        try_sizes(waits, doubled, numbers)


@pytest.mark.parametrize(
    "found, wanted, told",
    [
        ([1, 2], (1, 2), None),
        ([1], [1, 2], ("", "has the length 1, and 2 is needed.")),
        ({"a": 1}, {"a": 2}, ("['a']", "is 1, and 2 is needed.")),
        ({}, {"a": 2}, ("", "is {}, and a dict with the keys ['a'] is needed.")),
        (100_001, 100_000, ("", "is 100001, and 100000 is needed.")),
        (torch.tensor(0.5), 0.5000001, None),
        (float("nan"), float("nan"), None),
        (float("nan"), 1.0, ("", "is nan, and 1.0 is needed.")),
        (torch.tensor([float("-inf")]), torch.tensor([float("-inf")]), None),
        (torch.ones(2).double(), torch.ones(2), None),  # a finer result is welcome
        (
            torch.tensor([1, 0]),
            torch.tensor([True, False]),
            ("", "is torch.int64, and torch.bool is needed."),
        ),
        (
            [torch.tensor([True])],
            [torch.tensor([False])],
            ("[0][0]", "is True, and False is needed."),
        ),
    ],
)
def test_a_difference_is_told_with_its_place(found, wanted, told):
    assert difference(found, wanted) == told
