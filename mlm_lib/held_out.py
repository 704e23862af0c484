"""Looks at a model in the midst of its training that leave no trace. Built in lesson 08.

`HeldOut` measures it on rows that it is not trained on, `ShowPredictions` fills chosen blanks.
"""

from contextlib import contextmanager

import torch
from tqdm.auto import tqdm

from mlm_lib.batches import count_targets, example_length
from mlm_lib.checks import function, path_name, refused, whole_number


@contextmanager
def modes_kept(model):
    """Puts each module back into training or evaluation mode, whichever it was in."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


class HeldOut:
    """An evaluation on a fixed masked set: masked once, here, and the same for every model.

    Args:
        examples: held-out examples.
        collator: masks them; give it a seed of its own.
        batch_size: rows in a batch. Rows of like length share one.
        name: of the number it returns.

    Call it with a model to get `{name: nats per masked token}`, a mean over all masked tokens.

    Raises:
        ValueError: no examples, or none of their tokens masked.
    """

    def __init__(self, examples, collator, *, batch_size=64, name="held_out_loss"):
        size, collator = whole_number("batch_size", batch_size), function("collator", collator)
        if not hasattr(examples, "__iter__"):
            raise refused("examples", examples, "a list of examples")
        examples = sorted(examples, key=example_length)
        self.name = path_name("name", name)
        starts = range(0, len(examples), size)
        self.batches = [collator(examples[start : start + size]) for start in starts]
        self.count = sum(count_targets(batch).item() for batch in self.batches)
        if not self.count:
            raise ValueError(
                f"{len(examples)} held-out examples with 0 masked tokens; give more of them"
            )

    @torch.no_grad()
    def __call__(self, model):
        device, total = next(model.parameters()).device, 0.0
        with modes_kept(model):
            model.eval()
            for batch in self.batches:
                targets = count_targets(batch).item()
                if targets:  # without any, the mean of a transformers model is NaN
                    batch = {name: rows.to(device) for name, rows in batch.items()}
                    total += model(**batch)["loss"].item() * targets
        return {self.name: total / self.count}


class ShowPredictions:
    """A callback that prints the likeliest tokens for the blanks of chosen sentences.

    Args:
        tokenizer: ours or transformers'.
        sentences: texts with one `[MASK]` or more.
        every: steps between prints.
        top_k: tokens shown for a blank.

    Raises:
        ValueError: a sentence without `[MASK]`.
    """

    def __init__(self, tokenizer, sentences, *, every=100, top_k=3):
        self.every, self.top_k = whole_number("every", every), whole_number("top_k", top_k)
        if isinstance(sentences, str) or not all(isinstance(text, str) for text in sentences):
            raise refused("sentences", sentences, "a list of texts")
        self.tokenizer = tokenizer
        self.rows = [(text, torch.tensor([tokenizer.encode(text)])) for text in sentences]
        for text, ids in self.rows:  # (1, T)
            if not (ids == tokenizer.mask_token_id).any():
                raise ValueError(f"{text!r} has no [MASK], so there is nothing to predict")

    @torch.no_grad()
    def __call__(self, model, step, row):
        if step % self.every:
            return
        device = next(model.parameters()).device
        with modes_kept(model):
            model.eval()
            for text, ids in self.rows:
                logits = model(input_ids=ids.to(device))["logits"][0]  # (T, V)
                blanks = logits[ids[0] == self.tokenizer.mask_token_id]  # (blanks, V)
                words = " | ".join(self._words(blank) for blank in blanks)
                tqdm.write(f"step {step:>6}  {text}  ->  {words}")

    def _words(self, blank):
        """The likeliest tokens of one blank's logits (V,), the best first."""
        best = blank.topk(min(self.top_k, len(blank))).indices.tolist()
        return " ".join(self.tokenizer.decode([index]) for index in best)
