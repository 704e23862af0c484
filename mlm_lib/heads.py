"""The masked-LM head: a score for every token, only where one is asked for. Built in lesson 05.

KerasHub has a layer of the same name and behaviour; the arithmetic is that of transformers'
`BertLMPredictionHead`.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

from mlm_lib.checks import choice, ids, number, refused


def softmax(scores):
    """Probabilities over the last axis: the vocabulary, of logits."""
    return scores.softmax(-1)


ACTIVATIONS = {"linear": None, "gelu": F.gelu, "relu": F.relu, "silu": F.silu, "softmax": softmax}


class MaskedLMHead(nn.Module):
    """Gather, dense, activation, layer norm, projection to the vocabulary, bias.

    Devlin et al. (2019). With `token_embedding` the projection *is* the embedding matrix (Press and
    Wolf 2017): one parameter under two names, which stays one when the model is trained, moved or
    deep-copied. Without it the head owns a matrix.

    Args:
        hidden_size: H, the width of the hidden states.
        vocab_size: V. May be left out if `token_embedding` is given.
        token_embedding: an `nn.Embedding` (V, H) to tie the projection to.
        activation: "gelu", "relu", "silu", "softmax" or any callable; None or "linear" for none.
        output_activation: the same, applied to the logits.
        layer_norm_eps: what layer norm adds to the variance.
        bias: whether the dense layer and the layer norm have one; ModernBERT's have none. The
            projection always has.

    Raises:
        ValueError: neither a vocabulary size nor an embedding, or both and they differ; an
            activation of another name; an eps that is negative or not finite.
    """

    def __init__(
        self, hidden_size, vocab_size=None, *, token_embedding=None, activation="gelu",
        output_activation=None, layer_norm_eps=1e-12, bias=True,
    ):  # fmt: skip
        super().__init__()
        self.hidden_size = hidden_size
        if token_embedding is None and vocab_size is None:
            both = "vocab_size and token_embedding are both None"
            raise ValueError(f"{both}; give a number of tokens, or an embedding to tie to")
        rows = vocab_size if token_embedding is None else len(token_embedding.weight)
        if vocab_size not in (None, rows):
            both = f"vocab_size={vocab_size}, but token_embedding has {rows} rows"
            raise ValueError(f"{both}; they must be equal")
        self.vocab_size = rows
        self.activation = _function("activation", activation)
        self.output_activation = _function("output_activation", output_activation)
        eps = number("layer_norm_eps", layer_norm_eps, least=0)
        self.dense = nn.Linear(hidden_size, hidden_size, bias=bias)
        self.norm = nn.LayerNorm(hidden_size, eps=eps, bias=bias)
        # The whole embedding is kept, not only its weight, so that a weight replaced or moved to a
        # device is still shared.
        self.token_embedding = token_embedding
        self.projection = None if self.tied else nn.Parameter(torch.empty(rows, hidden_size))
        self.bias = nn.Parameter(torch.zeros(rows))
        for weight in (self.dense.weight, self.projection):
            if weight is not None:
                nn.init.normal_(weight, std=0.02)  # as BERT initialises
        if bias:
            nn.init.zeros_(self.dense.bias)

    @property
    def tied(self):
        """Whether the projection is the token embedding's matrix."""
        return self.token_embedding is not None

    @property
    def weight(self):
        """The projection, (V, H)."""
        return self.token_embedding.weight if self.tied else self.projection

    def forward(self, hidden, mask_positions=None):
        """Logits at the asked positions, or what `output_activation` makes of them.

        Args:
            hidden: (B, T, H); without `mask_positions` any (..., H), such as states that are
                gathered already.
            mask_positions: None for all positions; or (B, M) integers, whose M may differ from call
                to call and whose padding may name any position: its scores are the caller's to
                weight; or (B, T) bool.

        Returns:
            (B, T, V); or (B, M, V); or (N, V) for the N true positions, in row-major order.

        Raises:
            ValueError: a `mask_positions` of another shape, or neither integer nor bool.
            IndexError: a position outside 0..T−1.
        """
        if mask_positions is not None:
            index = flat_index(mask_positions, *hidden.shape[:2])
            hidden = gather(hidden, index)  # (B, M, H) or (N, H)
        hidden = self.dense(hidden)
        hidden = hidden if self.activation is None else self.activation(hidden)
        hidden = self.norm(hidden)  # (..., H)
        logits = F.linear(hidden, self.weight, self.bias)  # (..., V)
        return logits if self.output_activation is None else self.output_activation(logits)

    def extra_repr(self):
        """What `print(head)` adds to the list of parts."""
        sizes = f"hidden_size={self.hidden_size}, vocab_size={self.vocab_size}, tied={self.tied}"
        names = _name(self.activation), _name(self.output_activation)
        return f"{sizes}, activation={names[0]}, output_activation={names[1]}"


def _function(name, activation):
    """A callable from itself or from its name; None for none, which Keras calls linear."""
    if activation is None or callable(activation):
        return activation
    return ACTIVATIONS[choice(name, activation, ACTIVATIONS)]


def _name(function):
    """What an activation is called, for `repr`: the same in each process."""
    return getattr(function, "__name__", type(function).__name__)


# ------------------------------------------------------------------------ at the asked positions


def flat_index(mask_positions, batch, length):
    """Where the asked positions lie among the B·T rows of `hidden.flatten(0, 1)`.

    Args:
        mask_positions: (B, M) integers or (B, T) bool, as `MaskedLMHead.forward` takes them.
        batch, length: B and T.

    Returns:
        (B, M), or (N,) for the N true positions in row-major order; long.

    Raises:
        ValueError, IndexError: as `MaskedLMHead.forward`.

    >>> flat_index(torch.tensor([[0, 2], [1, 1]]), 2, 3)
    tensor([[0, 2],
            [4, 4]])
    """
    if mask_positions.dtype == torch.bool:
        if mask_positions.shape != (batch, length):
            raise refused("mask_positions", mask_positions, f"a bool tensor ({batch}, {length})")
        return mask_positions.flatten().nonzero().squeeze(1)
    positions = ids("mask_positions", mask_positions, "(B, M)").long()
    if len(positions) != batch:  # one row would be taken for all
        raise refused("mask_positions", mask_positions, f"a tensor ({batch}, M)")
    outside = (positions < 0) | (positions >= length)
    if outside.any():
        wrong, first = positions[outside].unique().tolist(), outside.nonzero()[0].tolist()
        named = f"mask_positions names {wrong[:5]}, first at {first}"
        raise IndexError(f"{named}; positions here run from 0 to {length - 1}")
    return positions + length * torch.arange(batch, device=positions.device)[:, None]


def gather(hidden, index):
    """The rows of (B, T, H) that a `flat_index` names, on any device: `(*index.shape, H)`."""
    from_cpu = index.device.type == "cpu"  # which need not be waited for
    places = index.flatten().to(hidden.device, non_blocking=from_cpu)
    rows = hidden.flatten(0, 1).index_select(0, places)
    return rows.view(*index.shape, hidden.shape[-1])
