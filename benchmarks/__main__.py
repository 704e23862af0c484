"""All suites, one table, one figure and their numbers: `python -m benchmarks`.

Each suite runs in a process of its own, so that none finds the heap of another. The folder gets
`measured.json`, `table.md` and `ratios.png`. The exit status is 0 when all claims hold, 1 when one
does not or a suite fails, 2 for a request that cannot be met.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("agg")

from benchmarks.turns import HEAD, Row, line  # noqa: E402
from mlm_lib import plots  # noqa: E402

ON_CPU = ("masking", "model", "training", "dropout", "softmax", "modern")
ON_GPU = ("accelerator",)


def main():
    """Run the suites that are asked for, and write what they found."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--only", nargs="+", choices=ON_CPU + ON_GPU, metavar="SUITE",
                        help=f"some of {', '.join(ON_CPU + ON_GPU)}")  # fmt: skip
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, help="of torch; by default what it finds")
    parser.add_argument("--quick", action="store_true", help="one turn each; no claim is judged")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"))
    args = parser.parse_args()
    if args.threads is not None and args.threads < 1:
        parser.error(f"--threads {args.threads}: at least 1 is needed")
    if args.out.exists() and not args.out.is_dir():
        parser.error(f"--out {args.out}: there is a file of this name; name a folder")
    suites = args.only or (ON_CPU if args.device == "cpu" else ON_GPU)
    options = ["--device", args.device, *["--quick"] * args.quick]
    options += ["--threads", str(args.threads)] if args.threads else []
    found, failed = {}, []
    for suite in suites:
        print(f"\n== {suite}", flush=True)
        found[suite], status = measured(suite, options)
        failed += [f"{suite} ended with {status}"] if status else []
    args.out.mkdir(parents=True, exist_ok=True)
    keep(args.out, {suite: told for suite, told in found.items() if told})
    print(f"\nmeasured.json, table.md and ratios.png are in {args.out}")
    if failed:
        sys.exit("; ".join(failed))


def measured(suite, options):
    """What a suite wrote, or None, and its exit status."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.json")
        command = [sys.executable, "-m", f"benchmarks.{suite}", "--json", str(file), *options]
        status = subprocess.run(command).returncode
        if status == 2:
            sys.exit(2)  # the suite has said why
        return (json.loads(file.read_text("utf-8")) if file.exists() else None), status


def keep(folder, found):
    """Writes the numbers, the table and the figure of all suites."""
    rows = {suite: [Row(**row) for row in told["rows"]] for suite, told in found.items()}
    on = "; ".join(dict.fromkeys(told["on"] for told in found.values()))
    lines = [line(row.cells()) for some in rows.values() for row in some]
    (folder / "measured.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    (folder / "table.md").write_text("\n".join([on, "", HEAD, *lines, ""]), encoding="utf-8")
    ratios = {
        f"{suite}: {row.what} {row.precision}".strip(): row.ratio
        for suite, some in rows.items()
        for row in some
        if row.ratio
    }
    if ratios:
        ax = plots.axes(width=10.0, height=1.2 + 0.25 * len(ratios))
        plots.dots(list(ratios), list(ratios.values()), reference=1.0, ax=ax,
                   xlabel="times better than the other side")  # fmt: skip
        ax.margins(y=0.01)
        ax.figure.savefig(folder / "ratios.png", dpi=100, bbox_inches="tight")


if __name__ == "__main__":
    main()
