# mypy: ignore-errors
"""Data that programs would download is made up. Python imports this before a program runs.

torchvision checks what it has downloaded by its sum, which made-up files do not have, and its
models fetch trained weights, for which fresh ones of the same shapes stand in.
"""

import importlib.abc
import importlib.util
import os
import sys


def _cifar(module):
    module.CIFAR10._check_integrity = lambda self: True
    for kind in (module.CIFAR10, module.CIFAR100):
        kind.train_list = [[name, None] for name, _ in kind.train_list]
        kind.test_list = [[name, None] for name, _ in kind.test_list]
        kind._load_meta = lambda self: setattr(self, "classes", [str(n) for n in range(100)])


def _keras_files(module):
    module.validate_file = lambda *args, **kwargs: True


def _weights(module):
    def fresh(self, *args, **kwargs):
        name = os.path.basename(self.url).split("-")[0]
        import torchvision

        return torchvision.models.get_model(name, weights=None).state_dict()

    module.WeightsEnum.get_state_dict = fresh


def _ops(module):
    """PyPI's torchvision is built for CUDA, and its ops do not load beside a CPU-only torch.

    Their names are enough: shapes and derivatives are torchvision's own Python.
    """
    import torch

    if module._has_ops():
        return
    boxes = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    pooled = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
    shape = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
    sampled = "int sampling_ratio"
    conv = "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "
    conv += ", ".join(
        f"SymInt {name}_{axis}" for name in ("stride", "pad", "dilation") for axis in "hw"
    )
    conv += ", SymInt groups, SymInt offset_groups, bool use_mask"
    for name, schema in {
        "nms": boxes,
        "qnms": boxes,
        "roi_align": f"(Tensor input, Tensor rois, {pooled}, {sampled}, bool aligned) -> Tensor",
        "_roi_align_backward": f"(Tensor grad, Tensor rois, {pooled}, {shape}, {sampled}, "
        "bool aligned) -> Tensor",
        "qroi_align": f"(Tensor input, Tensor rois, {pooled}, {sampled}, bool aligned) -> Tensor",
        "ps_roi_align": f"(Tensor input, Tensor rois, {pooled}, {sampled}) -> (Tensor, Tensor)",
        "_ps_roi_align_backward": f"(Tensor grad, Tensor rois, Tensor channel_mapping, {pooled}, "
        f"{sampled}, {shape}) -> Tensor",
        "roi_pool": f"(Tensor input, Tensor rois, {pooled}) -> (Tensor, Tensor)",
        "_roi_pool_backward": f"(Tensor grad, Tensor rois, Tensor argmax, {pooled}, {shape}) "
        "-> Tensor",
        "ps_roi_pool": f"(Tensor input, Tensor rois, {pooled}) -> (Tensor, Tensor)",
        "_ps_roi_pool_backward": f"(Tensor grad, Tensor rois, Tensor channel_mapping, {pooled}, "
        f"{shape}) -> Tensor",
        "deform_conv2d": f"({conv}) -> Tensor",
        "_deform_conv2d_backward": f"(Tensor grad, {conv}) "
        "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
        "_cuda_version": "() -> int",
    }.items():
        torch.library.define(f"torchvision::{name}", schema)
    torch.library.impl("torchvision::_cuda_version", "CompositeExplicitAutograd", lambda: -1)
    module._has_ops = lambda: True


def _tiktoken(module):
    """Its tables are downloaded; programs print text with it."""

    class Characters:
        n_vocab, eot_token = 50257, 50256

        def encode(self, text, **kwargs):
            return [ord(c) % 50000 for c in text]

        encode_ordinary = encode

        def decode(self, tokens):
            return "".join(chr(32 + token % 90) for token in tokens)

    module.get_encoding = lambda name: Characters()


def _metrics(module):
    """Each is a script of its own, which is downloaded."""

    class Metric:
        def add_batch(self, *args, **kwargs):
            pass

        def compute(self, *args, **kwargs):
            return {"accuracy": 0.5, "f1": 0.5}

    module.load = lambda *args, **kwargs: Metric()


def _timm(module):
    """Its trained weights, too, are fetched."""
    module.load_pretrained = lambda *args, **kwargs: None


_ACTIONS = {"torchvision.extension": _ops, "tiktoken": _tiktoken, "evaluate": _metrics}
_ACTIONS |= {"keras.src.utils.file_utils": _keras_files}
_ACTIONS |= {"timm.models._builder": _timm}
_ACTIONS |= {"torchvision.datasets.cifar": _cifar, "torchvision.models._api": _weights}


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self):
        self._busy = set()

    def find_spec(self, name, path=None, target=None):
        if name not in _ACTIONS or name in self._busy:
            return None
        self._busy.add(name)
        spec = importlib.util.find_spec(name)
        self._busy.discard(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            _ACTIONS[name](module)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _Finder())
