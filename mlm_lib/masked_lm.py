"""The masked language model: embedder, contextualizer and head, put together. Built in lesson 07.

Composition and outputs follow AllenNLP's `MaskedLanguageModel`; with the BERT encoder as embedder the numbers are those
of transformers' `BertForMaskedLM`.
"""

import inspect
from functools import partial

import torch
import torch.nn as nn

from mlm_lib.encoder import ACTIVATIONS, BertEncoder
from mlm_lib.heads import MaskedLMHead, flat_index, gather
from mlm_lib.losses import IGNORE, masked_cross_entropy

ACTIVATION_ERROR = "the head has an output activation; the loss needs its logits, so build it with output_activation=None"


class MaskedLanguageModel(nn.Module):
    """Token ids in, scores for the hidden tokens out.

    Args:
        embedder: ids to vectors (B, T, E): an `nn.Embedding`, a `BertEncoder`, or any module. It is called with as
            many of `input_ids, attention_mask, token_type_ids` as its `forward` takes.
        head: a `MaskedLMHead`, or a module called in its way.
        contextualizer: if given, called as `contextualizer(vectors, mask)`, mask (B, T) bool, to give (B, T, H).
        dropout: share dropped from the contextual states before the head, in training.
        top_k: k, how many candidates to name for each blank.

    Raises:
        ValueError: a dropout that is no probability, a `top_k` below 1, a head with an output activation.
    """

    def __init__(self, embedder, head, contextualizer=None, *, dropout=0.0, top_k=5):
        super().__init__()
        if not 0 <= dropout <= 1:
            raise ValueError(f"dropout={dropout!r} is not a probability")
        if not isinstance(top_k, int) or top_k < 1:
            raise ValueError(f"top_k={top_k!r} is not a positive integer")
        if getattr(head, "output_activation", None) is not None:
            raise ValueError(ACTIVATION_ERROR)
        self.embedder, self.contextualizer, self.head = embedder, contextualizer, head
        self.dropout = nn.Dropout(dropout)
        self.top_k = top_k
        self.embedder_inputs = _positional(embedder)

    @classmethod
    def from_config(cls, config):
        """A BERT with random weights: a `BertEncoder` and a head tied to its word embeddings."""
        encoder = BertEncoder(config)
        head = MaskedLMHead(
            config.hidden_size,
            token_embedding=encoder.embeddings.word,
            activation=ACTIVATIONS[config.activation],
            layer_norm_eps=config.layer_norm_eps,
        )
        nn.init.normal_(head.dense.weight, std=config.initializer_range)
        return cls(encoder, head)

    def forward(
        self,
        input_ids,
        attention_mask=None,
        token_type_ids=None,
        *,
        labels=None,
        mask_positions=None,
        target_ids=None,
    ):
        """Scores everywhere, at the labels, or at the blanks.

        Args:
            input_ids: (B, T).
            attention_mask, token_type_ids: (B, T) or None, as the embedder reads them.
            labels: (B, T), −100 where nothing is asked.
            mask_positions: (B, M), the blanks of each row. A padded blank is −1, or stands on padding.
            target_ids: (B, M), the tokens that were hidden there; −100 is ignored.

        Returns:
            A dictionary. With neither labels nor positions: `logits` (B, T, V).
            With `labels`: `logits` (N, V) at the labelled positions, in row-major order, and `loss`.
            With `mask_positions`: `logits` (B, M, V), `probabilities` and `top_indices` (B, M, k) of the k likeliest
            tokens, best first, `blanks` (B, M), False where a blank is padding; with `target_ids` also `loss`.
            A loss is in nats, a mean over what is asked, and 0 with a gradient path if nothing is.

        Raises:
            ValueError: labels together with positions, targets without positions, shapes that do not belong together.
        """
        if labels is not None and (mask_positions is not None or target_ids is not None):
            raise ValueError(
                "labels and mask_positions ask the same question in two ways; give one of them"
            )
        if target_ids is not None and mask_positions is None:
            raise ValueError("target_ids without mask_positions; say where the targets stood")
        if input_ids.dim() != 2:
            raise ValueError(f"input_ids must be (B, T); got {tuple(input_ids.shape)}")
        if attention_mask is not None and attention_mask.shape != input_ids.shape:
            raise ValueError(
                f"attention_mask {tuple(attention_mask.shape)} and input_ids {tuple(input_ids.shape)} must have one shape"
            )
        if labels is not None and labels.shape != input_ids.shape:
            raise ValueError(
                f"labels {tuple(labels.shape)} and input_ids {tuple(input_ids.shape)} must have one shape"
            )
        if mask_positions is not None and mask_positions.dtype == torch.bool:
            raise ValueError(
                "mask_positions is torch.bool; give (B, M) integers, or labels (B, T) where a mask is at hand"
            )
        if target_ids is not None and target_ids.shape != mask_positions.shape:
            raise ValueError(
                f"mask_positions {tuple(mask_positions.shape)} and target_ids {tuple(target_ids.shape)} must have one shape"
            )
        inputs = input_ids, attention_mask, token_type_ids
        if mask_positions is not None:
            return self._at_blanks(inputs, mask_positions, target_ids)
        if labels is None:
            return {"logits": self._logits(inputs)}
        asked = labels != IGNORE  # (B, T)
        logits = self._logits(inputs, asked)  # (N, V)
        return {"loss": masked_cross_entropy(logits, labels[asked]), "logits": logits}

    def decode(self, output, tokenizer):
        """Adds the candidates' words to an output that has `top_indices`.

        Args:
            output: what a call with `mask_positions` returned.
            tokenizer: ours or transformers'.

        Returns:
            A dictionary like `output` with `words`, B lists of M lists of k tokens; the list of a padded blank is empty.

        Raises:
            KeyError: an output without `top_indices`.
        """
        if "top_indices" not in output:
            raise KeyError(
                "the output has no top_indices; call the model with mask_positions to get candidates"
            )
        name = getattr(tokenizer, "convert_ids_to_tokens", None) or (
            lambda ids: [tokenizer.tokens.get(i) for i in ids]
        )
        blanks = output["blanks"].tolist()
        words = [
            [name(candidates) if real else [] for candidates, real in zip(*row)]
            for row in zip(output["top_indices"].tolist(), blanks)
        ]
        return {**output, "words": words}

    def _logits(self, inputs, positions=None):
        """(B, T, V), or (N, V) or (B, M, V) at positions in the forms that the head takes."""
        input_ids, attention_mask, token_type_ids = inputs
        if token_type_ids is not None and self.embedder_inputs < 3:
            raise ValueError(
                f"{type(self.embedder).__name__} has no use for token_type_ids; leave them out"
            )
        if (
            positions is not None
            and self.contextualizer is None
            and isinstance(self.embedder, BertEncoder)
        ):
            # The encoder can leave out most of its last block; the head then finds its rows gathered.
            index = flat_index(positions, *input_ids.shape)
            contextual = self.embedder(*inputs, select=partial(gather, index=index))
            return self.head(self.dropout(contextual))
        contextual = self.embedder(*inputs[: self.embedder_inputs])  # (B, T, E)
        if self.contextualizer is not None:
            mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
            contextual = self.contextualizer(contextual, mask.bool())  # (B, T, H)
        return self.head(self.dropout(contextual), positions)

    def _at_blanks(self, inputs, positions, targets):
        """The output dictionary for `mask_positions`."""
        attention_mask = inputs[1]
        blanks = positions >= 0  # (B, M)
        positions = positions.clamp(min=0)
        logits = self._logits(inputs, positions)  # (B, M, V)
        if attention_mask is not None:
            blanks = blanks & attention_mask.bool().gather(1, positions.long())
        scores = logits.detach() if logits.dtype.itemsize >= 4 else logits.detach().float()
        best = scores.softmax(-1).topk(min(self.top_k, logits.shape[-1]))
        output = {
            "logits": logits,
            "probabilities": best.values,
            "top_indices": best.indices,
            "blanks": blanks,
        }
        if targets is not None:
            output["loss"] = masked_cross_entropy(logits, targets.masked_fill(~blanks, IGNORE))
        return output


def _positional(module):
    """How many of `input_ids, attention_mask, token_type_ids` a module's forward can be given, by position."""
    kinds = [p.kind for p in inspect.signature(module.forward).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return 3
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return min(3, sum(kind in by_position for kind in kinds))
