"""All that stand-ins allocate, mostly in backward, written out from the packages' sources.

A sum of every allocation notices each of them, also where it does not decide the peak.
"""

import functools

import torch
from stand_in_support import asked_for, half

import peakline


def floats(*counts: int) -> int:
    return 4 * sum(counts)


def halves(*counts: int) -> int:
    return 2 * sum(counts)


def single(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="cuda", requires_grad=True)


def of_second_backward(out: torch.Tensor, inputs: tuple[torch.Tensor, ...]) -> int:
    """The first one also makes cuBLAS's workspace."""
    grad = torch.empty_like(out)
    torch.autograd.grad(out, inputs, grad, retain_graph=True)
    return asked_for(lambda: torch.autograd.grad(out, inputs, grad))


BATCH, ROWS, HEADS, HEAD, GROUPS, STATES, CHUNK = 2, 1000, 8, 64, 2, 32, 256
CHUNKS = 4  # the last one is not full
PARTS = 4  # of each group's four heads: more than 64 programs would not fill 132 processors
PER_STEP = BATCH * HEADS * CHUNKS * CHUNK
OF_CHUNKS = BATCH * CHUNKS * HEADS * HEAD * STATES
PRODUCTS = BATCH * CHUNKS * GROUPS * CHUNK * CHUNK
SHARED = BATCH * ROWS * GROUPS * STATES


def scan_backward(*, gated: bool) -> int:
    """All of a chunked scan's backward but the gradients of its inputs."""
    d_in_parts = floats(CHUNK // 32 * BATCH * CHUNKS * HEADS) + floats(HEADS)
    return sum(
        (
            halves(BATCH * ROWS * HEADS),  # time steps, copied
            floats(PER_STEP, PER_STEP, PRODUCTS),
            floats(OF_CHUNKS, OF_CHUNKS, BATCH * HEADS * HEAD * STATES),  # states, and the last
            (d_in_parts + halves(BATCH * ROWS * HEADS * HEAD)) if gated else 0,
            floats(OF_CHUNKS) + halves(OF_CHUNKS, OF_CHUNKS),  # states' gradients, both in half
            floats(BATCH * HEADS * CHUNKS * HEAD * STATES // 64, BATCH * HEADS * CHUNKS),
            d_in_parts + floats(PER_STEP),
            2 * floats(PER_STEP, PARTS * SHARED, SHARED),  # of B and of C
            floats(PARTS * PRODUCTS, PRODUCTS),
            3 * floats(PER_STEP),  # sums from behind: turned, summed, turned back
            floats(PER_STEP * CHUNK // 32, PER_STEP, PER_STEP),
            floats(HEADS, HEADS),  # of the time steps' bias and of A
        )
    )


def scan_forward() -> int:
    """All of a chunked scan's forward but its result."""
    states = floats(OF_CHUNKS) + halves(OF_CHUNKS) + floats(BATCH * HEADS * HEAD * STATES)
    return floats(PER_STEP, PER_STEP, PRODUCTS) + states


def test_a_scan_in_chunks() -> None:
    with peakline.virtual_gpu("h200"):
        from mamba_ssm.ops.triton.ssd_combined import (  # type: ignore[import-not-found]
            mamba_chunk_scan_combined,
        )

        x, z = (half(BATCH, ROWS, HEADS, HEAD) for _ in range(2))
        b, c = (half(BATCH, ROWS, GROUPS, STATES) for _ in range(2))
        dt, a, d, bias = half(BATCH, ROWS, HEADS), single(HEADS), single(HEADS), single(HEADS)
        gradients = halves(x.numel(), dt.numel(), b.numel(), c.numel())
        for gate in (None, z):
            call = functools.partial(
                mamba_chunk_scan_combined, x, dt, a, b, c, CHUNK, D=d, z=gate, dt_bias=bias
            )
            results = 1 if gate is None else 2  # before the gate as well
            assert asked_for(call) == scan_forward() + results * halves(x.numel())
            out = call()
            grad = torch.empty_like(out)
            inputs = (x, dt, a, b, c, d, bias) + (() if gate is None else (gate,))
            total = asked_for(functools.partial(torch.autograd.grad, out, inputs, grad))
            of_gate = 0 if gate is None else halves(z.numel())
            assert total == gradients + of_gate + scan_backward(gated=gate is not None)


def test_a_mamba2_block_behind_its_first_product() -> None:
    width = HEADS * HEAD
    convolved = width + 2 * GROUPS * STATES
    with peakline.virtual_gpu("h200"):
        from mamba_ssm.ops.triton.ssd_combined import mamba_split_conv1d_scan_combined

        packed = half(BATCH, ROWS, width + convolved + HEADS)
        weight, bias = half(convolved, 4), half(convolved)
        a, d, dt_bias = single(HEADS), single(HEADS), single(HEADS)
        norm, last = half(width), half(256, width)
        inputs = (packed, weight, bias, dt_bias, a, d, norm, last)
        out = mamba_split_conv1d_scan_combined(
            *(packed, weight, bias, dt_bias, a, d, CHUNK),
            **{"rmsnorm_weight": norm, "outproj_weight": last, "headdim": HEAD, "ngroups": GROUPS},
        )
        total = of_second_backward(out, inputs)
    tokens = BATCH * ROWS
    processors = 132 * 4 // GROUPS  # programs of one warp: four on each processor
    assert total == sum(
        (
            halves(tokens * width),  # the norm's result again
            halves(tokens * convolved),  # the convolution's
            halves(packed.numel(), tokens * convolved),  # gradients of both
            halves(tokens * width),  # through the last product
            halves(tokens * width) + floats(processors * width, width) + halves(width),  # the norm
            scan_backward(gated=False),
            halves(last.numel()),
            floats(weight.numel(), convolved) + halves(weight.numel(), convolved),
        )
    )


def test_a_mamba_block_behind_its_first_product() -> None:
    batch, rows, inner, rank, states, width = 2, 512, 256, 16, 8, 128
    tokens = batch * rows
    with peakline.virtual_gpu("h200"):
        from mamba_ssm import mamba_inner_fn  # type: ignore[import-not-found]

        xz = half(batch, 2 * inner, rows)
        conv, conv_bias = half(inner, 1, 4), half(inner)
        x_proj, dt_proj, last = (
            half(rank + 2 * states, inner),
            half(inner, rank),
            half(width, inner),
        )
        a, d, bias = single(inner, states), single(inner), single(inner)
        out = mamba_inner_fn(
            xz, conv, conv_bias, x_proj, dt_proj, last, None, a, D=d, delta_bias=bias
        )
        total = of_second_backward(out, (xz, conv, conv_bias, x_proj, dt_proj, last, a, d, bias))
    one = halves(tokens * inner)
    assert total == sum(
        (
            2 * one,  # convolution and time steps, again
            halves(xz.numel()),
            one,  # through the last product
            3 * one,  # the scan's: result before the last product, inputs, time steps
            floats(a.numel(), tokens * states, tokens * states, inner, inner),
            halves(tokens * states, tokens * states),
            one + halves(last.numel()),  # the result with its rows next to each other; its product
            halves(tokens * (rank + 2 * states)),
            2 * halves(tokens * states),  # B's and C's, with their rows next to each other
            one + halves(dt_proj.numel()) + halves(tokens * rank),
            one + halves(x_proj.numel()),
            floats(conv.numel(), inner) + halves(conv.numel(), inner),
        )
    )


def test_a_mamba2_block_without_a_norm_computes_its_gated_result_again() -> None:
    width = HEADS * HEAD
    convolved = width + 2 * GROUPS * STATES
    with peakline.virtual_gpu("h200"):
        from mamba_ssm.ops.triton.ssd_combined import mamba_split_conv1d_scan_combined

        packed = half(BATCH, ROWS, width + convolved + HEADS)
        weight, last = half(convolved, 4), half(256, width)
        a, d, dt_bias = single(HEADS), single(HEADS), single(HEADS)
        out = mamba_split_conv1d_scan_combined(
            *(packed, weight, None, dt_bias, a, d, CHUNK),
            **{"outproj_weight": last, "headdim": HEAD, "ngroups": GROUPS},
        )
        total = of_second_backward(out, (packed, weight, dt_bias, a, d, last))
    tokens = BATCH * ROWS
    assert total == sum(
        (
            halves(
                tokens * width
            ),  # a place for columns beside the scan's, of which there are none
            halves(tokens * convolved),
            halves(packed.numel(), tokens * convolved),
            halves(tokens * width),
            scan_backward(gated=True),
            halves(tokens * width),  # the gated result
            halves(last.numel()),
            floats(weight.numel()) + halves(weight.numel()),
        )
    )


def test_a_gated_norm_and_its_row_numbers() -> None:
    with peakline.virtual_gpu("h200"):
        from mamba_ssm.ops.triton.layernorm_gated import (  # type: ignore[import-not-found]
            RMSNorm,
        )

        norm = RMSNorm(1024, group_size=512, device="cuda", dtype=torch.bfloat16)
        x = half(64, 1024)
        assert asked_for(lambda: norm(x, x)) == halves(x.numel()) + floats(2 * 64)


def test_a_selective_scan_forward_and_backward() -> None:
    batch, channels, rows, states = 2, 64, 3000, 8
    with peakline.virtual_gpu("h200"):
        from mamba_ssm import selective_scan_fn

        u, delta, z = (half(batch, channels, rows) for _ in range(3))
        b, c = (half(batch, states, rows) for _ in range(2))
        a = single(channels, states)
        call = functools.partial(selective_scan_fn, u, delta, a, b, c, z=z)
        one, of_two_parts = halves(u.numel()), floats(batch * channels * 2 * 2 * states)
        assert asked_for(call) == 2 * one + of_two_parts
        shared = batch * states * rows
        total = of_second_backward(call(), (u, delta, a, b, c, z))
        assert total == 3 * one + floats(a.numel(), shared, shared) + halves(shared, shared)


def test_a_causal_convolution_with_states_and_deterministic_sums() -> None:
    batch, channels, rows, width = 2, 64, 300, 4
    with peakline.virtual_gpu("h200"):
        from causal_conv1d import (  # type: ignore[import-not-found]
            causal_conv1d_fn,
            causal_conv1d_update,
        )
        from causal_conv1d.causal_conv1d_varlen import (  # type: ignore[import-not-found]
            causal_conv1d_varlen_states,
        )

        x = half(batch, rows, channels).transpose(1, 2)
        weight, bias = half(channels, width), half(channels)
        first = half(batch, width - 1, channels).transpose(1, 2)
        states = halves(first.numel())
        call = functools.partial(
            causal_conv1d_fn, x, weight, bias, initial_states=first, return_final_states=True
        )
        assert asked_for(call) == halves(x.numel()) + states
        out, _ = call()
        sums = weight.numel() + channels
        inputs = (x, weight, bias, first)
        plain = halves(x.numel(), sums) + floats(sums)
        plain += 2 * states  # the first states' gradient, and a gradient of zeros for the last ones
        assert of_second_backward(out, inputs) == plain
        parts = batch * 3  # of 128 rows each
        torch.use_deterministic_algorithms(True)
        try:
            out, _ = call()
            deterministic = of_second_backward(out, inputs)
        finally:
            torch.use_deterministic_algorithms(False)
        assert deterministic == plain + floats(parts * sums) + floats(sums)
        row, state = half(batch, channels), half(batch, channels, width)
        assert asked_for(lambda: causal_conv1d_update(row, state, weight)) == halves(row.numel())
        begins = torch.tensor([0, 100, 300], dtype=torch.int32, device="cuda")
        packed = half(300, channels)
        last = asked_for(lambda: causal_conv1d_varlen_states(packed, begins, 3))
        assert last == halves(2 * 3 * channels)


def test_rows_are_gathered_and_put_back_without_sorting() -> None:
    with peakline.virtual_gpu("h200"):
        from flash_attn.bert_padding import (  # type: ignore[import-not-found]
            index_first_axis,
            pad_input,
        )

        rows, few = half(4096, 8, 64), half(3000, 8, 64)
        indices = torch.arange(3000, device="cuda")
        packed, padded = halves(few.numel()), halves(rows.numel())
        assert asked_for(lambda: index_first_axis(rows, indices)) == packed
        assert asked_for(lambda: pad_input(few, indices, 4, 1024)) == padded
        for out, source, size in (
            (index_first_axis(rows, indices), rows, padded),
            (pad_input(few, indices, 4, 1024), few, packed),
        ):
            grad = torch.empty_like(out)
            backward = functools.partial(torch.autograd.grad, out, source, grad)
            assert asked_for(backward) == size
