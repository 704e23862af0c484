"""Loading texts: from files, from the course's corpora or the hub, split for training and testing.

A text is a str, and a corpus is a list of texts. Four sources need no network: documents of the
course's grammar, the course's reviews, the docstrings of the installed packages, and your files.
Built in lesson 01.
"""

import hashlib

import torch

from mlm_lib import DATA
from mlm_lib.checks import choice, whole_number
from mlm_lib.engine.docstrings import load_docs
from mlm_lib.engine.text_files import read_texts

SPLITS = ("train", "validation", "test")
_SHIPPED = {"grammar": DATA / "grammar.txt", "reviews": DATA / "reviews.csv"}


def load_corpus(source, split="train", *, seed=0):
    """Loads the texts of one split of a corpus.

    >>> texts = load_corpus("reviews", "validation")
    >>> len(texts) > 0 and isinstance(texts[0], str)
    True

    How a file becomes texts depends on its suffix:

    - `.txt`, `.text`: if the file has blank lines, they separate the texts. If it has none, each
      line is a text.
    - `.csv`, `.tsv`, `.jsonl`, `.json`, `.parquet`: each row has a text, in the column `text`. To
      use another column, write a colon and its name, as in `films.csv:body` or `my_folder:body`.
    - All of these except `.parquet` may be compressed; such a file's name ends in `.gz`.
    - Markdown files are not read, because the marks of Markdown are not prose.

    If `source` is a folder, all such files in it and in its subfolders are read. Hidden files,
    README and LICENSE files are left out. If a folder has subfolders `pos` and `neg`, as in the
    film reviews `aclImdb`, the files directly in it are lists, not texts, and are left out too. The
    same holds for the folder that contains such a folder as `train` or `test`. A warning gives the
    number and the names of the files that are left out, except hidden files.

    Args:
        source: `"grammar"` (a sample of the documents of `data/grammar.toml`), `"reviews"`,
            `"docs"` (sentences from the docstrings of installed packages), the path of a file or
            folder, or `"hub:NAME[:CONFIG][:COLUMN]"` for a data set of the Hugging Face hub.
        split: `"train"` (80%), `"validation"` (10%) or `"test"` (10%). If a hub data set has a
            split of this name, that split is used.
        seed: with a different seed, the texts are divided into splits in a different way. The
            division depends only on the texts and the seed, not on the order of the texts. Equal
            texts are in the same split, so that no text is in two splits.

    Returns:
        A list of non-empty strings, in the order of the corpus.

    Raises:
        ValueError: the split is unknown or empty; a file is of a kind that is not read, has no text
            or is not UTF-8; a table does not have the column, or a cell is not valid text.
        FileNotFoundError: there is no corpus of that name and no file at that path.
        ConnectionError: a data set of the hub cannot be downloaded and is not in the local cache.
    """
    choice("split", split, SPLITS)
    if str(source).startswith("hub:"):
        return _from_hub(source, split, seed)
    # The str "docs" is the corpus; Path("docs") is a folder of that name.
    texts = load_docs() if source == "docs" else read_texts(_SHIPPED.get(source, source))
    return _split(texts, split, seed, source)


def split_to_train(source, share=None, *, without=(), seed=0):
    """Splits a corpus for pretraining, where as many texts as possible should be trained on.

    Only the course's corpora and some hub data sets have a test split here; `load_corpus` makes one
    for every source. From your own files no text is set aside for a test.

    Args:
        source: as in `load_corpus`.
        share: the share of the distinct texts that is held out. If None: a hub data set's
            validation split if it has one; else the same 10% as
            `load_corpus(source, "validation")`.
        without: files of the folder `source` that are not read.
        seed: as in `load_corpus`.

    Returns:
        Three lists of texts, which are the texts to train on, the texts held out to evaluate on,
        and the test split, which may be empty.

    Raises:
        ValueError: no text to train on is left; also in the same cases as in `load_corpus`.
    """
    if str(source).startswith("hub:"):
        tables, column = _hub(source)
        texts, test = _column(tables, "train", column, source), []
        if "test" in tables:
            test = _column(tables, "test", column, source)
        if "validation" in tables:
            own = _column(tables, "validation", column, source)
            if share is None:
                return texts, own, test
            if share:
                reason = f"{source} has a validation split of its own"
                raise ValueError(f"{reason}; leave validation_share={share} out")
            texts = texts + own
        kept = set()
    elif source == "docs" or source in _SHIPPED:
        texts = load_docs() if source == "docs" else read_texts(_SHIPPED[source])
        test = _split(texts, "test", seed, source)
        kept = set(test)
    else:
        texts, test, kept = read_texts(source, without), [], set()
    rank = _ranked(texts, seed)
    share = 0.1 if share is None else share
    count = max(1, round(share * len(rank))) if share else 0
    rank = [text for text in rank if text not in kept]
    if not rank:
        raise ValueError(f"{source} holds no text")
    if share and len(rank) < 3:
        reason = f"{source} holds {len(rank)} distinct texts, too few to hold some of them out"
        remedy = "add texts, or name other texts to evaluate on: validation = PATH"
        raise ValueError(f"{reason}; {remedy}")
    if count >= len(rank):
        reason = f"validation_share={share} holds out all {len(rank):,} distinct texts of {source}"
        raise ValueError(f"{reason}; lower it")
    held = set(rank[:count])
    train = [text for text in texts if text not in held and text not in kept]
    return train, [text for text in texts if text in held], test


def pack_blocks(encoded, block_size, *, cls_id, sep_id):
    """Packs encoded texts into blocks of equal length, so that no position is padding.

    The texts are joined to one stream, with `[SEP]` between two texts, and the stream is split into
    pieces. A block may therefore hold the end of one text and the start of the next.

    >>> pack_blocks([[5, 6, 7], [8], [9, 10]], 5, cls_id=1, sep_id=2).tolist()
    [[1, 5, 6, 7, 2], [1, 2, 8, 2, 2]]

    Args:
        encoded: an iterable of lists of token ids, without special tokens. Empty lists are skipped.
        block_size: the length of a block, with `[CLS]` and `[SEP]` at its ends; at least 3.
        cls_id, sep_id: the ids of `[CLS]` and `[SEP]`.

    Returns:
        A long tensor (n, block_size). If the last ids of the stream do not fill a block, they are
        not used.

    Raises:
        ValueError: there are too few ids for one block.
    """
    whole_number("block_size", block_size, 3)  # [CLS], one token, [SEP]
    # 1. One stream, with a [SEP] between two texts: 5 6 7 [SEP] 8 [SEP] 9 10
    stream = []
    for ids in encoded:
        if stream and ids:
            stream.append(sep_id)
        stream.extend(ids)
    # 2. Pieces of block_size − 2 ids: 5 6 7 | [SEP] 8 [SEP] | and 9 10 is left over
    inner = block_size - 2
    count = len(stream) // inner
    if count == 0:
        raise ValueError(f"{len(stream)} tokens do not fill one block of {block_size}; take more")
    body = torch.tensor(stream[: count * inner]).view(count, inner)
    # 3. A [CLS] before each piece and a [SEP] after it
    ends = torch.tensor([cls_id, sep_id]).expand(count, 2)
    return torch.cat([ends[:, :1], body, ends[:, 1:]], dim=1)  # (n, block_size)


# ------------------------------------------------------------------------------------ splits


def _ranked(texts, seed):
    """The distinct texts in a random order that depends only on the texts and the seed."""

    def number(text):
        return hashlib.blake2b(f"{seed}\0{text}".encode(), digest_size=8).digest()

    return sorted(set(texts), key=number)


def _split(texts, split, seed, source):
    """The texts that belong to a split, in the order of the corpus."""
    # 1. Each distinct text gets a number that looks random: a hash of the seed and the text.
    # 2. The texts are ranked by this number. A text's rank does not depend on its place in the file
    #    or on how often it occurs.
    rank = _ranked(texts, seed)
    # 3. The first tenth of the ranks is the validation split, the second tenth the test split, and
    #    the rest the training split.
    tenth = max(1, round(0.1 * len(rank))) if len(rank) >= 3 else 0
    held_out = {"validation": rank[:tenth], "test": rank[tenth : 2 * tenth]}
    chosen = set(held_out.get(split, rank[2 * tenth :]))
    if not chosen:
        raise ValueError(f"{source} holds {len(rank)} distinct texts; a {split} split needs 3")
    return [text for text in texts if text in chosen]


# ------------------------------------------------------------------------------------ the hub


def _from_hub(source, split, seed):
    """The texts of a split of `hub:NAME[:CONFIG][:COLUMN]`, with `datasets` and its local cache."""
    tables, column = _hub(source)
    texts = _column(tables, split if split in tables else "train", column, source)
    # If the data set has no validation or no test split, this split is taken from the training one.
    missing = [part for part in SPLITS if part not in tables]
    if split in missing:
        return _split(texts, split, seed, source)
    cut = {text for part in missing for text in _split(texts, part, seed, source)}
    return [text for text in texts if split != "train" or text not in cut]


def _hub(source):
    """A data set of the hub as {split: table}, and the name of the column to read."""
    _, name, *rest = source.split(":")
    try:
        return _open_tables(name, *rest)
    except OSError as error:  # ConnectionError and the error for an unknown name are among them
        reason = f"could not get {name!r} from the hub ({type(error).__name__}: {error})"
        remedy = "Check the name. Without a network 'reviews', 'docs' and your own files work"
        raise ConnectionError(f"{reason}. {remedy}") from error


def _column(tables, split, column, source):
    """The texts in a column of a split, without blank texts. The data set must have this split."""
    table, name = tables[split], source.split(":")[1]
    if column not in table.column_names:
        reason = f"{name} has no column {column!r}; it has {table.column_names}"
        raise ValueError(f"{reason}. Name yours last: 'hub:{name}:COLUMN'")
    texts = [text for text in table[column] if isinstance(text, str) and text.strip()]
    if not texts:
        raise ValueError(f"{source}: column {column!r} holds no text")
    return texts


def _open_tables(name, *rest):
    """The splits of a data set and the column to read, from the parts after its name.

    A single part is the name of a configuration if there is one of that name, otherwise a column.
    """
    from datasets import load_dataset  # takes seconds to import, and only this source needs it

    if len(rest) != 1:
        return load_dataset(name, *rest[:1]), rest[-1] if rest else "text"
    try:
        return load_dataset(name, rest[0]), "text"
    except ValueError:
        return load_dataset(name), rest[0]
