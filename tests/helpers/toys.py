"""Small things that several test files play with: a tokenizer, drawn parameters, padded rows."""

import torch

from mlm_lib.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

# Real tokens of one row of each kind: nothing padded; on the right; on the left; here and there; a
# single word.
REAL = torch.tensor(
    [
        [1, 1, 1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 1, 1, 1, 1],
        [1, 0, 1, 1, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 0, 1, 0, 0],
    ]
).bool()


def tokenizer_of(*tokens):
    """A tokenizer of the special tokens, ids 0..4, and of these, ids from 5 on."""
    vocab = {token: index for index, token in enumerate([*SPECIAL_TOKENS, *tokens])}
    return WordPieceTokenizer(vocab)


def ids_of(size, real=REAL, seed=0):
    """Random ids below `size`; where `real` is, they do not depend on the seed."""
    draws = (torch.Generator().manual_seed(each) for each in (99, seed))
    fixed, other = (torch.randint(size, real.shape, generator=draw) for draw in draws)
    return torch.where(real, fixed, other)


def drawn(module, seed=1, scale=1.0):
    """The module in float64, each parameter drawn anew: no bias is 0 and no scale is 1."""
    draw = torch.Generator().manual_seed(seed)
    for parameter in module.double().parameters():
        parameter.data = scale * torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
    return module


def rows_computed(encoder):
    """A list that will hold how many rows each block's feed-forward part was given."""
    rows = []
    for block in encoder.blocks:
        block.expand.register_forward_pre_hook(
            lambda module, inputs: rows.append(inputs[0].shape[:-1].numel())
        )
    return rows


def gradients(model, loss):
    """{name: gradient} of every parameter, zeros where the loss does not depend on it."""
    named = dict(model.named_parameters())
    found = torch.autograd.grad(loss, named.values(), allow_unused=True, retain_graph=True)
    pairs = zip(named.items(), found)
    return {name: torch.zeros_like(p) if grad is None else grad for (name, p), grad in pairs}
