"""From texts to rows of ids, and what tells the same texts from others. Built in lesson 08."""

import hashlib
import os


def row_encoder(tokenizer):
    """A function from texts to rows of ids, [CLS] and [SEP] included, by the compiled tokenizer."""
    fast = tokenizer.to_hf()
    fast.model_max_length = 10**9  # with less it warns of long texts that are cut up later

    def encode(texts, max_length=None):
        cut = {"truncation": True, "max_length": max_length} if max_length else {}
        return fast(texts, **cut)["input_ids"] if texts else []

    return encode


def settings_of(corpus, **settings):
    """Of a path only the last part: texts that moved to another folder are the same."""
    return {"corpus": os.path.basename(corpus), **settings}


def digest_of(texts):
    """A hash of texts in their order, with a NUL after each."""
    digest = hashlib.blake2b(digest_size=8)
    for text in texts:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()
