"""Checkpoints that differ from `course-bert` in all that a lesson might take for granted."""

import random

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertTokenizerFast,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedTokenizerFast,
)

from mlm_lib import DATA
from mlm_lib.corpus import load_corpus
from mlm_lib.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer


def another_bert(folder):
    """`course-bert` with its words in another order, the special ones where `bert-base-uncased` has
    them, 300 words more, twice the positions, and three of its four layers."""
    theirs = BertForMaskedLM.from_pretrained(DATA / "course-bert", dtype=torch.float32)
    known = AutoTokenizer.from_pretrained(DATA / "course-bert").get_vocab()
    pad, *special = SPECIAL_TOKENS
    words = sorted(known.keys() - SPECIAL_TOKENS)
    random.Random(0).shuffle(words)
    unused = [f"[unused{number}]" for number in range(300)]
    words = [pad, *unused[:99], *special, *unused[99:], *words]
    config = theirs.config
    config.vocab_size, config.max_position_embeddings, config.num_hidden_layers = len(words), 512, 3
    torch.manual_seed(0)
    model, weights = BertForMaskedLM(config), theirs.state_dict()
    places = torch.tensor([known.get(word, known["[UNK]"]) for word in words])
    for name, ours in model.state_dict().items():
        given = weights[name][places] if len(ours) == len(words) else weights[name]
        ours[: len(given)] = given
    model.save_pretrained(folder)
    vocab = {word: number for number, word in enumerate(words)}
    BertTokenizerFast(vocab=vocab, do_lower_case=True).save_pretrained(folder)
    return folder


def a_small_bert(folder):
    """With random weights, narrow, and a vocabulary of its own."""
    texts = [text for name in ("reviews", "grammar") for text in load_corpus(name)]
    tokenizer = WordPieceTokenizer.train(texts, 3000)
    sizes = {"hidden_size": 36, "num_hidden_layers": 3, "num_attention_heads": 3}
    sizes |= {"intermediate_size": 50, "max_position_embeddings": 200, "initializer_range": 0.3}
    torch.manual_seed(0)
    BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(folder)
    tokenizer.to_hf().save_pretrained(folder)
    return folder


def a_modernbert(folder):
    """A small one with random weights and a tokenizer of its own, byte by byte."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=2000, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(load_corpus("reviews"), trainer)
    tokens = [AddedToken(token, lstrip=token == "[MASK]") for token in SPECIAL_TOKENS]
    made.add_special_tokens(tokens)
    ends = [(token, made.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    names = {f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS}
    inputs = ["input_ids", "attention_mask"]
    fast = PreTrainedTokenizerFast(tokenizer_object=made, model_input_names=inputs, **names)
    sizes = {"hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 3}
    sizes |= {"intermediate_size": 64, "max_position_embeddings": 256, "local_attention": 16}
    ids = {f"{name}_token_id": getattr(fast, f"{name}_token_id") for name in ("pad", "cls", "sep")}
    ids |= {"bos_token_id": fast.cls_token_id, "eos_token_id": fast.sep_token_id}
    torch.manual_seed(0)
    config = ModernBertConfig(vocab_size=len(fast), **sizes, **ids)
    ModernBertForMaskedLM(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder
