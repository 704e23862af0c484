"""The BERT encoder: embeddings, then blocks of attention and feed-forward. Built in lesson 06.

Devlin et al. (2019) on the blocks of Vaswani et al. (2017); equal to transformers' `BertModel`
without its pooler.
"""

from dataclasses import dataclass, field, fields
from functools import partial
from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F

from mlm_lib.checks import (
    can_look,
    known_ids,
    number,
    probability,
    real_mask,
    same_shape,
    whole_number,
)
from mlm_lib.unpadded import Unpadded


def gelu_tanh(x):
    """GELU by its tanh approximation (Hendrycks and Gimpel 2016, section 2)."""
    return F.gelu(x, approximate="tanh")


ACTIVATIONS = {"gelu": F.gelu, "gelu_tanh": gelu_tanh, "relu": F.relu, "silu": F.silu}
MOST_LAYERS = 1000  # as many as DeepNet has (Wang et al. 2022); 10⁹ would fill the memory first


@dataclass
class EncoderConfig:
    """The sizes of an encoder, with BERT's values where BERT has only one.

    Args:
        vocab_size: V, the number of tokens.
        hidden_size: H, the width of every hidden state.
        num_layers: the number of blocks, at most 1,000.
        num_heads: A, attention heads per block; must divide `hidden_size`.
        intermediate_size: the width inside the feed-forward part, usually 4H.
        max_length: the largest T; there are as many position embeddings.
        type_vocab_size: the number of segment types.
        dropout: share of hidden values dropped in training.
        layer_norm_eps: what layer norm adds to the variance.
        pad_token_id: the token whose embedding starts at zero and gets no gradient as an input;
            None if there is none.
        activation: "gelu", "gelu_tanh", "relu" or "silu".
        attention_dropout: share of attention weights dropped in training; None means `dropout`.
        initializer_range: standard deviation of the initial weights.

    Raises:
        ValueError: a value outside what is said here, by its name.
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    max_length: int = 512
    type_vocab_size: int = 2
    dropout: float = 0.1
    layer_norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    activation: str = field(default="gelu", kw_only=True)
    attention_dropout: float | None = field(default=None, kw_only=True)
    initializer_range: float = field(default=0.02, kw_only=True)

    def __post_init__(self):
        check_sizes(self)
        self.dropout = probability("dropout", self.dropout)
        if self.attention_dropout is not None:
            self.attention_dropout = probability("attention_dropout", self.attention_dropout)
        if self.activation not in ACTIVATIONS:
            wanted = f"one of {', '.join(ACTIVATIONS)} is needed"
            raise ValueError(f"activation={self.activation!r}; {wanted}")

    @property
    def attention_share(self):
        """The share of attention weights that is dropped in training."""
        return self.dropout if self.attention_dropout is None else self.attention_dropout


def check_sizes(config):
    """What holds for the sizes of any encoder: the ValueErrors of `EncoderConfig` and others."""
    for name in [size.name for size in fields(config) if size.type is int]:
        setattr(config, name, whole_number(name, getattr(config, name), most=2**31 - 1))
    whole_number("num_layers", config.num_layers, most=MOST_LAYERS)
    H, A = config.hidden_size, config.num_heads
    if H % A:
        raise ValueError(f"hidden_size={H} cannot be divided among num_heads={A}")
    for name in ("layer_norm_eps", "initializer_range"):
        setattr(config, name, number(name, getattr(config, name), least=0))
    pad, most = config.pad_token_id, config.vocab_size - 1
    config.pad_token_id = whole_number("pad_token_id", pad, 0, most, none=True)


# ------------------------------------------------------------------------------------ dropout
#
# Random numbers are the dearest part of dropout on a processor: `F.dropout` draws one for each
# value, and that took a fifth of a training step in bf16. One number of 64 bits holds four of 16
# bits, and 16 bits are enough to decide. `python -m benchmarks.dropout` compares the two.

LEVELS = 2**16  # what 16 bits can tell apart


def drop(values, share):
    """Dropout (Srivastava et al. 2014): a value is 0 with chance p, else 1/(1 − p) times itself.

    Unbiased: a value v has the mean p · 0 + (1 − p) · v/(1 − p) = v. The p that decides and the p
    of the factor are the same, `share` rounded to 1/65,536 (0.1 is 0.100006), so that rounding
    changes how much is dropped, by 0.00001 at most, and not the mean. The factor has the precision
    of the values: in bf16, 1/0.9 is 1.109, as in `F.dropout`.

    Args:
        values: (...), floating point, on any device; off the CPU, `F.dropout` is called.
        share: p, the chance of each value to be dropped.

    Returns:
        A new tensor (...). Where a value was dropped, its gradient is 0 as well.

    Raises:
        ValueError: a share that is no probability.

    >>> drop(torch.ones(3), 1.0)
    tensor([0., 0., 0.])
    """
    cut = round(probability("share", share) * LEVELS)  # p = cut / 65,536
    if values.device.type != "cpu" or cut in (0, LEVELS):
        return F.dropout(values, share)
    # 1) Draw a quarter as many numbers of 64 bits as there are values, and read each as four of 16.
    count = values.numel()
    wide = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None)
    narrow = wide.view(torch.int16)[:count].view(values.shape)  # −32,768..32,767, all as likely
    # 2) `cut` of these 65,536 numbers drop their value; the others keep it.
    kept = narrow >= cut - LEVELS // 2
    # 3) Multiply by 0 or by 1/(1 − p).
    return values * kept.to(values.dtype).mul_(LEVELS / (LEVELS - cut))


class Dropout(nn.Dropout):
    """`nn.Dropout` by way of `drop`: it acts in training only. No share of NaN passes."""

    def __init__(self, share):
        super().__init__(probability("dropout", share))

    def forward(self, values):
        """(...) to (...)."""
        return drop(values, self.p) if self.training else values


# ------------------------------------------------------------------------------------ attention


def attention_weights(query, key, mask=None):
    """softmax(QKᵀ/√D) over the real keys: (B, A, T, D) twice to (B, A, T, T), [query, key].

    Exactly 0 where `mask` is False, and so all 0 in a row without real keys.
    """
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    if mask is None:
        return scores.softmax(-1)
    # The lowest number, not −∞, which would make NaN in a row without real keys, also backward.
    weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)
    return weights.masked_fill(~mask, 0.0)


def attend(query, key, value, mask, *, share=0.0, need_weights=False):
    """Values mixed by attention: (B, A, T, D), and the weights (B, A, T, S) if they were made.

    Args:
        query, key, value: (B, A, T, D), (B, A, S, D), (B, A, S, D).
        mask: True where a query may see a key, of a shape that fits the weights; None: all may.
        share: share of the weights to drop.
        need_weights: whether the weights are wanted. They are those before dropout.
    """
    # On a processor the fused form makes the weights as well when it has to drop some, and drops
    # them slowly.
    if need_weights or share and query.device.type == "cpu":
        weights = attention_weights(query, key, mask)
        return drop(weights, share) @ value, weights
    options = {"attn_mask": mask, "dropout_p": share}
    return F.scaled_dot_product_attention(query, key, value, **options), None


class Embeddings(nn.Module):
    """A token's vector: what it is, where it stands, and its segment, summed and normalised."""

    def __init__(self, config):
        super().__init__()
        V, H, pad = config.vocab_size, config.hidden_size, config.pad_token_id
        self.word = nn.Embedding(V, H, padding_idx=pad)
        self.position = nn.Embedding(config.max_length, H)
        self.token_type = nn.Embedding(config.type_vocab_size, H)
        self.norm = nn.LayerNorm(H, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.dropout)

    def forward(self, input_ids, token_type_ids=None, positions=None):
        """(B, T) ids to (B, T, H). Without `token_type_ids` every token is of type 0.

        With `positions` (N,), of real tokens in their rows, (N,) ids to (N, H).
        """
        types = self.token_type.weight[0]  # (H,)
        if token_type_ids is not None:
            known_ids("token_type_ids", token_type_ids, self.token_type.num_embeddings)
            types = self.token_type(token_type_ids)  # (B, T, H)
        if positions is None:
            places = self.position.weight[: input_ids.shape[1]]  # (T, H), from the left edge
        else:
            places = self.position(positions)  # (N, H)
        known_ids("input_ids", input_ids, self.word.num_embeddings)
        summed = self.word(input_ids) + types + places  # (B, T, H)
        return self.dropout(self.norm(summed))


class SelfAttention(nn.Module):
    """Every position asks all real ones, in A heads at once (Vaswani et al. 2017, section 3.2)."""

    def __init__(self, config):
        super().__init__()
        self.num_heads, self.dropout = config.num_heads, config.attention_share
        # One product for the three is faster than three; their rows stand in this order.
        self.query_key_value = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden, mask=None, need_weights=False, select=None, layout=None):
        """(B, T, H) to (B, T, H), and the weights (B, A, T, T) or None.

        `mask`, (B, 1, 1, T), is True at real keys. `select` is that of `BertEncoder.forward`. With
        an `Unpadded` layout (N, H), real tokens only, to (N, H).
        """
        # 1) Each position's query, key and value, cut into heads; D = H/A.
        share = self.dropout if self.training else 0.0
        projected = self.query_key_value(hidden).unflatten(-1, (3, self.num_heads, -1))
        # 2) Values, mixed by how well their keys answer the query; the heads side by side again.
        if layout is not None:
            mixed, weights = layout.mix(*projected.unbind(1), attend, share=share)  # (N, H)
        else:
            query, key, value = projected.permute(2, 0, 3, 1, 4)  # each (B, A, T, D)
            mixed, weights = attend(query, key, value, mask, share=share, need_weights=need_weights)
            mixed = mixed.transpose(1, 2).flatten(2)  # (B, A, T, D) to (B, T, H)
        # 3) Mixed by one more matrix.
        attended = self.output(mixed if select is None else select(mixed))
        return attended, weights if need_weights else None

    def extra_repr(self):
        return f"num_heads={self.num_heads}, dropout={self.dropout}"


class Block(nn.Module):
    """Attention, then feed-forward; each adds to its input, and the sum is normalised after it."""

    def __init__(self, config):
        super().__init__()
        H, eps = config.hidden_size, config.layer_norm_eps
        self.attention = SelfAttention(config)
        self.attention_norm = nn.LayerNorm(H, eps=eps)
        self.expand = nn.Linear(H, config.intermediate_size)
        self.activation = ACTIVATIONS[config.activation]
        self.contract = nn.Linear(config.intermediate_size, H)
        self.feed_forward_norm = nn.LayerNorm(H, eps=eps)
        self.dropout = Dropout(config.dropout)

    def forward(self, hidden, mask=None, need_weights=False, select=None, layout=None):
        """(B, T, H) to (B, T, H) or the rows that `select` picks, and the weights or None."""
        attended, weights = self.attention(hidden, mask, need_weights, select, layout)
        # From here on each position is by itself, so that only the picked ones are computed.
        hidden = hidden if select is None else select(hidden)
        hidden = self.attention_norm(self.dropout(attended) + hidden)
        hidden = self.feed_forward_norm(self.dropout(self.feed_forward(hidden)) + hidden)
        return hidden, weights

    def feed_forward(self, hidden):
        """(..., H) to (..., H), each position by itself."""
        wide = self.expand(hidden)  # (..., 4H), the largest tensor of the encoder
        if self.activation is F.gelu and not torch.is_grad_enabled():
            # Written over its input, which saves a twentieth of a pass. A hook on `expand` that
            # keeps what it is shown has to copy it.
            return self.contract(F.gelu(wide, out=wide))
        return self.contract(self.activation(wide))

    def extra_repr(self):
        return f"activation={self.activation.__name__}"


class EncoderOutput(NamedTuple):
    """What `BertEncoder` returns when more than its last layer is asked for."""

    last: torch.Tensor  # (B, T, H), or the rows that were selected
    hidden_states: tuple | None  # num_layers + 1 of (B, T, H): the embeddings, then each block
    attentions: tuple | None  # each block's weights: num_layers of (B, A, T, T), [query, key]


class BertEncoder(nn.Module):
    """Token ids in, one contextual vector for each token out.

    What stands at padded positions can never change the output at a real one. Positions are
    counted from the left edge of the row, padding included, as in BERT: pad on the right unless you
    mean it.

    Args:
        config: an `EncoderConfig`.
        unpadded: whether to leave padding out, as lesson 16 does, where the mask lies on a
            processor and no layer's states are asked for; 0 is returned there. The attribute may be
            changed at any time.
    """

    selects = True  # `forward` takes `select`; `MaskedLanguageModel` asks for this

    def __init__(self, config, *, unpadded=False):
        super().__init__()
        self.config, self.unpadded = config, unpadded
        self.embeddings = Embeddings(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        initialise(self, config.initializer_range)

    def forward(
        self, input_ids, attention_mask=None, token_type_ids=None, *,
        output_hidden_states=False, output_attentions=False, select=None,
    ):  # fmt: skip
        """Hidden states of the last block; of all blocks, and the attention weights, on request.

        Args:
            input_ids: (B, T) integers, T at most `max_length`.
            attention_mask: (B, T), 1 or True at real tokens, 0 or False at padding; None: all real.
            token_type_ids: (B, T) segment types; None means type 0 everywhere.
            output_hidden_states, output_attentions: what to return besides. The weights are the
                ones that this very pass has used, before dropout.
            select: a function that picks rows of (B, T, H). Only they are returned, and the last
                block computes only them: each is made from the whole row by attention, and after
                that depends on itself alone.

        Returns:
            (B, T, H), or what `select` picks of it; an `EncoderOutput` if either flag is set.

        Raises:
            ValueError: a row longer than `max_length`, types or a mask of another shape, a mask
                with other values.
            IndexError: on a processor, ids or types outside their vocabulary.
        """
        if input_ids.shape[1] > self.config.max_length:
            limit = f"this encoder has max_length={self.config.max_length}; truncate them"
            raise ValueError(f"rows of {input_ids.shape[1]} tokens, and {limit}")
        if token_type_ids is not None:
            same_shape("token_type_ids", token_type_ids, "input_ids", input_ids)
        more = output_hidden_states or output_attentions
        mask = layout = None  # which is faster, if nothing is padded
        if attention_mask is not None:
            real = real_mask("attention_mask", attention_mask, "input_ids", input_ids)  # (B, T)
            if not (can_look(real) and real.all()):
                mask = real.to(input_ids.device, non_blocking=can_look(real))[:, None, None, :]
            if mask is not None and self.unpadded and not more and can_look(real):
                layout = Unpadded(real, input_ids.device)
        if layout is None:
            hidden = self.embeddings(input_ids, token_type_ids)  # (B, T, H)
        else:
            kinds = None if token_type_ids is None else layout.take(token_type_ids)
            hidden = self.embeddings(layout.take(input_ids), kinds, layout.positions)  # (N, H)
            select = partial(layout.pick, select=select) if select else None
        states, attentions = [hidden], []
        for block in self.blocks:
            chosen = select if block is self.blocks[-1] else None
            hidden, weights = block(hidden, mask, output_attentions, chosen, layout)
            if output_hidden_states:
                states.append(hidden)
            attentions.append(weights)
        if layout is not None and select is None:
            hidden = layout.put(hidden)
        if not more:
            return hidden
        states = tuple(states) if output_hidden_states else None
        return EncoderOutput(hidden, states, tuple(attentions) if output_attentions else None)


def initialise(model, std):
    """BERT's initial weights: normal, biases 0; layer norms start as 1 and 0 by themselves."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=std)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
        if getattr(module, "padding_idx", None) is not None:
            nn.init.zeros_(module.weight.data[module.padding_idx])
