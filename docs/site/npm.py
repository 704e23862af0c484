"""Fetches packages from npm in the version that a package.json pins.

`python3 -m docs.site.npm` fetches all packages that the site needs, for later builds without a
network. It needs only Python's standard library, so it can be called before the set-up.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

SITE = Path(__file__).resolve().parent
REVEAL = SITE / "deck" / "node_modules" / "reveal.js"  # shows the slides
RUNTIME = SITE / "fill_the_blank" / "node_modules" / "onnxruntime-web"  # runs the models


def fetch(package: Path, what: str) -> None:
    """Make sure that a package is there in the version that is pinned.

    Args:
        package: the folder of the fetched package, `FOLDER/node_modules/NAME`, where FOLDER has
            package.json and package-lock.json.
        what: the name of what needs the package, for messages.

    Raises:
        SystemExit: npm is missing, or could not fetch it.
    """
    folder = package.parents[1]
    pinned = json.loads((folder / "package.json").read_text("utf-8"))["dependencies"]
    wanted = f"{package.name} {pinned[package.name]}"
    found = package / "package.json"
    if found.is_file():
        if json.loads(found.read_text("utf-8"))["version"] == pinned[package.name]:
            return
    npm = shutil.which("npm")
    if npm is None:
        sys.exit(
            f"{what} needs {wanted}, and npm, which fetches it, is not installed. Install Node.js "
            "(Debian and Ubuntu: apt install npm) and call this again."
        )
    print(f"fetching {wanted} with npm")
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        told = f"{done.stdout}{done.stderr}".strip()
        sys.exit(f"{told}\nnpm could not fetch {wanted}: is there a network?")


if __name__ == "__main__":
    fetch(RUNTIME, "The page that fills blanks")
    fetch(REVEAL, "A page of slides")
