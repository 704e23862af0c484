"""Measures the numbers on the model card of course-bert:
`python tools/card_course_bert.py [CHECKPOINT]`.

All losses are in nats. Each question hides a single token, unless its row says something else. If
the folder of another checkpoint is given, that checkpoint is measured in the same way, so that two
editions of the model can be compared. `--log RUN` writes the checkpoint's `training_log.json` from
the run's `log.jsonl`.
"""

import json
import sys
from collections import Counter
from pathlib import Path

import torch

from mlm_lib.corpus import load_corpus
from mlm_lib.estimates import interval
from mlm_lib.evaluation import fill_mask, masked_answers, pad_rows, pseudo_log_likelihood
from mlm_lib.labels import IGNORE
from mlm_lib.masking import MaskingCollator
from mlm_lib.pretrained import load_checkpoint
from mlm_lib.training import HeldOut
from mlm_lib.training_data import GrammarCorpus
from mlm_lib.words import split_words

BLANKS = {"mask_share": 1.0, "random_share": 0.0}  # each chosen token becomes [MASK]
SEEDS = range(8)  # of the masks
BATCH_SIZE = 64
PIECES = 500  # split words that are looked at
OWN_REVIEW = (
    "Loved it!<br /><br />“The Lamp” isn’t perfect — 90% charm, 10% filler… I'd pay $12 (or £9) "
    "for it again; see http://films.example/lamp?id=3#top or mail me@films.example. **4/5** [no "
    "spoilers] ~2h {director's cut} \\o/ <i>A+</i> ‘nuff said – café society & co. |^_^| `ok` =)"
)
# Written down before any edition was trained, with the answers that count as sensible.
PROBES = {
    "i have watched this [MASK] and it was awesome .": "film movie series show season episode",
    "the acting was brilliant but the [MASK] was far too long .": (
        "film movie series show season episode plot story ending script scene"
    ),
    "this movie is a complete waste of [MASK] .": "time money",
    "i laughed from the first scene to the very [MASK] .": "end last",
    "the director tells a simple [MASK] about a father and his daughter .": (
        "story tale film movie"
    ),
    "the first [MASK] was great , but the second season is boring .": (
        "season series episode one film"
    ),
    "the function returns a [MASK] of strings .": (
        "list tuple set sequence dictionary dict mapping collection array"
    ),
    "raise an error if the file does not [MASK] .": "exist match",
    "return true if the object is a [MASK] .": (
        "function method class string tensor number file directory list module tuple sequence "
        "generator"
    ),
    "this method is called when the [MASK] is closed .": (
        "file connection window stream figure socket client server handle event dialog"
    ),
}


def above_the_floor(model, tokenizer, documents=1000):
    """(floor, loss) on held-out documents of the grammar, 15% of whose words are hidden."""
    part = GrammarCorpus(documents=1, held_out=documents)
    part.encode(tokenizer, model.embedder.config.max_length)
    look = HeldOut(part.held_out_rows, MaskingCollator(tokenizer, **part.held_out_masking, seed=1))
    return part.floor(look), look(model)[look.name]


def rows_of(tokenizer, texts, longest):
    """The ids of texts, short ones first, so that the rows of a batch need little padding."""
    whole = tokenizer(texts, truncation=True, max_length=longest)["input_ids"]
    return sorted(whole, key=len)


def batches_of(rows, collator):
    return [collator(rows[at : at + BATCH_SIZE]) for at in range(0, len(rows), BATCH_SIZE)]


def on_texts(model, tokenizer, texts, seed=0):
    """{name: losses (N,)} where 15% of single tokens are chosen.

    `blanks`: all of them are [MASK]. `mixture`: 80/10/10, all labels. `kept`: of these, the labels
    of tokens that are still to be seen.
    """
    rows, found = rows_of(tokenizer, texts, model.embedder.config.max_length), {}
    for name, shares in (("blanks", BLANKS), ("mixture", {})):
        batches = batches_of(rows, MaskingCollator(tokenizer, seed=seed, **shares))
        found[name] = masked_answers(model, batches).nats
    kept = [(batch["input_ids"] == batch["labels"])[batch["labels"] != IGNORE] for batch in batches]
    found["kept"] = found["mixture"][torch.cat(kept)]
    return found


def by_seed(model, tokenizer, texts, name="blanks", seeds=SEEDS):
    """The mean loss of each seed of the masks."""
    return [on_texts(model, tokenizer, texts, seed)[name].mean().item() for seed in seeds]


def frequency_only(tokenizer, corpus, seed=0):
    """The mean loss of a reader who knows only how frequent each token is in the training split."""
    counts = Counter()
    for text in load_corpus(corpus, "train"):
        counts.update(tokenizer.encode(text, add_special_tokens=False))
    frequency = torch.tensor([counts[token] + 1.0 for token in range(len(tokenizer))])
    rows = rows_of(tokenizer, load_corpus(corpus, "validation"), 256)
    batches = batches_of(rows, MaskingCollator(tokenizer, seed=seed, **BLANKS))
    answers = torch.cat([batch["labels"][batch["labels"] != IGNORE] for batch in batches])
    return -(frequency / frequency.sum()).log()[answers].mean().item()


def split_word_ends(tokens):
    """(first, last) place of each word that is split into pieces."""
    continues = [token.startswith("##") for token in tokens]
    for last in range(len(tokens)):
        if continues[last] and not continues[last + 1]:  # a row ends with [SEP]
            first = last
            while continues[first]:
                first -= 1
            yield first, last


def pieces(model, tokenizer, texts):
    """(alone, together): losses (N,) of a piece, hidden alone and hidden with its whole word.

    Of each split word the last piece is asked, so that both columns ask for the same tokens.
    """
    rows = rows_of(tokenizer, texts, model.embedder.config.max_length)
    asked = [
        (row, first, last)
        for row in rows
        for first, last in split_word_ends(tokenizer.convert_ids_to_tokens(row))
    ]
    asked = asked[:: max(1, len(asked) // PIECES)]
    found = []
    for alone in (True, False):
        batches = []
        for at in range(0, len(asked), BATCH_SIZE):
            part = asked[at : at + BATCH_SIZE]
            fields = pad_rows([row for row, _, _ in part], tokenizer)  # (B, T) each
            labels = torch.full_like(fields["input_ids"], IGNORE)
            for which, (row, first, last) in enumerate(part):
                labels[which, last] = row[last]
                hidden = slice(last if alone else first, last + 1)
                fields["input_ids"][which, hidden] = tokenizer.mask_token_id
            batches.append(fields | {"labels": labels})
        found.append(masked_answers(model, batches).nats)
    return found


def nats_per_word(model, tokenizer, texts):
    """Minus the pseudo-log-likelihood of all texts, divided by the number of their words.

    Two vocabularies cut a text into different tokens, but both cut the same words.
    """
    total = -sum(pseudo_log_likelihood(model, tokenizer, texts))
    return total / sum(len(split_words(text)) for text in texts)


def unknown(tokenizer, text):
    """How many [UNK] a text becomes."""
    return tokenizer.encode(text).count(tokenizer.unk_token_id)


def answers(model, tokenizer):
    """The first five answers to each probe."""
    found = fill_mask(model, tokenizer, list(PROBES))
    return {text: [one["token_str"] for one in best] for text, best in zip(PROBES, found)}


def training_log(run, model, tokenizer):
    """What `training_log.json` holds: the rows with an evaluation, the floor, the probes."""
    lines = (Path(run) / "log.jsonl").read_text("utf-8").splitlines()
    history, highest = [], 0.0
    for row in map(json.loads, lines):
        highest = max(highest, row["learning_rate"])
        if "grammar_loss" in row:  # a look; the rate may have risen and fallen since the one before
            row |= {"highest_learning_rate": highest, "minutes": row["seconds"] / 60}
            history.append(
                {name: round(value, 6 if "rate" in name else 4) for name, value in row.items()}
            )
            highest = 0.0
    given = answers(model, tokenizer)
    passed = sum(bool(set(PROBES[text].split()) & set(best)) for text, best in given.items())
    return {
        "history": history,
        "grammar_floor": round(above_the_floor(model, tokenizer)[0], 4),
        "probes": given,
        "probes_passed": passed,
    }


def main(name="course-bert", *more):
    model, tokenizer = load_checkpoint(name)
    if more:
        log = training_log(more[1], model, tokenizer)
        text = json.dumps(log, indent=1, ensure_ascii=False) + "\n"
        (Path(name) / "training_log.json").write_text(text, "utf-8")
        return
    floor, loss = above_the_floor(model, tokenizer)
    print(f"grammar: floor {floor:.4f}, model {loss:.4f}, above it {loss - floor:.4f}")
    for corpus in ("reviews", "docs"):
        texts = load_corpus(corpus, "validation")
        seeds = SEEDS if corpus == "reviews" else range(1)
        found = [on_texts(model, tokenizer, texts, seed) for seed in seeds]
        tokens = sum(len(tokenizer.encode(text, add_special_tokens=False)) for text in texts)
        print(
            f"{corpus}: {tokens:,} tokens, frequency only {frequency_only(tokenizer, corpus):.2f}; "
            "the mean, and then the loss with each seed of the masks:"
        )
        for part in ("blanks", "mixture", "kept"):
            means = [losses[part].mean().item() for losses in found]
            told = f"{interval(means):.3f}" if len(means) > 1 else f"{means[0]:.3f}"
            print(f"  {part:8} {told} {' '.join(f'{mean:.3f}' for mean in means)}")
        alone, together = pieces(model, tokenizer, texts)
        print(
            f"  last piece of {len(alone)} split words: {alone.mean():.2f} hidden alone,", end=" "
        )
        print(f"{together.mean():.2f} with its whole word")
    texts = load_corpus("reviews", "validation")
    nats = nats_per_word(model, tokenizer, texts)
    print(f"reviews, nats per word: {nats:.3f}, each token hidden in turn")
    print(f"[UNK] in a review with tags, quotes and dashes: {unknown(tokenizer, OWN_REVIEW)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
