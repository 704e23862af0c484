"""Text in: load it, check it, split it, pack it. Built in lesson 01.

Everything here works on plain strings and lists. Four sources need no network: our grammar's
documents, our own reviews, the docstrings of the installed packages, and your files.
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
    """The texts of one split of a corpus, as a list of non-empty strings.

    Args:
        source: `"grammar"` (a sample of `data/grammar.toml`'s documents), `"reviews"`, `"docs"`, a
            path, or `"hub:NAME[:CONFIG][:COLUMN]"`. A path names a file or a folder. If a `.txt` or
            `.text` file has blank lines, they separate the texts; if it has none, each line is a
            text. In a table (`.csv`, `.tsv`, `.jsonl`, `.json`, `.parquet`) the column `text` is
            read. Another column is named after a colon, as in `films.csv:body` or
            `my_folder:body`. All of these files but Parquet may be packed as `.gz`. Of a folder all
            such files are read, also those in the folders below it. Left out are hidden files,
            files named README, LICENSE and the like, and, as in `aclImdb`, lists beside the folders
            `pos` and `neg`. Markdown is not read, because its marks are not prose. A warning counts
            and names the files that are left out, except the hidden ones.
        split: `"train"` (80%), `"validation"` (10%) or `"test"` (10%). A hub data set keeps the
            splits it has.
        seed: chooses another division into splits. The division depends on the texts and the seed
            alone, never on their order; equal texts share a split, so none can see another's text.

    Raises:
        ValueError: unknown split, a kind of file that is not read, a file without text or not in
            UTF-8, a missing column, a cell that holds half of a character, an empty split.
        FileNotFoundError: no corpus of that name and no file at that path.
        ConnectionError: a hub name without a network and not in the local cache.
    """
    choice("split", split, SPLITS)
    if str(source).startswith("hub:"):
        return _from_hub(source, split, seed)
    # Path("docs") is the folder, "docs" the corpus.
    texts = load_docs() if source == "docs" else read_texts(_SHIPPED.get(source, source))
    return _split(texts, split, seed, source)


def split_to_train(source, share=None, *, without=(), seed=0):
    """The texts to train on, those held out to evaluate on, and those of a test split, as lists.

    A test split is kept only where it is used: the course's corpora have one, because lessons
    measure on it, and some hub data sets have one. Of your own files no text is kept for a test.

    Args:
        source: as `load_corpus` takes it.
        share: the share of the distinct texts that is held out. None takes the validation split of
            a hub data set, if it has one, and otherwise a tenth: the validation split of
            `load_corpus`.
        without: files of the folder `source` that are not read.
        seed: as of `load_corpus`.

    Raises:
        ValueError: as of `load_corpus`; a share that leaves nothing to train on.
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
                told = f"{source} has a validation split of its own"
                raise ValueError(f"{told}; leave validation_share={share} out")
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
        told = f"{source} holds {len(rank)} distinct texts, too few to hold some of them out"
        raise ValueError(
            f"{told}; add texts, or name other texts to evaluate on: validation = PATH"
        )
    if count >= len(rank):
        told = f"validation_share={share} holds out all {len(rank):,} distinct texts of {source}"
        raise ValueError(f"{told}; lower it")
    held = set(rank[:count])
    train = [text for text in texts if text not in held and text not in kept]
    return train, [text for text in texts if text in held], test


def pack_blocks(encoded, block_size, *, cls_id, sep_id):
    """Cut a stream of encoded texts into full blocks, so that no position is padding.

    >>> pack_blocks([[5, 6, 7], [8], [9, 10]], 5, cls_id=1, sep_id=2).tolist()
    [[1, 5, 6, 7, 2], [1, 2, 8, 2, 2]]

    Args:
        encoded: an iterable of lists of token ids, without special tokens. Empty ones are left out.
        block_size: the length of a block, its `[CLS]` and `[SEP]` included; 3 or more.
        cls_id, sep_id: the ids of `[CLS]` and `[SEP]`.

    Returns:
        A long tensor (n, block_size). What is left over at the end, less than a block, is not used.

    Raises:
        ValueError: too few ids for one block.
    """
    whole_number("block_size", block_size, 3)  # [CLS], one token, [SEP]
    # 1. One stream, with a [SEP] between two texts: 5 6 7 [SEP] 8 [SEP] 9 10
    stream = []
    for ids in encoded:
        if stream and ids:
            stream.append(sep_id)
        stream.extend(ids)
    # 2. Pieces of block_size − 2: 5 6 7 | [SEP] 8 [SEP] | 9 10 is left over
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
    """The distinct texts in an order that looks random, by the texts and the seed alone."""

    def number(text):
        return hashlib.blake2b(f"{seed}\0{text}".encode(), digest_size=8).digest()

    return sorted(set(texts), key=number)


def _split(texts, split, seed, source):
    """The texts that belong to a split, in the order given."""
    # 1. Each distinct text has a number that looks random: a hash of the seed and the text itself.
    # 2. Ranked by it, no text's place depends on its place in the file or on how often it comes.
    rank = _ranked(texts, seed)
    # 3. The first tenth is validation, the second test, the rest training: exact proportions.
    tenth = max(1, round(0.1 * len(rank))) if len(rank) >= 3 else 0
    held_out = {"validation": rank[:tenth], "test": rank[tenth : 2 * tenth]}
    chosen = set(held_out.get(split, rank[2 * tenth :]))
    if not chosen:
        raise ValueError(f"{source} holds {len(rank)} distinct texts; a {split} split needs 3")
    return [text for text in texts if text in chosen]


# ------------------------------------------------------------------------------------ the hub


def _from_hub(source, split, seed):
    """`hub:NAME[:CONFIG][:COLUMN]`, through `datasets` and its local cache."""
    tables, column = _hub(source)
    texts = _column(tables, split if split in tables else "train", column, source)
    # A held-out split that the data set lacks is cut from its training split.
    missing = [part for part in SPLITS if part not in tables]
    if split in missing:
        return _split(texts, split, seed, source)
    cut = {text for part in missing for text in _split(texts, part, seed, source)}
    return [text for text in texts if split != "train" or text not in cut]


def _hub(source):
    """The splits that a hub data set has, and the name of the column to read."""
    _, name, *rest = source.split(":")
    try:
        return _open_tables(name, *rest)
    except OSError as error:  # also ConnectionError and "not found"
        told = f"could not get {name!r} from the hub ({type(error).__name__}: {error})"
        still = "Check the name. Without a network 'reviews', 'docs' and your own files work"
        raise ConnectionError(f"{told}. {still}") from error


def _column(tables, split, column, source):
    """The texts of a hub data set's own split, without blank ones."""
    table, name = tables[split], source.split(":")[1]
    if column not in table.column_names:
        told = f"{name} has no column {column!r}; it has {table.column_names}"
        raise ValueError(f"{told}. Name yours last: 'hub:{name}:COLUMN'")
    texts = [text for text in table[column] if isinstance(text, str) and text.strip()]
    if not texts:
        raise ValueError(f"{source}: column {column!r} holds no text")
    return texts


def _open_tables(name, *rest):
    """All splits, and the column to read. A lone part is a configuration, if one is so called."""
    from datasets import load_dataset  # heavy, and only this source needs it

    if len(rest) != 1:
        return load_dataset(name, *rest[:1]), rest[-1] if rest else "text"
    try:
        return load_dataset(name, rest[0]), "text"
    except ValueError:
        return load_dataset(name), rest[0]
