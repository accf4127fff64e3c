"""Device meshes of many ranks: compared quickly, and forgotten with their groups.

Every slice of a mesh keeps the ranks of the whole one, and torch compares them number by number
whenever it meets two equal slices, which for thousands of ranks takes longer than everything else.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh

from peakline._patches import Patches


class RankList(tuple[int, ...]):
    """A tuple that knows itself at once, and remembers its hash."""

    def __eq__(self, other: object) -> bool:
        return self is other or tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return self is not other and tuple.__ne__(self, other)

    def __hash__(self) -> int:
        if "hash" not in self.__dict__:
            self.__dict__["hash"] = tuple.__hash__(self)
        return int(self.__dict__["hash"])


def install(patches: Patches) -> None:
    mesh: Any = DeviceMesh
    init = mesh.__init__
    known: dict[tuple[int, ...], RankList] = {}

    @functools.wraps(init)
    def init_with_known_ranks(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            init(self, *args, **kwargs)
        except RuntimeError as error:
            raise _naming_the_flag(error) from None
        ranks = getattr(self, "_flatten_rank_map", None)
        if isinstance(ranks, tuple):
            self._flatten_rank_map = known.setdefault(ranks, RankList(ranks))

    patches.set(mesh, "__init__", init_with_known_ranks)
    patches.on_restore(_forget_meshes)


def _naming_the_flag(error: RuntimeError) -> RuntimeError:
    if "bigger than default world size" not in str(error):
        return error
    return RuntimeError(f"{error} --world-size N estimates one rank of N")


def _forget_meshes() -> None:
    """DTensor remembers how it sharded, with the mesh. A later mesh that is equal would get that
    one, whose groups are gone."""
    tensor = sys.modules.get("torch.distributed.tensor")
    if tensor is None:
        return
    # What torch's own `_clear_sharding_prop_cache` does; its module takes long to import.
    propagate = tensor.DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding
    clear = getattr(propagate, "cache_clear", None)
    clear_native = getattr(torch._C, "_clear_DTensor_sharding_propagator_cache", None)
    for function in (clear, clear_native):  # not every torch has both
        if function is not None:
            function()
