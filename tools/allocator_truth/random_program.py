"""Random operations on an allocator; tests/support/random_program.h does the same in C++."""

from __future__ import annotations

from typing import Protocol

MASK = (1 << 64) - 1
GIB = 1 << 30
STREAMS = 4


class Random:
    """splitmix64: the same numbers in Python and C++."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def next(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def below(self, n: int) -> int:
        return self.next() % n


class Subject(Protocol):
    """The allocator that a program runs on. Blocks go by the program's own handles."""

    def allocate(self, handle: int, size: int, stream: int) -> bool: ...
    def free(self, handle: int, waits: bool) -> None: ...
    def record_stream(self, handle: int, stream: int) -> None: ...
    def keep_busy(self, stream: int) -> None: ...
    def synchronize(self) -> None: ...
    def close_gate(self) -> None: ...
    def open_gate(self) -> None: ...
    def empty_cache(self) -> None: ...
    def set_limit(self, limit: int) -> None: ...
    def reset_peaks(self) -> None: ...


class Program:
    """Random operations on an allocator. Everything it does follows from its arguments and from
    which allocations failed."""

    def __init__(self, subject: Subject, seed: int, byte_cap: int, limited: bool) -> None:
        self.subject = subject
        self.rng = Random(seed)
        self.byte_cap = byte_cap
        self.live: list[list[int]] = []  # [handle, bytes, stream, mask of other streams]
        self.live_bytes = 0
        self.handles = 0
        self.to_free = 0  # after a failure: this many frees come next
        self.limited = False
        self.gate_closed = False
        self.operation = 0
        if limited:
            self.change_limit(4 * GIB)

    def step(self) -> None:
        rng = self.rng
        max_live = (60, 500, 4000)[(self.operation // 20000) % 3]
        self.operation += 1
        if self.to_free > 0 and self.live:
            self.to_free -= 1
            self.free()
            return
        kind = rng.below(1000)
        if kind < 560:
            if self.live_bytes < self.byte_cap and len(self.live) < max_live:
                self.allocate()
            else:
                self.free()
        elif kind < 960:
            self.free()
        elif kind < 992:
            self.use_elsewhere()
        elif kind < 996:
            self.toggle_gate()
        else:
            self.rare(kind, rng.below(20))

    def rare(self, kind: int, dice: int) -> None:
        if kind == 996 and dice < 2:
            self.free_busy_then_allocate()
        elif kind == 997 and dice < 2:
            self.change_limit((0, 2, 3, 4, 6, 8)[self.rng.below(6)] * GIB)
        elif kind == 998 and dice < 2:
            self.open_gate()
            self.subject.empty_cache()
        elif kind == 999 and dice < 1:
            self.subject.reset_peaks()

    def size(self) -> int:
        kind = self.rng.below(100)
        if kind < 50:
            low, high = 0, 20
        elif kind < 82:
            low, high = 20, 23
        elif kind < 97:
            low, high = 23, 27
        else:
            low, high = 27, 29
        bits = low + self.rng.below(high - low)
        size = (1 << bits) + self.rng.below(1 << bits)
        # Real programs repeat sizes: half of them are rounded to few values.
        return size if self.rng.below(2) else max(1, size >> max(0, bits - 2) << max(0, bits - 2))

    def allocate(self) -> None:
        size = self.size()
        stream = self.rng.below(STREAMS) if self.rng.below(4) == 0 else 0
        if self.subject.allocate(self.handles, size, stream):
            self.live.append([self.handles, size, stream, 0])
            self.live_bytes += size
            self.handles += 1
        else:
            self.to_free = len(self.live) // 2

    def pick(self) -> int:
        return self.rng.below(len(self.live))

    def free(self) -> None:
        if not self.live:
            return
        self.release(self.pick())

    def release(self, index: int) -> None:
        handle, size, _stream, mask = self.live[index]
        self.live[index] = self.live[-1]
        self.live.pop()
        self.live_bytes -= size
        self.subject.free(handle, mask != 0)
        if mask and not self.gate_closed:
            self.subject.synchronize()

    def use_elsewhere(self) -> None:
        if not self.live:
            return
        block = self.live[self.pick()]
        stream = self.rng.below(STREAMS)
        if stream != block[2]:
            block[3] |= 1 << stream
        self.subject.record_stream(block[0], stream)

    def toggle_gate(self) -> None:
        if self.gate_closed:
            self.open_gate()
        elif not self.limited:
            self.gate_closed = True
            self.subject.close_gate()

    def open_gate(self) -> None:
        if self.gate_closed:
            self.gate_closed = False
            self.subject.open_gate()

    def change_limit(self, limit: int) -> None:
        self.open_gate()
        self.limited = limit != 0
        self.subject.set_limit(limit)

    def free_busy_then_allocate(self) -> None:
        """Frees a block that another stream still uses, and allocates before that stream is done:
        only the retry after a failed allocation waits for it."""
        if not self.limited or not self.live:
            return
        index = self.pick()
        handle, _size, stream, _mask = self.live[index]
        other = (stream + 1) % STREAMS
        self.live[index][3] |= 1 << other
        self.subject.record_stream(handle, other)
        self.subject.keep_busy(other)
        # Freed without the usual synchronisation.
        self.live_bytes -= self.live[index][1]
        self.live[index] = self.live[-1]
        self.live.pop()
        self.subject.free(handle, True)
        self.allocate()
        self.subject.synchronize()
