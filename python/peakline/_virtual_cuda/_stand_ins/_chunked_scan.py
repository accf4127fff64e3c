"""Mamba 2's scan in chunks (mamba_ssm's `ssd_combined`): what its Triton kernels are given.

Forward keeps its inputs and its result. Backward computes states and sums of time steps again, and
sums gradients that several heads share in as many parts as there are processors to fill.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from peakline._virtual_cuda._stand_ins._package import applied

Maybe = torch.Tensor | None
_FEWEST_ROWS = 32  # of a block whose sums of gradients have a place of their own
_FEWEST_NUMBERS = 64


class Sizes(NamedTuple):
    batch: int
    rows: int
    heads: int
    head: int
    groups: int
    states: int
    chunk: int

    @property
    def chunks(self) -> int:
        return -(-self.rows // self.chunk)

    @property
    def parts(self) -> int:
        """In how many parts a group's heads are summed up."""
        processors = torch.cuda.get_device_properties().multi_processor_count
        of_group = self.heads // self.groups
        at_once = math.ceil(self.batch * self.chunks * self.heads / processors)
        return -(-of_group // max(min(at_once, of_group), 1))


def sizes_of(x: torch.Tensor, b: torch.Tensor, chunk: int) -> Sizes:
    """`x`: (batch, rows, heads, head size); `b`: (batch, rows, groups, states)."""
    batch, rows, heads, head = x.shape
    if heads % b.shape[2]:
        raise AssertionError(f"{heads} heads do not divide into {b.shape[2]} groups")
    return Sizes(batch, rows, heads, head, b.shape[2], b.shape[3], chunk)


def _floats(like: torch.Tensor, *shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.float32, device=like.device)


def _time_sums(s: Sizes, like: torch.Tensor) -> list[torch.Tensor]:
    """Time steps, and their sums within each chunk."""
    return [_floats(like, s.batch, s.heads, s.chunks, s.chunk) for _ in range(2)]


def _states(s: Sizes, like: torch.Tensor, kind: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """At the beginning of each chunk, and at the end of all."""
    of_chunks = _floats(like, s.batch, s.chunks, s.heads, s.head, s.states)
    passed = torch.empty_like(of_chunks, dtype=kind)
    return passed, _floats(like, s.batch, s.heads, s.head, s.states)


def _products(s: Sizes, like: torch.Tensor) -> torch.Tensor:
    return _floats(like, s.batch, s.chunks, s.groups, s.chunk, s.chunk)


class Done(NamedTuple):
    out: torch.Tensor
    before_gate: Maybe
    time_sums: list[torch.Tensor]
    final: torch.Tensor


def forward(x: torch.Tensor, b: torch.Tensor, c: torch.Tensor, z: Maybe, chunk: int) -> Done:
    s = sizes_of(x, b, chunk)
    sums = _time_sums(s, x)
    states, final = _states(s, x, c.dtype)
    products = _products(s, x)
    shape = (s.batch, s.rows, s.heads, s.head)
    out = torch.empty(shape, dtype=x.dtype, device=x.device)
    before = None if z is None else torch.empty_like(out)
    del states, products
    return Done(out, before, sums, final)


class Gradients(NamedTuple):
    x: torch.Tensor
    dt: torch.Tensor
    a: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor
    d: Maybe
    z: Maybe
    dt_bias: Maybe
    gated: Maybe


def backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    dt: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    d: Maybe,
    z: Maybe,
    dt_bias: Maybe,
    chunk: int,
    into: dict[str, torch.Tensor],
    gated_again: bool = False,
) -> Gradients:
    """`into`: gradients that have their places already."""
    s = sizes_of(x, b, chunk)
    grad = grad if grad.stride(-1) == 1 else grad.contiguous()
    grad_b = into["b"] if "b" in into else torch.empty_like(b)
    grad_c = into["c"] if "c" in into else torch.empty_like(c)
    grad_dt = into["dt"] if "dt" in into else torch.empty_like(dt)
    steps = dt.clone()
    sums = _time_sums(s, x)
    products = _products(s, x)
    states, final = _states(s, x, torch.float32)
    grad_d, grad_z, gated = None, None, None
    if z is not None:
        parts = None if d is None else _parts_of_d(s, d)
        grad_z = into["z"] if "z" in into else torch.empty_like(z)
        gated = torch.empty_like(x) if gated_again else None
        grad = torch.empty_like(grad)
        grad_d = None if d is None or parts is None else _summed(parts, d)
        del parts
    grad_states, grad_sums, states = _through_chunks(s, x, states)
    grad_x, grad_steps, from_x = _of_inputs(s, x, d, into.get("x"))
    grad_d = grad_d if z is not None else from_x
    by_heads = [_of_shared(s, x) for _ in range(2)]  # of B and of C
    grad_products = _floats(x, s.batch, s.chunks, s.parts, s.groups, s.chunk, s.chunk).sum(2)
    (_, next_sums), (_, before_sums) = by_heads
    before_sums[..., -1] += grad_sums
    total = before_sums.flip([-1]).cumsum(dim=-1).flip([-1])
    blocks = -(-s.chunk // _FEWEST_ROWS)
    grad_total = _floats(x, s.batch, s.heads, s.chunks, blocks, s.chunk).sum(dim=3)
    grad_total += next_sums + total
    grad_bias = None if dt_bias is None else torch.empty_like(dt_bias, dtype=torch.float32)
    grad_a = torch.empty_like(a, dtype=torch.float32)
    del steps, sums, products, states, final, grad_states, grad_steps, grad_products, grad
    return Gradients(grad_x, grad_dt, grad_a, grad_b, grad_c, grad_d, grad_z, grad_bias, gated)


def _per_step(s: Sizes, like: torch.Tensor) -> torch.Tensor:
    return torch.zeros(s.batch, s.heads, s.chunks, s.chunk, device=like.device)


def _of_shared(s: Sizes, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradient of what a group's heads share, and of the sums of time steps beside it."""
    of_sums = _per_step(s, like)
    return _floats(like, s.batch, s.rows, s.parts, s.groups, s.states).sum(2), of_sums


def _parts_of_d(s: Sizes, d: torch.Tensor) -> torch.Tensor:
    width = s.head if d.dim() == 2 else 1
    blocks = -(-s.chunk // _FEWEST_ROWS)
    return _floats(d, blocks, s.batch, s.chunks, s.heads, width)


def _summed(parts: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
    return parts.sum(dim=(0, 1, 2)).to(d.dtype).view(d.shape)


def _through_chunks(
    s: Sizes, x: torch.Tensor, states: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of states, from the last chunk to the first; states in the inputs' precision."""
    incoming = torch.empty_like(states)
    grad_states = torch.empty_like(incoming, dtype=x.dtype)
    converted = states if states.dtype == x.dtype else torch.empty_like(states, dtype=x.dtype)
    blocks = -(-s.head * s.states // _FEWEST_NUMBERS)
    grad_sums = _floats(x, s.batch, s.heads, s.chunks, blocks).sum(dim=-1)
    return grad_states, grad_sums, converted


def _of_inputs(
    s: Sizes, x: torch.Tensor, d: Maybe, into: Maybe
) -> tuple[torch.Tensor, torch.Tensor, Maybe]:
    parts = None if d is None else _parts_of_d(s, d)
    grad_x = torch.empty_like(x) if into is None else into
    grad_steps = _per_step(s, x)
    return grad_x, grad_steps, None if d is None or parts is None else _summed(parts, d)


class _ChunkScan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        dt: torch.Tensor,
        a: torch.Tensor,
        b: torch.Tensor,
        c: torch.Tensor,
        d: Maybe,
        z: Maybe,
        dt_bias: Maybe,
        chunk: int,
        with_state: bool,
    ) -> Any:
        done = forward(x, b, c, z, chunk)
        kept = done.out if done.before_gate is None else done.before_gate
        ctx.save_for_backward(kept, x, dt, done.time_sums[1], a, b, c, d, z, dt_bias)
        ctx.chunk = chunk
        return (done.out, done.final) if with_state else done.out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        _, x, dt, _, a, b, c, d, z, dt_bias = ctx.saved_tensors
        found = backward(grads[0], x, dt, a, b, c, d, z, dt_bias, ctx.chunk, {})
        return (*found[:8], None, None)


def mamba_chunk_scan_combined(
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    chunk_size: int,
    D: Maybe = None,
    z: Maybe = None,
    dt_bias: Maybe = None,
    initial_states: Maybe = None,
    seq_idx: Maybe = None,
    cu_seqlens: Maybe = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    return_varlen_states: bool = False,
    **kwargs: Any,
) -> Any:
    if return_varlen_states:
        raise NotImplementedError("peakline's stand-in of mamba_ssm has no return_varlen_states")
    return applied(_ChunkScan, x, dt, A, B, C, D, z, dt_bias, chunk_size, return_final_states)
