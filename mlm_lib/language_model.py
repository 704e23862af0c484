"""A forward and a backward language model, side by side, neither of which can peek. Lesson 10.

The semantics are those of AllenNLP's `LanguageModel` (and so of ELMo, Peters et al. 2018), with
padding put right: no target is a pad, and no pad is scored.
"""

import math
from functools import partial

import torch
import torch.nn as nn

from mlm_lib.checks import can_look, real_mask, tensor, whole_number
from mlm_lib.encoder import Block, Dropout, EncoderConfig, initialise
from mlm_lib.softmax import SampledSoftmaxLoss, SoftmaxLoss

# ------------------------------------------------------------------------------- contextualizers
#
# Both directions are one mechanism. A stack reads from left to right; the backward direction is a
# second stack, with weights of its own, that is handed each row in reverse. So nothing in it could
# look ahead, not even a count of positions, which would tell how much is still to come.


class Contextualizer(nn.Module):
    """Two stacks, or one, that read in one direction each; what they return stands side by side.

    Args:
        make_stack: makes one stack: a module from (B, T, E), real tokens first, to a list of
            layers, each (B, T, H), in which position t depends on positions up to t only.
        num_layers: how many layers it lists.
        output_size: H of one direction.
        bidirectional: whether there is a second stack for the other direction.
    """

    def __init__(self, make_stack, num_layers, output_size, bidirectional):
        super().__init__()
        self.num_layers = whole_number("num_layers", num_layers)
        self.bidirectional = bidirectional
        self.output_size = output_size * (2 if bidirectional else 1)
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
        return layers if all_layers else layers[-1]


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
    """

    def __init__(self, input_size, hidden_size, num_layers, *, bidirectional, dropout=0.0):
        sizes = [input_size] + [hidden_size] * (num_layers - 1)
        stack = partial(_LSTMStack, sizes, hidden_size, dropout)
        super().__init__(stack, num_layers, hidden_size, bidirectional)


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
        wide = 4 * hidden_size
        config = EncoderConfig(1, hidden_size, num_layers, num_heads, wide, dropout=dropout)
        stack = partial(_TransformerStack, config)
        super().__init__(stack, num_layers, hidden_size, bidirectional)


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
        initialise(self, config.initializer_range)

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


class LanguageModel(nn.Module):
    """The next token from those before it and, if bidirectional, the previous from those after it.

    Args:
        vocab_size: V.
        embedder: a module from ids (B, T) to vectors (B, T, E), each of its own token alone, such
            as `nn.Embedding`.
        contextualizer: a module from vectors (B, T, E) and a mask (B, T) bool to (B, T, H), with
            the attributes `bidirectional`, `num_layers` and `output_size`.
            `mlm_lib.leakage.assert_no_leaks` tells whether it is honest.
        dropout: share of the contextual numbers dropped before the softmax, in training, and
            nowhere else.
        num_samples: words drawn by a sampled softmax in training; None is the full softmax.
        sparse_embeddings: sparse gradients in the sampled softmax, which `train` applies; give an
            `nn.Embedding(..., sparse=True)` as well.
        bidirectional: must say the same as the contextualizer's.
        pad_token_id: the id that stands where a row has ended, which is used where no mask is
            given; None if there is none.
        frequency_order: (V,) ids, the most frequent first, for the sampled softmax; None if the ids
            are sorted so.

    Raises:
        ValueError: a contextualizer of the other kind, or what `SampledSoftmaxLoss` refuses.
    """

    def __init__(
        self, vocab_size, embedder, contextualizer, *, dropout=0.0, num_samples=None,
        sparse_embeddings=False, bidirectional=False, pad_token_id=0, frequency_order=None,
    ):  # fmt: skip
        super().__init__()
        if contextualizer.bidirectional != bidirectional:
            raise ValueError(f"bidirectional={bidirectional}, the contextualizer has the other")
        self.embedder, self.contextualizer = embedder, contextualizer
        self.vocab_size, self.pad_token_id = vocab_size, pad_token_id
        self.bidirectional, self.dropout = bidirectional, Dropout(dropout)
        width = contextualizer.output_size // (2 if bidirectional else 1)
        if num_samples is None:
            self.softmax = SoftmaxLoss(vocab_size, width)
        else:
            options = {"sparse": sparse_embeddings, "frequency_order": frequency_order}
            self.softmax = SampledSoftmaxLoss(vocab_size, width, num_samples, **options)
        self._nats = self._count = torch.zeros(())

    def forward(self, input_ids, mask=None, *, all_layers=False):
        """Both losses, and the vectors they were made from.

        Args:
            input_ids: (B, T).
            mask: (B, T), 1 or True at real tokens. None: real is what is not `pad_token_id`.
            all_layers: see `lm_embeddings`.

        Returns:
            A dictionary of what `embed` returns, and of

            - `loss`: the mean of the two directions, or the forward loss; nats per token.
            - `forward_loss`, `backward_loss`: the mean over the targets of one direction;
              `backward_loss` is None if there is none.
            - `batch_weight`: the number of targets of one direction, a float tensor, for
              token-weighted means. Both directions have as many: each pair of neighbours is one
              for either.

            Where no row has two tokens, losses are 0 with a gradient path. With a sampled softmax
            the losses of training mode are sampled ones.

        Raises:
            ValueError: a mask of another shape or with other values.
            RuntimeError: the softmax was deleted.
        """
        if self.softmax is None:
            freed = "delete_softmax() has freed the softmax, so there is no loss any more"
            raise RuntimeError(f"{freed}; call embed() for the vectors")
        output = self.embed(input_ids, mask, all_layers=all_layers)
        top = output["lm_embeddings"][-1] if all_layers else output["lm_embeddings"]
        # 1) Neighbours that are both real: the left one predicts the right one, and vice versa.
        pairs = output["mask"][:, :-1] & output["mask"][:, 1:]  # (B, T − 1)
        row, left = pairs.nonzero(as_tuple=True)  # (N,) each
        weight = pairs.sum()
        mean_over = weight.clamp(min=1)  # 0 pairs have a loss of 0
        # 2) The forward half has read up to the left one, the backward half from the right one on.
        halves = self.dropout(top).chunk(2 if self.bidirectional else 1, -1)
        forward = self.softmax(halves[0][row, left], input_ids[row, left + 1]) / mean_over
        loss, backward = forward, None
        if self.bidirectional:
            backward = self.softmax(halves[1][row, left + 1], input_ids[row, left]) / mean_over
            loss = (forward + backward) / 2
        # Summed where it was made, so that no step waits for the device: `get_metrics` looks.
        wide = weight.to(torch.float32 if loss.device.type == "mps" else torch.float64)
        self._nats = self._nats.to(wide) + loss.detach().to(wide) * wide
        self._count = self._count.to(wide) + wide
        losses = {"loss": loss, "forward_loss": forward, "backward_loss": backward}
        return losses | {"batch_weight": weight.to(loss.dtype)} | output

    def embed(self, input_ids, mask=None, *, all_layers=False):
        """The vectors alone, without a loss; arguments and errors as in `forward`.

        Returns:
            A dictionary.

            - `lm_embeddings`: (B, T, H) of the contextualizer, without the dropout before the
              softmax; with `all_layers` a list of its layers, the top last.
            - `noncontextual_token_embeddings`: (B, T, E), the embedder's.
            - `mask`: (B, T) bool.
        """
        mask = _real_tokens(input_ids, mask, self.pad_token_id)
        embeddings = self.embedder(input_ids)  # (B, T, E)
        options = {"all_layers": True} if all_layers else {}  # others need not know it
        return {
            "lm_embeddings": self.contextualizer(embeddings, mask, **options),
            "noncontextual_token_embeddings": embeddings,
            "mask": mask,
        }

    def delete_softmax(self):
        """Frees the softmax and its weights, where only vectors are wanted. `embed` still works."""
        self.softmax = None

    def num_layers(self):
        """The layers that a mixture can use: the contextualizer's and the noncontextual one."""
        return self.contextualizer.num_layers + 1

    def get_metrics(self, reset=False):
        """{"perplexity": exp of the mean nats per token since the last reset}.

        0.0 where no token was scored yet, inf where a float cannot hold it, NaN where a loss was
        NaN. The mean weighs tokens, not batches. With a sampled softmax only evaluation mode gives
        a perplexity.
        """
        nats, count = self._nats.item(), self._count.item()
        if reset:
            self._nats = self._count = torch.zeros(())
        if not count:
            return {"perplexity": 0.0}
        mean = nats / count
        return {"perplexity": math.inf if mean >= 709 else math.exp(mean)}  # exp(709) = 8e307

    def extra_repr(self):
        sizes = f"vocab_size={self.vocab_size}, bidirectional={self.bidirectional}"
        return f"{sizes}, pad_token_id={self.pad_token_id}"


class LanguageModelEmbedder(nn.Module):
    """A language model's layers, mixed with learned scalars, as the embedder of another model.

    γ · Σ softmax(s)_k · layer_k (Peters et al. 2018, eq. 1), over the noncontextual layer (once for
    each direction) and the contextual ones. At first all weigh the same and γ is 1. Embedder and
    contextualizer are the language model's own, its softmax is not part of it.

    Args:
        language_model: a `LanguageModel`, trained or not.
        trainable: train the language model as well; False keeps it as it is, in evaluation mode.
        dropout: share of the mixed numbers dropped in training.

    Raises:
        RuntimeError: at the first call, if one direction is narrower or wider than the embedder.
    """

    def __init__(self, language_model, *, trainable=False, dropout=0.0):
        super().__init__()
        self.embedder, self.contextualizer = language_model.embedder, language_model.contextualizer
        self.vocab_size = language_model.vocab_size
        self.pad_token_id = language_model.pad_token_id
        self.trainable = trainable
        like = next(language_model.parameters())
        self.scalars = nn.Parameter(like.new_zeros(language_model.num_layers()))
        self.gamma = nn.Parameter(like.new_ones(()))
        self.dropout = Dropout(dropout)
        self.output_size = self.contextualizer.output_size
        self.train(self.training)

    def forward(self, input_ids, mask=None):
        """(B, T) ids, and a mask as in `LanguageModel`, to (B, T, output_size), 0 at padding."""
        mask = _real_tokens(input_ids, mask, self.pad_token_id)
        with torch.set_grad_enabled(self.trainable and torch.is_grad_enabled()):
            embeddings = self.embedder(input_ids)  # (B, T, E)
            layers = self.contextualizer(embeddings, mask, all_layers=True)
        copies = 2 if self.contextualizer.bidirectional else 1
        lowest = torch.cat([embeddings] * copies, -1)
        stacked = torch.stack([lowest, *layers], -1)  # (B, T, H, layers)
        mixed = (stacked * self.scalars.softmax(0)).sum(-1) * self.gamma
        return self.dropout(mixed.masked_fill(~mask[..., None], 0.0))

    def train(self, mode=True):
        """As in any module, but a language model that is not trainable stays in evaluation mode."""
        super().train(mode)
        if not self.trainable:
            self.embedder.eval()
            self.contextualizer.eval()
        return self

    def extra_repr(self):
        return f"output_size={self.output_size}, trainable={self.trainable}"


def _real_tokens(input_ids, mask, pad_token_id):
    """(B, T) bool, by the mask or by the pad."""
    if mask is not None:
        return real_mask("mask", mask, "input_ids", input_ids)
    if pad_token_id is None:
        return torch.ones_like(input_ids, dtype=torch.bool)
    return input_ids != pad_token_id
