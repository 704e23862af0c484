"""Checkpoints in and out: transformers' models both ways, folders and the hub. Built in lesson 07.

Every weight is mapped by name and its shape is checked. What is written opens in transformers.
"""

import shutil
import warnings
from types import ModuleType
from typing import NamedTuple

import torch
import torch.nn.functional as F
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedTokenizerBase,
)

import mlm_lib.bert_weights as bert_weights
import mlm_lib.modern_weights as modern_weights
from mlm_lib.checkpoint_files import (
    OWN_FILES,
    TOKENIZER_FILES,
    find_checkpoint,
    one_line,
    read_settings,
    read_weights,
)
from mlm_lib.checks import path_name, refused, torch_device, whole_number
from mlm_lib.encoder import ACTIVATIONS, MOST_LAYERS, BertEncoder, EncoderConfig
from mlm_lib.engine.files import write_folder
from mlm_lib.heads import MaskedLMHead
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.modern import ModernConfig, ModernEncoder
from mlm_lib.named_weights import fill, missing, not_finite, some
from mlm_lib.wordpiece import WordPieceTokenizer


class Format(NamedTuple):
    """A kind of checkpoint: transformers' classes, ours, and the room with the names."""

    name: str
    their_model: type
    their_config: type
    encoder: type
    config: type
    names: ModuleType


FORMATS = {  # by what `config.json` calls `model_type`
    "bert": Format("BERT", BertForMaskedLM, BertConfig, BertEncoder, EncoderConfig, bert_weights),
    "modernbert": Format(
        *("ModernBERT", ModernBertForMaskedLM, ModernBertConfig, ModernEncoder, ModernConfig),
        modern_weights,
    ),
}
# Padding of a vocabulary to a multiple of 8, 64 or 128 leaves at most so many rows without a token.
SPARE_ROWS = 127


# ------------------------------------------------------------------------------------ both ways


def from_hf(bert_for_masked_lm):
    """Our model with the weights of a `BertForMaskedLM` or a `ModernBertForMaskedLM`, copied.

    Dtype, device, tie and mode stay.

    Raises:
        TypeError: another class.
        ValueError: a configuration that is not a plain encoder's (a decoder, relative positions;
            biases in a ModernBERT), or that its weights do not fit, or an activation that we do not
            have.
    """
    theirs = bert_for_masked_lm
    for kind in FORMATS.values():
        if isinstance(theirs, kind.their_model):
            break
    else:
        known = " or a ".join(kind.their_model.__name__ for kind in FORMATS.values())
        raise TypeError(f"from_hf takes a {known}, not {type(theirs).__name__}")
    weights = kind.names.canonical(theirs.state_dict())
    config = kind.config(**kind.names.our_settings(theirs.config))
    tied = theirs.get_output_embeddings().weight is theirs.get_input_embeddings().weight
    missing(kind.names, "the model", weights, config, tied)
    model = _empty(config, tied, "meta").to_empty(device=theirs.device).to(theirs.dtype)
    fill(kind.names, model, weights)
    return model.train(theirs.training)


def to_hf(model):
    """A `BertForMaskedLM` or a `ModernBertForMaskedLM` with the weights of ours, copied.

    `to_hf(from_hf(m))` predicts as m does. It has the state dict of m as well, but for an untied
    BERT's `cls.predictions.bias`: m never uses it, so it is not kept, and becomes the decoder's
    bias. What their class cannot express is not carried over: `top_k`, and dropout before the head.

    Raises:
        TypeError: another class.
        ValueError: other parts than a `BertEncoder` or a `ModernEncoder` and a `MaskedLMHead` that
            belong together.
    """
    kind = _format_of(model)
    names, config, head = kind.names, model.embedder.config, model.head
    weights = {}
    for ours, theirs, _ in names.parameters(config, head.tied):
        weights.update(zip(theirs, model.get_parameter(ours).detach().chunk(len(theirs))))
    weights.setdefault(names.PROJECTION, weights[names.WORD])
    weights[names.DECODER_BIAS] = weights[names.BIAS]
    settings = names.their_settings(config) | {"tie_word_embeddings": head.tied}
    with torch.random.fork_rng(devices=[]):  # draws nothing that others would have drawn
        theirs = kind.their_model(kind.their_config(**settings))
    theirs.to(device=head.bias.device, dtype=head.bias.dtype).load_state_dict(weights)
    return theirs.train(model.training)


def _format_of(model):
    """The format that a model of ours has; refuses one that no class of theirs can be."""
    if not isinstance(model, MaskedLanguageModel):
        raise TypeError(f"a MaskedLanguageModel is needed, not a {type(model).__name__}")
    encoder, contextualizer, head = model.embedder, model.contextualizer, model.head
    kinds = [kind for kind in FORMATS.values() if isinstance(encoder, kind.encoder)]
    if not kinds or not isinstance(head, MaskedLMHead) or contextualizer is not None:
        parts = [part for part in (encoder, contextualizer, head) if part is not None]
        raise ValueError(
            "a BertForMaskedLM is a BertEncoder and a MaskedLMHead, a ModernBertForMaskedLM a "
            "ModernEncoder and a MaskedLMHead, this model is "
            f"{' + '.join(type(part).__name__ for part in parts)}; "
            "keep its state_dict with torch.save instead"
        )
    (kind,), config = kinds, encoder.config
    if (head.dense.bias is not None) != _head_options(config)["bias"]:
        raise ValueError("a head without biases is ModernBERT's, one with them is BERT's")
    same_activation = head.activation is _head_options(config)["activation"]
    if not same_activation or head.norm.eps != config.layer_norm_eps:
        raise ValueError(
            "the head's activation or layer_norm_eps is not the encoder's; "
            f"a {kind.their_config.__name__} has one of each"
        )
    if head.vocab_size != config.vocab_size:
        raise ValueError(
            f"the head scores {head.vocab_size} tokens, the encoder reads {config.vocab_size}; "
            f"a {kind.their_config.__name__} has one number"
        )
    if head.tied and head.token_embedding is not encoder.embeddings.word:
        raise ValueError(
            "the head is tied to an embedding that is not the encoder's; "
            f"a {kind.their_config.__name__} cannot say so"
        )
    return kind


def _head_options(config):
    """What a configuration of ours says of its head."""
    modern = isinstance(config, ModernConfig)
    activation = F.gelu if modern else ACTIVATIONS[config.activation]
    eps = config.layer_norm_eps
    return {"activation": activation, "layer_norm_eps": eps, "bias": not modern}


def _empty(config, tied, device):
    """A model of this configuration; on "meta" it costs nothing and has no weights yet."""
    with torch.device(device):
        model = MaskedLanguageModel.from_config(config)
        if not tied:
            sizes = config.hidden_size, config.vocab_size
            model.head = MaskedLMHead(*sizes, **_head_options(config))
    return model


# ------------------------------------------------------------------------------------ loading


def load_checkpoint(name="course-bert", *, device="cpu"):
    """A checkpoint as our model, in float32 and ready to evaluate, and its tokenizer.

    The name is looked up as a folder, then as a checkpoint that came with the course, then in the
    hub's local cache, then on the hub. Any BERT or ModernBERT of any size will do: with or without
    a head (a fresh one is made then), in any precision, in one file or several, safetensors or
    pickled tensors (read with `weights_only=True`). Names and shapes are checked before anything is
    built.

    Args:
        name: a folder, "course-bert", "course-writer", or a hub id such as "bert-base-uncased".
        device: where the model goes.

    Returns:
        (MaskedLanguageModel, transformers' tokenizer).

    Raises:
        OSError: no such checkpoint, no network to fetch it, a file that is missing or damaged.
        ValueError: neither of the two; a weight that is missing, of another shape or not floating
            point; a tokenizer with more tokens than the model, or without the lines that it began
            with.

    Warns:
        UserWarning: names the weights of the head that were missing and are random now, those that
            were not used or are not finite, and what in the tokenizer may not fit.
    """
    device = torch_device("device", device)
    folder = find_checkpoint(name)
    kind, theirs = _read_config(folder)
    names, config = kind.names, kind.config(**kind.names.our_settings(theirs))
    weights = names.canonical(read_weights(folder))
    word, projection = weights.get(names.WORD), weights.get(names.PROJECTION)
    twice = word is not None and projection is not None
    differs = twice and not torch.equal(projection, word)
    tied = theirs.tie_word_embeddings and not differs
    if tied and projection is not None:
        weights.setdefault(names.WORD, weights.pop(names.PROJECTION))
    absent = missing(names, name, weights, config, tied)
    tokenizer, notes = _read_tokenizer(folder, theirs)
    # A fresh part has to be drawn; where there is none, drawing would be lost time.
    model = _empty(config, tied, "cpu" if absent else "meta")
    model = model if absent else model.to_empty(device="cpu")
    fill(names, model, weights)
    if absent:
        notes.append(
            f"it has no {some(absent)}: this part of the head is fresh, so train it before use"
        )
    read = {name for _, several, _ in names.parameters(config, tied) for name in several}
    unused = [n for n in weights if n not in read and not n.startswith(names.NOT_NEEDED)]
    if unused:
        notes.append(f"not used: {some(unused)}")
    if theirs.tie_word_embeddings and differs:
        notes.append(
            "its output matrix differs from its word embeddings, "
            "so the two are not tied as its configuration says"
        )
    broken = not_finite(names, model)
    if broken:
        notes.append(f"NaN or infinity stands in {some(broken)}, so what it predicts is NaN, too")
    if notes:
        warnings.warn(f"{name}: {'; '.join(notes)}", stacklevel=2)
    return model.to(device).eval(), tokenizer


def _read_config(folder):
    """The format of a checkpoint, and its configuration in transformers' class."""
    settings = read_settings(folder)
    kind = settings.get("model_type", "bert")
    if kind not in FORMATS:
        known = " and ".join(each.name for each in FORMATS.values())
        raise ValueError(
            f"{folder} holds a {kind!r} model; only {known} checkpoints fit these classes"
        )
    kind, layers = FORMATS[kind], settings.get("num_hidden_layers")
    if isinstance(layers, int):  # before a list of so many is made
        whole_number("num_layers", layers, most=MOST_LAYERS)
    needed = {name: settings[name] for name in kind.names.NEEDED if name in settings}
    try:
        return kind, kind.their_config(**needed)
    except Exception as error:
        raise ValueError(
            f"{folder / 'config.json'} does not describe a {kind.name}: {one_line(error)}"
        ) from error


# ------------------------------------------------------------------------------------ tokenizers


def _read_tokenizer(folder, config):
    """A checkpoint's tokenizer, and what may be wrong with it."""
    if not any((folder / file).is_file() for file in TOKENIZER_FILES):
        raise FileNotFoundError(
            f"{folder} holds no tokenizer; put its {' or '.join(TOKENIZER_FILES)} there"
        )
    try:  # the configuration is given, for otherwise all of its file would be read, to no purpose
        tokenizer = AutoTokenizer.from_pretrained(folder, config=config)
    except Exception as error:  # the compiled tokenizer has no class of its own for what it finds
        raise OSError(
            f"the tokenizer in {folder} cannot be read ({one_line(error)}); save it again"
        ) from error
    _check_sizes(tokenizer, config.vocab_size)
    return tokenizer, _doubts(tokenizer, config)


def _check_sizes(tokenizer, vocab_size):
    last = max(tokenizer.get_vocab().values())
    if last >= vocab_size:
        raise ValueError(
            f"the tokenizer has {len(tokenizer)} tokens, ids up to {last}, and the model "
            f"{vocab_size}; they do not belong together"
        )


def _doubts(tokenizer, config):
    """What speaks against a tokenizer that its model could read, as sentences.

    Where a vocabulary lost its first lines, every id shifts, and nothing else would tell: then
    `[PAD]` is among the missing, transformers adds it again at the end, and the configuration knows
    another id. This is an error. To differ in the id alone is none: many checkpoints were trained
    with [UNK] [CLS] [SEP] [PAD] [MASK] in front and the configuration's default of 0, and predict
    well, since padding is masked by position and not by id.

    Raises:
        ValueError: special tokens that the vocabulary lacks, and a `pad_token_id` of another token.
    """
    doubts = []
    special = {
        getattr(tokenizer, f"{kind}_token"): getattr(tokenizer, f"{kind}_token_id")
        for kind in ("pad", "unk", "cls", "sep", "mask")
    }
    # Where a vocabulary is a list of lines, all should be among them; others are kept apart.
    lines = isinstance(config, BertConfig)
    added = [token for token, at in special.items() if token and at >= tokenizer.vocab_size]
    added = added if lines else []
    pad, said = tokenizer.pad_token_id, config.pad_token_id
    if None not in (pad, said) and pad != said:
        other = (
            f"pad_token_id={said} in its configuration is {tokenizer.convert_ids_to_tokens(said)!r}"
        )
        if added:
            raise ValueError(
                f"the vocabulary in {tokenizer.name_or_path} lacks {', '.join(added)}, and "
                f"{other}: it lost lines, which shifts all ids; take the checkpoint's own"
            )
        doubts.append(f"{other} in its tokenizer, whose padding is {pad}")
    elif added:
        doubts.append(f"its vocabulary lacks {', '.join(added)}, which was added at the end")
    spare = config.vocab_size - len(tokenizer.get_vocab())
    if spare > SPARE_ROWS:
        doubts.append(
            f"its tokenizer has {len(tokenizer)} tokens and the model {config.vocab_size}, "
            "so the vocabulary may have been cut off"
        )
    return doubts


# ------------------------------------------------------------------------------------ saving


def save_pretrained(model, tokenizer, folder):
    """Write a checkpoint that `AutoModelForMaskedLM` and `AutoTokenizer` of transformers open.

    Everything is written beside the folder first and takes its place in one step, so that a crash
    leaves the old checkpoint whole. Files of the folder that do not belong to a checkpoint stay as
    they are, open ones too. Weights are safetensors, in the model's own dtype, and a tied matrix is
    written once.

    Args:
        model: a `MaskedLanguageModel` of a `BertEncoder` or a `ModernEncoder`, and a
            `MaskedLMHead`.
        tokenizer: ours or transformers'.
        folder: where to; made if it does not exist.

    Raises:
        TypeError: another model.
        ValueError: a model that transformers has no class for, a tokenizer that is none or has more
            tokens than the model, or an empty name.
        OSError: the folder cannot be written.
    """
    theirs, config = to_hf(model), model.embedder.config
    folder = path_name("folder", folder)
    ours = isinstance(tokenizer, WordPieceTokenizer)
    if not ours and not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise refused("tokenizer", tokenizer, "a WordPieceTokenizer or one of transformers")
    fast = tokenizer.to_hf() if ours else tokenizer
    _check_sizes(fast, config.vocab_size)
    if ours:
        fast.model_max_length = config.max_length
        if isinstance(config, ModernConfig):  # which has no segments
            fast.model_input_names = ["input_ids", "attention_mask"]
    if isinstance(config, ModernConfig):
        for name in modern_weights.TOKENS:
            setattr(theirs.config, name, getattr(fast, name))
    try:
        with write_folder(folder, OWN_FILES) as stage:
            theirs.save_pretrained(stage)
            for file in stage.glob("*.safetensors"):
                shutil.copymode(stage / "config.json", file)  # its writer keeps it from all others
            fast.save_pretrained(stage)
            if ours:
                tokenizer.save(stage / "vocab.txt")
    except Exception as error:  # a full disk has many: OSError, shutil's, the compiled writers'
        raise OSError(
            f"{folder} cannot be written ({one_line(error)}); what it held is still there"
        ) from error
