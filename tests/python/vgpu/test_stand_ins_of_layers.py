"""Stand-ins of transformer_engine, causal_conv1d and mamba_ssm: bytes by the packages' sources."""

import pytest
import torch
from stand_in_support import MIB, blocks, grown, half

import peakline

ROWS, WIDTH = 4096, 1024
ACTIVATION = ROWS * WIDTH * 2


def backward_of(out: torch.Tensor) -> tuple[int, int]:
    """What backward leaves, and its peak."""
    grad = torch.empty_like(out)
    kept, peak, _ = grown(lambda: out.backward(grad))
    return kept, peak


def test_transformer_engine_linear_keeps_its_input_and_shares_one_workspace() -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        import transformer_engine.pytorch as te  # type: ignore[import-not-found]

        first, second = (te.Linear(WIDTH, WIDTH, params_dtype=torch.bfloat16) for _ in range(2))
        x = half(ROWS, WIDTH)
        kept, _, out = grown(lambda: first(x))
        assert kept == ACTIVATION + blocks(32 * MIB + 1024)
        kept, _, out = grown(lambda: second(out))
        assert kept == ACTIVATION
        left, peak = backward_of(out)
        weights = blocks(WIDTH * WIDTH * 2, WIDTH * 2)
        assert left == 2 * weights  # x's gradient takes as much as the first result gives back
        assert peak == 2 * weights + ACTIVATION
    assert any("transformer_engine is not installed" in note for note in gpu.notes())
    assert gpu.confidence()["modelled"] > 0


def test_transformer_engine_in_fp8_keeps_transposed_bytes() -> None:
    with peakline.virtual_gpu("h200"):
        import transformer_engine.pytorch as te
        from transformer_engine.common import recipe  # type: ignore[import-not-found]

        layer = te.Linear(WIDTH, WIDTH, bias=False, params_dtype=torch.bfloat16)
        layer(half(ROWS, WIDTH))  # the workspace
        x = half(ROWS, WIDTH) * 1
        with te.fp8_autocast(enabled=True, fp8_recipe=recipe.DelayedScaling()):
            kept, peak, out = grown(lambda: layer(x))
        of_weight = 2 * WIDTH * WIDTH  # as it is and transposed
        scales = 2 * 512
        assert kept == ACTIVATION + ACTIVATION // 2 + of_weight + scales
        assert peak == kept + ACTIVATION // 2
        assert backward_of(out)[1] > 0


def test_transformer_engine_norms_keep_their_input_and_numbers_of_each_row() -> None:
    with peakline.virtual_gpu("h200"):
        import transformer_engine.pytorch as te

        x = half(ROWS, WIDTH)
        for norm, numbers in ((te.LayerNorm, 2), (te.RMSNorm, 1)):
            layer = norm(WIDTH, params_dtype=torch.bfloat16)
            kept, _, out = grown(lambda layer=layer: layer(x))
            assert kept == ACTIVATION + numbers * ROWS * 4
            _, peak = backward_of(out)
            sums = numbers * 132 * WIDTH * 4  # a part for each processor
            assert peak == ACTIVATION + blocks(*[WIDTH * 2] * numbers) + sums
            x.grad = None
            del out


def test_transformer_engine_norm_before_a_linear_keeps_its_result_as_well() -> None:
    with peakline.virtual_gpu("h200"):
        import transformer_engine.pytorch as te

        layer = te.LayerNormLinear(WIDTH, 2 * WIDTH, params_dtype=torch.bfloat16)
        layer(half(ROWS, WIDTH))
        x = half(ROWS, WIDTH)
        kept, _, out = grown(lambda: layer(x))
        assert kept == 2 * ACTIVATION + ACTIVATION + 2 * ROWS * 4
        backward_of(out)
        assert layer.layer_norm_bias.grad is not None


def test_transformer_engine_refuses_parts_of_other_ranks() -> None:
    with peakline.virtual_gpu("h200"):
        import transformer_engine.pytorch as te

        with pytest.raises(NotImplementedError, match="no tp_group"):
            te.Linear(8, 8, parallel_mode="column", tp_size=2)


def test_causal_convolutions_keep_their_input() -> None:
    with peakline.virtual_gpu("h200"):
        from causal_conv1d import causal_conv1d_fn  # type: ignore[import-not-found]

        x, weight, bias = half(4, WIDTH, 1024), half(WIDTH, 4), half(WIDTH)
        kept, _, out = grown(lambda: causal_conv1d_fn(x, weight, bias, activation="silu"))
        assert kept == ACTIVATION
        _, peak = backward_of(out)
        sums = blocks(WIDTH * 4 * 4, WIDTH * 4)
        assert peak == ACTIVATION + sums + blocks(WIDTH * 4 * 2, WIDTH * 2)
        with pytest.raises(RuntimeError, match="width between 2 and 4"):
            causal_conv1d_fn(x, half(WIDTH, 5))


def test_a_scan_keeps_its_result_before_the_gate_and_a_state_for_2048_rows() -> None:
    with peakline.virtual_gpu("h200"):
        from mamba_ssm import selective_scan_fn  # type: ignore[import-not-found]

        batch, channels, rows, states = 2, 512, 4096, 16
        u, delta, z = (half(batch, channels, rows) for _ in range(3))
        b, c = (half(batch, states, rows) for _ in range(2))
        a = torch.empty(channels, states, device="cuda", requires_grad=True)
        kept, _, out = grown(lambda: selective_scan_fn(u, delta, a, b, c, z=z))
        one = batch * channels * rows * 2
        state = batch * channels * 2 * 2 * states * 4
        assert kept == 2 * one + state
        left, peak = backward_of(out)
        small = blocks(channels * states * 4) + 2 * batch * states * rows * 2
        assert left == 3 * one + small - one - state  # what was kept is gone
        assert peak == 3 * one + small + 2 * batch * states * rows * 4  # B's and C's, in float32


def test_a_scans_backward_sums_in_single_precision_what_all_channels_share() -> None:
    with peakline.virtual_gpu("h200"):
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn

        u, delta, z = (half(2, 256, 1024) for _ in range(3))
        b, c = half(2, 16, 1024), half(2, 16, 1024)
        a = torch.empty(256, 16, device="cuda", requires_grad=True)
        d, bias = (torch.empty(256, device="cuda", requires_grad=True) for _ in range(2))
        out = selective_scan_fn(u, delta, a, b, c, d, z, bias, delta_softplus=True)
        grad = torch.empty_like(out)
        of_rows, of_states = u.numel() * 2, b.numel()
        summed = 2 * of_states * 4 + 2 * of_states * 2  # and then in half precision
        small = blocks(a.numel() * 4, 256 * 4, 256 * 4)
        inputs = (u, delta, a, b, c, d, z, bias)
        _, peak, grads = grown(lambda: torch.autograd.grad(out, inputs, grad))
        assert peak == 3 * of_rows + summed + small
        assert [found.shape for found in grads] == [item.shape for item in inputs]


def test_a_gated_norms_backward_has_a_part_of_the_weights_sum_for_each_program() -> None:
    with peakline.virtual_gpu("h200"):
        from mamba_ssm.ops.triton.layernorm_gated import RMSNorm

        norm = RMSNorm(WIDTH, device="cuda", dtype=torch.bfloat16)
        x, gate = half(ROWS, WIDTH), half(ROWS, WIDTH)
        out = norm(x, gate)
        grad = torch.empty_like(out)
        inputs = (x, gate, norm.weight)
        _, peak, _ = grown(lambda: torch.autograd.grad(out, inputs, grad))
        programs = 132  # with 4 warps or more for each row: one on each processor
        sums = programs * WIDTH * 4 + WIDTH * 4 + blocks(WIDTH * 2)
        assert peak == 2 * ACTIVATION + sums


def test_a_mamba_block_computes_its_convolution_again() -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        from mamba_ssm import Mamba

        block = Mamba(d_model=WIDTH, device="cuda", dtype=torch.bfloat16)
        x = half(4, 1024, WIDTH)
        block(x).sum().backward()  # cuBLAS's workspace, and gradients
        kept, peak, out = grown(lambda: block(x))
        inner, rank, states = 2 * WIDTH, WIDTH // 16, 16
        xz = ROWS * 2 * inner * 2
        scanned = ROWS * inner * 2
        projected = blocks(ROWS * (rank + 2 * states) * 2)
        b_and_c = 2 * ROWS * states * 2
        state = 4 * inner * 1 * 2 * states * 4
        parameters = blocks(*[inner * states * 4] * 2, inner * 4)  # exp, its negative, the bias
        assert kept == ACTIVATION + xz + scanned + projected + b_and_c + state + parameters
        assert peak > kept
        out.backward(torch.empty_like(out))
        assert block.x_proj.weight.grad is not None
    assert any("mamba_ssm is not installed" in note for note in gpu.notes())


def test_a_mamba2_block_keeps_its_first_product_and_its_scan() -> None:
    with peakline.virtual_gpu("h200"):
        from mamba_ssm.modules.mamba2 import Mamba2  # type: ignore[import-not-found]

        block = Mamba2(d_model=WIDTH, device="cuda", dtype=torch.bfloat16)
        x = half(4, 1024, WIDTH)
        block(x).sum().backward()
        kept, peak, out = grown(lambda: block(x))
        inner, states, heads = 2 * WIDTH, 128, 32
        packed = ROWS * (2 * inner + 2 * states + heads) * 2
        scanned = ROWS * inner * 2
        of_rows = ROWS * 4
        parameters = blocks(heads * 4, heads * 4)
        assert kept == ACTIVATION + packed + scanned + of_rows + parameters
        chunk_states = 4 * 4 * heads * 64 * states * 4
        assert peak > kept + chunk_states
        out.backward(torch.empty_like(out))
        assert block.norm.weight.grad is not None


def test_stand_ins_refuse_what_they_do_not_have() -> None:
    with peakline.virtual_gpu("h200"):
        import mamba_ssm

        with pytest.raises(NotImplementedError, match="no Mamba2 with d_ssm"):
            mamba_ssm.Mamba2(64, d_ssm=32, device="cuda")
        with pytest.raises(AttributeError, match="has no MambaLMHeadModel"):
            mamba_ssm.MambaLMHeadModel  # noqa: B018
