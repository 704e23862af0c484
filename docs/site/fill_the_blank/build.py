"""Build the page that fills blanks: `python docs/site/fill_the_blank/build.py --out FOLDER`.

The folder can be served by any static server, under any path. It needs npm once, for the program
that runs the model in a browser; what npm fetched is kept in node_modules beside this file.
"""

import argparse
import json
import math
import random
import shutil
import sys
import tomllib
from bisect import bisect_left
from itertools import accumulate, count, islice
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2])]  # beside this file, and the course itself

SCRIPT, PROGRAM = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"
# As .js, since not every server knows that .mjs is a script.
RENAMED = {SCRIPT: "onnxruntime.js", PROGRAM: "onnxruntime.wasm"}
WRITER = HERE.parents[2] / "data" / "course-writer"
TRIAL = 40  # documents of each kind, about seven blanks in each
OWN = ["*.html", "*.css", "*.js", "*.json", "*.onnx", "*.wasm"]


def build(out, writer=WRITER):
    """Write the page into a folder.

    Args:
        out: the folder; files of an older build in it are replaced.
        writer: the checkpoint that writes; left out if its folder holds no weights.

    Raises:
        ValueError: an exported model that differs from torch.
        SystemExit: as `docs.site.npm.fetch`.
    """
    from docs.site.npm import RUNTIME, fetch

    fetch(RUNTIME, "The page that fills blanks")
    from examples import examples

    from mlm_lib import DATA
    from mlm_lib.engine.files import write_folder
    from mlm_lib.pretrained import load_checkpoint

    with write_folder(out, OWN) as stage:
        for file in sorted((HERE / "page").iterdir()):
            shutil.copy(file, stage)
        for name, ours in RENAMED.items():
            shutil.copy(RUNTIME / "dist" / name, stage / ours)
        script = stage / RENAMED[SCRIPT]  # whose last line names a map that is not published
        code = script.read_text("utf-8").split("\n//# sourceMappingURL=")[0]
        script.write_text(code + "\n", "utf-8", newline="\n")
        shutil.copy(DATA / "bert_characters.json", stage / "characters.json")

        model, tokenizer = load_checkpoint("course-bert")
        settings = publish(model, tokenizer, "course-bert", texts_of_all_kinds(), stage)
        # What the page fetches before its first answer, and tells its reader beforehand.
        settings["fetched"] = settings["bytes"] + (stage / RENAMED[PROGRAM]).stat().st_size
        save(stage / "examples.json", examples(tokenizer))
        if (Path(writer) / "model.safetensors").is_file():
            settings["writer"] = publish_writer(writer, stage)
        else:
            print(f"no {Path(writer).name}/model.safetensors, so the page does not write")
        save(stage / "settings.json", settings)
    size = sum(file.stat().st_size for file in Path(out).iterdir() if file.is_file())
    print(f"{out}: {size / 1e6:.1f} MB")


def publish(model, tokenizer, name, texts, stage):
    """Export a model, check it against torch on masked texts, and write its vocabulary.

    Returns:
        What the page has to know of it.
    """
    from export import export, largest_difference

    file, config = stage / f"{name}.onnx", model.embedder.config
    size = export(model, file)
    rows = masked_rows(tokenizer, texts, config.max_length)
    chance, weight, count = largest_difference(model, file, rows, tokenizer.mask_token_id)
    print(
        f"{name}: {size / 1e6:.1f} MB; at {count} blanks it differs from torch by at most "
        f"{chance:.0e} in a probability and {weight:.0e} in an attention weight"
    )
    vocab = tokenizer.get_vocab()
    save(stage / f"{name}-vocabulary.json", sorted(vocab, key=vocab.get))
    return {
        "model": file.name,
        "vocabulary": f"{name}-vocabulary.json",
        "bytes": size,
        "longest": config.max_length,
        "layers": config.num_layers,
        "heads": config.num_heads,
    }


def publish_writer(folder, stage):
    """The same for the checkpoint that writes, and which lengths its documents have."""
    from mlm_lib.grammar import Grammar
    from mlm_lib.pretrained import load_checkpoint

    model, tokenizer = load_checkpoint(str(folder))
    data = tomllib.loads((WRITER / "recipe.toml").read_text("utf-8"))["data"][0]
    grammar, longest = Grammar.load(worlds=data["worlds"]), model.embedder.config.max_length - 2
    lengths = lengths_of(grammar, min(longest, data.get("longest", longest)))
    # The lengths that the page offers: at others the model was not trained, and may be as rough
    # as it likes.
    sample = (words for seed in count(1) for words in grammar.sample(1000, seed=seed))
    short = (" ".join(words) for words in sample if len(words) <= lengths["most"])
    settings = publish(model, tokenizer, "course-writer", list(islice(short, TRIAL)), stage)
    return settings | {"lengths": lengths}


def lengths_of(grammar, longest):
    """How long a grammar's documents are, of those of at most so many words.

    Returns:
        {"least", "typical", "most"}: one in two hundred is shorter than the first or longer than
        the last, at most; the second is the median.

    Raises:
        ValueError: no document is as short as that.
    """
    sizes = range(1, longest + 1)
    sums = list(accumulate(math.exp(grammar.log_prob_of_length(size)) for size in sizes))
    if not sums[-1]:
        raise ValueError(f"longest={longest}, but the grammar has no document of so few words")
    shares = {"least": 0.005, "typical": 0.5, "most": 0.995}
    return {name: 1 + bisect_left(sums, share * sums[-1]) for name, share in shares.items()}


def texts_of_all_kinds():
    """Documents of the grammar and reviews, none of them trained on, and our passages."""
    from mlm_lib import DATA
    from mlm_lib.corpus import load_corpus

    passages = (DATA / "passages.txt").read_text("utf-8").split("\n\n")
    return (
        load_corpus("grammar", "test")[:TRIAL] + load_corpus("reviews", "test")[:TRIAL] + passages
    )


def masked_rows(tokenizer, texts, longest):
    """A row of ids for each text, with blanks at a rate between nearly none and all."""
    rng, rows = random.Random(0), []
    for text in texts:
        row = tokenizer.encode(text)[:longest]
        places = range(1, len(row) - 1)
        hidden = set(rng.sample(places, 1 + int(rng.random() ** 3 * (len(places) - 1))))
        rows.append([tokenizer.mask_token_id if at in hidden else i for at, i in enumerate(row)])
    return rows


def save(path, content):
    """JSON without line breaks."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    path.write_text(text + "\n", "utf-8", newline="\n")


def main(argv=None):
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/fill-the-blank"), metavar="FOLDER")
    text = "the checkpoint that writes (default: data/course-writer)"
    parser.add_argument("--writer", type=Path, default=WRITER, metavar="FOLDER", help=text)
    args = parser.parse_args(argv)
    build(args.out, args.writer)


if __name__ == "__main__":
    main()
