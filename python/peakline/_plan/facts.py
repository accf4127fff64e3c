"""What a training program does that decides which levers it has: seen in its first step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grad
from torch.optim.optimizer import Optimizer

from peakline import _allocator_settings
from peakline._optimizer_kinds import kind_of, kinds_of
from peakline._patches import Patches
from peakline._script_sizes import Size, watch_argparse
from peakline._virtual_cuda._compiled._eager import Regions

# What every way to clip gradients goes through.
CLIPPING = ("_get_total_norm", "get_total_norm", "clip_grad_value_", "_clip_grads_with_norm_")


@dataclass
class OptimizerFacts:
    name: str
    kinds: list[str]  # implementations that it has
    kind: str  # the one that it takes


@dataclass
class ShardFacts:
    """Calls of fully_shard."""

    calls: int = 0
    world: int = 1
    reshard: Any = None  # of the last call
    mesh_dims: int = 1
    reduce_dtype: str = ""
    param_dtype: str = ""
    parts: bool = False  # some unit has parts that could be units
    layers: bool = False  # some unit has layers that could be units


@dataclass
class Facts:
    optimizers: list[OptimizerFacts] = field(default_factory=list)
    clips: bool = False
    compiles: bool = False
    allocator: str = ""
    fsdp: ShardFacts | None = None
    sizes: list[Size] = field(default_factory=list)  # arguments: batch, length


class FactFinder:
    """Watches a program while it runs."""

    def __init__(self) -> None:
        self.facts = Facts(allocator=_allocator_settings.in_environment())

    @contextmanager
    def watching(self) -> Iterator[None]:
        with Patches() as patches:
            self._watch_optimizers(patches)
            self._watch_clipping(patches)
            self._watch_compilation(patches)
            self._watch_sharding(patches)
            watch_argparse(patches, self.facts.sizes.append)
            yield

    def _watch_optimizers(self, patches: Patches) -> None:
        made = Optimizer.__init__

        def init(optimizer: Optimizer, params: Any, defaults: dict[str, Any]) -> None:
            made(optimizer, params, defaults)
            self.facts.optimizers.append(_describe(optimizer))

        patches.set(Optimizer, "__init__", init)

    def _watch_clipping(self, patches: Patches) -> None:
        for name in CLIPPING:
            own = vars(clip_grad).get(name)
            if own is None:
                continue

            def clip(*args: Any, _own: Any = own, **kwargs: Any) -> Any:
                self.facts.clips = True
                return _own(*args, **kwargs)

            patches.set(clip_grad, name, clip)

    def _watch_compilation(self, patches: Patches) -> None:
        """By torch.compile, and by what stands for it where regions run eagerly."""
        for owner, name in ((torch, "compile"), (Regions, "module"), (Regions, "mark")):
            patches.set(owner, name, self._compiling(getattr(owner, name)))

    def _compiling(self, own: Callable[..., Any]) -> Callable[..., Any]:
        def seen(*args: Any, **kwargs: Any) -> Any:
            self.facts.compiles = True
            return own(*args, **kwargs)

        return seen

    def _watch_sharding(self, patches: Patches) -> None:
        from peakline._plan.levers import fsdp_calls

        def note(module: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
            found = self.facts.fsdp = self.facts.fsdp or ShardFacts()
            found.calls += 1
            found.world = torch.distributed.get_world_size()
            found.reshard = kwargs.get("reshard_after_forward")
            mesh = kwargs.get("mesh")
            found.mesh_dims = 1 if mesh is None else mesh.ndim
            policy = kwargs.get("mp_policy")
            found.reduce_dtype = str(getattr(policy, "reduce_dtype", None) or "")
            found.param_dtype = str(getattr(policy, "param_dtype", None) or "")
            units = module if isinstance(module, list) else [module]
            found.layers |= any(fsdp_calls.layers_of(unit) for unit in units)
            found.parts |= any(fsdp_calls.parts_of(unit) for unit in units)
            return kwargs

        fsdp_calls.change(patches, note)


def _describe(optimizer: Optimizer) -> OptimizerFacts:
    return OptimizerFacts(type(optimizer).__name__, kinds_of(optimizer), kind_of(optimizer))


def is_leaf(module: nn.Module) -> bool:
    return next(module.children(), None) is None
