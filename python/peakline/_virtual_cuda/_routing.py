"""How many tokens each expert gets: the one value of a mixture of experts that shapes depend on.

Counting tokens (`bincount`, `histc`) over values that nobody knows gives an even share to each
expert, and `Job.routing_imbalance` times that to the experts of this rank; every other rank is
taken to send the same. Experts are dealt to the ranks of the job in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from peakline._patches import Patches
from peakline._virtual_cuda._engine import Engine
from peakline._virtual_cuda._job import Job


def shares(tokens: int, experts: int, mine: range, imbalance: float) -> list[int]:
    """Whole tokens for each expert, `tokens` in all."""
    if experts == 0:
        return []
    hot = min(tokens, round(len(mine) * imbalance * tokens / experts))
    counts = [0] * experts
    _deal(counts, mine, hot)
    _deal(counts, [e for e in range(experts) if e not in mine] or list(mine), tokens - hot)
    return counts


def _deal(counts: list[int], experts: Any, tokens: int) -> None:
    each, rest = divmod(tokens, len(experts)) if experts else (0, 0)
    for place, expert in enumerate(experts):
        counts[expert] += each + (place < rest)


def install(patches: Patches, engine: Engine, job: Job) -> None:
    routing = _Routing(engine, job)
    for owner in (torch, torch.Tensor):
        for name, make in (("bincount", routing.bincount), ("histc", routing.histc)):
            patches.set(owner, name, make(getattr(owner, name)))
    module: Any = dist.distributed_c10d
    exchange = routing.all_to_all_single(module.all_to_all_single)
    patches.set(module, "all_to_all_single", exchange)
    patches.set(dist, "all_to_all_single", exchange)
    patches.set(functional, "all_to_all_single", routing.functional(functional.all_to_all_single))


class _Routing:
    """Patched functions. Counts are made on the host, so that their values are known."""

    def __init__(self, engine: Engine, job: Job) -> None:
        self._engine = engine
        self._job = job

    def _is_unknown(self, tensor: Any) -> bool:
        is_tensor = isinstance(tensor, torch.Tensor) and type(tensor) is torch.Tensor
        return (
            is_tensor and tensor.is_cuda and self._engine.is_virtual(tensor) and not known(tensor)
        )

    def _made(self, tensor: torch.Tensor, experts: int, dtype: torch.dtype) -> torch.Tensor:
        self._job.routed = True
        world = self._job.world_size if dist.is_initialized() else 1
        local = max(1, experts // world)
        rank = dist.get_rank() if dist.is_initialized() else 0
        first = rank * local % max(1, experts)
        mine = range(first, first + local)
        counts = shares(tensor.numel(), experts, mine, self._job.routing_imbalance)
        return torch.tensor(counts, dtype=dtype).to(tensor.device)

    def bincount(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def bincount(
            input: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0
        ) -> torch.Tensor:
            if weights is None and minlength > 0 and self._is_unknown(input):
                return self._made(input, minlength, torch.int64)
            result: torch.Tensor = original(input, weights, minlength)
            return result

        return bincount

    def histc(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def histc(
            input: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0, **kwargs: Any
        ) -> torch.Tensor:
            if not kwargs and self._is_unknown(input):
                return self._made(input, bins, input.dtype)
            result: torch.Tensor = original(input, bins, min, max, **kwargs)
            return result

        return histc

    def all_to_all_single(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def all_to_all_single(
            output: torch.Tensor,
            input: torch.Tensor,
            output_split_sizes: Any = None,
            input_split_sizes: Any = None,
            group: Any = None,
            async_op: bool = False,
        ) -> Any:
            kept = input.detach().clone() if _is_counts(input, output_split_sizes) else None
            work = original(output, input, output_split_sizes, input_split_sizes, group, async_op)
            if kept is not None:
                output.copy_(_from_everybody(kept, group))
            return work

        return all_to_all_single

    def functional(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def all_to_all_single(
            self: torch.Tensor,
            output_split_sizes: Any,
            input_split_sizes: Any,
            group: Any,
            tag: str = "",
        ) -> Any:
            output = original(self, output_split_sizes, input_split_sizes, group, tag)
            if _is_counts(self, output_split_sizes) and isinstance(group, dist.ProcessGroup):
                output.copy_(_from_everybody(self.detach(), group))
            return output

        return all_to_all_single


def _is_counts(tensor: torch.Tensor, splits: Any) -> bool:
    """A few numbers in equal parts: what is exchanged before the tokens themselves."""
    return not splits and tensor.is_cuda and not tensor.is_floating_point() and known(tensor)


def _from_everybody(counts: torch.Tensor, group: Any) -> torch.Tensor:
    """Each rank sends what this one would send to itself."""
    world = dist.get_world_size(group)
    part = counts.view(-1).chunk(world)[dist.get_rank(group)]
    return part.repeat(world).view_as(counts)


def known(tensor: torch.Tensor) -> bool:
    """Whether the values are known, without asking for them."""
    from peakline import _C

    before: int = _C.vgpu.counters()["unknown_values"]
    if tensor.numel() > 4096:
        return False
    values = tensor.detach().cpu()
    del values
    return bool(_C.vgpu.counters()["unknown_values"] == before)
