"""Walks over torch's public names on a virtual GPU, and prints what names its dispatch key.

Everything that can be called without arguments, or with one or two simple tensors, is called. What
comes back, and what is raised, must speak of cuda: nobody knows what `privateuseone` is. A program
of its own, since some of these functions change the process.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

import peakline

HIDDEN = ("privateuse",)
# They end the process when they are deleted.
LEFT_OUT = {"FileCheck", "PyTorchFileReader", "PyTorchFileWriter"}
# They read host memory whatever the device is, and fault on a real GPU, too.
ON_HOST = ("fbgemm_",)
# They change how everything after them behaves.
SETTERS = ("set_", "autocast_", "enable_", "init_num", "use_determ", "pin_", "clear_autocast")


class Walk:
    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self.tensors: list[Callable[[], torch.Tensor]] = [
            lambda: torch.rand(3, 4, device="cuda"),
            lambda: torch.rand(3, 4, device="cuda", requires_grad=True),
            lambda: torch.ones(3, dtype=torch.long, device="cuda"),
            lambda: torch.randn(2, 3, 4, 4, device="cuda"),
            lambda: torch.eye(3, device="cuda").to_sparse(),
            lambda: torch.eye(3, device="cuda").to_sparse_csr(),
        ]

    def look(self, name: str, answer: Any) -> None:
        text = f"{answer} {answer!r}"
        if any(word in text.lower() for word in HIDDEN):
            self.found.setdefault(name, text[:200].replace("\n", " "))

    def call(self, name: str, function: Any, *arguments: Any) -> None:
        try:
            self.look(name, function(*arguments))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.look(name, error)

    def over(self, owner: Any, name: str) -> None:
        for member in sorted(dir(owner)):
            if member in LEFT_OUT or member.startswith(SETTERS + ON_HOST):
                continue
            if member.startswith("_") and owner is not torch.Tensor:
                continue
            full = f"{name}.{member}"
            try:
                found = getattr(owner, member)
            except BaseException as error:
                self.look(full, error)
                continue
            self.look(full, found)
            if callable(found) and not inspect.ismodule(found):
                self.call_all_ways(full, found, owner is torch.Tensor)

    def call_all_ways(self, name: str, function: Any, is_method: bool) -> None:
        if not is_method:
            self.call(f"{name}()", function)
        for number, make in enumerate(self.tensors):
            self.call(f"{name}(t{number})", function, make())
            self.call(f"{name}(t{number}, t{number})", function, make(), make())

    def over_attributes(self, tensor: torch.Tensor) -> None:
        for member in dir(tensor):
            self.call(f"tensor.{member}", getattr, tensor, member)


OWNERS: dict[str, Any] = {
    "torch": torch,
    "torch.Tensor": torch.Tensor,
    "torch.cuda": torch.cuda,
    "torch.backends": torch.backends,
    "torch.backends.cuda": torch.backends.cuda,
    "torch.backends.cudnn": torch.backends.cudnn,
    "torch.nn.functional": torch.nn.functional,
    "torch.linalg": torch.linalg,
    "torch.fft": torch.fft,
    "torch.special": torch.special,
    "torch.sparse": torch.sparse,
    "torch.accelerator": torch.accelerator,
    "torch.amp": torch.amp,
}


def main() -> int:
    warnings.simplefilter("ignore")
    walk = Walk()
    with peakline.virtual_gpu("h200"):
        for name, owner in OWNERS.items():
            if len(sys.argv) < 2 or name == sys.argv[1]:
                walk.over(owner, name)
        for make in walk.tensors:
            walk.over_attributes(make())
    for name, text in walk.found.items():
        print(f"{name}: {text}")
    return 1 if walk.found else 0


if __name__ == "__main__":
    raise SystemExit(main())
