"""The BERT encoder: embeddings, then blocks of attention and feed-forward layers.

The encoder is that of Devlin et al. (2019), whose blocks are those of Vaswani et al. (2017). It
gives the same hidden states as transformers' `BertModel`. The pooler of that class, one more layer
on the state of `[CLS]`, is left out. Built in the lesson on the encoder.
"""

from dataclasses import dataclass, field, fields
from functools import partial
from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F

from mlm_lib.checks import (
    can_read_without_sync,
    choice,
    known_ids,
    number,
    probability,
    real_mask,
    same_shape,
    whole_number,
)
from mlm_lib.heads import ACTIVATIONS, MaskedLMHead, activation_name
from mlm_lib.unpadded import Unpadded

# DeepNet has 1,000 layers (Wang et al. 2022). Without a limit, a wrong number in a file would fill
# the memory before anything could refuse it.
MAX_LAYERS = 1000


@dataclass
class EncoderConfig:
    """The sizes and settings of a `BertEncoder`.

    The defaults are the values that all BERTs of Devlin et al. (2019) have in common.

    Args:
        vocab_size: V, the number of tokens.
        hidden_size: H, the width of every hidden state.
        num_layers: the number of blocks, at most 1,000.
        num_heads: A, the attention heads of a block; A must divide `hidden_size`.
        intermediate_size: the width inside the feed-forward part, usually 4H.
        max_length: the largest length T of a row, which is the number of position embeddings.
        type_vocab_size: the number of segment types, which is 2 in BERT: first or second sentence.
            0: the encoder has no segment embeddings.
        dropout: the probability that a hidden value is dropped in training.
        layer_norm_eps: what layer norm adds to the variance.
        pad_token_id: the id of the token for padding. The embedding of this token starts at zero
            and gets no gradient from the embedding layer. None: there is no such token.
        activation: "gelu", "gelu_tanh", "relu", "silu", "softmax", or "linear" for none.
        attention_dropout: the probability that an attention weight is dropped in training. None:
            the value of `dropout`.
        initializer_range: the standard deviation of the initial weights.

    Raises:
        ValueError: a value is outside the limits given here. The message names the value.

    >>> config = EncoderConfig(8192, 256, num_layers=4, num_heads=4, intermediate_size=1024)
    >>> sum(weight.numel() for weight in BertEncoder(config).parameters())
    5388288
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
        choice("activation", self.activation, ACTIVATIONS)

    @property
    def attention_dropout_p(self):
        """The probability that an attention weight is dropped, with None replaced by `dropout`."""
        return self.dropout if self.attention_dropout is None else self.attention_dropout

    def parts(self):
        """A new `BertEncoder`, and the head of a BERT, tied to the word embeddings.

        `MaskedLanguageModel.from_config` calls this method.
        """
        encoder = BertEncoder(self)
        head = MaskedLMHead(
            self.hidden_size, token_embedding=encoder.embeddings.word,
            activation=self.activation, layer_norm_eps=self.layer_norm_eps,
        )  # fmt: skip
        nn.init.normal_(head.dense.weight, std=self.initializer_range)
        return encoder, head


def check_sizes(config):
    """Check the settings that every encoder has, and convert them to plain Python numbers.

    Raises:
        ValueError: no encoder can be built with a setting, such as a negative width or a number of
            heads that does not divide `hidden_size`.
    """
    for name in [size.name for size in fields(config) if size.type is int]:
        least = 0 if name == "type_vocab_size" else 1
        setattr(config, name, whole_number(name, getattr(config, name), least, 2**31 - 1))
    whole_number("num_layers", config.num_layers, most=MAX_LAYERS)
    H, A = config.hidden_size, config.num_heads
    if H % A:
        raise ValueError(f"hidden_size={H} cannot be divided among num_heads={A}")
    for name in ("layer_norm_eps", "initializer_range"):
        setattr(config, name, number(name, getattr(config, name), least=0))
    pad, most = config.pad_token_id, config.vocab_size - 1
    config.pad_token_id = whole_number("pad_token_id", pad, 0, most, none=True)


# ------------------------------------------------------------------------------------ dropout
#
# On a CPU, drawing random numbers is the most expensive part of dropout. `F.dropout` draws a number
# for each value, which took a fifth of a training step in bf16. `drop` draws one number of 64 bits
# for four values, because 16 bits are enough to decide about one value.
# `python -m benchmarks.dropout` compares the two.

LEVELS = 2**16  # how many different numbers 16 bits can hold


def drop(values, p):
    """Dropout (Srivastava et al. 2014): each value becomes 0 with probability p.

    A value that is kept is multiplied by 1/(1 − p). If p is below 1, the mean of a value v
    therefore stays the same: p · 0 + (1 − p) · v/(1 − p) = v. If p is 1, all values become 0.

    On a CPU p is rounded to a multiple of 1/65,536, so that 0.1 becomes 0.100006. This changes the
    dropped share by at most 0.00001. It does not change the mean, because the rounded p also gives
    the factor 1/(1 − p). The factor itself is rounded to the dtype of the values. In bf16, which
    has 16 bits, 1/0.9 becomes 1.109, so that the mean is lower by 0.2%. `F.dropout` rounds its
    factor in the same way.

    Args:
        values: (...), floating point, on any device. On a GPU `F.dropout` is called.
        p: the probability that a value is dropped.

    Returns:
        A new tensor (...). Where a value was dropped, its gradient is 0 as well.

    Raises:
        ValueError: p is not in 0..1.

    >>> drop(torch.ones(3), 1.0)
    tensor([0., 0., 0.])
    """
    cut = round(probability("p", p) * LEVELS)  # p = cut / 65,536
    if values.device.type != "cpu" or cut in (0, LEVELS):
        return F.dropout(values, p)
    # 1) Draw a quarter as many 64-bit numbers as there are values, and read each as four numbers
    #    of 16 bits.
    count = values.numel()
    wide = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None)
    narrow = wide.view(torch.int16)[:count].view(values.shape)  # uniform in −32,768..32,767
    # 2) Of these 65,536 numbers, `cut` drop their value and the others keep it.
    kept = narrow >= cut - LEVELS // 2
    # 3) Multiply by 0 or by 1/(1 − p).
    return values * kept.to(values.dtype).mul_(LEVELS / (LEVELS - cut))


class Dropout(nn.Dropout):
    """`nn.Dropout`, computed by the function `drop`. Values are dropped in training mode only.

    Args:
        p: the probability that a value is dropped.

    Raises:
        ValueError: p is not in 0..1; unlike torch, this refuses NaN as well.
    """

    def __init__(self, p):
        super().__init__(probability("dropout", p))

    def forward(self, values):
        """Applies dropout to a tensor of any shape, and returns a new tensor of the same shape."""
        return drop(values, self.p) if self.training else values


# ------------------------------------------------------------------------------------ attention


def attention_weights(query, key, mask=None):
    """The weights softmax(QKᵀ/√D) with which each query attends to each key.

    Args:
        query: (B, A, T, D), T queries of D numbers in each of A heads.
        key: (B, A, S, D), S keys of D numbers in each head.
        mask: a bool tensor, True where a query may attend to a key, of a shape that broadcasts to
            (B, A, T, S). None: every query may attend to every key.

    Returns:
        The weights (B, A, T, S), one for each pair of a query and a key. A weight is exactly 0
        where the mask is False. If a query may not attend to any key, all its weights are 0.
    """
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    if mask is None:
        return scores.softmax(-1)
    # With −∞ instead of the lowest number, a query without any key would get NaN, in the forward
    # and in the backward pass.
    weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)
    return weights.masked_fill(~mask, 0.0)


def attend(query, key, value, mask, *, dropout_p=0.0, need_weights=False):
    """Computes attention: for each query, the mean of the values, weighted by `attention_weights`.

    Args:
        query: (B, A, T, D).
        key, value: (B, A, S, D).
        mask: as for `attention_weights`.
        dropout_p: the probability that a weight is dropped.
        need_weights: whether to return the weights.

    Returns:
        The mixed values (B, A, T, D), and the weights (B, A, T, S) before dropout. If
        `need_weights` is False, the second result may be None.
    """
    # torch's fused form returns no weights. On a CPU, if it has to drop weights, it computes all of
    # them anyway, and its dropout is slow.
    if need_weights or dropout_p and query.device.type == "cpu":
        weights = attention_weights(query, key, mask)
        return drop(weights, dropout_p) @ value, weights
    options = {"attn_mask": mask, "dropout_p": dropout_p}
    return F.scaled_dot_product_attention(query, key, value, **options), None


# ------------------------------------------------------------------------------------ encoder


class Embeddings(nn.Module):
    """One vector for each token: the sum of three embeddings, normalised.

    The three are the embeddings of the token, of its position in the row, and of its segment type.
    With `type_vocab_size=0` there is no third embedding, and the sum has two terms.
    """

    def __init__(self, config):
        super().__init__()
        V, H, pad = config.vocab_size, config.hidden_size, config.pad_token_id
        self.word = nn.Embedding(V, H, padding_idx=pad)
        self.position = nn.Embedding(config.max_length, H)
        self.token_type = None
        if config.type_vocab_size:
            self.token_type = nn.Embedding(config.type_vocab_size, H)
        self.norm = nn.LayerNorm(H, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.dropout)

    def forward(self, input_ids, token_type_ids=None, positions=None):
        """Returns the vectors (B, T, H) of token ids (B, T), or the vectors (N, H) of ids (N,).

        Args:
            input_ids: (B, T). If `positions` is given: (N,), only the N tokens of the batch that
                are not padding, one after another.
            token_type_ids: segment types, of the shape of `input_ids`. None: every token has type
                0. If there are no segment embeddings, the types are not read.
            positions: (N,), the position of each token in its row. None: 0..T−1 in every row.
        """
        if positions is None:
            places = self.position.weight[: input_ids.shape[1]]  # (T, H)
        else:
            places = self.position(positions)  # (N, H)
        known_ids("input_ids", input_ids, self.word.num_embeddings)
        summed = self.word(input_ids)  # (B, T, H)
        if self.token_type is not None:
            types = self.token_type.weight[0]  # (H,)
            if token_type_ids is not None:
                known_ids("token_type_ids", token_type_ids, self.token_type.num_embeddings)
                types = self.token_type(token_type_ids)  # (B, T, H)
            summed = summed + types
        summed = summed + places
        return self.dropout(self.norm(summed))


class SelfAttention(nn.Module):
    """Every position attends to all positions that are not padding, in A heads (Vaswani et al.
    2017, section 3.2).

    Args:
        config: an `EncoderConfig`.
    """

    def __init__(self, config):
        super().__init__()
        self.num_heads, self.dropout = config.num_heads, config.attention_dropout_p
        # One product that makes query, key and value is faster than three products. In the rows of
        # the matrix the query comes first, then the key, then the value.
        self.query_key_value = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden, mask=None, need_weights=False, select=None, layout=None):
        """Computes attention for hidden states (B, T, H), and returns states of the same shape and
        the attention weights.

        Args:
            hidden: (B, T, H). If `layout` is given: (N, H), only the tokens that are not padding.
            mask: (B, 1, 1, T), True at keys that are real tokens. None: all keys are real tokens.
            need_weights: whether to return the weights.
            select: a function that picks vectors, as for `BertEncoder.forward`.
            layout: an `Unpadded` (of `mlm_lib.unpadded`), a form of a batch without padding, which
                records where the N tokens were in the batch. None: padding is computed as well.

        Returns:
            Two results: the output of attention, in the shape of `hidden` or only the vectors that
            `select` picks; and the weights (B, A, T, T), or None.
        """
        # 1) Make query, key and value of each position, and cut them into heads of D = H/A numbers.
        dropout_p = self.dropout if self.training else 0.0
        projected = self.query_key_value(hidden).unflatten(-1, (3, self.num_heads, -1))
        # 2) Mix the values by attention, and put the heads side by side again.
        if layout is not None:
            query, key, value = projected.unbind(1)  # each (N, A, D)
            mixed, weights = layout.mix(query, key, value, attend, dropout_p=dropout_p)  # (N, H)
        else:
            query, key, value = projected.permute(2, 0, 3, 1, 4)  # each (B, A, T, D)
            options = {"dropout_p": dropout_p, "need_weights": need_weights}
            mixed, weights = attend(query, key, value, mask, **options)
            mixed = mixed.transpose(1, 2).flatten(2)  # (B, A, T, D) to (B, T, H)
        # 3) Mix the heads by one more matrix.
        attended = self.output(mixed if select is None else select(mixed))
        return attended, weights if need_weights else None

    def extra_repr(self):
        """What `print(model)` shows in addition to the sizes of the layers."""
        return f"num_heads={self.num_heads}, dropout={self.dropout}"


class Block(nn.Module):
    """A block of the encoder: attention, then a feed-forward part. The output of each part is added
    to its input, and the sum is normalised.

    Args:
        config: an `EncoderConfig`.
    """

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
        """Computes the block for hidden states (B, T, H), and returns states of the same shape and
        the attention weights.

        Arguments and results are those of `SelfAttention.forward`.
        """
        attended, weights = self.attention(hidden, mask, need_weights, select, layout)
        # From here on each position is computed by itself, so that the picked vectors are enough.
        hidden = hidden if select is None else select(hidden)
        hidden = self.attention_norm(self.dropout(attended) + hidden)
        hidden = self.feed_forward_norm(self.dropout(self.feed_forward(hidden)) + hidden)
        return hidden, weights

    def feed_forward(self, hidden):
        """Computes the feed-forward part for states (..., H), each position by itself."""
        wide = self.expand(hidden)  # (..., 4H), the largest tensor of the encoder
        if self.activation is F.gelu and not torch.is_grad_enabled():
            # GELU overwrites its input, which saves a twentieth of the time of a forward pass. A
            # forward hook that keeps the output of `expand` must therefore copy this output.
            return self.contract(F.gelu(wide, out=wide))
        return self.contract(wide if self.activation is None else self.activation(wide))

    def extra_repr(self):
        """The name of the activation, which `print(model)` shows."""
        return f"activation={activation_name(self.activation)}"


class EncoderOutput(NamedTuple):
    """What an encoder returns when it is asked for more than the hidden states of its last block.

    Args:
        last: (B, T, H), the hidden states of the last block; with `select`, only the vectors that
            `select` picked.
        hidden_states: num_layers + 1 tensors (B, T, H), the embeddings and the states after each
            block; None without `output_hidden_states`.
        attentions: num_layers tensors (B, A, T, T), indexed by [query, key], the attention weights
            of each block; None without `output_attentions`.
    """

    last: torch.Tensor
    hidden_states: tuple | None
    attentions: tuple | None


class BertEncoder(nn.Module):
    """Token ids in, one contextual vector for each token out.

    The tokens at padded positions never change the output at a real position. Positions are counted
    from the left edge of the row, padding included, as in BERT; rows should therefore be padded on
    the right.

    Args:
        config: an `EncoderConfig`.
        unpadded: whether to skip the computation for padding (see lesson 18). Padding is skipped
            only if the mask is on the CPU and neither hidden states nor attention weights are asked
            for. The output at padding is then 0. The attribute may be changed at any time.
    """

    selects = True  # `MaskedLanguageModel` asks for this: `forward` takes the argument `select`

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
        """Returns the hidden states of the last block and, if they are asked for, the states of all
        blocks and the attention weights.

        Args:
            input_ids: (B, T) integers, T at most `max_length`.
            attention_mask: (B, T), 1 or True at real tokens, 0 or False at padding. None: all
                tokens are real.
            token_type_ids: (B, T) segment types. None: every token has type 0.
            output_hidden_states: whether to return the hidden states of all blocks.
            output_attentions: whether to return the attention weights of all blocks. They are the
                weights of this forward pass, before dropout.
            select: a function that takes a tensor (B, T, H) and returns some of its B·T vectors, as
                (N, H). Only these vectors are returned. In the last block, attention still reads
                all positions. The rest of the block treats each position by itself, so it is
                computed only for the vectors that are picked.

        Returns:
            (B, T, H), or what `select` picks of it; an `EncoderOutput` if hidden states or
            attention weights are asked for.

        Raises:
            ValueError: a row is longer than `max_length`; segment types or the mask have another
                shape than `input_ids`; segment types are given to an encoder without segment
                embeddings; the mask has other values than 0 and 1.
            IndexError: an id is not in the vocabulary, or a segment type does not exist. This is
                checked on a CPU only, because on a GPU the program would have to wait for the
                check.
        """
        if input_ids.shape[1] > self.config.max_length:
            limit = f"this encoder has max_length={self.config.max_length}; truncate them"
            raise ValueError(f"rows of {input_ids.shape[1]} tokens, and {limit}")
        if token_type_ids is not None:
            same_shape("token_type_ids", token_type_ids, "input_ids", input_ids)
            if not self.config.type_vocab_size:
                told = "this encoder has no segment embeddings (type_vocab_size=0)"
                raise ValueError(f"token_type_ids are given, but {told}; leave them out")
        more = output_hidden_states or output_attentions
        mask = layout = None  # both stay None where nothing is padded, because that is faster
        if attention_mask is not None:
            real = real_mask("attention_mask", attention_mask, "input_ids", input_ids)  # (B, T)
            if not (can_read_without_sync(real) and real.all()):
                mask = real.to(input_ids.device, non_blocking=can_read_without_sync(real))[
                    :, None, None, :
                ]
            if mask is not None and self.unpadded and not more and can_read_without_sync(real):
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
    """Give a model BERT's initial weights.

    Matrices and embeddings are drawn from a normal distribution of mean 0; biases and the embedding
    of the padding token become 0. Layer norms keep torch's initial values, 1 and 0.

    Args:
        model: a module, whose weights are replaced.
        std: the standard deviation.
    """
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=std)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
        if getattr(module, "padding_idx", None) is not None:
            nn.init.zeros_(module.weight.data[module.padding_idx])
