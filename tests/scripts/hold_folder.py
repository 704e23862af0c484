"""Holds a folder with only_writer and says so, until it is killed."""

import json
import sys
import time

from mlm_lib.files import only_writer

try:
    with only_writer(sys.argv[1]):
        print(json.dumps("held"), flush=True)
        time.sleep(600)
except BlockingIOError as error:
    print(json.dumps(str(error)), flush=True)
