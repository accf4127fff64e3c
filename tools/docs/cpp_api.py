"""The C++ reference as Markdown: the public headers in the order of reading, without plumbing.

    python tools/docs/cpp_api.py INCLUDE_FOLDER...

Headers say what each thing promises, so the reference is what they say.
"""

import re
import sys
from pathlib import Path

GROUPS = {
    "Values": ["status", "units", "ids", "dtype", "category", "certainty", "counts"],
    "Recordings": ["trace", "event", "dictionary", "event_sink", "import", "export"],
    "Answers": [
        "summary", "report", "diff", "merge", "live", "text", "show_text", "estimate_text",
        "diagnostics",
    ],
    "Passes over events": ["replay", "ledger", "context", "address_map"],
    "The caching allocator": [
        "allocator", "allocator_config", "allocator_stats", "simulate", "simulate_text",
        "device_model",
    ],
    "GPUs, kernels and time": [
        "device_profile", "kernel_memory", "conv_planner", "clock", "cost", "time_rates",
        "measured_calls", "checkpoint_plan",
    ],
    "Programs that train with libtorch": ["torch", "tracker", "virtual_gpu", "module_call", "api"],
}  # fmt: skip
PLUMBING = re.compile(r"^(#pragma once|#include .*|namespace [\w:]+ \{|\}  // namespace.*)$")
PRIVATE = re.compile(r"\n private:\n.*?\n\};", re.DOTALL)


def split(source: str) -> tuple[str, str]:
    """What the header says of itself, and its declarations."""
    lines = source.splitlines()
    first = next((i for i, line in enumerate(lines) if not line.startswith("//")), len(lines))
    words = [line.removeprefix("//").removeprefix(" ") for line in lines[:first]]
    code = "\n".join(line for line in lines[first:] if not PLUMBING.match(line))
    code = re.sub(r"\n{3,}", "\n\n", PRIVATE.sub("\n};", code)).replace("\n\n};", "\n};")
    return "\n".join(words).strip(), code.strip()


def header_text(path: Path) -> str:
    says, code = split(path.read_text())
    name = path.as_posix().rpartition("/include/")[2]  # as a program includes it
    return f"### {name}\n\n{says}\n\n```cpp\n#include <{name}>\n\n{code}\n```"


def page(folders: list[Path]) -> str:
    left = {path.stem: path for folder in folders for path in sorted(folder.rglob("*.h"))}
    parts = []
    for title, names in GROUPS.items():
        parts.append(f"## {title}")
        parts += [header_text(left.pop(name)) for name in names if name in left]
    if left:
        parts.append("## More")
        parts += [header_text(path) for path in left.values()]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print(page([Path(word) for word in sys.argv[1:]]))
