"""Which argument of a script is its batch size, as far as its command line tells."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from peakline._patches import Patches

# The first that a parser has is taken: what a step is made of, before what only is called so.
_NAMES = [
    re.compile(pattern)
    for pattern in (
        r"per_device_train_batch_size",
        r"(micro|train)_?batch(_?size)?",
        r"batch(_?size)?(_per_gpu|_per_device)?",
        r"bs",
        r"b",
    )
]


@dataclass(frozen=True)
class Argument:
    option: str  # "--batch-size"
    value: int


class BatchArgument:
    """Looks on as a script's parser of argparse's parses, its subclasses among them."""

    def __init__(self) -> None:
        self.found: Argument | None = None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        parse = argparse.ArgumentParser.parse_known_args

        def parse_known_args(parser: Any, *args: Any, **kwargs: Any) -> Any:
            answer = parse(parser, *args, **kwargs)
            with contextlib.suppress(Exception):  # of a parser that does it in its own way
                self._look(parser, answer[0])
            return answer

        with Patches() as patches:
            patches.set(argparse.ArgumentParser, "parse_known_args", parse_known_args)
            yield

    def _look(self, parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
        options = {
            option: getattr(given, action.dest, None)
            for action in parser._actions
            for option in action.option_strings
        }
        for name in _NAMES:
            for option, value in options.items():
                if type(value) is int and value > 1 and name.fullmatch(_plain(option)):
                    self.found = Argument(option, value)
                    return


def _plain(option: str) -> str:
    return option.lstrip("-").replace("-", "_").lower()
