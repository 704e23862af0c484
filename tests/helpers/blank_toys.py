"""What the tests of docs/site/fill_the_blank share: its modules, odd strings, a server."""

import contextlib
import functools
import http.server
import importlib.util
import random
import sys
import threading
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "site" / "fill_the_blank"


def module(name):
    """A Python file of the page's folder, which is no package."""
    full = f"fill_the_blank_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, FOLDER / f"{name}.py")
        found = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found)
        sys.modules[full] = found
    return sys.modules[full]


# ------------------------------------------------------------------------------------ strings


def span(first, last):
    return [chr(point) for point in range(first, last + 1)]


KINDS = [
    [*"abcdefghijklmnopqrstuvwxyz", "the", "film", "ing", "movie", "unaffable", "[MASK]"],
    [*"ABCDEFGHIJKLMNOPQRSTUVWXYZ", "[mask]", "[ MASK ]", "[SEP]", "[MASK", "MASK]", "[UNK]"],
    [*" \t\n\r\x0b\x0c\x85\xa0\u1680\u2003\u2028\u2029\u202f\u3000", " ", "  "],
    span(0x00, 0x1F) + span(0x7F, 0x9F) + list("\xad\ufeff\u200e\u202e\u2066\ufffd\ue000"),
    span(0x21, 0x2F) + span(0x5B, 0x60) + list("«»¿—‘’“”…、。・\u0964\u061f"),
    span(0xC0, 0x17F) + span(0x1E00, 0x1EFF) + list("ßẞİıſǅΣςσΐ"),
    span(0x300, 0x36F) + list("\u0345\u0591\u05b0\u0e38\u0f71\u3099\u20d0\u302e\U0001d165"),
    list("中文北京字\u3400\u4dbf\uf900\U00020000\U0002a6df\U0002b820\U0002f800\u3007々"),
    list("ひらがなカタカナガパ々〆ー") + span(0xAC00, 0xAC20) + span(0x1100, 0x1112),
    list("مرحبا\u064e\u0651\u0623\u06f1\u0640नमस्तेไทย\u0e33"),
    [*"😀👍🏽❤️🇫🇷👩\u200d💻\ufe0f\u20e3", "👩\u200d👩\u200d👧", "ﬁ", "Ⅳ", "①", "½", "𝔘", "𐐀", "Ꭰ"],
    ["x" * 99, "x" * 100, "x" * 101, "é" * 100, "𝔘" * 100, "0123456789", "3.14", "don't"],
]


def odd_strings(count=1000, seed=0):
    """Texts that have tripped tokenizers: each of a few kinds of characters, some blanks inside."""
    rng, texts = random.Random(seed), ["", " ", "[MASK]", "a[MASK]b", "[MASK][MASK]", "[[MASK]]"]
    while len(texts) < count:
        kinds = rng.sample(KINDS, rng.randint(1, 4))
        parts = [rng.choice(rng.choice(kinds)) for _ in range(rng.randint(1, 40))]
        if rng.random() < 0.2:
            parts.insert(rng.randint(0, len(parts)), "[MASK]")
        texts.append("".join(parts))
    return texts


# ------------------------------------------------------------------------------------ server


@contextlib.contextmanager
def served(folder):
    """Serves a folder on 127.0.0.1; yields its URL and the paths that it did not have."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def send_error(self, code, *args, **kwargs):
            missing.append((code, self.path))
            super().send_error(code, *args, **kwargs)

    missing = []
    handler = functools.partial(Handler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", missing
        finally:
            server.shutdown()
