"""What another rank tells this one: that rank is estimated, too, up to where it tells it.

Pipelines learn shapes so: a stage without `input_args` waits for what the stage before it gives. No
two ranks run at once here. When one waits for another, that one runs from its beginning in a
process of its own, writes down what it sends, and ends with the message that is waited for.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peakline import _scratch
from peakline._ending import EnoughSteps

_FOLDER = "PEAKLINE_MESSAGES"  # of one estimate, with all the processes that it needs
_WAITING = "PEAKLINE_WAITING"  # the messages that the processes above this one wait for
_UNKNOWN = (
    "rank {rank} waits for a Python object from rank {source}, and that rank's own estimate did "
    "not come to send one"
)


class Neighbours:
    """Remembers how the estimate began: a script may change its folder and environment."""

    def __init__(self, argv: list[str]) -> None:
        self._argv = argv
        self._begun_in = os.getcwd()
        self._environment = dict(os.environ)
        self._own: str | None = None
        self._messages = os.environ.get(_FOLDER, "")

    def prepare(self) -> None:
        """Before any rank is begun: all of them share one folder of messages."""
        if not self._messages:
            self._own = self._messages = _scratch.make("messages")
        self._environment[_FOLDER] = self._messages

    def close(self) -> None:
        if self._own is not None:
            _scratch.remove(self._own)

    def of(self, rank: int, wanted: str = "") -> Exchange:
        return Exchange(self, rank, wanted)

    def message(self, name: str) -> Path:
        return Path(self._messages, name)

    def run_until_sent(self, source: int, name: str) -> None:
        """Estimates rank `source` until it has written the message."""
        waiting = self._environment.get(_WAITING, "").split()
        if name in waiting:
            return  # each waits for the other
        orders = {"rank": source, "wanted": name}
        command = [sys.executable, "-m", "peakline._estimate_script", "--until-sent"]
        quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        subprocess.run(
            [*command, json.dumps(orders), *self._argv],
            cwd=self._begun_in,
            env=self._environment | {_WAITING: " ".join([*waiting, name])},
            **quiet,
            check=False,
        )


class Exchange:
    """One rank's messages, each named by who tells whom, and how many came before it."""

    def __init__(self, neighbours: Neighbours, rank: int, wanted: str) -> None:
        self._neighbours = neighbours
        self._rank = rank
        self._wanted = wanted  # the message that this rank is run for
        self._count: Counter[str] = Counter()

    def _next(self, pair: str) -> str:
        self._count[pair] += 1
        return f"{pair}-{self._count[pair]}"

    def send(self, target: int, objects: list[Any]) -> None:
        name = self._next(f"{self._rank}-{target}")
        path = self._neighbours.message(name)
        if not path.exists():
            with contextlib.suppress(pickle.PicklingError, TypeError, AttributeError):
                path.with_suffix(".part").write_bytes(pickle.dumps(list(objects)))
                path.with_suffix(".part").rename(path)
        if name == self._wanted:
            raise EnoughSteps

    def receive(self, source: int) -> list[Any]:
        name = self._next(f"{source}-{self._rank}")
        path = self._neighbours.message(name)
        if not path.exists():
            with _alone(self._neighbours.message(f"{source}.lock")):
                if not path.exists():  # nobody else has asked meanwhile
                    self._neighbours.run_until_sent(source, name)
        if not path.exists():
            raise RuntimeError(_UNKNOWN.format(rank=self._rank, source=source))
        found: list[Any] = pickle.loads(path.read_bytes())
        return found


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One process at a time runs a rank; the others then find what it wrote."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def follow(args: argparse.Namespace) -> None:
    """Turns an estimate's arguments into those of a rank that is run for its message."""
    orders = json.loads(args.until_sent)
    args.ranks, args.rank, args.wanted = None, orders["rank"], orders["wanted"]
    args.json = args.output = None
    args.allow_writes = False
    args.second_pass, args.hidden = "for a message", []  # it writes to a scratch folder only
