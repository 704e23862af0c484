"""A BERT of eight dimensions and twelve tokens, its checkpoint on disk, and ways to change that."""

import json
import os
import warnings

import pytest
import torch
import torch.nn as nn
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM

from mlm_lib.pretrained import load_checkpoint
from mlm_lib.wordpiece import WordPieceTokenizer

TOKENS = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c ##a ##b ##c abc".split()
SIZES = {
    **{"vocab_size": 16, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2},
    **{"intermediate_size": 12, "max_position_embeddings": 20, "initializer_range": 0.5},
}
WORD, DECODER = "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"
BIAS, DECODER_BIAS = "cls.predictions.bias", "cls.predictions.decoder.bias"
INDEX = "model.safetensors.index.json"


def bert(kind=BertForMaskedLM, **changes):
    """A small BERT of any class in which no weight is 0 or 1 by default."""
    torch.manual_seed(0)
    model = kind(BertConfig(**{**SIZES, **changes})).eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, 1, 0.5)
    return model


def wordpiece(tokens=TOKENS):
    return WordPieceTokenizer({token: index for index, token in enumerate(tokens)})


def write(folder, model, tokens=TOKENS):
    model.save_pretrained(folder)
    wordpiece(tokens).to_hf().save_pretrained(folder)
    return folder


# ------------------------------------------------------------------------------------ on disk


def weights_of(folder):
    return load_file(folder / "model.safetensors")


def rewrite(folder, change):
    """Replace the weights by what `change` makes of them."""
    weights = weights_of(folder)
    weights = change(weights) or weights
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def configure(folder, **changes):
    """Change settings of a configuration; `...` takes one out."""
    settings = json.loads((folder / "config.json").read_text()) | changes
    settings = {name: value for name, value in settings.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(settings))


def pickled(folder, content=None, **options):
    """Replace the safetensors by a pickled file."""
    content = weights_of(folder) if content is None else content
    torch.save(content, folder / "pytorch_model.bin", **options)
    (folder / "model.safetensors").unlink()


def pickled_in_three(folder):
    weights, place = weights_of(folder), {}
    for i in range(3):
        part = {name: weights[name] for name in sorted(weights)[i::3]}
        file = f"pytorch_model-0000{i + 1}-of-00003.bin"
        torch.save(part, folder / file)
        place |= dict.fromkeys(part, file)
    index = json.dumps({"metadata": {}, "weight_map": place})
    (folder / "pytorch_model.bin.index.json").write_text(index)
    (folder / "model.safetensors").unlink()


def in_three(folder):
    """Replace the safetensors by several shards."""
    (folder / "model.safetensors").unlink()
    bert().save_pretrained(folder, max_shard_size="2KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2


def contents(folder):
    """Everything below a folder: files by bytes, links by where they point, folders by None."""
    found = {}
    for path in folder.rglob("*"):
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        name = path.relative_to(folder).as_posix()
        found[name] = os.readlink(path) if path.is_symlink() else content
    return found


# ------------------------------------------------------------------------------------ changes
# Functions that make a function of the folder.


def saved(kind, **changes):
    return lambda folder: bert(kind, **changes).save_pretrained(folder)


def as_dtype(dtype):
    def change(folder):
        bert().to(dtype).save_pretrained(folder)

    return change


def old_names(weights):
    def old(name):
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        return name.replace("LayerNorm.bias", "LayerNorm.beta")

    return {old(name): weight for name, weight in weights.items()}


def add(make):
    """Write more weights into the file: what `make` makes of those that are there."""
    return lambda folder: rewrite(folder, lambda weights: weights | make(weights))


def move(old, new):
    return lambda folder: rewrite(folder, lambda weights: weights.update({new: weights.pop(old)}))


def text(file, content):
    content = content if isinstance(content, bytes) else content.encode()
    return lambda folder: (folder / file).write_bytes(content)


def cut(file, size):
    """Keep a part of a file: so many bytes, or so large a share."""

    def change(folder):
        raw = (folder / file).read_bytes()
        (folder / file).write_bytes(raw[: size if isinstance(size, int) else int(size * len(raw))])

    return change


def gone(*patterns):
    return lambda folder: [path.unlink() for pattern in patterns for path in folder.glob(pattern)]


def settings(**changes):
    return lambda folder: configure(folder, **changes)


def after(first, *more):
    return lambda folder: [change(folder) for change in (first, *more)]


def pickle_of(content):
    return lambda folder: pickled(folder, content)


# ------------------------------------------------------------------------------------ loaded


def batch():
    g = torch.Generator().manual_seed(0)
    ids, types = torch.randint(16, (3, 9), generator=g), torch.randint(2, (3, 9), generator=g)
    mask = torch.ones_like(ids)
    mask[1, 6:] = mask[2, 2:] = 0
    return ids, mask, types


@torch.no_grad()
def logits_of(model):
    ids, mask, types = batch()
    output = model(ids, attention_mask=mask, token_type_ids=types)
    return output["logits"][mask.bool()]


def assert_same_logits(model, folder):
    theirs = BertForMaskedLM.from_pretrained(folder, dtype=torch.float32).eval()
    torch.testing.assert_close(logits_of(model), logits_of(theirs), rtol=1e-4, atol=1e-4)


def load_quietly(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return load_checkpoint(folder)


def load_with_warning(folder):
    """The model, and the text of the one warning."""
    with pytest.warns(UserWarning) as caught:
        model, _ = load_checkpoint(folder)
    (warning,) = caught
    assert warning.filename == __file__  # it points at the caller's line
    return model, str(warning.message)


def assert_says(error, words):
    assert [word for word in words if word not in str(error)] == [], str(error)
