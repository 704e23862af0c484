#!/usr/bin/env python3
"""Builds the site of the course: `python docs/site/build.py --out build/site`.

No lesson is executed, and every warning of Sphinx is an error. An older site in the folder stays
until the new one is complete.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLANK = ROOT / "docs" / "site" / "fill_the_blank" / "build.py"
MARK = "searchindex.js"  # a file by which a site of ours is recognised


def fills_blanks() -> bool:
    """Whether the page that fills blanks can be built. npm must have fetched, or be able to fetch,
    the program that runs the model in the browser."""
    fetched = (BLANK.parent / "node_modules").is_dir()
    return BLANK.is_file() and (fetched or shutil.which("npm") is not None)


def has_slides() -> bool:
    """Whether slides can be made. npm must be able to fetch reveal.js, which shows them."""
    from docs.site.slides import fetch_reveal

    try:
        fetch_reveal()
    except SystemExit as told:
        print(f"{told}\nSo the site has no slides.")
        return False
    return True


def build(out: Path) -> int:
    """Build the site into the folder `out`, and return the exit status: 0 if the site is
    complete."""
    from sphinx.cmd.build import main as sphinx

    sys.path.insert(0, str(ROOT))
    from docs.site import slides
    from docs.site.moved import write_moved
    from docs.site.pages import gather
    from docs.site.play.build import build as build_play

    if out.exists() and not (out / MARK).is_file() and any(out.iterdir()):
        print(f"{out} holds something else than a site; choose another folder.", file=sys.stderr)
        return 2
    blank, shown = fills_blanks(), has_slides()
    if not blank:
        print("npm is not here (Debian: npm), so the site has no page that fills blanks.")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix="site-") as folder:
        source, made = Path(folder, "source"), Path(folder, "site")
        gather(source)
        options = [
            "-b",
            "html",
            "-n",
            "-W",
            "--keep-going",
            "-q",
            "-c",
            str(ROOT / "docs" / "site"),
        ]
        options += ["-d", str(Path(folder, "doctrees"))]
        options += [*(["-t", "blank"] if blank else []), *(["-t", "slides"] if shown else [])]
        status = sphinx([*options, str(source), str(made)])
        if status == 0 and blank:
            command = [sys.executable, BLANK, "--out", made / "fill-the-blank"]
            status = subprocess.run(command).returncode
        if status == 0 and shown:
            slides.build(made / "slides")
        if status == 0:
            write_moved(made)
            build_play(made)
            shutil.rmtree(out, ignore_errors=True)
            made.rename(out)
    return status


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    text = "where the site goes (default: build/site)"
    parser.add_argument("--out", type=Path, default=ROOT / "build/site", help=text)
    out = parser.parse_args(argv).out.resolve()
    status = build(out)
    print(f"The site is in {out}" if status == 0 else "The site was not built.", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
