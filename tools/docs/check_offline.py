"""Fails when a page of a site loads anything from another machine; links for readers are fine.

python tools/docs/check_offline.py FOLDER
"""

import re
import sys
from pathlib import Path

LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc\s*=\s*[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b(?![^>]*rel=[\"']?(?:canonical|next|prev|index|search))[^>]*\bhref\s*=\s*[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|@import\s+(?:url\()?[\"']?((?:https?:)?//[^\"'\s>)]+)|url\([\"']?((?:https?:)?//[^\"')]+)"
)


def loaded(text: str) -> list[str]:
    return [next(filter(None, match)) for match in LOADED.findall(text)]


def main() -> int:
    folder = Path(sys.argv[1])
    pages = [p for p in sorted(folder.rglob("*")) if p.suffix in (".html", ".css")]
    found = [(page, address) for page in pages for address in loaded(page.read_text())]
    for page, address in found:
        print(f"{page}: loads {address}", file=sys.stderr)
    if not (folder / "searchindex.js").exists():
        print(f"{folder}: has no search index", file=sys.stderr)
        return 1
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
