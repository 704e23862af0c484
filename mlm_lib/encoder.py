"""The BERT encoder: embeddings, then blocks of attention and feed-forward. Built in lesson 06.

Devlin et al. (2019) on the blocks of Vaswani et al. (2017); equal to transformers' `BertModel` without its pooler.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F


def gelu_tanh(x):
    """GELU by its tanh approximation (Hendrycks and Gimpel 2016, section 2)."""
    return F.gelu(x, approximate="tanh")


ACTIVATIONS = {"gelu": F.gelu, "gelu_tanh": gelu_tanh, "relu": F.relu, "silu": F.silu}


@dataclass
class EncoderConfig:
    """The sizes of an encoder, with BERT's values where BERT has only one.

    Args:
        vocab_size: V, the number of tokens.
        hidden_size: H, the width of every hidden state.
        num_layers: the number of blocks.
        num_heads: A, attention heads per block; must divide `hidden_size`.
        intermediate_size: the width inside the feed-forward part, usually 4H.
        max_length: the largest T; there are as many position embeddings.
        type_vocab_size: the number of segment types.
        dropout: share of hidden values dropped in training.
        layer_norm_eps: what layer norm adds to the variance.
        pad_token_id: the token whose embedding starts at zero and gets no gradient as an input; None if there is none.
        activation: "gelu", "gelu_tanh", "relu" or "silu".
        attention_dropout: share of attention weights dropped in training; None means `dropout`.
        initializer_range: standard deviation of the initial weights.

    Raises:
        ValueError: a size that is not a positive integer, heads that do not divide the width, or an unknown name.
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
        for name in (
            "vocab_size", "hidden_size", "num_layers", "num_heads", "intermediate_size", "max_length", "type_vocab_size",
        ):  # fmt: skip
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)!r} is not a positive integer")
        if self.hidden_size % self.num_heads:
            raise ValueError(
                f"hidden_size={self.hidden_size} cannot be divided among num_heads={self.num_heads}"
            )
        for name, value in (("dropout", self.dropout), ("attention_dropout", self.attention_share)):
            if not isinstance(value, (int, float)) or not 0 <= value <= 1:
                raise ValueError(f"{name}={value!r} is not a probability")
        for name in ("layer_norm_eps", "initializer_range"):
            if not isinstance(getattr(self, name), (int, float)) or not 0 <= getattr(
                self, name
            ) < float("inf"):
                raise ValueError(f"{name}={getattr(self, name)!r} is not a number of 0 or more")
        if not isinstance(self.activation, str) or self.activation not in ACTIVATIONS:
            raise ValueError(f"activation={self.activation!r} is none of {', '.join(ACTIVATIONS)}")
        pad = self.pad_token_id
        if pad is not None and (type(pad) is not int or not 0 <= pad < self.vocab_size):
            raise ValueError(
                f"pad_token_id={pad!r} is outside the vocabulary, 0..{self.vocab_size - 1}"
            )

    @property
    def attention_share(self):
        """The share of attention weights that is dropped in training."""
        return self.dropout if self.attention_dropout is None else self.attention_dropout


class EncoderOutput(NamedTuple):
    """What `BertEncoder` returns when more than its last layer is asked for."""

    last: torch.Tensor  # (B, T, H), or the rows that were selected
    hidden_states: (
        tuple | None
    )  # num_layers + 1 of (B, T, H): the embeddings, then each block's output, up to `last`
    attentions: tuple | None  # each block's weights: num_layers of (B, A, T, T), [query, key]


class Embeddings(nn.Module):
    """A token's vector: what it is, where it stands, and which segment it belongs to, summed and normalised."""

    def __init__(self, config):
        super().__init__()
        self.word = nn.Embedding(
            config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id
        )
        self.position = nn.Embedding(config.max_length, config.hidden_size)
        self.token_type = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.dropout)

    def forward(self, input_ids, token_type_ids=None):
        """(B, T) ids to (B, T, H). Without `token_type_ids` every token is of type 0."""
        types = (
            self.token_type.weight[0] if token_type_ids is None else self.token_type(token_type_ids)
        )
        summed = self.word(input_ids) + types + self.position.weight[: input_ids.shape[1]]
        return self.dropout(self.norm(summed))


class SelfAttention(nn.Module):
    """Every position asks all real positions, in several heads at once (Vaswani et al. 2017, section 3.2)."""

    def __init__(self, config):
        super().__init__()
        self.num_heads, self.dropout = config.num_heads, config.attention_share
        # Queries, keys and values in one matrix product, which is faster than three; the rows stand in this order.
        self.query_key_value = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden, mask=None, need_weights=False, select=None):
        """(B, T, H) to (B, T, H), and the weights (B, A, T, T) or None. `mask`, (B, 1, 1, T), is True at real keys."""
        B, T, H = hidden.shape
        projected = self.query_key_value(hidden).view(B, T, 3, self.num_heads, H // self.num_heads)
        query, key, value = projected.permute(2, 0, 3, 1, 4)  # each (B, A, T, D)
        dropout = self.dropout if self.training else 0.0
        if (
            need_weights or dropout and hidden.device.type == "cpu"
        ):  # there SDPA forms them too, and drops them slowly
            weights = attention_weights(query, key, mask)
            mixed = drop(weights, dropout) @ value
        else:
            weights = None
            mixed = F.scaled_dot_product_attention(
                query, key, value, attn_mask=mask, dropout_p=dropout
            )
        mixed = mixed.transpose(1, 2).reshape(B, T, H)
        return self.output(
            mixed if select is None else select(mixed)
        ), weights if need_weights else None


def attention_weights(query, key, mask=None):
    """softmax(QKᵀ/√D) over the real keys: (B, A, T, T), exactly 0 at padding, and all 0 in a row without real keys."""
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    if mask is None:
        return scores.softmax(-1)
    # The lowest number, not −∞: in a row without real keys, −∞ would be NaN inside, forward and backward.
    weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)
    return weights.masked_fill(~mask, 0.0)


def drop(values, share):
    """Dropout (Srivastava et al. 2014): numbers become 0 with chance `share`, and the others grow so that the mean stays.

    A processor's random numbers are its most expensive part. Here one of 64 bits decides for four values, with `share`
    rounded to 1/65,536, where `F.dropout` draws one for each.
    """
    cut = round(share * 65536)
    if values.device.type != "cpu" or cut in (0, 65536):
        return F.dropout(values, share)
    bits = (
        torch.empty(-(-values.numel() // 4), dtype=torch.int64)
        .random_(-(2**63), None)
        .view(torch.int16)
    )
    kept = bits[: values.numel()].view(values.shape) >= cut - 32768
    return values * kept.to(values.dtype).mul_(65536 / (65536 - cut))


class Dropout(nn.Dropout):
    """`nn.Dropout` by way of `drop`."""

    def forward(self, values):
        return drop(values, self.p) if self.training else values


class Block(nn.Module):
    """Attention, then feed-forward; each adds to its input, and the sum is normalised (post-norm)."""

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

    def forward(self, hidden, mask=None, need_weights=False, select=None):
        """(B, T, H) to (B, T, H), or to the rows that `select` picks, and the attention weights or None."""
        attended, weights = self.attention(hidden, mask, need_weights, select)
        hidden = hidden if select is None else select(hidden)
        hidden = self.attention_norm(self.dropout(attended) + hidden)
        return self.feed_forward_norm(self.dropout(self.feed_forward(hidden)) + hidden), weights

    def feed_forward(self, hidden):
        """(..., H) to (..., H), each position by itself."""
        wide = self.expand(hidden)  # (..., 4H), the largest tensor of the encoder
        if self.activation is F.gelu and not torch.is_grad_enabled():
            return self.contract(
                F.gelu(wide, out=wide)
            )  # nobody will ask for its input again, so it needs no second one
        return self.contract(self.activation(wide))


class BertEncoder(nn.Module):
    """Token ids in, one contextual vector for each token out.

    What stands at padded positions can never change the output at a real one. Positions are counted from the left
    edge of the row, padding included, as in BERT: pad on the right unless you mean it.
    """

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.apply(self._initialise)

    def forward(
        self,
        input_ids,
        attention_mask=None,
        token_type_ids=None,
        *,
        output_hidden_states=False,
        output_attentions=False,
        select=None,
    ):
        """Hidden states of the last block; of all blocks, and the attention weights, on request.

        Args:
            input_ids: (B, T) integers, T at most `max_length`.
            attention_mask: (B, T), 1 or True at real tokens, 0 or False at padding; None if all are real.
            token_type_ids: (B, T) segment types; None means type 0 everywhere.
            output_hidden_states, output_attentions: what to return besides. The weights are the ones that this very
                pass has used, before dropout.
            select: a function that picks rows of (B, T, H). Only they are returned, and the last block computes only
                them: each is made from the whole row by attention, and after that depends on itself alone.

        Returns:
            (B, T, H), or what `select` picks of it; an `EncoderOutput` if either flag is set.

        Raises:
            ValueError: a row longer than `max_length`, ids or types outside their vocabulary, a mask of another shape
                or with other values.
        """
        config = self.config
        _check_integers(input_ids, "input_ids")
        if input_ids.dim() != 2:
            raise ValueError(f"input_ids must be (B, T); got {tuple(input_ids.shape)}")
        if input_ids.shape[1] > config.max_length:
            raise ValueError(
                f"rows of {input_ids.shape[1]} tokens, and this encoder has max_length={config.max_length}; truncate them"
            )
        _check_range(input_ids, "input_ids", config.vocab_size, "the vocabulary")
        if token_type_ids is not None:
            _check_integers(token_type_ids, "token_type_ids")
            _check_shape(token_type_ids, "token_type_ids", input_ids)
            _check_range(
                token_type_ids, "token_type_ids", config.type_vocab_size, "the segment types"
            )
        mask = None if attention_mask is None else key_mask(attention_mask, input_ids)
        hidden = self.embeddings(input_ids, token_type_ids)  # (B, T, H)
        states, attentions = [hidden], []
        for block in self.blocks:
            last = block is self.blocks[-1]
            hidden, weights = block(hidden, mask, output_attentions, select if last else None)
            if output_hidden_states:
                states.append(hidden)
            attentions.append(weights)
        if not (output_hidden_states or output_attentions):
            return hidden
        return EncoderOutput(
            hidden,
            tuple(states) if output_hidden_states else None,
            tuple(attentions) if output_attentions else None,
        )

    def _initialise(self, module):
        """BERT's initial weights: normal, biases 0; layer norms start as 1 and 0 by themselves."""
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            with torch.no_grad():
                module.weight[module.padding_idx].zero_()


def key_mask(attention_mask, input_ids):
    """(B, T) of 0 and 1, or bool, to (B, 1, 1, T) bool; None if nothing is padded, since attention is then faster."""
    _check_shape(attention_mask, "attention_mask", input_ids)
    mask = attention_mask if attention_mask.dtype == torch.bool else attention_mask != 0
    if _can_look(mask):
        if attention_mask.dtype != torch.bool and not (attention_mask == mask).all():
            wrong = attention_mask[attention_mask != mask][0].item()
            raise ValueError(
                f"attention_mask holds {wrong}; it must be 1 at real tokens and 0 at padding"
            )
        if mask.all():
            return None
    return mask[:, None, None, :]


def _can_look(tensor):
    # On an accelerator a look at the values makes the program wait at each step, and a compiler cannot follow it.
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def _check_integers(ids, name):
    kind = ids.dtype if isinstance(ids, torch.Tensor) else type(ids).__name__
    if kind not in (torch.int64, torch.int32):  # what nn.Embedding reads
        raise ValueError(f"{name} must be integers (B, T) of 64 or 32 bits; got {kind}")


def _check_shape(tensor, name, input_ids):
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{name} must be a tensor (B, T); got a {type(tensor).__name__}")
    if tensor.shape != input_ids.shape:
        raise ValueError(
            f"{name} has the shape {tuple(tensor.shape)}, input_ids {tuple(input_ids.shape)}; make them one"
        )


def _check_range(ids, name, size, of_what):
    if _can_look(ids) and ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < size:
        wrong = ids[(ids < 0) | (ids >= size)][0].item()
        raise ValueError(f"{name} holds {wrong}, outside {of_what}, 0..{size - 1}")
