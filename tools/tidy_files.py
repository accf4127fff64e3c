"""Which source files clang-tidy reads: one a line on stdout, and why on stderr.

    tools/tidy_files.py COMPILE_COMMANDS            every file that is compiled
    tools/tidy_files.py COMPILE_COMMANDS --changed  those that changed since LINT_BASE

LINT_BASE is a commit; without it, the newest that is a day older than the last one, or else the
oldest there is. A file that includes torch takes clang-tidy half a minute of a core, so of these at
most LINT_TORCH_FILES (30: eight minutes on two cores) are read, those that changed last; of the
others, a third as long each, at most LINT_FILES (60). What is left out is named.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

_DAY_S = 24 * 60 * 60


def git(*arguments: str) -> str:
    """What it prints; nothing where it fails."""
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def say(sentence: str) -> None:
    print(f"clang-tidy: {sentence}", file=sys.stderr)


def compiled(commands: Path, root: Path) -> dict[str, bool]:
    """Files of ours that are compiled, and whether they include torch."""
    found = {}
    for entry in json.loads(commands.read_text()):
        path = Path(entry["file"])
        if path.is_relative_to(root) and not path.is_relative_to(root / "build"):
            found[str(path.relative_to(root))] = "torch/include" in entry["command"]
    return found


def base() -> str:
    """The commit to compare with; nothing where there is no history at all."""
    given = os.environ.get("LINT_BASE")
    if given:
        if not git("rev-parse", "--verify", "--quiet", given + "^{commit}"):
            say(f"LINT_BASE={given} is no commit of this repository")
            raise SystemExit(2)
        return given
    last = git("log", "-1", "--format=%ct")
    if not last:
        return ""
    old_enough = git("rev-list", "-1", f"--before={int(last) - _DAY_S}", "HEAD")
    commits = git("rev-list", "HEAD").splitlines()
    return old_enough or (commits[-1] if len(commits) > 1 else "")


def changed(since: str) -> set[str]:
    """A header is read with the source file of its name."""
    names = git("diff", "--name-only", "--diff-filter=d", since, "--", "*.cc", "*.h").splitlines()
    names += git("ls-files", "--others", "--exclude-standard", "--", "*.cc", "*.h").splitlines()
    return {str(Path(name).with_suffix(".cc")) for name in names}


def last_change(name: str) -> int:
    """When it, or its header, was last committed; later than all where it was not."""
    both = [name, str(Path(name).with_suffix(".h"))]
    if git("status", "--porcelain", "--", *both):
        return sys.maxsize
    return int(git("log", "-1", "--format=%ct", "--", *both) or 0)


def bounded(files: list[str], most: int) -> list[str]:
    newest_first = sorted(files, key=lambda name: (-last_change(name), name))
    for name in newest_first[most:]:
        say(f"{name} changed too, and is left to `make lint`")
    return newest_first[:most]


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[2:] not in ([], ["--changed"]):
        say("usage: tools/tidy_files.py COMPILE_COMMANDS [--changed]")
        return 2
    files = compiled(Path(sys.argv[1]), Path.cwd())
    if sys.argv[2:] != ["--changed"]:
        print("\n".join(sorted(files)))
        return 0
    since = base()
    if since:
        say("what changed since " + git("log", "-1", "--format=%h (%cd)", "--date=short", since))
        names = sorted(changed(since) & files.keys())
    else:
        say("there is no earlier commit to compare with, so every file counts as changed")
        names = sorted(files)
    most = int(os.environ.get("LINT_TORCH_FILES", "30"))
    chosen = bounded([name for name in names if files[name]], most)
    chosen += bounded(
        [name for name in names if not files[name]], int(os.environ.get("LINT_FILES", "60"))
    )
    say(f"{len(chosen)} of {len(names)} changed files are read" if names else "nothing to read")
    print("\n".join(chosen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
