"""The text of a grammar file, and which of its lines a mistake stands in. Built in lesson 08."""

import re
import tomllib
from dataclasses import dataclass, replace

HEAD = re.compile(r"\s*\[([\w.\" -]+)\]\s*(#.*)?$")


class GrammarText:
    """The text of a grammar file and its tables."""

    def __init__(self, path):
        self.path = path
        try:
            self.text = path.read_text(encoding="utf-8")
            self.tables = tomllib.loads(self.text)  # its errors name line and column
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ValueError(f"{path} is no TOML file: {error}") from None
        if not self.tables:
            raise Where(self).error("no world in it")


@dataclass(frozen=True)
class Where:
    """A place in a grammar file: a world, a table, and a text in its line or a key before it."""

    file: GrammarText
    world: str = ""
    table: str = ""
    text: str = ""
    key: str = ""

    def at(self, **changes):
        return replace(self, **changes)

    def error(self, message):
        """A ValueError that names file, line and world."""
        world = f"world {self.world!r}: " if self.world else ""
        return ValueError(f"{self.file.path}, line {self._line()}: {world}{message}")

    def told(self, message):
        """The same about a part of a sentence, which it quotes."""
        return self.error(f"{message}, in {self.text!r}")

    def _line(self):
        """The first line in the table that has the text or begins with the key, else its head.

        A table without a head of its own is looked for in the one around it.
        """
        best, inside, nearest = 1, not self.table, ""
        begins = re.compile(rf"\s*(\S+\.)?{re.escape(self.key)}\s*[.=]")
        for number, line in enumerate(self.file.text.splitlines(), 1):
            head = HEAD.match(line)
            if head:
                around = f"{self.table}.".startswith(f"{head[1]}.")
                inside = around or not self.table or f"{head[1]}.".startswith(f"{self.table}.")
                nearer = not nearest or (around and len(head[1]) > len(nearest))
                if inside and self.table and nearer:
                    best, nearest = number, head[1]
            has_text = self.text and self.text in line
            if inside and (has_text or (self.key and begins.match(line))):
                return number
        return best
