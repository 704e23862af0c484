"""The page that checks a curve: which files it reads, and what it says about each stored curve."""

import json
import math
import re

import pytest
import torch
from built_site import ROOT
from play_toys import ask

from docs.site import curves
from docs.site.play import build
from mlm_lib.corpus import load_corpus
from mlm_lib.engine.log import Log
from mlm_lib.pretrained import load_checkpoint

pytestmark = pytest.mark.site
EXAMPLES = {one["file"].removesuffix(".jsonl"): one for one in build.examples()}
PAGE = (ROOT / "docs" / "read_your_curve.md").read_text("utf-8")
BERT = {"lnV": math.log(30522), "unigram": None, "floor": None}


def looked(text, *, name="log.jsonl", held="held_out_loss", **lines):
    """{check: (status, sentence)} and the section of the verdict, for a file."""
    (found,) = ask(["check", name, text, held, BERT | lines])
    told = {one["id"]: (one["status"], one["text"]) for one in found["checks"]}
    return told, found["section"]


def faults(told):
    return {name for name, (status, _) in told.items() if status == "found"}


def csv(losses, start=10, every=10):
    rows = [f"{start + every * at},{loss}" for at, loss in enumerate(losses)]
    return "\n".join(["step,loss", *rows])


# ------------------------------------------------------------------------------------ checks

# What docs/read_your_curve.md says about each of its curves: the checks that find it, the section.
TOLD = {
    "sound": (set(), "table"),
    "labels_after_masking": ({"early", "good", "rises"}, "answers"),
    "labels_everywhere": ({"early", "good"}, "everywhere"),
    "padding": ({"early", "good"}, "everywhere"),
    "repeated": ({"rises"}, "repeats"),
    "rate": ({"unigram"}, "rate"),
    "rate_low": ({"unigram"}, "rate"),
    "vocabulary": ({"start"}, "vocabulary"),
    "eight": ({"unigram"}, "rate"),
    "eight_tenth": ({"rises"}, "repeats"),
}


def test_every_stored_curve_is_an_example():
    assert list(EXAMPLES) == list(curves_stored()) and set(EXAMPLES) == set(TOLD)


def curves_stored():
    return json.loads((curves.FOLDER / "curves.json").read_text("utf-8"))["runs"]


@pytest.mark.parametrize("name", TOLD)
def test_each_stored_curve_gets_the_check_that_the_page_describes(name):
    one, landmarks = EXAMPLES[name], json.loads((curves.FOLDER / "curves.json").read_text())
    lines = {"lnV": math.log(one["size"]), "unigram": one["unigram"], "floor": one["floor"]}
    assert lines["lnV"] == pytest.approx(landmarks["landmarks"]["ln V"], abs=5e-4)
    told, section = looked(one["text"], **lines)
    assert (faults(told), section) == TOLD[name]


def test_a_sentence_holds_the_numbers_of_the_file():
    told, _ = looked(EXAMPLES["repeated"]["text"])
    assert "lowest at step 100, at 4.50, and ends at 7.06" in told["rises"][1]
    told, _ = looked(EXAMPLES["vocabulary"]["text"], lnV=math.log(309))
    assert "at step 0, is 9.37" in told["start"][1] and "ln V = 5.73" in told["start"][1]


def test_a_curve_that_stopped_asks_for_the_unigram_line():
    told, section = looked(EXAMPLES["rate"]["text"], lnV=math.log(309))
    assert told["unigram"][0] == "unknown" and "it has stopped" in told["unigram"][1]
    assert section == "lines"


def test_with_80_10_10_the_unigram_line_is_lower():
    entropy = 4.531
    assert ask(["line", entropy, False], ["line", entropy, True]) == [
        entropy, pytest.approx(0.9 * entropy + 0.2 * math.log(2))
    ]  # fmt: skip


def test_a_loss_that_stays_at_ln_v_or_starts_far_above_it_is_found():
    stays, _ = looked(csv([10.4, 10.33, 10.31, 10.35, 10.3, 10.33, 10.32, 10.31]), name="a.csv")
    assert faults(stays) == {"chance"} and "still at ln V = 10.33" in stays["chance"][1]
    starts, _ = looked(csv([14, 11, 9, 8, 7.5, 7, 6.8, 6.5]), name="a.csv")
    assert faults(starts) == {"start"}


def test_a_jump_is_found_and_whether_it_came_back():
    falling = [10 - 0.2 * at for at in range(30)]
    calm, _ = looked(csv(falling), name="a.csv")
    assert faults(calm) == set()
    jumped = [*falling[:15], 9.5, *falling[16:]]
    told, _ = looked(csv(jumped), name="a.csv")
    assert faults(told) == {"spikes"}
    assert "At step 160" in told["spikes"][1] and "came back" in told["spikes"][1]
    stayed = [*falling[:15], *[9.5] * 15]
    assert "never came back" in looked(csv(stayed), name="a.csv")[0]["spikes"][1]


def test_a_loss_that_is_no_number_is_found_with_its_step(tmp_path):
    rows = [{"step": 10 * at, "loss": 9.0 if at < 4 else math.nan} for at in range(1, 7)]
    Log(tmp_path / "log.jsonl", rows)
    text = (tmp_path / "log.jsonl").read_text()
    assert "null" in text
    told, section = looked(text)
    assert "3 of 6 losses are NaN or infinite, the first at step 40" in told["broken"][1]
    assert section == "rate"
    told, _ = looked(csv(["nan", "nan"]), name="a.csv")
    assert told["broken"][0] == "found" and told["rises"][0] == "unknown"


def test_a_long_run_that_logs_late_is_not_called_too_fast():
    losses = [6.4, 4.1, 3.2, 2.9, 2.7, 2.6, 2.5, 2.4]
    told, _ = looked(csv(losses, start=5000, every=5000), name="a.csv", unigram=7.0)
    assert faults(told) == set() and told["early"][0] == "unknown"
    assert told["start"][0] == "unknown"  # the start is not in the file


# ------------------------------------------------------------------------------------ files


@pytest.fixture(scope="module")
def trainer_state(tmp_path_factory):
    """A function of a learning rate: what transformers' Trainer writes in a run of 30 steps."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    folder = tmp_path_factory.mktemp("trainer")

    def state(rate):
        torch.manual_seed(0)
        sizes = dict(vocab_size=60, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
        config = transformers.BertConfig(**sizes, intermediate_size=32, max_position_embeddings=16)
        ids = torch.randint(5, 60, (40, 12))
        labels = ids.where(torch.arange(12) % 2 == 0, -100)
        rows = [{"input_ids": row, "labels": asked} for row, asked in zip(ids, labels)]
        transformers.Trainer(
            transformers.BertForMaskedLM(config),
            transformers.TrainingArguments(
                folder / str(rate), max_steps=30, logging_steps=5, eval_strategy="steps",
                eval_steps=10, save_steps=30, per_device_train_batch_size=4, learning_rate=rate,
                report_to=[], use_cpu=True, disable_tqdm=True, logging_nan_inf_filter=False,
            ),
            train_dataset=rows, eval_dataset=rows[:8],
        ).train()  # fmt: skip
        made = folder / str(rate) / "checkpoint-30"
        return (made / "trainer_state.json").read_text(), (made / "config.json").read_text()

    return state


def test_the_state_of_a_trainer_is_read_and_its_config_tells_v(trainer_state):
    text, config = trainer_state(1e-3)
    history = json.loads(text)["log_history"]
    curve, size = ask(["read", "trainer_state.json", text], ["size", "x/config.json", config])
    assert curve["training"] == [[row["step"], row["loss"]] for row in history if "loss" in row]
    held = [[row["step"], row["eval_loss"]] for row in history if "eval_loss" in row]
    assert curve["heldOut"] == {"eval_loss": held} and len(held) == 3
    assert size == 60
    told, _ = looked(text, held="eval_loss", lnV=math.log(size))
    assert faults(told) == {"chance"}  # thirty steps teach nothing: it is still at ln 60


def test_a_trainer_whose_loss_became_nan_is_read(trainer_state):
    text, _ = trainer_state(1e36)
    assert "NaN" in text  # which is no JSON, but what Python writes
    told, _ = looked(text, held="eval_loss")
    assert "9 of 9 losses are NaN or infinite, the first at step 5" in told["broken"][1]


def test_a_log_of_pretrain_is_read_with_each_of_its_held_out_losses(tmp_path):
    log = Log(tmp_path / "log.jsonl", [])
    log.write({"step": 10, "epoch": 0, "loss": 7.5, "learning_rate": 0.1, "tokens": 50})
    log.write({"step": 20, "epoch": 0, "loss": 7.0, "grammar_loss": 6.5, "docs_loss": 8.0})
    text = (tmp_path / "log.jsonl").read_text()
    wanted = {"grammar_loss": [[20, 6.5]], "docs_loss": [[20, 8.0]]}
    for written in (text, text + '{"step": 30, "lo'):  # stopped in the middle of a line
        (curve,) = ask(["read", "log.jsonl", written])
        assert curve["training"] == [[10, 7.5], [20, 7.0]] and curve["heldOut"] == wanted
    (card,) = ask(["read", "l.json", (ROOT / "data/course-bert/training_log.json").read_text()])
    assert set(card["heldOut"]) == {"grammar_loss", "reviews_loss", "docs_loss"}


@pytest.mark.parametrize(
    "text",
    [
        "step,loss,val_loss\n10,3.5,\n20,3.25,3.75\n",
        "\ufeffGlobal Step;Train Loss;Eval Loss\r\n10;3,5;\r\n20;3,25;3,75\r\n",
        "epoch,step,train_loss_step,train_loss_epoch,val_loss,mlm_loss\n"
        "0,10,3.5,,,3.0\n1,20,3.25,3.4,3.75,3.1\n",
        '"Step","run - train/loss","run - train/loss__MIN","run - eval/loss"\n'
        '"10","3.5","3.5",""\n"20","3.25","3.1","3.75"\n',
        "loss\tvalid_loss\tstep\n3.25\t3.75\t20\n3.5\t\t10\n",
    ],
    ids=["plain", "semicolons", "Lightning", "W&B", "tabs"],
)
def test_a_table_with_a_step_and_a_loss_is_read(text):
    (curve,) = ask(["read", "a.csv", text])
    assert curve["training"] == [[10, 3.5], [20, 3.25]]
    assert list(curve["heldOut"].values()) == [[[20, 3.75]]]


def test_what_tensorboard_exports_is_read():
    (curve,) = ask(["read", "a.csv", "Wall time,Step,Value\n1.7e9,10,3.5\n1.7e9,20,3.25\n"])
    assert curve["training"] == [[10, 3.5], [20, 3.25]] and curve["heldOut"] == {}


@pytest.mark.parametrize(
    "name, text, told",
    [
        ("log.jsonl", " \n", "log.jsonl is empty. Choose the log file"),
        ("a.bin", "PK\x00\x01", "a.bin is not a text file in UTF-8. Choose"),
        ("notes.txt", "It went well.\n", 'line of notes.txt is "It went well.", and not the head'),
        ("a.csv", "epoch,loss\n1,2\n", "has no column of steps. Its columns are epoch, loss."),
        ("a.csv", "step,rate\n1,2\n", "a.csv has no loss. Its fields are: step, rate."),
        ("a.csv", "step,loss\n1,much\n", 'In a.csv the loss of step 1 is "much"'),
        ("a.csv", "step,loss\nfirst,2\n", 'In a.csv a row has the step "first"'),
        ("a.csv", "step,loss\n", "a.csv has no row below its head"),
        ("config.json", '{"vocab_size": 3}', "config.json holds settings .* trainer_state.json"),
        ("t.json", '{"log_history": []}', "t.json has no row yet"),
        ("l.jsonl", '{"step": 1, "loss": 2}\n{"st\n{"step": 3}\n', "Line 2 of l.jsonl is not JSON"),
        ("l.jsonl", '{"loss": 2}\n{"loss": 3}\n', "The rows of l.jsonl have no step"),
    ],
)
def test_a_file_that_is_no_curve_is_refused_in_a_sentence(name, text, told):
    (answer,) = ask(["read", name, text])
    assert re.search(told, answer["refused"]), answer["refused"]


@pytest.mark.parametrize(
    "name, text, size",
    [
        ("m/config.json", '{"vocab_size": 8192}', 8192),
        ("config.json", "{}", None),
        ("config.json", "[", None),
        ("vocab.txt", "[PAD]\na\nb\n", 3),
    ],
)
def test_the_size_of_the_vocabulary_is_found_or_not(name, text, size):
    assert ask(["size", name, text]) == [size]


def test_in_a_folder_the_log_and_the_settings_are_found():
    run = {
        "log.jsonl": "", "notes.txt": "", "model": {"config.json": "", "model.safetensors": ""},
        "checkpoints": {"step-30": {"state.pt": "", "trainer_state.json": ""}},
    }  # fmt: skip
    folder, alone = ask(["collect", "run", run], ["collect", "notes.txt", ""])
    assert set(folder) == {
        "run/log.jsonl", "run/model/config.json", "run/checkpoints/step-30/trainer_state.json"
    }  # fmt: skip
    assert alone == ["notes.txt"]


# ------------------------------------------------------------------------------------ lines


def test_the_unigram_entropy_is_that_of_the_page():
    names = {}
    exec(re.search(r"```python\n(import math.*?)```", PAGE, re.DOTALL)[1], names)
    tokenizer = load_checkpoint("course-bert")[1]
    rows = [tokenizer.encode(text) for text in load_corpus("reviews")[:50]]
    _, expected, mixed = names["lines"](rows, tokenizer)
    tokens = [token for row in rows for token in tokenizer.convert_ids_to_tokens(row)]
    (found,) = ask(["unigram", tokens])
    assert found["entropy"] == pytest.approx(expected, abs=1e-9)
    assert ask(["line", expected, True]) == [pytest.approx(mixed, abs=1e-9)]
    _, entropy, _ = names["lines"](map(tokenizer.encode, load_corpus("reviews")), tokenizer)
    assert f"tokens of `course-bert`, it is {entropy:.1f} nats" in PAGE


def test_at_a_line_and_flat_mean_what_the_page_says():
    source = (ROOT / "docs/site/play/your_curve/checks.js").read_text("utf-8")
    assert "const NEAR = 0.25" in source and "at most a quarter of a nat above or below" in PAGE
    assert "flat.fall < 0.02 * flat.before" in source and "fallen by less than 2%" in PAGE


def test_each_section_that_the_checks_lead_to_is_on_the_page():
    headings = set(re.findall(r"^##+ (.+)$", PAGE, re.MULTILINE))
    for heading, place in ask(["sections"])[0].values():
        assert heading in headings and place == heading.lower().replace(" ", "-")
