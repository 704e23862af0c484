"""Holds the folder of its argument against other programs until its standard input ends."""

import sys

from mlm_lib.files import only_writer

with only_writer(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
