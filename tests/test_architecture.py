"""The package keeps the shape that the design gives it: tiers, docstrings and public signatures."""

import ast
import doctest
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mlm_lib

PACKAGE = Path(mlm_lib.__file__).parent
NOTEBOOKS = PACKAGE.parent / "notebooks"
FILES = sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")
TREES = {name: ast.parse((PACKAGE / f"{name}.py").read_text(encoding="utf-8")) for name in FILES}

# A file imports only from tiers of a lower number.
TIERS = {
    0: (
        "checks",
        "files",
        "cross_entropy",
        "forward_backward",
        "plots",
        "peak_memory",
        "merges",
        "grammar_lines",
        "attention",
        "unpadded",
        "named_weights",
    ),
    1: (
        "diagrams",
        "intervals",
        "numbered_world",
        *("labels", "docstrings", "words", "padding", "seeds", "spans", "softmax", "heads"),
        *("dropout", "rotary", "leakage", "grammar_file", "checkpoint_files"),
        *("bert_weights", "modern_weights"),
        *(
            "text_files",
            "channel",
            "batches",
            "schedule",
            "history",
            "checkpoints",
            "fingerprint",
            "optimizers",
        ),
    ),
    2: (
        *("corpus", "wordpiece", "masking", "losses", "encoder", "grammar", "held_out"),
        "modern_blocks",
        "rows",
    ),
    3: (
        *("contextualizers", "masked_lm", "modern", "training", "gap", "answers"),
        *("masking_rates", "ideal_reader"),
    ),
    4: (
        "language_model",
        "pretrained",
        "mixture",
        "stream",
        "blanks",
        "pseudo_likelihood",
        "writing",
    ),
    5: ("recipes", "evaluation", "diffusion"),
    6: ("pretrain",),
}
# The lesson that builds a file which is not there yet; with the lesson, its names are due.
LATER = {}
LAST_LESSON = max(int(path.stem[:2]) for path in NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))

TIER = {name: tier for tier, names in TIERS.items() for name in names}

every_file = pytest.mark.parametrize("name", FILES)


def imports(tree):
    """(module, names) of every import statement below a node, also of those inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or ""), [alias.name for alias in node.names]


def transformers_imports(tree):
    return sum(module.split(".")[0] == "transformers" for module, _ in imports(tree))


# ------------------------------------------------------------------------------------ tiers


@every_file
def test_each_file_has_a_place_in_the_tiers(name):
    assert name in TIER, f"mlm_lib/{name}.py is not in the table of tiers"


@every_file
def test_a_file_imports_only_from_the_tiers_above_it(name):
    for module, names in imports(TREES[name]):
        assert not module.startswith("."), "write imports in full, from mlm_lib"
        if module == "mlm_lib":
            assert names == ["DATA"], (
                f"{name}.py: import from a file of the package, not from the package"
            )
        elif module.startswith("mlm_lib."):
            other = module.split(".")[1]
            assert TIER[other] < TIER[name], (
                f"{name}.py (tier {TIER[name]}) imports {other}.py (tier {TIER[other]})"
            )


def test_the_map_for_contributors_shows_every_file_in_its_tier():
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d) \|.*\|(.*)\|$", text, re.M)
    shown = {name: int(tier) for tier, names in rows for name in re.findall(r"`(\w+)`", names)}
    assert shown == {name: TIER[name] for name in FILES}


def test_importing_the_package_itself_costs_nothing():
    init = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    assert {module for module, _ in imports(init)} <= sys.stdlib_module_names


@every_file
def test_a_file_is_short_enough_to_hold_one_idea(name):
    lines = (PACKAGE / f"{name}.py").read_text(encoding="utf-8").count("\n")
    assert lines <= 420, f"{name}.py has {lines} lines; look for the second idea in it"


def test_no_file_is_called_utils():
    assert not {path.stem.strip("_") for path in PACKAGE.rglob("*.py")} & {
        "util",
        "utils",
        "helpers",
        "common",
        "misc",
    }


# ------------------------------------------------------------------------------------ transformers


@every_file
def test_transformers_is_imported_where_things_are_converted_and_nowhere_else(name):
    if name == "pretrained":
        return  # converts checkpoints, both ways
    functions = [node for node in ast.walk(TREES[name]) if isinstance(node, ast.FunctionDef)]
    allowed = [node for node in functions if (name, node.name) == ("wordpiece", "to_hf")]
    assert transformers_imports(TREES[name]) == sum(map(transformers_imports, allowed))


def test_what_does_not_convert_can_be_imported_without_transformers():
    light = [f"mlm_lib.{name}" for name in FILES if TIER[name] < 4]
    assert "mlm_lib.masking" in light
    code = f"import {', '.join(light)}, sys; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent).returncode == 0


# ------------------------------------------------------------------------------------ docstrings


@every_file
def test_everything_public_has_a_docstring(name):
    public = [
        node
        for node in TREES[name].body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
    ]
    assert ast.get_docstring(TREES[name]), f"{name}.py does not say what it holds"
    assert [node.name for node in public if not ast.get_docstring(node)] == []


@every_file
def test_the_examples_in_docstrings_are_true(name):
    assert doctest.testmod(importlib.import_module(f"mlm_lib.{name}")).failed == 0


# ------------------------------------------------------------------------------------ signatures

# Notebooks and outside code rely on these names, on their order and on what is keyword-only.
SIGNATURES = {
    "corpus.load_corpus": 'source, split="train", *, seed=0',
    "corpus.pack_blocks": "encoded, block_size, *, cls_id, sep_id",
    "wordpiece.WordPieceTokenizer.train": "texts, vocab_size, *, min_frequency=2, lowercase=True",
    "wordpiece.WordPieceTokenizer.from_vocab": "path, *, lowercase=True",
    "wordpiece.WordPieceTokenizer.save": "path",
    "wordpiece.WordPieceTokenizer.tokenize": "text",
    "wordpiece.WordPieceTokenizer.encode": "text, *, add_special_tokens=True",
    "wordpiece.WordPieceTokenizer.decode": "ids",
    "wordpiece.WordPieceTokenizer.to_hf": "",
    "masking.mask_tokens": (
        "input_ids, *, mask_token_id, random_token_ids, special_tokens_mask, rate=0.15, "
        "mask_share=0.8, random_share=0.1, word_ids=None, generator=None"
    ),
    "masking.labels_to_positions": "labels, max_masks=None",
    "masking.positions_to_labels": "mask_positions, mask_ids, mask_weights, length",
    "masking.MaskingCollator": (
        'tokenizer, *, rate=0.15, mask_share=0.8, random_share=0.1, strategy="token", '
        "pad_to_multiple_of=None, seed=None"
    ),
    "masking.MaskingCollator.__call__": "examples",
    "losses.masked_cross_entropy": "logits, labels",
    "losses.SoftmaxLoss": "vocab_size, embedding_dim",
    "losses.SoftmaxLoss.forward": "embeddings, targets",
    "losses.SampledSoftmaxLoss": "vocab_size, embedding_dim, num_samples, *, sparse=False",
    "losses.SampledSoftmaxLoss.forward": "embeddings, targets",
    "heads.MaskedLMHead": (
        'hidden_size, vocab_size=None, *, token_embedding=None, activation="gelu", '
        "output_activation=None, layer_norm_eps=1e-12"
    ),
    "heads.MaskedLMHead.forward": "hidden, mask_positions=None",
    "encoder.EncoderConfig": (
        "vocab_size, hidden_size, num_layers, num_heads, intermediate_size, max_length=512, "
        "type_vocab_size=2, dropout=0.1, layer_norm_eps=1e-12, pad_token_id=0"
    ),
    "encoder.BertEncoder": "config",
    "encoder.BertEncoder.forward": (
        "input_ids, attention_mask=None, token_type_ids=None, *, output_hidden_states=False, "
        "output_attentions=False"
    ),
    "modern.ModernConfig": (
        "vocab_size, hidden_size, num_layers, num_heads, intermediate_size, window=128, "
        "global_every=3"
    ),
    "modern.ModernEncoder": "config",
    "modern.ModernEncoder.forward": (
        "input_ids, attention_mask=None, *, output_hidden_states=False, output_attentions=False"
    ),
    "masked_lm.MaskedLanguageModel": "embedder, head, contextualizer=None, *, dropout=0.0, top_k=5",
    "masked_lm.MaskedLanguageModel.from_config": "config",
    "masked_lm.MaskedLanguageModel.forward": (
        "input_ids, attention_mask=None, token_type_ids=None, *, labels=None, "
        "mask_positions=None, target_ids=None"
    ),
    "masked_lm.MaskedLanguageModel.decode": "output, tokenizer",
    "language_model.LSTMContextualizer": (
        "input_size, hidden_size, num_layers, *, bidirectional, dropout=0.0"
    ),
    "language_model.LSTMContextualizer.forward": "embeddings, mask, *, all_layers=False",
    "language_model.TransformerContextualizer": (
        "hidden_size, num_layers, num_heads, *, bidirectional, dropout=0.1"
    ),
    "language_model.TransformerContextualizer.forward": "embeddings, mask, *, all_layers=False",
    "language_model.LanguageModel": (
        "vocab_size, embedder, contextualizer, *, dropout=0.0, num_samples=None, "
        "sparse_embeddings=False, bidirectional=False, pad_token_id=0"
    ),
    "language_model.LanguageModel.forward": "input_ids, mask=None",
    "language_model.LanguageModel.delete_softmax": "",
    "language_model.LanguageModel.num_layers": "",
    "language_model.LanguageModel.get_metrics": "reset=False",
    "leakage.find_leaks": "contextualizer, input_size, *, direction, length=8, seed=0",
    "leakage.assert_no_leaks": "contextualizer, input_size, *, length=8",
    "pretrained.load_checkpoint": 'name="course-bert", *, device="cpu"',
    "pretrained.from_hf": "bert_for_masked_lm",
    "pretrained.to_hf": "model",
    "pretrained.save_pretrained": "model, tokenizer, folder",
    "grammar.Grammar.load": "path=None, *, worlds=None",
    "grammar.Grammar.sample": "n, *, seed=0",
    "grammar.Grammar.log_prob": "words",
    "grammar.Grammar.posteriors": "words, observed",
    "grammar.Grammar.floor": (
        'documents, *, objective="masked", rate=0.15, mask_share=1.0, random_share=0.0, seed=0'
    ),
    "training.train": (
        "model, dataset, collator, config, *, out=None, resume=False, evaluate=None, callbacks=()"
    ),
    "evaluation.fill_mask": "model, tokenizer, text, *, top_k=5",
    "evaluation.pseudo_log_likelihood": (
        "model, tokenizer, texts, *, whole_word=False, batch_size=64"
    ),
    "evaluation.pseudo_perplexity": "model, tokenizer, texts, *, whole_word=False",
    "evaluation.masked_answers": "model, batches",
    "evaluation.masked_loss": "model, batches",
    "evaluation.mean_nats": "answers",
    "evaluation.masked_accuracy": "model, batches, *, top_k=1",
    "evaluation.by_frequency": "answers, counts, *, edges=(1, 10, 100, 1000, 10_000)",
    "evaluation.calibration": "probabilities, targets, *, bins=15",
    "evaluation.closed_gap": "loss, start, floor",
    "diffusion.DiffusionCollator": 'tokenizer, *, draw="stratified", seed=None',
    "diffusion.nelbo": 'model, tokenizer, rows, *, samples=1, draw="count", seed=0',
    "diffusion.exact_nelbo": "log_posteriors, words",
    "diffusion.write": (
        'model, tokenizer, lengths, *, steps=None, rule="random", temperature=1.0, '
        "given=None, seed=0"
    ),
}


def parameters(function, *, keyword_only):
    found = inspect.signature(function).parameters.values()
    return {
        p.name: p.default
        for p in found
        if (p.kind is p.KEYWORD_ONLY) == keyword_only and p.name != "self"
    }


def is_due(name):
    """Whether a lesson has built the name: then it must be there."""
    return LATER.get(name.split(".")[0], 0) <= LAST_LESSON


@pytest.mark.parametrize("name", [name for name in SIGNATURES if is_due(name)])
def test_signatures_are_those_of_the_design(name):
    file, *path = name.split(".")
    found = importlib.import_module(f"mlm_lib.{file}")
    for part in path:
        found = getattr(found, part)
    expected = eval(f"lambda {SIGNATURES[name]}: None")
    assert parameters(found, keyword_only=False) == parameters(expected, keyword_only=False)
    have, need = parameters(found, keyword_only=True), parameters(expected, keyword_only=True)
    assert {option: have.get(option, "missing") for option in need} == need
    assert [
        option for option in have.keys() - need if have[option] is inspect.Parameter.empty
    ] == []
