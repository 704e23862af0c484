"""Checkpoints in and out: transformers' models both ways, folders and the hub. Built in lesson 07.

Every weight is mapped by name and its shape is checked. What is written opens in transformers.
"""

import shutil
import warnings

import torch
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, PreTrainedTokenizerBase

from mlm_lib.bert_weights import (
    BIAS,
    DECODER_BIAS,
    NOT_NEEDED,
    PROJECTION,
    WORD,
    canonical,
    fill,
    missing,
    not_finite,
    parameters,
    some,
)
from mlm_lib.checkpoint_files import (
    OWN_FILES,
    TOKENIZER_FILES,
    find_checkpoint,
    one_line,
    read_settings,
    read_weights,
)
from mlm_lib.checks import path_name, refused, torch_device
from mlm_lib.encoder import ACTIVATIONS, BertEncoder, EncoderConfig
from mlm_lib.files import write_folder
from mlm_lib.heads import MaskedLMHead
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.wordpiece import WordPieceTokenizer

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
# Padding of a vocabulary to a multiple of 8, 64 or 128 leaves at most so many rows without a token.
SPARE_ROWS = 127


# ------------------------------------------------------------------------------------ both ways


def from_hf(bert_for_masked_lm):
    """Our model with the weights of a `BertForMaskedLM`, copied: dtype, device, tie and mode stay.

    Raises:
        TypeError: another class.
        ValueError: a configuration that is not a plain BERT encoder's (a decoder, relative
            positions), or that its weights do not fit, or an activation that we do not have.
    """
    theirs = bert_for_masked_lm
    if not isinstance(theirs, BertForMaskedLM):
        raise TypeError(f"from_hf takes a BertForMaskedLM, not {type(theirs).__name__}")
    weights, config = canonical(theirs.state_dict()), _our_config(theirs.config)
    tied = theirs.cls.predictions.decoder.weight is theirs.bert.embeddings.word_embeddings.weight
    missing("the model", weights, config, tied)
    model = _empty(config, tied, "meta").to_empty(device=theirs.device).to(theirs.dtype)
    fill(model, weights)
    return model.train(theirs.training)


def to_hf(model):
    """A `BertForMaskedLM` with the weights of ours, copied. `to_hf(from_hf(m))` predicts as m does.

    It has the state dict of m as well, but for an untied m's `cls.predictions.bias`: m never uses
    it, so it is not kept, and becomes the decoder's bias. What a `BertForMaskedLM` cannot express
    is not carried over: `top_k`, and dropout before the head.

    Raises:
        TypeError: another class.
        ValueError: other parts than a `BertEncoder` and a `MaskedLMHead` that belong together.
    """
    if not isinstance(model, MaskedLanguageModel):
        raise TypeError(f"a MaskedLanguageModel is needed, not a {type(model).__name__}")
    _check_parts(model.embedder, model.contextualizer, model.head)
    config, head = model.embedder.config, model.head
    weights = {}
    for ours, names, _ in parameters(config, head.tied):
        weights.update(zip(names, model.get_parameter(ours).detach().chunk(len(names))))
    weights.setdefault(PROJECTION, weights[WORD])
    weights[DECODER_BIAS] = weights[BIAS]
    with torch.random.fork_rng(devices=[]):  # draws nothing that others would have drawn
        theirs = BertForMaskedLM(_their_config(config, head.tied))
    theirs.to(device=head.bias.device, dtype=head.bias.dtype).load_state_dict(weights)
    return theirs.train(model.training)


def _check_parts(encoder, contextualizer, head):
    """Refuses a model that no `BertForMaskedLM` can be."""
    fits = isinstance(encoder, BertEncoder) and isinstance(head, MaskedLMHead)
    if not fits or contextualizer is not None:
        parts = [part for part in (encoder, contextualizer, head) if part is not None]
        raise ValueError(
            "a BertForMaskedLM is a BertEncoder and a MaskedLMHead, this model is "
            f"{' + '.join(type(part).__name__ for part in parts)}; "
            "keep its state_dict with torch.save instead"
        )
    config = encoder.config
    same_activation = head.activation is ACTIVATIONS[config.activation]
    if not same_activation or head.norm.eps != config.layer_norm_eps:
        raise ValueError(
            "the head's activation or layer_norm_eps is not the encoder's; "
            "a BertConfig has one of each"
        )
    if head.vocab_size != config.vocab_size:
        raise ValueError(
            f"the head scores {head.vocab_size} tokens, the encoder reads {config.vocab_size}; "
            "a BertConfig has one number"
        )
    if head.tied and head.token_embedding is not encoder.embeddings.word:
        raise ValueError(
            "the head is tied to an embedding that is not the encoder's; a BertConfig cannot say so"
        )


def _our_config(theirs):
    """An EncoderConfig from a BertConfig."""
    for name, plain in PLAIN.items():
        said = getattr(theirs, name, plain)
        if said not in (plain, None):
            raise ValueError(
                f"the checkpoint's configuration has {name}={said!r}; here it must be {plain!r}"
            )
    settings = {ours: getattr(theirs, name) for ours, name in SETTING.items()}
    if theirs.hidden_act not in ACTIVATION:
        raise ValueError(
            f"the checkpoint's hidden_act={theirs.hidden_act!r} is none of {', '.join(ACTIVATION)}"
        )
    return EncoderConfig(**settings | {"activation": ACTIVATION[theirs.hidden_act]})


def _their_config(config, tied):
    """A BertConfig from an EncoderConfig."""
    settings = {name: getattr(config, ours) for ours, name in SETTING.items()}
    activation = next(name for name, ours in ACTIVATION.items() if ours == config.activation)
    settings |= {"hidden_act": activation, "tie_word_embeddings": tied}
    return BertConfig(**settings | {"attention_probs_dropout_prob": config.attention_share})


def _empty(config, tied, device):
    """A model of this configuration; on "meta" it costs nothing and has no weights yet."""
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


# ------------------------------------------------------------------------------------ loading


def load_checkpoint(name="course-bert", *, device="cpu"):
    """A checkpoint as our model, in float32 and ready to evaluate, and its tokenizer.

    The name is looked up as a folder, then as a checkpoint that came with the course, then in the
    hub's local cache, then on the hub. Any BERT of any size will do: with or without a head (a
    fresh one is made then), in any precision, in one file or several, safetensors or pickled
    tensors (read with `weights_only=True`). Names and shapes are checked before anything is built.

    Args:
        name: a folder, "course-bert", or a hub id such as "bert-base-uncased".
        device: where the model goes.

    Returns:
        (MaskedLanguageModel, transformers' tokenizer).

    Raises:
        OSError: no such checkpoint, no network to fetch it, a file that is missing or damaged.
        ValueError: not a BERT; a weight that is missing, of another shape or not floating point; a
            tokenizer with more tokens than the model, or without the lines that it began with.

    Warns:
        UserWarning: names the weights of the head that were missing and are random now, those that
            were not used or are not finite, and what in the tokenizer may not fit.
    """
    device = torch_device("device", device)
    folder = find_checkpoint(name)
    theirs = _read_config(folder)
    config = _our_config(theirs)
    weights = canonical(read_weights(folder))
    twice = PROJECTION in weights and WORD in weights
    differs = twice and not torch.equal(weights[PROJECTION], weights[WORD])
    tied = theirs.tie_word_embeddings and not differs
    if tied and PROJECTION in weights:
        weights.setdefault(WORD, weights.pop(PROJECTION))
    absent = missing(name, weights, config, tied)
    tokenizer, notes = _read_tokenizer(folder, theirs)
    # A fresh part has to be drawn; where there is none, drawing would be lost time.
    model = _empty(config, tied, "cpu" if absent else "meta")
    model = model if absent else model.to_empty(device="cpu")
    fill(model, weights)
    if absent:
        notes.append(
            f"it has no {some(absent)}: this part of the head is fresh, so train it before use"
        )
    read = {their_name for _, names, _ in parameters(config, tied) for their_name in names}
    unused = [n for n in weights if n not in read and not n.startswith(NOT_NEEDED)]
    if unused:
        notes.append(f"not used: {some(unused)}")
    if theirs.tie_word_embeddings and differs:
        notes.append(
            "its output matrix differs from its word embeddings, "
            "so the two are not tied as its configuration says"
        )
    broken = not_finite(model)
    if broken:
        notes.append(f"NaN or infinity stands in {some(broken)}, so what it predicts is NaN, too")
    if notes:
        warnings.warn(f"{name}: {'; '.join(notes)}", stacklevel=2)
    return model.to(device).eval(), tokenizer


def _read_config(folder):
    """A BertConfig of the settings that are needed; others could ask for any amount of work."""
    settings = read_settings(folder)
    kind = settings.get("model_type", "bert")
    if kind != "bert":
        raise ValueError(
            f"{folder} holds a {kind!r} model; only BERT checkpoints fit these classes"
        )
    needed = (*SETTING.values(), *PLAIN, "tie_word_embeddings")
    try:
        return BertConfig(**{name: settings[name] for name in needed if name in settings})
    except Exception as error:
        raise ValueError(
            f"{folder / 'config.json'} does not describe a BERT: {one_line(error)}"
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
    added = [token for token, at in special.items() if token and at >= tokenizer.vocab_size]
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
    """Write a checkpoint that `from_pretrained` of `BertForMaskedLM` and `AutoTokenizer` opens.

    Everything is written beside the folder first and takes its place in one step, so that a crash
    leaves the old checkpoint whole. Files of the folder that do not belong to a checkpoint stay as
    they are, open ones too. Weights are safetensors, in the model's own dtype, and a tied matrix is
    written once.

    Args:
        model: a `MaskedLanguageModel` of a `BertEncoder` and a `MaskedLMHead`.
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
