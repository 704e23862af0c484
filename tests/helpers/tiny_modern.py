"""A small ModernBERT of transformers, drawn anew, and its arithmetic kept from rounding."""

from contextlib import contextmanager
from unittest import mock

import torch
import torch.nn.functional as F
from toys import drawn
from transformers import ModernBertConfig, ModernBertForMaskedLM

V, H = 40, 24
SIZES = {
    **{"vocab_size": V, "hidden_size": H, "num_hidden_layers": 4, "num_attention_heads": 3},
    **{"intermediate_size": 20, "local_attention": 7, "pad_token_id": 0},
    **dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")),
}


def modern_config(**changes):
    return ModernBertConfig(**SIZES | {"attn_implementation": "eager"} | changes)


def modern_bert(scale=0.4, seed=0, **changes):
    """In float64, no weight 0 or 1 by default."""
    return drawn(ModernBertForMaskedLM(modern_config(**changes)), seed, scale).eval()


@contextmanager
def unrounded():
    """transformers rounds queries, keys and attention weights to float32 in any model.

    Within this, float64 stays float64. Cosines and sines are of float32 on both sides.
    """
    plain, softmax = torch.Tensor.float, F.softmax

    def keep(tensor):
        return tensor if tensor.dtype == torch.float64 else plain(tensor)

    def same(scores, dim, dtype=None):
        return softmax(scores, dim, dtype=None if scores.dtype == torch.float64 else dtype)

    with mock.patch.object(torch.Tensor, "float", keep), mock.patch.object(F, "softmax", same):
        yield
