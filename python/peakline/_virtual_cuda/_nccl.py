"""What NCCL takes for one communicator, outside of torch's allocator: a guess, with its reasons.

A ring connects a rank with the one before and the one after it on every channel, however many ranks
there are. The receiving end has a buffer for each of NCCL's three protocols, the sending end a few
flags, and CUDA maps each in pieces of 2 MiB: 12 MiB for a channel, as NCCL's log shows on H100s
(github.com/NVIDIA/nccl/issues/1685). How many channels there are depends on the machine; logs of
machines with eight NVLinked GPUs show 16 (issues/892, issues/1538). Trees, NVLink SHARP and
point-to-point connections come on top, and are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping

_PIECE = 2 << 20
_FLAGS = 4096  # on either end
_SIMPLE = 4 << 20
_LL = 8 * 512 * 8 * 16  # lines a thread, threads, steps, bytes a line
_LL128 = 120 * 640 * 8 * 8  # numbers a thread, threads, steps, bytes a number
_CHANNELS = 16


def guessed_bytes(environment: Mapping[str, str]) -> int:
    """For one communicator, with NCCL's own variables from `environment`."""
    protocols = {"NCCL_BUFFSIZE": _SIMPLE, "NCCL_LL_BUFFSIZE": _LL, "NCCL_LL128_BUFFSIZE": _LL128}
    buffers = sum(_number(environment, name, usual) for name, usual in protocols.items())
    channels = max(_CHANNELS, _number(environment, "NCCL_MIN_NCHANNELS", 0))
    channels = min(channels, _number(environment, "NCCL_MAX_NCHANNELS", channels))
    return channels * (_mapped(buffers + _FLAGS) + _mapped(_FLAGS))


def _mapped(size: int) -> int:
    return -(-size // _PIECE) * _PIECE


def _number(environment: Mapping[str, str], name: str, usual: int) -> int:
    """NCCL leaves out what it cannot read."""
    text = environment.get(name, "")
    return int(text) if text.isdecimal() and int(text) > 0 else usual
