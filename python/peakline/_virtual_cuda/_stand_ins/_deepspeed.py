"""Extensions that DeepSpeed builds for its optimizers when they are made."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

NOTE = (
    "DeepSpeed's fused optimizers were not built: stand-ins took their place, which allocate "
    "nothing, as the real ones, which change their arguments in place (--no-stand-ins turns them "
    "off)"
)
_FUNCTIONS = {
    "fused_adam": ("multi_tensor_adam",),
    "fused_lion": ("multi_tensor_lion",),
    "cpu_adam": ("create_adam", "destroy_adam", "adam_update", "adam_rollback"),
    "cpu_adagrad": ("create_adagrad", "destroy_adagrad", "adagrad_update"),
    "cpu_lion": ("create_lion", "destroy_lion", "lion_update"),
}


def extension(name: str, sources: Sequence[str]) -> Any:
    """None: it is not one of these."""
    if name not in _FUNCTIONS or not any("deepspeed" in source for source in sources):
        return None
    return SimpleNamespace(**dict.fromkeys(_FUNCTIONS[name], _in_place))


def _in_place(*args: Any, **kwargs: Any) -> int:
    """The numbers that it would change are made up anyway."""
    return 0
