"""The masked language model: an embedder, a contextualizer and a head, put together.

Composition and outputs follow AllenNLP's `MaskedLanguageModel`. With the BERT encoder as embedder,
the numbers are those of transformers' `BertForMaskedLM`. Built in the lesson on the masked language
model.
"""

from functools import partial

import torch
import torch.nn as nn

from mlm_lib.checks import ids, probability, real_mask, same_shape, whole_number
from mlm_lib.heads import flat_index, gather
from mlm_lib.labels import IGNORE
from mlm_lib.losses import masked_cross_entropy, weighted_cross_entropy


class MaskedLanguageModel(nn.Module):
    """Token ids in, scores for the hidden tokens out.

    The *embedder* computes a vector for each token. The *contextualizer*, if there is one, computes
    from these vectors a state for each token that depends on the other tokens of the row. The
    *head* computes the scores. A BERT encoder is an embedder in this sense: its vectors depend on
    the other tokens already, so it needs no contextualizer.

    Args:
        embedder: a module that returns vectors (B, T, E) for token ids (B, T). An `nn.Embedding` is
            called with the ids only. Any other module gets `input_ids`, `attention_mask` and
            `token_type_ids` in this order; those at the end that are None are left out. To save
            work, an embedder with `selects = True` also gets a function `select`, which picks the
            positions that the head needs (see `BertEncoder.forward`). It gets this function only if
            there is no contextualizer.
        head: a `MaskedLMHead`, or a module that is called in the same way.
        contextualizer: a module that is called as `contextualizer(vectors, mask)`, with the mask as
            a bool tensor (B, T), and returns contextual states (B, T, H). None: the vectors of the
            embedder go to the head.
        dropout: the probability that a contextual value is dropped before the head, in training.
        top_k: k, how many candidates to name for each blank.

    Raises:
        ValueError: `dropout` is not in 0..1, `top_k` is below 1, or the head has an output
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
        """Names of batch tensors to leave on the CPU when the model is on a GPU.

        The model needs to know how many labels there are and which tokens are real. Reading a value
        from the GPU makes Python wait until the GPU has finished; reading it on the CPU does not.
        `train` moves only the other tensors to the GPU.
        """
        mask = ("attention_mask",) if hasattr(self.embedder, "unpadded") else ()
        return ("labels", "weights", *mask)

    @classmethod
    def from_config(cls, config):
        """A new model with random weights: an encoder, and a head tied to its word embeddings.

        Args:
            config: an `EncoderConfig` for a BERT, or a `ModernConfig` for a ModernBERT. The method
                `parts` of the configuration makes the encoder and the head.

        >>> from mlm_lib.encoder import EncoderConfig
        >>> config = EncoderConfig(11, 8, num_layers=1, num_heads=2, intermediate_size=32)
        >>> model = MaskedLanguageModel.from_config(config)
        >>> model(torch.tensor([[2, 7, 4, 3]]))["logits"].shape
        torch.Size([1, 4, 11])
        """
        encoder, head = config.parts()
        return cls(encoder, head)

    def forward(
        self, input_ids, attention_mask=None, token_type_ids=None, *,
        labels=None, mask_positions=None, target_ids=None, weights=None,
    ):  # fmt: skip
        """Computes scores at every position, at the labels only, or at the blanks only.

        Args:
            input_ids: (B, T).
            attention_mask: (B, T), 1 or True at real tokens, 0 or False at padding; None: all real.
                When the model is on a GPU, the mask and the labels may stay on the CPU (see
                `cpu_inputs`).
            token_type_ids: (B, T) segment types, for an embedder that takes them; or None.
            labels: (B, T), the ids of the hidden tokens, and −100 where nothing is predicted.
            mask_positions: (B, M), the positions of the blanks in each row. If a row has fewer
                blanks than M, fill it with a negative number or with the position of a padding
                token; this model leaves such blanks out of the loss.
            target_ids: (B, M), the ids of the tokens that were hidden at `mask_positions`; −100 is
                ignored.
            weights: (B,), one number per row; every label in the row has this weight in the loss.
                None: all labels have the same weight.

        Returns:
            A dictionary. If neither labels nor positions are given, it has `logits` (B, T, V).

            With `labels` it has `loss`, and `logits` (N, V) at the N labelled positions in
            row-major order.

            With `mask_positions` it has `logits` (B, M, V); `top_indices` (B, M, k), the k
            likeliest tokens, the likeliest first; `probabilities` (B, M, k), their probabilities;
            and `blanks` (B, M), False where a blank is padding. With `target_ids` it also has
            `loss`.

            A loss is the mean of −log P over the predicted tokens, weighted if there are `weights`.
            Its unit is the nat, that of the natural logarithm. If nothing is predicted, the loss is
            0, and `backward()` still works.

        Raises:
            ValueError: labels are given together with positions or targets, weights are given
                without labels, or shapes do not fit together.
            IndexError: a blank is beyond the end of its row.
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
        """Logits at every position, (B, T, V), or only at `positions`, which are in one of the
        forms that `MaskedLMHead.forward` takes.
        """
        options = {}
        selects = getattr(self.embedder, "selects", False) and self.contextualizer is None
        if selects and positions is not None:
            # The encoder picks the positions inside its last block, so the head gets only these.
            index = flat_index(positions, *real.shape)
            options, positions = {"select": partial(gather, index=index)}, None
        contextual = self.embedder(*inputs, **options)  # (B, T, E)
        if self.contextualizer is not None:
            contextual = self.contextualizer(contextual, real.to(contextual.device))  # (B, T, H)
        return self.head(self.dropout(contextual), positions)

    def _at_labels(self, inputs, real, labels, weights):
        """The output dictionary for `labels`."""
        labelled = same_shape("labels", labels, "input_ids", real) != IGNORE  # (B, T)
        logits = self._logits(inputs, real, labelled)
        targets = labels[labelled].to(logits.device, non_blocking=True)
        if weights is None:
            return {"loss": masked_cross_entropy(logits, targets), "logits": logits}
        same_shape("weights", weights, "the first column of labels", labels[:, 0])
        each = weights[labelled.nonzero()[:, 0]]  # (N,), the weight of each label's row
        each = each.to(logits.device, non_blocking=True)
        return {"loss": weighted_cross_entropy(logits, targets, each), "logits": logits}

    def _at_blanks(self, inputs, real, positions, targets):
        """The output dictionary for `mask_positions`."""
        positions = ids("mask_positions", positions, "(B, M)").long()
        if targets is not None:
            same_shape("target_ids", targets, "mask_positions", positions)
            targets = ids("target_ids", targets, "(B, M)").long()
        # 1) Scores at every blank, and which blanks are real: not negative, and not on padding.
        places = positions.clamp(min=0)
        logits = self._logits(inputs, real, places)  # (B, M, V)
        blanks = (positions >= 0) & real.to(places.device).gather(1, places)  # (B, M)
        # 2) The likeliest tokens. Their probabilities are computed in at least 32 bits.
        scores = logits.detach().to(torch.promote_types(logits.dtype, torch.float32))
        best = scores.softmax(-1).topk(min(self.top_k, logits.shape[-1]))
        output = {"logits": logits, "probabilities": best.values, "top_indices": best.indices}
        output["blanks"] = blanks
        # 3) The loss, if the hidden tokens are given.
        if targets is not None:
            output["loss"] = masked_cross_entropy(logits, targets.masked_fill(~blanks, IGNORE))
        return output

    def decode(self, output, tokenizer):
        """Add the words of the candidates to an output that has `top_indices`.

        Args:
            output: a dictionary with the entry `top_indices` (B, M, k), such as a call with
                `mask_positions` returns. If it has no entry `blanks`, all blanks count as real.
            tokenizer: a `WordPieceTokenizer` or a tokenizer of transformers.

        Returns:
            A new dictionary: the entries of `output`, and `words`, B lists of M lists of k tokens.
            The list of a blank that is padding is empty.
        """
        best = output["top_indices"]  # (B, M, k)
        blanks = output.get("blanks", torch.ones(best.shape[:2]))
        words = []
        for row, real in zip(best.tolist(), blanks.tolist()):
            words.append([tokens_of(tokenizer, k) if one else [] for k, one in zip(row, real)])
        return {**output, "words": words}

    def extra_repr(self):
        """What `print(model)` shows in addition to its parts."""
        return f"top_k={self.top_k}"


def tokens_of(tokenizer, ids):
    """The tokens of some ids.

    The embedding matrix of a model may have more rows than its tokenizer has tokens. For the id of
    such a row the result is None.
    """
    if hasattr(tokenizer, "convert_ids_to_tokens"):
        return tokenizer.convert_ids_to_tokens(ids)
    return [tokenizer.tokens.get(index) for index in ids]
