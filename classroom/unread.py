"""Says in plain words what a file is that was handed in as a notebook and is not one."""

import json
import re

FETCH = "; hand in the notebook itself, which is the file .ipynb"
# What a file is, by its first bytes.
BYTES = {
    b"PK\x03\x04": "a zip file, or a document of an office program",
    b"Rar!": "an archive (RAR), and only zip files are opened",
    b"7z\xbc\xaf": "an archive (7z), and only zip files are opened",
    b"\x1f\x8b": "an archive (gzip), and only zip files are opened",
    b"%PDF": "a PDF",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"\xd0\xcf\x11\xe0": "a document of an office program",
}
# What a text is, by an expression that is found near its beginning.
TEXTS = {
    r"\A\s*(\[InternetShortcut\]|\[Desktop Entry\]|https?://\S+\s*\Z|<\?xml.*<key>URL</key>)"
    r"|\A\s*\{\s*\"(url|doc_id|resource_id)\"": "a shortcut to a place in the web or in a cloud "
    "drive, without the file that is there",
    r"\A\s*<(!doctype|!--|html|head|body|\?xml)": "a page (HTML), as a browser saves it",
    r"^(import \w|from [\w.]+ import |def \w+\(|class \w+)": "a script of Python",
}
CONFLICT = re.compile(r"^([<>])\1{6} ", re.M)


def what(data: bytes) -> str:
    """What the content of a file is, and what its author can do, to follow "is not a notebook "."""
    for first, found in BYTES.items():
        if data.startswith(first):
            return f"but {found}{FETCH}"
    if not data.strip(b"\0"):
        return "but holds only zero bytes, since it was not copied completely; hand it in again"
    text = data.decode(json.detect_encoding(data), "replace").strip()
    if set(CONFLICT.findall(text)) == {"<", ">"}:
        return "as long as it holds Git's marks of a conflict (<<<<<<<); resolve the conflict first"
    for form, found in TEXTS.items():
        if re.search(form, text[:2000], re.M | re.S | re.I):
            return f"but {found}{FETCH}"
    if text.startswith("{") and not text.endswith("}"):
        return "because it ends in the middle; save it once more, and hand it in again"
    if "\ufffd" in text:
        return "because its text is not in UTF-8; open it in Jupyter, save it and hand it in again"
    if text.startswith("{"):
        return f"because its content is damaged or of another kind{FETCH}"
    return f"but a file of another kind{FETCH}"
