"""Lists ops for the virtual GPU: those with a kernel on CUDA, those with a shape function in C++,
those that are one loop over elements, those of sparse and nested tensors.

    python tools/list_cuda_ops.py NATIVE_FUNCTIONS_YAML CUDA_OPS SHAPE_FUNCTIONS ITERATOR_OPS \\
        COO_OPS COMPRESSED_OPS NESTED_OPS

torch's wheel carries the list of all ops with the backends that implement each. What is in no such
list is composed of other ops, on a real GPU and on a virtual one alike. A structured op has its
shape function in C++, as `at::meta::…`; asked through torch's dispatcher, Python might answer, a
hundred times slower. The file is read line by line: its form is fixed, and no YAML reader need be
installed.
"""

import re
import sys
from pathlib import Path

FUNC = re.compile(r"^- func: ([A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)?)\(")
DELEGATE = re.compile(r"^  structured_delegate: (\S+)")
DISPATCH = re.compile(r"^    ([A-Za-z0-9_, ]+): (\S+)")


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


def shape_functions(text: str) -> list[tuple[str, str]]:
    """Pairs of an op's name in `at::_ops` and its function in `at::meta`."""
    pairs: list[tuple[str, str]] = []
    name = overload = ""
    for line in text.splitlines():
        if match := FUNC.match(line):
            name, _, overload = match[1].partition(".")
        elif line.startswith("  structured_delegate:"):
            pairs.append((f"{name}_{overload}" if overload else name, name))
        elif line.startswith("  structured: True"):
            pairs.append((f"{name}_{overload}" if overload else name, f"{name}_outf"))
    return sorted(set(pairs))


def iterator_ops(text: str) -> list[str]:
    """Ops that are one loop of torch's TensorIterator, which needs no memory but the result."""
    own: set[str] = set()
    delegates: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if match := FUNC.match(line):
            name = match[1]
        elif match := DELEGATE.match(line):
            delegates[name] = match[1]
        elif line.startswith("  structured_inherits: TensorIteratorBase"):
            own.add(name)
    return sorted(own | {op for op, out in delegates.items() if out in own})


def family_ops(text: str, family: str) -> list[tuple[str, bool]]:
    """Ops of sparse or nested tensors on CUDA, and whether the CPU's code is the same."""
    functions: dict[str, dict[str, str]] = {}
    name = ""
    for line in text.splitlines():
        if match := FUNC.match(line):
            name = match[1]
        elif match := DISPATCH.match(line):
            for key in match[1].split(","):
                functions.setdefault(name, {})[key.strip()] = match[2]
    cuda, cpu = f"{family}CUDA", f"{family}CPU"
    return sorted((op, of[cuda] == of.get(cpu)) for op, of in functions.items() if cuda in of)


def family_lines(ops: list[tuple[str, bool]]) -> str:
    return "".join(
        f'{"PEAKLINE_SHARED" if shared else "PEAKLINE_OWN"}("{op}")\n' for op, shared in ops
    )


def main() -> int:
    source, cuda, shapes, iterators = (Path(part) for part in sys.argv[1:5])
    text = source.read_text()
    ops, functions, loops = cuda_ops(text), shape_functions(text), iterator_ops(text)
    if len(ops) < 500 or len(functions) < 200 or len(loops) < 200:
        print(
            f"{source} lists only {len(ops)} ops on CUDA, {len(functions)} shape functions and "
            f"{len(loops)} loops over elements: its form must have changed",
            file=sys.stderr,
        )
        return 1
    note = "// Made by tools/list_cuda_ops.py.\n"
    cuda.write_text(note + "".join(f'"{op}",\n' for op in ops))
    shapes.write_text(note + "".join(f"SHAPE_FUNCTION({op}, {fn})\n" for op, fn in functions))
    families = ("Sparse", "SparseCsr", "NestedTensor")
    for family, path in zip(families, sys.argv[5:8], strict=True):
        Path(path).write_text(note + family_lines(family_ops(text, family)))
    iterators.write_text(note + "".join(f'"aten::{op}",\n' for op in loops))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
