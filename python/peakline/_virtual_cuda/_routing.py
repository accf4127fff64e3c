"""How many tokens each expert gets: the one value of a mixture of experts that shapes depend on.

Counting choices that nobody knows (`bincount`, `histc` of a top-k's indices) gives an even share to
each expert, and `Job.routing_imbalance` times that to the experts of this rank; every other rank is
taken to send the same. Experts are dealt to the ranks of the job in order. What is known is counted
as it is, and so is what was calculated with: a confusion matrix counts no tokens.
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

    def _is_routing(self, tensor: Any) -> bool:
        """Whether these may be chosen experts, and which ones nobody knows."""
        if type(tensor) is not torch.Tensor or not tensor.is_cuda:
            return False
        engine = self._engine
        return (
            engine.is_virtual(tensor) and engine.is_picked(tensor) and not engine.is_known(tensor)
        )

    def _made(self, tensor: torch.Tensor, experts: int, dtype: torch.dtype) -> torch.Tensor:
        """The assumption counts as one when the numbers are used."""
        world = self._job.world_size if dist.is_initialized() else 1
        local = max(1, experts // world)
        rank = dist.get_rank() if dist.is_initialized() else 0
        first = rank * local % max(1, experts)
        mine = range(first, first + local)
        counts = shares(tensor.numel(), experts, mine, self._job.routing_imbalance)
        made = torch.tensor(counts, dtype=dtype).to(tensor.device)
        self._engine.assume(made)
        return made

    def bincount(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def bincount(
            input: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0
        ) -> torch.Tensor:
            if weights is None and minlength > 0 and self._is_routing(input):
                return self._made(input, minlength, torch.int64)
            result: torch.Tensor = original(input, weights, minlength)
            return result

        return bincount

    def histc(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def histc(
            input: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0, **kwargs: Any
        ) -> torch.Tensor:
            if not kwargs and self._is_routing(input):
                return self._made(input, bins, input.dtype)
            result: torch.Tensor = original(input, bins, min, max, **kwargs)
            return result

        return histc

    def _are_counts(self, tensor: torch.Tensor, splits: Any) -> bool:
        """Known whole numbers in equal parts: what is exchanged before the tokens themselves."""
        if splits or not tensor.is_cuda or tensor.is_floating_point():
            return False
        return self._engine.is_known(tensor)

    def all_to_all_single(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def all_to_all_single(
            output: torch.Tensor,
            input: torch.Tensor,
            output_split_sizes: Any = None,
            input_split_sizes: Any = None,
            group: Any = None,
            async_op: bool = False,
        ) -> Any:
            counts = self._are_counts(input, output_split_sizes)
            kept = input.detach().clone() if counts else None
            work = original(output, input, output_split_sizes, input_split_sizes, group, async_op)
            if kept is not None:
                output.copy_(_from_everybody(kept, group))
            return work

        return all_to_all_single

    def functional(self, original: Callable[..., Any]) -> Callable[..., Any]:
        are_counts = self._are_counts

        def all_to_all_single(
            self: torch.Tensor,
            output_split_sizes: Any,
            input_split_sizes: Any,
            group: Any,
            tag: str = "",
        ) -> Any:
            output = original(self, output_split_sizes, input_split_sizes, group, tag)
            if are_counts(self, output_split_sizes) and isinstance(group, dist.ProcessGroup):
                output.copy_(_from_everybody(self.detach(), group))
            return output

        return all_to_all_single


def _from_everybody(counts: torch.Tensor, group: Any) -> torch.Tensor:
    """Each rank sends what this one would send to itself."""
    world = dist.get_world_size(group)
    part = counts.view(-1).chunk(world)[dist.get_rank(group)]
    return part.repeat(world).view_as(counts)
