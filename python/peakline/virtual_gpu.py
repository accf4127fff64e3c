"""`peakline.virtual_gpu`: a GPU that is not there, for programs that want one."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any

import torch
from torch.autograd.variable import Variable

from peakline import _C, _allocator_settings, _checks, _cudnn, _virtual_cuda
from peakline._patches import Patches
from peakline._steps import Steps
from peakline._timing import StepTimes
from peakline._virtual_cuda import _policy
from peakline.run import Run
from peakline.track import Tracker, block_failed

_GPU = "the name of a GPU, or a path"
_started: list[virtual_gpu] = []  # by start(): one at most


class virtual_gpu:
    """Inside the block CUDA devices are virtual; gives a `Run`.

    The program runs unmodified and computes nothing on the device: a CUDA tensor is a shape with an
    address from torch's caching allocator, simulated for the GPU named by `gpu` (`"h200"`,
    `"a100-80"`, … or a profile of one's own, `"my.toml"`). `memory` caps what the allocator may
    reserve; `torch.OutOfMemoryError` is raised where the real one would be. `devices`: 1 to 8.

    Values of small tensors that follow from the program alone are kept, up to `value_bytes` a
    storage, and computed when somebody asks. Where the program reads a value that nobody can know,
    `values` answers: a dict with "float", "int", "bool", and "nonzero", the share of unknown
    elements taken to be nonzero. A loop that asks for such a value for ever is ended by an
    `EndlessQuestion`, which names its line.

    CPU tensors are real, and computed as ever. With `real_host=False` those of 16 MiB and more are
    virtual as well, so models that are larger than this machine can be built on the CPU and moved.
    What torch compiles is compiled for the virtual GPU where Triton is installed; with `eager` it
    runs uncompiled. With `stand_ins`, CUDA extensions that are not installed can be imported
    (flash_attn, xformers, apex): their functions allocate as the real ones do. `progress` is told,
    in a few words, what takes long.
    A clock tells how long all this takes on the real GPU (`run.timing()`, events'
    `elapsed_time`), unless `clock` is False. Every allocation is kept with the lines of the program
    that asked for it; without `source` their text is left out, and with `cpp` the functions of C++
    stand below them.
    """

    def __init__(
        self,
        gpu: str | os.PathLike[str] = "h200",
        memory: int | str | None = None,
        devices: int = 1,
        *,
        values: Mapping[str, float] | None = None,
        value_bytes: int | None = None,
        clock: bool = True,
        path: str | os.PathLike[str] | None = None,
        real_host: bool = True,
        eager: bool = False,
        stand_ins: bool = True,
        progress: Callable[[str], None] | None = None,
        source: bool = True,
        cpp: bool = False,
    ) -> None:
        if value_bytes is not None:
            value_bytes = _checks.whole(value_bytes, "virtual_gpu(value_bytes=…)")
        if progress is not None:
            _checks.function(progress, "virtual_gpu(progress=…)")
        if path is not None:
            path = _checks.path(path, "virtual_gpu(path=…)")
        answers = 'a dict such as {"float": 0.5}'
        self._options: dict[str, Any] = {
            "gpu": _checks.path(gpu, "virtual_gpu(gpu=…)", _GPU),
            "memory": _checks.size(memory, "virtual_gpu(memory=…)"),
            "devices": _checks.whole(devices, "virtual_gpu(devices=…)"),
            "policy": _policy.check(
                _checks.mapping(values or {}, "virtual_gpu(values=…)", answers)
            ),
            "value_bytes": value_bytes,
            "clock": _checks.flag(clock, "virtual_gpu(clock=…)"),
        }
        self._path = path
        self._source = source
        self._cpp = cpp
        self._stacks = "all"  # a virtual step has the time
        self._asked = _virtual_cuda.Options(
            eager=eager,
            stand_ins=stand_ins,
            virtual_host=not real_host,
            may_be_close=bool((values or {}).get("bool", True)),
            progress=progress or (lambda what: None),
        )
        self._stack = contextlib.ExitStack()
        self._tracker: Tracker | None = None
        self._installed: _virtual_cuda.Installed | None = None
        self._notes: list[str] = []
        self.steps = Steps()
        self.steps.on_end(self._stepped)
        self._on_model: list[Callable[[torch.nn.Module], None]] = []
        self._pinned_peak = 0
        self.job = _virtual_cuda.Job()  # what is known of it when this is one rank of many
        self._counters: dict[str, int] = {}
        self._unknown: dict[str, int] = {}
        self._run: Run | None = None
        self.times: StepTimes | None = None  # from entering on
        self._survived = True

    def __enter__(self) -> Run:
        _C.vgpu.enter(
            {
                **self._options,
                "conf": _allocator_settings.in_environment(),
                "torch": _allocator_settings.virtual_release(),
                "planner": _cudnn.planner_files(),
            }
        )
        with contextlib.ExitStack() as stack:
            stack.callback(_C.vgpu.leave)
            stack.enter_context(_backward_on_the_calling_thread())
            info = {"command": " ".join(sys.argv), "producer": "virtual", **self._facts()}
            options: dict[str, Any] = {"path": self._path, "info": info, "steps": self.steps}
            options["on_model"] = self._model_met
            options |= {"stacks": self._stacks, "source": self._source, "cpp": self._cpp}
            tracker = Tracker([], [], ops=False, virtual=True, **options)
            run = tracker.start()
            stack.callback(tracker.stop)
            tracker.write_settings = lambda: _note_facts(tracker, self._memory())
            self._tracker = tracker
            self._run = run
            self.job.label_comm = tracker.label_comm
            _C.vgpu.record()
            stack.callback(_C.vgpu.stop_recording)
            _C.vgpu.set_virtual_host(self._asked.virtual_host)
            self._installed = _virtual_cuda.install(_C.vgpu, self.job, self._asked)
            stack.callback(self._remember, self._installed)
            self._installed.on_replayed_step(self.steps.end)
            # From here on the program's Python counts, and not what made the GPU.
            self.times = StepTimes()
            stack.callback(_note_streams, tracker, self.times)
            run._timing = self.times.total
            stack.callback(self.times.inputs.ended)
            self._stack = stack.pop_all()
        return run

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.label_alive()  # the failed frames still hold their tensors
            self.ended_early(block_failed(error))
        self.stop()

    def start(self) -> Run:
        """As entering the block, for notebooks: what follows is on the virtual GPU until stop().

        One that was started before is stopped: a cell that is run again has lost its name.
        """
        while _started:
            _started[-1].stop()
        run = self.__enter__()
        _started.append(self)
        return run

    def stop(self) -> None:
        """torch is as it was before, and the run complete. May be called again."""
        if self in _started:
            _started.remove(self)
        self._stack.close()

    def on_model(self, act: Callable[[torch.nn.Module], None]) -> None:
        """`act` is told of outermost modules, before they run."""
        self._on_model.append(act)

    def _model_met(self, model: torch.nn.Module) -> None:
        for act in self._on_model:
            act(model)

    def label_alive(self) -> None:
        """Names what is alive now, which otherwise happens as training goes on."""
        if self._tracker is not None:
            self._tracker.label_alive()

    def ended_early(self, why: str) -> None:
        """More would have run, but for `why`: the recording says so."""
        if self._tracker is not None:
            self._tracker.ended_early(why)

    def suspects_growth(self) -> bool:
        """Whether one more step would show if something grows with each."""
        growth = self._tracker.growth if self._tracker is not None else None
        return growth is not None and growth.suspects

    def survived_last_oom(self) -> bool:
        """Whether the program went on to allocate after memory ran out, if it did."""
        return _C.vgpu.allocated_since_failure() if self._installed else self._survived

    def notes(self) -> list[str]:
        """What the run did otherwise than on a real GPU, in sentences."""
        return self._installed.notes() if self._installed else list(self._notes)

    def counters(self) -> dict[str, int]:
        """Ops run, found in the shape cache or not, computed because their values are known."""
        return dict(_C.vgpu.counters() if self._installed else self._counters)

    def unknown_values(self) -> dict[str, int]:
        """How often a value was read that cannot be known, by what read it."""
        return dict(_C.vgpu.unknown_values() if self._installed else self._unknown)

    def pinned_peak(self) -> int:
        """The most bytes of the host's memory that were pinned at a time."""
        return _C.vgpu.pinned_peak() if self._installed else self._pinned_peak

    def confidence(self, device: int = 0) -> dict[str, int]:
        """Bytes at the peak of what was allocated: "exact" (they follow from torch's sources, or
        were measured), "modelled" (a rule), "guessed", and "outputs_only" (results of ops of which
        nobody knows what they need beside them). Empty when nothing was allocated there."""
        answer = json.loads(self._run.to_json()) if self._run else {"device": "", "devices": []}
        for row in (answer, *answer["devices"]):
            if row["device"] == f"cuda:{device}":
                return dict(row["confidence"])
        return {}

    def _facts(self) -> dict[str, str]:
        """What answers over the recording need to know about the devices."""
        gpu = _C.vgpu.properties(0)
        limit = self._memory()
        facts = {"gpu": str(gpu["name"])}
        facts |= _allocator_facts(_allocator_settings.in_environment())
        for i in range(_C.vgpu.device_count()):
            facts[f"memory_limit.cuda:{i}"] = str(limit)
            facts[f"outside_allocator.cuda:{i}"] = str(gpu["context"])
            if self._options["memory"]:
                facts[f"allocator_limit.cuda:{i}"] = str(limit)
        return facts

    def _memory(self) -> int:
        """What there is for the allocator of each device."""
        gpu = _C.vgpu.properties(0)
        return int(self._options["memory"] or gpu["total_memory"] - gpu["context"])

    def _stepped(self) -> None:
        if self._installed is not None:
            self._installed.new_step(self.steps.maker)
        if self.times is not None:
            self.times.step_ended()

    def _remember(self, installed: _virtual_cuda.Installed) -> None:
        self._counters = _C.vgpu.counters()
        self._unknown = _C.vgpu.unknown_values()
        self._notes = installed.notes()
        self._survived = _C.vgpu.allocated_since_failure()
        self._pinned_peak = _C.vgpu.pinned_peak()
        if installed.pools_made and self._tracker is not None:
            self._tracker.note("private_pools", str(installed.pools_made))
        if self.times is not None and self.times.on:
            self.times.close()
        self.job.routed = _C.vgpu.assumption_used()
        self._installed = None
        installed.restore()


def _note_limits(tracker: Tracker, memory: int) -> None:
    """The program may have set limits of its own: what is less holds."""
    for i in range(_C.vgpu.device_count()):
        fraction = _C.vgpu.get_memory_fraction(i)
        if fraction < 1.0:
            limit = int(fraction * _C.vgpu.properties(i)["total_memory"])
            tracker.note(f"allocator_limit.cuda:{i}", str(limit))
            tracker.note(f"memory_limit.cuda:{i}", str(min(limit, memory)))


def _note_streams(tracker: Tracker, times: StepTimes) -> None:
    if text := times.streams():
        tracker.note("streams", text)


def _allocator_facts(conf: str) -> dict[str, str]:
    return _allocator_settings.facts(conf, _allocator_settings.virtual_release())


def _note_facts(tracker: Tracker, memory: int) -> None:
    tracker.note("unknown_values", str(_C.vgpu.counters()["unknown_values"]))
    tracker.note("cudnn", _C.vgpu.cudnn()["version"])
    for key, value in _allocator_facts(_C.vgpu.allocator_settings()).items():
        tracker.note(key, value)
    _note_limits(tracker, memory)


class _CallersEngine:
    """torch's autograd engine, kept on the thread that calls it.

    Its threads for devices are started once per process, perhaps before there was a virtual device,
    and a virtual GPU has nothing to wait for. Nodes run in the same order.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        before = torch._C._is_multithreading_enabled()
        torch._C._set_multithreading_enabled(False)
        try:
            return self._engine.run_backward(*args, **kwargs)
        finally:
            torch._C._set_multithreading_enabled(before)


@contextlib.contextmanager
def _backward_on_the_calling_thread() -> Iterator[None]:
    with Patches() as patches:
        patches.set(Variable, "_execution_engine", _CallersEngine(Variable._execution_engine))
        yield
