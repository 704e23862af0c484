"""Loads the corpora that CALLS names, [source, split] each, and prints their texts or errors."""

import json
import os
import time

from mlm_lib.corpus import load_corpus

time.sleep = lambda seconds: None  # the client waits longer and longer before it tries again
answers = []
for source, split in json.loads(os.environ["CALLS"]):
    try:
        answers.append(load_corpus(source, split))
    except Exception as error:
        answers.append([type(error).__name__, str(error)])
print(json.dumps(answers))
