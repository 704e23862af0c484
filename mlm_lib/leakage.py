"""Does an output see what it must predict? Two tests of a language model's honesty. Lesson 10.

The first looks inside: it follows gradients from each output to each input. The second looks from
outside, and needs a corpus whose author is known: no honest reader predicts the author's words
better than the author could.
"""

import copy
import math
from inspect import Parameter, signature

import torch
import torch.nn as nn

from mlm_lib.checks import choice, number, probability, whole_number

DIRECTIONS = ("forward", "backward")
# What lies below this share of the largest gradient is float64's rounding, of a Fourier transform
# for instance, and no dependence; no mask worth the name lets so little through.
ROUNDING = 1e-13
# A layer norm of nearly equal numbers makes up to 1e-12 of the rounding in outputs. What only a
# change shows, a rounded or a detached number, jumps by far more than this share of the largest.
JUMP = 1e-9
DRAWS = 4  # random inputs; a path that one of them happens to close is open for another


def find_leaks(contextualizer, input_size, *, direction, length=8, seed=0):
    """Which outputs of a contextualizer depend on inputs that a language model must not show them.

    A forward output at t predicts the token at t + 1, so it may depend on inputs 0..t; a backward
    one predicts the token at t − 1, and may depend on t..T−1. The test is made on copies in float64
    on the CPU, in training and in evaluation mode, without padding; the module itself is not
    touched. What has no gradient (a rounded or a detached value) is found by changing each input in
    turn. Two things stay hidden: what stands behind a weight of exactly 0, so test a trained model,
    or a fresh one whose weights are not 0; and the mere length of the row.

    Args:
        contextualizer: a module from (B, T, E), and a mask (B, T) bool if it takes a second
            argument, to (B, T, H), or to a list of such layers, the top last, or to a tuple that
            begins with it. Where its attribute `bidirectional` is True, the first half of H is the
            forward direction and the second the backward one; else all of H is the direction asked
            for. A batch-first recurrent network of torch will do.
        input_size: E.
        direction: "forward" or "backward".
        length: T of the random inputs.
        seed: of the random inputs; the global random state is left as it was.

    Returns:
        (T, T) bool, [output, input], True where a forbidden input is seen.

    Raises:
        ValueError: an unknown direction, a length below 2, an output that is not (B, T, H).
    """
    seen = dependencies(contextualizer, input_size, direction=direction, length=length, seed=seed)
    return seen & _forbidden(direction, length)


def assert_no_leaks(contextualizer, input_size, *, length=8):
    """Raises an AssertionError that names the first leak of a contextualizer.

    Arguments as in `find_leaks`. Both directions are tested where its attribute `bidirectional` is
    True, else the forward one.
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
    """Which inputs each output depends on, allowed or not: (T, T) bool, [output, input].

    Arguments as in `find_leaks`.
    """
    choice("direction", direction, DIRECTIONS)
    whole_number("length", length, 2)  # fewer positions can show no leak
    with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed other devices, too
        module = copy.deepcopy(contextualizer).cpu().double()
        found = torch.zeros(length, length, dtype=torch.bool)
        inputs = torch.randn(DRAWS, length, input_size, dtype=torch.float64)
        others = torch.randn(DRAWS, length, input_size, dtype=torch.float64)
        for training in (False, True):
            module.train(training)
            found |= _by_gradient(module, inputs, direction)
            found |= _by_change(module, inputs, others, direction)
        return found


def assert_above_floor(loss, floor, *, chance=1e-9):
    """Raises an AssertionError if a forward or backward loss is lower than an honest one can be.

    Let a model and the author both give probabilities to a document, word by word in one direction.
    The ratio of the two has mean 1 at most over the author's documents, so that by Markov's
    inequality it exceeds 1/c with a chance below c. That holds for any model, however good, which
    fixes its prediction before it sees the word, if neither its training nor its selection has used
    these documents.

    Args:
        loss: the model's mean nats per predicted word over some documents, their ends included, by
            the full softmax.
        floor: of the same documents, `Grammar.floor(documents, objective="forward")` or
            `"backward"`. For masked words there is no such bound: the posteriors of several blanks
            do not multiply to one probability.
        chance: how unlikely the luck must be that is called cheating.

    Raises:
        AssertionError: the loss is too low; the message says by how much.
        ValueError: a loss or a floor that is not finite, a chance that is no probability above 0.
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
    """(T, T) bool, [output, input], True where a language model must not look."""
    after = torch.ones(length, length, dtype=torch.bool).triu(1)
    return after if direction == "forward" else after.T


def _by_gradient(module, inputs, direction):
    inputs = inputs.clone().requires_grad_()
    outputs = _outputs(module, inputs, direction)  # (B, T, H)
    sizes = []
    for t in range(inputs.shape[1]):
        # A random mixture of the H numbers: their plain sum is constant behind a new layer norm.
        mixture = (outputs[:, t] * torch.randn_like(outputs[:, t])).sum()
        mixture = mixture + 0 * inputs.sum()  # so that it has a gradient, be it zeros
        (gradient,) = torch.autograd.grad(mixture, inputs, retain_graph=True)
        sizes.append(gradient.abs().amax(-1))  # (B, T)
    sizes = torch.stack(sizes)  # (T, B, T), [output, draw, input]
    return (~sizes.isfinite() | (sizes > ROUNDING * sizes.amax())).any(1)


@torch.no_grad()
def _by_change(module, inputs, others, direction):
    random = torch.get_rng_state()

    def run(x):
        torch.set_rng_state(random)  # the same dropout each time
        return _outputs(copy.deepcopy(module), x, direction)  # which may keep something from a call

    before = run(inputs)
    largest = before.abs().amax()
    columns = []
    for seen in range(inputs.shape[1]):
        changed = inputs.clone()
        changed[:, seen] = others[:, seen]
        difference = (run(changed) - before).abs().amax(-1)  # (B, T)
        same = difference <= JUMP * largest  # what is not a number is not the same
        columns.append(~same.all(0))  # (T,), of the outputs
    return torch.stack(columns, 1)


def _outputs(module, inputs, direction):
    """(B, T, H): the outputs of one direction."""
    if isinstance(module, nn.RNNBase) and not module.batch_first:
        raise ValueError(f"{type(module).__name__} reads (T, B, E); make it with batch_first=True")
    given = [inputs.clone()]  # which the module may change in place
    # The second argument is a mask, but of a recurrent network it is a state.
    kinds = [argument.kind for argument in signature(module.forward).parameters.values()]
    if kinds.count(Parameter.POSITIONAL_OR_KEYWORD) > 1 and not isinstance(module, nn.RNNBase):
        given.append(torch.ones(inputs.shape[:2], dtype=torch.bool))
    outputs = module(*given)
    if isinstance(outputs, (tuple, list)):
        # Of layers the last is the top; states or weights come second.
        shapes = [getattr(layer, "shape", None) for layer in outputs]
        outputs = outputs[-1 if shapes.count(shapes[0]) == len(shapes) else 0]
    if outputs.dim() != 3 or outputs.shape[:2] != inputs.shape[:2]:
        raise ValueError(f"{type(module).__name__} returned {tuple(outputs.shape)}, not (B, T, H)")
    if not getattr(module, "bidirectional", False):
        return outputs
    return outputs.unflatten(-1, (2, -1))[:, :, DIRECTIONS.index(direction)]
