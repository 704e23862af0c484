"""The masked language model: embedder, contextualizer and head, put together. Built in lesson 07.

Composition and outputs follow AllenNLP's `MaskedLanguageModel`; with the BERT encoder as embedder
the numbers are those of transformers' `BertForMaskedLM`.
"""

from functools import partial

import torch
import torch.nn as nn

from mlm_lib.checks import ids, probability, real_mask, same_shape, whole_number
from mlm_lib.encoder import ACTIVATIONS, BertEncoder
from mlm_lib.heads import MaskedLMHead, flat_index, gather
from mlm_lib.labels import IGNORE
from mlm_lib.losses import masked_cross_entropy, weighted_cross_entropy


class MaskedLanguageModel(nn.Module):
    """Token ids in, scores for the hidden tokens out.

    Args:
        embedder: ids to vectors (B, T, E): an `nn.Embedding`, which is called with the ids, or any
            other module, called with `(input_ids, attention_mask, token_type_ids)` up to the last
            that is given. One that says `selects = True` is also told `select`, which rows are
            wanted, if nothing stands between it and the head (see `BertEncoder.forward`).
        head: a `MaskedLMHead`, or a module called in its way.
        contextualizer: if given, called as `contextualizer(vectors, mask)`, mask (B, T) bool, to
            give (B, T, H).
        dropout: share dropped from the contextual states before the head, in training.
        top_k: k, how many candidates to name for each blank.

    Raises:
        ValueError: a dropout that is no probability, a `top_k` below 1, a head with an output
            activation.
    """

    def __init__(self, embedder, head, contextualizer=None, *, dropout=0.0, top_k=5):
        super().__init__()
        if getattr(head, "output_activation", None) is not None:
            raise ValueError("the head has an output activation, and the loss needs its logits")
        self.embedder, self.contextualizer, self.head = embedder, contextualizer, head
        self.dropout = nn.Dropout(probability("dropout", dropout))
        self.top_k = whole_number("top_k", top_k)

    @property
    def cpu_inputs(self):
        """What may lie there while the model is elsewhere, so that nobody waits. `train` asks."""
        mask = ("attention_mask",) if hasattr(self.embedder, "unpadded") else ()
        return ("labels", "weights", *mask)

    @classmethod
    def from_config(cls, config):
        """A BERT with random weights: a `BertEncoder` and a head tied to its word embeddings.

        A `ModernConfig` brings a `ModernEncoder` and a head of its own kind.
        """
        if hasattr(config, "parts"):
            return cls(*config.parts())
        encoder = BertEncoder(config)
        head = MaskedLMHead(
            config.hidden_size, token_embedding=encoder.embeddings.word,
            activation=ACTIVATIONS[config.activation], layer_norm_eps=config.layer_norm_eps,
        )  # fmt: skip
        nn.init.normal_(head.dense.weight, std=config.initializer_range)
        return cls(encoder, head)

    def forward(
        self, input_ids, attention_mask=None, token_type_ids=None, *,
        labels=None, mask_positions=None, target_ids=None, weights=None,
    ):  # fmt: skip
        """Scores everywhere, at the labels, or at the blanks.

        Args:
            input_ids: (B, T).
            attention_mask: (B, T), 1 or True at real tokens, 0 or False at padding; None: all real.
                It and the labels may lie on the CPU with the model elsewhere: what is real, and how
                many are asked, is then known without waiting for the device.
            token_type_ids: (B, T) or None, as the embedder reads them.
            labels: (B, T), −100 where nothing is asked.
            mask_positions: (B, M), the blanks of each row. A padded blank is negative, or stands
                on padding.
            target_ids: (B, M), the tokens that were hidden there; −100 is ignored.
            weights: (B,), how much each label of a row counts; None: all the same.

        Returns:
            A dictionary. With neither labels nor positions: `logits` (B, T, V).
            With `labels`: `loss`; `logits` (N, V) at the labelled positions, in row-major order.
            With `mask_positions`: `logits` (B, M, V); `probabilities` and `top_indices` (B, M, k),
            the k likeliest tokens, best first; `blanks` (B, M), False where a blank is padding;
            with `target_ids` also `loss`.
            A loss is in nats, a mean over what is asked, weighted where there are `weights`, and 0
            with a gradient path if nothing is.

        Raises:
            ValueError: labels beside positions or targets, weights without labels, shapes that do
                not fit together.
            IndexError: a blank beyond the row.
        """
        if labels is not None and (mask_positions is not None or target_ids is not None):
            raise ValueError("labels and mask_positions ask in two ways; give one of them")
        if weights is not None and labels is None:
            raise ValueError("weights without labels; they say how much each label of a row counts")
        real = torch.ones_like(input_ids, dtype=torch.bool)  # (B, T)
        if attention_mask is not None:
            real = real_mask("attention_mask", attention_mask, "input_ids", input_ids)
        inputs = [input_ids]
        if token_type_ids is not None:
            inputs = [input_ids, attention_mask, token_type_ids]
        elif attention_mask is not None and not isinstance(self.embedder, nn.Embedding):
            inputs = [input_ids, attention_mask]
        if labels is not None:
            return self._at_labels(inputs, real, labels, weights)
        if mask_positions is not None:
            return self._at_blanks(inputs, real, mask_positions, target_ids)
        return {"logits": self._logits(inputs, real)}

    def _logits(self, inputs, real, positions=None):
        """(B, T, V), or (N, V) or (B, M, V) at positions in the forms that the head takes."""
        options = {}
        selects = getattr(self.embedder, "selects", False) and self.contextualizer is None
        if selects and positions is not None:
            # The encoder leaves out most of its last block, and the head finds its rows gathered.
            index = flat_index(positions, *real.shape)
            options, positions = {"select": partial(gather, index=index)}, None
        contextual = self.embedder(*inputs, **options)  # (B, T, E)
        if self.contextualizer is not None:
            contextual = self.contextualizer(contextual, real.to(contextual.device))  # (B, T, H)
        return self.head(self.dropout(contextual), positions)

    def _at_labels(self, inputs, real, labels, weights):
        """The output dictionary for `labels`."""
        asked = same_shape("labels", labels, "input_ids", real) != IGNORE  # (B, T)
        logits = self._logits(inputs, real, asked)
        targets = labels[asked].to(logits.device, non_blocking=True)
        if weights is None:
            return {"loss": masked_cross_entropy(logits, targets), "logits": logits}
        same_shape("weights", weights, "the first column of labels", labels[:, 0])
        each = weights[asked.nonzero()[:, 0]]  # (N,), those of the labels' rows
        each = each.to(logits.device, non_blocking=True)
        return {"loss": weighted_cross_entropy(logits, targets, each), "logits": logits}

    def _at_blanks(self, inputs, real, positions, targets):
        """The output dictionary for `mask_positions`."""
        positions = ids("mask_positions", positions, "(B, M)").long()
        if targets is not None:
            same_shape("target_ids", targets, "mask_positions", positions)
            targets = ids("target_ids", targets, "(B, M)").long()
        # 1) Scores at every blank, and which blanks are asked: not −1, and not on padding.
        places = positions.clamp(min=0)
        logits = self._logits(inputs, real, places)  # (B, M, V)
        blanks = (positions >= 0) & real.to(places.device).gather(1, places)  # (B, M)
        # 2) The likeliest tokens, from scores of at least 32 bits.
        scores = logits.detach().to(torch.promote_types(logits.dtype, torch.float32))
        best = scores.softmax(-1).topk(min(self.top_k, logits.shape[-1]))
        output = {"logits": logits, "probabilities": best.values, "top_indices": best.indices}
        output["blanks"] = blanks
        # 3) The loss, where the answers are known.
        if targets is not None:
            output["loss"] = masked_cross_entropy(logits, targets.masked_fill(~blanks, IGNORE))
        return output

    def decode(self, output, tokenizer):
        """Adds the candidates' words to an output that has `top_indices`.

        Args:
            output: what a call with `mask_positions` returned. Without `blanks`, all are real.
            tokenizer: ours or transformers'.

        Returns:
            A dictionary like `output` with `words`, B lists of M lists of k tokens; none at a pad.
        """
        best = output["top_indices"]  # (B, M, k)
        blanks = output.get("blanks", torch.ones(best.shape[:2]))
        words = []
        for row, real in zip(best.tolist(), blanks.tolist()):
            words.append([tokens_of(tokenizer, k) if asked else [] for k, asked in zip(row, real)])
        return {**output, "words": words}

    def extra_repr(self):
        return f"top_k={self.top_k}"


def tokens_of(tokenizer, ids):
    """The tokens of some ids, None where the tokenizer has fewer tokens than the model rows."""
    if hasattr(tokenizer, "convert_ids_to_tokens"):
        return tokenizer.convert_ids_to_tokens(ids)
    return [tokenizer.tokens.get(index) for index in ids]
