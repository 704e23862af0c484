"""Weights by name: all there, of their shape and kind, and filled in, in each format. Lesson 07.

The names are those of a room such as `bert_weights`: its `parameters` says which tensors of a file
make up which of our parameters.
"""

import re
from dataclasses import replace

import torch


def refuse_other(theirs, plain):
    """Refuses a configuration whose settings are not plain; what it does not say is.

    Raises:
        ValueError: names the first setting that is not.
    """
    for name, value in plain.items():
        said = getattr(theirs, name, value)
        if said not in (value, None):
            raise ValueError(
                f"the checkpoint's configuration has {name}={said!r}; here it must be {value!r}"
            )


def missing(names, source, weights, config, tied):
    """Their names of the head's weights that are not there. Nothing is built or copied.

    Args:
        names: the room of a format's names, such as `bert_weights`.
        source: what an error calls the checkpoint.
        weights: tensors by their canonical names.
        config: the configuration, one of ours, that they should fit.
        tied: whether the head's matrix is the word embeddings.

    Raises:
        ValueError: a weight of another shape than the configuration asks for, or of another kind
            than floating point, or one of the encoder's that is not there.
    """
    # It may ask for any number of layers; one more than there are is enough to see what is missing.
    there = re.findall(names.LAYER, "\n".join(weights), re.MULTILINE)
    first = replace(config, num_layers=min(config.num_layers, len(set(there)) + 1))
    absent = []
    for _, theirs, shape in names.parameters(first, tied):
        for name in theirs:
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
    lost = [name for name in absent if name.startswith(names.ENCODER)]
    if lost:
        raise ValueError(
            f"{source} has no weights for {some(lost)}; "
            f"its configuration, of {config.num_layers} layers, asks for them"
        )
    return absent


@torch.no_grad()
def fill(names, model, weights):
    """Copies weights of their names into a model of ours, as far as they are there."""
    for ours, theirs, _ in names.parameters(model.embedder.config, model.head.tied):
        for name, part in zip(theirs, model.get_parameter(ours).chunk(len(theirs))):
            if name in weights:
                part.copy_(weights[name])


def not_finite(names, model):
    """Their names of the weights in which NaN or infinity stands."""
    found = []
    for ours, theirs, _ in names.parameters(model.embedder.config, model.head.tied):
        for name, part in zip(theirs, model.get_parameter(ours).detach().chunk(len(theirs))):
            # Both ends are finite only if all between them is, and NaN would be both ends.
            if not torch.stack(part.aminmax()).isfinite().all():
                found.append(name)
    return found


def some(names):
    """The first four of a list of names, and how many more there are."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
