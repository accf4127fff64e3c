"""How much memory would do, when what there is does not: a second pass without the limit."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from peakline import _scratch

_UNLIMITED = 2**48  # more than any GPU has, and well inside the addresses of a virtual one
_ORDERS = "orders.json"
_ANSWER = "answer.json"


class SecondPass:
    """Remembers how the first began: a script may change its folder and environment."""

    def __init__(self, argv: list[str]) -> None:
        self._argv = argv
        self._folder = os.getcwd()
        self._environment = dict(os.environ)

    def reserved(self, rank: int | None, made: list[str]) -> int | None:
        """What the script reserves without a limit; None when that could not be seen.

        `made`: what the first pass has put into its place. The second sees none of it, and puts
        everything that it writes into a scratch folder: no side effect happens twice.
        """
        with _scratch.folder("second") as folder:
            orders = {"rank": rank, "made": made}
            Path(folder, _ORDERS).write_text(json.dumps(orders))
            command = [sys.executable, "-m", "peakline._estimate_script", "--second-pass", folder]
            quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
            subprocess.run(
                command + self._argv, cwd=self._folder, env=self._environment, **quiet, check=False
            )
            try:
                found = json.loads(Path(folder, _ANSWER).read_text())
            except (OSError, ValueError):
                return None
        return None if found["partial"] else found["peak_reserved"]


def prepare(args: argparse.Namespace) -> None:
    """Turns the first pass's arguments into the second's."""
    orders = json.loads(Path(args.second_pass, _ORDERS).read_text())
    args.hidden = orders["made"]
    args.memory = _UNLIMITED
    args.json = str(Path(args.second_pass, _ANSWER))
    args.output = None
    args.allow_writes = False
    if args.ranks:
        args.ranks, args.rank = None, orders["rank"]
