"""Small things that several test files play with: a tokenizer, drawn parameters, gradients."""

import torch

from mlm_lib.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer


def tokenizer_of(*tokens):
    """A tokenizer of the special tokens, ids 0..4, and of these, ids from 5 on."""
    vocab = {token: index for index, token in enumerate([*SPECIAL_TOKENS, *tokens])}
    return WordPieceTokenizer(vocab)


def drawn(module, seed=1, scale=1.0):
    """The module in float64, each parameter drawn anew: no bias is 0 and no scale is 1."""
    draw = torch.Generator().manual_seed(seed)
    for parameter in module.double().parameters():
        parameter.data = scale * torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
    return module


def gradients(model, loss):
    """{name: gradient} of every parameter, zeros where the loss does not depend on it."""
    named = dict(model.named_parameters())
    found = torch.autograd.grad(loss, named.values(), allow_unused=True, retain_graph=True)
    pairs = zip(named.items(), found)
    return {name: torch.zeros_like(p) if grad is None else grad for (name, p), grad in pairs}
