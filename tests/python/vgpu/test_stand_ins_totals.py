"""All that stand-ins of attention, norms and linear layers ask for, forward and backward.

Written out from the packages' sources. A sum of every allocation notices each of them, also where
it decides neither the peak nor what is kept.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from stand_in_support import asked_for, half
from torch import nn

import peakline

PROCESSORS = 132  # of an H200
BATCH, ROWS, HEADS, FEW, HEAD = 2, 1000, 8, 2, 64
ROUNDED = 1024  # rows in steps of 128
NUMBER = 4  # bytes of a float
RESULT = 2 * BATCH * ROWS * HEADS * HEAD
FEW_KEYS = 2 * BATCH * ROWS * FEW * HEAD
RANDOM_STATE = 16


def of_backward(out: torch.Tensor, *inputs: torch.Tensor) -> int:
    grad = torch.empty_like(out)
    return asked_for(lambda: torch.autograd.grad(out, inputs, grad))


def sums(rows: int, parts: int = 1, head: int = HEAD) -> int:
    """One number for each row, and the queries' gradient in single precision."""
    return NUMBER * HEADS * rows * (1 + parts * head)


@pytest.mark.parametrize("deterministic", [False, True])
def test_attention_of_a_batch(deterministic: bool) -> None:
    with peakline.virtual_gpu("h200"):
        from flash_attn import flash_attn_func  # type: ignore[import-not-found]

        q, k, v = half(BATCH, ROWS, HEADS, HEAD), *(half(BATCH, ROWS, FEW, HEAD) for _ in range(2))
        call = functools.partial(flash_attn_func, q, k, v, deterministic=deterministic)
        assert asked_for(call) == RESULT + NUMBER * BATCH * HEADS * ROWS + RANDOM_STATE
        parts = -(-PROCESSORS // (BATCH * HEADS)) if deterministic else 1
        expanded = 2 * RESULT  # of keys and values, for each head of the queries
        gradients = RESULT + 2 * FEW_KEYS
        wanted = gradients + expanded + sums(BATCH * ROUNDED, parts)
        assert of_backward(call(), q, k, v) == wanted


@pytest.mark.parametrize("deterministic", [False, True])
def test_attention_of_packed_sequences(deterministic: bool) -> None:
    rows, sequences = 3000, 3
    with peakline.virtual_gpu("h200"):
        from flash_attn import flash_attn_varlen_func

        q, k, v = (half(rows, HEADS, HEAD) for _ in range(3))
        begins = torch.tensor([0, 1000, 2000, 3000], dtype=torch.int32, device="cuda")
        sizes = (begins, begins, 1000, 1000)
        call = functools.partial(flash_attn_varlen_func, q, k, v, *sizes, 0.0, None, True)
        call = functools.partial(call, deterministic=deterministic)
        one = 2 * rows * HEADS * HEAD
        assert asked_for(call) == one + NUMBER * HEADS * rows + RANDOM_STATE
        parts = -(-PROCESSORS // (sequences * HEADS)) if deterministic else 1
        # Room for each sequence to begin at a step of its own.
        wanted = 3 * one + sums(rows + 128 * sequences, parts)
        assert of_backward(call(), q, k, v) == wanted


def test_keys_and_values_in_one_tensor_have_one_gradient() -> None:
    with peakline.virtual_gpu("h200"):
        from flash_attn import flash_attn_kvpacked_func

        q, kv = half(BATCH, ROWS, HEADS, HEAD), half(BATCH, ROWS, 2, HEADS, HEAD)
        out = flash_attn_kvpacked_func(q, kv)
        assert of_backward(out, q, kv) == 3 * RESULT + sums(BATCH * ROUNDED)


def test_heads_of_odd_sizes_are_padded() -> None:
    shape, padded = (BATCH, ROWS, HEADS, 60), RESULT  # from 60 numbers to 64
    with peakline.virtual_gpu("h200"):
        from flash_attn import flash_attn_func, flash_attn_kvpacked_func

        q, k, v = (half(*shape) for _ in range(3))
        kv = half(BATCH, ROWS, 2, HEADS, 60)
        of_result = padded + NUMBER * BATCH * HEADS * ROWS + RANDOM_STATE
        assert asked_for(lambda: flash_attn_func(q, k, v)) == 3 * padded + of_result
        assert asked_for(lambda: flash_attn_kvpacked_func(q, kv)) == 3 * padded + of_result


def test_few_rows_of_queries_have_parts_of_their_result() -> None:
    # 8 heads in 33 parts are 264 pieces of work: two for each processor. 29 parts are the fewest
    # that fill 85% of them.
    keys, parts = 65536, 29
    with peakline.virtual_gpu("h200"):
        from flash_attn import flash_attn_func

        q, k = half(1, 1, 8, 64), half(1, keys, 8, 64)
        one_result = 2 * 8 * 64 + NUMBER * 8 + RANDOM_STATE
        of_parts = NUMBER * parts * 8 * (1 + 64)
        assert asked_for(lambda: flash_attn_func(q, k, k)) == one_result + of_parts


def test_a_gradient_whose_rows_are_apart_is_copied() -> None:
    with peakline.virtual_gpu("h200"):
        from flash_attn import flash_attn_func

        q = half(BATCH, ROWS, HEADS, HEAD)
        out = flash_attn_func(q, q.detach(), q.detach())
        grad = torch.empty(BATCH, HEADS, ROWS, HEAD, device="cuda", dtype=q.dtype).transpose(1, 2)
        total = asked_for(lambda: torch.autograd.grad(out, q, grad))
        assert total == 4 * RESULT + sums(BATCH * ROUNDED)


def test_a_rotation_in_place_needs_nothing_and_another_one_its_result() -> None:
    with peakline.virtual_gpu("h200"):
        from flash_attn.layers.rotary import (  # type: ignore[import-not-found]
            apply_rotary_emb,
        )

        x = half(BATCH, ROWS, HEADS, HEAD)
        angles = torch.empty(ROWS, HEAD // 2, device="cuda", dtype=torch.bfloat16)
        apart = functools.partial(apply_rotary_emb, x, angles, angles)
        assert asked_for(apart) == RESULT
        assert of_backward(apart(), x) == RESULT
        inside = x * 1
        assert asked_for(lambda: apply_rotary_emb(inside, angles, angles, inplace=True)) == 0
        middle = x.detach().requires_grad_()
        scaled = middle.view_as(middle)
        out = apply_rotary_emb(scaled.clone(), angles, angles, inplace=True)
        assert of_backward(out, middle) == 0


def norm_of_apex(name: str, **kwargs: Any) -> nn.Module:
    import apex.normalization  # type: ignore[import-not-found]

    norm: nn.Module = getattr(apex.normalization, name)(WIDTH, **kwargs)
    return norm.cuda()


TOKENS, WIDTH = 512, 768
ACTIVATION = 2 * TOKENS * WIDTH


@pytest.mark.parametrize(("name", "numbers"), [("FusedLayerNorm", 2), ("FusedRMSNorm", 1)])
@pytest.mark.parametrize("mixed", [False, True])
def test_norms_of_apex(name: str, numbers: int, mixed: bool) -> None:
    with peakline.virtual_gpu("h200"):
        norm = norm_of_apex("Mixed" + name if mixed else name)
        norm = norm if mixed else norm.bfloat16()
        of_weight, of_result = (4, 4) if mixed else (2, 2)  # bytes of an element
        x = half(TOKENS, WIDTH)
        call = functools.partial(norm, x)
        rows = numbers * NUMBER * TOKENS
        assert asked_for(call) == of_result * TOKENS * WIDTH + rows
        parameters = tuple(norm.parameters())
        parts = 16 * NUMBER * WIDTH  # of one parameter's gradient
        wanted = ACTIVATION + len(parameters) * (of_weight * WIDTH + parts)
        assert len(parameters) == numbers
        assert of_backward(call(), x, *parameters) == wanted


def test_apexs_norms_copy_what_is_not_contiguous() -> None:
    with peakline.virtual_gpu("h200"):
        norm = norm_of_apex("FusedRMSNorm").bfloat16()
        x = half(WIDTH, TOKENS).t()
        out = norm(x)
        assert asked_for(lambda: norm(x)) == 2 * ACTIVATION + NUMBER * TOKENS
        grad = torch.empty(WIDTH, TOKENS, device="cuda", dtype=x.dtype).t()
        parts = 16 * NUMBER * WIDTH + 2 * WIDTH
        total = asked_for(lambda: torch.autograd.grad(out, (x, norm.weight), grad))
        assert total == 2 * ACTIVATION + parts


def asked_so_far() -> int:
    return int(torch.cuda.memory_stats()["requested_bytes.all.allocated"])


def test_optimizers_of_apex_ask_for_their_state_alone() -> None:
    with peakline.virtual_gpu("h200"):
        from apex.optimizers import (  # type: ignore[import-not-found]
            FusedAdam,
            FusedLAMB,
            FusedSGD,
        )

        def parameters() -> list[nn.Parameter]:
            made = [nn.Parameter(torch.empty(1000, device="cuda", dtype=torch.float16))]
            made[0].grad = torch.empty_like(made[0])
            return made

        flag = NUMBER
        for kind, kwargs, masters, state in (
            (FusedAdam, {"capturable": True, "master_weights": True}, 2 + 4, 4 + 2 + 4 + 2),
            (FusedAdam, {}, 0, 4 + 2 + 4 + 2),  # halves are made, and copied to floats
            (FusedLAMB, {}, 0, 2 + 2),
            (FusedSGD, {"momentum": 0.9}, 0, 2),
            (FusedSGD, {}, 0, 0),
        ):
            before = asked_so_far()
            optimizer = kind(parameters(), **kwargs)
            of_parameters = 2 * 2 * 1000  # and their gradients
            assert asked_so_far() - before == of_parameters + flag + 1000 * masters
            assert asked_for(optimizer.step) == state * 1000
            assert asked_for(optimizer.step) == 0


def layer_of_te(name: str, *sizes: int, **kwargs: Any) -> nn.Module:
    import transformer_engine.pytorch as te  # type: ignore[import-not-found]

    layer: nn.Module = getattr(te, name)(*sizes, params_dtype=torch.bfloat16, **kwargs)
    return layer


OUTER = 1536  # features of a result
WEIGHT = 2 * OUTER * WIDTH


@pytest.mark.parametrize("bias", [False, True])
def test_a_linear_layer_of_transformer_engine(bias: bool) -> None:
    with peakline.virtual_gpu("h200"):
        layer = layer_of_te("Linear", WIDTH, OUTER, bias=bias)
        x = half(TOKENS, WIDTH)
        out = layer(x)  # the workspace
        assert asked_for(lambda: layer(x)) == 2 * TOKENS * OUTER
        inputs = (x, *layer.parameters())
        assert of_backward(out, *inputs) == ACTIVATION + WEIGHT + 2 * OUTER * bias
        apart = layer(x)
        grad = torch.empty(OUTER, TOKENS, device="cuda", dtype=x.dtype).t()
        total = asked_for(lambda: torch.autograd.grad(apart, x, grad))
        assert total == 2 * TOKENS * OUTER + ACTIVATION + WEIGHT + 2 * OUTER * bias


def test_a_linear_layer_of_transformer_engine_under_autocast() -> None:
    with peakline.virtual_gpu("h200"):
        import transformer_engine.pytorch as te

        layer = te.Linear(WIDTH, OUTER, params_dtype=torch.float32)
        x = torch.empty(TOKENS, WIDTH, device="cuda", requires_grad=True)
        with torch.autocast("cuda", torch.bfloat16):
            out = layer(x)
            copies = ACTIVATION + WEIGHT + 2 * OUTER
            assert asked_for(lambda: layer(x)) == copies + 2 * TOKENS * OUTER
        # In half precision first, and then in the parameters' and the input's own.
        assert of_backward(out, x, layer.weight, layer.bias) == 3 * copies


@pytest.mark.parametrize("bias", [False, True])
def test_a_linear_layer_of_transformer_engine_in_fp8(bias: bool) -> None:
    with peakline.virtual_gpu("h200"):
        import transformer_engine.pytorch as te

        layer = layer_of_te("Linear", WIDTH, OUTER, bias=bias)
        x = half(TOKENS, WIDTH)
        with te.fp8_autocast(enabled=True):
            layer(x)
            scale = NUMBER
            bytes_twice = 2 * (TOKENS * WIDTH + scale // 2) + 2 * (OUTER * WIDTH + scale // 2)
            assert asked_for(lambda: layer(x)) == bytes_twice + 2 * TOKENS * OUTER
            out = layer(x)
        of_grad = 2 * TOKENS * OUTER + scale
        wanted = of_grad + ACTIVATION + WEIGHT + 2 * OUTER * bias
        assert of_backward(out, x, *layer.parameters()) == wanted


@pytest.mark.parametrize(("name", "numbers"), [("LayerNorm", 2), ("RMSNorm", 1)])
def test_norms_of_transformer_engine(name: str, numbers: int) -> None:
    with peakline.virtual_gpu("h200"):
        norm = layer_of_te(name, WIDTH)
        x = half(TOKENS, WIDTH)
        assert asked_for(lambda: norm(x)) == ACTIVATION + numbers * NUMBER * TOKENS
        of_weights = numbers * (2 * WIDTH + PROCESSORS * NUMBER * WIDTH)
        assert of_backward(norm(x), x, *norm.parameters()) == ACTIVATION + of_weights
        few = half(16, WIDTH)  # fewer rows than processors
        of_weights = numbers * (2 * WIDTH + 16 * NUMBER * WIDTH)
        assert of_backward(norm(few), few, *norm.parameters()) == 2 * 16 * WIDTH + of_weights


def test_a_norm_of_transformer_engine_works_in_its_weights_type() -> None:
    with peakline.virtual_gpu("h200"):
        norm = layer_of_te("RMSNorm", WIDTH)
        x = torch.empty(TOKENS, WIDTH, device="cuda", requires_grad=True)
        assert asked_for(lambda: norm(x)) == 2 * ACTIVATION + NUMBER * TOKENS


@pytest.mark.parametrize(("normalization", "numbers"), [("LayerNorm", 2), ("RMSNorm", 1)])
def test_a_norm_before_a_linear_layer(normalization: str, numbers: int) -> None:
    with peakline.virtual_gpu("h200"):
        layer = layer_of_te("LayerNormLinear", WIDTH, OUTER, normalization=normalization)
        x = half(TOKENS, WIDTH)
        out = layer(x)
        rows = numbers * NUMBER * TOKENS
        assert asked_for(lambda: layer(x)) == ACTIVATION + rows + 2 * TOKENS * OUTER
        of_norm = ACTIVATION + numbers * (2 * WIDTH + PROCESSORS * NUMBER * WIDTH)
        wanted = ACTIVATION + WEIGHT + 2 * OUTER + of_norm  # through the product, then the norm
        assert of_backward(out, x, *layer.parameters()) == wanted


def test_attention_of_xformers() -> None:
    with peakline.virtual_gpu("h200"):
        from xformers.ops import memory_efficient_attention  # type: ignore[import-not-found]

        q, k, v = (half(BATCH, ROWS, HEADS, HEAD) for _ in range(3))
        call = functools.partial(memory_efficient_attention, q, k, v)
        assert asked_for(call) == RESULT + NUMBER * BATCH * HEADS * ROWS + RANDOM_STATE
        assert of_backward(call(), q, k, v) == 3 * RESULT + sums(BATCH * ROUNDED)
        out = call()
        grad = torch.empty(BATCH, HEADS, ROWS, HEAD, device="cuda", dtype=q.dtype).transpose(1, 2)
        total = asked_for(lambda: torch.autograd.grad(out, (q, k, v), grad))
        assert total == 4 * RESULT + sums(BATCH * ROUNDED)


def test_xformers_puts_gradients_apart_together_again() -> None:
    with peakline.virtual_gpu("h200"):
        from xformers.ops import unbind

        whole = half(BATCH, ROWS, 3, HEADS, HEAD)
        apart = [torch.empty(BATCH, ROWS, HEADS, HEAD, device="cuda") for _ in range(3)]
        grads = [grad.to(torch.bfloat16) for grad in apart]
        parts = unbind(whole, 2)
        assert asked_for(lambda: torch.autograd.grad(parts, whole, grads)) == 3 * RESULT


def test_a_causal_convolution_copies_what_lies_in_neither_order() -> None:
    batch, channels, rows, width = 2, 64, 300, 4
    with peakline.virtual_gpu("h200"):
        from causal_conv1d import causal_conv1d_fn  # type: ignore[import-not-found]

        one, weight = 2 * batch * channels * rows, half(channels, width)
        apart = half(batch, channels, rows, 2)[..., 0]
        assert asked_for(lambda: causal_conv1d_fn(apart, weight)) == 2 * one
        # Channels next to each other, and a gradient whose rows are.
        x = half(batch, rows, channels).transpose(1, 2)
        out = causal_conv1d_fn(x, weight)
        grad = torch.empty(batch, channels, rows, device="cuda", dtype=x.dtype)
        total = asked_for(lambda: torch.autograd.grad(out, (x, weight), grad))
        assert total == 2 * one + (NUMBER + 2) * channels * width
