"""Names for the modules of a run, given when they are first met."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable

from torch import Tensor, nn

from peakline import _C
from peakline._faults import Faults
from peakline._module_owners import ModuleOwners
from peakline._patches import Patches

# torch.compile wraps a module in one that people did not write; its name says nothing.
_COMPILE_WRAPPER = "_orig_mod"

OnModel = Callable[[nn.Module], None]


class ModuleNames:
    """Registers module trees with a session: paths as people write them, parameters, buffers."""

    def __init__(self, on_model: OnModel | None = None) -> None:
        self._on_model = on_model  # told of outermost modules, before they run
        self._session: _C.Session | None = None
        self._roots: dict[str, int] = {}
        self._paths: dict[int, str] = {}
        self._ids: dict[str, int] = {}
        self._of_class: dict[str, set[str]] = {}  # paths
        self._models: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._owners = ModuleOwners()

    def watch(self, patches: Patches, faults: Faults) -> None:
        """From now on it is known what modules that are made belong to."""
        self._owners.watch(patches, faults)

    def outermost(self, module: nn.Module) -> nn.Module:
        return self._owners.outermost(module)

    def roots(self) -> list[nn.Module]:
        """The outermost modules that have been met and still live."""
        return list(self._models)

    def bind(self, session: _C.Session) -> None:
        self._session = session

    def discover(self, module: nn.Module, around: int) -> None:
        """A module that is not known is about to run inside module `around` (0: none)."""
        if around == 0:
            self._add_with_owners(module)
        else:
            kind = type(module).__name__
            self._add_tree(module, f"{self._paths.get(around, '')}.{kind}", kind, around)
        if self._session is not None:
            self._session.label_added()

    def meet_owners(self, parameters: Iterable[Tensor]) -> None:
        """Registers the modules that these belong to, before any of them has run."""
        for module in self._owners.of_parameters(parameters):
            if self._is_new(module):
                self._add_with_owners(module)

    def _add_with_owners(self, module: nn.Module) -> None:
        self.add_root(self._owners.outermost(module))
        if self._is_new(module):  # its owner does not show it among its modules
            self.add_root(module)

    def _is_new(self, module: nn.Module) -> bool:
        assert self._session is not None
        return self._session.find_module(module) == 0

    def add_root(self, module: nn.Module) -> None:
        self._models.add(module)
        wrapped = getattr(module, _COMPILE_WRAPPER, module)
        kind = type(wrapped).__name__
        self._add_tree(module, self.path_of(wrapped) or self._new_root(kind), kind, 0)
        if self._on_model is not None:
            self._on_model(wrapped)

    def below(self, path: str, kind: str, running: int) -> int:
        """The module of class `kind` that is `path` below the module that runs, or below any where
        none is known to run; 0 where none or several could be meant."""
        around = self._paths.get(running, "")
        if around and (found := self._ids.get(f"{around}.{path}")):
            return found
        inside = f"{around}." if around else ""
        known = [
            name
            for name in self._of_class.get(kind, ())
            if name.endswith(f".{path}") and name.startswith(inside)
        ]
        return self._ids[known[0]] if len(known) == 1 else 0

    def path_of(self, module: nn.Module) -> str:
        """ "" where it was not met before."""
        assert self._session is not None
        return self._paths.get(self._session.find_module(module), "")

    def _new_root(self, kind: str) -> str:
        count = self._roots.get(kind, 0) + 1
        self._roots[kind] = count
        return kind if count == 1 else f"{kind}#{count}"

    def _add_tree(self, top: nn.Module, top_path: str, top_kind: str, around: int) -> None:
        ids: dict[str, int] = {}
        for raw_name, module in top.named_modules():
            names = [part for part in raw_name.split(".") if part and part != _COMPILE_WRAPPER]
            path = ".".join([top_path, *names])
            parent = ids.get(path.rpartition(".")[0], 0) if names else around
            kind = type(module).__name__ if names else top_kind
            ids[path] = self._add(module, path, kind, parent, ".".join(names))

    def _add(self, module: nn.Module, path: str, kind: str, parent: int, name: str) -> int:
        session = self._session
        assert session is not None
        known = session.find_module(module)
        if known != 0:
            return known
        module_id = session.add_module(module, path, kind, parent)
        self._paths[module_id] = path
        self._ids[path] = module_id
        self._of_class.setdefault(kind, set()).add(path)
        prefix = f"{name}." if name else ""
        for own, parameter in module._parameters.items():
            if parameter is not None:
                session.add_tensor(parameter, _C.CATEGORY_PARAMETER, module_id, prefix + own)
        for own, buffer in module._buffers.items():
            if buffer is not None:
                session.add_tensor(buffer, _C.CATEGORY_BUFFER, module_id, prefix + own)
        return module_id
