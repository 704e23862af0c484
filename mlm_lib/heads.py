"""The masked-LM head: a score for every token, only where one is asked for. Built in lesson 05.

KerasHub has a layer of the same name and behaviour; the arithmetic is that of transformers'
`BertLMPredictionHead`.
"""

import inspect
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F

from mlm_lib.checks import flag, integers, number, refused, tensor, whole_number


class MaskedLMHead(nn.Module):
    """Gather, dense, activation, layer norm, projection to the vocabulary, bias.

    Devlin et al. (2019). With `token_embedding` the projection *is* the embedding matrix (Press and
    Wolf 2017): one parameter under two names, which stays one when the model is trained, moved or
    deep-copied. Without it the head owns a matrix.

    Args:
        hidden_size: H, the width of the hidden states.
        vocab_size: V. May be left out if `token_embedding` is given.
        token_embedding: an `nn.Embedding` (V, H) to tie the projection to.
        activation: a callable, or the name of a function in `torch.nn.functional` that keeps the
            shape; None or "linear" for none.
        output_activation: the same, applied to the logits; what has to be told an axis, such as
            "softmax", runs over the vocabulary.
        layer_norm_eps: what layer norm adds to the variance.
        bias: whether the dense layer and the layer norm have one; ModernBERT's have none. The
            projection always has.

    Raises:
        ValueError: neither a vocabulary size nor an embedding; an embedding that does not fit
            `vocab_size` or `hidden_size`; an activation that does not exist.
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
        bias=True,
    ):
        super().__init__()
        self.hidden_size = whole_number("hidden_size", hidden_size)
        self.vocab_size = self._rows(vocab_size, token_embedding)
        self.activation = _function("activation", activation)
        self.output_activation = _function("output_activation", output_activation)
        eps = number("layer_norm_eps", layer_norm_eps, least=0)
        self.dense = nn.Linear(self.hidden_size, self.hidden_size, bias=flag("bias", bias))
        self.norm = nn.LayerNorm(self.hidden_size, eps=eps, bias=bias)
        # The whole embedding is kept, not only its weight, so that a weight replaced or moved to a
        # device is still shared.
        self.token_embedding = token_embedding
        shape = self.vocab_size, self.hidden_size
        self.projection = None if self.tied else nn.Parameter(torch.empty(shape))
        self.bias = nn.Parameter(torch.zeros(self.vocab_size))
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
            ValueError: shapes that do not belong together, or a `mask_positions` that is neither
                integer nor bool.
            IndexError: a position outside 0..T−1.
        """
        everywhere = mask_positions is None
        tensor("hidden", hidden, "(..., H)" if everywhere else "(B, T, H)")
        if hidden.shape[-1:] != (self.hidden_size,):
            raise refused("hidden", hidden, f"a tensor (B, T, {self.hidden_size})")
        if not everywhere:
            index = flat_index(mask_positions, *hidden.shape[:2])
            hidden = gather(hidden, index)  # (B, M, H) or (N, H)
        hidden = self.dense(hidden)
        hidden = hidden if self.activation is None else self.activation(hidden)
        hidden = self.norm(hidden)  # (..., H)
        logits = F.linear(hidden, self.weight, self.bias)  # (..., V)
        return logits if self.output_activation is None else self.output_activation(logits)

    def extra_repr(self):
        """What `print(head)` adds to the list of parts."""
        names = _name(self.activation), _name(self.output_activation)
        return (
            f"hidden_size={self.hidden_size}, vocab_size={self.vocab_size}, tied={self.tied}, "
            f"activation={names[0]}, output_activation={names[1]}"
        )

    def _rows(self, vocab_size, token_embedding):
        """V, from either or from both."""
        if token_embedding is None and vocab_size is None:
            raise ValueError(
                "vocab_size and token_embedding are both None; give a number of tokens, or an "
                "embedding to tie to"
            )
        if token_embedding is None:
            return whole_number("vocab_size", vocab_size)
        if not isinstance(token_embedding, nn.Embedding):
            raise refused("token_embedding", token_embedding, "the nn.Embedding that holds it")
        rows, width = token_embedding.weight.shape
        if whole_number("vocab_size", vocab_size, none=True) not in (None, rows):
            raise ValueError(
                f"vocab_size={vocab_size}, but token_embedding has {rows} rows; they must be equal"
            )
        if width != self.hidden_size:
            raise ValueError(
                f"hidden_size={self.hidden_size}, but token_embedding is {width} wide; tied, they "
                "must be equal"
            )
        return rows


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
    tensor("mask_positions", mask_positions, "(...)")
    if mask_positions.dtype == torch.bool:
        if mask_positions.shape != (batch, length):
            like = f"a bool tensor ({batch}, {length}), like the hidden states,"
            raise refused("mask_positions", mask_positions, like)
        return mask_positions.flatten().nonzero().squeeze(1)
    wanted = f"({batch}, M) of whole numbers or ({batch}, {length}) of bool"
    positions = integers("mask_positions", mask_positions, "(B, M)", wanted)
    if len(positions) != batch:
        raise refused("mask_positions", mask_positions, f"a tensor {wanted}")
    outside = (positions < 0) | (positions >= length)
    if outside.any():
        row, slot = outside.nonzero()[0].tolist()
        wrong = positions[outside].unique().tolist()
        first = f"mask_positions names {wrong[:5]}, first at [{row}, {slot}]"
        raise IndexError(f"{first}; positions here run from 0 to {length - 1}")
    return positions + length * torch.arange(batch, device=positions.device)[:, None]


def gather(hidden, index):
    """The rows of (B, T, H) that a `flat_index` names: `(*index.shape, H)`."""
    rows = hidden.flatten(0, 1).index_select(0, index.flatten())
    return rows.view(*index.shape, hidden.shape[-1])


def _function(name, activation):
    """A callable from itself or from its name; None for none, which Keras calls linear."""
    if activation in (None, "linear"):
        return None
    if callable(activation):
        return activation
    found = getattr(F, activation, None) if isinstance(activation, str) else None
    if callable(found) and _has_dim(found):
        found = partial(found, dim=-1)  # over the width, or over the vocabulary
    try:
        shape = found(torch.empty(2, 4, device="meta")).shape  # computes nothing
    except Exception:  # whatever it is, it does not make a tensor of one tensor
        shape = None
    if shape != (2, 4):  # `glu` halves the width
        wanted = "a callable, or the name of one in torch.nn.functional that keeps shapes,"
        raise refused(name, activation, wanted)
    return found


def _has_dim(function):
    try:
        return "dim" in inspect.signature(function).parameters
    except ValueError:  # a builtin, such as `gelu`, which works on each number by itself
        return False


def _name(function):
    """What an activation is called, for `repr`: the same in each process."""
    function = getattr(function, "func", function)  # of a partial
    return getattr(function, "__name__", type(function).__name__)
