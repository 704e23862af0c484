"""A forward and a backward language model, neither of which sees what it predicts.

Built in lesson 11. `LanguageModel` predicts each token from the tokens before it. If bidirectional,
it makes a second, separate prediction from the tokens after it. For this it computes *vectors in
context*, one for each token. The part of the model that computes them from the embeddings is the
*contextualizer*. These vectors can be the embeddings of another model (ELMo, Peters et al. 2018):
see `LanguageModelEmbedder`.

The interface is that of AllenNLP's `LanguageModel`, which the lesson rebuilds. The behaviour
differs on purpose in two points: padding is never a target, and nothing is predicted from padding.
"""

import math
from functools import partial

import torch
import torch.nn as nn

from mlm_lib.checks import can_read_without_sync, real_mask, tensor, whole_number
from mlm_lib.encoder import Block, Dropout, EncoderConfig, initialise
from mlm_lib.softmax import SampledSoftmaxLoss, SoftmaxLoss

# ------------------------------------------------------------------------------- contextualizers
#
# Both directions use the same code. A stack of layers reads from left to right. The backward
# direction is a second stack, with its own weights, which gets each row in reversed order. So
# the backward stack cannot see the tokens that it predicts, and not even how many they are.


class Contextualizer(nn.Module):
    """Computes vectors in context with one stack of layers, or with two stacks that read in
    opposite directions.

    This is the common part of `LSTMContextualizer` and `TransformerContextualizer`. Use it for a
    stack of your own.

    Args:
        make_stack: a function without arguments that returns a new stack. A stack is a module that
            takes vectors (B, T, E) and returns a list of layers, each (B, T, H). In each layer the
            vector at position t must depend only on the positions up to t. The rows that a stack
            gets have their real tokens first; padding comes last.
        num_layers: the number of layers that a stack returns.
        output_size: H, the width of one direction. The attribute `output_size` of the
            contextualizer is the width W of its result: H, or 2H if it is bidirectional.
        bidirectional: whether there is a second stack, for the backward direction.
    """

    def __init__(self, make_stack, num_layers, output_size, bidirectional):
        super().__init__()
        self.num_layers = whole_number("num_layers", num_layers)
        self.bidirectional = bidirectional
        self.output_size = output_size * (2 if bidirectional else 1)
        self.forward_stack = make_stack()
        self.backward_stack = make_stack() if bidirectional else None

    def forward(self, embeddings, mask, *, all_layers=False):
        """Compute the vectors in context. The padding of a row does not change them.

        Args:
            embeddings: (B, T, E).
            mask: (B, T), 1 or True at real tokens. None: all tokens are real.
            all_layers: return all layers instead of the top layer.

        Returns:
            The top layer (B, T, W), 0 at padding, where W is H, or 2H if the contextualizer is
            bidirectional. With `all_layers`, a list of `num_layers` such tensors, of which the last
            is the top layer. If the contextualizer is bidirectional, the first half of the last
            axis is the forward direction: its vector at position t depends on the positions up to
            t. The second half is the backward direction: its vector at position t depends on the
            positions from t on.

        Raises:
            ValueError: `embeddings` is not (B, T, E), or `mask` is not (B, T), or `mask` has other
                values than 0 and 1.
        """
        tensor("embeddings", embeddings, "(B, T, E)")
        if mask is not None:
            mask = real_mask("mask", mask, "embeddings but for their width", embeddings[..., 0])
        layers = _run_stack(self.forward_stack, embeddings, mask, reverse=False)
        if self.backward_stack is not None:
            backward = _run_stack(self.backward_stack, embeddings, mask, reverse=True)
            layers = [torch.cat(pair, -1) for pair in zip(layers, backward)]
        return layers if all_layers else layers[-1]


class LSTMContextualizer(Contextualizer):
    """A stack of LSTM layers for each direction, as in ELMo (Peters et al. 2018).

    A bidirectional `nn.LSTM` with several layers cannot be used as a language model. Its second
    layer reads both directions of the first layer, so the second layer has seen every token that
    the model should predict.

    Args:
        input_size: E, the width of the embeddings.
        hidden_size: H, the width of one direction.
        num_layers: the number of layers of each stack.
        bidirectional: whether there is a backward stack.
        dropout: the dropout probability between layers, in training mode.
    """

    def __init__(self, input_size, hidden_size, num_layers, *, bidirectional, dropout=0.0):
        sizes = [input_size] + [hidden_size] * (num_layers - 1)
        stack = partial(_LSTMStack, sizes, hidden_size, dropout)
        super().__init__(stack, num_layers, hidden_size, bidirectional)


class TransformerContextualizer(Contextualizer):
    """A stack of BERT's blocks for each direction, with a causal mask.

    Because of the causal mask, each position attends only to itself and to the positions that its
    stack has read before: the earlier ones in the forward stack, the later ones in the backward
    stack. The vectors of positions are sinusoids (see `sinusoids`). The forward stack counts
    positions from the first real token of a row, the backward stack from the last.

    Args:
        hidden_size: H, the width of the embeddings and of one direction.
        num_layers: the number of blocks of each stack.
        num_heads: the number of attention heads; it must divide H.
        bidirectional: whether there is a backward stack.
        dropout: the dropout probability of hidden values and attention weights, in training mode.

    Raises:
        ValueError: a size is not a whole number above 0, `num_heads` does not divide H, or
            `dropout` is not a probability.
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
        # The layer norm gives tokens the scale of positions, whatever the scale of the embedder.
        hidden = self.dropout(self.norm(hidden) + sinusoids(T, H).to(hidden))  # (B, T, H)
        causal = torch.ones(T, T, dtype=torch.bool, device=hidden.device).tril()  # [query, key]
        states = []
        for block in self.blocks:
            hidden = block(hidden, causal[None, None])[0]
            states.append(hidden)
        return states


def sinusoids(length, size):
    """Sinusoidal position vectors (Vaswani et al. 2017), a float64 tensor (T, H).

    At position t, columns 2i and 2i + 1 hold the sine and the cosine of the angle t / 10000^(2i/H).
    The wavelengths grow from 2π in the first pair of columns to almost 20,000π in the last.

    >>> sinusoids(2, 2)
    tensor([[0.0000, 1.0000],
            [0.8415, 0.5403]], dtype=torch.float64)

    Args:
        length: T, the number of positions.
        size: H, the width of a vector.
    """
    rates = 10000 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)  # (H/2,), rounded up
    angles = torch.arange(length)[:, None] * rates  # (T, H/2)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :size]


def _run_stack(stack, embeddings, mask, *, reverse):
    """Run a stack over the real tokens of each row, in the order of the row or, with `reverse`, in
    reversed order.

    Returns:
        The list of layers, each (B, T, H). Every vector is at the position of its token, and there
        are zeros at padding.
    """
    if mask is None or can_read_without_sync(mask) and mask.all():
        if not reverse:
            return stack(embeddings)
        return [layer.flip(1) for layer in stack(embeddings.flip(1))]
    # 1. Sort each row: the real tokens in the order in which they are read, then the padding. To
    #    sort padding last, T is added to its positions.
    T = mask.shape[1]
    positions = torch.arange(T, device=mask.device)
    positions = positions.flip(0) if reverse else positions
    order = (~mask * T + positions).argsort(1)  # (B, T)
    # 2. Run the stack, with zeros in place of the embeddings of padding.
    layers = stack(_reorder(embeddings.masked_fill(~mask[..., None], 0.0), order))
    # 3. Move each vector back to the position of its token.
    back = order.argsort(1)
    return [_reorder(layer, back).masked_fill(~mask[..., None], 0.0) for layer in layers]


def _reorder(vectors, order):
    """Puts the vectors (B, T, E) of each row into a new order. `order` (B, T) lists the positions
    from which they are taken.
    """
    return vectors.gather(1, order[..., None].expand(-1, -1, vectors.shape[-1]))


class LanguageModel(nn.Module):
    """A language model that predicts the next token and, if bidirectional, also the previous one.

    `forward` computes the loss and the vectors, and `embed` computes only the vectors. The
    interface is that of AllenNLP's `LanguageModel`: `delete_softmax`, `num_layers`, `get_metrics`,
    the argument `all_layers`, and the keys of the results.

    Args:
        vocab_size: V, the size of the vocabulary.
        embedder: a module from ids (B, T) to vectors (B, T, E), such as `nn.Embedding`. Each vector
            must depend on its own token alone.
        contextualizer: a module such as `LSTMContextualizer`. It is called with vectors (B, T, E)
            and a bool mask (B, T), and returns vectors in context (B, T, W), where W is its
            attribute `output_size`. It also has the attributes `bidirectional` and `num_layers`.
            `leakage.assert_no_leaks` checks that no vector depends on the token that is predicted
            from it.
        dropout: the dropout probability of the vectors before the softmax, in training mode. The
            vectors in the result are without this dropout.
        num_samples: for a large vocabulary; in training mode the softmax is computed over the
            target and this many random tokens only (see `SampledSoftmaxLoss`). None: the softmax is
            always computed over the whole vocabulary.
        sparse_embeddings: whether, with `num_samples`, gradients of the softmax's weights are
            stored only for the rows that were used; `training.train` can work with such sparse
            gradients. Then give the embedder `sparse=True` as well.
        bidirectional: whether there is a backward direction. The value must equal that of the
            contextualizer.
        pad_token_id: the id of padding, which is used if no mask is given. None: no id is padding.
        frequency_order: (V,) the ids from the most frequent to the rarest, for the sampled softmax.
            None: id 0 is the most frequent, and the ids are in this order already.

    Raises:
        ValueError: `bidirectional` differs from the value of the contextualizer; `num_samples` is
            not in 1..V−1; or `frequency_order` does not contain each id once.
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
        """Compute the losses of both directions, and the vectors.

        Args:
            input_ids: (B, T).
            mask: (B, T), 1 or True at real tokens. None: every id but `pad_token_id` is real.
            all_layers: return all layers of the contextualizer in `lm_embeddings`.

        Returns:
            A dictionary with the entries of `embed`, and with

            - `loss`: the mean of the losses of the two directions, or the forward loss if there is
              one direction. It is in nats per token; a nat is the unit of the natural logarithm.
            - `forward_loss`, `backward_loss`: the mean loss over the targets of one direction.
              `backward_loss` is None if there is no backward direction.
            - `batch_weight`: the number of targets of one direction, as a float tensor, for means
              over several batches. Both directions have the same number, because each pair of
              neighbours gives one target to each direction.

            If no row has two neighbouring real tokens, the losses are 0, and `backward()` gives
            gradients of 0. With `num_samples`, the losses in training mode are over a sample of the
            vocabulary.

        Raises:
            ValueError: `mask` has another shape or other values than 0 and 1.
            RuntimeError: the softmax was deleted.
        """
        if self.softmax is None:
            freed = "delete_softmax() has freed the softmax, so there is no loss any more"
            raise RuntimeError(f"{freed}; call embed() for the vectors")
        output = self.embed(input_ids, mask, all_layers=all_layers)
        top = output["lm_embeddings"][-1] if all_layers else output["lm_embeddings"]
        # 1. Pairs of neighbours that are both real. The left token predicts the right token in the
        #    forward direction, and the right token predicts the left one in the backward direction.
        pairs = output["mask"][:, :-1] & output["mask"][:, 1:]  # (B, T − 1)
        row, left = pairs.nonzero(as_tuple=True)  # (N,) each
        weight = pairs.sum()
        mean_over = weight.clamp(min=1)  # so that without pairs the loss is 0
        # 2. The forward half at the left token has read the row up to the left token. The backward
        #    half at the right token has read the row from the right token on.
        halves = self.dropout(top).chunk(2 if self.bidirectional else 1, -1)
        forward = self.softmax(halves[0][row, left], input_ids[row, left + 1]) / mean_over
        loss, backward = forward, None
        if self.bidirectional:
            backward = self.softmax(halves[1][row, left + 1], input_ids[row, left]) / mean_over
            loss = (forward + backward) / 2
        # The sums for the perplexity stay on the device. Only `get_metrics` reads their values, so
        # that Python does not wait for the device in each training step.
        wide = weight.to(torch.float32 if loss.device.type == "mps" else torch.float64)
        self._nats = self._nats.to(wide) + loss.detach().to(wide) * wide
        self._count = self._count.to(wide) + wide
        losses = {"loss": loss, "forward_loss": forward, "backward_loss": backward}
        return losses | {"batch_weight": weight.to(loss.dtype)} | output

    def embed(self, input_ids, mask=None, *, all_layers=False):
        """Compute the vectors without the loss. The arguments are those of `forward`.

        Returns:
            A dictionary with

            - `lm_embeddings`: (B, T, W), the vectors of the contextualizer, where W is its
              `output_size`; with `all_layers`, a list of its layers, of which the last is the top
              layer.
            - `noncontextual_token_embeddings`: (B, T, E), the vectors of the embedder.
            - `mask`: (B, T) bool, true at real tokens.

        Raises:
            ValueError: `mask` has another shape or other values than 0 and 1.
        """
        mask = _real_tokens(input_ids, mask, self.pad_token_id)
        embeddings = self.embedder(input_ids)  # (B, T, E)
        # A contextualizer of your own needs the argument `all_layers` only if it is used.
        options = {"all_layers": True} if all_layers else {}
        return {
            "lm_embeddings": self.contextualizer(embeddings, mask, **options),
            "noncontextual_token_embeddings": embeddings,
            "mask": mask,
        }

    def delete_softmax(self):
        """Free the weights of the softmax, a large part of a model with a large vocabulary.

        Call it when the model has been trained and only its vectors are needed. `embed` still
        works; `forward` then raises a RuntimeError.
        """
        self.softmax = None

    def num_layers(self):
        """The number of layers that `LanguageModelEmbedder` mixes.

        It is the number of contextualizer layers plus 1, because the vectors of the embedder count
        as a layer.
        """
        return self.contextualizer.num_layers + 1

    def get_metrics(self, reset=False):
        """The perplexity of all tokens that were predicted since the last reset.

        The perplexity is exp(mean nats per token), where each token counts the same, whatever the
        size of its batch. With a sampled softmax, measure the perplexity in evaluation mode,
        because training losses are over a sample of the vocabulary.

        Args:
            reset: whether counting starts anew after this call.

        Returns:
            {"perplexity": a float}. The perplexity is 0.0 if nothing was predicted, inf if it is
            too large for a float, and NaN if a loss was NaN.
        """
        nats, count = self._nats.item(), self._count.item()
        if reset:
            self._nats = self._count = torch.zeros(())
        if not count:
            return {"perplexity": 0.0}
        mean = nats / count
        return {"perplexity": math.inf if mean >= 709 else math.exp(mean)}  # exp(709) = 8e307

    def extra_repr(self):
        """The settings that `print(model)` shows."""
        sizes = f"vocab_size={self.vocab_size}, bidirectional={self.bidirectional}"
        return f"{sizes}, pad_token_id={self.pad_token_id}"


class LanguageModelEmbedder(nn.Module):
    """Use a trained language model as the embedder of another model, as ELMo does.

    The vector of a token is a weighted sum of the language model's layers,
    γ · Σ_k softmax(s)_k · layer_k (Peters et al. 2018, eq. 1), where γ and the scalars s are
    learned with the other model. Layer 0 is the embedder's vectors; with two directions they are
    concatenated with themselves so that the widths agree. The layers from 1 on are those of the
    contextualizer. At first all layers have the same weight and γ is 1.

    The embedder and the contextualizer are shared with the language model. The softmax of the
    language model is not used.

    Args:
        language_model: a `LanguageModel`.
        trainable: whether the weights of the language model are trained as well. If not, these
            weights stay as they are, and the language model stays in evaluation mode.
        dropout: the dropout probability of the result, in training mode.

    Raises:
        RuntimeError: at the first call, if one direction of the contextualizer and the vectors of
            the embedder have different widths.
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
        """Compute a vector for each token.

        Args:
            input_ids, mask: as in `LanguageModel.forward`.

        Returns:
            (B, T, W), 0 at padding, where W is the attribute `output_size`.
        """
        mask = _real_tokens(input_ids, mask, self.pad_token_id)
        with torch.set_grad_enabled(self.trainable and torch.is_grad_enabled()):
            embeddings = self.embedder(input_ids)  # (B, T, E)
            layers = self.contextualizer(embeddings, mask, all_layers=True)
        copies = 2 if self.contextualizer.bidirectional else 1
        lowest = torch.cat([embeddings] * copies, -1)
        stacked = torch.stack([lowest, *layers], -1)  # (B, T, W, layers)
        mixed = (stacked * self.scalars.softmax(0)).sum(-1) * self.gamma
        return self.dropout(mixed.masked_fill(~mask[..., None], 0.0))

    def train(self, mode=True):
        """Set training or evaluation mode, as in any module.

        A language model that is not trainable stays in evaluation mode.
        """
        super().train(mode)
        if not self.trainable:
            self.embedder.eval()
            self.contextualizer.eval()
        return self

    def extra_repr(self):
        """The settings that `print(model)` shows."""
        return f"output_size={self.output_size}, trainable={self.trainable}"


def _real_tokens(input_ids, mask, pad_token_id):
    """Finds the real tokens of a batch, (B, T) bool: from the mask if there is one, otherwise from
    the id of padding.
    """
    if mask is not None:
        return real_mask("mask", mask, "input_ids", input_ids)
    if pad_token_id is None:
        return torch.ones_like(input_ids, dtype=torch.bool)
    return input_ids != pad_token_id
