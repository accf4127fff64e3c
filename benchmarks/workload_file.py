"""A Python file of workloads, W = {name: build(device)}, and which of them were asked for."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[Path(path).stem] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def chosen(parser: argparse.ArgumentParser, names: list[str], known: Iterable[str]) -> list[str]:
    """`names`, or all that are known when there are none; an unknown one ends the program."""
    all_names = list(known)
    for name in names:
        if name not in all_names:
            parser.error(f"there is no workload '{name}'; there are: {', '.join(all_names)}")
    return names or all_names
