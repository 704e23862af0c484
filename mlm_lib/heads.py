"""The masked-LM head: from hidden states to a score for every token, only where a token is asked for. Built in lesson 05.

KerasHub has a layer of the same name and behaviour; the arithmetic is that of transformers' `BertLMPredictionHead`.
"""

from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F

OVER_THE_VOCABULARY = ("softmax", "log_softmax")  # these need to be told which axis


class MaskedLMHead(nn.Module):
    """Gather, dense, activation, layer norm, projection to the vocabulary, bias (Devlin et al. 2019).

    With `token_embedding` the projection *is* the embedding matrix (Press and Wolf 2017): one parameter under two
    names, which stays one when the model is trained, moved or deep-copied. Without it the head owns a matrix.

    Args:
        hidden_size: H, the width of the hidden states.
        vocab_size: V. May be left out if `token_embedding` is given.
        token_embedding: an `nn.Embedding` (V, H) to tie the projection to.
        activation: a callable, or the name of a function in `torch.nn.functional`; None or "linear" for none.
        output_activation: the same, applied to the logits; "softmax" and "log_softmax" run over the vocabulary.
        layer_norm_eps: what layer norm adds to the variance.

    Raises:
        ValueError: neither a vocabulary size nor an embedding; an embedding that does not fit `vocab_size` or
            `hidden_size`; an activation that does not exist.
    """

    def __init__(
        self,
        hidden_size,
        vocab_size=None,
        *,
        token_embedding=None,
        activation="gelu",
        output_activation=None,
        layer_norm_eps=1e-12,
    ):
        super().__init__()
        if token_embedding is None and vocab_size is None:
            raise ValueError(
                "vocab_size and token_embedding are both None; give a number of tokens, or an embedding to tie to"
            )
        if token_embedding is not None:
            if not isinstance(token_embedding, nn.Embedding):
                raise ValueError(
                    f"token_embedding is a {type(token_embedding).__name__}; give the nn.Embedding that holds it"
                )
            rows, width = token_embedding.weight.shape
            if vocab_size not in (None, rows):
                raise ValueError(
                    f"vocab_size={vocab_size}, but token_embedding has {rows} rows; they must be equal"
                )
            if width != hidden_size:
                raise ValueError(
                    f"hidden_size={hidden_size}, but token_embedding is {width} wide; tied, they must be equal"
                )
            vocab_size = rows
        for name, size in (("hidden_size", hidden_size), ("vocab_size", vocab_size)):
            if type(size) is not int or size < 1:
                raise ValueError(f"{name}={size!r} is not a positive integer")
        self.hidden_size, self.vocab_size = hidden_size, vocab_size
        self.activation, self.output_activation = (
            _function(activation),
            _function(output_activation),
        )
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        # The whole embedding is kept, not only its weight, so that a weight replaced or moved to a device is still shared.
        self.token_embedding = token_embedding
        self.projection = None if self.tied else nn.Parameter(torch.empty(vocab_size, hidden_size))
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        for weight in (self.dense.weight, self.projection):
            if weight is not None:
                nn.init.normal_(weight, std=0.02)  # as BERT initialises
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
            hidden: (B, T, H); without `mask_positions` any (..., H), such as states that are gathered already.
            mask_positions: None for all positions; or (B, M) integers, whose M may differ from call to call and whose
                padding may name any position: its scores are the caller's to weight; or (B, T) bool.

        Returns:
            (B, T, V); or (B, M, V); or (N, V) for the N true positions, in row-major order.

        Raises:
            ValueError: shapes that do not belong together, or a `mask_positions` that is neither integer nor bool.
            IndexError: a position outside 0..T−1.
        """
        if hidden.shape[-1] != self.hidden_size or (
            mask_positions is not None and hidden.dim() != 3
        ):
            raise ValueError(
                f"hidden has the shape {tuple(hidden.shape)}; this head reads (B, T, {self.hidden_size})"
            )
        if mask_positions is not None:
            hidden = gather(
                hidden, flat_index(mask_positions, *hidden.shape[:2])
            )  # (B, M, H) or (N, H)
        hidden = self.dense(hidden)
        hidden = hidden if self.activation is None else self.activation(hidden)
        hidden = self.norm(hidden)  # (..., H)
        logits = F.linear(hidden, self.weight, self.bias)  # (..., V)
        return logits if self.output_activation is None else self.output_activation(logits)

    def extra_repr(self):
        """What `print(head)` adds to the list of parts."""
        return f"hidden_size={self.hidden_size}, vocab_size={self.vocab_size}, tied={self.tied}"


def flat_index(mask_positions, batch, length):
    """Where the asked positions lie among the B·T rows of `hidden.flatten(0, 1)`.

    Args:
        mask_positions: (B, M) integers or (B, T) bool, as `MaskedLMHead.forward` takes them.

    Returns:
        (B, M), or (N,) for the N true positions in row-major order; long.

    Raises:
        ValueError, IndexError: as `MaskedLMHead.forward`.
    """
    if not isinstance(mask_positions, torch.Tensor):
        raise ValueError(
            f"mask_positions is a {type(mask_positions).__name__}; give a tensor, (B, M) integers or (B, T) bool"
        )
    shape = tuple(mask_positions.shape)
    if mask_positions.dtype == torch.bool:
        if shape != (batch, length):
            raise ValueError(
                f"a bool mask_positions must be ({batch}, {length}) like the hidden states; got {shape}"
            )
        return mask_positions.flatten().nonzero().squeeze(1)
    if mask_positions.is_floating_point() or mask_positions.is_complex():
        raise ValueError(
            f"mask_positions is {mask_positions.dtype}; give integer positions (B, M) or a bool mask (B, T)"
        )
    if len(shape) != 2 or shape[0] != batch:
        raise ValueError(
            f"mask_positions has the shape {shape}; {batch} rows of hidden states need ({batch}, M)"
        )
    mask_positions = (
        mask_positions.long()
    )  # before comparing: a length of 300 does not fit into 8 bits
    outside = (mask_positions < 0) | (mask_positions >= length)
    if outside.any():
        row, slot = outside.nonzero()[0].tolist()
        wrong = mask_positions[outside].unique().tolist()
        first = f"mask_positions names {wrong[:5]}, first at [{row}, {slot}]"
        raise IndexError(f"{first}; positions here run from 0 to {length - 1}")
    return mask_positions + length * torch.arange(batch, device=mask_positions.device)[:, None]


def gather(hidden, index):
    """The rows of (B, T, H) that a `flat_index` names: (*index.shape, H)."""
    return (
        hidden.flatten(0, 1).index_select(0, index.flatten()).view(*index.shape, hidden.shape[-1])
    )


def _function(activation):
    """A callable from itself or from its name; None for none, which Keras calls linear."""
    if activation in (None, "linear"):
        return None
    if callable(activation):
        return activation
    found = getattr(F, activation, None) if isinstance(activation, str) else None
    if not callable(found):
        raise ValueError(
            f"activation {activation!r} is neither callable nor named in torch.nn.functional, as 'gelu' is"
        )
    return partial(found, dim=-1) if activation in OVER_THE_VOCABULARY else found
