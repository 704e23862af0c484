"""The masked-LM head: hidden states in, a score for every token of the vocabulary out.

The head can compute scores at given positions only, such as those of the hidden tokens. KerasHub
has a layer of the same name and behaviour, and the arithmetic is that of transformers'
`BertLMPredictionHead`. Built in the lesson on the head.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

from mlm_lib.checks import choice, ids, number, refused


def gelu_tanh(x):
    """GELU, approximated by means of tanh (Hendrycks and Gimpel 2016, section 2)."""
    return F.gelu(x, approximate="tanh")


def softmax(scores):
    """Softmax over the last axis, which for logits is the vocabulary."""
    return scores.softmax(-1)


# The activations that have a name, in the head and in the feed-forward part of the encoder.
ACTIVATIONS = {
    "linear": None,  # as Keras calls it when there is no activation
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "relu": F.relu,
    "silu": F.silu,
    "softmax": softmax,
}


class MaskedLMHead(nn.Module):
    """Computes a score for every token of the vocabulary from hidden states (Devlin et al. 2019).

    The head takes the states at the positions that are asked for, and applies a dense layer, an
    activation, layer norm, the projection to the vocabulary, and a bias for each token.

    With `token_embedding` the projection *is* the embedding matrix (Press and Wolf 2017): one
    parameter under two names, which stays one parameter when the model is trained, moved to a
    device or deep-copied. Without `token_embedding` the head has a matrix of its own.

    Args:
        hidden_size: H, the width of the hidden states.
        vocab_size: V, the number of tokens. It may be left out if `token_embedding` is given.
        token_embedding: an `nn.Embedding` (V, H) to tie the projection to.
        activation: "gelu", "gelu_tanh", "relu", "silu", "softmax" or any callable; None or "linear"
            for no activation.
        output_activation: an activation for the logits, with the same choices as `activation`. With
            "softmax", for example, the head returns probabilities.
        layer_norm_eps: what layer norm adds to the variance.
        bias: whether the dense layer and the layer norm have a bias; in ModernBERT they have none.
            The projection always has a bias.

    Raises:
        ValueError: `vocab_size` and `token_embedding` are both missing; `vocab_size` is not the
            embedding's number of rows; the name of an activation is unknown; or `layer_norm_eps` is
            negative or not finite.

    >>> MaskedLMHead(8, vocab_size=11)(torch.zeros(2, 5, 8)).shape
    torch.Size([2, 5, 11])
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
        self.activation = _callable("activation", activation)
        self.output_activation = _callable("output_activation", output_activation)
        eps = number("layer_norm_eps", layer_norm_eps, least=0)
        self.dense = nn.Linear(hidden_size, hidden_size, bias=bias)
        self.norm = nn.LayerNorm(hidden_size, eps=eps, bias=bias)
        # The head keeps the embedding and not its weight, because the module that holds a weight
        # may replace it by another tensor, for example when it is moved to a device.
        self.token_embedding = token_embedding
        self.projection = None if self.tied else nn.Parameter(torch.empty(rows, hidden_size))
        self.bias = nn.Parameter(torch.zeros(rows))
        for weight in (self.dense.weight, self.projection):
            if weight is not None:
                nn.init.normal_(weight, std=0.02)  # BERT's initial weights
        if bias:
            nn.init.zeros_(self.dense.bias)

    @property
    def tied(self):
        """Whether the projection is the matrix of the token embedding."""
        return self.token_embedding is not None

    @property
    def weight(self):
        """The matrix of the projection, (V, H)."""
        return self.token_embedding.weight if self.tied else self.projection

    def forward(self, hidden, mask_positions=None):
        """Computes the logits at the positions that are asked for. If there is an
        `output_activation`, it is applied to them.

        Args:
            hidden: hidden states (B, T, H). Without `mask_positions` any shape (..., H) is allowed,
                for example if positions were selected before.
            mask_positions: the positions that are asked for. None: all positions. Integers (B, M):
                these M positions of each row, where M may differ between calls. If a row has fewer
                positions than M, fill it with any valid position, and give these scores weight 0 in
                your loss. `MaskedLanguageModel.forward` does both where it is given a negative
                position. Bool (B, T): the positions that are True.

        Returns:
            (B, T, V) for None; (B, M, V) for integers; (N, V) for the N True positions of a bool
            tensor, in row-major order.

        Raises:
            ValueError: `mask_positions` has another shape, or is neither integer nor bool.
            IndexError: a position is not in 0..T−1.
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
        """The sizes and activations, for `print(head)`."""
        sizes = f"hidden_size={self.hidden_size}, vocab_size={self.vocab_size}, tied={self.tied}"
        names = activation_name(self.activation), activation_name(self.output_activation)
        return f"{sizes}, activation={names[0]}, output_activation={names[1]}"


def _callable(name, activation):
    """The function of an activation that is given by name, or is callable already, or is None."""
    if activation is None or callable(activation):
        return activation
    return ACTIVATIONS[choice(name, activation, ACTIVATIONS)]


def activation_name(function):
    """The name of an activation, for the description of a module.

    The `repr` of a function is not used, because it contains a memory address that changes in every
    run.

    >>> activation_name(F.gelu), activation_name(nn.PReLU())
    ('gelu', 'PReLU')
    """
    return getattr(function, "__name__", type(function).__name__)


# ------------------------------------------------------------------------ at given positions


def flat_index(mask_positions, batch, length):
    """Finds the row numbers of some positions in `hidden.flatten(0, 1)`, which has B·T rows.

    Args:
        mask_positions: (B, M) integers or (B, T) bool, as `MaskedLMHead.forward` takes them.
        batch, length: B and T.

    Returns:
        Long row numbers, (B, M) for integers, or (N,) for the N True positions of a bool tensor, in
        row-major order.

    Raises:
        ValueError, IndexError: in the same cases as in `MaskedLMHead.forward`.

    >>> flat_index(torch.tensor([[0, 2], [1, 1]]), 2, 3)
    tensor([[0, 2],
            [4, 4]])
    """
    if mask_positions.dtype == torch.bool:
        if mask_positions.shape != (batch, length):
            raise refused("mask_positions", mask_positions, f"a bool tensor ({batch}, {length})")
        return mask_positions.flatten().nonzero().squeeze(1)
    positions = ids("mask_positions", mask_positions, "(B, M)").long()
    if len(positions) != batch:  # a single row would be broadcast to all rows
        raise refused("mask_positions", mask_positions, f"a tensor ({batch}, M)")
    outside = (positions < 0) | (positions >= length)
    if outside.any():
        wrong, first = positions[outside].unique().tolist(), outside.nonzero()[0].tolist()
        named = f"mask_positions names {wrong[:5]}, first at {first}"
        raise IndexError(f"{named}; positions here run from 0 to {length - 1}")
    return positions + length * torch.arange(batch, device=positions.device)[:, None]


def gather(hidden, index):
    """Picks rows of the hidden states, by the row numbers that `flat_index` returned.

    Args:
        hidden: (B, T, H).
        index: row numbers of any shape, on the device of `hidden` or on the CPU.

    Returns:
        The rows, in the shape of `index` with H as the last axis.
    """
    # Python need not wait for a copy from the CPU to a GPU. For a copy in the other direction it
    # would have to wait until the GPU has finished.
    from_cpu = index.device.type == "cpu"
    places = index.flatten().to(hidden.device, non_blocking=from_cpu)
    rows = hidden.flatten(0, 1).index_select(0, places)
    return rows.view(*index.shape, hidden.shape[-1])
