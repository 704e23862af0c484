"""Checkpoints: find them in a folder or on the hub, load them, save them.

transformers reads and writes the files, and `conversion.py` translates between its models and ours.
This file adds the caution that is needed: a checkpoint may be damaged, may have been written by
another program, or may have been made to do harm. Built in the lesson on the masked language model.
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
from safetensors import SafetensorError
from tokenizers.models import WordPiece
from transformers import AutoConfig, AutoTokenizer
from transformers.modeling_utils import load_state_dict
from transformers.utils import logging

from mlm_lib import DATA
from mlm_lib.checks import path_name, torch_device, whole_number
from mlm_lib.conversion import FAMILIES, TOKEN_IDS, from_hf, to_hf
from mlm_lib.encoder import MAX_LAYERS
from mlm_lib.engine.files import write_folder
from mlm_lib.wordpiece import WordPieceTokenizer

WEIGHT_FILES = "model*.safetensors"
PICKLE_FILES = "pytorch_model*.bin"  # read only where there are no safetensors
MAX_DOWNLOAD = 3  # a download that has received this many times its size is given up
UNUSED_ROWS = 127  # rows without a token, if the vocabulary is padded to a multiple of 128
LOADER_LOG = "transformers.modeling_utils"  # the log in which transformers reports on weights
OWN_FILES = (  # patterns of all files that a save replaces in a folder
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "vocab.txt", "model.safetensors",
    "model-?????-of-?????.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
    "pytorch_model-?????-of-?????.bin", "pytorch_model.bin.index.json",
)  # fmt: skip


def load_checkpoint(name="course-bert", *, device="cpu"):
    """Load a checkpoint: our model, ready to evaluate, and its own tokenizer.

    The checkpoint may be a BERT or a ModernBERT of any size, with or without a masked-LM head (if
    there is none, a head with random weights is made), in any floating-point precision, in one file
    or in several, as safetensors or as pickled tensors. The model is in float32 and in evaluation
    mode. Code that a checkpoint brings is never run. If the file holds weights for which the model
    has no place, transformers reports them in its log.

    Args:
        name: a folder, "course-bert", "course-writer", or the id of a checkpoint on the hub, such
            as "bert-base-uncased"; see `find_checkpoint`.
        device: the device for the model, as torch names it, or "auto".

    Returns:
        (MaskedLanguageModel, tokenizer of transformers).

    Raises:
        OSError: there is no such checkpoint, there is no network to fetch it, or a file is missing
            or damaged.
        ValueError: a model of another family; a weight of the encoder that is missing, has another
            shape, or is not floating point; a tokenizer that has more tokens than the model, or
            whose vocabulary has lost its first lines.
        ImportError: a package that this tokenizer needs is not installed.

    Warns:
        UserWarning: the warning names the weights of the head that are missing and therefore
            random, weights that are not finite, and what in the tokenizer may not fit the model.
    """
    device = torch_device("device", device)
    folder = find_checkpoint(name)
    theirs, missing = _read_model(folder)
    tokenizer = _read_tokenizer(folder, theirs.config)
    _refuse_larger(tokenizer, theirs.config.vocab_size)
    model = from_hf(theirs)
    doubts = _doubts(tokenizer, theirs.config)
    if missing:
        told = f"it has no {', '.join(missing)}: a fresh head with random weights stands there"
        remedy = "[training] head_steps of a recipe trains the head first"
        doubts.append(f"{told}, so train it before use ({remedy})")
    broken = [name for name, weight in theirs.named_parameters() if not weight.isfinite().all()]
    if broken:
        doubts.append(f"{len(broken)} of its weights hold NaN or infinity, such as {broken[0]}")
    if doubts:
        warnings.warn(f"{name}: {'; '.join(doubts)}", stacklevel=2)
    return model.to(device).eval(), tokenizer


def save_pretrained(model, tokenizer, folder):
    """Write a checkpoint that `AutoModelForMaskedLM` and `AutoTokenizer` of transformers open.

    All files are written into a new folder first, which takes the place of the old one at the end.
    A crash therefore leaves the old checkpoint whole. Other files in the folder, such as notes or
    an open log, stay as they are. The weights are written as safetensors in the dtype of the model,
    and a tied matrix is written once.

    Args:
        model: a `MaskedLanguageModel` that `to_hf` can convert.
        tokenizer: a `WordPieceTokenizer` or a tokenizer of transformers.
        folder: the folder to write; it is made if it does not exist.

    Raises:
        ValueError: a model that transformers has no class for, a tokenizer that has more tokens
            than the model, or an empty name.
        OSError: the folder cannot be written.
    """
    folder = path_name("folder", folder)
    theirs, config = to_hf(model), model.embedder.config
    ours = isinstance(tokenizer, WordPieceTokenizer)
    fast = tokenizer.to_hf() if ours else tokenizer
    _refuse_larger(fast, config.vocab_size)
    if ours:
        fast.model_max_length = config.max_length
        if not hasattr(theirs.config, "type_vocab_size"):  # the model has no segments
            fast.model_input_names = ["input_ids", "attention_mask"]
    if hasattr(theirs.config, "cls_token_id"):  # the configuration repeats the tokenizer's ids
        theirs.config.update({name: getattr(fast, name) for name in TOKEN_IDS})
    with _quietly(), _writing(folder), write_folder(folder, OWN_FILES) as stage:
        theirs.save_pretrained(stage)
        for file in stage.glob("*.safetensors"):
            # safetensors lets only the owner read its file. It gets the permissions of the others.
            shutil.copymode(stage / "config.json", file)
        fast.save_pretrained(stage)
        if ours:
            tokenizer.save(stage / "vocab.txt")


# ------------------------------------------------------------------------------------ finding


def find_checkpoint(name):
    """The folder that holds a checkpoint, which is downloaded first if it is on the hub.

    The name is looked up as a folder, then among the checkpoints that came with the course, and
    then on the hub. What was downloaded before is found even without a network.

    Args:
        name: a folder, "course-bert", "course-writer", or the id of a checkpoint on the hub, such
            as "bert-base-uncased".

    Raises:
        OSError: there is no such checkpoint, or no network to fetch it.
        ValueError: an empty name, or None.
    """
    name = path_name("name", name)
    own = Path(os.path.expanduser(name))
    # sentence-transformers puts the model into a folder 0_Transformer.
    for folder in (own, own / "0_Transformer", DATA / name):
        if (folder / "config.json").is_file():
            return folder
    wanted = {"ignore_patterns": "*/*", "allow_patterns": ["*.json", "*.txt", WEIGHT_FILES]}
    try:
        # These two requests give up after ten seconds. A download would wait for a silent hub for
        # minutes, or without end.
        listed = HfApi().model_info(name, timeout=10, files_metadata=True).siblings
        get_hf_file_metadata(hf_hub_url(name, "config.json"), timeout=10)
        sizes = {file.rfilename: file.size for file in listed if file.size is not None}
        limit = {"tqdm_class": _limited(MAX_DOWNLOAD * sum(sizes.values()))}
        folder = Path(snapshot_download(name, **wanted, **limit))
        if not any(folder.glob(WEIGHT_FILES)):
            snapshot_download(name, allow_patterns=PICKLE_FILES, **limit)
        # A hub that sent another page, or nothing, in place of a file has left it in the cache:
        # such a file is downloaded once more.
        if wrong := _files_of_another_size(folder, sizes):
            snapshot_download(name, allow_patterns=wrong, force_download=True, **limit)
        wrong = _files_of_another_size(folder, sizes)
    except ImportError:
        raise
    except Exception as error:  # errors of the network, the hub and the name share no other class
        with suppress(Exception):
            return Path(snapshot_download(name, local_files_only=True, **wanted))
        raise OSError(
            f"{name}: no folder with a config.json; the hub: {_one_line(error)}"
        ) from error
    for file in wrong:
        found = f"{(folder / file).stat().st_size} bytes instead of {sizes[file]}"
        told = f"{name}: what the hub sent as {file} has {found}, so it is something else"
        raise OSError(f"{told}; look at it in {folder}, or try again later")
    return folder


def _files_of_another_size(folder, sizes):
    """The names of the files in a folder whose size is not the one that the hub lists."""
    found = {file: folder / file for file in sizes if (folder / file).is_file()}
    return [file for file, path in found.items() if path.stat().st_size != sizes[file]]


def _limited(most):
    """A class of progress bars that end a download after more than `most` bytes.

    huggingface_hub asks again as long as it receives something. Without a limit, a server that
    breaks off each file before its end would be asked again for ever.
    """

    class Limited(tqdm):
        received = 0

        def update(self, n=1):
            self.received += max(n or 0, 0)  # n is negative if a file begins again
            if self.received > most > 0:
                told = "the download broke off again and again"
                raise OSError(f"{told}, after {self.received:,} bytes in all")
            return super().update(n)

    return Limited


# ------------------------------------------------------------------------------------ reading


def _read_model(folder):
    """transformers' model of a folder, and the names of the head's weights that are not there."""
    with _reading(folder):
        settings = json.loads((folder / "config.json").read_bytes())
    if not isinstance(settings, dict):
        raise _cannot_be_read(folder, "config.json holds no settings")
    kind = settings.pop("model_type", "bert")
    if str(kind) not in FAMILIES:
        raise ValueError(f"{folder} holds a {kind!r} model; only a {' or a '.join(FAMILIES)} fits")
    if "quantization_config" in settings:  # the factors of the quantisation would not be read
        raise ValueError(f"{folder} is quantised; take the original")
    family = FAMILIES[kind]
    settings = {name: settings[name] for name in family.file_settings if name in settings}
    # This comes first, because transformers makes a list with an entry for each layer.
    layers = family.config_names["num_layers"]
    whole_number(layers, settings.get(layers, 1), most=MAX_LAYERS)
    weights = _weights(folder, family)
    # Random numbers are drawn only for a missing head, and from a copy of the generator.
    with _quietly(), _reading(folder), torch.random.fork_rng(devices=[]):
        theirs, info = family.model_class.from_pretrained(
            folder if weights is None else None,
            state_dict=weights,
            config=AutoConfig.for_model(kind, **settings),
            dtype=torch.float32,
            ignore_mismatched_sizes=True,  # they are refused below, by name
            output_loading_info=True,
        )
    missing = sorted(info["missing_keys"])
    wrong = [name for name in missing if name.startswith(theirs.base_model_prefix)]
    for name, found, asked in info["mismatched_keys"]:
        wrong.append(f"{name} is {tuple(found)} instead of {tuple(asked)}")
    if wrong:
        told = f"{folder} lacks {len(wrong)} weights of its configuration: {wrong[0]}"
        others = sorted(info["unexpected_keys"])
        raise ValueError(
            f"{told}; it holds {others[0]}, for which the model has no place" if others else told
        )
    return theirs, missing


def _read_tokenizer(folder, config):
    """transformers' tokenizer of a folder."""
    # Without either file, transformers would make a tokenizer that knows no words.
    if not any((folder / file).is_file() for file in ("tokenizer.json", "vocab.txt")):
        raise _cannot_be_read(folder, "no tokenizer.json or vocab.txt")
    with _quietly(), _reading(folder):
        found = AutoTokenizer.from_pretrained(folder, config=config, trust_remote_code=False)
    if not hasattr(config, "type_vocab_size"):  # the model has no segments, so it takes no types
        found.model_input_names = [n for n in found.model_input_names if n != "token_type_ids"]
    return found


def _weights(folder, family):
    """A folder's weights under transformers' names, or None if its files have these names already.

    Other programs put the weights into a dictionary within the file (`state_dict`, `model`), or
    write something before each name (`module.`, `_orig_mod.`, `model.`). Both are removed here.

    Raises:
        ValueError: weights that were rounded to whole numbers or to 8 bits, which transformers
            would take for the true values; several models.
    """
    files = sorted(folder.glob(WEIGHT_FILES)) or sorted(folder.glob(PICKLE_FILES))
    names, nested = {}, False
    for file in files:
        # On the device "meta" a tensor has a dtype and a shape, but takes no memory.
        weights, within = _weights_in_file(file, family, "meta")
        nested |= within
        for name, weight in weights.items():
            rounded = not weight.dtype.is_floating_point or weight.dtype.itemsize < 2
            # Whole numbers are right in `position_ids` of old versions, and in counts without axes.
            if rounded and weight.dim() and not name.endswith("position_ids"):
                found = f"{name} is {weight.dtype} in {file}"
                raise ValueError(f"{found}, so quantised; take the original")
            names[name] = name.replace("_orig_mod.", "")  # torch.compile writes it within a name
    prefixes = {
        _prefix(name, family) for name in names.values() if name.endswith(family.word_embeddings)
    }
    if "" in prefixes:  # these are transformers' own names, so other names are of other things
        prefixes = {""}
    if len(prefixes) > 1:
        found = ", ".join(f"'{prefix}…'" for prefix in sorted(prefixes))
        raise ValueError(f"{folder} holds several models, {found}; keep the weights of one")
    names = {name: plain.removeprefix("".join(prefixes)) for name, plain in names.items()}
    if not nested and all(name == plain for name, plain in names.items()):
        return None
    found = [_weights_in_file(file, family, "cpu")[0] for file in files]
    return {names[name]: weight for weights in found for name, weight in weights.items()}


def _prefix(name, family):
    """What another program wrote before transformers' name of the word embeddings.

    >>> _prefix("module.bert.embeddings.word_embeddings.weight", FAMILIES["bert"])
    'module.'
    """
    start, own = name.removesuffix(family.word_embeddings), family.encoder_prefix
    return start.removesuffix(own) if f".{start}".endswith(f".{own}") else start


def _weights_in_file(file, family, device):
    """The weights in a file by name, and whether they are in a dictionary within another one."""
    with _reading(file):
        held = load_state_dict(file, map_location=device)
    if not isinstance(held, dict):
        raise _cannot_be_read(file, "it holds no weights by name")
    models = list(_models_in(held, family)) or [held]
    if not all(isinstance(weight, torch.Tensor) for weight in models[0].values()):
        raise _cannot_be_read(file, "it holds more than tensors")
    if len(models) > 1:
        raise ValueError(f"{file} holds {len(models)} models; keep the weights of one")
    return models[0], models[0] is not held


def _models_in(held, family):
    """Yields each dictionary, at any depth, that has a name of the word embeddings."""
    if any(str(name).endswith(family.word_embeddings) for name in held):
        yield held
    else:
        for value in held.values():
            if isinstance(value, dict):
                yield from _models_in(value, family)


# ------------------------------------------------------------------------------------ errors


@contextmanager
def _reading(place):
    """Turns an error that a file causes in another library into an OSError of one line.

    A damaged or hostile file can make a library raise nearly any error: a size of 0, for example,
    becomes a ZeroDivisionError. Therefore only calls of other libraries are inside this block,
    so that a bug of ours keeps its own error. An ImportError is not changed, because it is never
    caused by the file: it says which package is missing.
    """
    try:
        yield
    except ImportError:
        raise
    except UnpicklingError:  # its text would explain how to run the code in the file
        raise _cannot_be_read(place, "it holds more than tensors") from None
    except Exception as error:
        raise _cannot_be_read(place, _one_line(error)) from error


def _cannot_be_read(place, reason):
    """The error for a file or a folder that is damaged or hostile."""
    return OSError(f"{place} cannot be read; save or download it again ({reason})")


@contextmanager
def _writing(folder):
    """Turns the errors of a full disk or a forbidden folder into an OSError of one line."""
    try:
        yield
    except Exception as error:
        # The library `tokenizers` has no class for errors of files: it raises Exception.
        if not isinstance(error, (OSError, SafetensorError)) and type(error) is not Exception:
            raise
        told = f"{folder} cannot be written; what it held is still there"
        raise OSError(f"{told} ({_one_line(error)})") from error


@contextmanager
def _quietly():
    """Keeps transformers from showing progress bars and from a warning that is a false alarm.

    The false alarm says that a checkpoint without a head seems to be corrupted. `load_checkpoint`
    makes a head in this case, and warns of it with its own words.
    """
    bar, log = logging.is_progress_bar_enabled(), logging.get_logger(LOADER_LOG)
    logging.disable_progress_bar()
    log.addFilter(_is_no_false_alarm)
    try:
        yield
    finally:
        log.removeFilter(_is_no_false_alarm)
        if bar:
            logging.enable_progress_bar()


def _is_no_false_alarm(record):
    """Whether a record of transformers' log is worth showing."""
    return "checkpoint seem corrupted" not in record.getMessage()


def _one_line(error):
    """The message of an error, on one line."""
    return " ".join(str(error).split())


# ------------------------------------------------------------------------------------ tokenizers


def _refuse_larger(tokenizer, vocab_size):
    """Refuses a tokenizer that has ids for which the model has no row."""
    last = max(tokenizer.get_vocab().values())
    if last >= vocab_size:
        told = f"the tokenizer has ids up to {last}, but the model {vocab_size} tokens only"
        raise ValueError(
            f"{told}; resize_token_embeddings of transformers adds rows for new tokens"
        )


def _doubts(tokenizer, config):
    """Reasons to doubt that a tokenizer belongs to a model, as sentences.

    It was checked before that the model has a row for each id.

    If a vocabulary has lost its first lines, every id is shifted, and nothing else would show it.
    Two things happen then. `[PAD]` is among the missing tokens, so that transformers adds it again
    at the end; and the configuration gives it another id. Both together are an error. A different
    pad id alone is not an error: many checkpoints were trained with [UNK] [CLS] [SEP] [PAD] [MASK]
    in front and with the default of 0 in the configuration. They predict well, because padding is
    masked by position and not by id.

    Raises:
        ValueError: the vocabulary lacks special tokens, and `pad_token_id` is another token's id.
    """
    doubts, vocabulary = [], tokenizer.get_vocab()
    pad, said = tokenizer.pad_token_id, config.pad_token_id
    if None not in (pad, said) and pad != said:
        other = f"{tokenizer.convert_ids_to_tokens(said)!r}, not {tokenizer.pad_token!r}"
        doubts.append(f"pad_token_id={said} in its configuration is {other}")
    special = tokenizer.special_tokens_map.values()
    added = [token for token in special if vocabulary[token] >= tokenizer.vocab_size]
    # A ModernBERT's tokenizer keeps all special tokens apart from its vocabulary.
    if added and config.model_type != "modernbert":
        doubts.append(f"its vocabulary lacks {', '.join(added)}")
        if len(doubts) == 2:
            raise ValueError(f"{tokenizer.name_or_path}: {', and '.join(doubts)}: all ids shift")
    if config.vocab_size - len(vocabulary) > UNUSED_ROWS:
        doubts.append(f"its tokenizer has {len(vocabulary)} tokens, the model {config.vocab_size}")
    return doubts + _doubts_of_case(tokenizer)


def _doubts_of_case(tokenizer):
    """Reasons to doubt that a tokenizer treats capitals and accents as its vocabulary needs it.

    A vocabulary does not say how texts were prepared for it. If the other files beside it do not
    say it either, transformers turns all letters into lower case. In a vocabulary with capital
    letters it then finds only small pieces.
    """
    fast = getattr(tokenizer, "backend_tokenizer", None)
    if fast is None or not isinstance(fast.model, WordPiece) or fast.normalizer is None:
        return []
    prepared = {}  # {word of the vocabulary: what the tokenizer makes of this word in a text}
    tokens = tokenizer.get_vocab().keys() - tokenizer.get_added_vocab().keys()
    for word in {token.removeprefix("##") for token in tokens}:
        # A word that is split at its punctuation, such as [unused1], is never looked up.
        if fast.pre_tokenizer is None or len(fast.pre_tokenizer.pre_tokenize_str(word)) == 1:
            prepared[word] = fast.normalizer.normalize_str(word).strip()
    capitals = {word for word in prepared if word != word.lower()}
    lost = sorted(word for word in prepared if prepared[word] != word)
    if lost:
        example, does, setting = lost[0], "takes accents off", "strip_accents"
        if cased := sorted(capitals & set(lost)):
            example, does, setting = cased[0], "lower-cases", "do_lower_case"
        elif " " in prepared[example]:
            does, setting = "sets Chinese characters apart", "tokenize_chinese_chars"
        told = f"its tokenizer {does}, so that {len(lost)} words of its vocabulary are never found"
        return [
            f'{told}, such as {example!r}; "{setting}": false in tokenizer_config.json may help'
        ]
    has_letters = any(word != word.upper() for word in prepared)  # that could be capitals
    if has_letters and not capitals and fast.normalizer.normalize_str("A") == "A":
        told = "its tokenizer keeps capital letters, but its vocabulary has none"
        return [f'{told}; "do_lower_case": true in tokenizer_config.json may help']
    return []
