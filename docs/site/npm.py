"""Fetches a package from npm in the version that a package.json pins."""

import json
import shutil
import subprocess
import sys
from pathlib import Path


def fetch(package: Path, folder: Path, what: str) -> None:
    """Make sure that a package is there in the version that `folder` pins.

    Args:
        package: the folder of the fetched package, `folder/node_modules/NAME`.
        folder: the folder with package.json and package-lock.json.
        what: the name of what needs the package, for messages.

    Raises:
        SystemExit: npm is missing, or could not fetch it.
    """
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
