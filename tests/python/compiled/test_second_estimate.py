"""What a second estimate of a program finds: code, and what says whether that is still good."""

import gc
import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

import peakline
from peakline._virtual_cuda._compiled import _source_keys

MIB = 2**20


def estimates(function: Any, count: str) -> list[int]:
    """What Inductor's or AOTAutograd's counter grew by, in each of two estimates."""
    grown = []
    for _ in range(2):
        counters = torch._dynamo.utils.counters
        before = counters["inductor"][count] + counters["aot_autograd"][count]
        with peakline.virtual_gpu("h200"):
            x = torch.empty(MIB, device="cuda", requires_grad=True)
            torch.compile(function)(x).sum().backward()
        grown.append(counters["inductor"][count] + counters["aot_autograd"][count] - before)
    return grown


def _named(x: torch.Tensor) -> torch.Tensor:
    return (x.tanh() + 3).sigmoid()


def test_it_finds_the_code_of_the_first() -> None:
    first, second = estimates(_named, "fxgraph_cache_hit")
    assert second == first + 2  # forward and backward


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return grad * 2


def _with_own_function(x: torch.Tensor) -> torch.Tensor:
    doubled: torch.Tensor = _Doubled.apply(x)
    return doubled.cos()


def test_it_finds_traces_through_functions_that_have_a_backward_of_their_own() -> None:
    assert estimates(_with_own_function, "autograd_cache_hit") == [0, 1]


class _Output(OrderedDict[str, torch.Tensor]):
    """As Hugging Face's."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__(logits=logits)
        self.logits = logits


def _broken(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    output = _Output((x @ weight).sin())
    torch._dynamo.graph_break()
    return output.logits.exp().sum()


def test_dynamos_garbage_is_gone_also_where_the_code_was_found() -> None:
    """It holds what one frame hands to the next. Compiling makes Python collect it."""
    for again in (False, True):
        torch._dynamo.reset()
        with peakline.virtual_gpu("h200"):
            weight = torch.rand(64, 64, device="cuda", requires_grad=True)
            x = torch.rand(4096, 64, device="cuda")
            gc.collect()
            if again:
                gc.disable()
            try:
                torch.compile(_broken)(weight, x).backward()
                held = torch.cuda.memory_allocated()
            finally:
                gc.enable()
            gc.collect()
            assert not again or held == torch.cuda.memory_allocated()


def test_headers_are_kept_beside_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor's C++, for tensors of the host, has a folder of its own for them."""
    from torch._inductor import codecache

    before = codecache._HEADER_DIR
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with peakline.virtual_gpu("h200"):
        assert Path(codecache._HEADER_LOCK_DIR).is_relative_to(tmp_path)
    assert before == codecache._HEADER_DIR


def test_to_collect_it_takes_no_look_through_all_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    put_aside, collect = [], gc.collect

    def collected(generation: int = 2) -> int:
        if generation == 2:
            put_aside.append(gc.get_freeze_count())
        return collect(generation)

    estimates(_named, "fxgraph_cache_hit")
    monkeypatch.setattr(gc, "collect", collected)
    estimates(_named, "fxgraph_cache_hit")
    assert put_aside
    assert min(put_aside) > 100_000
    assert gc.get_freeze_count() == 0


def test_what_a_program_has_put_aside_itself_stays_there() -> None:
    gc.collect()
    gc.freeze()
    try:
        before = gc.get_freeze_count()
        estimates(_named, "fxgraph_cache_hit")
        assert before * 0.9 < gc.get_freeze_count() <= before  # what died is gone
    finally:
        gc.unfreeze()


class Sources:
    """A package, and how often its hash was computed."""

    def __init__(self, folder: Path) -> None:
        self.package = folder / "package"
        self.package.mkdir()
        self.file = self.package / "module.py"
        self.file.write_text("x = 1")
        self.cache = folder / "cache"
        self.cache.mkdir()
        self.computed = 0

    def key(self, value: str | bytes) -> str | bytes:
        """As a process finds it that has just begun."""

        def compute() -> str | bytes:
            self.computed += 1
            return value

        return _source_keys._remembered(compute, self.package, self.cache)()


@pytest.mark.parametrize("value", ["a hash", b"\x00\xff"])
def test_hashes_of_sources_are_remembered(tmp_path: Path, value: str | bytes) -> None:
    sources = Sources(tmp_path)
    assert sources.key(value) == value
    assert sources.key("another") == value
    assert sources.computed == 1


def test_hashes_of_changed_sources_are_computed_anew(tmp_path: Path) -> None:
    sources = Sources(tmp_path)
    sources.key("before")
    facts = sources.file.stat()
    os.utime(sources.file, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    assert sources.key("touched") == "touched"
    (sources.package / "more.py").write_text("")
    assert sources.key("with one more") == "with one more"


def test_a_damaged_file_of_hashes_is_none(tmp_path: Path) -> None:
    sources = Sources(tmp_path)
    sources.key("before")
    (sources.cache / "sources_of_package.json").write_text("{")
    assert sources.key("after") == "after"
