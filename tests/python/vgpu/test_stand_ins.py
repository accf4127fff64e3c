"""Stand-ins of flash_attn, xformers and apex: bytes by the packages' sources."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from stand_in_support import KIB, MIB, blocks, grown, half
from torch import nn

import peakline


def test_flash_attention_keeps_its_result_and_one_number_a_row() -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        from flash_attn import flash_attn_func  # type: ignore[import-not-found]

        q, k, v = half(2, 1024, 16, 64), half(2, 1024, 4, 64), half(2, 1024, 4, 64)
        kept, _, out = grown(lambda: flash_attn_func(q, k, v, causal=True))
        assert out.shape == q.shape
        assert kept == blocks(q.numel() * 2, 2 * 16 * 1024 * 4, 16)
        grad = torch.empty_like(out)
        gradients = q.numel() * 2 + 2 * k.numel() * 2
        expanded = 2 * q.numel() * 2  # keys' and values' for each head of the queries
        sums = 2 * 16 * 1024 * 4 + q.numel() * 4
        _, peak, _ = grown(lambda: torch.autograd.grad(out, (q, k, v), grad))
        assert peak == gradients + expanded + sums
    assert any("flash_attn is not installed" in note for note in gpu.notes())
    assert gpu.confidence()["modelled"] > 0


def test_packed_sequences_have_packed_gradients() -> None:
    with peakline.virtual_gpu("h200"):
        from flash_attn import flash_attn_varlen_qkvpacked_func

        qkv = half(2048, 3, 8, 64)
        begins = torch.tensor([0, 1024, 2048], dtype=torch.int32, device="cuda")
        out = flash_attn_varlen_qkvpacked_func(qkv, begins, 1024)
        grad = torch.empty_like(out)
        rows = 2048 + 128 * 2
        _, peak, _ = grown(lambda: torch.autograd.grad(out, qkv, grad))
        assert peak == blocks(qkv.numel() * 2, 8 * rows * 4, rows * 8 * 64 * 4)


def test_one_long_row_of_queries_is_computed_in_parts() -> None:
    with peakline.virtual_gpu("h200"):
        from flash_attn import flash_attn_func

        q, k = half(1, 1, 8, 64), half(1, 65536, 8, 64)
        _, peak, _ = grown(lambda: flash_attn_func(q.detach(), k.detach(), k.detach()))
        assert peak > blocks(q.numel() * 2, 8 * 4, 16) + 8 * 64 * 4


def test_flash_attention_refuses_what_the_real_one_refuses() -> None:
    with peakline.virtual_gpu("h200"):
        from flash_attn import flash_attn_func

        x = torch.empty(1, 8, 2, 64, device="cuda")
        with pytest.raises(RuntimeError, match="fp16 and bf16"):
            flash_attn_func(x, x, x)


def test_results_that_the_stand_in_does_not_have_are_refused() -> None:
    with peakline.virtual_gpu("h200"):
        from flash_attn import flash_attn_func

        x = half(1, 8, 2, 64)
        with pytest.raises(NotImplementedError, match="no return_attn_probs"):
            flash_attn_func(x, x, x, return_attn_probs=True)


def test_inner_functions_can_be_imported_and_not_called() -> None:
    """diffusers does, and takes another attention when it cannot."""
    with peakline.virtual_gpu("h200"):
        from flash_attn.flash_attn_interface import (  # type: ignore[import-not-found]
            _wrapped_flash_attn_backward,
        )

        with pytest.raises(RuntimeError, match="stand-in of flash_attn has no _wrapped"):
            _wrapped_flash_attn_backward()


def test_hugging_face_finds_what_it_asks_for() -> None:
    import importlib.metadata
    import importlib.util

    with peakline.virtual_gpu("h200"):
        assert importlib.util.find_spec("flash_attn") is not None
        assert importlib.metadata.version("flash_attn") == "2.8.3"
        from flash_attn.bert_padding import (  # type: ignore[import-not-found]
            pad_input,
            unpad_input,
        )

        mask = torch.ones(2, 16, dtype=torch.int32, device="cuda")
        rows, places, _, longest, _ = unpad_input(half(2, 16, 8), mask)
        assert rows.shape == (32, 8)
        assert longest == 16
        assert pad_input(rows, places, 2, 16).shape == (2, 16, 8)


def test_apex_adam_holds_two_floats_for_each_parameter() -> None:
    with peakline.virtual_gpu("h200"):
        from apex.optimizers import FusedAdam  # type: ignore[import-not-found]

        net = nn.Linear(1024, 1024, bias=False, device="cuda", dtype=torch.bfloat16)
        optimizer = FusedAdam(net.parameters(), lr=1e-3, capturable=True, master_weights=True)
        net(torch.empty(8, 1024, device="cuda", dtype=torch.bfloat16)).sum().backward()
        kept, _, _ = grown(optimizer.step)
        assert kept == 2 * 4 * MIB
        assert {name for state in optimizer.state.values() for name in state} == {
            "exp_avg",
            "exp_avg_sq",
        }


def test_apex_norms_keep_their_input_and_two_numbers_a_row() -> None:
    with peakline.virtual_gpu("h200"):
        from apex.normalization import (  # type: ignore[import-not-found]
            FusedLayerNorm,
            FusedRMSNorm,
        )

        x = half(1024, 1024)
        for norm, numbers in ((FusedLayerNorm(1024), 2), (FusedRMSNorm(1024), 1)):
            norm = norm.to("cuda", torch.bfloat16)
            kept, _, out = grown(lambda norm=norm: norm(x))
            assert kept == 2 * MIB + numbers * 4 * KIB
            out.sum().backward()
            assert norm.weight.grad is not None
            del out


def test_apex_norms_sum_their_weights_gradients_in_parts() -> None:
    with peakline.virtual_gpu("h200"):
        from apex.normalization import FusedLayerNorm

        norm = FusedLayerNorm(1024).to("cuda", torch.bfloat16)
        x = half(1024, 1024)
        out = norm(x)
        grad = torch.empty_like(out)
        inputs = (x, norm.weight, norm.bias)
        _, peak, _ = grown(lambda: torch.autograd.grad(out, inputs, grad))
        parts = 2 * 16 * 1024 * 4  # of weight and bias
        assert peak == 2 * MIB + 2 * 2 * KIB + parts


def test_apex_lamb_holds_its_state_in_the_parameters_type() -> None:
    with peakline.virtual_gpu("h200"):
        from apex.optimizers import FusedAdam, FusedLAMB

        net = nn.Linear(1024, 1024, bias=False, device="cuda", dtype=torch.float16)
        optimizer = FusedLAMB(net.parameters())
        net(torch.empty(8, 1024, device="cuda", dtype=torch.float16)).sum().backward()
        kept, _, _ = grown(optimizer.step)
        assert kept == 2 * 2 * MIB
        bfloat = nn.Parameter(torch.empty(8, device="cuda", dtype=torch.bfloat16))
        bfloat.grad = torch.empty_like(bfloat)
        with pytest.raises(RuntimeError, match="only support fp16 and fp32"):
            FusedLAMB([bfloat]).step()
        with pytest.raises(RuntimeError, match="only supported with the capturable version"):
            FusedAdam(net.parameters(), master_weights=True)


def test_apex_norms_that_save_memory_keep_their_result_and_one_number_a_row() -> None:
    with peakline.virtual_gpu("h200"):
        from apex.normalization import FusedLayerNorm, MixedFusedLayerNorm

        x = half(1024, 1024)
        norm = FusedLayerNorm(1024, memory_efficient=True).to("cuda", torch.bfloat16)
        kept, _, out = grown(lambda: norm(x))
        assert kept == 2 * MIB + 4 * KIB
        out.sum().backward()
        assert MixedFusedLayerNorm(1024).cuda()(x).dtype == torch.float32


def test_heads_above_128_numbers_are_rounded_up_to_64() -> None:
    with peakline.virtual_gpu("h200"):
        from flash_attn import flash_attn_func

        q = half(2, 1024, 16, 160)
        out = flash_attn_func(q, q, q)
        _, peak, _ = grown(lambda: torch.autograd.grad(out, q, torch.empty_like(out)))
        summed = 2 * 1024 * 16 * 192 * 4
        assert peak > summed + 3 * q.numel() * 2


def test_stand_ins_can_be_turned_off_and_end_with_the_gpu() -> None:
    with peakline.virtual_gpu("h200", stand_ins=False), pytest.raises(ImportError):
        import flash_attn
    with peakline.virtual_gpu("h200"):
        import flash_attn.layers.rotary  # type: ignore[import-not-found]  # noqa: F401
    assert not [name for name in sys.modules if name.startswith("flash_attn")]


@pytest.mark.parametrize("target", [False, True], ids=["site-packages", "pip's --target"])
def test_a_library_that_prefers_apex_where_it_is_installed_goes_without(
    target: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path if target else tmp_path / "site-packages"
    (folder / "somebody-1.0.dist-info").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(folder))
    with peakline.virtual_gpu("h200"):
        code = compile(
            "try:\n    import apex\nexcept ImportError:\n    apex = None\n",
            str(folder / "somebody" / "model.py"),
            "exec",
        )
        names: dict[str, Any] = {}
        exec(code, names)
        assert names["apex"] is None
