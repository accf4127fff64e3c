"""Names for the modules of a run, given when they are first met."""

from __future__ import annotations

import functools
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

from peakline import _C
from peakline._faults import Faults
from peakline._module_owners import ModuleOwners
from peakline._patches import Patches
from peakline._traced_by_dynamo import not_while_traced

# torch.compile wraps a module in one that people did not write; its name says nothing.
_COMPILE_WRAPPER = "_orig_mod"

# Of one name in one module. A buffer that every forward makes anew is not followed for ever.
_MOST_REPLACED = 16

OnModel = Callable[[nn.Module], None]


class ModuleNames:
    """Registers module trees with a session: paths as people write them, parameters, buffers."""

    def __init__(self, on_model: OnModel | None = None) -> None:
        self._on_model = on_model  # told of outermost modules, before they run
        self._session: _C.Session | None = None
        self._roots: dict[str, int] = {}
        self._paths: dict[int, str] = {}
        self._prefixes: dict[int, str] = {}  # of names of parameters, by module
        self._replaced: Counter[tuple[int, str]] = Counter()
        self._ids: dict[str, int] = {}
        self._of_class: dict[str, set[str]] = {}  # paths
        self._models: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._owners = ModuleOwners()

    def watch(self, patches: Patches, faults: Faults) -> None:
        """From now on it is known what modules that are made belong to, and what is put in the
        place of a known module's parameters and buffers, as a checkpoint that is loaded late."""
        self._owners.watch(patches, faults)
        note = not_while_traced(faults.guarded(self._note_replaced))
        for handle in (
            torch_modules.register_module_parameter_registration_hook(note),
            torch_modules.register_module_buffer_registration_hook(note),
        ):
            patches.on_restore(handle.remove)
        meet_again = faults.guarded(self._meet_again)
        original: Callable[..., Any] = nn.Module._apply

        @functools.wraps(original)
        def apply(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            result = original(module, *args, **kwargs)
            meet_again(module)
            return result

        patches.set(nn.Module, "_apply", apply)

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

    def _note_replaced(self, module: nn.Module, name: str, tensor: Tensor | None) -> None:
        """It becomes part of the module."""
        session = self._session
        if session is None or tensor is None:
            return
        module_id = session.find_module(module)
        if module_id == 0 or self._replaced[module_id, name] >= _MOST_REPLACED:
            return
        self._replaced[module_id, name] += 1
        self._add_tensor(tensor, name, module_id)
        session.label_added()

    def _meet_again(self, module: nn.Module) -> None:
        """`.to()` and the like put buffers in their places without a word."""
        for own in (module._parameters, module._buffers):
            for name, tensor in own.items():
                if tensor is not None and not self._knows(tensor):
                    self._note_replaced(module, name, tensor)

    def _knows(self, tensor: Tensor) -> bool:
        return self._session is None or self._session.knows_tensor(tensor)

    def _add_tensor(self, tensor: Tensor, name: str, module_id: int) -> None:
        assert self._session is not None
        is_parameter = isinstance(tensor, nn.Parameter)
        kind = _C.CATEGORY_PARAMETER if is_parameter else _C.CATEGORY_BUFFER
        self._session.add_tensor(tensor, kind, module_id, self._prefixes[module_id] + name)

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
        self._prefixes[module_id] = prefix = f"{name}." if name else ""
        for own, parameter in module._parameters.items():
            if parameter is not None:
                session.add_tensor(parameter, _C.CATEGORY_PARAMETER, module_id, prefix + own)
        for own, buffer in module._buffers.items():
            if buffer is not None:
                session.add_tensor(buffer, _C.CATEGORY_BUFFER, module_id, prefix + own)
        return module_id
