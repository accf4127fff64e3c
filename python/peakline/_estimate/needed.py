"""How much memory would do, when what there is does not, and what else: the script runs again."""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peakline import _scratch

if TYPE_CHECKING:
    from peakline._remedies import Change

_UNLIMITED = 2**48  # more than any GPU has, and well inside the addresses of a virtual one
_ORDERS = "orders.json"
_ANSWER = "answer.json"


class SecondPass:
    """Runs the script again. Remembers how the first began: a script may change its folder and
    environment."""

    def __init__(self, argv: list[str]) -> None:
        self._argv = argv
        self._folder = os.getcwd()
        self._environment = dict(os.environ)

    def of(self, argv: list[str]) -> SecondPass:
        """The same beginning, with this command line."""
        made = copy.copy(self)
        made._argv = argv
        return made

    def reserved(self, rank: int | None, made: list[str]) -> int | None:
        """What the script reserves without a limit; None when that could not be seen, as where
        it sets one itself."""
        found = self._again({"rank": rank, "made": made, "memory": _UNLIMITED})
        seen = found is not None and found["gpu_fits"] and not found["partial"]
        return found["peak_reserved"] if found is not None and seen else None

    def with_change(
        self, rank: int | None, made: list[str], change: Change, seconds: float
    ) -> dict[str, Any] | None:
        """The answer under the same limit; None when there was none in time."""
        return self._again({"rank": rank, "made": made, **asdict(change)}, seconds)

    def _again(self, orders: dict[str, Any], seconds: float | None = None) -> dict[str, Any] | None:
        """`made`: what the first pass has put into its place. This one sees none of it, and puts
        everything that it writes into a scratch folder: no side effect happens twice."""
        with _scratch.folder("second") as folder:
            Path(folder, _ORDERS).write_text(json.dumps(orders))
            command = [sys.executable, "-m", "peakline._estimate_script", "--second-pass", folder]
            quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
            try:
                subprocess.run(
                    command + self._argv,
                    cwd=self._folder,
                    env=self._environment,
                    **quiet,
                    check=False,
                    timeout=seconds,
                )
                found: dict[str, Any] = json.loads(Path(folder, _ANSWER).read_text())
            except (OSError, ValueError, subprocess.TimeoutExpired):
                return None
        return found


def prepare(args: argparse.Namespace) -> None:
    """Turns the first pass's arguments into those of one that follows."""
    orders = json.loads(Path(args.second_pass, _ORDERS).read_text())
    args.hidden = orders["made"]
    args.memory = orders.get("memory", args.memory)
    args.script_args = [*args.script_args, *orders.get("words", [])]
    if orders.get("plan"):
        from peakline._plan import document

        args.planned = document.parse(orders["plan"])
    args.json = str(Path(args.second_pass, _ANSWER))
    args.output = None
    args.allow_writes = False
    if args.ranks:
        args.ranks, args.rank = None, orders["rank"]
