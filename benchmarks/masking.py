"""Masking against transformers' `DataCollatorForLanguageModeling`: `python -m benchmarks.masking`.

Both sides do the same job on the same batch, with one thread. The batch holds movie reviews, split
by a WordPiece vocabulary that was trained on them.
"""

import random

import torch
from transformers import DataCollatorForLanguageModeling

from benchmarks.turns import arguments, compared, report
from mlm_lib.corpus import load_corpus
from mlm_lib.masking import MaskingCollator, mask_tokens
from mlm_lib.wordpiece import WordPieceTokenizer

SHAPES = ((256, 128), (64, 512))
THREADS = 1  # as many as a worker of a DataLoader has


def rows(args):
    """Measure each job on batches of each shape; yield a row of the table for each."""
    torch.set_num_threads(THREADS)
    random.seed(0)
    tokenizer = WordPieceTokenizer.train(load_corpus("reviews"), 4000)
    for size, length in SHAPES:
        batch, sides = jobs(tokenizer, size, length)
        for what, theirs, ours, claim in sides:
            yield compared(
                f"{what}, {size} × {length}", "", "transformers", (theirs, ours), at_least=claim,
                prepare=lambda batch=batch: (batch.clone(),), calls=2, warm_up=5, quick=args.quick,
            )  # fmt: skip


def jobs(tokenizer, size, length):
    """Prepare the jobs on batches of one shape.

    Returns:
        The ids (size, length), and for each job its name, the function of transformers, our
        function, and the ratio of their times that benchmarks/README.md claims.
    """
    hf_tokenizer = tokenizer.to_hf()
    encoded = hf_tokenizer(
        documents(size, length),
        truncation=True,
        max_length=length,
        padding="max_length",
        return_tensors="pt",
        return_special_tokens_mask=True,
        return_offsets_mapping=True,
    )
    batch, special = encoded["input_ids"], encoded["special_tokens_mask"]
    offsets = encoded["offset_mapping"]
    examples = [
        {"input_ids": ids[:used].tolist(), "attention_mask": [1] * used}
        for ids, used in zip(batch, encoded["attention_mask"].sum(1).tolist())
    ]
    theirs = DataCollatorForLanguageModeling(hf_tokenizer)
    their_words = DataCollatorForLanguageModeling(
        hf_tokenizer, whole_word_mask=True, mask_replace_prob=1, random_replace_prob=0
    )
    ours = MaskingCollator(tokenizer)
    ids_only = {"mask_token_id": ours.mask_token_id, "random_token_ids": ours.random_token_ids}

    def our_words(ids, **options):
        word_ids = (~ours.is_continuation[ids]).cumsum(1)
        return mask_tokens(
            ids, special_tokens_mask=special, word_ids=word_ids, **ids_only, **options
        )

    return batch, [
        (
            "masking step, special-token mask given",
            lambda ids: theirs.torch_mask_tokens(ids, special),
            lambda ids: mask_tokens(ids, special_tokens_mask=special, **ids_only),
            2.5,
        ),
        (
            "masking step, special tokens to be found",
            lambda ids: theirs.torch_mask_tokens(ids),
            lambda ids: mask_tokens(ids, special_tokens_mask=ours.is_special[ids], **ids_only),
            10,
        ),
        ("whole collator", lambda ids: theirs(examples), lambda ids: ours(examples), 4),
        (
            "whole words",
            lambda ids: their_words.torch_mask_tokens(ids, special, offsets),
            lambda ids: our_words(ids, mask_share=1, random_share=0),
            7,
        ),
        ("spans (not in transformers)", None, lambda ids: our_words(ids, strategy="span"), None),
    ]


def documents(size, length):
    """Make `size` texts of about half to all of `length` tokens; the last one fills all of them."""
    texts = load_corpus("reviews")
    random.shuffle(texts)
    words = " ".join(texts).split()
    counts = [random.randint(length * 2 // 5, length * 4 // 5) for _ in range(size - 1)] + [length]
    starts = [random.randrange(len(words) - length) for _ in counts]
    return [" ".join(words[start : start + count]) for start, count in zip(starts, counts)]


if __name__ == "__main__":
    given = arguments(__doc__)
    report(rows(given), given)
