"""Holds the folder of its argument until its standard input ends; says "held", or why it cannot."""

import sys

from mlm_lib.engine.files import only_writer

try:
    with only_writer(sys.argv[1]):
        print("held", flush=True)
        sys.stdin.read()
except BlockingIOError as error:
    print(error, flush=True)
