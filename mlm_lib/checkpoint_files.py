"""A checkpoint's files: found in a folder, in the course or on the hub, and read. In lesson 07.

Their content is not ours, so all of it may be damaged, missing or hostile: nothing here runs code
from a file, leaves the checkpoint's folder, or ends in the error of a library.
"""

import json
import pickle
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

from mlm_lib import DATA
from mlm_lib.checks import path_name

WEIGHT_FILES = (  # the first that is there is read
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
    *("config.json", *TOKENIZER_FILES),
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
)
# All that a save replaces in a folder.
OWN_FILES = (*SETTINGS, *WEIGHT_FILES, *SHARDS.values(), "generation_config.json")


def one_line(error):
    """An error's class and message on one line.

    >>> one_line(KeyError("weight_map"))
    "KeyError: 'weight_map'"
    """
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


# ------------------------------------------------------------------------------------ finding


def find_checkpoint(name):
    """The folder that holds a checkpoint.

    The name is looked up as a folder, then as a checkpoint that came with the course, then in the
    hub's local cache, and then on the hub, from where it is fetched.

    Args:
        name: a folder, "course-bert", "course-writer", or a hub id such as "bert-base-uncased".

    Raises:
        OSError: there is no such checkpoint, or no network to fetch it.
        ValueError: an empty name, or None.
    """
    name = path_name("name", name)
    for folder in (Path(name).expanduser(), DATA / name):
        if folder.is_dir():
            if not (folder / "config.json").is_file():
                raise FileNotFoundError(f"{folder} holds no config.json, so it is not a checkpoint")
            return folder
    try:
        # Without a pattern the client calls a cache incomplete for want of files nobody here reads.
        only = ["config.json"]
        cached = Path(snapshot_download(name, local_files_only=True, allow_patterns=only))
        if _is_complete(cached):
            return cached
    except HFValidationError:
        raise FileNotFoundError(
            f"there is no folder {name}, and a hub id would look like 'bert-base-uncased'"
        ) from None
    except OSError:
        pass  # not in the cache
    fetched = _ask_hub(name)
    if fetched is None:
        raise FileNotFoundError(f"{name} on the hub holds no config.json; it is not a checkpoint")
    return fetched


def _is_complete(folder):
    """Whether a snapshot holds what is read; the cache keeps broken-off ones too."""
    tokenizer = any((folder / file).is_file() for file in TOKENIZER_FILES)
    try:
        return (folder / "config.json").is_file() and tokenizer and bool(_weight_files(folder))
    except OSError:
        return False


def _ask_hub(name):
    """The folder of a fetched checkpoint; whatever goes wrong is one sentence on what to do."""
    try:
        return _download(name)
    except GatedRepoError as error:
        raise OSError(
            f"{name} is gated: accept its terms on the hub, then log in with `hf auth login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise OSError(
            f"{name} is no folder, no checkpoint of the course, and unknown to the hub; "
            "check the spelling"
        ) from error
    except HfHubHTTPError as error:
        raise OSError(
            f"the hub refused {name} ({one_line(error)}); if it wants a token, "
            "log in with `hf auth login`"
        ) from error
    except Exception as error:  # whatever the network does, the reader needs the same sentence
        raise OSError(
            f"{name} is no folder, not shipped with the course, not in the hub's cache, and the "
            'hub cannot be reached: connect to a network once, give a folder, or use "course-bert"'
        ) from error


def _download(name):
    """Fetch what is read, and no weights twice in two formats. The folder in the cache, or None."""
    offered = {file.rfilename for file in HfApi().model_info(name, revision="main").siblings}
    if "config.json" not in offered:
        return None
    wanted = [file for file in SETTINGS if file in offered]
    weights = next((file for file in WEIGHT_FILES if file in offered), None)
    if weights:
        shards = sorted(file for file in offered if fnmatch(file, SHARDS.get(weights, "")))
        wanted += [weights, *shards]
    return [Path(hf_hub_download(name, file)).parent for file in wanted][0]


# ------------------------------------------------------------------------------------ reading


def read_settings(folder):
    """What `config.json` says, as a dictionary.

    Raises:
        OSError: the file is missing, damaged, or holds something else.
    """
    file = Path(folder) / "config.json"
    settings = _read(file, lambda file: json.loads(file.read_text(encoding="utf-8")))
    if not isinstance(settings, dict):
        raise OSError(f"{file} holds a {type(settings).__name__}, not the settings of a model")
    return settings


def read_weights(folder):
    """Every tensor of a checkpoint by its name on disk, in one file or several.

    Raises:
        OSError: a file is missing or damaged, or holds more than tensors.
    """
    weights = {}
    for file in _weight_files(Path(folder)):
        found = _read(file, load_file if file.suffix == ".safetensors" else _unpickle)
        for name, tensor in found.items():
            if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
                raise OSError(f"{file}: {name!r} does not name a tensor; these are no weights")
        weights |= found
    return weights


def _weight_files(folder):
    """The files that hold a checkpoint's weights; each is there."""
    for name in WEIGHT_FILES:
        if (folder / name).is_file():
            files = _read(folder / name, _shards) if name in SHARDS else [folder / name]
            for file in files:
                if not file.is_file():
                    raise FileNotFoundError(f"{file} is missing; save or download it again")
            return files
    raise FileNotFoundError(f"{folder} holds no weights; looked for {', '.join(WEIGHT_FILES)}")


def _shards(index):
    names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    for name in names:
        if name != Path(name).name:
            raise ValueError(f"{name!r} is not a file beside it")
    return [index.parent / name for name in names]


def _read(file, read):
    try:
        return read(file)
    except FileNotFoundError:
        raise FileNotFoundError(f"{file} is missing; save or download it again") from None
    except pickle.UnpicklingError:  # its own text explains how to run the code in the file
        raise OSError(f"{file} is damaged, or holds more than tensors and is not opened") from None
    except Exception as error:
        raise OSError(
            f"{file} cannot be read ({one_line(error)}); it is damaged or incomplete: "
            "save or download it again"
        ) from error


def _unpickle(file):
    found = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(found, dict):
        raise TypeError(f"it holds a {type(found).__name__}, not tensors by name")
    return found
