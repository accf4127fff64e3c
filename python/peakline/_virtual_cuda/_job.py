"""What is known of the job that this process is one rank of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from peakline._virtual_cuda._rank_kinds import RankKinds

_NCCL = (
    "{count} NCCL communicators (of {sizes} ranks) are counted with {each} each, outside of "
    "torch's allocator: {total} in all; --nccl-memory changes it"
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
        self.routing_imbalance = 1.0
        self.routed = False  # a program asked how many tokens each expert gets
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
        self, answer: dict[str, Any], rank: int, nccl_memory: int, memory: int | None
    ) -> dict[str, Any]:
        """Adds what the job knows to rank `rank`'s answer. NCCL's memory is outside of a limit that
        was asked for, and inside of the GPU's own."""
        total = nccl_memory * len(self.communicators)
        answer |= {"rank": rank, "world_size": self.world_size, "nccl_memory": total}
        answer["communicators"] = self.communicators
        reserved, limit = answer["peak_reserved"], answer["memory_limit"]
        if memory is None and total and limit is not None and reserved is not None:
            answer["fits"] = bool(answer["fits"]) and reserved + total <= limit
        answer["warnings"] += self._sentences(nccl_memory, total)
        return answer

    def _sentences(self, each: int, total: int) -> list[str]:
        from peakline.run import format_size

        found = []
        if self.communicators and self.world_size > 1:
            sizes = ", ".join(map(str, dict.fromkeys(self.communicators)))
            count = len(self.communicators)
            texts = {"each": format_size(each), "total": format_size(total)}
            found.append(_NCCL.format(count=count, sizes=sizes, **texts))
        if self.routed:
            found.append(_IMBALANCE.format(factor=self.routing_imbalance))
        return found
