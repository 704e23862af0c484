"""Prints what a first reading of the docs corpus gives, in which processor time, importing what."""

import json
import sys
import time

from mlm_lib.corpus import SPLITS, load_corpus
from mlm_lib.engine.docstrings import DOCS_PACKAGES

before, start = set(sys.modules), time.process_time()
load_corpus("docs")
seconds = time.process_time() - start
imported = {name.partition(".")[0] for name in set(sys.modules) - before}
parts = {split: load_corpus("docs", split) for split in SPLITS}
found = {"seconds": seconds, "parts": parts, "imported": sorted(imported & set(DOCS_PACKAGES))}
print(json.dumps(found))
