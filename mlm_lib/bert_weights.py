"""BERT's weights by name: which tensors of a file make up which of our parameters. In lesson 07.

The names on disk are those of transformers' `BertForMaskedLM`. A configuration gives every name
and shape before anything is built, so that one that does not fit its weights costs nothing.
"""

import re
from dataclasses import replace

import torch

WORD = "bert.embeddings.word_embeddings.weight"
PROJECTION = "cls.predictions.decoder.weight"
BIAS, DECODER_BIAS = "cls.predictions.bias", "cls.predictions.decoder.bias"
# Parts of other BERTs that a masked language model has no use for, and a buffer of old versions.
NOT_NEEDED = ("bert.pooler.", "cls.seq_relationship.", "bert.embeddings.position_ids")


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


def missing(source, weights, config, tied):
    """Their names of the head's weights that are not there. Nothing is built or copied.

    Args:
        source: what an error calls the checkpoint.
        weights: tensors by their canonical names.
        config: the `EncoderConfig` they should fit.
        tied: whether the head's matrix is the word embeddings.

    Raises:
        ValueError: a weight of another shape than the configuration asks for, or of another kind
            than floating point, or one of the encoder's that is not there.
    """
    # It may ask for any number of layers; one more than there are is enough to see what is missing.
    there = re.findall(r"^bert\.encoder\.layer\.\d+\.", "\n".join(weights), re.MULTILINE)
    first = replace(config, num_layers=min(config.num_layers, len(set(there)) + 1))
    absent = []
    for _, names, shape in parameters(first, tied):
        for name in names:
            if name not in weights:
                absent.append(name)
            elif tuple(weights[name].shape) != shape:
                raise ValueError(
                    f"{name} is {tuple(weights[name].shape)} in the checkpoint; "
                    f"its configuration asks for {shape}"
                )
            elif not weights[name].is_floating_point():
                raise ValueError(
                    f"{name} is {weights[name].dtype} in the checkpoint; a weight is a "
                    "floating-point number, so it was cast or quantised: take the original"
                )
    lost = [name for name in absent if name.startswith("bert.")]
    if lost:
        raise ValueError(
            f"{source} has no weights for {some(lost)}; "
            f"its configuration, of {config.num_layers} layers, asks for them"
        )
    return absent


@torch.no_grad()
def fill(model, weights):
    """Copies weights of their names into a model of ours, as far as they are there."""
    for ours, names, _ in parameters(model.embedder.config, model.head.tied):
        for name, part in zip(names, model.get_parameter(ours).chunk(len(names))):
            if name in weights:
                part.copy_(weights[name])


def not_finite(model):
    """Their names of the weights in which NaN or infinity stands."""
    found = []
    for ours, names, _ in parameters(model.embedder.config, model.head.tied):
        for name, part in zip(names, model.get_parameter(ours).detach().chunk(len(names))):
            # Both ends are finite only if all between them is, and NaN would be both ends.
            if not torch.stack(part.aminmax()).isfinite().all():
                found.append(name)
    return found


def some(names):
    """The first four of a list of names, and how many more there are."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
