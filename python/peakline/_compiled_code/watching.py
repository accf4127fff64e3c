"""Compiled code that tells a recording whose its buffers are, for as long as a run is tracked."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from peakline import _C
from peakline._compiled_code.buffers import NOTE, Names, NotedCode, noted_code
from peakline._compiled_code.origins import Origin, Origins, origins_of
from peakline._imports import acting_on
from peakline._module_names import ModuleNames
from peakline._patches import Patches


def watch_compiled_code(patches: Patches, session: _C.Session, names: ModuleNames) -> None:
    """What is compiled or loaded from here on. Nothing is imported for it."""
    watch = _Watch(patches, session, names)
    patches.keep(
        acting_on(
            {
                "torch._inductor.compile_fx": watch.graphs,
                "torch._inductor.codecache": watch.loading,
            }
        )
    )


class _Watch:
    def __init__(self, patches: Patches, session: _C.Session, names: ModuleNames) -> None:
        self._patches = patches
        self._session = session
        self._names = names
        self._thread = threading.local()
        self._noting: set[str] = set()  # paths of code

    def graphs(self, module: Any) -> None:
        """Dynamo's graph, and those that autograd makes of it."""
        for name in ("compile_fx", "_compile_fx_inner"):
            if name in vars(module):
                self._patches.set(module, name, self._knowing_nodes(getattr(module, name)))

    def loading(self, module: Any) -> None:
        load = module.PyCodeCache.load_by_key_path

        def load_by_key_path(cls: Any, key: str, path: str, *args: Any, **kwargs: Any) -> Any:
            loaded = load(key, path, *args, **kwargs)
            with contextlib.suppress(Exception):  # tracking never disturbs the run
                self._note_buffers(loaded, path)
            return loaded

        self._patches.set(module.PyCodeCache, "load_by_key_path", classmethod(load_by_key_path))

    def _knowing_nodes(self, compile_graph: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(compile_graph)
        def compile_known(graph: Any, *args: Any, **kwargs: Any) -> Any:
            outer = self._origins()
            with contextlib.suppress(Exception):
                self._thread.origins = outer | origins_of(graph)
            try:
                return compile_graph(graph, *args, **kwargs)
            finally:
                self._thread.origins = outer

        return compile_known

    def _origins(self) -> Origins:
        found: Origins = getattr(self._thread, "origins", {})
        return found

    def _note_buffers(self, module: ModuleType, path: str) -> None:
        origins = self._origins()
        if not origins or path in self._noting or not hasattr(module, "call"):
            return
        noted = noted_code(Path(path).read_text(), path)
        if noted is None:
            return
        owners = [_owner(nodes, origins) for nodes in noted.buffers]
        self._noting.add(path)
        self._patches.set(module, NOTE, _Note(self._session, self._names, owners))
        for function, code in _functions(module, noted):
            self._patches.on_restore(functools.partial(_run_as, function, function.__code__))
            _run_as(function, code)


def _owner(nodes: Names, origins: Origins) -> Origin | None:
    """Nodes come in the order of the graph: the last one makes what is stored."""
    known = (origins[node] for node in reversed(nodes) if node in origins)
    return next(known, None)


def _functions(module: ModuleType, noted: NotedCode) -> Iterator[tuple[FunctionType, CodeType]]:
    for name, code in noted.functions.items():
        owner: Any = module
        *outer, last = name.split(".")
        for part in outer:
            owner = getattr(owner, part)
        function = vars(owner).get(last)
        if isinstance(function, FunctionType):
            yield function, code


def _run_as(function: FunctionType, code: CodeType) -> None:
    function.__code__ = code


class _Note:
    """Called by compiled code with each buffer that it has allocated."""

    def __init__(
        self, session: _C.Session, names: ModuleNames, owners: list[Origin | None]
    ) -> None:
        self._session = session
        self._names = names
        self._owners = owners
        self._modules: dict[tuple[Origin, int], int] = {}  # by owner and running module

    def __call__(self, buffer: Any, number: int) -> None:
        owner = self._owners[number]
        if owner is None or not self._session.recording:
            return
        with contextlib.suppress(Exception):
            module = self._module(owner, self._session.running_module())
            for tensor in buffer if isinstance(buffer, tuple | list) else (buffer,):
                if isinstance(tensor, torch.Tensor):
                    self._session.owned_by(tensor, module, owner.line)

    def _module(self, owner: Origin, running: int) -> int:
        if (owner, running) not in self._modules:
            found = self._names.below(owner.path, owner.kind, running)
            self._modules[owner, running] = found
        return self._modules[owner, running]
