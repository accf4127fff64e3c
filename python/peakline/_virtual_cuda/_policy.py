"""What a program is told that asks for a value nobody can know: `values=` and `--values`."""

from __future__ import annotations

import math
from collections.abc import Mapping

MEANINGS = {
    "float": "a number",
    "int": "a whole number",
    "bool": "true or false",
    "nonzero": "the share of unknown elements that count as nonzero, 0 to 1",
}
_TRUTH = {"true": 1.0, "yes": 1.0, "1": 1.0, "false": 0.0, "no": 0.0, "0": 0.0}


def parse(text: str) -> tuple[str, float]:
    """`NAME=V` of the command line. ValueError says what is wrong in one sentence."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"'{text}' is not NAME=V, for example float=0.5")
    try:
        number = _TRUTH[value.lower()] if name == "bool" else float(value)
    except (KeyError, ValueError):
        if name in MEANINGS:
            raise ValueError(f"{name} takes {MEANINGS[name]}, and got '{value}'") from None
        number = 0.0
    return name, check({name: number})[name]


def check(values: Mapping[str, float]) -> dict[str, float]:
    """The same as the engine takes them."""
    checked: dict[str, float] = {}
    for name, value in values.items():
        if name not in MEANINGS:
            known = ", ".join(MEANINGS)
            raise ValueError(f"values that can be answered for are {known}, and '{name}' is none")
        checked[name] = _checked(name, value)
    return checked


def _checked(name: str, value: float) -> float:
    if not isinstance(value, (int, float)) or math.isnan(value):
        raise ValueError(f"{name} takes {MEANINGS[name]}, and got {value!r}")
    if name == "bool":
        return bool(value)
    if name == "int":
        if not float(value).is_integer():
            raise ValueError(f"int takes {MEANINGS['int']}, and got {value:g}")
        return int(value)
    if name == "nonzero" and not 0 <= value <= 1:
        raise ValueError(f"nonzero takes {MEANINGS['nonzero']}, and got {value:g}")
    return value
