"""pytest plugin: a test that fails when it would need more GPU memory than it may.

    @pytest.mark.limit_gpu_memory("24 GiB", gpu="h100")
    def test_training_step_fits():
        model = Model().cuda()
        ...

The test runs on the virtual GPU: no real one is needed, and the numbers are the same every time.
A package of its own: pytest imports plugins at every start, and `import peakline` brings in torch.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

MARK = "limit_gpu_memory"
_USAGE = f'write @pytest.mark.{MARK}("24 GiB", gpu="h100")'


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARK}(size, gpu='h200'): runs the test on a virtual GPU, and fails it when it needs "
        "more than `size` of the GPU's memory",
    )


class _Estimate:
    """The virtual GPU around one test."""

    def __init__(self, limit: str | int, gpu: str) -> None:
        import peakline

        self.limit = limit
        self.gpu = gpu
        self._stack = contextlib.ExitStack()
        self.run = self._stack.enter_context(peakline.virtual_gpu(gpu, memory=limit))

    def close(self) -> None:
        self._stack.close()

    def ran_out(self) -> bool:
        """An allocation failed, even if the program caught the error: it did not fit."""
        import torch

        devices = range(torch.cuda.device_count())
        return any(torch.cuda.memory_stats(i).get("num_ooms", 0) > 0 for i in devices)


_ESTIMATE = pytest.StashKey[_Estimate]()


def _arguments(limit: str | int, gpu: str = "h200") -> tuple[str | int, str]:
    if not isinstance(limit, (str, int)) or isinstance(limit, bool):
        raise TypeError(f"{limit!r} is no size")
    return limit, gpu


def _start(mark: pytest.Mark) -> _Estimate:
    try:
        limit, gpu = _arguments(*mark.args, **mark.kwargs)
        return _Estimate(limit, gpu)
    except TypeError as error:
        sentence = f"{MARK}: {error}; {_USAGE}"
    except (ValueError, RuntimeError) as error:
        sentence = f"{MARK}: {error}"
    pytest.fail(sentence, pytrace=False)


# Innermost, around the fixtures alone: a model that a fixture builds belongs to the test, and
# pytest's own wrappers must have begun before anything here can fail.
@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    mark = item.get_closest_marker(MARK)
    if mark is not None:
        item.stash[_ESTIMATE] = _start(mark)
    return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    try:
        return (yield)
    finally:
        estimate = item.stash.get(_ESTIMATE, None)
        if estimate is not None:
            del item.stash[_ESTIMATE]
            estimate.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    estimate = item.stash.get(_ESTIMATE, None)
    if estimate is None:
        return (yield)
    import torch

    where = ""
    try:
        result = yield
    except torch.OutOfMemoryError as error:
        where = _place(error, item.path)
    else:
        if not estimate.ran_out():
            return result
    pytest.fail(_failure(estimate, where), pytrace=False)


def _place(error: BaseException, test_file: Path) -> str:
    """The line of the test that ran out of memory."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename) == test_file]
    if not own:
        return ""
    return f"{test_file.name}:{own[-1].lineno}: {own[-1].line}"


def _failure(estimate: _Estimate, where: str) -> str:
    from peakline import _C

    limit = estimate.limit
    size = limit if isinstance(limit, str) else _C.format_size(limit)
    place = f" at {where}" if where else ""
    return (
        f"does not fit in {size} of a virtual {estimate.gpu}: out of memory{place}\n\n"
        f"{estimate.run}"
    )
