"""Checkpoints in and out: transformers' models both ways, folders and the hub. Built in lesson 07.

transformers reads and writes the files. A table of partners says which of its names means which of
ours, and `load_state_dict` sees to it that each name finds its partner, of its shape.
"""

import json
import os
import shutil
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from pickle import UnpicklingError

import torch
from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_url, snapshot_download
from huggingface_hub.utils import tqdm
from tokenizers.models import WordPiece
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertForMaskedLM,
    ModernBertForMaskedLM,
)
from transformers.modeling_utils import load_state_dict
from transformers.utils import logging

from mlm_lib import DATA
from mlm_lib.checks import path_name, torch_device, whole_number
from mlm_lib.encoder import MOST_LAYERS, BertEncoder, EncoderConfig
from mlm_lib.engine.files import write_folder
from mlm_lib.heads import MaskedLMHead
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.modern import ModernConfig, ModernEncoder
from mlm_lib.wordpiece import WordPieceTokenizer

# All tables are by what transformers calls `model_type`, and hold their names, then ours.

PARTNERS = {  # parts of the names of weights; applied from top to bottom
    "bert": {
        "bert.": "embedder.", "encoder.layer.": "blocks.", "cls.predictions.": "head.",
        "transform.": "", "word_embeddings": "word", "position_embeddings": "position",
        "token_type_embeddings": "token_type",
        "embeddings.LayerNorm": "embeddings.norm", "head.LayerNorm": "head.norm",
        "attention.output.LayerNorm": "attention_norm", "output.LayerNorm": "feed_forward_norm",
        "attention.output.dense": "attention.output",
        "intermediate.dense": "expand", "output.dense": "contract",
        "self.query": "query_key_value", "self.key": "query_key_value",
        "self.value": "query_key_value",
    },
    "modernbert": {  # whose queries, keys and values are stacked as ours are
        "model.": "embedder.", "layers.": "blocks.", "decoder.": "head.decoder.",
        "tok_embeddings": "word", "final_norm": "norm",
        "attn_norm": "attention_norm", "mlp_norm": "feed_forward_norm",
        "attn.Wqkv": "attention.query_key_value", "attn.Wo": "attention.output",
        "mlp.Wi": "expand", "mlp.Wo": "contract",
    },
}  # fmt: skip
BOTH = {
    "vocab_size": "vocab_size", "hidden_size": "hidden_size", "pad_token_id": "pad_token_id",
    "intermediate_size": "intermediate_size", "initializer_range": "initializer_range",
    "num_hidden_layers": "num_layers", "num_attention_heads": "num_heads",
    "max_position_embeddings": "max_length",
}  # fmt: skip
SETTINGS = {
    "bert": BOTH | {
        "type_vocab_size": "type_vocab_size", "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "hidden_act": "activation", "layer_norm_eps": "layer_norm_eps",
    },
    "modernbert": BOTH | {
        "local_attention": "window", "embedding_dropout": "embedding_dropout",
        "attention_dropout": "attention_dropout", "mlp_dropout": "mlp_dropout",
        "norm_eps": "layer_norm_eps", "initializer_cutoff_factor": "initializer_cutoff",
        # Names of before transformers 5, which makes layer_types and rope_parameters of them.
        "global_attn_every_n_layers": "global_every", "global_rope_theta": "global_theta",
        "local_rope_theta": "local_theta",
    },
}  # fmt: skip
ACTIVATIONS = {"gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "swish": "silu"}
GLOBAL, LOCAL = "full_attention", "sliding_attention"  # what layers of a ModernBERT do
TELLING = (  # in which a model of theirs may differ from any of ours
    "is_decoder", "add_cross_attention", "position_embedding_type", "rope_parameters",
    "layer_types", "hidden_activation", "classifier_activation",
)  # fmt: skip
# A tokenizer knows these as well; the defaults are those of ModernBERT's own, which others lack.
TOKENS = ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
# All that is read of a file besides; other settings could ask for any amount of work, or for code.
READ = (
    *TELLING, *TOKENS, "tie_word_embeddings", "attention_bias", "mlp_bias", "norm_bias",
    "classifier_bias", "decoder_bias", "rope_scaling",
)  # fmt: skip
SAFE, PICKLED = "model*.safetensors", "pytorch_model*.bin"  # the second where there is no first
MODELS = {"bert": BertForMaskedLM, "modernbert": ModernBertForMaskedLM}
# What transformers writes before the names of an encoder's weights, and a name that comes once.
BASES = {"bert": "bert.", "modernbert": "model."}
WORDS = {
    "bert": "embeddings.word_embeddings.weight",
    "modernbert": "embeddings.tok_embeddings.weight",
}
LOADER = "transformers.modeling_utils"  # whose log tells what happens while weights are read
TRIES = 3  # how many times its size a download may receive before it is given up
OWN_FILES = (  # all that a save replaces in a folder
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "vocab.txt", "model.safetensors",
    "model-?????-of-?????.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
    "pytorch_model-?????-of-?????.bin", "pytorch_model.bin.index.json",
)  # fmt: skip


def from_hf(bert_for_masked_lm):
    """Our model with the weights of a `BertForMaskedLM` or a `ModernBertForMaskedLM`, copied.

    Dtype, device, tie and mode stay.

    Raises:
        ValueError: a model of another class, such as RoBERTa or a classifier; a configuration that
            is not a plain encoder's (a decoder, relative positions), or an activation that we do
            not have.
        RuntimeError: weights that such a model has not, as biases in a ModernBERT, by name.
    """
    theirs = bert_for_masked_lm
    fits = getattr(getattr(theirs, "config", None), "model_type", None) in PARTNERS
    if not fits or theirs.get_output_embeddings() is None:
        told = "a BertForMaskedLM or a ModernBertForMaskedLM is needed"
        raise ValueError(f"from_hf got a {type(theirs).__name__}; {told}")
    weights, renamed = theirs.state_dict(), {}
    tied = theirs.get_output_embeddings().weight is theirs.get_input_embeddings().weight
    for ours, names in _partners(weights, theirs.config.model_type, tied).items():
        renamed[ours] = torch.cat([weights[name] for name in names])
    model = _empty(_our_config(theirs.config), tied)
    model.to_empty(device=theirs.device).to(theirs.dtype)
    model.load_state_dict(renamed)  # raises if a name or a shape is left over
    return model.train(theirs.training)


def to_hf(model):
    """A `BertForMaskedLM` or a `ModernBertForMaskedLM` with the weights of ours, copied.

    `to_hf(from_hf(m))` predicts as m does. It has the state dict of m as well, but for an untied
    BERT's `cls.predictions.bias`: m never uses it, so it is not kept, and becomes the decoder's
    bias. What their class cannot express is not carried over: `top_k`, and dropout before the head.

    Raises:
        ValueError: any other module, such as a classifier or a compiled model; a model with another
            encoder than these two, a head that does not belong to it, or a contextualizer.
    """
    if not _has_a_class(model):
        needed = "a MaskedLanguageModel of a BertEncoder or a ModernEncoder and its own head"
        told = f"transformers has no class for this {type(model).__name__}; {needed} is needed"
        raise ValueError(f"{told}, neither compiled nor wrapped; save other models with torch.save")
    encoder, head = model.embedder, model.head
    tied = head.token_embedding is encoder.embeddings.word
    with torch.random.fork_rng(devices=[]):  # draws nothing that others would have drawn
        theirs = AutoModelForMaskedLM.from_config(_their_config(encoder.config, tied))
    theirs.to(device=head.bias.device, dtype=head.bias.dtype)
    weights, renamed = model.state_dict(), {"cls.predictions.bias": head.bias}
    for ours, names in _partners(theirs.state_dict(), theirs.config.model_type, tied).items():
        renamed.update(zip(names, weights[ours].chunk(len(names))))
    theirs.load_state_dict({name: renamed[name] for name in theirs.state_dict()})
    return theirs.train(model.training)


def load_checkpoint(name="course-bert", *, device="cpu"):
    """A checkpoint as our model, in float32 and ready to evaluate, and its own tokenizer.

    Any BERT or ModernBERT of any size will do: with or without a head (a fresh one is made then),
    in any precision, in one file or several, safetensors or pickled tensors. No code that a
    checkpoint brings is run. transformers reports the weights that were left over.

    Args:
        name: a folder, "course-bert", "course-writer", or a hub id such as "bert-base-uncased"; see
            `find_checkpoint`.
        device: where the model goes.

    Returns:
        (MaskedLanguageModel, transformers' tokenizer).

    Raises:
        OSError: no such checkpoint, no network to fetch it, a file that is missing or damaged.
        ValueError: neither of the two; a weight that the encoder lacks, of another shape or not
            floating point; a tokenizer with more tokens than the model, or without the lines that
            it began with.

    Warns:
        UserWarning: names the weights of the head that were missing and are random now, those that
            are not finite, and what in the tokenizer may not fit.
    """
    device = torch_device("device", device)
    folder = find_checkpoint(name)
    theirs, absent = _read_model(folder)
    with _quietly(folder):
        if not any((folder / file).is_file() for file in ("tokenizer.json", "vocab.txt")):
            raise FileNotFoundError("no tokenizer.json or vocab.txt")  # one without words is made
        settings = {"config": theirs.config, "trust_remote_code": False}
        tokenizer = AutoTokenizer.from_pretrained(folder, **settings)
    _check_sizes(tokenizer, theirs.config.vocab_size)
    doubts = _doubts(tokenizer, theirs.config)
    if absent:
        told = f"it has no {', '.join(absent)}: a fresh head with random weights stands there"
        remedy = "[training] head_steps of a recipe trains the head first"
        doubts.append(f"{told}, so train it before use ({remedy})")
    broken = [name for name, weight in theirs.named_parameters() if not weight.isfinite().all()]
    if broken:
        doubts.append(f"{len(broken)} of its weights hold NaN or infinity, such as {broken[0]}")
    if doubts:
        warnings.warn(f"{name}: {'; '.join(doubts)}", stacklevel=2)
    return from_hf(theirs).to(device).eval(), tokenizer


def save_pretrained(model, tokenizer, folder):
    """Write a checkpoint that `AutoModelForMaskedLM` and `AutoTokenizer` of transformers open.

    Everything is written beside the folder first and takes its place at the end, so that a crash
    leaves the old checkpoint whole. Files of the folder that do not belong to a checkpoint stay as
    they are, open ones too. Weights are safetensors, in the model's own dtype, and a tied matrix is
    written once.

    Args:
        model: a `MaskedLanguageModel` of a `BertEncoder` or a `ModernEncoder`, and a
            `MaskedLMHead`.
        tokenizer: ours or transformers'.
        folder: where to; made if it does not exist.

    Raises:
        ValueError: a model that transformers has no class for, a tokenizer that has more tokens
            than the model, or an empty name.
        OSError: the folder cannot be written.
    """
    folder = path_name("folder", folder)
    theirs, config = to_hf(model), model.embedder.config
    ours = isinstance(tokenizer, WordPieceTokenizer)
    fast = tokenizer.to_hf() if ours else tokenizer
    _check_sizes(fast, config.vocab_size)
    if ours:
        fast.model_max_length = config.max_length
    if isinstance(config, ModernConfig):
        if ours:  # it has no segments
            fast.model_input_names = ["input_ids", "attention_mask"]
        theirs.config.update({name: getattr(fast, name) for name in TOKENS})
    with (
        _quietly(folder, "cannot be written; what it held is still there"),
        write_folder(folder, OWN_FILES) as stage,
    ):
        theirs.save_pretrained(stage)
        for file in stage.glob("*.safetensors"):
            shutil.copymode(stage / "config.json", file)  # its writer keeps it from all others
        fast.save_pretrained(stage)
        if ours:
            tokenizer.save(stage / "vocab.txt")


def find_checkpoint(name):
    """The folder that holds a checkpoint.

    The name is looked up as a folder, then as a checkpoint that came with the course, and then on
    the hub, from where it is fetched. What was fetched before is found without a network, too.

    Args:
        name: a folder, "course-bert", "course-writer", or a hub id such as "bert-base-uncased".

    Raises:
        OSError: there is no such checkpoint, or no network to fetch it.
        ValueError: an empty name, or None.
    """
    name = path_name("name", name)
    own = Path(os.path.expanduser(name))
    for folder in (own, own / "0_Transformer", DATA / name):  # as sentence-transformers calls it
        if (folder / "config.json").is_file():
            return folder
    wanted = {"ignore_patterns": "*/*", "allow_patterns": ["*.json", "*.txt", SAFE]}
    try:
        # What comes after would wait for a silent hub without end, or for minutes.
        listed = HfApi().model_info(name, timeout=10, files_metadata=True).siblings
        get_hf_file_metadata(hf_hub_url(name, "config.json"), timeout=10)
        sizes = {file.rfilename: file.size for file in listed if file.size is not None}
        limit = {"tqdm_class": _limited(TRIES * sum(sizes.values()))}
        folder = Path(snapshot_download(name, **wanted, **limit))
        if not any(folder.glob(SAFE)):
            snapshot_download(name, allow_patterns=PICKLED, **limit)
        # If the hub sent a page or nothing in place of a file, that is in the cache: fetch it anew.
        if wrong := _of_other_size(folder, sizes):
            snapshot_download(name, allow_patterns=wrong, force_download=True, **limit)
        wrong = _of_other_size(folder, sizes)
    except Exception as error:  # the network's, the hub's and a name's have no class in common
        with suppress(Exception):
            return Path(snapshot_download(name, local_files_only=True, **wanted))
        raise OSError(f"{name}: no folder with a config.json; the hub: {_line(error)}") from error
    for file in wrong:
        found = f"{(folder / file).stat().st_size} bytes instead of {sizes[file]}"
        told = f"{name}: what the hub sent as {file} has {found}, so it is something else"
        raise OSError(f"{told}; look at it in {folder}, or try again later")
    return folder


def _of_other_size(folder, sizes):
    """The files of a folder that do not have the size that the hub lists."""
    found = {file: folder / file for file in sizes if (folder / file).is_file()}
    return [file for file, path in found.items() if path.stat().st_size != sizes[file]]


def _limited(most):
    """A progress bar that ends a download once it has received more than so many bytes.

    huggingface_hub asks again as long as it receives something. Therefore a server that hangs up
    before the end of a file each time would be asked for ever.
    """

    class Limited(tqdm):
        received = 0

        def update(self, n=1):
            self.received += max(n or 0, 0)  # less than 0 where a file is begun anew
            if self.received > most > 0:
                told = "the download broke off again and again"
                raise OSError(f"{told}, after {self.received:,} bytes in all")
            return super().update(n)

    return Limited


# ------------------------------------------------------------------------------------ both ways


def _partners(names, kind, tied):
    """{our name: its partners among their names}; query, key and value have one in common."""
    partners = {}
    for name in names:
        ours = name
        for their_part, our_part in PARTNERS[kind].items():
            ours = ours.replace(their_part, our_part)
        partners.setdefault(ours, []).append(name)
    # What they call the decoder is our projection: the word embeddings again, or its own matrix.
    projection = "head.token_embedding.weight" if tied else "head.projection"
    partners[projection] = partners.pop("head.decoder.weight")
    # BERT's has its bias under two names. If they differ, the decoder's is the one that is added.
    partners["head.bias"] = partners.pop("head.decoder.bias")
    return partners


def _our_config(theirs):
    """Our configuration from theirs.

    Raises:
        ValueError: what ours cannot say, and would not compute.
    """
    kind = theirs.model_type
    settings = {ours: getattr(theirs, name, None) for name, ours in SETTINGS[kind].items()}
    if kind == "bert":
        settings["activation"] = ACTIVATIONS.get(theirs.hidden_act, theirs.hidden_act)
        if settings["attention_dropout"] == settings["dropout"]:
            settings["attention_dropout"] = None  # so that it follows when `dropout` is changed
        config = EncoderConfig(**settings)
    else:
        settings["global_theta"] = theirs.rope_parameters[GLOBAL]["rope_theta"]
        settings["local_theta"] = theirs.rope_parameters[LOCAL]["rope_theta"]
        later = [i for i, does in enumerate(theirs.layer_types) if does == GLOBAL and i > 0]
        none = max(settings["global_every"] or 0, len(theirs.layer_types))
        config = ModernConfig(**settings | {"global_every": later[0] if later else none})
    plain = _their_config(config, True)
    for name in TELLING:
        # Positions are absolute where nothing is said of them, as in newer files.
        said, needed = (getattr(config, name, "absolute") for config in (theirs, plain))
        if said != needed:
            raise ValueError(f"{name}={said!r} in the checkpoint; here it must be {needed!r}")
    return config


def _their_config(config, tied):
    """Their configuration from ours."""
    kind = "bert" if isinstance(config, EncoderConfig) else "modernbert"
    settings = {name: getattr(config, ours) for name, ours in SETTINGS[kind].items()}
    if kind == "bert":
        if config.activation == "gelu_tanh":
            settings["hidden_act"] = "gelu_pytorch_tanh"
        settings["attention_probs_dropout_prob"] = config.attention_share
    else:
        settings |= dict.fromkeys(TOKENS)
    return AutoConfig.for_model(kind, **settings, tie_word_embeddings=tied)


def _has_a_class(model):
    """Whether transformers can compute what a model does."""
    if not isinstance(model, MaskedLanguageModel) or model.contextualizer is not None:
        return False
    encoder, head = model.embedder, model.head
    if not (isinstance(encoder, (BertEncoder, ModernEncoder)) and isinstance(head, MaskedLMHead)):
        return False
    alike = _empty(encoder.config, head.token_embedding is encoder.embeddings.word).head
    # An activation's name does not tell its options.
    return repr(head) == repr(alike) and head.activation is alike.activation


def _empty(config, tied):
    """A model without weights, which costs nothing and draws no random number."""
    with torch.device("meta"):
        model = MaskedLanguageModel.from_config(config)
        if not tied:
            options = {"activation": model.head.activation, "layer_norm_eps": model.head.norm.eps}
            options["bias"] = model.head.dense.bias is not None
            model.head = MaskedLMHead(config.hidden_size, config.vocab_size, **options)
    return model


# ------------------------------------------------------------------------------------ reading


def _read_model(folder):
    """transformers' model of a folder, and its names of the head's weights that were not there."""
    with _quietly(folder):
        settings = json.loads((folder / "config.json").read_bytes())
        kind = settings.pop("model_type", "bert")
    if str(kind) not in PARTNERS:
        raise ValueError(f"{folder} holds a {kind!r} model; only a {' or a '.join(PARTNERS)} fits")
    if "quantization_config" in settings:  # its scales would be left out
        raise ValueError(f"{folder} is quantised; take the original")
    settings = {name: settings[name] for name in (*SETTINGS[kind], *READ) if name in settings}
    # Before a list of so many is made.
    whole_number("num_hidden_layers", settings.get("num_hidden_layers", 1), most=MOST_LAYERS)
    weights = _weights(folder, kind)
    with _quietly(folder), torch.random.fork_rng(devices=[]):  # only a fresh head is drawn
        how = {"ignore_mismatched_sizes": True, "output_loading_info": True}  # to refuse them below
        how |= {"config": AutoConfig.for_model(kind, **settings), "dtype": torch.float32}
        place = folder if weights is None else None
        theirs, info = MODELS[kind].from_pretrained(place, state_dict=weights, **how)
    absent = sorted(info["missing_keys"])
    wrong = [name for name in absent if name.startswith(theirs.base_model_prefix)]
    for name, found, asked in info["mismatched_keys"]:
        wrong.append(f"{name} is {tuple(found)} instead of {tuple(asked)}")
    if wrong:
        told = f"{folder} lacks {len(wrong)} weights of its configuration: {wrong[0]}"
        others = sorted(info["unexpected_keys"])
        raise ValueError(
            f"{told}; it holds {others[0]}, for which the model has no place" if others else told
        )
    return theirs, absent


def _weights(folder, kind):
    """A folder's weights under transformers' names, or None where the files have these names.

    Other programs put the weights into a dictionary within the file (`state_dict`, `model`), or
    put something before each name (`module.`, `_orig_mod.`, `model.`). Both are taken off here.

    Raises:
        ValueError: weights that were cast or quantised, which transformers would take for the true
            numbers; several models.
    """
    files, names, nested = sorted(folder.glob(SAFE)) or sorted(folder.glob(PICKLED)), {}, False
    for file in files:
        weights, within = _of_file(file, kind, "meta")  # kinds and shapes alone
        nested |= within
        for name, weight in weights.items():
            whole = not weight.dtype.is_floating_point or weight.dtype.itemsize < 2
            # Only a buffer of old versions and single numbers that count something may be whole.
            if whole and weight.dim() and not name.endswith("position_ids"):
                found = f"{name} is {weight.dtype} in {file}"
                raise ValueError(f"{found}, so quantised; take the original")
            names[name] = name.replace("_orig_mod.", "")  # of torch.compile, also within a name
    before = {_before(name, kind) for name in names.values() if name.endswith(WORDS[kind])}
    if "" in before:  # then the names are transformers' own, whatever else is there
        before = {""}
    if len(before) > 1:
        found = ", ".join(f"'{name}…'" for name in sorted(before))
        raise ValueError(f"{folder} holds several models, {found}; keep the weights of one")
    names = {name: plain.removeprefix("".join(before)) for name, plain in names.items()}
    if not nested and all(name == plain for name, plain in names.items()):
        return None
    found = [_of_file(file, kind, "cpu")[0] for file in files]
    return {names[name]: weight for weights in found for name, weight in weights.items()}


def _before(name, kind):
    """What stands before the name that transformers has for the word embeddings.

    >>> _before("module.bert.embeddings.word_embeddings.weight", "bert")
    'module.'
    """
    start = name.removesuffix(WORDS[kind])
    return start.removesuffix(BASES[kind]) if f".{start}".endswith(f".{BASES[kind]}") else start


def _of_file(file, kind, device):
    """The weights in a file by name, and whether they are in a dictionary within another one."""
    with _quietly(file):
        held = load_state_dict(file, map_location=device)
        models = list(_models_in(held, kind)) or [held]
        if not all(isinstance(weight, torch.Tensor) for weight in models[0].values()):
            raise TypeError("it holds more than tensors")
    if len(models) > 1:
        raise ValueError(f"{file} holds {len(models)} models; keep the weights of one")
    return models[0], models[0] is not held


def _models_in(held, kind):
    """Each dictionary in what a file holds that has the word embeddings, at any depth."""
    if any(str(name).endswith(WORDS[kind]) for name in held):
        yield held
    else:
        for value in held.values():
            if isinstance(value, dict):
                yield from _models_in(value, kind)


@contextmanager
def _quietly(place, trouble="cannot be read; save or download it again"):
    """Runs code of transformers with one line for whatever it raises, and without false alarms.

    It shows no progress bar, and no warning that a checkpoint without a head "seem corrupted",
    because a warning of `load_checkpoint` names the head that is made then.
    """
    bar, log = logging.is_progress_bar_enabled(), logging.get_logger(LOADER)
    logging.disable_progress_bar()
    log.addFilter(_no_false_alarm)
    try:
        yield
    except Exception as error:  # a pickle's own text explains how to run the code in it
        text = "it holds more than tensors" if isinstance(error, UnpicklingError) else _line(error)
        raise OSError(f"{place} {trouble} ({text})") from None
    finally:
        log.removeFilter(_no_false_alarm)
        if bar:
            logging.enable_progress_bar()


def _no_false_alarm(record):
    """Whether a record of transformers' log is worth showing."""
    return "checkpoint seem corrupted" not in record.getMessage()


def _line(error):
    """What an error says, on one line."""
    return " ".join(str(error).split())


# ------------------------------------------------------------------------------------ tokenizers


def _check_sizes(tokenizer, vocab_size):
    last = max(tokenizer.get_vocab().values())
    if last >= vocab_size:
        told = f"the tokenizer has ids up to {last}, but the model {vocab_size} tokens only"
        raise ValueError(
            f"{told}; resize_token_embeddings of transformers adds rows for new tokens"
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
    doubts, vocabulary = [], tokenizer.get_vocab()
    pad, said = tokenizer.pad_token_id, config.pad_token_id
    if None not in (pad, said) and pad != said:
        other = f"{tokenizer.convert_ids_to_tokens(said)!r}, not {tokenizer.pad_token!r}"
        doubts.append(f"pad_token_id={said} in its configuration is {other}")
    special = tokenizer.special_tokens_map.values()
    added = [token for token in special if vocabulary[token] >= tokenizer.vocab_size]
    if added and config.model_type == "bert":  # in a ModernBERT all of them stand apart
        doubts.append(f"its vocabulary lacks {', '.join(added)}")
        if len(doubts) == 2:
            raise ValueError(f"{tokenizer.name_or_path}: {', and '.join(doubts)}: all ids shift")
    # Padding to a multiple of 8, 64 or 128 leaves at most 127 rows without a token.
    if config.vocab_size - len(vocabulary) > 127:
        doubts.append(f"its tokenizer has {len(vocabulary)} tokens, the model {config.vocab_size}")
    return doubts + _doubts_of_case(tokenizer)


def _doubts_of_case(tokenizer):
    """Doubts about a tokenizer that loses letters of its vocabulary, or keeps letters it lacks.

    A vocabulary does not say how texts were prepared for it. If the files beside it do not say it
    either, transformers lower-cases texts, and finds only small pieces of a cased vocabulary.
    """
    made = getattr(tokenizer, "backend_tokenizer", None)
    if made is None or not isinstance(made.model, WordPiece) or made.normalizer is None:
        return []
    plain = {}  # words of the vocabulary as they are looked for
    tokens = tokenizer.get_vocab().keys() - tokenizer.get_added_vocab().keys()
    for word in {token.removeprefix("##") for token in tokens}:
        # Words that are split at their marks, such as [unused1], are never looked for.
        if made.pre_tokenizer is None or len(made.pre_tokenizer.pre_tokenize_str(word)) == 1:
            plain[word] = made.normalizer.normalize_str(word).strip()
    capitals = {word for word in plain if word != word.lower()}
    lost = sorted(word for word in plain if plain[word] != word)
    if lost:
        example, does, setting = lost[0], "takes accents off", "strip_accents"
        if cased := sorted(capitals & set(lost)):
            example, does, setting = cased[0], "lower-cases", "do_lower_case"
        elif " " in plain[example]:
            does, setting = "sets Chinese characters apart", "tokenize_chinese_chars"
        told = f"its tokenizer {does}, so that {len(lost)} words of its vocabulary are never found"
        return [
            f'{told}, such as {example!r}; "{setting}": false in tokenizer_config.json may help'
        ]
    has_letters = any(word != word.upper() for word in plain)  # that could be capitals
    if has_letters and not capitals and made.normalizer.normalize_str("A") == "A":
        told = "its tokenizer keeps capital letters, but its vocabulary has none"
        return [f'{told}; "do_lower_case": true in tokenizer_config.json may help']
    return []
