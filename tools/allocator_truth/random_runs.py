"""Random runs: the segments, the order of late frees, and statistics at checkpoints."""

from __future__ import annotations

import ctypes
import gzip
import importlib
import json
from pathlib import Path
from typing import Any

from allocator_truth.random_program import GIB, MASK, STREAMS, Program


class Gate:
    """Holds streams back until it is opened, by a driver call that waits for a value in memory."""

    def __init__(self, torch: Any, streams: list[Any], works: bool) -> None:
        self.torch = torch
        self.call: Any = None
        self.streams = streams
        self.value = torch.zeros(1, dtype=torch.int32).pin_memory()
        self.address = self.value.data_ptr()
        self.word = ctypes.c_int32.from_address(self.address)
        self.round = 0
        if not works:
            return
        try:
            driver = ctypes.CDLL("libcuda.so.1")
            call = getattr(driver, "cuStreamWaitValue32_v2", None) or driver.cuStreamWaitValue32
            call.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint]
            call.restype = ctypes.c_int
            self.call = call
        except (OSError, AttributeError):
            pass

    def close(self) -> None:
        self.round += 1
        if self.call is None:
            return
        for stream in self.streams:
            error = self.call(stream.cuda_stream, self.address, self.round, 0)
            if error:
                self.call = None
                self.word.value = self.round
                return

    def open(self) -> None:
        self.word.value = self.round
        self.torch.cuda.synchronize()


class TorchAllocator:
    """torch's allocator, watched."""

    def __init__(self, out: Any, conf: str, gate: bool) -> None:
        torch: Any = importlib.import_module("torch")
        self.torch = torch
        self.out = out
        torch.cuda.init()
        self.memory = torch.cuda.memory
        self.device = torch.device("cuda:0")
        self.streams = [torch.cuda.default_stream()]
        self.streams += [torch.cuda.Stream() for _ in range(STREAMS - 1)]
        self.stream_index = {s.cuda_stream: i for i, s in enumerate(self.streams)}
        self.tensors: dict[int, Any] = {}
        self.current = 0
        self.address_to_handle: dict[int, int] = {}
        self.chunk: list[tuple[int, int]] = []  # (handle, address) of successes, in order
        self.waiting: set[int] = set()  # handles freed while other streams used them
        self.hash = 0xCBF29CE484222325
        self.ordinal = 0  # of allocations seen in the trace, failed ones included
        self.messages = 0
        self.gate = Gate(torch, self.streams, gate)
        total = torch.cuda.mem_get_info()[1]
        self.total = total
        self.keys = sorted(k for k, v in torch.cuda.memory_stats().items() if isinstance(v, int))
        self.write(
            kind="header", conf=conf, torch=torch.__version__, total=total, keys=self.keys,
            gpu=torch.cuda.get_device_name(0), gate=self.gate.call is not None,
            properties_total=torch.cuda.get_device_properties(0).total_memory,
        )  # fmt: skip
        self.history()

    def write(self, **fields: Any) -> None:
        self.out.write(json.dumps(fields, separators=(",", ":")) + "\n")

    def history(self) -> None:
        self.memory._record_memory_history(enabled="all", context=None, clear_history=True)

    def use_stream(self, stream: int) -> None:
        if stream != self.current:
            self.torch.cuda.set_stream(self.streams[stream])
            self.current = stream

    def allocate(self, handle: int, size: int, stream: int) -> bool:
        self.use_stream(stream)
        try:
            tensor = self.torch.empty(size, dtype=self.torch.uint8, device=self.device)
        except self.torch.OutOfMemoryError as error:
            self.messages += 1
            if self.messages <= 12:
                self.write(kind="oom", handle=handle, bytes=size, stream=stream, text=str(error),
                           free=self.torch.cuda.mem_get_info()[0], stats=self.stats())  # fmt: skip
            return False
        address = tensor.data_ptr()
        self.tensors[handle] = tensor
        self.chunk.append((handle, address))
        self.hash = ((self.hash ^ address) * 0x100000001B3) & MASK
        return True

    def free(self, handle: int, waits: bool) -> None:
        if waits:
            self.waiting.add(handle)
        del self.tensors[handle]

    def record_stream(self, handle: int, stream: int) -> None:
        self.tensors[handle].record_stream(self.streams[stream])

    def keep_busy(self, stream: int) -> None:
        self.use_stream(stream)
        self.torch.cuda._sleep(60_000_000)

    def synchronize(self) -> None:
        self.torch.cuda.synchronize()

    def close_gate(self) -> None:
        self.gate.close()

    def open_gate(self) -> None:
        self.gate.open()

    def empty_cache(self) -> None:
        self.torch.cuda.empty_cache()

    def set_limit(self, limit: int) -> None:
        fraction = limit / self.total if limit else 1.0
        self.torch.cuda.set_per_process_memory_fraction(fraction)

    def reset_peaks(self) -> None:
        self.torch.cuda.reset_peak_memory_stats()

    def stats(self) -> list[int]:
        values = self.torch.cuda.memory_stats()
        return [values[key] for key in self.keys]

    def checkpoint(self, operation: int) -> None:
        """Writes what the trace says since the last one, then the statistics."""
        trace = self.torch.cuda.memory._snapshot()["device_traces"][0]
        self.history()
        segments: list[list[int]] = []
        completions: list[list[int]] = []
        allocated = iter(self.chunk)
        for entry in trace:
            action = entry["action"]
            address = entry.get("addr", 0)
            if action == "alloc":
                handle, expected = next(allocated)
                assert expected == address, (handle, expected, address)
                self.address_to_handle[address] = handle
                self.ordinal += 1
            elif action == "oom":
                self.ordinal += 1
            elif action == "free_completed":
                handle = self.address_to_handle[address]
                if handle in self.waiting:
                    self.waiting.discard(handle)
                    completions.append([self.ordinal, handle])
            elif action.startswith("segment"):
                kind = ("segment_alloc", "segment_free", "segment_map", "segment_unmap").index(
                    action
                )
                stream = self.stream_index.get(entry["stream"], -1)
                segments.append([self.ordinal, kind, address, entry["size"], stream])
        self.chunk.clear()
        self.write(kind="checkpoint", op=operation, allocs=self.ordinal, hash=f"{self.hash:016x}",
                   segments=segments, completions=completions, stats=self.stats())  # fmt: skip


# name: (allocator settings, operations, seed, largest live bytes, start with a limit)
RANDOM_RUNS: dict[str, tuple[str, int, int, int, bool]] = {
    "default": ("", 1_000_000, 1, 8 * GIB, False),
    "expandable": ("expandable_segments:True", 100_000, 2, 6 * GIB, True),
    "max_split": ("max_split_size_mb:128", 100_000, 3, 8 * GIB, True),
    "collect": ("garbage_collection_threshold:0.6", 100_000, 4, 6 * GIB, True),
    "roundup": ("roundup_power2_divisions:4", 50_000, 5, 8 * GIB, False),
    "roundup_list": (
        "roundup_power2_divisions:[1:2,64:8,128:2,256:4,>:1]",
        50_000,
        6,
        8 * GIB,
        False,
    ),
    "non_split_rounding": (
        "max_split_size_mb:64,max_non_split_rounding_mb:200",
        50_000,
        7,
        8 * GIB,
        True,
    ),
    "expandable_max_split": (
        "expandable_segments:True,max_split_size_mb:64",
        50_000,
        8,
        6 * GIB,
        True,
    ),
    "large_segment": ("large_segment_size_mb:64", 30_000, 9, 8 * GIB, False),
    "expandable_large_segment": (
        "expandable_segments:True,large_segment_size_mb:64",
        30_000,
        10,
        6 * GIB,
        True,
    ),
}


def run_random(out_dir: Path, name: str, scale: float, gate: bool) -> None:
    conf, operations, seed, cap, limited = RANDOM_RUNS[name]
    with gzip.open(out_dir / f"random.{name}.jsonl.gz", "wt", compresslevel=9) as out:
        subject = TorchAllocator(out, conf, gate)
        program = Program(subject, seed, cap, limited)
        operations = int(operations * scale)
        for operation in range(1, operations + 1):
            program.step()
            if operation % 5000 == 0 or operation == operations:
                subject.checkpoint(operation)
