"""How much of each key a query takes, in numbers that can be looked at. Built in lesson 06."""

import torch


def attention_weights(query, key, mask=None):
    """softmax(QKᵀ/√D) over the real keys: (B, A, T, D) twice to (B, A, T, T), [query, key].

    Exactly 0 where `mask` is False, and so all 0 in a row without real keys.
    """
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    if mask is None:
        return scores.softmax(-1)
    # The lowest number, not −∞, which would make NaN in a row without real keys, also backward.
    weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)
    return weights.masked_fill(~mask, 0.0)
