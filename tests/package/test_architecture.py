"""The package keeps the shape that the design gives it: rules, docstrings, public signatures."""

import ast
import doctest
import graphlib
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import code_size
import nbformat
import pytest

import mlm_lib

PACKAGE = Path(mlm_lib.__file__).parent
LESSONS = sorted((PACKAGE.parent / "notebooks").glob("[0-9][0-9]_*.ipynb"))
PATHS = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in code_size.files()
}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in PATHS.items()}
TOP = [name for name in PATHS if "." not in name]

# What a file may import of later lessons, and why.
AHEAD = {
    ("masking", "labels"): "lesson 02 marks what is not asked by lesson 03's −100",
    ("diagrams", "labels"): "a diagram of lesson 02 shows lesson 03's −100",
    ("encoder", "unpadded"): "packing leaves padding out of lesson 06 as lesson 18 does",
    ("language_model", "softmax"): "lesson 11 may be told to sample, which lesson 12 builds",
    ("training", "optimizers"): "lesson 09 trains by AdamW, lesson 12 says what stands beside it",
    ("conversion", "modern"): "lesson 07 converts models, since lesson 18 of a second kind",
    ("pretrain", "modern"): "a recipe may name the encoder of lesson 18",
    ("pretrain", "diffusion"): "a recipe may name the objective of lesson 16",
    ("training_data", "diffusion"): "its held-out documents also measure the bound of lesson 16",
}


def imports(tree):
    """(module, names) of every import statement below a node, also of those inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or ""), [alias.name for alias in node.names]


def imported(name):
    """The files of the package that a file imports."""
    modules = [module for module, _ in imports(TREES[name]) if module.startswith("mlm_lib.")]
    return {module.removeprefix("mlm_lib.") for module in modules}


def transformers_imports(tree):
    return sum(module.split(".")[0] == "transformers" for module, _ in imports(tree))


def lesson_of_each_file():
    """The first lesson whose opening cell names a file after "Builds" or "Uses"."""
    found = {}
    for number, path in enumerate(LESSONS):
        opening = nbformat.read(path, as_version=4).cells[0].source
        told = re.search(r"\b(Builds|Uses)\b.*", opening, re.S)
        for name in re.findall(r"`mlm_lib/(\w+)\.py`", told[0]):
            found.setdefault(name, number)
    return found


# ------------------------------------------------------------------------------------ four rules


def test_every_file_at_the_top_is_named_by_a_lesson():
    assert set(TOP) == lesson_of_each_file().keys()


def test_a_file_imports_what_lessons_up_to_its_own_have_built():
    lesson = lesson_of_each_file()
    for name in TOP:
        later = {other for other in imported(name) & set(TOP) if lesson[other] > lesson[name]}
        assert later <= {other for one, other in AHEAD if one == name}, name


def test_imports_run_one_way_and_from_the_engine_never_up():
    graphlib.TopologicalSorter({name: imported(name) for name in PATHS}).prepare()
    below = {name for name in PATHS if name.startswith("engine.")} | {"checks"}
    assert {name: imported(name) - below for name in below if imported(name) - below} == {}
    for name, tree in TREES.items():
        asked = {module: names for module, names in imports(tree) if module[:7] in (".", "mlm_lib")}
        assert asked.get("mlm_lib", ["DATA"]) == ["DATA"], f"{name}: import from a file"


@pytest.mark.slow
def test_transformers_is_imported_where_things_are_converted_and_nowhere_else():
    converts = {"conversion", "pretrained", "wordpiece"}
    assert {name for name, tree in TREES.items() if transformers_imports(tree)} == converts
    (to_hf,) = (
        node
        for node in ast.walk(TREES["wordpiece"])
        if isinstance(node, ast.FunctionDef) and node.name == "to_hf"
    )
    assert transformers_imports(TREES["wordpiece"]) == transformers_imports(to_hf)
    heavy = ("conversion", "pretrained", "pretrain")
    light = [f"mlm_lib.{name}" for name in PATHS if name not in heavy]
    code = f"import {', '.join(light)}, sys; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent).returncode == 0


# ------------------------------------------------------------------------------------ form


def test_importing_the_package_itself_costs_nothing():
    init = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    assert {module for module, _ in imports(init)} <= sys.stdlib_module_names


def test_everything_public_has_a_docstring():
    for name, tree in TREES.items():
        public = [
            node
            for node in tree.body
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
        ]
        assert ast.get_docstring(tree), f"{name} does not say what it holds"
        assert [node.name for node in public if not ast.get_docstring(node)] == []


def test_the_examples_in_docstrings_are_true():
    modules = [importlib.import_module(f"mlm_lib.{name}") for name in PATHS]
    assert {module.__name__ for module in modules if doctest.testmod(module).failed} == set()


# ------------------------------------------------------------------------------------ signatures

# Notebooks and outside code rely on these names, on their order and on what is keyword-only.
SIGNATURES = """
corpus.load_corpus(source, split="train", *, seed=0)
corpus.pack_blocks(encoded, block_size, *, cls_id, sep_id)
wordpiece.WordPieceTokenizer.train(texts, vocab_size, *, min_frequency=2, lowercase=True)
wordpiece.WordPieceTokenizer.from_vocab(path, *, lowercase=None)
wordpiece.WordPieceTokenizer.save(path)
wordpiece.WordPieceTokenizer.tokenize(text)
wordpiece.WordPieceTokenizer.encode(text, *, add_special_tokens=True)
wordpiece.WordPieceTokenizer.decode(ids)
wordpiece.WordPieceTokenizer.to_hf()
masking.mask_tokens(input_ids, *, mask_token_id, random_token_ids, special_tokens_mask, rate=0.15,
    mask_share=0.8, random_share=0.1, word_ids=None, generator=None)
labels.labels_to_positions(labels, max_masks=None)
labels.positions_to_labels(mask_positions, mask_ids, mask_weights, length)
masking.MaskingCollator(tokenizer, *, rate=0.15, mask_share=0.8, random_share=0.1,
    strategy="token", pad_to_multiple_of=None, seed=None)
masking.MaskingCollator.__call__(examples)
losses.masked_cross_entropy(logits, labels)
softmax.SoftmaxLoss(vocab_size, embedding_dim)
softmax.SoftmaxLoss.forward(embeddings, targets)
softmax.SampledSoftmaxLoss(vocab_size, embedding_dim, num_samples, *, sparse=False)
softmax.SampledSoftmaxLoss.forward(embeddings, targets)
heads.MaskedLMHead(hidden_size, vocab_size=None, *, token_embedding=None, activation="gelu",
    output_activation=None, layer_norm_eps=1e-12)
heads.MaskedLMHead.forward(hidden, mask_positions=None)
encoder.EncoderConfig(vocab_size, hidden_size, num_layers, num_heads, intermediate_size,
    max_length=512, type_vocab_size=2, dropout=0.1, layer_norm_eps=1e-12, pad_token_id=0)
encoder.BertEncoder(config)
encoder.BertEncoder.forward(input_ids, attention_mask=None, token_type_ids=None, *,
    output_hidden_states=False, output_attentions=False)
modern.ModernConfig(vocab_size, hidden_size, num_layers, num_heads, intermediate_size, window=128,
    global_every=3)
modern.ModernEncoder(config)
modern.ModernEncoder.forward(input_ids, attention_mask=None, *, output_hidden_states=False,
    output_attentions=False)
masked_lm.MaskedLanguageModel(embedder, head, contextualizer=None, *, dropout=0.0, top_k=5)
masked_lm.MaskedLanguageModel.from_config(config)
masked_lm.MaskedLanguageModel.forward(input_ids, attention_mask=None, token_type_ids=None, *,
    labels=None, mask_positions=None, target_ids=None)
masked_lm.MaskedLanguageModel.decode(output, tokenizer)
language_model.LSTMContextualizer(input_size, hidden_size, num_layers, *, bidirectional,
    dropout=0.0)
language_model.LSTMContextualizer.forward(embeddings, mask, *, all_layers=False)
language_model.TransformerContextualizer(hidden_size, num_layers, num_heads, *, bidirectional,
    dropout=0.1)
language_model.TransformerContextualizer.forward(embeddings, mask, *, all_layers=False)
language_model.LanguageModel(vocab_size, embedder, contextualizer, *, dropout=0.0,
    num_samples=None, sparse_embeddings=False, bidirectional=False, pad_token_id=0)
language_model.LanguageModel.forward(input_ids, mask=None)
language_model.LanguageModel.delete_softmax()
language_model.LanguageModel.num_layers()
language_model.LanguageModel.get_metrics(reset=False)
leakage.find_leaks(contextualizer, input_size, *, direction, length=8, seed=0)
leakage.assert_no_leaks(contextualizer, input_size, *, length=8)
pretrained.load_checkpoint(name="course-bert", *, device="cpu")
pretrained.from_hf(bert_for_masked_lm)
pretrained.to_hf(model)
pretrained.save_pretrained(model, tokenizer, folder)
grammar.Grammar.load(path=None, *, worlds=None)
grammar.Grammar.sample(n, *, seed=0)
grammar.Grammar.log_prob(words)
grammar.Grammar.posteriors(words, observed)
grammar.Grammar.floor(documents, *, objective="masked", rate=0.15, mask_share=1.0,
    random_share=0.0, seed=0)
training.train(model, dataset, collator, config, *, out=None, resume=False, evaluate=None,
    callbacks=())
evaluation.fill_mask(model, tokenizer, text, *, top_k=5)
evaluation.pseudo_log_likelihood(model, tokenizer, texts, *, whole_word=False, batch_size=64)
evaluation.pseudo_perplexity(model, tokenizer, texts, *, whole_word=False)
evaluation.masked_answers(model, batches)
evaluation.mean_nats(answers)
evaluation.masked_accuracy(model, batches, *, top_k=1)
evaluation.calibration(probabilities, targets, *, bins=15)
evaluation.closed_gap(loss, start, floor)
diffusion.DiffusionCollator(tokenizer, *, draw="stratified", seed=None)
diffusion.nelbo(model, tokenizer, rows, *, samples=1, draw="count", seed=0)
diffusion.exact_nelbo(log_posteriors, words)
writing.write(model, tokenizer, lengths, *, steps=None, rule="random", temperature=1.0, given=None,
    seed=0)
"""


def parameters(function, *, keyword_only):
    found = inspect.signature(function).parameters.values()
    return {
        p.name: p.default
        for p in found
        if (p.kind is p.KEYWORD_ONLY) == keyword_only and p.name != "self"
    }


def test_signatures_are_those_of_the_design():
    for name, text in re.findall(r"^(\w\S*?)\((.*?)\)\n(?=\w|\Z)", SIGNATURES, re.M | re.S):
        file, *path = name.split(".")
        found = importlib.import_module(f"mlm_lib.{file}")
        for part in path:
            found = getattr(found, part)
        expected = eval(f"lambda {' '.join(text.split())}: None")
        plain, options = (parameters(found, keyword_only=only) for only in (False, True))
        assert plain == parameters(expected, keyword_only=False), name
        needed = parameters(expected, keyword_only=True)
        assert {option: options.get(option, "missing") for option in needed} == needed, name
        more = options.keys() - needed
        assert all(options[option] is not inspect.Parameter.empty for option in more), name
