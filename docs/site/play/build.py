"""Builds the two pages that one can play with: a sentence to mask, and a curve to read.

`python docs/site/play/build.py --out FOLDER` writes them alone, and `docs/site/build.py` writes
them into the site. They need no server. A browser refuses modules and `fetch` to a page that was
opened as a file, so the modules of a page are joined into one plain script, and its data is a
script as well.
"""

import argparse
import json
import math
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BLANK = HERE.parent / "fill_the_blank" / "page"
PAGES = {"masking": "mask-a-sentence", "your_curve": "your-curve"}  # folder: its name on the site
SHARED = "play"  # the folder of what both pages use
IMPORT = re.compile(r'^import [^;]*?from "(\.[^"]+)";\n', re.M)
EXPORT = re.compile(r"^export (?=async |const |function|class )", re.M)


def joined(file: Path) -> str:
    """A module and all modules that it imports, as one script in which each stands once.

    Raises:
        ValueError: a form of import or export, or a name used twice, that joining would break.
    """
    parts: dict[Path, str] = {}

    def add(module: Path) -> None:
        module = module.resolve()
        if module in parts:
            return
        code = module.read_text("utf-8")
        parts[module] = ""  # in a circle, the module is not added again
        for name in IMPORT.findall(code):
            add(module.parent / name)
        if re.search(r"^import [^;]*? as ", code, re.M):
            raise ValueError(f"{module.name} imports something under another name")
        code = EXPORT.sub("", IMPORT.sub("", code))
        if re.search(r"^(import|export)\b", code, re.M):
            raise ValueError(f"{module.name} has an import or an export that cannot be joined")
        del parts[module]
        parts[module] = code

    add(file)
    names = re.findall(
        r"^(?:async )?(?:const|let|function\*?|class) (\w+)", "\n".join(parts.values()), re.M
    )
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"{file}: {', '.join(sorted(twice))} would be defined twice")
    return "(() => {\n" + "\n".join(parts.values()) + "})();\n"


def build(site: Path) -> None:
    """Write both pages, and what they share, into the folder of a site."""
    shared = site / SHARED
    shared.mkdir(parents=True)
    for file in (BLANK / "style.css", BLANK / "theme.js", HERE / "more.css"):
        shutil.copy(file, shared)
    save(shared / "vocabulary.js", vocabulary())
    save(shared / "curves.js", {"examples": examples()})
    for folder, name in PAGES.items():
        page = site / name
        page.mkdir()
        shutil.copy(HERE / folder / "index.html", page)
        (page / "page.js").write_text(joined(HERE / folder / "page.js"), "utf-8", newline="\n")


def vocabulary() -> dict:
    """What the tokenizer of course-bert needs, and the paragraph that lesson 02 masks."""
    data = ROOT / "data"
    return {
        "vocabulary": (data / "course-bert" / "vocab.txt").read_text("utf-8").rstrip("\n"),
        "characters": json.loads((data / "bert_characters.json").read_text("utf-8")),
        "passage": (data / "passages.txt").read_text("utf-8").split("\n\n")[0].strip(),
    }


NAMES = {
    "sound": "a sound run",
    "labels_after_masking": "labels copied after masking",
    "labels_everywhere": "labels at visible tokens",
    "padding": "labels at padding",
    "repeated": "thirty documents, repeated",
    "rate": "a learning rate that is too high",
    "rate_low": "a learning rate that is too low",
    "vocabulary": "another vocabulary",
    "eight": "eight rows, at the rate that is too high",
    "eight_tenth": "eight rows, at a tenth of that rate",
}


def examples() -> list[dict]:
    """The stored curves of read_your_curve.md, as log files of `pretrain`, with their lines."""
    stored = json.loads((ROOT / "docs" / "curves" / "curves.json").read_text("utf-8"))
    lines = stored["landmarks"]
    found = []
    for key, run in stored["runs"].items():
        rows: dict[int, dict] = {}
        for name, points in (("loss", run["log"]), ("held_out_loss", run["held_out"])):
            for step, loss in points:
                rows.setdefault(step, {"step": step})[name] = loss
        log = "".join(json.dumps(rows[step]) + "\n" for step in sorted(rows))
        found.append(
            {
                "name": NAMES[key],
                "file": f"{key}.jsonl",
                "text": log,
                "size": round(math.exp(lines["ln V"])),
                "unigram": lines["unigram entropy"],
                "floor": lines["floor"],
            }
        )
    return found


def save(path: Path, content: dict) -> None:
    """Data as a script, which adds it to the object COURSE."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    code = f"globalThis.COURSE = {{ ...globalThis.COURSE, ...{text} }};\n"
    path.write_text(code, "utf-8", newline="\n")


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    text = "a folder for the pages (default: build/play); an older build in it is replaced"
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "play", help=text)
    out = parser.parse_args(argv).out
    for name in (SHARED, *PAGES.values()):
        shutil.rmtree(out / name, ignore_errors=True)
    build(out)
    print(f"{out}: {' '.join(PAGES.values())}")


if __name__ == "__main__":
    main(sys.argv[1:])
