"""A plugin of pytest for lessons that read this Python's own documentation, which differs from one
version to the next: they are compared with their stored outputs where it is the same, and are only
executed where it is another."""

import functools
import hashlib
import re
import warnings
from pydoc_data.topics import topics

from nbval.plugin import IPyNbCell

from mlm_lib.engine.docstrings import load_docs

READS = re.compile(r'"docs"|\bpydoc_data\b')
KEY = "texts_of_python"  # in a notebook's metadata, under mlm_course


@functools.cache
def fingerprint():
    """A name for all that the lessons can read of this Python and of the packages beside it."""
    texts = "\0".join([*load_docs(), *(topics[name] for name in sorted(topics))])
    return hashlib.blake2b(texts.encode(), digest_size=8).hexdigest()


def stamp(notebook):
    """Keep with a notebook that was just executed what texts its outputs were made from."""
    if any(READS.search(cell.source) for cell in notebook.cells if cell.cell_type == "code"):
        notebook.metadata.setdefault("mlm_course", {})[KEY] = fingerprint()


def pytest_collection_modifyitems(items):
    for item in items:
        if isinstance(item, IPyNbCell):
            stored = item.parent.nb.metadata.get("mlm_course", {}).get(KEY)
            if stored and stored != fingerprint():
                item.options["check"] = False
                told = "is executed, not compared: this Python's documentation is not what it read"
                warnings.warn(f"{item.path.name} {told} when its outputs were stored")
