"""The long form of two tests: `python many_checks.py FOLDER [KILLS] [STRINGS]`.

Runs of every kind, killed at random moments and resumed until they end, beside whole ones; and odd
strings, tokenized beside the reference. The last line is JSON: how many of each, all of them equal.
"""

import json
import random
import signal
import sys
from itertools import count
from pathlib import Path

import torch

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("helpers", "package")]
import killed_runs
import killed_training
import test_wordpiece
from training_toys import log_of, timeless

from mlm_lib.wordpiece import WordPieceTokenizer


def end(kind, folder, seed=None):
    """One run, whole or killed at a random moment; whether it was."""
    if kind in killed_training.SCENARIOS:
        ends = [] if seed is None else [killed_training.end_at_random(random.Random(f"{seed}"))]
        return killed_training.in_child(kind, folder, *ends) != 0
    command = ["--config", str(folder.parent / "texts" / "recipe.toml"), "--out", str(folder)]
    command += ["--steps", "110", "--checkpoint-every", "4", "--resume"]
    status = killed_runs.run_or_be_killed(command, seed)
    assert status in (0, signal.SIGKILL), f"{folder}: a run ended with status {status}"
    return status != 0


def remains(folder):
    """What a run leaves: its log without the clock, and all weights and states of its optimizer."""
    last = max((folder / "checkpoints").iterdir())
    state = torch.load(last / "state.pt", weights_only=True)
    moments = [value for one in state["optimizer"]["state"].values() for value in one.values()]
    numbers = [torch.as_tensor(value).numpy().tobytes() for value in moments]
    return timeless(log_of(folder)), (last / "model.safetensors").read_bytes(), numbers


def killed(root, number):
    """How often runs of each kind were killed, `number` in all; each ends as the whole one."""
    kinds, seeds = [*killed_training.SCENARIOS, *killed_runs.FORMS], count()
    kills = dict.fromkeys(kinds, 0)
    for kind in killed_runs.FORMS:
        killed_runs.recipe_for(kind, root / kind / "texts")
    for kind in kinds:
        end(kind, root / kind / "whole")
    while sum(kills.values()) < number:
        kind = min(kills, key=kills.get)
        folder = root / kind / f"killed-{kills[kind]}"
        while end(kind, folder, next(seeds)):
            kills[kind] += 1
        assert remains(folder) == remains(root / kind / "whole"), f"{folder} differs"
    return kills


def tokenized(number):
    """How many encodings of odd strings were compared: three vocabularies, both cases."""
    trained, done = test_wordpiece.trained_vocabulary(), 0
    texts = [*test_wordpiece.nasty_texts(number // 6 + 1, seed=7)]
    rng = random.Random(7)
    for place in range(0, len(texts), 2):  # into every second one, characters of all of Unicode
        points = [rng.randrange(0x110000) for _ in range(8)]
        texts[place] += "".join(chr(point) for point in points if not 0xD800 <= point < 0xE000)
    for vocabulary in (test_wordpiece.TINY, test_wordpiece.MARKS, trained):
        for lowercase in (True, False):
            tokenizer = WordPieceTokenizer(vocabulary, lowercase=lowercase)
            test_wordpiece.assert_same_ids(tokenizer, texts)
            done += len(texts)
    return done


if __name__ == "__main__":
    torch.set_num_threads(1)
    kills, strings = (int(value) for value in [*sys.argv[2:], 200, 100_000][:2])
    found = {"kills": killed(Path(sys.argv[1]), kills), "strings": tokenized(strings)}
    print(json.dumps(found | {"kills in all": sum(found["kills"].values())}))
