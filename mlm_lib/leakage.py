"""Check that a language model does not see the tokens that it predicts. Built in lesson 11.

There are two checks. `find_leaks` and `assert_no_leaks` look inside a model: they find out on which
inputs each output depends. The part of the model that they check is the *contextualizer*, which
computes from the vectors of a row a vector for each position that depends on other positions.
`assert_above_floor` needs only the model's loss on a corpus with a known lowest possible loss. A
model that cannot see the next word does not predict better than the distribution from which the
text was drawn.
"""

import copy
import math
from inspect import Parameter, signature

import torch
import torch.nn as nn

from mlm_lib.checks import choice, number, probability, whole_number

DIRECTIONS = ("forward", "backward")
# Gradients smaller than this fraction of the largest gradient are rounding errors of float64, for
# example in a Fourier transform, and not a dependence. A faulty attention mask gives much larger
# gradients.
GRADIENT_TOLERANCE = 1e-13
# Changes of the output smaller than this fraction of the largest output are rounding errors. The
# layer norm of nearly equal numbers enlarges rounding errors up to 1e-12 of the largest output. If
# an output depends on a rounded or detached input, the change is much larger than this fraction.
CHANGE_TOLERANCE = 1e-9
NUM_INPUTS = 4  # random inputs; a dependence that one of them happens to hide appears in another


def find_leaks(contextualizer, input_size, *, direction, length=8, seed=0):
    """Find the outputs of a contextualizer that depend on inputs they must not see.

    The forward output at position t predicts the token at t + 1, so it may depend only on the
    inputs 0..t. The backward output at t predicts the token at t − 1, so it may depend only on the
    inputs t..T−1. `assert_no_leaks` turns the result into an error message.

    The check works on copies of the module, in float64 on the CPU, in training mode and in
    evaluation mode, without padding. The module itself is not changed. Dependences are found by
    gradients. Where there is no gradient, because a value is rounded or detached, they are found by
    changing one input after another.

    Two kinds of dependence are not found. The first passes through a weight of exactly 0, so check
    a trained model, or a model with random weights. The second is a dependence on the length of the
    row.

    >>> cheat = torch.nn.LSTM(3, 3, batch_first=True, bidirectional=True, num_layers=2)
    >>> find_leaks(cheat, 3, direction="forward", length=3)  # [output, input]
    tensor([[False,  True,  True],
            [False, False,  True],
            [False, False, False]])

    Args:
        contextualizer: a module that is called with vectors (B, T, E). If it takes a second
            argument, this argument is a bool mask (B, T). The module returns vectors (B, T, H), or
            a list of such layers with the top layer last, or a tuple with the vectors as its first
            entry. If the module has an attribute `bidirectional` that is True, the first half of H
            is the forward direction and the second half the backward direction. Otherwise all of H
            is the direction that `direction` names. A recurrent network of torch with
            `batch_first=True` works as well.
        input_size: E, the width of the input vectors.
        direction: "forward" or "backward".
        length: T, the length of the random inputs.
        seed: the seed of the random inputs. The state of torch's global generator is restored
            afterwards.

    Returns:
        (T, T) bool, indexed by [output, input], True where an output depends on a forbidden input.

    Raises:
        ValueError: `direction` is unknown, `length` is below 2, or the output is not (B, T, H).
    """
    seen = dependencies(contextualizer, input_size, direction=direction, length=length, seed=seed)
    return seen & _forbidden(direction, length)


def assert_no_leaks(contextualizer, input_size, *, length=8):
    """Raise an error that names the first output that sees what it predicts, if there is one.

    If the contextualizer has an attribute `bidirectional` that is True, both directions are
    checked, and otherwise only the forward direction.

    Args:
        contextualizer, input_size, length: as in `find_leaks`.

    Raises:
        AssertionError: there is a leak. The message names its output and its input.
        ValueError: as in `find_leaks`.
    """
    for direction in DIRECTIONS[: 2 if getattr(contextualizer, "bidirectional", False) else 1]:
        leaks = find_leaks(contextualizer, input_size, direction=direction, length=length)
        if leaks.any():
            output, seen = leaks.nonzero()[0].tolist()
            step, allowed = (1, "up to") if direction == "forward" else (-1, "from")
            most = _forbidden(direction, length).sum()
            raise AssertionError(
                f"{type(contextualizer).__name__} leaks: its {direction} output at position "
                f"{output}, which predicts the token at position {output + step}, depends on the "
                f"input at position {seen} ({leaks.sum()} of {most} forbidden pairs of output and "
                f"input). A {direction} output may depend on positions {allowed} its own only"
            )


def dependencies(contextualizer, input_size, *, direction, length=8, seed=0):
    """Find the inputs on which each output depends, allowed and forbidden ones.

    Args:
        contextualizer, input_size, direction, length, seed: as in `find_leaks`.

    Returns:
        (T, T) bool, indexed by [output, input].

    Raises:
        ValueError: as in `find_leaks`.
    """
    choice("direction", direction, DIRECTIONS)
    whole_number("length", length, 2)  # a single position has no forbidden input
    with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
        torch.default_generator.manual_seed(seed)  # torch.manual_seed seeds the GPU, too
        module = copy.deepcopy(contextualizer).cpu().double()
        found = torch.zeros(length, length, dtype=torch.bool)
        inputs = torch.randn(NUM_INPUTS, length, input_size, dtype=torch.float64)
        others = torch.randn(NUM_INPUTS, length, input_size, dtype=torch.float64)
        for training in (False, True):
            module.train(training)
            found |= _by_gradient(module, inputs, direction)
            found |= _by_change(module, inputs, others, direction)
        return found


def assert_above_floor(loss, floor, *, chance=1e-9):
    """Raise an error if a forward or backward loss is lower than is possible without a leak.

    Suppose that a model predicts a document word by word, in one direction, and cannot see the word
    that it predicts. Divide the probability that the model gives to the document by the true
    probability of the document, that is, under the distribution from which the document was drawn.
    The mean of this ratio over that distribution is at most 1. So by Markov's inequality the ratio
    is above 1/c with a probability below c. This is true of every such model, however good the
    model is, provided that these documents were used neither to train nor to select the model.

    Args:
        loss: the model's mean loss over some documents, in nats (the natural logarithm) per
            predicted word. The loss must include the ends of the documents, and be computed with
            the full softmax.
        floor: the lowest possible loss on the same documents:
            `Grammar.floor(documents, objective="forward")`, or `"backward"`. For masked words there
            is no such inequality, because the posteriors of several masked words do not multiply to
            one probability.
        chance: c. A model without a leak gets the error with a probability below c.

    Raises:
        AssertionError: the loss is too low. The message says by how much.
        ValueError: the loss or the floor is not finite, or `chance` is not a probability above 0.
    """
    loss, bound = number("loss", float(loss)), number("floor", floor.nats)
    gain = (bound - loss) * floor.count  # the logarithm of the ratio
    if gain > -math.log(probability("chance", chance)):
        raise AssertionError(
            f"a loss of {loss:.4f} is below the floor of {bound:.4f} nats, {gain:.0f} nats in "
            f"total over {floor.count} words. An honest model is that lucky with a chance below "
            f"exp(-{gain:.0f}): this one sees what it predicts"
        )


def _forbidden(direction, length):
    """(T, T) bool, [output, input], True at inputs that an output must not depend on."""
    after = torch.ones(length, length, dtype=torch.bool).triu(1)
    return after if direction == "forward" else after.T


def _by_gradient(module, inputs, direction):
    """The dependences that have a gradient, (T, T) bool, [output, input]."""
    inputs = inputs.clone().requires_grad_()
    outputs = _outputs(module, inputs, direction)  # (B, T, H)
    sizes = []
    for t in range(inputs.shape[1]):
        # A random combination of the H numbers. Their plain sum would not do, because after a fresh
        # layer norm it is constant.
        mixture = (outputs[:, t] * torch.randn_like(outputs[:, t])).sum()
        mixture = mixture + 0 * inputs.sum()  # so that there is a gradient, even if it is 0
        (gradient,) = torch.autograd.grad(mixture, inputs, retain_graph=True)
        sizes.append(gradient.abs().amax(-1))  # (B, T)
    sizes = torch.stack(sizes)  # (T, B, T), [output, random input, position]
    return (~sizes.isfinite() | (sizes > GRADIENT_TOLERANCE * sizes.amax())).any(1)


@torch.no_grad()
def _by_change(module, inputs, others, direction):
    """The dependences that show if one input after another is changed, (T, T) bool."""
    random_state = torch.get_rng_state()

    def run(x):
        torch.set_rng_state(random_state)  # the same dropout in each run
        return _outputs(copy.deepcopy(module), x, direction)  # a copy: a call may change the module

    before = run(inputs)
    largest = before.abs().amax()
    columns = []
    for position in range(inputs.shape[1]):
        changed = inputs.clone()
        changed[:, position] = others[:, position]
        difference = (run(changed) - before).abs().amax(-1)  # (B, T)
        same = difference <= CHANGE_TOLERANCE * largest  # False where the difference is NaN
        columns.append(~same.all(0))  # (T,), of the outputs
    return torch.stack(columns, 1)


def _outputs(module, inputs, direction):
    """Run a module, and return the outputs of one direction, (B, T, H)."""
    if isinstance(module, nn.RNNBase) and not module.batch_first:
        raise ValueError(f"{type(module).__name__} reads (T, B, E); make it with batch_first=True")
    given = [inputs.clone()]  # a copy, because the module may change its input in place
    # The second argument is a mask, except in torch's recurrent networks, where it is a state.
    kinds = [argument.kind for argument in signature(module.forward).parameters.values()]
    if kinds.count(Parameter.POSITIONAL_OR_KEYWORD) > 1 and not isinstance(module, nn.RNNBase):
        given.append(torch.ones(inputs.shape[:2], dtype=torch.bool))
    outputs = module(*given)
    if isinstance(outputs, (tuple, list)):
        # If all entries have one shape, they are layers, and the last is the top layer. Otherwise
        # the first entry is the output, and states or weights follow.
        shapes = [getattr(layer, "shape", None) for layer in outputs]
        outputs = outputs[-1 if shapes.count(shapes[0]) == len(shapes) else 0]
    if outputs.dim() != 3 or outputs.shape[:2] != inputs.shape[:2]:
        raise ValueError(f"{type(module).__name__} returned {tuple(outputs.shape)}, not (B, T, H)")
    if not getattr(module, "bidirectional", False):
        return outputs
    return outputs.unflatten(-1, (2, -1))[:, :, DIRECTIONS.index(direction)]
