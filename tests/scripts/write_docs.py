"""Prints the docs of the folder STDLIB; KILL ends the process before they are kept whole."""

import os

from mlm_lib.engine import docstrings

docstrings.DOCS_PACKAGES = ()
docstrings.sysconfig.get_paths = lambda: {"stdlib": os.environ["STDLIB"]}
if os.environ["KILL"]:
    os.fsync = os.replace = lambda *_: os._exit(9)
print(docstrings.load_docs())
