"""The encoder of today: ModernBERT, part by part from the encoder of lesson 06. In lesson 16.

Warner et al. (2024), "Smarter, Better, Faster, Longer"; equal to transformers' `ModernBertModel`.
Against BERT: positions by rotation (Su et al. 2021), norms before the parts instead of after them
(Xiong et al. 2020), no biases, GeGLU (Shazeer 2020), most layers see a window only (Beltagy et al.
2020), and padding is not computed.
"""

from dataclasses import dataclass, field, fields

import torch.nn as nn

from mlm_lib.checks import flag, ids, number, probability, refused, whole_number
from mlm_lib.dropout import Dropout
from mlm_lib.encoder import MOST_LAYERS, EncoderOutput
from mlm_lib.heads import MaskedLMHead
from mlm_lib.modern_blocks import ModernBlock, ModernBlocks, layout_of, plain_norm

SHARES = ("embedding_dropout", "attention_dropout", "mlp_dropout")


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
        for name in [size.name for size in fields(self) if size.type is int]:
            least = 2 if name == "window" else 1  # a window of 1 would reach no one
            setattr(self, name, whole_number(name, getattr(self, name), least, 2**31 - 1))
        whole_number("num_layers", self.num_layers, most=MOST_LAYERS)
        H, A = self.hidden_size, self.num_heads
        if H % A:
            raise ValueError(f"hidden_size={H} cannot be divided among num_heads={A}")
        if H // A % 2:
            raise ValueError(
                f"hidden_size={H} gives each of num_heads={A} a size of {H // A}, which is odd; "
                "rotary positions turn pairs of numbers"
            )
        for name in SHARES:
            setattr(self, name, probability(name, getattr(self, name)))
        for name in ("global_theta", "local_theta", "initializer_cutoff"):
            setattr(self, name, number(name, getattr(self, name), above=0))
        for name in ("layer_norm_eps", "initializer_range"):
            setattr(self, name, number(name, getattr(self, name), least=0))
        pad, most = self.pad_token_id, self.vocab_size - 1
        self.pad_token_id = whole_number("pad_token_id", pad, 0, most, none=True)

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
            self.hidden_size,
            token_embedding=encoder.embeddings.word,
            layer_norm_eps=self.layer_norm_eps,
            bias=False,
        )
        draw(head.dense.weight, self, added=True)
        return encoder, head


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
        return self.dropout(self.norm(self.word(input_ids)))


class ModernEncoder(nn.Module):
    """Token ids in, one contextual vector for each token out, and 0 for each padding.

    What stands at padded positions can never change the output at a real one, nor can another row.
    On a processor padding is not even computed (see `unpadded.py`); elsewhere, when compiled or
    exported, when attention weights are asked for, and with `unpadded` False it is, and masked. The
    attribute may be changed at any time.

    Args:
        config: a `ModernConfig`.
        unpadded: whether to leave padding out where that is possible.

    Raises:
        ValueError: a `config` that is none, an `unpadded` that is neither True nor False.
    """

    def __init__(self, config, *, unpadded=True):
        super().__init__()
        if not isinstance(config, ModernConfig):
            raise refused("config", config, "a ModernConfig")
        self.config, self.unpadded = config, flag("unpadded", unpadded)
        self.embeddings = ModernEmbeddings(config)
        self.blocks = ModernBlocks(ModernBlock(config, i) for i in range(config.num_layers))
        self.norm = plain_norm(config)
        self.apply(self._initialise)

    def forward(
        self,
        input_ids,
        attention_mask=None,
        *,
        output_hidden_states=False,
        output_attentions=False,
        select=None,
    ):
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
            ValueError: ids outside the vocabulary, a mask of another shape, with other values, or
                without a single real token.
        """
        ids("input_ids", input_ids, size=self.config.vocab_size)
        flag("output_hidden_states", output_hidden_states)
        flag("output_attentions", output_attentions)
        unpadded = self.unpadded and not output_attentions
        layout = layout_of("input_ids", input_ids, attention_mask, unpadded)
        hidden = self.embeddings(layout.take(input_ids))  # (B, T, H), or (N, H) of real tokens
        states = [layout.put(hidden)] if output_hidden_states else []
        hidden, attentions = self.blocks.run(
            hidden,
            layout,
            keep=(lambda state: states.append(layout.put(state))) if output_hidden_states else None,
            need_weights=output_attentions,
            select=select,
        )
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
