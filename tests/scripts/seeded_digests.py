"""Prints, as JSON, digests of all that a seed draws, and the numbers of a short training."""

import hashlib
import json

import torch

from mlm_lib.corpus import load_corpus
from mlm_lib.encoder import EncoderConfig
from mlm_lib.engine.batches import BatchSampler
from mlm_lib.grammar import Grammar
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.masking import MaskingCollator
from mlm_lib.training import TrainingConfig, train
from mlm_lib.wordpiece import WordPieceTokenizer


def digest(value):
    return hashlib.blake2b(repr(value).encode(), digest_size=8).hexdigest()


texts = load_corpus("reviews")[:200]
tokenizer = WordPieceTokenizer.train(texts, 600)
rows = [tokenizer.encode(text)[:48] for text in texts]
batch = MaskingCollator(tokenizer, seed=0)(rows[:32])
order = BatchSampler(rows, 16, 0, grouped=True)
grammar = Grammar.load()
documents = grammar.sample(50)
drawn = {
    "splits": digest(texts),
    "vocabulary": digest(list(tokenizer.vocab)),
    "masks": digest(batch["input_ids"].tolist()),
    "order": digest([order.next() for _ in range(20)]),
    "documents": digest(documents),
}
torch.manual_seed(0)
model = MaskedLanguageModel.from_config(EncoderConfig(len(tokenizer), 64, 2, 2, 128, max_length=48))
config = TrainingConfig(60, 16, 1e-3, device="cpu", precision="fp32", progress=False)
train(model, rows, MaskingCollator(tokenizer, seed=0), config)
weights = torch.cat([weight.detach().flatten() for weight in model.parameters()])
floor = grammar.floor(documents).nats
print(json.dumps({"drawn": drawn, "floor": floor, "weights": weights[::97].tolist()}))
