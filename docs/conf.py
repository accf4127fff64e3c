"""The documentation site, built by `make docs`: Sphinx, with Markdown as GitHub reads it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "tools/docs"))

import cpp_api  # noqa: E402
import python_api  # noqa: E402

project = "peakline"
author = "peakline's authors"
release = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.M)[1]  # type: ignore[index]
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns: list[str] = []
# Links to headings as GitHub names them, so that a page works in both places.
myst_heading_anchors = 4
myst_links_external_new_tab = True
suppress_warnings = ["myst.header"]  # pages with several titles

html_theme = "furo"
html_title = f"peakline {release}"
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}

# GitHub takes an anchor from HTML, and MyST in a form of its own.
ANCHOR = re.compile(r'^<a id="([\w-]+)"></a>', re.MULTILINE)
# Comments that stand for what is generated; GitHub shows nothing in their place.
OTHER_PAGES = "<!-- pages that no list names -->"
GENERATED = {
    "<!-- the Python reference -->": lambda: python_api.page(ROOT / "python"),
    "<!-- the C++ reference -->": lambda: cpp_api.page(
        [ROOT / "core/include", ROOT / "libtorch/include"]
    ),
}


def other_pages(index: str) -> str:
    """A page that was added and not listed is found at the end of the contents, not lost."""
    listed = set(re.findall(r"^(?:.*<)?([\w/-]+)>?$", index, re.MULTILINE))
    every = {str(path.relative_to(HERE).with_suffix("")) for path in HERE.rglob("*.md")}
    left = sorted(every - listed - {"index"})
    names = "\n".join(left)
    return f"```{{toctree}}\n:hidden:\n:caption: More\n\n{names}\n```" if left else ""


def generate(app: Any, docname: str, source: list[str]) -> None:
    text = source[0]
    for marker, make in GENERATED.items():
        if marker in text:
            text = text.replace(marker, make())
    if OTHER_PAGES in text:
        text = text.replace(OTHER_PAGES, other_pages(text))
    source[0] = ANCHOR.sub(r"(\1)=\n", text)


def always_read(*_: Any) -> list[str]:
    """What these pages are made of is not in them, so that a change there is not seen here."""
    return ["index", "api-python", "api-cpp"]


def setup(app: Any) -> None:
    app.connect("env-get-outdated", always_read)
    app.connect("source-read", generate)
