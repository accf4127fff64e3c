"""Lists the ops that have a kernel of their own on CUDA, for the virtual GPU.

    python tools/list_cuda_ops.py NATIVE_FUNCTIONS_YAML OUTPUT

torch's wheel carries the list of all ops with the backends that implement each. What is in no such
list is composed of other ops, on a real GPU and on a virtual one alike. The file is read line by
line: its shape is fixed, and a YAML reader need not be installed.
"""

import re
import sys
from pathlib import Path

FUNC = re.compile(r"^- func: ([A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)?)\(")
DELEGATE = re.compile(r"^  structured_delegate: (\S+)")
DISPATCH = re.compile(r"^    ([A-Za-z0-9_, ]+): \S+")


def cuda_ops(text: str) -> list[str]:
    own: list[str] = []
    delegates: dict[str, str] = {}
    name = ""
    in_dispatch = False
    for line in text.splitlines():
        if match := FUNC.match(line):
            name, in_dispatch = match[1], False
        elif match := DELEGATE.match(line):
            delegates[name] = match[1]
            in_dispatch = False
        elif line.startswith("  ufunc_inner_loop:"):
            own.append(name)
            in_dispatch = False
        elif line.startswith("  dispatch:"):
            in_dispatch = True
        elif in_dispatch and (match := DISPATCH.match(line)):
            if "CUDA" in [key.strip() for key in match[1].split(",")]:
                own.append(name)
        elif line.startswith("  ") and not line.startswith("    "):
            in_dispatch = False
    known = set(own)
    own += [op for op, out in delegates.items() if out in known and op not in known]
    return sorted(set(own))


def main() -> int:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    ops = cuda_ops(source.read_text())
    if len(ops) < 500:
        print(
            f"{source} lists only {len(ops)} ops on CUDA: its form must have changed",
            file=sys.stderr,
        )
        return 1
    lines = "".join(f'"{op}",\n' for op in ops)
    target.write_text(f"// Made by tools/list_cuda_ops.py.\n{lines}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
