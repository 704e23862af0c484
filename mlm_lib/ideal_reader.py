"""The ideal reader in the place of a model: it answers with the grammar's posteriors. Lesson 15.

Whatever asks a masked model can ask it as well: `nelbo`, `write`, `fill_mask`, `masked_answers`.
"""

import math

import torch
import torch.nn as nn

from mlm_lib.checks import flag
from mlm_lib.grammar import Grammar
from mlm_lib.labels import IGNORE


class IdealReader(nn.Module):
    """Answers `[MASK]` with P(word | the visible words, their places, the length), exactly.

    It has nothing to learn, and computes on the CPU in float64.

    Args:
        grammar: a `Grammar`.
        tokenizer: each word of the grammar is one of its tokens.
        lost: what to do with a text that no document of the grammar agrees with. False: an error.
            True: find each word of the grammar equally likely there, as needs a reader of what is
            written several words at once.

    Raises:
        ValueError: a word of the grammar that is no token.
    """

    def __init__(self, grammar, tokenizer, *, lost=False):
        super().__init__()
        if not isinstance(grammar, Grammar):
            raise ValueError(f"grammar is a {type(grammar).__name__}; a Grammar is needed")
        vocab = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else tokenizer.vocab
        missing = [word for word in grammar.vocabulary if word not in vocab]
        if missing:
            count = f"{len(missing)} words of the grammar are no tokens, such as {missing[:5]}"
            raise ValueError(f"{count}; train the tokenizer on the grammar")
        self.grammar, self.lost = grammar, flag("lost", lost)
        self.columns = torch.tensor([vocab[word] for word in grammar.vocabulary])
        self.size = max(vocab.values()) + 1
        self.words = {index: word for word, index in vocab.items()}
        self.mask_token_id = tokenizer.mask_token_id
        self.frame = {tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id}
        self.nothing = nn.Parameter(torch.zeros(0), requires_grad=False)  # tells the device
        self._lengths = {}

    def forward(self, input_ids, attention_mask=None, labels=None):
        """Log-probabilities everywhere, or at the labels.

        Args:
            input_ids: (B, T), `[MASK]` where a word is hidden. `[CLS]`, `[SEP]` and `[PAD]` are no
                part of the document.
            attention_mask: (B, T); not needed.
            labels: (B, T), −100 where nothing is asked, as of a `MaskedLanguageModel`.

        Returns:
            {"logits": (B, T, V) or, with labels, (N, V)} float64, −∞ for what is impossible there.
            With labels also "loss", the mean over them.

        Raises:
            ValueError: a length that no document has; unless `lost`, visible words that none has.
        """
        frame = torch.tensor(sorted(self.frame))
        places = [(~torch.isin(row, frame)).nonzero()[:, 0] for row in input_ids.cpu()]
        documents, observed = [], []
        for row, some in zip(input_ids.cpu(), places):
            documents.append([self.words.get(index, "") for index in row[some].tolist()])
            observed.append(row[some] != self.mask_token_id)
            self._check_length(len(some))
        found = self.grammar.posteriors_of(documents, observed, check=not self.lost)
        asked = torch.ones_like(input_ids) if labels is None else labels != IGNORE
        logits = torch.full((*input_ids.shape, self.size), -math.inf, dtype=torch.float64)
        for row, some, wanted, chances in zip(logits, places, asked.bool().cpu(), found):
            wanted, uniform = wanted[some], 1 / len(self.columns)
            # logits[b, places, columns] = log P(word | the visible words elsewhere), (T, V)
            row[some[wanted][:, None], self.columns] = chances[wanted].nan_to_num(uniform).log()
        logits = logits.to(input_ids.device)
        if labels is None:
            return {"logits": logits}
        logits, targets = logits[asked], labels[asked]  # (N, V), (N,)
        own = logits.gather(1, targets.long()[:, None])
        return {"loss": -own.sum() / max(1, len(own)), "logits": logits}

    def _check_length(self, length):
        if length not in self._lengths:
            self._lengths[length] = self.grammar.log_prob_of_length(length)
        if self._lengths[length] == -math.inf:
            raise ValueError(f"no document of this grammar has {length} words; ask for another")

    def extra_repr(self):
        """What `print(reader)` says of it."""
        return f"worlds={self.grammar.worlds}, lost={self.lost}"
