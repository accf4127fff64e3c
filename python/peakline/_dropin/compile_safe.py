"""Hooks at module boundaries that torch.compile keeps, without a break in the graph.

Each hooked module's input and output tensors pass through a leaf function: opaque to the compiler,
run as written at run time. Inside it an identity autograd function sees the gradients on their way
back, so that one boundary serves a forward and a backward hook.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.hooks import RemovableHandle

Tensors = tuple[torch.Tensor, ...]
BoundaryHook = Callable[[str, Any], None]
PostForwardHook = Callable[[str, Tensors, Tensors], None]
ModuleFilter = Callable[[str, torch.nn.Module], bool]


def _leaf_function(body: Callable[..., Tensors]) -> Callable[..., Tensors]:
    """`body` as a leaf function where this torch has them; plain `body` (eager only) elsewhere."""
    try:
        from torch._dynamo.decorators import leaf_function
    except ImportError:
        return body

    def same_tensors(*tensors: torch.Tensor) -> Tensors:
        return tensors

    leaf: Any = leaf_function(body)
    leaf.register_fake(same_tensors)

    compiled = _for_shards(leaf)

    def pass_on(*tensors: torch.Tensor) -> Tensors:
        if torch.compiler.is_compiling():
            return compiled(*tensors)
        if not _exporting():
            return body(*tensors)
        # Export takes subclasses (DTensor) apart, and a leaf has no rule for them.
        apart = any(is_traceable_wrapper_subclass(tensor) for tensor in tensors)
        return tensors if apart else compiled(*tensors)

    return pass_on


def _for_shards(leaf: Callable[..., Tensors]) -> Callable[..., Tensors]:
    """`leaf` where a DTensor crosses as this rank's shard: leaf functions take no subclasses."""
    module = sys.modules.get("torch.distributed.tensor")
    if module is None:
        return leaf
    dtensor: Any = module.DTensor

    def cross(*tensors: Any) -> Tensors:
        crossed = leaf(*[t.to_local() if isinstance(t, dtensor) else t for t in tensors])
        return tuple(
            dtensor.from_local(
                local,
                t.device_mesh,
                t.placements,
                run_check=False,
                shape=t.shape,
                stride=t.stride(),
            )
            if isinstance(t, dtensor)
            else local
            for t, local in zip(tensors, crossed, strict=True)
        )

    return cross


def _exporting() -> bool:
    """AOTAutograd runs the program to write it down: what hooks would see is no call."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FUNCTIONAL) is not None


def _boundary(
    fqn: str, on_forward: BoundaryHook | None, on_backward: BoundaryHook | None
) -> Callable[..., Tensors]:
    class GradientSeen(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *tensors: torch.Tensor) -> Any:
            return tensors

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            if on_backward is not None:
                on_backward(fqn, grads)
            return grads

    def cross(*tensors: torch.Tensor) -> Tensors:
        if on_forward is not None:
            on_forward(fqn, tensors)
        # Even with no backward hook: a leaf that hands its inputs on unchanged would cut the graph.
        if any(tensor.requires_grad for tensor in tensors):
            passed = GradientSeen.apply(*tensors)  # type: ignore[no-untyped-call]
            return passed if isinstance(passed, tuple) else (passed,)
        return tensors

    return _leaf_function(cross)


def _through(boundary: Callable[..., Tensors], value: Any) -> Any:
    """`value` with each of its tensors replaced by what `boundary` gives for it."""
    leaves, spec = tree_flatten(value)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    if not places:
        return value
    for place, tensor in zip(places, boundary(*[leaves[i] for i in places]), strict=True):
        leaves[place] = tensor
    return tree_unflatten(leaves, spec)


def _hook_inputs(module: torch.nn.Module, boundary: Callable[..., Tensors]) -> RemovableHandle:
    def hook(module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        return _through(boundary, (args, kwargs))

    return module.register_forward_pre_hook(hook, with_kwargs=True)


def _hook_outputs(module: torch.nn.Module, boundary: Callable[..., Tensors]) -> RemovableHandle:
    def hook(module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        return _through(boundary, output)

    return module.register_forward_hook(hook, with_kwargs=True)


def _hook_module(
    fqn: str,
    module: torch.nn.Module,
    pre_fw_hook: BoundaryHook | None,
    post_fw_hook: PostForwardHook | None,
    pre_bw_hook: BoundaryHook | None,
    post_bw_hook: BoundaryHook | None,
) -> list[RemovableHandle]:
    handles = []
    entered: list[Tensors] = [()]  # the inputs of the call under way, for the post-forward hook

    def on_enter(name: str, tensors: Tensors) -> None:
        entered[0] = tensors
        if pre_fw_hook is not None:
            pre_fw_hook(name, tensors)

    def on_leave(name: str, tensors: Tensors) -> None:
        if post_fw_hook is not None:
            post_fw_hook(name, entered[0], tensors)

    first = pre_fw_hook if post_fw_hook is None else on_enter
    if first is not None or post_bw_hook is not None:
        handles.append(_hook_inputs(module, _boundary(fqn, first, post_bw_hook)))
    if post_fw_hook is not None or pre_bw_hook is not None:
        last = None if post_fw_hook is None else on_leave
        handles.append(_hook_outputs(module, _boundary(fqn, last, pre_bw_hook)))
    return handles


def hook_submodules(
    model: torch.nn.Module,
    pre_fw_hook: BoundaryHook | None,
    post_fw_hook: PostForwardHook | None,
    pre_bw_hook: BoundaryHook | None,
    post_bw_hook: BoundaryHook | None,
    module_filter: ModuleFilter | None,
) -> list[RemovableHandle]:
    """Hooks every submodule that `module_filter` lets through; the root runs outside the graph."""
    handles = []
    for fqn, module in model.named_modules():
        if fqn and (module_filter is None or module_filter(fqn, module)):
            handles += _hook_module(
                fqn, module, pre_fw_hook, post_fw_hook, pre_bw_hook, post_bw_hook
            )
    return handles
