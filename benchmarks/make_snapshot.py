"""Writes a synthetic snapshot like those of torch.cuda.memory._dump_snapshot, as large as wanted.

    python benchmarks/make_snapshot.py OUT.pickle --mebibytes 1024

Shaped like the training of a transformer: blocks of a few sizes with Python and C++ stacks, freed
in reverse by backward, in segments of a caching allocator. Written step by step, so that a large
file needs little memory to make.
"""

from __future__ import annotations

import argparse
import io
import pickle
import random
from pathlib import Path
from typing import Any, BinaryIO

SEGMENT = 1 << 30
BASE = 0x7F00_0000_0000
LAYERS = 32


Frame = dict[str, Any]


def stacks() -> dict[tuple[int, str], list[Frame]]:
    """Stacks of 24 frames, C++ below and the program above, sharing frames as torch's do."""
    call = {"name": "_call_impl", "filename": "/srv/torch/nn/modules/module.py", "line": 1775}
    train = {"name": "train", "filename": "/srv/train/train.py", "line": 84}
    out = {}
    for part in ("parameters", "attention", "norm", "mlp"):
        native = [
            {"name": f"at::native::{part}_{depth}(at::Tensor const&)", "filename": "??", "line": 0}
            for depth in range(14)
        ]
        own = {"name": "forward", "filename": f"/srv/train/model/{part}.py", "line": 10}
        for layer in range(LAYERS):
            block = {
                "name": f"layer_{layer}",
                "filename": "/srv/train/model/block.py",
                "line": layer,
            }
            out[layer, part] = [
                *native,
                own,
                call,
                block,
                call,
                train,
                call,
                call,
                call,
                call,
                train,
            ]
    return out


class History:
    """An allocator that hands out addresses and writes down what it did."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.free: dict[int, list[int]] = {}
        self.top = BASE
        self.end = BASE
        self.time = 1_700_000_000_000_000
        self.live: dict[int, int] = {}
        self.segments: list[int] = []

    def entry(
        self, action: str, addr: int, size: int, stack: list[dict[str, Any]]
    ) -> dict[str, Any]:
        self.time += self.rng.randrange(1, 40)
        return {
            "action": action, "addr": addr, "size": size, "stream": 0, "time_us": self.time,
            "compile_context": "N/A", "user_metadata": "", "frames": stack,
        }  # fmt: skip

    def alloc(self, size: int, stack: list[dict[str, Any]]) -> list[dict[str, Any]]:
        entries = []
        cached = self.free.setdefault(size, [])
        if cached:
            addr = cached.pop()
        else:
            if self.top + size > self.end:
                self.top = BASE + SEGMENT * len(self.segments)
                self.end = self.top + SEGMENT
                self.segments.append(self.top)
                entries.append(self.entry("segment_alloc", self.top, SEGMENT, stack))
            addr = self.top
            self.top += size
        self.live[addr] = size
        return [*entries, self.entry("alloc", addr, size, stack)]

    def release(self, addr: int, stack: list[dict[str, Any]]) -> list[dict[str, Any]]:
        size = self.live.pop(addr)
        self.free[size].append(addr)
        return [
            self.entry(kind, addr, size, stack) for kind in ("free_requested", "free_completed")
        ]


def step(history: History, where: dict[tuple[int, str], list[Frame]]) -> list[dict[str, Any]]:
    """Forward fills, backward empties."""
    rng = history.rng
    entries: list[dict[str, Any]] = []
    saved = []
    for layer in range(LAYERS):
        for part in ("attention", "norm", "mlp"):
            for size in (rng.choice((1, 2, 4)) << 20, 512 << rng.randrange(0, 8)):
                entries += history.alloc(size, where[layer, part])
                saved.append((entries[-1]["addr"], layer, part))
    for addr, layer, part in reversed(saved):
        entries += history.release(addr, where[layer, part])
    return entries


def segments(history: History, where: dict[tuple[int, str], list[Frame]]) -> list[dict[str, Any]]:
    """What the allocator holds."""
    every = list(where.values())
    out = []
    for start in history.segments:
        inside = sorted(addr for addr in history.live if start <= addr < start + SEGMENT)
        blocks = [
            {
                "address": addr,
                "size": history.live[addr],
                "requested_size": history.live[addr],
                "state": "active_allocated",
                "frames": every[i % len(every)],
            }
            for i, addr in enumerate(inside)
        ]
        out.append(
            {
                "device": 0,
                "address": start,
                "total_size": SEGMENT,
                "stream": 0,
                "blocks": blocks,
                "segment_type": "large",
                "is_expandable": False,
                "frames": [],
            }
        )
    return out


class Writer:
    """A pickle written piece by piece; what was shared at `share()` keeps its number."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.buffer = io.BytesIO()
        self.pickler = pickle.Pickler(self.buffer, protocol=3)
        self.shared: dict[int, tuple[int, Any]] = {}
        file.write(b"\x80\x03")

    def raw(self, opcodes: bytes) -> None:
        self.file.write(opcodes)

    def dump(self, thing: object) -> bytes:
        self.buffer.seek(0)
        self.buffer.truncate()
        self.pickler.dump(thing)
        return self.buffer.getvalue()[2:-1]

    def value(self, thing: object) -> None:
        self.file.write(self.dump(thing))

    def share(self) -> None:
        self.shared = self.pickler.memo.copy()

    def items(self, entries: list[dict[str, Any]]) -> None:
        """Appends to the list that is open."""
        self.pickler.memo = self.shared
        text = self.dump(entries)
        begin = text.index(b"(")  # after the list itself and its number
        self.file.write(text[begin:])


def make(path: Path, mebibytes: int, seed: int = 1) -> int:
    """Returns the number of trace entries."""
    history = History(seed)
    where = stacks()
    first: list[dict[str, Any]] = []
    for layer in range(4 * LAYERS):
        first += history.alloc(16 << 20, where[layer % LAYERS, "parameters"])
    count = 0
    with path.open("wb") as file:
        writer = Writer(file)
        writer.raw(b"}(")
        writer.value("segments")
        writer.value(segments(history, where))
        # The keys and stacks of entries, to be shared by all steps: a list that is dropped.
        writer.value([list(first[0]), list(where.values())])
        writer.raw(b"0")
        writer.share()
        writer.value("device_traces")
        writer.raw(b"](]")
        entries = first
        while True:
            writer.items(entries)
            count += len(entries)
            if file.tell() >= mebibytes << 20:
                break
            entries = step(history, where)
        writer.raw(b"eu.")
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--mebibytes", type=int, default=1024)
    args = parser.parse_args()
    entries = make(args.out, args.mebibytes)
    size = args.out.stat().st_size
    print(f"{args.out}: {entries:,} entries, {size / 2**20:,.0f} MiB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
