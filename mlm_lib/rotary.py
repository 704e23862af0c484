"""Rotary positions: a query and a key are turned, and their product knows the distance. Lesson 16.

Su et al. (2021). The numbers of a head are taken in pairs, as points of a plane, and the pair
number i of the token at position t is turned by the angle t / θ^(2i/D). A product of two turned
points depends on the difference of their angles, and so on the distance of the tokens alone.
Number i is paired with number i + D/2, as in transformers.
"""

from copy import copy

import torch

from mlm_lib.checks import floats, number, tensor, whole_number


class Turns:
    """The cosines and sines by which vectors at some positions are turned.

    Angles and their cosines are of float32, whatever the precision of a model: that is how
    transformers computes them, and what checkpoints were trained with.

    Args:
        positions: (N,) whole numbers, where the vectors stand.
        head_size: D, an even number.
        theta: θ; the slowest pair needs nearly 2πθ positions for a full turn.

    Raises:
        ValueError: an odd or too small D, a θ that is not above 0.
    """

    def __init__(self, positions, head_size, theta):
        tensor("positions", positions, "(N,)")
        head_size, theta = whole_number("head_size", head_size, 2), number("theta", theta, above=0)
        if head_size % 2:
            raise ValueError(f"head_size={head_size}; rotary positions turn pairs, so it is even")
        pairs = torch.arange(0, head_size, 2, dtype=torch.float32, device=positions.device)
        angles = positions.float()[:, None] * (1.0 / theta ** (pairs / head_size))  # (N, D/2)
        self.cos = angles.cos().repeat(1, 2)[:, None]  # (N, 1, D), for both of a pair
        self.sin = angles.sin()[:, None]  # (N, 1, D/2)

    def at(self, positions):
        """The turns at some of the positions: their numbers, (M,), which may repeat."""
        some = copy(self)
        some.cos, some.sin = (part.index_select(0, positions) for part in (self.cos, self.sin))
        return some

    def turn(self, vectors):
        """(..., N, A, D) to the same, each of the A heads turned as its position says.

        Half-precision vectors come back as float32, in which they are turned.

        >>> Turns(torch.tensor([0, 1]), 2, 1.0).turn(torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]]]))
        tensor([[[1.0000, 0.0000]],
        <BLANKLINE>
                [[0.5403, 0.8415]]])

        Raises:
            ValueError: what is not floating point.
        """
        floats("vectors", vectors, "(..., N, A, D)")
        wide = torch.promote_types(vectors.dtype, torch.float32)
        how = _turned if torch.compiler.is_compiling() else _Turn.apply
        return how(vectors, self.cos.to(wide), self.sin.to(wide))


def _turned(vectors, cos, sin):
    """(x, y) to (x cos − y sin, y cos + x sin)."""
    vectors = vectors.to(cos.dtype)
    turned = vectors * cos
    half = sin.shape[-1]
    turned[..., :half].addcmul_(vectors[..., half:], sin, value=-1)
    turned[..., half:].addcmul_(vectors[..., :half], sin)
    return turned


class _Turn(torch.autograd.Function):
    """`_turned`, and its gradient, which is turned back by the same angle."""

    @staticmethod
    def forward(ctx, vectors, cos, sin):
        ctx.save_for_backward(cos, sin)
        return _turned(vectors, cos, sin)

    @staticmethod
    def backward(ctx, gradient):
        cos, sin = ctx.saved_tensors
        return _Turn.apply(gradient, cos, -sin), None, None  # autograd narrows it again
