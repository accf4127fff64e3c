"""Programs that start a job's processes: what they would start first is estimated instead."""

from __future__ import annotations

import argparse
import os
import runpy
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from peakline._patches import Patches

_MODULES = {
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "accelerate.commands.accelerate_cli",
    "deepspeed.launcher.runner",
    "deepspeed.launcher.launch",
}
_PROGRAMS = {
    "torchrun": "torch.distributed.run",
    "accelerate": "accelerate.commands.accelerate_cli",
    "accelerate-launch": "accelerate.commands.launch",
    "deepspeed": "deepspeed.launcher.runner",
}
_NESTED = 4  # launchers that start launchers
_NOTHING = (
    "{name} started nothing that can be estimated; give the training script itself, and "
    "--world-size with how many ranks the job has"
)


@dataclass
class Launched(BaseException):
    """Raised in place of starting the first process of a job."""

    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    world_size: int | None = None
    local_world_size: int | None = None


class NothingLaunched(Exception):
    """The text is one sentence for the user."""


def launcher(script: str | None, module: str | None) -> str | None:
    """The module of the launcher that the user named, if it is one."""
    if module in _MODULES:
        return module
    return _PROGRAMS.get(Path(script).name) if script and not Path(script).exists() else None


def replace_by_first_process(args: argparse.Namespace) -> None:
    """Makes `args` name what the launcher would have started first, with its world size."""
    for _ in range(_NESTED):
        name = launcher(args.script, args.module)
        if name is None:
            return
        _replace(args, name, _first_process(name, args.script_args, args.devices))


def _replace(args: argparse.Namespace, name: str, first: Launched) -> None:
    words = list(first.command)
    while words and (Path(words[0]).name.startswith("python") or words[0] in ("-u", "-B")):
        words.pop(0)
    is_module = words[:1] == ["-m"]
    words = words[1:] if is_module else words
    if not words:
        raise NothingLaunched(_NOTHING.format(name=name))
    args.module, args.script = (words[0], None) if is_module else (None, words[0])
    args.script_args = words[1:]
    os.environ.update(first.environment)
    world = first.world_size or int(first.environment.get("WORLD_SIZE", "0"))
    if args.world_size is None and world:
        args.world_size = world
        local = first.local_world_size or int(first.environment.get("LOCAL_WORLD_SIZE", "0"))
        args.local_world_size = min(local, world) if local else args.local_world_size


def _first_process(name: str, words: Sequence[str], devices: int | None) -> Launched:
    """Runs the launcher up to the point where it starts a process."""
    with Patches() as patches:
        patches.set(sys, "argv", [name, *words])
        _catch(patches, devices or 8)
        try:
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        except Launched as first:
            return first
    raise NothingLaunched(_NOTHING.format(name=name))


def _catch(patches: Patches, devices: int) -> None:
    import torch
    import torch.distributed.launcher.api as api

    started: Any = api.elastic_launch

    def call(self: Any, *args: Any) -> NoReturn:
        config = self._config
        local = int(config.nproc_per_node)
        command = [str(self._entrypoint), *map(str, args)]
        raise Launched(command, {}, int(config.max_nodes) * local, local)

    patches.set(started, "__call__", call)
    patches.set(subprocess, "Popen", _popen(subprocess.Popen))
    # How many GPUs there are, for `--nproc-per-node gpu` and accelerate's defaults.
    patches.set(torch.cuda, "device_count", lambda: devices)
    patches.set(torch.cuda, "is_available", lambda: True)


def _popen(real: Any) -> Any:
    """A process that runs Python is what a launcher is there for; others it may ask things of."""

    class Popen(real):  # type: ignore[misc]
        def __init__(self, command: Any, *args: Any, **kwargs: Any) -> None:
            words = command.split() if isinstance(command, str) else list(map(str, command))
            if words and Path(words[0]).name.startswith("python"):
                given = kwargs.get("env") or {}
                changed = {k: v for k, v in given.items() if os.environ.get(k) != v}
                raise Launched(words, changed)
            super().__init__(command, *args, **kwargs)

    return Popen


def split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Our own words, and the script's: after `--`, or everything after a launcher's name."""
    if "--" in argv:
        at = argv.index("--")
        before, after = argv[:at], argv[at + 1 :]
    else:
        before, after = argv, []
    for at, word in enumerate(before):
        named = launcher(None, word) if at and before[at - 1] == "-m" else _program(word)
        if named is not None:
            return before[: at + 1], before[at + 1 :] + after
    return before, after


def _program(word: str) -> str | None:
    return launcher(word, None) if "=" not in word else None
