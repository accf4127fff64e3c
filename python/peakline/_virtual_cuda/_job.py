"""What is known of the job that this process is one rank of."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from peakline import _C
from peakline._virtual_cuda._nccl import guessed_bytes
from peakline._virtual_cuda._rank_kinds import RankKinds

_NCCL = (
    "{communicators} (of {sizes} ranks) {are} counted with {each}{guessed}, outside of torch's "
    "allocator{total}; --nccl-memory changes it"
)
_IMBALANCE = (
    "tokens are dealt to experts evenly, and {factor:g} times the average to those of this rank; "
    "--routing-imbalance changes it"
)


class Job:
    """Filled while the program runs; `finish` and `complete` come after it.

    `tell_ranks` is called with "stages" or "shards" and one rank of each, as they become known.
    """

    def __init__(self) -> None:
        self.tell_ranks: Callable[[str, list[int]], None] | None = None
        # Objects from another rank, by its number, and to one: for who can run that rank, too.
        self.receive: Callable[[int], list[Any]] | None = None
        self.send: Callable[[int, list[Any]], None] = lambda rank, objects: None
        self.label_comm: Callable[[torch.Tensor], None] = lambda tensor: None
        self.routing_imbalance = 1.0
        self.routed = False  # a program used how many tokens each expert is taken to get
        self.kinds = RankKinds()
        self._communicators: dict[tuple[int, ...], None] = {}
        self.world_size = 1

    def add_communicator(self, ranks: tuple[int, ...]) -> None:
        """A group that is used on a GPU. The same ranks again are a communicator again in NCCL,
        but torch reuses one where the group is the same; groups of one rank need none."""
        if len(ranks) > 1:
            self._communicators[ranks] = None

    @property
    def communicators(self) -> list[int]:
        """Their sizes, the largest first."""
        return sorted(map(len, self._communicators), reverse=True)

    def add_stages(self, group: Any) -> None:
        """A pipeline along `group` was made."""
        self.kinds.add_stages(group)
        if self.tell_ranks is not None:
            self.tell_ranks("stages", self.kinds.stages(dist.get_rank()))

    def finish(self) -> None:
        """While the program's tensors are still there."""
        if self.tell_ranks is not None and dist.is_initialized():
            self.kinds.add_sharded_tensors()
            self.tell_ranks("shards", self.kinds.shards(dist.get_rank()))

    def complete(
        self, answer: dict[str, Any], rank: int, nccl_memory: int | None, memory: int | None
    ) -> dict[str, Any]:
        """Adds what the job knows to rank `rank`'s answer. NCCL's memory for each communicator is
        guessed when it is not given; it is outside of a limit that was asked for, and inside of the
        GPU's own."""
        each = guessed_bytes(os.environ) if nccl_memory is None else nccl_memory
        total = each * len(self.communicators)
        answer |= {"rank": rank, "world_size": self.world_size, "nccl_memory": total}
        answer |= {"nccl_guessed": nccl_memory is None, "communicators": self.communicators}
        reserved, limit = answer["peak_reserved"], answer["memory_limit"]
        if limit is not None and reserved is not None:
            answer["peak_with_nccl"] = reserved + total
            answer["memory_spare"] = limit - reserved - (total if memory is None else 0)
            answer["fits"] = bool(answer["fits"]) and answer["memory_spare"] >= 0
        answer["warnings"] += self._sentences(each, total, nccl_memory is None)
        return answer

    def _sentences(self, each: int, total: int, guessed: bool) -> list[str]:
        found = []
        if self.communicators and self.world_size > 1:
            sizes = ", ".join(map(str, dict.fromkeys(self.communicators)))
            count = len(self.communicators)
            texts = {"communicators": _C.counted(count, "NCCL communicator")}
            texts |= {"are": "is", "each": _C.format_size(each), "total": ""}
            if count > 1:
                texts |= {"are": "are", "each": f"{texts['each']} each"}
                texts["total"] = f": {_C.format_size(total)} in all"
            texts["guessed"] = " (guessed: a ring's buffers)" if guessed else ""
            found.append(_NCCL.format(sizes=sizes, **texts))
        if self.routed:
            found.append(_IMBALANCE.format(factor=self.routing_imbalance))
        return found
