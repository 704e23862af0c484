"""The masked language model: embedder, contextualizer and head, put together. Built in lesson 07.

Composition and outputs follow AllenNLP's `MaskedLanguageModel`; with the BERT encoder as embedder
the numbers are those of transformers' `BertForMaskedLM`.
"""

from functools import partial
from inspect import Parameter, signature

import torch
import torch.nn as nn

from mlm_lib.checks import ids, integers, probability, real_mask, refused, same_shape, whole_number
from mlm_lib.encoder import ACTIVATIONS, BertEncoder
from mlm_lib.heads import MaskedLMHead, flat_index, gather
from mlm_lib.labels import IGNORE
from mlm_lib.losses import masked_cross_entropy, weighted_cross_entropy


class MaskedLanguageModel(nn.Module):
    """Token ids in, scores for the hidden tokens out.

    Args:
        embedder: ids to vectors (B, T, E): an `nn.Embedding`, a `BertEncoder`, or any module, also
            a compiled one. It is called with as many of `input_ids, attention_mask,
            token_type_ids` as its `forward` takes, and with `select` if it takes that and nothing
            stands between it and the head (see `BertEncoder.forward`).
        head: a `MaskedLMHead`, or a module called in its way.
        contextualizer: if given, called as `contextualizer(vectors, mask)`, mask (B, T) bool, to
            give (B, T, H).
        dropout: share dropped from the contextual states before the head, in training.
        top_k: k, how many candidates to name for each blank.

    Raises:
        ValueError: a part that is no module, a dropout that is no probability, a `top_k` below 1, a
            head with an output activation.
    """

    def __init__(self, embedder, head, contextualizer=None, *, dropout=0.0, top_k=5):
        super().__init__()
        for name, part in (("embedder", embedder), ("head", head)):
            if not callable(part):
                raise refused(name, part, "a module")
        if getattr(head, "output_activation", None) is not None:
            remedy = "the loss needs its logits, so build it with output_activation=None"
            raise ValueError(f"the head has an output activation; {remedy}")
        self.embedder, self.contextualizer, self.head = embedder, contextualizer, head
        self.dropout = nn.Dropout(probability("dropout", dropout))
        self.top_k = whole_number("top_k", top_k)

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "embedder":  # also when it is replaced, such as by what compiles it
            self.embedder_inputs, self.embedder_selects = _reads(value)

    @classmethod
    def from_config(cls, config):
        """A BERT with random weights: a `BertEncoder` and a head tied to its word embeddings.

        A `ModernConfig` brings a `ModernEncoder` and a head of its own kind.
        """
        if callable(getattr(config, "parts", None)):
            return cls(*config.parts())
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
        weights=None,
    ):
        """Scores everywhere, at the labels, or at the blanks.

        Args:
            input_ids: (B, T).
            attention_mask: (B, T), 1 or True at real tokens, 0 or False at padding; None: all real.
            token_type_ids: (B, T) or None, as the embedder reads them.
            labels: (B, T), −100 where nothing is asked.
            mask_positions: (B, M), the blanks of each row. A padded blank is −1, or stands on
                padding.
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
            ValueError: labels beside positions, targets without, weights without labels, shapes
                that do not fit together.
            IndexError: a blank beyond the row.
        """
        if labels is not None and (mask_positions is not None or target_ids is not None):
            both = "labels and mask_positions ask the same question in two ways"
            raise ValueError(f"{both}; give one of them")
        if target_ids is not None and mask_positions is None:
            raise ValueError("target_ids without mask_positions; say where the targets stood")
        if weights is not None and labels is None:
            raise ValueError("weights without labels; they say how much each label of a row counts")
        ids("input_ids", input_ids, size=getattr(self.embedder, "num_embeddings", None))
        real = torch.ones_like(input_ids, dtype=torch.bool)  # (B, T)
        if attention_mask is not None:
            real = real_mask("attention_mask", attention_mask, "input_ids", input_ids)
        inputs = input_ids, attention_mask, token_type_ids
        if mask_positions is not None:
            return self._at_blanks(inputs, real, mask_positions, target_ids)
        if labels is None:
            return {"logits": self._logits(inputs, real)}
        asked = same_shape("labels", labels, "input_ids", input_ids) != IGNORE  # (B, T)
        targets = labels[asked]  # (N,)
        logits = self._logits(inputs, real, asked)  # (N, V)
        if weights is None:
            return {"loss": masked_cross_entropy(logits, targets), "logits": logits}
        same_shape("weights", weights, "the first column of labels", labels[:, 0])
        each = weights[asked.nonzero()[:, 0]]  # (N,)
        return {"loss": weighted_cross_entropy(logits, targets, each), "logits": logits}

    def decode(self, output, tokenizer):
        """Adds the candidates' words to an output that has `top_indices`.

        Args:
            output: what a call with `mask_positions` returned. Without `blanks`, all are real.
            tokenizer: ours or transformers'.

        Returns:
            A dictionary like `output` with `words`, B lists of M lists of k tokens; none at a pad.

        Raises:
            KeyError: an output without `top_indices`.
        """
        if "top_indices" not in output:
            remedy = "call the model with mask_positions to get candidates"
            raise KeyError(f"the output has no top_indices; {remedy}")
        best = ids("top_indices", output["top_indices"], "(B, M, k)")
        blanks = output.get("blanks", torch.ones(best.shape[:2]))
        words = []
        for row, real in zip(best.tolist(), blanks.tolist()):
            words.append([_tokens(tokenizer, k) if asked else [] for k, asked in zip(row, real)])
        return {**output, "words": words}

    def extra_repr(self):
        return f"top_k={self.top_k}"

    def _logits(self, inputs, real, positions=None):
        """(B, T, V), or (N, V) or (B, M, V) at positions in the forms that the head takes."""
        if inputs[2] is not None and self.embedder_inputs < 3:
            name = type(getattr(self.embedder, "_orig_mod", self.embedder)).__name__
            raise ValueError(f"{name} has no use for token_type_ids; leave them out")
        inputs = inputs[: self.embedder_inputs]
        if positions is not None and self.contextualizer is None and self.embedder_selects:
            # An encoder can leave out most of its last block; the head finds its rows gathered.
            index = flat_index(positions, *real.shape)
            contextual = self.embedder(*inputs, select=partial(gather, index=index))
            return self.head(self.dropout(contextual))
        contextual = self.embedder(*inputs)  # (B, T, E)
        if self.contextualizer is not None:
            contextual = self.contextualizer(contextual, real)  # (B, T, H)
        return self.head(self.dropout(contextual), positions)

    def _at_blanks(self, inputs, real, positions, targets):
        """The output dictionary for `mask_positions`."""
        positions = integers("mask_positions", positions)
        if targets is not None:
            same_shape("target_ids", targets, "mask_positions", positions)
            targets = integers("target_ids", targets)
        # 1) Scores at every blank, and which blanks are asked: not −1, and not on padding.
        places = positions.clamp(min=0)
        logits = self._logits(inputs, real, places)  # (B, M, V)
        blanks = (positions >= 0) & real.gather(1, places)  # (B, M)
        # 2) The likeliest tokens, from scores of at least 32 bits.
        scores = logits.detach() if logits.dtype.itemsize >= 4 else logits.detach().float()
        best = scores.softmax(-1).topk(min(self.top_k, logits.shape[-1]))
        output = {"logits": logits, "probabilities": best.values, "top_indices": best.indices}
        output["blanks"] = blanks
        # 3) The loss, where the answers are known.
        if targets is not None:
            output["loss"] = masked_cross_entropy(logits, targets.masked_fill(~blanks, IGNORE))
        return output


def _reads(module):
    """How many of ids, mask and types a module's forward takes by position; whether `select`."""
    module = getattr(module, "_orig_mod", module)  # the one that `torch.compile` wrapped
    found = signature(getattr(module, "forward", module)).parameters
    kinds = [parameter.kind for name, parameter in found.items() if name != "select"]
    by_position = Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD
    count = sum(kind in by_position for kind in kinds)
    return 3 if Parameter.VAR_POSITIONAL in kinds else min(3, count), "select" in found


def _tokens(tokenizer, some):
    """The tokens of some ids, None where the tokenizer has fewer tokens than the model rows."""
    if hasattr(tokenizer, "convert_ids_to_tokens"):
        return tokenizer.convert_ids_to_tokens(some)
    return [tokenizer.tokens.get(index) for index in some]
