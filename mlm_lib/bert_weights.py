"""BERT's names: of each weight, and of each setting, on disk and here. In lesson 07.

The names on disk are those of transformers' `BertForMaskedLM`. A configuration gives every name
and shape before anything is built, so that one that does not fit its weights costs nothing.
"""

import re

import torch

from mlm_lib.named_weights import refuse_other

WORD = "bert.embeddings.word_embeddings.weight"
PROJECTION = "cls.predictions.decoder.weight"
BIAS, DECODER_BIAS = "cls.predictions.bias", "cls.predictions.decoder.bias"
# Parts of other BERTs that a masked language model has no use for, and a buffer of old versions.
NOT_NEEDED = ("bert.pooler.", "cls.seq_relationship.", "bert.embeddings.position_ids")
ENCODER, LAYER = "bert.", r"^bert\.encoder\.layer\.\d+\."  # how names of the encoder begin

# Our names of settings, and theirs; the activation has other values, too.
SETTING = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "max_length": "max_position_embeddings",
    "type_vocab_size": "type_vocab_size",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "layer_norm_eps": "layer_norm_eps",
    "pad_token_id": "pad_token_id",
    "activation": "hidden_act",
    "initializer_range": "initializer_range",
}
ACTIVATION = {  # theirs: ours
    **{"gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh"},
    **{"relu": "relu", "silu": "silu", "swish": "silu"},
}
# What a plain encoder's configuration says, or leaves out.
PLAIN = {"is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute"}
# All that is read of a configuration; others could ask for any amount of work.
NEEDED = (*SETTING.values(), *PLAIN, "tie_word_embeddings")


def our_settings(theirs):
    """The arguments of an `EncoderConfig`, from a `BertConfig`.

    Raises:
        ValueError: what is not a plain encoder's, or an activation that we do not have.
    """
    refuse_other(theirs, PLAIN)
    if theirs.hidden_act not in ACTIVATION:
        raise ValueError(
            f"the checkpoint's hidden_act={theirs.hidden_act!r} is none of {', '.join(ACTIVATION)}"
        )
    settings = {ours: getattr(theirs, name) for ours, name in SETTING.items()}
    return settings | {"activation": ACTIVATION[theirs.hidden_act]}


def their_settings(config):
    """The arguments of a `BertConfig`, from an `EncoderConfig`."""
    settings = {name: getattr(config, ours) for ours, name in SETTING.items()}
    activation = next(name for name, ours in ACTIVATION.items() if ours == config.activation)
    share = config.attention_share
    return settings | {"hidden_act": activation, "attention_probs_dropout_prob": share}


def parameters(config, tied):
    """(our name, their names, the shape of each of theirs) of every parameter.

    Several of theirs stand one below the other in one of ours: query, key and value.
    """
    V, H, I = config.vocab_size, config.hidden_size, config.intermediate_size  # noqa: E741
    embeddings = {"word": V, "position": config.max_length, "token_type": config.type_vocab_size}
    for part, rows in embeddings.items():
        theirs = f"bert.embeddings.{part}_embeddings.weight"
        yield f"embedder.embeddings.{part}.weight", [theirs], (rows, H)
    yield from _layer("embedder.embeddings.norm", ["bert.embeddings.LayerNorm"], H)
    for i in range(config.num_layers):
        ours, theirs = f"embedder.blocks.{i}.", f"bert.encoder.layer.{i}."
        three = [theirs + f"attention.self.{part}" for part in ("query", "key", "value")]
        yield from _layer(ours + "attention.query_key_value", three, H, H)
        yield from _layer(ours + "attention.output", [theirs + "attention.output.dense"], H, H)
        yield from _layer(ours + "attention_norm", [theirs + "attention.output.LayerNorm"], H)
        yield from _layer(ours + "expand", [theirs + "intermediate.dense"], I, H)
        yield from _layer(ours + "contract", [theirs + "output.dense"], H, I)
        yield from _layer(ours + "feed_forward_norm", [theirs + "output.LayerNorm"], H)
    yield from _layer("head.dense", ["cls.predictions.transform.dense"], H, H)
    yield from _layer("head.norm", ["cls.predictions.transform.LayerNorm"], H)
    yield "head.bias", [BIAS], (V,)
    if not tied:
        yield "head.projection", [PROJECTION], (V, H)


def _layer(ours, theirs, *shape):
    """A linear layer's weight (out, in) and bias (out,), or a layer norm's two of (H,)."""
    yield f"{ours}.weight", [f"{name}.weight" for name in theirs], shape
    yield f"{ours}.bias", [f"{name}.bias" for name in theirs], shape[:1]


def canonical(weights):
    """Today's names for weights of any age, with the prefix that a bare encoder leaves out.

    Raises:
        ValueError: two weights of one name, an old and a new one, that are not the same.
    """
    renamed = {}
    for name, tensor in weights.items():
        today = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
        today = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", today)
        if today.startswith(("embeddings.", "encoder.", "pooler.")):
            today = f"bert.{today}"
        if today in renamed and not torch.equal(renamed[today], tensor):
            raise ValueError(f"{today} has an old and a new name in the checkpoint, and two values")
        renamed[today] = tensor
    if DECODER_BIAS in renamed:  # tied it is the same; untied it is the one that is added
        renamed[BIAS] = renamed.pop(DECODER_BIAS)
    return renamed
