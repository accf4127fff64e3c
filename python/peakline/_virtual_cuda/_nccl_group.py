"""torch.distributed.ProcessGroupNCCL, in front of fake groups: a CPU-only torch has none."""

from __future__ import annotations

import datetime
from types import SimpleNamespace
from typing import Any

import torch.distributed as dist
from torch._C import _distributed_c10d as native

from peakline._patches import Patches

_TIMEOUT = datetime.timedelta(minutes=10)


class Config(SimpleNamespace):
    """ncclConfig_t: what is not set is NCCL's own choice."""

    def __init__(self) -> None:
        super().__init__(blocking=1, cga_cluster_size=4, min_ctas=1, max_ctas=32, net_name="")
        self.__dict__.update(split_share=0, traffic_class=0, comm_name="", collnet_enable=0)
        self.__dict__.update(cta_policy=0, shrink_share=0, nvls_ctas=0)


class Options:
    """ProcessGroupNCCL.Options"""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        self.is_high_priority_stream = is_high_priority_stream
        self.config = Config()
        self.split_from: Any = None
        self.split_color = -1
        self.global_ranks_in_group: list[int] = []
        self.group_name = ""
        self.backend = "nccl"
        self._timeout = _TIMEOUT

    def __copy__(self) -> Options:
        made = Options(self.is_high_priority_stream)
        made.__dict__.update(self.__dict__)
        return made


class _Kind(type):
    """Groups of a virtual run that were asked for as NCCL's are instances."""

    def __instancecheck__(cls, thing: Any) -> bool:
        return any(thing is backend for backend in ProcessGroupNCCL.made)


class ProcessGroupNCCL(metaclass=_Kind):
    NCCL_CTA_POLICY_DEFAULT = 0
    NCCL_CTA_POLICY_EFFICIENCY = 1
    NCCL_CTA_POLICY_ZERO = 2
    Options = Options
    NCCLConfig = Config
    made: list[Any] = []  # kept, so that each stays the same object

    def __new__(cls, store: Any, rank: int, size: int, *options: Any) -> Any:
        backend = native.FakeProcessGroup._create_internal(rank, size)
        return cls.adopt(backend, *options)

    @classmethod
    def adopt(cls, backend: Any, options: Any = None) -> Any:
        """From now on `backend` is one of NCCL's."""
        cls.made.append(backend)
        _options[id(backend)] = options if isinstance(options, Options) else Options()
        return backend


def _nothing(self: Any, *args: Any, **kwargs: Any) -> None:
    pass


def _settings(self: Any) -> Options:
    return _options.get(id(self)) or Options()


def _name(self: Any) -> str:
    return "nccl" if isinstance(self, ProcessGroupNCCL) else str(native.Backend.name(self))


_options: dict[int, Options] = {}  # by backend; those are kept

# Methods of NCCL's groups that torch's fake ones lack, or answer with an error.
_METHODS: dict[str, Any] = {
    "name": _name,
    "_set_default_timeout": _nothing,
    "_add_ephemeral_timeout": _nothing,
    "_verify_work_timeout": lambda self, work, timeout: True,
    "_set_enable_nan_check": _nothing,
    "_group_start": _nothing,
    "_group_end": _nothing,
    "_is_initialized": lambda self: True,
    "set_timeout": _nothing,
    "monitored_barrier": _nothing,
    "perform_nocolor_split": _nothing,
    "eager_connect_single_device": _nothing,
    "register_mem_pool": _nothing,
    "deregister_mem_pool": _nothing,
    "comm_split_count": lambda self: 0,
    "abort": _nothing,
    "uid": property(lambda self: ProcessGroupNCCL.made.index(self)),
    "bound_device_id": property(lambda self: None),
}


def install(patches: Patches) -> None:
    module: Any = dist.distributed_c10d
    for owner in (dist, module, native):
        patches.set(owner, "ProcessGroupNCCL", ProcessGroupNCCL)
    patches.set(module, "_NCCL_AVAILABLE", True)
    if module.default_pg_nccl_timeout is None:
        patches.set(module, "default_pg_nccl_timeout", _TIMEOUT)
    fake: Any = native.FakeProcessGroup
    patches.set_all(fake, _METHODS)
    patches.set(fake, "options", property(_settings))
    patches.set(dist.ProcessGroup, "monitored_barrier", _nothing)
    patches.set(dist.ProcessGroup, "set_timeout", _nothing)
    patches.on_restore(_forget)


def _forget() -> None:
    ProcessGroupNCCL.made.clear()
    _options.clear()
