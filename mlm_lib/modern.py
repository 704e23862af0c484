"""ModernBERT, a BERT encoder of 2024, built part by part from the BERT encoder.

The encoder is that of Warner et al. (2024), "Smarter, Better, Faster, Longer". It gives the same
hidden states as transformers' `ModernBertModel`. ModernBERT differs from BERT in six ways:
positions are given by rotation (Su et al. 2021), layer norm comes before each part and not after it
(Xiong et al. 2020), there are no biases, the feed-forward part is a GeGLU (Shazeer 2020), most
layers attend to a window only (Beltagy et al. 2020), and padding is not computed. Built in lesson
18.
"""

from dataclasses import dataclass, field
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F

from mlm_lib.checks import (
    can_read_without_sync,
    known_ids,
    number,
    probability,
    real_mask,
    refused,
    tensor,
    whole_number,
)
from mlm_lib.encoder import Dropout, EncoderOutput, attend, check_sizes
from mlm_lib.heads import MaskedLMHead
from mlm_lib.unpadded import Padded, Unpadded


@dataclass
class ModernConfig:
    """The sizes and settings of a `ModernEncoder`.

    The defaults are the values that both sizes of ModernBERT have in common. The only exception is
    `pad_token_id`, because this id depends on the tokenizer.

    Args:
        vocab_size: V, the number of tokens.
        hidden_size: H, the width of every hidden state.
        num_layers: the number of blocks, at most 1,000.
        num_heads: A, the number of attention heads of a block; H/A must be a whole and even number.
        intermediate_size: I, the width inside the feed-forward part; in ModernBERT it is 1.5H. A
            GeGLU has two matrices of this width where BERT has one matrix.
        window: a token of a local layer attends to itself and to `window // 2` positions on each
            side.
        global_every: every `global_every`-th block, starting with block 0, attends to the whole
            document. With 1, all blocks attend to the whole document.
        max_length: the length of the longest row that the model is made for. Rotary positions need
            no table, so longer rows can be computed as well, but functions such as `fill_mask`
            refuse them.
        global_theta: θ of the rotary positions in global layers.
        local_theta: θ of the rotary positions in local layers.
        embedding_dropout: the probability that a value of the embeddings is dropped in training.
        attention_dropout: the probability that an attention weight, or a value of the output of
            attention, is dropped in training.
        mlp_dropout: the probability that a value inside the feed-forward part is dropped in
            training.
        layer_norm_eps: what layer norm adds to the variance.
        pad_token_id: the id of the token for padding. The embedding of this token starts at zero,
            and gets no gradient when the token is an input. None: there is no such token.
        initializer_range: the standard deviation of the initial weights. It is divided by
            √(2 · num_layers) for matrices whose product is added to the residual stream.
        initializer_cutoff: no initial weight is more than this many standard deviations from 0.

    Raises:
        ValueError: a value is outside the limits given here. The message names the value.
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    window: int = 128
    global_every: int = 3
    max_length: int = field(default=8192, kw_only=True)
    global_theta: float = field(default=160_000.0, kw_only=True)
    local_theta: float = field(default=10_000.0, kw_only=True)
    embedding_dropout: float = field(default=0.0, kw_only=True)
    attention_dropout: float = field(default=0.0, kw_only=True)
    mlp_dropout: float = field(default=0.0, kw_only=True)
    layer_norm_eps: float = field(default=1e-5, kw_only=True)
    pad_token_id: int | None = field(default=0, kw_only=True)
    initializer_range: float = field(default=0.02, kw_only=True)
    initializer_cutoff: float = field(default=2.0, kw_only=True)

    def __post_init__(self):
        check_sizes(self)
        whole_number("window", self.window, least=2)  # a window of 1 would hold the token alone
        H, A = self.hidden_size, self.num_heads
        if H // A % 2:
            raise ValueError(
                f"hidden_size={H} / num_heads={A} is odd; rotary positions rotate pairs"
            )
        for name in ("embedding_dropout", "attention_dropout", "mlp_dropout"):
            setattr(self, name, probability(name, getattr(self, name)))
        for name in ("global_theta", "local_theta", "initializer_cutoff"):
            setattr(self, name, number(name, getattr(self, name), above=0))

    def half_window(self, layer):
        """How many positions to each side a token attends to in a layer; None in a global layer.

        >>> [ModernConfig(9, 8, 5, 2, 12, window=6).half_window(layer) for layer in range(5)]
        [None, 3, 3, None, 3]
        """
        return self.window // 2 if layer % self.global_every else None

    def parts(self):
        """A new `ModernEncoder`, and the head of a ModernBERT, tied to the word embeddings.

        `MaskedLanguageModel.from_config` calls this method.
        """
        encoder = ModernEncoder(self)
        head = MaskedLMHead(
            self.hidden_size, token_embedding=encoder.embeddings.word,
            layer_norm_eps=self.layer_norm_eps, bias=False,
        )  # fmt: skip
        draw_initial(head.dense.weight, self, residual=True)
        return encoder, head


# ------------------------------------------------------------------------------------ rotary
#
# Su et al. (2021). The D numbers of a head are taken in pairs, and a pair is a point of a plane. At
# position t of a row, pair number i is rotated by the angle t / θ^(2i/D). The product of two
# rotated points depends on the difference of their angles: on how far apart the two tokens are, and
# on which of them comes first. Number i of a head forms a pair with number i + D/2, as in
# transformers.


class RotaryEmbedding:
    """The cosines and sines that rotate vectors by their positions.

    Angles, cosines and sines are computed in float32, whatever the precision of the model, because
    transformers does the same, and checkpoints were trained with these values.

    Args:
        positions: (N,) whole numbers, the positions of the vectors.
        head_size: D, an even number.
        theta: θ. The slowest pair needs nearly 2πθ positions for a full turn.

    Raises:
        ValueError: `theta` is not above 0.
    """

    def __init__(self, positions, head_size, theta):
        tensor("positions", positions, "(N,)")
        theta = number("theta", theta, above=0)
        pairs = torch.arange(0, head_size, 2, dtype=torch.float32, device=positions.device)
        angles = positions.float()[:, None] * (1.0 / theta ** (pairs / head_size))  # (N, D/2)
        self.cos = angles.cos().repeat(1, 2)[:, None]  # (N, 1, D), for both numbers of a pair
        self.sin = angles.sin()[:, None]  # (N, 1, D/2)

    def rotate(self, vectors):
        """Rotate the vectors of every head by their positions.

        Args:
            vectors: (..., N, A, D).

        Returns:
            (..., N, A, D). Vectors in half precision are rotated in float32, and the result is in
            float32.

        >>> rotary = RotaryEmbedding(torch.tensor([0, 1]), head_size=2, theta=1.0)
        >>> rotary.rotate(torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]]]))
        tensor([[[1.0000, 0.0000]],
        <BLANKLINE>
                [[0.5403, 0.8415]]])
        """
        wide = torch.promote_types(vectors.dtype, torch.float32)
        # A function with a backward pass of its own cannot be exported.
        rotate = _rotated if torch.compiler.is_compiling() else _Rotation.apply
        return rotate(vectors, self.cos.to(wide), self.sin.to(wide))


def _rotated(vectors, cos, sin):
    """Each pair (x, y) becomes (x cos − y sin, y cos + x sin)."""
    vectors = vectors.to(cos.dtype)
    rotated = vectors * cos
    half = sin.shape[-1]
    rotated[..., :half].addcmul_(vectors[..., half:], sin, value=-1)
    rotated[..., half:].addcmul_(vectors[..., :half], sin)
    return rotated


class _Rotation(torch.autograd.Function):
    """`_rotated`, with its backward pass: the gradient is rotated back by the same angles."""

    @staticmethod
    def forward(ctx, vectors, cos, sin):
        ctx.save_for_backward(cos, sin)
        return _rotated(vectors, cos, sin)

    @staticmethod
    def backward(ctx, gradient):
        cos, sin = ctx.saved_tensors
        # Autograd casts the result to the dtype of `vectors`.
        return _Rotation.apply(gradient, cos, -sin), None, None


# ------------------------------------------------------------------------------------ blocks


class ModernAttention(nn.Module):
    """Attention with rotary positions, to the whole document or within a window.

    Args:
        config: a `ModernConfig`.
        layer: the number of the block. It decides whether a token attends to the whole document or
            to a window.
    """

    def __init__(self, config, layer):
        super().__init__()
        H = config.hidden_size
        self.num_heads, self.head_size = config.num_heads, H // config.num_heads
        self.half_window = config.half_window(layer)
        self.theta = config.global_theta if self.half_window is None else config.local_theta
        # In the rows of the matrix the query comes first, then the key, then the value.
        self.query_key_value = nn.Linear(H, 3 * H, bias=False)
        self.output = nn.Linear(H, H, bias=False)
        self.dropout = Dropout(config.attention_dropout)

    def forward(self, hidden, layout, rotary, need_weights=False, select=None):
        """Computes attention for hidden states (..., H), and returns states of the same shape and
        the attention weights.

        Args:
            hidden: (B, T, H) in a `Padded` layout, or (N, H) in an `Unpadded` layout.
            layout: the form of the batch, a `Padded` or an `Unpadded` (of `mlm_lib.unpadded`).
            rotary: the `RotaryEmbedding` of this layer's θ.
            need_weights: whether to return the weights. Only a `Padded` batch has weights.
            select: a function that picks vectors, as for `ModernEncoder.forward`.

        Returns:
            Two results: the output of attention, in the shape of `hidden` or only the vectors that
            `select` picks; and the weights (B, A, T, T), or None.
        """
        # 1) Make query, key and value of each token, cut them into heads, and rotate the first two.
        projected = self.query_key_value(hidden).unflatten(-1, (3, self.num_heads, -1))
        query, key, value = projected.unbind(-3)  # each (B, T, A, D) or (N, A, D)
        query, key = rotary.rotate(query), rotary.rotate(key)
        # 2) Mix the values within each document, or within the window. On a CPU the backward pass
        #    is slow in half precision, so in training this step stays in float32.
        device, narrow = hidden.device.type, value.dtype
        in_float32 = device == "cpu" and torch.is_grad_enabled()
        dtype = query.dtype if in_float32 else narrow
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
        dropout_p = self.dropout.p if self.training else 0.0
        attention = partial(attend, need_weights=need_weights)
        with torch.autocast(device, enabled=False):
            mixed, weights = layout.mix(
                query, key, value, attention, self.half_window, dropout_p=dropout_p
            )  # (..., H)
        # 3) Mix the heads by one more matrix.
        mixed = mixed.to(narrow)
        mixed = mixed if select is None else layout.pick(mixed, select)
        return self.dropout(self.output(mixed)), weights

    def extra_repr(self):
        """What `print(model)` shows in addition to the sizes of the parts.

        When a training run is resumed, this description is compared with the saved one. The half
        window is called `reach` here, because it had this name when older runs were saved. With
        another name, these runs could not be resumed.
        """
        return f"num_heads={self.num_heads}, reach={self.half_window}, theta={self.theta}"


class ModernBlock(nn.Module):
    """A block of the encoder: attention, then GeGLU. Each of these two parts reads a normalised
    copy of the residual stream, and its output is added to the residual stream.

    Args:
        config: a `ModernConfig`.
        layer: the number of the block.
    """

    def __init__(self, config, layer):
        super().__init__()
        H, I = config.hidden_size, config.intermediate_size  # noqa: E741
        # The first block reads the embeddings, which are normalised already.
        self.attention_norm = norm_without_bias(config) if layer else nn.Identity()
        self.attention = ModernAttention(config, layer)
        self.feed_forward_norm = norm_without_bias(config)
        self.expand = nn.Linear(H, 2 * I, bias=False)
        self.contract = nn.Linear(I, H, bias=False)
        self.dropout = Dropout(config.mlp_dropout)

    def forward(self, hidden, layout, rotary, need_weights=False, select=None):
        """Computes the block for hidden states (..., H), and returns states of the same shape and
        the attention weights.

        Arguments and results are those of `ModernAttention.forward`.
        """
        normal = self.attention_norm(hidden)
        attended, weights = self.attention(normal, layout, rotary, need_weights, select)
        hidden = (hidden if select is None else layout.pick(hidden, select)) + attended
        return hidden + self.feed_forward(self.feed_forward_norm(hidden)), weights

    def feed_forward(self, hidden):
        """Computes the GeGLU for states (..., H), each token by itself.

        The wide layer has two halves, v and g. The result is (GELU(v) · g) W.
        """
        values, gate = self.expand(hidden).chunk(2, -1)  # (..., I) each
        return self.contract(self.dropout(F.gelu(values) * gate))


class ModernBlocks(nn.ModuleList):
    """Blocks one after the other. A slice, such as `blocks[1:3]`, is a module of the same kind."""

    def forward(self, hidden, mask=None, *, unpadded=True):
        """Runs all blocks on vectors (B, T, H). The result has the same shape, and 0 at padding.

        The arguments are those with which `leakage.dependencies` calls a module. So this function
        can find out on which inputs an output of the blocks depends.

        Args:
            hidden: (B, T, H).
            mask: (B, T), 1 or True at real tokens. None: all tokens are real.
            unpadded: as for `ModernEncoder`.
        """
        layout = layout_of("hidden", hidden[..., 0], mask, unpadded)
        return layout.put(self.run(layout.take(hidden), layout)[0])

    def run(self, hidden, layout, states=None, need_weights=False, select=None):
        """Run all blocks on hidden states that are in a layout already.

        Args:
            hidden: (B, T, H) in a `Padded` layout, or (N, H) in an `Unpadded` layout.
            layout: the form of the batch, a `Padded` or an `Unpadded`.
            states: a list, to which the input of each block is added, as (B, T, H); or None.
            need_weights: whether to return the attention weights.
            select: a function that picks vectors of the output of the last block.

        Returns:
            The output of the last block, (..., H); and a list with the attention weights of each
            block, or with None for each block.
        """
        rotary, attentions = {}, []  # {θ: RotaryEmbedding}; layers with the same θ share one
        for block in self:
            if states is not None:
                states.append(layout.put(hidden))
            theta, size = block.attention.theta, block.attention.head_size
            if theta not in rotary:
                rotary[theta] = RotaryEmbedding(layout.positions, size, theta)
            chosen = select if block is self[-1] else None
            hidden, weights = block(hidden, layout, rotary[theta], need_weights, chosen)
            attentions.append(weights)
        return hidden, attentions


def norm_without_bias(config):
    """A layer norm that multiplies by a learned weight and adds no bias."""
    return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=False)


def layout_of(name, rows, mask, unpadded):
    """The layout of a batch: an `Unpadded` if padding can be left out, otherwise a `Padded`.

    Padding can be left out if Python can read where the padding is without waiting for a GPU. That
    is so if the mask, or the batch if there is no mask, is on the CPU, and nothing is being
    compiled.

    Args:
        name: the name of `rows` in error messages.
        rows: a tensor (B, T). Only its shape and its device are used.
        mask: (B, T), 1 or True at real tokens. None: all tokens are real.
        unpadded: whether padding should be left out if that is possible.

    Raises:
        ValueError: the mask has another shape, other values than 0 and 1, or no real token.
    """
    real = None if mask is None else real_mask("attention_mask", mask, name, rows)
    seen = can_read_without_sync(rows if mask is None else real)
    if real is not None and seen:
        if real.numel() and not real.any():
            raise refused("attention_mask", real, "at least one real token in a mask")
        real = None if real.all() else real
    if unpadded and seen:
        full = torch.ones(rows.shape, dtype=torch.bool)
        return Unpadded(full if real is None else real, rows.device)
    if real is not None:
        real = real.to(rows.device, non_blocking=seen)
    return Padded(real, rows.shape, rows.device)


class ModernEmbeddings(nn.Module):
    """One vector for each token, normalised. Positions come in later, in attention.

    Args:
        config: a `ModernConfig`.
    """

    def __init__(self, config):
        super().__init__()
        V, H = config.vocab_size, config.hidden_size
        self.word = nn.Embedding(V, H, padding_idx=config.pad_token_id)
        self.norm = norm_without_bias(config)
        self.dropout = Dropout(config.embedding_dropout)

    def forward(self, input_ids):
        """Returns the vectors (..., H) of token ids (...)."""
        known_ids("input_ids", input_ids, self.word.num_embeddings)
        return self.dropout(self.norm(self.word(input_ids)))


class ModernEncoder(nn.Module):
    """Token ids in, one contextual vector for each token out, and 0 at padding.

    Neither padding nor another row ever changes the output at a real position. If the mask is on
    the CPU, padding is not even computed (see `unpadded.py`). Padding is computed and masked when
    the mask is on a GPU, when the encoder is compiled or exported, when attention weights are asked
    for, and when `unpadded` is False.

    Args:
        config: a `ModernConfig`.
        unpadded: whether to leave out padding if that is possible. The attribute may be changed at
            any time.
    """

    selects = True  # `MaskedLanguageModel` asks for this: `forward` takes the argument `select`

    def __init__(self, config, *, unpadded=True):
        super().__init__()
        self.config, self.unpadded = config, unpadded
        self.embeddings = ModernEmbeddings(config)
        self.blocks = ModernBlocks(ModernBlock(config, i) for i in range(config.num_layers))
        self.norm = norm_without_bias(config)
        self.apply(self._initialise)

    def forward(
        self, input_ids, attention_mask=None, *,
        output_hidden_states=False, output_attentions=False, select=None,
    ):  # fmt: skip
        """Returns the hidden states after the last norm and, if they are asked for, the states of
        all blocks and the attention weights.

        Args:
            input_ids: (B, T) integers.
            attention_mask: (B, T), 1 or True at real tokens, 0 or False at padding. None: all
                tokens are real.
            output_hidden_states: whether to return the hidden states of all blocks. As in
                transformers, the last of these states is the one after the last norm.
            output_attentions: whether to return the attention weights of all blocks.
            select: a function that picks vectors of (B, T, H). Only these vectors are returned. In
                the last block only attention reads all positions; everything after attention is
                computed only for the vectors that are picked.

        Returns:
            (B, T, H), or what `select` picks of it; an `EncoderOutput` if hidden states or
            attention weights are asked for.

        Raises:
            ValueError: the mask has another shape, other values than 0 and 1, or no real token.
            IndexError: the id of a real token is not in the vocabulary. This is checked on a CPU
                only, because on a GPU the program would have to wait for the check.
        """
        unpadded = self.unpadded and not output_attentions
        layout = layout_of("input_ids", input_ids, attention_mask, unpadded)
        hidden = self.embeddings(layout.take(input_ids))  # (B, T, H), or (N, H) of real tokens
        states = [] if output_hidden_states else None
        hidden, attentions = self.blocks.run(hidden, layout, states, output_attentions, select)
        hidden = self.norm(hidden)  # without a bias, padding stays 0
        hidden = layout.put(hidden) if select is None else hidden
        if not (output_hidden_states or output_attentions):
            return hidden
        states = (*states, hidden) if output_hidden_states else None
        return EncoderOutput(hidden, states, tuple(attentions) if output_attentions else None)

    def extra_repr(self):
        """Whether padding is left out, which `print(model)` shows."""
        return f"unpadded={self.unpadded}"

    def _initialise(self, module):
        """Give one module of the encoder ModernBERT's initial weights."""
        if isinstance(module, nn.Embedding):
            draw_initial(module.weight, self.config)
            if module.padding_idx is not None:
                nn.init.zeros_(module.weight.data[module.padding_idx])
        elif isinstance(module, ModernBlock):
            for part in (module.attention.query_key_value, module.expand):
                draw_initial(part.weight, self.config)
            for part in (module.attention.output, module.contract):
                draw_initial(part.weight, self.config, residual=True)


def draw_initial(weight, config, *, residual=False):
    """Replace a matrix by ModernBERT's initial weights, drawn from a truncated normal distribution.

    Args:
        weight: the matrix.
        config: a `ModernConfig`, which gives the standard deviation and the cut-off.
        residual: whether the product with this matrix is added to the residual stream. If so, the
            standard deviation is smaller, so that the sum over all blocks does not grow with the
            number of blocks.
    """
    std = config.initializer_range / ((2 * config.num_layers) ** 0.5 if residual else 1)
    most = config.initializer_cutoff * std
    nn.init.trunc_normal_(weight, std=std, a=-most, b=most)
