"""Finds names of files in the docs that are not in the tree, and links that lead nowhere.

    python tools/check_docs.py [ROOT]

A word in backticks that begins with a folder of the repository, or ends like a source file, must be
the path of something in the tree, or the end of one. Blocks of code are the README test's business.
"""

import re
import subprocess
import sys
from pathlib import Path

LINK = re.compile(r"\]\(([^)#\s]+)?(?:#([^)\s]+))?\)")
CODE = re.compile(r"`([^`\n]+)`")
WORD = re.compile(r"[\w./-]+")
ENDINGS = (".cc", ".h", ".def", ".py", ".sh", ".toml", ".md", ".ts", ".jsonl", ".csv")
# Placeholders (FILE.toml), endings alone, and files of torch, of users, or made by a command.
NOT_OURS = re.compile(r"^\.\w+$|(^|/)([A-Z_]+|train\w*|my|trace)\.\w+$|^build/|^torch/")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def documents(root: Path) -> list[Path]:
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]


def tree(root: Path) -> set[str]:
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode == 0 and listed.stdout:
        return {line for line in listed.stdout.splitlines() if (root / line).exists()}
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def is_there(name: str, folders: set[str], files: set[str]) -> bool:
    name = name.removeprefix("./").rstrip("/")
    return any(path == name or path.endswith("/" + name) for path in (*files, *folders))


def looks_like_ours(word: str, top: set[str]) -> bool:
    if NOT_OURS.search(word) or word.startswith(("/", "-")):
        return False
    return word.endswith(ENDINGS) or ("/" in word and word.split("/")[0] in top)


def missing_names(text: str, files: set[str]) -> list[tuple[int, str]]:
    folders = {str(parent) for path in files for parent in Path(path).parents} - {"."}
    top = {folder for folder in folders if "/" not in folder}
    found = []
    for number, line in enumerate(FENCE.sub(_blank, text).splitlines(), 1):
        for code in CODE.findall(line):
            for word in re.split(r"[\s,;()\[\]'\"]+", code):
                if WORD.fullmatch(word) and looks_like_ours(word, top):
                    name = word if word.endswith(ENDINGS) else word.rstrip("/.")
                    if not is_there(name, folders, files):
                        found.append((number, name))
    return found


def _blank(fence: re.Match[str]) -> str:
    return "\n" * fence[0].count("\n")


def anchors(text: str) -> set[str]:
    named = set(re.findall(r'<a id="([^"]+)"', text))
    for line in FENCE.sub(_blank, text).splitlines():
        if line.startswith("#"):
            title = line.lstrip("#").strip().lower()
            named.add(re.sub(r"[^\w\- ]", "", title).replace(" ", "-"))
    return named


def dead_links(path: Path, text: str) -> list[tuple[int, str]]:
    found = []
    for number, line in enumerate(FENCE.sub(_blank, text).splitlines(), 1):
        for target, anchor in LINK.findall(line):
            if "://" in target:
                continue
            file = path.parent / target if target else path
            if not file.exists():
                found.append((number, target))
            elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text()):
                found.append((number, f"{target}#{anchor}"))
    return found


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent
    files = tree(root)
    bad = 0
    for path in documents(root):
        text = path.read_text()
        where = path.relative_to(root)
        for number, name in missing_names(text, files):
            bad += 1
            print(f"{where}:{number}: there is no '{name}'", file=sys.stderr)
        for number, link in dead_links(path, text):
            bad += 1
            print(f"{where}:{number}: the link '{link}' leads nowhere", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
