"""The encoder of today: ModernBERT, part by part from the encoder of lesson 06. In lesson 16.

Warner et al. (2024), "Smarter, Better, Faster, Longer"; equal to transformers' `ModernBertModel`.
Against BERT: positions by rotation (Su et al. 2021), norms before the parts instead of after them
(Xiong et al. 2020), no biases, GeGLU (Shazeer 2020), most layers see a window only (Beltagy et al.
2020), and padding is not computed.
"""

from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F

from mlm_lib.checks import (
    can_look,
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
    """The sizes of a `ModernEncoder`, with ModernBERT's values where it has only one.

    Args:
        vocab_size: V, the number of tokens.
        hidden_size: H, the width of every hidden state.
        num_layers: the number of blocks, at most 1,000.
        num_heads: A, attention heads per block; H/A must be a whole and even number.
        intermediate_size: I, the width inside the feed-forward part; ModernBERT has 1.5H, and two
            matrices of it where BERT has one.
        window: a token of a local layer sees `window // 2` positions to each side, and itself.
        global_every: block 0 and each so-manieth after it sees whole documents; with 1, all do.
        max_length: how long rows are meant to be. Rotary positions need no table, so that longer
            ones are computed as well; callers such as `fill_mask` heed it.
        global_theta, local_theta: θ of the rotary positions in global and in local layers.
        embedding_dropout: share of embeddings dropped in training.
        attention_dropout: share of attention weights, and of attention's output.
        mlp_dropout: share of the values inside the feed-forward part.
        layer_norm_eps: what layer norm adds to the variance.
        pad_token_id: the token whose embedding starts at zero and gets no gradient as an input;
            None if there is none.
        initializer_range: standard deviation of the initial weights; √(2·layers) times less where
            a part's result is added to the stream.
        initializer_cutoff: how many standard deviations off a weight may start.

    Raises:
        ValueError: a value outside what is said here, by its name.
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
        whole_number("window", self.window, least=2)  # a window of 1 would reach no one
        H, A = self.hidden_size, self.num_heads
        if H // A % 2:
            raise ValueError(f"hidden_size={H} / num_heads={A} is odd; rotary positions turn pairs")
        for name in ("embedding_dropout", "attention_dropout", "mlp_dropout"):
            setattr(self, name, probability(name, getattr(self, name)))
        for name in ("global_theta", "local_theta", "initializer_cutoff"):
            setattr(self, name, number(name, getattr(self, name), above=0))

    def reach(self, layer):
        """How far to each side a token of a layer sees; None for the whole document.

        >>> [ModernConfig(9, 8, 5, 2, 12, window=6).reach(layer) for layer in range(5)]
        [None, 3, 3, None, 3]
        """
        return self.window // 2 if layer % self.global_every else None

    def parts(self):
        """A `ModernEncoder` and ModernBERT's head, tied to its word embeddings."""
        encoder = ModernEncoder(self)
        head = MaskedLMHead(
            self.hidden_size, token_embedding=encoder.embeddings.word,
            layer_norm_eps=self.layer_norm_eps, bias=False,
        )  # fmt: skip
        draw(head.dense.weight, self, added=True)
        return encoder, head


# ------------------------------------------------------------------------------------ rotary
#
# Su et al. (2021). The numbers of a head are taken in pairs, as points of a plane, and the pair
# number i of the token at position t is turned by the angle t / θ^(2i/D). A product of two turned
# points depends on the difference of their angles, and so on how far apart the tokens are, and on
# which of them comes first. Number i is paired with number i + D/2, as in transformers.


class Turns:
    """The cosines and sines by which vectors at some positions are turned.

    Angles and their cosines are of float32, whatever the precision of a model: that is how
    transformers computes them, and what checkpoints were trained with.

    Args:
        positions: (N,) whole numbers, where the vectors stand.
        head_size: D, an even number.
        theta: θ; the slowest pair needs nearly 2πθ positions for a full turn.

    Raises:
        ValueError: a θ that is not above 0.
    """

    def __init__(self, positions, head_size, theta):
        tensor("positions", positions, "(N,)")
        theta = number("theta", theta, above=0)
        pairs = torch.arange(0, head_size, 2, dtype=torch.float32, device=positions.device)
        angles = positions.float()[:, None] * (1.0 / theta ** (pairs / head_size))  # (N, D/2)
        self.cos = angles.cos().repeat(1, 2)[:, None]  # (N, 1, D), for both of a pair
        self.sin = angles.sin()[:, None]  # (N, 1, D/2)

    def turn(self, vectors):
        """(..., N, A, D) to the same, each of the A heads turned as its position says.

        Half-precision vectors come back as float32, in which they are turned.

        >>> Turns(torch.tensor([0, 1]), 2, 1.0).turn(torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]]]))
        tensor([[[1.0000, 0.0000]],
        <BLANKLINE>
                [[0.5403, 0.8415]]])
        """
        wide = torch.promote_types(vectors.dtype, torch.float32)
        turn = _turned if torch.compiler.is_compiling() else _Turn.apply  # which cannot be exported
        return turn(vectors, self.cos.to(wide), self.sin.to(wide))


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


# ------------------------------------------------------------------------------------ blocks


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
        how = {"share": share, "need_weights": need_weights}
        with torch.autocast(device, enabled=False):
            mixed, weights = layout.mix(*parts, attend, self.reach, **how)  # (..., H)
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
        normal = self.attention_norm(hidden)
        attended, weights = self.attention(normal, layout, turns, need_weights, select)
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
        layout = layout_of("hidden", hidden[..., 0], mask, unpadded)
        return layout.put(self.run(layout.take(hidden), layout)[0])

    def run(self, hidden, layout, states=None, need_weights=False, select=None):
        """(..., H) in a layout to (..., H), and each block's weights or None.

        `states`, a list, is given what each block reads, (B, T, H). Angles are computed once for
        each θ, not once a layer.
        """
        turns, attentions = {}, []
        for block in self:
            if states is not None:
                states.append(layout.put(hidden))
            theta, size = block.attention.theta, block.attention.head_size
            if theta not in turns:
                turns[theta] = Turns(layout.positions, size, theta)
            chosen = select if block is self[-1] else None
            hidden, weights = block(hidden, layout, turns[theta], need_weights, chosen)
            attentions.append(weights)
        return hidden, attentions


def plain_norm(config):
    """A layer norm that scales and does not shift."""
    return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=False)


def layout_of(name, rows, mask, unpadded):
    """How a batch is laid out for the blocks: a `Padded` or an `Unpadded`.

    Args:
        name, rows: (B, T), whatever it holds, and what errors call it.
        mask: (B, T), 1 or True at real tokens; None: all real.
        unpadded: whether padding should be left out where that is possible: where the mask, or
            without one the batch, lies on a processor, and nothing is being compiled.

    Raises:
        ValueError: a mask of another shape, with other values or without a single real token.
    """
    real = None if mask is None else real_mask("attention_mask", mask, name, rows)
    seen = can_look(rows if mask is None else real)
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
    """A token's vector, normalised. Where it stands is told in attention."""

    def __init__(self, config):
        super().__init__()
        V, H = config.vocab_size, config.hidden_size
        self.word = nn.Embedding(V, H, padding_idx=config.pad_token_id)
        self.norm = plain_norm(config)
        self.dropout = Dropout(config.embedding_dropout)

    def forward(self, input_ids):
        """(...) ids to (..., H)."""
        known_ids("input_ids", input_ids, self.word.num_embeddings)
        return self.dropout(self.norm(self.word(input_ids)))


class ModernEncoder(nn.Module):
    """Token ids in, one contextual vector for each token out, and 0 for each padding.

    What stands at padded positions can never change the output at a real one, nor can another row.
    Where the mask lies on a processor padding is not even computed (see `unpadded.py`); elsewhere,
    when compiled or exported, when attention weights are asked for, and with `unpadded` False it
    is, and masked. The attribute may be changed at any time.

    Args:
        config: a `ModernConfig`.
        unpadded: whether to leave padding out where that is possible.
    """

    selects = True  # `forward` takes `select`; `MaskedLanguageModel` asks for this

    def __init__(self, config, *, unpadded=True):
        super().__init__()
        self.config, self.unpadded = config, unpadded
        self.embeddings = ModernEmbeddings(config)
        self.blocks = ModernBlocks(ModernBlock(config, i) for i in range(config.num_layers))
        self.norm = plain_norm(config)
        self.apply(self._initialise)

    def forward(
        self, input_ids, attention_mask=None, *,
        output_hidden_states=False, output_attentions=False, select=None,
    ):  # fmt: skip
        """Hidden states after the last norm; of all blocks, and the attention weights, on request.

        Args:
            input_ids: (B, T) integers.
            attention_mask: (B, T), 1 or True at real tokens, 0 or False at padding; None: all real.
            output_hidden_states, output_attentions: what to return besides. As in transformers, the
                last of the hidden states is the normalised one.
            select: a function that picks rows of (B, T, H). Only they are returned, and the last
                block computes only them.

        Returns:
            (B, T, H), or what `select` picks of it; an `EncoderOutput` if either flag is set.

        Raises:
            ValueError: a mask of another shape, with other values, or without a single real token.
            IndexError: on a processor, real ids outside the vocabulary.
        """
        unpadded = self.unpadded and not output_attentions
        layout = layout_of("input_ids", input_ids, attention_mask, unpadded)
        hidden = self.embeddings(layout.take(input_ids))  # (B, T, H), or (N, H) of real tokens
        states = [] if output_hidden_states else None
        hidden, attentions = self.blocks.run(hidden, layout, states, output_attentions, select)
        hidden = self.norm(hidden)  # without a bias, what is 0 stays 0
        hidden = layout.put(hidden) if select is None else hidden
        if not (output_hidden_states or output_attentions):
            return hidden
        states = (*states, hidden) if output_hidden_states else None
        return EncoderOutput(hidden, states, tuple(attentions) if output_attentions else None)

    def extra_repr(self):
        return f"unpadded={self.unpadded}"

    def _initialise(self, module):
        """ModernBERT's initial weights."""
        if isinstance(module, nn.Embedding):
            draw(module.weight, self.config)
            if module.padding_idx is not None:
                nn.init.zeros_(module.weight.data[module.padding_idx])
        elif isinstance(module, ModernBlock):
            for part in (module.attention.query_key_value, module.expand):
                draw(part.weight, self.config)
            for part in (module.attention.output, module.contract):
                draw(part.weight, self.config, added=True)


def draw(weight, config, *, added=False):
    """Initial weights: normal, without what lies far off; smaller where results are added up."""
    std = config.initializer_range / ((2 * config.num_layers) ** 0.5 if added else 1)
    most = config.initializer_cutoff * std
    nn.init.trunc_normal_(weight, std=std, a=-most, b=most)
