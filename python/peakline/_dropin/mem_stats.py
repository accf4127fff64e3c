"""The words that MemTracker's snapshots are written in, and how they are printed."""

from __future__ import annotations

import math
import os
import re
import weakref
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Any, Self

import torch

from peakline._dropin.tables import table

# The CUDA caching allocator hands out multiples of this.
_PYTORCH_MIN_ALLOCATE = 512 if int(os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING", 0)) == 0 else 1
_TOTAL_KEY = "Total"

Snapshot = dict[torch.device, dict[Any, int]]


class _RefType(str, Enum):  # noqa: UP042  (upstream's text form)
    """Base of the enums that say what memory is for. Members hash and compare as their text."""


class _State(str, Enum):  # noqa: UP042
    """Base of the enums that say when a module's snapshot was taken."""


class _MemRefType(_RefType):
    """What a tensor's memory is for, at the moment of the snapshot."""

    PARAM = "Parameter"
    BUFFER = "Buffer"
    GRAD = "Gradient"
    ACT = "Activation"  # made in forward, or recomputed by activation checkpointing
    TEMP = "Temp"  # made in backward
    OPT = "Optstate"
    OTH = "Other"  # given to track_external, or held by a library


class _ModState(_State):
    """When a module's snapshot was taken. AC: while activation checkpointing recomputes it."""

    PRE_FW = "Pre-Forward"
    POST_FW = "Post-Forward"
    PEAK_FW = "Peak-Forward"
    PRE_BW = "Pre-Backward"
    PRE_FW_AC = "Pre-Forward-AC"
    POST_FW_AC = "Post-Forward-AC"
    POST_BW = "Post-Backward"
    PEAK_BW = "Peak-Backward"


class _ModMemStats:
    """One module's sizes in bytes, and its snapshots: for each state one per call, in order."""

    def __init__(self, mod_fqn: str) -> None:
        self.mod_fqn = mod_fqn
        self.parameter_mem: int
        self.buffer_mem: int
        self.input_mem: int
        self.output_mem: int
        self.local_peak: dict[torch.device, int] = {}
        self.snapshots: dict[_State, list[Snapshot]] = {}


class _WeakRefInfo:
    """One storage, as the tracker sees it."""

    def __init__(
        self, size: int, element_size: int, device: torch.device, reftype: _RefType
    ) -> None:
        self.size = size
        self.element_size = element_size
        self.reftype = reftype
        self.device = device
        self.mem_consumed = self._calculate_mem_consumed()

    def _calculate_mem_consumed(self) -> int:
        mem = self.size * self.element_size
        if self.device.type == "cuda":
            return math.ceil(mem / _PYTORCH_MIN_ALLOCATE) * _PYTORCH_MIN_ALLOCATE
        return mem

    def update_mem_consumed(self, st: torch.UntypedStorage) -> int:
        """Takes over `st`'s size; returns the bytes it takes."""
        if st.size() != self.size:
            self.size = st.size()
            self.mem_consumed = self._calculate_mem_consumed()
        return self.mem_consumed

    @classmethod
    def create_winfo(
        cls,
        st: torch.UntypedStorage,
        device: torch.device,
        reftype: _RefType,
        callback: Callable[[Self, weakref.ref[Any]], Any] | None = None,
    ) -> tuple[Self, weakref.ref[Any]]:
        """A description of `st` and a weak reference to it; `callback` gets both when it dies."""
        winfo = cls(st.size(), st.element_size(), device, reftype)
        return winfo, weakref.ref(st, partial(callback, winfo) if callback else None)


class _UpdateType(Enum):
    """What happened to a storage: new, gone, of another category, of another size."""

    ADD = auto()
    DEL = auto()
    REF = auto()
    SIZE = auto()


def _get_mem_divisor(units: str) -> int:
    unit_dict = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    if units not in unit_dict:
        raise ValueError(f"unknown unit {units!r}; use one of {', '.join(unit_dict)}")
    return unit_dict[units]


def _rounding_fn(value: int, divisor: int, precision: int) -> float | int:
    return value if divisor == 1 else round(value / divisor, precision)


def natural_sort_key(s: str) -> list[int | str]:
    """Orders `layer.10` after `layer.9`."""
    return [int(text) if text.isdigit() else text.lower() for text in re.split("([0-9]+)", s)]


def _name(key: Any) -> str:
    return str(key.value) if isinstance(key, Enum) else str(key)


def _shown(snapshot: Snapshot, units: str) -> list[tuple[torch.device, dict[Any, str]]]:
    """The devices with something to show, with their sizes as text."""
    divisor = _get_mem_divisor(units)
    return [
        (dev, {key: f"{_rounding_fn(size, divisor, 2)} {units}" for key, size in sizes.items()})
        for dev, sizes in snapshot.items()
        if _rounding_fn(sizes[_TOTAL_KEY], divisor, 2) > 0
    ]


def _print_snapshot(snapshot: Snapshot, units: str) -> None:
    if not snapshot:
        print("No memory tracked.")
        return
    for dev, sizes in _shown(snapshot, units):
        wide = max(len(text) for text in sizes.values())
        print(f"Device: {dev}")
        for key, text in sizes.items():
            print(f"\t{_name(key) + ':':<12}{text:>{wide}}")


def _print_snapshot_tabular(snapshot: Snapshot, units: str) -> None:
    if not snapshot:
        print("No memory tracked.")
        return
    headers = ["Device", *map(_name, next(iter(snapshot.values())))]
    print(table(headers, [[str(dev), *sizes.values()] for dev, sizes in _shown(snapshot, units)]))


def _print_state_snapshots(snapshots: dict[_State, list[Snapshot]], units: str) -> None:
    for state, calls in snapshots.items():
        print(_name(state))
        for number, snapshot in enumerate(calls, 1):
            print(f"# {number}:")
            _print_snapshot(snapshot, units)
    print()


def _print_state_snapshots_tabular(snapshots: dict[_State, list[Snapshot]], units: str) -> None:
    headers: list[str] = []
    rows = []
    last_call = None
    for state, calls in snapshots.items():
        for number, snapshot in enumerate(calls, 1):
            call = f"{_name(state)} # {number}"
            for dev, sizes in _shown(snapshot, units):
                headers = headers or ["State & Call", "Device", *map(_name, sizes)]
                rows.append([call if call != last_call else "", str(dev), *sizes.values()])
                last_call = call
    print(table(headers, rows) if rows else "No memory tracked.")
