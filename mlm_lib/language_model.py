"""A forward and a backward language model, side by side, neither of which can peek. Built in lesson 10.

The semantics are those of AllenNLP's `LanguageModel` (and so of ELMo, Peters et al. 2018), with padding put right: no
target is a pad, and no pad is scored. Both directions are one mechanism. A stack reads from left to right; the
backward direction is a second stack, with weights of its own, that is handed each row in reverse. So nothing in it
could look ahead, not even a count of positions, which would tell how much is still to come.
"""

import math

import torch
import torch.nn as nn

from mlm_lib.encoder import Block, Dropout, EncoderConfig
from mlm_lib.losses import SampledSoftmaxLoss, SoftmaxLoss


class Contextualizer(nn.Module):
    """Two stacks, or one, that read in one direction each; what they return stands side by side.

    Args:
        make_stack: makes one stack: a module from (B, T, E), real tokens first, to a list of layers, each (B, T, H),
            in which position t depends on positions up to t only.
        num_layers: how many layers it lists.
        output_size: H of one direction.
        bidirectional: whether there is a second stack for the other direction.
    """

    def __init__(self, make_stack, num_layers, output_size, bidirectional):
        super().__init__()
        self.forward_stack = make_stack()
        self.backward_stack = make_stack() if bidirectional else None
        self.num_layers, self.bidirectional = num_layers, bool(bidirectional)
        self.output_size = output_size * (2 if bidirectional else 1)

    def forward(self, embeddings, mask, *, all_layers=False):
        """Contextual vectors, 0 at padding. Pads change nothing at real tokens, wherever they stand.

        Args:
            embeddings: (B, T, E).
            mask: (B, T), True at real tokens; None if all are real.
            all_layers: return every layer, not the top alone.

        Returns:
            (B, T, output_size), or a list of `num_layers` of them, the top last. Of a bidirectional contextualizer the
            first half is the forward direction, which has read up to its own position, and the second the backward.
        """
        layers = _read(self.forward_stack, embeddings, mask, reverse=False)
        if self.backward_stack is not None:
            backward = _read(self.backward_stack, embeddings, mask, reverse=True)
            layers = [torch.cat(pair, -1) for pair in zip(layers, backward)]
        return layers if all_layers else layers[-1]


class LSTMContextualizer(Contextualizer):
    """Stacked LSTMs, one stack a direction, as in ELMo.

    A bidirectional `nn.LSTM` of several layers will not do: its second layer reads both directions of the first, and
    so has seen every token that it is asked to predict.

    Args:
        input_size: E.
        hidden_size: H of one direction.
        num_layers: layers of each stack.
        bidirectional: whether there is a backward stack.
        dropout: share of the numbers dropped between layers, in training.

    Raises:
        ValueError: a size that is not a positive integer, or a dropout that is no probability.
    """

    def __init__(self, input_size, hidden_size, num_layers, *, bidirectional, dropout=0.0):
        _check_sizes(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        _check_share("dropout", dropout)
        super().__init__(
            lambda: _LSTMStack(input_size, hidden_size, num_layers, dropout),
            num_layers,
            hidden_size,
            bidirectional,
        )


class TransformerContextualizer(Contextualizer):
    """BERT's blocks under a causal mask, one stack a direction; positions are sinusoids (Vaswani et al. 2017).

    Positions are counted from the end at which a stack begins to read, and pads are not counted.

    Args:
        hidden_size: H, the width of the embeddings and of one direction.
        num_layers: blocks of each stack.
        num_heads: attention heads; must divide H.
        bidirectional: whether there is a backward stack.
        dropout: share of hidden values and of attention weights dropped in training.

    Raises:
        ValueError: a size that is not a positive integer, heads that do not divide the width, a dropout that is no
            probability.
    """

    def __init__(self, hidden_size, num_layers, num_heads, *, bidirectional, dropout=0.1):
        _check_sizes(hidden_size=hidden_size, num_layers=num_layers, num_heads=num_heads)
        _check_share("dropout", dropout)
        config = EncoderConfig(
            1, hidden_size, num_layers, num_heads, 4 * hidden_size, dropout=dropout
        )
        super().__init__(lambda: _TransformerStack(config), num_layers, hidden_size, bidirectional)


class LanguageModel(nn.Module):
    """Predicts the next token from those before it and, if bidirectional, the previous one from those after it.

    Args:
        vocab_size: V.
        embedder: a module from ids (B, T) to vectors (B, T, E), each of its own token alone, such as `nn.Embedding`.
        contextualizer: a module from vectors (B, T, E) and a mask (B, T) bool to (B, T, H), with the attributes
            `bidirectional`, `num_layers` and `output_size`. `mlm_lib.leakage.assert_no_leaks` tells whether it is honest.
        dropout: share of the contextual numbers dropped before the softmax, in training, and nowhere else.
        num_samples: words drawn by a sampled softmax in training; None is the full softmax.
        sparse_embeddings: sparse gradients in the sampled softmax, for `torch.optim.SparseAdam`.
        bidirectional: must say the same as the contextualizer's.
        pad_token_id: the id that stands where a row has ended; it is used where no mask is given.
        frequency_order: (V,) ids, the most frequent first, for the sampled softmax; None if the ids are sorted so.

    Raises:
        ValueError: a contextualizer of the other kind or with an odd width, a dropout that is no probability,
            sparse gradients or an order without samples, or what `SampledSoftmaxLoss` refuses.
    """

    def __init__(
        self,
        vocab_size,
        embedder,
        contextualizer,
        *,
        dropout=0.0,
        num_samples=None,
        sparse_embeddings=False,
        bidirectional=False,
        pad_token_id=0,
        frequency_order=None,
    ):
        super().__init__()
        theirs = getattr(contextualizer, "bidirectional", None)
        if theirs != bidirectional:
            raise ValueError(
                f"the contextualizer has bidirectional={theirs}, the language model {bidirectional}; they must be equal"
            )
        if bidirectional and contextualizer.output_size % 2:
            raise ValueError(
                f"output_size={contextualizer.output_size} of a bidirectional contextualizer has no halves"
            )
        _check_share("dropout", dropout)
        if num_samples is None and (sparse_embeddings or frequency_order is not None):
            raise ValueError(
                "sparse_embeddings and frequency_order belong to the sampled softmax; give num_samples as well"
            )
        self.embedder, self.contextualizer = embedder, contextualizer
        self.vocab_size, self.bidirectional, self.pad_token_id = (
            vocab_size,
            bidirectional,
            pad_token_id,
        )
        self.dropout = Dropout(dropout)
        width = contextualizer.output_size // (2 if bidirectional else 1)
        if num_samples is None:
            self.softmax = SoftmaxLoss(vocab_size, width)
        else:
            self.softmax = SampledSoftmaxLoss(
                vocab_size,
                width,
                num_samples,
                sparse=sparse_embeddings,
                frequency_order=frequency_order,
            )
        self._nats, self._count = 0.0, 0

    def forward(self, input_ids, mask=None, *, all_layers=False):
        """Both losses, and the vectors they were made from.

        Args:
            input_ids: (B, T).
            mask: (B, T), 1 or True at real tokens. None: real is what is not `pad_token_id`.
            all_layers: see `lm_embeddings`.

        Returns:
            A dictionary of what `embed` returns and
            loss: the mean of the two directions, or the forward loss; nats per token.
            forward_loss, backward_loss: the mean over the targets of one direction; backward_loss is None if there is none.
            batch_weight: the number of targets of one direction, a float tensor, for token-weighted means. Both
                directions have as many: each pair of neighbours is one for either.
            Where no row has two tokens, losses are 0 with a gradient path. With a sampled softmax the losses of
            training mode are sampled ones.

        Raises:
            ValueError: shapes that do not belong together, a mask of other values, ids outside the vocabulary.
            RuntimeError: the softmax was deleted.
        """
        if self.softmax is None:
            raise RuntimeError(
                "delete_softmax() has freed the softmax, so there is no loss any more; call embed() for the vectors"
            )
        output = self.embed(input_ids, mask, all_layers=all_layers)
        top = output["lm_embeddings"][-1] if all_layers else output["lm_embeddings"]
        mask = output["mask"]
        pairs = mask[:, :-1] & mask[:, 1:]  # (B, T − 1), neighbours that are both real
        halves = self.dropout(top).chunk(2 if self.bidirectional else 1, -1)
        weight = pairs.sum()
        forward = self.softmax(halves[0][:, :-1][pairs], input_ids[:, 1:][pairs]) / weight.clamp(
            min=1
        )
        loss, backward = forward, None
        if self.bidirectional:
            backward = self.softmax(
                halves[1][:, 1:][pairs], input_ids[:, :-1][pairs]
            ) / weight.clamp(min=1)
            loss = (forward + backward) / 2
        self._nats, self._count = (
            self._nats + loss.item() * weight.item(),
            self._count + weight.item(),
        )
        losses = {
            "loss": loss,
            "forward_loss": forward,
            "backward_loss": backward,
            "batch_weight": weight.to(loss.dtype),
        }
        return losses | output

    def embed(self, input_ids, mask=None, *, all_layers=False):
        """The vectors alone, without a loss; arguments and errors as in `forward`.

        Returns:
            A dictionary.
            lm_embeddings: (B, T, H) of the contextualizer, without the dropout before the softmax; with `all_layers` a
                list of its layers, the top last.
            noncontextual_token_embeddings: (B, T, E), the embedder's.
            mask: (B, T) bool.
        """
        if (
            input_ids.dtype not in (torch.int64, torch.int32)
            or input_ids.dim() != 2
            or not input_ids.numel()
        ):
            kind = f"{input_ids.dtype}, {tuple(input_ids.shape)}"
            raise ValueError(
                f"input_ids must be integers (B, T), of 64 or 32 bits, at least one token; got {kind}"
            )
        if (
            input_ids.device.type == "cpu"
            and not 0 <= int(input_ids.min()) <= int(input_ids.max()) < self.vocab_size
        ):
            wrong = input_ids[(input_ids < 0) | (input_ids >= self.vocab_size)][0].item()
            raise ValueError(
                f"input_ids holds {wrong}, which is outside the vocabulary, 0..{self.vocab_size - 1}"
            )
        mask = input_ids != self.pad_token_id if mask is None else _bool_mask(mask, input_ids)
        embeddings = self.embedder(input_ids)  # (B, T, E)
        options = {"all_layers": True} if all_layers else {}
        contextual = self.contextualizer(embeddings, mask, **options)
        return {
            "lm_embeddings": contextual,
            "noncontextual_token_embeddings": embeddings,
            "mask": mask,
        }

    def delete_softmax(self):
        """Frees the softmax and its weights, where only the vectors are wanted. `embed` goes on working."""
        self.softmax = None

    def num_layers(self):
        """The layers that a mixture can use: the contextualizer's and the noncontextual one."""
        return self.contextualizer.num_layers + 1

    def get_metrics(self, reset=False):
        """{"perplexity": exp of the mean nats per token since the last reset}; 0.0 where no token was scored yet.

        The mean weighs tokens, not batches. With a sampled softmax only evaluation mode gives a perplexity.
        """
        nats = self._nats / max(1, self._count)
        perplexity = 0.0 if not self._count else math.exp(nats) if nats < 709 else math.inf
        if reset:
            self._nats, self._count = 0.0, 0
        return {"perplexity": perplexity}


class LanguageModelEmbedder(nn.Module):
    """A language model's layers, mixed with learned scalars, as the embedder of another model (Peters et al. 2018, eq. 1).

    γ · Σ softmax(s)_k · layer_k, over the noncontextual layer (once for each direction) and the contextual ones. At
    first all weigh the same and γ is 1. Embedder and contextualizer are the language model's own, its softmax is not
    part of it.

    Args:
        language_model: a `LanguageModel`, trained or not.
        trainable: train the language model as well; False keeps it as it is, in evaluation mode.
        dropout: share of the mixed numbers dropped in training.

    Raises:
        ValueError: an embedder narrower or wider than one direction, seen at the first call; a dropout that is no
            probability.
    """

    def __init__(self, language_model, *, trainable=False, dropout=0.0):
        super().__init__()
        _check_share("dropout", dropout)
        self.embedder, self.contextualizer = language_model.embedder, language_model.contextualizer
        self.pad_token_id, self.trainable = language_model.pad_token_id, trainable
        like = next(language_model.parameters())
        self.scalars = nn.Parameter(like.new_zeros(language_model.num_layers()))
        self.gamma = nn.Parameter(like.new_ones(()))
        self.dropout = Dropout(dropout)
        self.output_size = self.contextualizer.output_size
        self.train(self.training)

    def forward(self, input_ids, mask=None):
        """(B, T) ids, and a mask as in `LanguageModel.forward`, to (B, T, output_size), 0 at padding."""
        mask = input_ids != self.pad_token_id if mask is None else _bool_mask(mask, input_ids)
        with torch.set_grad_enabled(self.trainable and torch.is_grad_enabled()):
            embeddings = self.embedder(input_ids)  # (B, T, E)
            layers = self.contextualizer(embeddings, mask, all_layers=True)
        copies = 2 if self.contextualizer.bidirectional else 1
        if copies * embeddings.shape[-1] != self.output_size:
            raise ValueError(
                f"the embedder is {embeddings.shape[-1]} wide and the contextualizer {self.output_size}; layers can be mixed "
                "only if each direction is as wide as the embedder"
            )
        stacked = torch.stack(
            [torch.cat([embeddings] * copies, -1), *layers], -1
        )  # (B, T, H, layers)
        mixed = (stacked * self.scalars.softmax(0)).sum(-1) * self.gamma
        return self.dropout(mixed.masked_fill(~mask[..., None], 0.0))

    def train(self, mode=True):
        """As in any module, but a language model that is not trainable stays in evaluation mode."""
        super().train(mode)
        if not self.trainable:
            self.embedder.eval(), self.contextualizer.eval()
        return self


class _LSTMStack(nn.Module):
    def __init__(self, input_size, hidden_size, num_layers, dropout):
        super().__init__()
        sizes = [input_size] + [hidden_size] * (num_layers - 1)
        self.layers = nn.ModuleList(nn.LSTM(size, hidden_size, batch_first=True) for size in sizes)
        self.dropout = Dropout(dropout)

    def forward(self, hidden):
        states = []
        for layer in self.layers:
            hidden = layer(self.dropout(hidden) if states else hidden)[0]
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
        # Normalised first, so that token and position are of like size whatever the embedder's scale.
        hidden = self.dropout(self.norm(hidden) + sinusoids(T, H).to(hidden))
        causal = torch.ones(T, T, dtype=torch.bool, device=hidden.device).tril()[
            None, None
        ]  # [query, key]
        states = []
        for block in self.blocks:
            hidden = block(hidden, causal)[0]
            states.append(hidden)
        return states


def sinusoids(length, size):
    """(T, H) position vectors: sines and cosines of the position at wavelengths from 2π to 20,000π (Vaswani et al. 2017)."""
    rates = 10000 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)  # (H/2,), rounded up
    angles = torch.arange(length)[:, None] * rates  # (T, H/2)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :size]


def _read(stack, embeddings, mask, *, reverse):
    """The layers of a stack that reads each row's real tokens in order, or in reverse order, put back in their places."""
    if mask is None or embeddings.device.type == "cpu" and mask.all():
        return (
            [layer.flip(1) for layer in stack(embeddings.flip(1))] if reverse else stack(embeddings)
        )
    places = torch.arange(mask.shape[1], device=mask.device)
    # Real tokens first, in the order in which they are read, and pads behind them, where they are not read before any.
    order = (~mask * mask.shape[1] + (places.flip(0) if reverse else places)).argsort(1)  # (B, T)
    back = order.argsort(1)
    layers = stack(_take(embeddings.masked_fill(~mask[..., None], 0.0), order))
    return [_take(layer, back).masked_fill(~mask[..., None], 0.0) for layer in layers]


def _take(rows, places):
    """(B, T, E) rows in the order of (B, T) places."""
    return rows.gather(1, places[..., None].expand(-1, -1, rows.shape[-1]))


def _bool_mask(mask, input_ids):
    if mask.shape != input_ids.shape:
        raise ValueError(
            f"mask {tuple(mask.shape)} and input_ids {tuple(input_ids.shape)} must have one shape"
        )
    real = mask if mask.dtype == torch.bool else mask != 0
    if mask.device.type == "cpu" and mask.dtype != torch.bool and not (mask == real).all():
        raise ValueError(
            f"mask holds {mask[mask != real][0].item()}; it must be 1 at real tokens and 0 at padding"
        )
    return real


def _check_sizes(**sizes):
    for name, size in sizes.items():
        if type(size) is not int or size < 1:
            raise ValueError(f"{name}={size!r} is not a positive integer")


def _check_share(name, share):
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
        raise ValueError(f"{name}={share!r} is not a probability")
