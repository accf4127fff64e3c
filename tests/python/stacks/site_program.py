"""A program with a hundred places that allocate, each with a line and a size of its own."""

from __future__ import annotations

from dataclasses import dataclass, field

UNIT = 512  # elements of float32: whole blocks of the CUDA allocator

_HEAD = """\
import threading
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

keep = []


def value(n, **options):
    return torch.ones(n * 512, device=DEVICE, **options)


class Layer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)
"""


@dataclass
class Program:
    lines: list[str] = field(default_factory=lambda: _HEAD.splitlines())
    sites: dict[int, int] = field(default_factory=dict)  # by number: the line
    units: dict[int, int] = field(default_factory=dict)  # likewise, the largest block in UNITs
    backward: dict[int, int] = field(default_factory=dict)  # likewise, of what backward allocates
    recomputed: set[int] = field(default_factory=set)
    backward_line: int = 0
    used: int = 0

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def add(self, *lines: str) -> None:
        self.lines += lines

    def next(self) -> int:
        self.used += 1
        return self.used

    def site(self, line: str, times: int = 1) -> int:
        """`line` allocates `times` n units at once; {n} in it is the site's number."""
        n = self.next()
        self.lines.append(line.format(n=n))
        self.sites[n] = len(self.lines)
        self.units[n] = n * times
        return n


def write() -> Program:
    program = Program()
    for part in (_sort, _factories, _ops, _modules, _functions, _threads, _optimizers, _graph):
        part(program)
    return program


def _sort(program: Program) -> None:
    program.add("a1 = value(1)")
    # Its indices take eight bytes each. More than 4096 elements need a workspace on a GPU.
    program.site("keep.append(a{n}.sort())", times=2)


def _factories(program: Program) -> None:
    for kind in ("empty", "zeros", "ones", "rand", "randn"):
        program.site(f"keep.append(torch.{kind}({{n}} * 512, device=DEVICE))")
        program.site(f"keep.append([torch.{kind}({{n}} * 512, device=DEVICE) for _ in range(2)])")
    program.site("keep.append(torch.full(({n} * 512,), 2.0, device=DEVICE))")
    program.site("keep.append(torch.arange({n} * 512, dtype=torch.float32, device=DEVICE))")
    program.site("keep.append(torch.tensor([1.0]).to(DEVICE).repeat({n} * 512))")


def _ops(program: Program) -> None:
    calls = (
        "{a} + 1",
        "{a}.mul(2)",
        "torch.exp({a})",
        "F.gelu({a})",
        "F.relu({a})",
        "{a}.clone()",
        "{a}.view(512, -1).t().contiguous()",
        "torch.cat([{a}[:512], {a}[512:]])",
        "torch.where({a} > 0, {a}, {a})",
        "{a}.flip(0)",
        "F.softmax({a}, dim=0)",
        "torch.ops.aten.neg({a})",
        "torch.sin({a})",
        "{a}.cumsum(0)",
        "{a}.roll(1)",
        "(lambda x: x * 3)({a})",
    )
    for call in calls:
        n = program.used + 1
        program.add(f"a{n} = value({n})")
        program.site(f"keep.append({call.format(a='a{n}')})")


def _modules(program: Program) -> None:
    for kind in ("GELU()", "ReLU()", "Sigmoid()", "Tanh()", "Sequential(nn.SiLU(), nn.Identity())"):
        n = program.used + 1
        program.add(f"a{n} = value({n})", f"m{n} = nn.{kind}.to(DEVICE)")
        program.site("keep.append(m{n}(a{n}))")
        # Inside forward, the line there is the innermost one of the program.
        n = program.used + 1
        program.add(f"class Own{n}(nn.Module):", "    def forward(self, x):")
        program.site("        return x + 1")
        program.add(f"keep.append(Layer(Own{n}())(value({n})))")


def _functions(program: Program) -> None:
    for _ in range(4):
        n = program.used + 1
        program.add(f"def made{n}(x):")
        program.site("    yield x * 2")
        program.add(f"keep += list(made{n}(value({n})))")
    for _ in range(3):
        n = program.used + 1
        program.add(f"def deep{n}(x, depth):", "    if depth:")
        program.add(f"        return deep{n}(x, depth - 1)")
        program.site("    return x * 2")
        program.add(f"keep.append(deep{n}(value({n}), 20))")
    for _ in range(3):
        n = program.used + 1
        program.add("@torch.no_grad()", f"def plain{n}(x):", "    try:")
        program.site("        return x * 2")
        program.add("    finally:", "        pass", f"keep.append(plain{n}(value({n})))")


def _threads(program: Program) -> None:
    for _ in range(8):
        n = program.used + 1
        program.add(f"def work{n}(x):")
        program.site("    keep.append(x * 2)")
        program.add(f"t{n} = threading.Thread(target=work{n}, args=(value({n}),))")
        program.add(f"t{n}.start()", f"t{n}.join()")


def _optimizers(program: Program) -> None:
    for make in ("SGD([p{n}], lr=0.1, momentum=0.9)", "Adam([p{n}])", "AdamW([p{n}])"):
        n = program.used + 1
        program.add(f"p{n} = nn.Parameter(value({n}))", f"p{n}.grad = value({n})")
        program.add(f"o{n} = torch.optim." + make.format(n=n))
        program.site("o{n}.step()")


def _graph(program: Program) -> None:
    losses: list[str] = []
    for op in ("w{n} * a{n}", "F.gelu(w{n})", "torch.sigmoid(w{n})", "w{n}.pow(3)", "w{n}.exp()"):
        for _ in range(3):
            n = program.used + 1
            program.add(f"w{n} = value({n}, requires_grad=True)", f"a{n} = value({n})")
            program.site(f"h{{n}} = {op}")
            program.backward[n] = program.sites[n]
            losses.append(f"h{n}.sum()")
    for _ in range(6):
        _checkpointed(program, losses)
    while program.used < 100:
        n = program.used + 1
        program.add(f"w{n} = value({n}, requires_grad=True)")
        program.site("h{n} = w{n}.tanh()")
        program.backward[n] = program.sites[n]
        losses.append(f"h{n}.sum()")
    program.add("loss = " + " + ".join(losses), "loss.backward()")
    program.backward_line = len(program.lines)


def _checkpointed(program: Program, losses: list[str]) -> None:
    n = program.used + 1
    program.add(f"w{n} = value({n}, requires_grad=True)", f"def again{n}(x):")
    program.site("    y = x.exp()")
    program.recomputed.add(n)
    program.add("    return y.sin()", f"h{n} = checkpoint(again{n}, w{n}, use_reentrant=False)")
    losses.append(f"h{n}.sum()")
