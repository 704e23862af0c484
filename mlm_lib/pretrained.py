"""Checkpoints in and out: transformers' models both ways, folders, and the hub. Built in lesson 07.

Every weight is mapped by name and its shape is checked. The names on disk are those of `BertForMaskedLM`.
"""

import ctypes
import json
import os
import pickle
import shutil
import uuid
import warnings
from fnmatch import fnmatch
from pathlib import Path

import torch
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
)
from safetensors.torch import load_file
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from mlm_lib import DATA
from mlm_lib.encoder import ACTIVATIONS, BertEncoder, EncoderConfig
from mlm_lib.heads import MaskedLMHead
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.wordpiece import WordPieceTokenizer

# Their names of activations, and ours.
ACTIVATION = {
    "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu",
}  # fmt: skip
WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
SHARDS = {
    "model.safetensors.index.json": "model-*.safetensors",
    "pytorch_model.bin.index.json": "pytorch_model-*.bin",
}
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt")
SETTINGS = (
    "config.json",
    *TOKENIZER_FILES,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
WRITTEN = (
    *SETTINGS,
    *WEIGHT_FILES,
    *SHARDS.values(),
    "generation_config.json",
)  # what a save replaces in a folder
# Parts of other BERT models that a masked language model has no use for, and a buffer that old versions wrote.
NOT_NEEDED = ("bert.pooler.", "cls.seq_relationship.", "bert.embeddings.position_ids")
WORD, PROJECTION = "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"
BIAS, DECODER_BIAS = "cls.predictions.bias", "cls.predictions.decoder.bias"


# ------------------------------------------------------------------------------------ transformers, both ways


def from_hf(bert_for_masked_lm):
    """Our model with the weights of a `BertForMaskedLM`, copied: its dtype, device, tie and mode are kept.

    Raises:
        TypeError: another class.
        ValueError: a configuration that is not a plain BERT encoder's (a decoder, relative positions), or an
            activation that we do not have.
    """
    theirs = bert_for_masked_lm
    if not isinstance(theirs, BertForMaskedLM):
        raise TypeError(f"from_hf takes a BertForMaskedLM, not {type(theirs).__name__}")
    weights = _canonical(theirs.state_dict())
    tied = theirs.cls.predictions.decoder.weight is theirs.bert.embeddings.word_embeddings.weight
    model = (
        _empty(_our_config(theirs.config), tied, device="meta")
        .to_empty(device=theirs.device)
        .to(theirs.dtype)
    )
    _fill(model, weights)
    return model.train(theirs.training)


def to_hf(model):
    """A `BertForMaskedLM` with the weights of ours, copied. `to_hf(from_hf(m))` has the state dict of m.

    What a `BertForMaskedLM` cannot express is not carried over: `top_k`, and dropout before the head.

    Raises:
        TypeError: another class.
        ValueError: a model of other parts than a `BertEncoder` and a `MaskedLMHead` that belong together.
    """
    if not isinstance(model, MaskedLanguageModel):
        raise TypeError(f"a MaskedLanguageModel is needed, not a {type(model).__name__}")
    encoder, head = model.embedder, model.head
    if (
        not isinstance(encoder, BertEncoder)
        or not isinstance(head, MaskedLMHead)
        or model.contextualizer is not None
    ):
        parts = [
            type(part).__name__
            for part in (encoder, model.contextualizer, head)
            if part is not None
        ]
        raise ValueError(
            f"a BertForMaskedLM is a BertEncoder and a MaskedLMHead, this model is {' + '.join(parts)}; "
            "keep its state_dict with torch.save instead"
        )
    config = encoder.config
    if (
        head.activation is not ACTIVATIONS[config.activation]
        or head.norm.eps != config.layer_norm_eps
    ):
        raise ValueError(
            "the head's activation or layer_norm_eps is not the encoder's; a BertConfig has one of each"
        )
    if head.vocab_size != config.vocab_size:
        raise ValueError(
            f"the head scores {head.vocab_size} tokens, the encoder reads {config.vocab_size}; a BertConfig has one number"
        )
    if head.tied and head.token_embedding is not encoder.embeddings.word:
        raise ValueError(
            "the head is tied to an embedding that is not the encoder's; a BertConfig cannot say so"
        )
    weights = {}
    for ours, names in _names(config, head.tied):
        tensor = model.get_parameter(ours).detach()
        weights.update(zip(names, tensor.chunk(len(names))))
    weights.setdefault(PROJECTION, weights[WORD])
    weights[DECODER_BIAS] = weights[BIAS]
    with torch.random.fork_rng(
        devices=[]
    ):  # a conversion draws nothing that anyone else would have drawn
        theirs = BertForMaskedLM(_their_config(config, head.tied))
    theirs.to(device=head.bias.device, dtype=head.bias.dtype).load_state_dict(weights)
    return theirs.train(model.training)


def _our_config(theirs):
    """An EncoderConfig from a BertConfig."""
    for name, plain in (
        ("is_decoder", False),
        ("add_cross_attention", False),
        ("position_embedding_type", "absolute"),
    ):
        if getattr(theirs, name, plain) not in (plain, None):
            raise ValueError(
                f"the checkpoint's configuration has {name}={getattr(theirs, name)!r}; here it must be {plain!r}"
            )
    if theirs.hidden_act not in ACTIVATION:
        raise ValueError(
            f"the checkpoint's hidden_act={theirs.hidden_act!r} is none of {', '.join(ACTIVATION)}"
        )
    return EncoderConfig(
        theirs.vocab_size, theirs.hidden_size, theirs.num_hidden_layers, theirs.num_attention_heads,
        theirs.intermediate_size, theirs.max_position_embeddings, theirs.type_vocab_size, theirs.hidden_dropout_prob,
        theirs.layer_norm_eps, theirs.pad_token_id, activation=ACTIVATION[theirs.hidden_act],
        attention_dropout=theirs.attention_probs_dropout_prob, initializer_range=theirs.initializer_range,
    )  # fmt: skip


def _their_config(ours, tied):
    """A BertConfig from an EncoderConfig."""
    return BertConfig(
        vocab_size=ours.vocab_size, hidden_size=ours.hidden_size, num_hidden_layers=ours.num_layers,
        num_attention_heads=ours.num_heads, intermediate_size=ours.intermediate_size,
        max_position_embeddings=ours.max_length, type_vocab_size=ours.type_vocab_size, hidden_dropout_prob=ours.dropout,
        attention_probs_dropout_prob=ours.attention_share, layer_norm_eps=ours.layer_norm_eps,
        pad_token_id=ours.pad_token_id, initializer_range=ours.initializer_range, tie_word_embeddings=tied,
        hidden_act=next(theirs for theirs, name in ACTIVATION.items() if name == ours.activation),
    )  # fmt: skip


def _names(config, tied):
    """(our name, their names) of every parameter; several of theirs stand one below the other in one of ours."""
    yield "embedder.embeddings.word.weight", [WORD]
    yield "embedder.embeddings.position.weight", ["bert.embeddings.position_embeddings.weight"]
    yield "embedder.embeddings.token_type.weight", ["bert.embeddings.token_type_embeddings.weight"]
    layers = {"embedder.embeddings.norm": ["bert.embeddings.LayerNorm"]}
    for i in range(config.num_layers):
        ours, theirs = f"embedder.blocks.{i}.", f"bert.encoder.layer.{i}."
        layers[ours + "attention.query_key_value"] = [
            theirs + f"attention.self.{part}" for part in ("query", "key", "value")
        ]
        layers[ours + "attention.output"] = [theirs + "attention.output.dense"]
        layers[ours + "attention_norm"] = [theirs + "attention.output.LayerNorm"]
        layers[ours + "expand"] = [theirs + "intermediate.dense"]
        layers[ours + "contract"] = [theirs + "output.dense"]
        layers[ours + "feed_forward_norm"] = [theirs + "output.LayerNorm"]
    layers["head.dense"] = ["cls.predictions.transform.dense"]
    layers["head.norm"] = ["cls.predictions.transform.LayerNorm"]
    for ours, names in layers.items():
        for kind in ("weight", "bias"):
            yield f"{ours}.{kind}", [f"{name}.{kind}" for name in names]
    yield "head.bias", [BIAS]
    if not tied:
        yield "head.projection", [PROJECTION]


def _empty(config, tied, device):
    """A model of this configuration on a device; on "meta" it costs nothing and has no weights yet."""
    with torch.device(device):
        model = MaskedLanguageModel.from_config(config)
        if not tied:
            model.head = MaskedLMHead(
                config.hidden_size,
                config.vocab_size,
                activation=ACTIVATIONS[config.activation],
                layer_norm_eps=config.layer_norm_eps,
            )
    return model


@torch.no_grad()
def _fill(model, weights):
    """Copy weights of their names into our model, and return those of their names that were not there.

    Raises:
        ValueError: a weight of another shape than the configuration asks for.
    """
    missing = []
    for ours, names in _names(model.embedder.config, model.head.tied):
        parameter = model.get_parameter(ours)
        for name, part in zip(names, parameter.chunk(len(names))):
            if name not in weights:
                missing.append(name)
            elif weights[name].shape != part.shape:
                raise ValueError(
                    f"{name} is {tuple(weights[name].shape)} in the checkpoint; its configuration asks for {tuple(part.shape)}"
                )
            else:
                part.copy_(weights[name])
    return missing


# ------------------------------------------------------------------------------------ loading


def load_checkpoint(name="course-bert", *, device="cpu"):
    """A checkpoint as our model, in float32 and ready to evaluate, and its tokenizer.

    The name is looked up as a folder, then as a checkpoint that came with the course, then in the hub's local cache,
    then on the hub. Any BERT of any size will do: with or without a head (a fresh one is made then), in any
    precision, in one file or several, safetensors or pickled tensors (read with `weights_only=True`).

    Args:
        name: a folder, "course-bert", or a hub id such as "bert-base-uncased".
        device: where the model goes.

    Returns:
        (MaskedLanguageModel, transformers' tokenizer).

    Raises:
        OSError: no such checkpoint, no network to fetch it, a file that is missing or damaged.
        ValueError: not a BERT; a weight that is missing or of another shape; a tokenizer with more tokens than the model.

    Warns:
        UserWarning: names the weights of the head that were missing and are random now, and those that were not used.
    """
    folder = _find(str(name))
    theirs = _read_config(folder / "config.json")
    weights = _canonical(_read_weights(folder))
    said = theirs.tie_word_embeddings
    tied = said and (
        PROJECTION not in weights
        or WORD not in weights
        or torch.equal(weights[PROJECTION], weights[WORD])
    )
    if tied and PROJECTION in weights:
        weights.setdefault(WORD, weights.pop(PROJECTION))
    plan = _empty(_our_config(theirs), tied, device="meta")
    missing = _fill(plan, weights)  # nothing is copied yet, but every name and shape is checked
    lost = [name for name in missing if name.startswith("bert.")]
    if lost:
        raise ValueError(
            f"{name} has no weights for {_some(lost)}; its configuration asks for them"
        )
    # A fresh part has to be drawn; where there is none, drawing would be lost time.
    model = (
        _empty(plan.embedder.config, tied, device="cpu") if missing else plan.to_empty(device="cpu")
    )
    _fill(model, weights)
    expected = {
        their_name for _, names in _names(model.embedder.config, tied) for their_name in names
    }
    unused = [n for n in weights if n not in expected and not n.startswith(NOT_NEEDED)]
    notes = []
    if missing:
        notes.append(
            f"it has no {_some(missing)}: this part of the head is fresh, so train it before use"
        )
    if unused:
        notes.append(f"not used: {_some(unused)}")
    if said and not tied:
        notes.append(
            "its output matrix differs from its word embeddings, so the two are not tied as its configuration says"
        )
    if notes:
        warnings.warn(f"{name}: {'; '.join(notes)}", stacklevel=2)
    return model.to(device).eval(), _read_tokenizer(folder, theirs.vocab_size)


def _find(name):
    """The folder of a checkpoint, fetched from the hub if need be."""
    if not name.strip():
        raise ValueError('the name is empty; give a folder, "course-bert", or a hub id')
    for folder in (Path(name).expanduser(), DATA / name):
        if folder.is_dir():
            if not (folder / "config.json").is_file():
                raise FileNotFoundError(f"{folder} holds no config.json, so it is not a checkpoint")
            return folder
    try:
        # Without a pattern the client calls a cache incomplete for want of files that nobody here reads.
        cached = Path(
            snapshot_download(name, local_files_only=True, allow_patterns=["config.json"])
        )
        if _is_complete(cached):
            return cached
    except HFValidationError:
        raise FileNotFoundError(
            f"there is no folder {name}, and a hub id would look like 'bert-base-uncased'"
        ) from None
    except OSError:
        pass  # not in the cache
    try:
        fetched = _download(name)
    except GatedRepoError as error:
        raise OSError(
            f"{name} is gated: accept its terms on the hub, then log in with `hf auth login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise OSError(
            f"{name} is no folder, no checkpoint of the course, and unknown to the hub; check the spelling"
        ) from error
    except HfHubHTTPError as error:
        raise OSError(
            f"the hub refused {name} ({_line(error)}); if it wants a token, log in with `hf auth login`"
        ) from error
    except Exception as error:  # whatever the network does, the reader needs the same sentence
        raise OSError(
            f"{name} is no folder, not shipped with the course, not in the hub's cache, and the hub cannot be reached: "
            'connect to a network once, give a folder, or use "course-bert"'
        ) from error
    if fetched is None:
        raise FileNotFoundError(
            f"{name} on the hub holds no config.json, so it is not a checkpoint"
        )
    return fetched


def _download(name):
    """Fetch what `load_checkpoint` reads, and no weights twice in two formats. Returns the folder in the cache, or None."""
    offered = {file.rfilename for file in HfApi().model_info(name, revision="main").siblings}
    if "config.json" not in offered:
        return None
    wanted = [file for file in SETTINGS if file in offered]
    weights = next((file for file in WEIGHT_FILES if file in offered), None)
    if weights:
        wanted += [
            weights,
            *sorted(file for file in offered if fnmatch(file, SHARDS.get(weights, ""))),
        ]
    return [Path(hf_hub_download(name, file)).parent for file in wanted][0]


def _is_complete(folder):
    """Whether a snapshot holds what `load_checkpoint` reads; the cache keeps broken-off ones too."""
    if not (folder / "config.json").is_file() or not any(
        (folder / file).is_file() for file in TOKENIZER_FILES
    ):
        return False
    try:
        return all(file.is_file() for file in _weight_files(folder))
    except OSError:
        return False


def _weight_files(folder):
    """The files that hold a checkpoint's weights."""
    for name in WEIGHT_FILES:
        file = folder / name
        if file.is_file():
            return _read(file, _shards) if name in SHARDS else [file]
    raise FileNotFoundError(f"{folder} holds no weights; looked for {', '.join(WEIGHT_FILES)}")


def _shards(index):
    weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    return [index.parent / file for file in sorted(set(weight_map.values()))]


def _read_weights(folder):
    """Every tensor of a checkpoint by its name on disk."""
    weights = {}
    for file in _weight_files(folder):
        found = _read(file, load_file if file.suffix == ".safetensors" else _unpickle)
        wrong = [
            name
            for name, tensor in found.items()
            if not isinstance(name, str) or not isinstance(tensor, torch.Tensor)
        ]
        if wrong:
            raise OSError(
                f"{file}: {wrong[0]!r} does not name a tensor; this is no file of weights"
            )
        weights |= found
    return weights


def _unpickle(file):
    found = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(found, dict):
        raise TypeError(f"it holds a {type(found).__name__}, not tensors by name")
    return found


def _read_config(file):
    """A BertConfig from config.json."""
    settings = _read(file, lambda file: json.loads(file.read_text(encoding="utf-8")))
    if not isinstance(settings, dict):
        raise OSError(f"{file} holds a {type(settings).__name__}, not the settings of a model")
    kind = settings.get("model_type", "bert")
    if kind != "bert":
        raise ValueError(
            f"{file.parent} holds a {kind!r} model; only BERT checkpoints fit these classes"
        )
    try:
        return BertConfig.from_dict(settings)
    except Exception as error:
        raise ValueError(f"{file} does not describe a BERT: {_line(error)}") from error


def _read_tokenizer(folder, vocab_size):
    if not any((folder / file).is_file() for file in TOKENIZER_FILES):
        raise FileNotFoundError(
            f"{folder} holds no tokenizer; put its {' or '.join(TOKENIZER_FILES)} there"
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # the compiled tokenizer has no class of its own for what it finds
        raise OSError(
            f"the tokenizer in {folder} cannot be read ({_line(error)}); save it again"
        ) from error
    _check_sizes(tokenizer, vocab_size)
    return tokenizer


def _read(file, reader):
    """What `reader` makes of a file; a file that is not there or cannot be understood is an OSError that names it."""
    try:
        return reader(file)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{file} is missing; save or download the checkpoint again"
        ) from None
    except pickle.UnpicklingError:  # its own text explains how to run the code in the file
        raise OSError(f"{file} is damaged, or holds more than tensors and is not opened") from None
    except Exception as error:
        raise OSError(
            f"{file} cannot be read ({_line(error)}); it is damaged or incomplete: save or download it again"
        ) from error


def _canonical(weights):
    """Today's names for the weights of checkpoints of any age, with the prefix that a bare encoder leaves out."""
    renamed = {}
    for name, tensor in weights.items():
        name = name.removesuffix(".gamma") + ".weight" if name.endswith("LayerNorm.gamma") else name
        name = name.removesuffix(".beta") + ".bias" if name.endswith("LayerNorm.beta") else name
        name = f"bert.{name}" if name.startswith(("embeddings.", "encoder.", "pooler.")) else name
        renamed[name] = tensor
    if DECODER_BIAS in renamed:  # tied it is the same; untied it is the one that is added
        renamed[BIAS] = renamed.pop(DECODER_BIAS)
    return renamed


def _check_sizes(tokenizer, vocab_size):
    last = max(tokenizer.get_vocab().values())
    if last >= vocab_size:
        raise ValueError(
            f"the tokenizer has {len(tokenizer)} tokens, ids up to {last}, and the model {vocab_size}; they do not belong together"
        )


def _some(names):
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _line(error):
    """An error's message on one line, with its class where the message alone would say little."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


# ------------------------------------------------------------------------------------ saving


def save_pretrained(model, tokenizer, folder):
    """Write a checkpoint that `BertForMaskedLM.from_pretrained` and `AutoTokenizer.from_pretrained` open.

    Everything is written beside the folder first and takes its place in one step, so that a crash leaves the old
    checkpoint whole. Files of the folder that do not belong to a checkpoint stay. Weights are safetensors, in the
    model's own dtype, and a tied matrix is written once.

    Args:
        model: a `MaskedLanguageModel` of a `BertEncoder` and a `MaskedLMHead`.
        tokenizer: ours or transformers'.
        folder: where to; made if it does not exist.

    Raises:
        ValueError: a model that transformers has no class for, or a tokenizer with more tokens than the model.
        OSError: the folder cannot be written.
    """
    theirs, config = to_hf(model), model.embedder.config
    ours = isinstance(tokenizer, WordPieceTokenizer)
    fast = tokenizer.to_hf() if ours else tokenizer
    _check_sizes(fast, config.vocab_size)
    if ours:
        fast.model_max_length = config.max_length
    if not str(folder).strip():
        raise ValueError("the folder's name is empty; say where to save")
    folder = Path(folder).expanduser().resolve()
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; a checkpoint needs a folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    stage = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
    stage.mkdir()
    try:
        theirs.save_pretrained(stage)
        for file in stage.glob("*.safetensors"):
            shutil.copymode(stage / "config.json", file)  # the writer keeps it from everybody else
        fast.save_pretrained(stage)
        if ours:
            tokenizer.save(stage / "vocab.txt")
        _keep_others(folder, stage)
        _flush(stage)
        _replace(folder, stage)
    except Exception as error:  # a full disk has many classes: OSError, shutil's, and those of the compiled writers
        raise OSError(
            f"{folder} cannot be written ({_line(error)}); what it held is still there"
        ) from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _keep_others(folder, stage):
    """Give the new folder whatever the old one holds besides a checkpoint: notes, logs, a model card."""
    if folder.is_dir():
        shutil.copymode(folder, stage)
        for entry in folder.iterdir():
            if any(fnmatch(entry.name, pattern) for pattern in WRITTEN):
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.copytree(entry, stage / entry.name, symlinks=True)
            else:
                shutil.copy2(entry, stage / entry.name, follow_symlinks=False)


def _flush(folder):
    """Make sure that every file below a folder is on the disk, and not only on its way there."""
    for file in folder.rglob("*"):
        if file.is_file() and not file.is_symlink():
            with open(
                file, "rb+" if os.name == "nt" else "rb"
            ) as opened:  # Windows flushes what is open for writing
                os.fsync(opened.fileno())


def _replace(folder, stage):
    """Put `stage` in the place of `folder`; afterwards `stage` is what was there, or nothing."""
    here = Path.cwd()
    if not folder.exists():
        os.rename(stage, folder)
    elif not _exchange(folder, stage):
        # Two steps where the system has no single one. Between them the old checkpoint stands beside its place.
        aside = stage.with_name(stage.name + ".old")
        os.rename(folder, aside)
        try:
            os.rename(stage, folder)
        except BaseException:
            os.rename(aside, folder)
            raise
        shutil.rmtree(aside, ignore_errors=True)
    if here.is_relative_to(folder):
        os.chdir(
            here
        )  # the current folder was exchanged too: stay at its name, not in what is deleted next


def _exchange(one, other):
    """Swap two folders in a single step by Linux's renameat2; False where that does not exist."""
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0
