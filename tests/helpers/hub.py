"""As much of the Hugging Face hub as its clients ask for, on 127.0.0.1: models and data sets."""

import contextlib
import hashlib
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


HEAVY = 10 << 20  # bytes: huggingface_hub asks again for ever as long as so many come at once
PAGE = b"<!DOCTYPE html><html><title>Sign in to this network</title></html>"


class Hub(http.server.BaseHTTPRequestHandler):
    """Answers from `server.repositories`: {name: {file: bytes}}."""

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        path = unquote(urlsplit(self.path).path)
        parts = re.sub("^(/api)?(/models|/datasets)?/", "", path).split("/")
        name, (action, *rest) = "/".join(parts[:2]), [*parts[2:], ""]
        self.server.asked.append((name, self.command, path))
        fault = self.server.faults.get(name)
        if fault == "failing":
            return self.reply(500, {})
        if fault == "silent" or (fault == "mute" and action == "resolve"):
            return time.sleep(600)
        if name in self.server.expired:  # an answer to a token that is not valid
            return self.reply(
                401, {"X-Error-Message": "Invalid credentials in Authorization header"}
            )
        if name not in self.server.repositories:
            return self.reply(404, {"X-Error-Code": "RepoNotFound"})
        files = self.server.repositories[name]
        entries = {file: entry(file, content) for file, content in files.items()}
        if action == "resolve" and name in self.server.gated:  # the list of files is for everyone
            self.reply(403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "You are not listed."})
        elif action == "resolve" and rest[1] in files:
            # What stands between may send its own page, or nothing, under the name of the file.
            sent = {"page": PAGE, "empty": b""}.get(fault, files[rest[1]])
            self.reply(200, {"ETag": f'"{entries[rest[1]]["oid"]}"'}, sent)
        elif action in ("", "revision"):
            siblings = [{"rfilename": file, "size": len(files[file])} for file in files]
            self.describe({"id": name, "sha": COMMIT, "siblings": siblings, "tags": []})
        elif action == "tree" and not any(rest[1:]):
            self.describe(list(entries.values()))
        elif action == "paths-info":
            form = json.loads(body) if body.startswith("{") else parse_qs(body)
            self.describe([entries[file] for file in form.get("paths", []) if file in entries])
        else:
            self.reply(404, {"X-Error-Code": "EntryNotFound"})

    def describe(self, content):
        self.reply(200, {}, json.dumps(content).encode())

    def reply(self, status, headers, body=b""):
        self.send_response(status)
        headers = {"X-Repo-Commit": COMMIT, "Content-Length": len(body), **headers}
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command == "HEAD":
            return
        fault = self.fault() if len(body) > 1000 else None  # a file of weights
        sent = {"stalled": len(body) // 2, "dropped": len(body) // 2}
        if len(body) > HEAVY:
            sent["endless"] = len(body) - 1
        with contextlib.suppress(ConnectionError):  # its reader had enough
            self.wfile.write(body[: sent.get(fault, len(body))])
        if fault == "stalled":
            self.wfile.flush()
            time.sleep(600)

    def fault(self):
        """What goes wrong with this repository's files on their way."""
        name = "/".join(urlsplit(self.path).path.split("/")[1:3])
        return self.server.faults.get(name)

    def log_message(self, *args):
        pass

    do_GET = do_HEAD = do_POST = answer


def entry(file, content):
    """A file as the hub lists it."""
    oid = hashlib.sha1(content).hexdigest()
    return {"type": "file", "path": file, "size": len(content), "oid": oid}


@contextlib.contextmanager
def serve(repositories, *, gated=(), expired=(), faults={}):
    """Serves {name: {file: bytes}} in the block; yields its URL and what it was asked so far.

    A gated repository lists its files and hands out none, an expired one refuses the token. By
    `faults` one is "failing" (an error of the server), "silent" (it never answers), "mute" (nor
    for a file), "stalled" (after half of a file it sends no more), "dropped" (after half it
    hangs up), "endless" (of a heavy file it never sends the last byte), "page" (a page in place of
    each file) or "empty" (nothing in its place).
    """
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.repositories, server.asked = repositories, []
    server.gated, server.expired, server.faults = gated, expired, faults
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.asked
    finally:
        server.shutdown()
        server.server_close()


def start(script, environment):
    """tests/scripts/`script` in a fresh interpreter: libraries read the environment at import."""
    keep = {
        name: value
        for name, value in os.environ.items()
        if not re.match("HF_|.*_PROXY", name, re.IGNORECASE)
    }
    ours = {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'helpers'}",
        "PYTHONUTF8": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_UPDATE_DOWNLOAD_COUNTS": "0",  # else `datasets` asks a server elsewhere
    }
    return subprocess.Popen(
        [sys.executable, ROOT / "tests" / "scripts" / script],
        env=keep | ours | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def answer_of(process):
    """What a script printed last, as JSON."""
    try:
        out, err = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])
