"""torch.cuda answers for the virtual GPU: everything between install() and restore().

Most of torch.cuda is Python over functions of `torch._C` that a CPU-only build lacks; given those,
torch's own Python does the rest. Nothing here touches the real driver, also in a CUDA build.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from peakline._ending import EndlessQuestion
from peakline._patches import Patches
from peakline._virtual_cuda import (
    _accelerator,
    _argument_checks,
    _bitsandbytes,
    _compiled,
    _cuda_sources,
    _custom_ops,
    _default_kernels,
    _devices,
    _distributed,
    _graphs,
    _host,
    _initializers,
    _jiterator,
    _kernel_notes,
    _legacy_types,
    _libraries,
    _memory,
    _missing_fakes,
    _parallel,
    _processes,
    _questions,
    _random,
    _refused,
    _replicated,
    _runtime,
    _stand_ins,
    _storage,
    _streams,
    _sync_batch_norm,
)
from peakline._virtual_cuda._engine import Engine
from peakline._virtual_cuda._job import Job
from peakline._virtual_cuda._notes import Notes
from peakline._virtual_cuda._options import Options
from peakline._virtual_cuda._questions import Questions

__all__ = ["EndlessQuestion", "Engine", "Installed", "Job", "Options", "install"]


class Installed:
    """What install() changed. `restore()` puts it back, and may be called again."""

    def __init__(
        self,
        patches: Patches,
        notes: Notes,
        engine: Engine,
        questions: Questions,
        captures: _graphs.Captures,
        failed_ops: Mapping[str, str],
    ) -> None:
        self._captures = captures
        self._patches = patches
        self._notes = notes
        self._engine = engine
        self._questions = questions
        self._failed_ops = failed_ops

    def notes(self) -> list[str]:
        """What the run did otherwise than on a real GPU, in sentences."""
        return [
            *self._notes.sentences(),
            *self._questions.sentences(),
            *_kernel_notes.sentences(self._engine, self._failed_ops),
        ]

    @property
    def pools_made(self) -> int:
        """Private pools: of CUDA graphs, and MemPools."""
        return self._captures.pools_made

    def on_replayed_step(self, listener: Callable[[str], None]) -> None:
        """Told, with its maker, of each step that a CUDA graph repeats."""
        self._captures.on_step = listener

    def new_step(self, maker: str) -> None:
        """The program has made a step."""
        self._captures.stepped(maker)
        self._questions.went_on()
        self._engine.count_step()

    def restore(self) -> None:
        self._patches.restore()


def install(engine: Engine, job: Job | None = None, options: Options | None = None) -> Installed:
    """Makes torch.cuda answer for the devices of `engine`, which has been entered.

    What it learns of the job that this process is a rank of goes into `job`.
    """
    job, options = job or Job(), options or Options()
    patches, notes = Patches(), Notes()
    try:
        _refused.install(patches)
        _devices.install(patches, engine)
        _memory.install(patches, engine, notes)
        captures = _graphs.install(patches, engine)
        _streams.install(patches, engine, captures)
        _accelerator.install(patches, engine)
        _runtime.install(patches, engine)
        _libraries.install(patches, engine)
        _storage.install(patches, engine)
        _legacy_types.install(patches, engine)
        _jiterator.install(patches)
        if options.virtual_host:
            _host.install(patches, engine)
        _parallel.install(patches)
        _random.install(patches, engine)
        _initializers.install(patches, engine)
        _argument_checks.install(patches, engine, options)
        _compiled.install(patches, notes, engine, options)
        _stand_ins.install(patches, notes, engine, options)
        _cuda_sources.install(patches, notes, options)
        _distributed.install(patches, notes, engine, job)
        _processes.install(patches, notes)
        _replicated.install(patches, job)
        _bitsandbytes.install(patches)
        questions = _questions.install(patches, engine)
        _custom_ops.install(patches, questions)
        _missing_fakes.install(patches)
        failed = _default_kernels.install(patches, notes, engine)
        _sync_batch_norm.install(patches)
    except BaseException:
        patches.restore()
        raise
    return Installed(patches, notes, engine, questions, captures, failed)
