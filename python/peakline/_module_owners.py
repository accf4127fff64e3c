"""Which module a module or a parameter belongs to, also where that one is never called itself.

A LightningModule's `training_step` calls its parts and not itself, and so do many models that have
a method for their loss. torch tells when modules and parameters become parts of a module.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator

from torch import Tensor, nn
from torch.nn.modules import module as torch_modules
from torch.utils.weak import WeakIdKeyDictionary

from peakline._faults import Faults
from peakline._patches import Patches
from peakline._traced_by_dynamo import not_while_traced


class ModuleOwners:
    def __init__(self) -> None:
        # By identity: modules of some libraries are equal or hashed by what they hold.
        self._around = WeakIdKeyDictionary()  # a reference to the module around each
        self._with_parameters = WeakIdKeyDictionary()

    def watch(self, patches: Patches, faults: Faults) -> None:
        module, parameter = faults.guarded(self._note_module), faults.guarded(self._note_parameter)
        for register, note in (
            (torch_modules.register_module_module_registration_hook, module),
            (torch_modules.register_module_parameter_registration_hook, parameter),
        ):
            patches.on_restore(register(not_while_traced(note)).remove)

    def outermost(self, module: nn.Module) -> nn.Module:
        """`module` itself where it is part of no other."""
        passed = {id(module)}
        while (around := self._owner_of(module)) is not None and id(around) not in passed:
            passed.add(id(around))
            module = around
        return module

    def of_parameters(self, parameters: Iterable[Tensor]) -> Iterator[nn.Module]:
        """The modules that hold any of them directly."""
        wanted = {id(parameter) for parameter in parameters}
        for module in list(self._with_parameters):
            if any(id(own) in wanted for own in module._parameters.values()):
                yield module

    def _owner_of(self, module: nn.Module) -> nn.Module | None:
        reference = self._around.get(module)
        around: nn.Module | None = None if reference is None else reference()
        if around is None or not any(part is module for part in around._modules.values()):
            return None  # it was taken out again
        return around

    def _note_module(self, around: nn.Module, name: str, part: nn.Module | None) -> None:
        if part is not None:
            self._around[part] = weakref.ref(around)

    def _note_parameter(self, module: nn.Module, name: str, parameter: nn.Parameter) -> None:
        self._with_parameters[module] = None
