"""What the flags of `--hf` may be, and which packages they need; torch is not imported for it."""

from __future__ import annotations

import importlib.util

TRAIN = ("full", "lora", "qlora")
OPTIMIZERS = ("adamw", "adam", "sgd", "adagrad", "adafactor", "adamw8bit", "sgd8bit")
_PACKAGES = {
    "lora": ("peft",),
    "qlora": ("bitsandbytes", "peft"),
    "adamw8bit": ("bitsandbytes",),
    "sgd8bit": ("bitsandbytes",),
}


def missing(train: str | None, optimizer: str | None) -> str | None:
    """A sentence where a package is not installed that the flags need."""
    for flag, choice in (("--train", train), ("--optimizer", optimizer)):
        for package in _PACKAGES.get(choice or "", ()):
            if importlib.util.find_spec(package) is None:
                return f"{flag} {choice} needs {package}, which is not installed"
    return None
