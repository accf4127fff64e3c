"""Runs every block of a page as a reader would: one after the other, in one folder.

    python tools/docs/run_page.py docs/tour.md [--python PYTHON]

`sh` blocks: each line is a command, which exits with 0, or with N where it says `# exits with N`.
`python` blocks: below "Save this as `NAME`" the file NAME, else a program.
`text` blocks: lines that the block before them must have printed, with … for what is left out.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"^```(sh|python|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"Save this as `([\w.]+)`[^\n]*\n+$")
CODE = re.compile(r"# exits with (\d+)")


@dataclass(frozen=True)
class Block:
    kind: str  # "sh", "python", "file" or "text"
    text: str
    line: int
    name: str = ""  # of a file


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = []
    for match in BLOCK.finditer(text):
        saved = FILE.search(text[: match.start()])
        kind = "file" if saved and match[1] == "python" else match[1]
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(kind, match[2], line, saved[1] if saved else ""))
    return found


class Reader:
    """Types what a page says, in `folder`, with the peakline that belongs to `python`."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self.folder = folder
        self.python = python
        self.printed = ""  # by the last block that ran

    def does(self, block: Block) -> None:
        """Raises AssertionError when the page is wrong."""
        if block.kind == "file":
            (self.folder / block.name).write_text(block.text)
        elif block.kind == "python":
            self.printed = self._run([self.python, "-c", block.text], 0)
        elif block.kind == "sh":
            self.printed = "".join(self._type(line) for line in block.text.splitlines())
        else:
            self._compare(block.text)

    def _type(self, line: str) -> str:
        words = shlex.split(line, comments=True)
        code = CODE.search(line)
        return self._run(words, int(code[1]) if code else 0) if words else ""

    def _run(self, words: list[str], code: int) -> str:
        beside = str(Path(self.python).parent)
        env = {**os.environ, "PATH": beside + os.pathsep + os.environ["PATH"]}
        done = subprocess.run(
            words, cwd=self.folder, env=env, capture_output=True, text=True, timeout=300,
            check=False,
        )  # fmt: skip
        assert done.returncode == code, f"{done.returncode}, not {code}: {words}\n{done.stderr}"
        return done.stdout

    def _compare(self, text: str) -> None:
        lines = {line.rstrip() for line in self.printed.splitlines()}
        for line in text.splitlines():
            expected = line.rstrip()
            assert not expected or expected == "…" or expected in lines, (
                f"not printed: {expected}\nbut:\n{self.printed}"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("--python", default=sys.executable)
    args = parser.parse_args()
    page = args.page.resolve()
    with tempfile.TemporaryDirectory() as folder:
        reader = Reader(Path(folder), args.python)
        for block in blocks(page):
            try:
                reader.does(block)
            except AssertionError as error:
                print(f"{args.page}:{block.line}: {error}", file=sys.stderr)
                return 1
    print(f"{args.page}: {len(blocks(page))} blocks work")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
