"""Readers of one direction, and two of them side by side, of which neither can peek. Lesson 10.

Both directions are one mechanism. A stack reads from left to right; the backward direction is a
second stack, with weights of its own, that is handed each row in reverse. So nothing in it could
look ahead, not even a count of positions, which would tell how much is still to come.
"""

from functools import partial

import torch
import torch.nn as nn

from mlm_lib.checks import can_look, flag, probability, real_mask, refused, tensor, whole_number
from mlm_lib.dropout import Dropout
from mlm_lib.encoder import Block, EncoderConfig


class Contextualizer(nn.Module):
    """Two stacks, or one, that read in one direction each; what they return stands side by side.

    Args:
        make_stack: makes one stack: a module from (B, T, E), real tokens first, to a list of
            layers, each (B, T, H), in which position t depends on positions up to t only.
        num_layers: how many layers it lists.
        output_size: H of one direction.
        bidirectional: whether there is a second stack for the other direction.

    Raises:
        ValueError: an argument that is none of these, by its name.
    """

    def __init__(self, make_stack, num_layers, output_size, bidirectional):
        super().__init__()
        if not callable(make_stack):
            raise refused("make_stack", make_stack, "a function that makes a module")
        self.num_layers = whole_number("num_layers", num_layers)
        self.bidirectional = flag("bidirectional", bidirectional)
        self.output_size = whole_number("output_size", output_size) * (2 if bidirectional else 1)
        self.forward_stack = make_stack()
        self.backward_stack = make_stack() if bidirectional else None

    def forward(self, embeddings, mask, *, all_layers=False):
        """Contextual vectors, 0 at pads. Pads change nothing at real tokens, wherever they stand.

        Args:
            embeddings: (B, T, E).
            mask: (B, T), 1 or True at real tokens; None if all are real.
            all_layers: return every layer, not the top alone.

        Returns:
            (B, T, output_size), or a list of `num_layers` of them, the top last. Of a bidirectional
            contextualizer the first half is the forward direction, which has read up to its own
            position, and the second the backward.

        Raises:
            ValueError: embeddings of another shape, a mask of another shape or with other values.
        """
        tensor("embeddings", embeddings, "(B, T, E)")
        if mask is not None:
            mask = real_mask("mask", mask, "embeddings but for their width", embeddings[..., 0])
        layers = _read(self.forward_stack, embeddings, mask, reverse=False)
        if self.backward_stack is not None:
            backward = _read(self.backward_stack, embeddings, mask, reverse=True)
            layers = [torch.cat(pair, -1) for pair in zip(layers, backward)]
        return layers if flag("all_layers", all_layers) else layers[-1]


class LSTMContextualizer(Contextualizer):
    """Stacked LSTMs, one stack a direction, as in ELMo (Peters et al. 2018).

    A bidirectional `nn.LSTM` of several layers will not do: its second layer reads both directions
    of the first, and so has seen every token that it is asked to predict.

    Args:
        input_size: E.
        hidden_size: H of one direction.
        num_layers: layers of each stack.
        bidirectional: whether there is a backward stack.
        dropout: share of the numbers dropped between layers, in training.

    Raises:
        ValueError: a size that is no whole number above 0, or a dropout that is no probability.
    """

    def __init__(self, input_size, hidden_size, num_layers, *, bidirectional, dropout=0.0):
        input_size = whole_number("input_size", input_size)
        hidden_size = whole_number("hidden_size", hidden_size)
        sizes = [input_size] + [hidden_size] * (whole_number("num_layers", num_layers) - 1)
        make_stack = partial(_LSTMStack, sizes, hidden_size, probability("dropout", dropout))
        super().__init__(make_stack, num_layers, hidden_size, bidirectional)


class TransformerContextualizer(Contextualizer):
    """BERT's blocks under a causal mask, one stack a direction.

    Positions are sinusoids (Vaswani et al. 2017). They are counted from the end at which a stack
    begins to read, and pads are not counted.

    Args:
        hidden_size: H, the width of the embeddings and of one direction.
        num_layers: blocks of each stack.
        num_heads: attention heads; must divide H.
        bidirectional: whether there is a backward stack.
        dropout: share of hidden values and of attention weights dropped in training.

    Raises:
        ValueError: a size that is no whole number above 0, heads that do not divide the width, a
            dropout that is no probability.
    """

    def __init__(self, hidden_size, num_layers, num_heads, *, bidirectional, dropout=0.1):
        wide = 4 * whole_number("hidden_size", hidden_size)
        config = EncoderConfig(1, hidden_size, num_layers, num_heads, wide, dropout=dropout)
        make_stack = partial(_TransformerStack, config)
        super().__init__(make_stack, num_layers, hidden_size, bidirectional)


class _LSTMStack(nn.Module):
    def __init__(self, sizes, hidden_size, dropout):
        super().__init__()
        self.layers = nn.ModuleList(nn.LSTM(size, hidden_size, batch_first=True) for size in sizes)
        self.dropout = Dropout(dropout)

    def forward(self, hidden):
        states = []
        for layer in self.layers:
            hidden = layer(self.dropout(hidden) if states else hidden)[0]  # (B, T, H)
            states.append(hidden)
        return states


class _TransformerStack(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=config.initializer_range)
                nn.init.zeros_(module.bias)

    def forward(self, hidden):
        T, H = hidden.shape[1:]
        # Normalised first: token and position are of like size, whatever the embedder's scale.
        hidden = self.dropout(self.norm(hidden) + sinusoids(T, H).to(hidden))  # (B, T, H)
        causal = torch.ones(T, T, dtype=torch.bool, device=hidden.device).tril()  # [query, key]
        states = []
        for block in self.blocks:
            hidden = block(hidden, causal[None, None])[0]
            states.append(hidden)
        return states


def sinusoids(length, size):
    """(T, H) position vectors: sines and cosines of the position (Vaswani et al. 2017).

    The angle of position t in the pair of columns 2i, 2i + 1 is t / 10000^(2i/H): wavelengths from
    2π to 20,000π.

    >>> sinusoids(2, 2)
    tensor([[0.0000, 1.0000],
            [0.8415, 0.5403]], dtype=torch.float64)
    """
    length, size = whole_number("length", length, 0), whole_number("size", size)
    rates = 10000 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)  # (H/2,), rounded up
    angles = torch.arange(length)[:, None] * rates  # (T, H/2)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :size]


def _read(stack, embeddings, mask, *, reverse):
    """The layers of a stack that reads each row's real tokens in order, or in reverse order.

    Each vector stands where its token does; at pads it is 0.
    """
    if mask is None or can_look(mask) and mask.all():
        if not reverse:
            return stack(embeddings)
        return [layer.flip(1) for layer in stack(embeddings.flip(1))]
    # 1) Real tokens first, in the order in which they are read; behind them pads, which are not
    #    read before any: a place counts T more where a pad is.
    T = mask.shape[1]
    places = torch.arange(T, device=mask.device)
    places = places.flip(0) if reverse else places
    order = (~mask * T + places).argsort(1)  # (B, T)
    # 2) Read, with zeros for whatever stands at pads.
    layers = stack(_take(embeddings.masked_fill(~mask[..., None], 0.0), order))
    # 3) Every vector back to its token.
    back = order.argsort(1)
    return [_take(layer, back).masked_fill(~mask[..., None], 0.0) for layer in layers]


def _take(rows, places):
    """(B, T, E) rows in the order of (B, T) places."""
    return rows.gather(1, places[..., None].expand(-1, -1, rows.shape[-1]))
