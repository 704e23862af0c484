"""Blocks of ModernBERT: attention that turns, GeGLU, and norms before both. In lesson 16.

Warner et al. (2024); equal to transformers' `ModernBertEncoderLayer`. A block runs on either layout
of `unpadded.py`, and reads the sizes of a `modern.ModernConfig`.
"""

from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F

from mlm_lib.attention import attention_weights
from mlm_lib.checks import can_look, floats, real_mask, refused
from mlm_lib.dropout import Dropout, drop
from mlm_lib.rotary import Turns
from mlm_lib.unpadded import Padded, Unpadded


class ModernAttention(nn.Module):
    """Attention whose queries and keys are turned by their positions; global or in a window."""

    def __init__(self, config, layer):
        super().__init__()
        H = config.hidden_size
        self.num_heads, self.head_size = config.num_heads, H // config.num_heads
        self.reach = config.reach(layer)
        self.theta = config.global_theta if self.reach is None else config.local_theta
        self.query_key_value = nn.Linear(H, 3 * H, bias=False)  # their rows stand in this order
        self.output = nn.Linear(H, H, bias=False)
        self.dropout = Dropout(config.attention_dropout)

    def forward(self, hidden, layout, turns, need_weights=False, select=None):
        """(..., H) to (..., H) in a layout of `unpadded.py`, and the weights (B, A, T, T) or None.

        `turns` are those of this layer's θ; `select` is that of `ModernEncoder.forward`.
        """
        # 1) Each token's query, key and value, cut into heads; the first two turned.
        projected = self.query_key_value(hidden).unflatten(-1, (3, self.num_heads, -1))
        query, key, value = projected.unbind(-3)  # each (B, T, A, D) or (N, A, D)
        query, key = turns.turn(query), turns.turn(key)
        # 2) Values mixed within each document, or within the window. A processor's way back is
        #    slow in half precision, so what is to be trained stays in float32 for this step.
        device, narrow = hidden.device.type, value.dtype
        wide = device == "cpu" and torch.is_grad_enabled()
        parts = (part.to(query.dtype if wide else narrow) for part in (query, key, value))
        share = self.dropout.p if self.training else 0.0
        how = partial(attend, share=share, need_weights=need_weights)
        with torch.autocast(device, enabled=False):
            mixed, weights = layout.mix(*parts, how, self.reach)  # (..., H)
        # 3) The heads mixed by one more matrix.
        mixed = mixed.to(narrow)
        mixed = mixed if select is None else layout.pick(mixed, select)
        return self.dropout(self.output(mixed)), weights

    def extra_repr(self):
        return f"num_heads={self.num_heads}, reach={self.reach}, theta={self.theta}"


class ModernBlock(nn.Module):
    """Attention, then GeGLU; each reads a normalised copy of the stream and adds to the stream."""

    def __init__(self, config, layer):
        super().__init__()
        H, I = config.hidden_size, config.intermediate_size  # noqa: E741
        # The embeddings are normalised already, so the first block does not do it again.
        self.attention_norm = plain_norm(config) if layer else nn.Identity()
        self.attention = ModernAttention(config, layer)
        self.feed_forward_norm = plain_norm(config)
        self.expand = nn.Linear(H, 2 * I, bias=False)
        self.contract = nn.Linear(I, H, bias=False)
        self.dropout = Dropout(config.mlp_dropout)

    def forward(self, hidden, layout, turns, need_weights=False, select=None):
        """(..., H) to (..., H) or the rows that `select` picks, and the weights or None."""
        attended, weights = self.attention(
            self.attention_norm(hidden), layout, turns, need_weights, select
        )
        hidden = (hidden if select is None else layout.pick(hidden, select)) + attended
        return hidden + self.feed_forward(self.feed_forward_norm(hidden)), weights

    def feed_forward(self, hidden):
        """(..., H) to (..., H), each token by itself: half of the width gates the other half."""
        values, gate = self.expand(hidden).chunk(2, -1)  # (..., I) each
        return self.contract(self.dropout(F.gelu(values) * gate))


class ModernBlocks(nn.ModuleList):
    """Blocks one after the other. A slice of them is a module of the same kind: `blocks[1:3]`."""

    def forward(self, hidden, mask=None, *, unpadded=True):
        """Vectors (B, T, H), and a mask (B, T) of real ones or None, to (B, T, H), 0 at padding.

        This is what `leakage.dependencies` can look at: which inputs does an output depend on?
        """
        floats("hidden", hidden, "(B, T, H)")
        layout = layout_of("hidden", hidden[..., 0], mask, unpadded)
        return layout.put(self.run(layout.take(hidden), layout)[0])

    def run(self, hidden, layout, *, keep=None, need_weights=False, select=None):
        """(..., H) in a layout to (..., H), and each block's weights; `keep` sees all but the last.

        Angles are computed once for each θ, not once a layer.
        """
        turns, attentions = {}, []
        for block in self:
            theta, size = block.attention.theta, block.attention.head_size
            if theta not in turns:
                turns[theta] = layout.turns(partial(Turns, head_size=size, theta=theta))
            last = block is self[-1]
            hidden, weights = block(
                hidden, layout, turns[theta], need_weights, select if last else None
            )
            attentions.append(weights)
            if keep and not last:
                keep(hidden)
        return hidden, attentions


def plain_norm(config):
    """A layer norm that scales and does not shift."""
    return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=False)


def layout_of(name, rows, mask, unpadded):
    """How a batch is laid out for the blocks: a `Padded` or an `Unpadded`.

    Args:
        name, rows: (B, T), whatever it holds, and what errors call it.
        mask: (B, T), 1 or True at real tokens; None: all real.
        unpadded: whether padding should be left out where that is possible.

    Raises:
        ValueError: a mask of another shape, with other values or without a single real token.
    """
    real = None if mask is None else real_mask("attention_mask", mask, name, rows)
    if real is not None and can_look(real):
        if real.numel() and not real.any():
            raise refused("attention_mask", real, "at least one real token in a mask")
        real = None if real.all() else real
    if unpadded and can_look(rows):
        return Unpadded(torch.ones_like(rows, dtype=torch.bool) if real is None else real)
    return Padded(real, rows.shape, rows.device)


def attend(query, key, value, mask, *, share=0.0, need_weights=False):
    """Values mixed by attention, (b, A, t, D), and the weights, (b, A, t, s), or None.

    Args:
        query, key, value: (b, A, t, D), (b, A, s, D), (b, A, s, D).
        mask: True where a query may see a key, of a shape that fits the weights; None: all may.
        share: share of weights to drop.
        need_weights: whether the weights are wanted.
    """
    if need_weights or share and query.device.type == "cpu":  # fused, it drops weights slowly there
        weights = attention_weights(query, key, mask)
        return drop(weights, share) @ value, weights
    options = {"attn_mask": mask, "dropout_p": share}
    return F.scaled_dot_product_attention(query, key, value, **options), None
