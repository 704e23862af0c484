import json, os, pathlib, random, resource, shutil, signal, sys, time, warnings
import torch

torch.set_num_threads(1)
from transformers import BertTokenizerFast
from transformers.utils import logging
from mlm_lib import pretrained
from mlm_lib.encoder import EncoderConfig
from mlm_lib.masked_lm import MaskedLanguageModel

logging.disable_progress_bar()  # its lock is shared with forked processes, and one of them may be killed while it holds it
root = pathlib.Path(os.environ["ROOT"])
folder = root / "saved"
model = MaskedLanguageModel.from_config(EncoderConfig(600, 4, 1, 2, 4, max_length=8))
tokens = "[PAD] [UNK] [CLS] [SEP] [MASK]".split() + [f"word-number-{i}" for i in range(500)]
tokenizer = BertTokenizerFast(vocab={token: i for i, token in enumerate(tokens)})
NOTES = "notes " * 10_000


def save(number):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(number)
    tokenizer.model_max_length = number
    pretrained.save_pretrained(model, tokenizer, folder)


def prepare(number):
    shutil.rmtree(root)
    folder.mkdir(parents=True)
    (folder / "log").mkdir()
    (folder / "README.md").write_text(NOTES)
    (folder / "log" / "loss.txt").write_text(NOTES)
    save(number)


def number_in(place):
    "The number that every part of a checkpoint agrees on."
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded, its_tokenizer = pretrained.load_checkpoint(place)
    numbers = {
        its_tokenizer.model_max_length,
        *(value for p in loaded.parameters() for value in p.unique().tolist()),
    }
    assert len(numbers) == 1, numbers
    return numbers.pop()


def state():
    "The number in the folder, or None; where two steps are needed, the old folder may stand aside."
    aside = list(root.glob(".saved.*.old")) if mode == "two steps" else []
    places = [folder] if folder.exists() else aside
    for place in places:
        for note in (
            ("README.md", "log/loss.txt") if (place / "README.md").exists() or not fresh else ()
        ):
            assert (place / note).read_text() == NOTES, note
    return number_in(places[0]) if places else None


def killed(number, when):
    "Save in a process that ends by SIGKILL at the `when`-th step that touches files, or after `when` seconds."
    child = os.fork()
    if child == 0:
        try:
            seen = 0

            def hook(event, args):
                nonlocal seen
                seen += event == "open" or event.startswith(("os.", "shutil.", "ctypes.dlsym"))
                if seen == when:
                    os.kill(os.getpid(), signal.SIGKILL)

            if isinstance(when, int):
                sys.addaudithook(hook)
                save(number)
            else:
                while True:
                    save(number)
                    number += 1
        finally:
            os._exit(0)
    if isinstance(when, float):
        time.sleep(when)
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1] == signal.SIGKILL


results = {}
exchange = pretrained._exchange
for mode in ("over", "two steps", "fresh"):
    fresh = mode == "fresh"
    pretrained._exchange = (lambda one, other: False) if mode == "two steps" else exchange
    found, when, stride = [], 1, 1
    while True:
        prepare(1)
        if fresh:
            shutil.rmtree(folder)
        if not killed(2, when):
            break
        try:
            found.append(state())
        except Exception as error:
            found.append(f"step {when}: {type(error).__name__}: {error}")
        when += stride
    results[mode] = found

pretrained._exchange, fresh = exchange, False
prepare(1)
random.seed(0)
started = time.perf_counter()
save(1)
span = time.perf_counter() - started
found = []
for _ in range(10):
    now = state()
    killed(now + 1, random.uniform(0, 4) * span)
    found.append([now, state()])
results["at random"] = found

prepare(1)
before = {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}
results["full disk"] = {}
for file in [path for path in folder.rglob("*") if path.is_file()]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size - 1, resource.RLIM_INFINITY))
    try:
        save(2)
        outcome = ["nothing", False, ""]
    except Exception as error:
        outcome = [type(error).__name__, isinstance(error, OSError), str(error)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    same = before == {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    results["full disk"][file.name] = [*outcome, same, os.listdir(root)]
print(json.dumps(results))
