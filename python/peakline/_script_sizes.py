"""Arguments of a script that say how much it computes at once: its batch, the length of a sequence.

Three places have them: the words that the script was given, argparse as the script uses it, and
globals that a script lets `--name=value` replace. Whatever is found here is only a guess at what an
argument means: every value of it is estimated before it is told.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peakline._patches import Patches

BATCH, LENGTH = "batch", "length"
_BATCH = re.compile(
    r"(train(ing)?_|micro_|mini_|local_|device_|per_(gpu|device)_(train_)?)*"
    r"(batch(_?size)?(_per_(gpu|device|rank))?|bs|mbs)"
)
_LENGTH = re.compile(
    r"(max_|train_)?(seq(uence)?_?len(gth)?|length|context_?(len(gth)?|size)|block_size|n_?ctx)"
)
# A batch of one process is less than the whole one, which may only be made of more small ones.
_OF_ONE_PROCESS = re.compile(r"micro|local|device|gpu|mbs")


@dataclass(frozen=True)
class Size:
    name: str
    value: int  # what the script takes now
    words: list[str] = field(default_factory=list)  # that hand a value over; none: `--name N`

    @property
    def kind(self) -> str:
        return kind_of(self.name) or ""

    @property
    def option(self) -> str:
        """As the script's user types it."""
        return self.words[0].partition("=")[0] if self.words else f"--{self.name}"


def kind_of(name: str) -> str | None:
    plain = name.lower().replace("-", "_").rpartition(".")[2]
    if _BATCH.fullmatch(plain):
        return BATCH
    return LENGTH if _LENGTH.fullmatch(plain) else None


def in_order(found: Iterable[Size]) -> list[Size]:
    """What is worth a try first; each name once."""
    unique = {one.name.replace("-", "_"): one for one in reversed(list(found)) if one.value > 1}
    return sorted(unique.values(), key=lambda one: (one.kind != BATCH, _is_whole(one), one.name))


def _is_whole(one: Size) -> bool:
    return not _OF_ONE_PROCESS.search(one.name)


def of_words(words: Sequence[str]) -> list[tuple[Size, list[str]]]:
    """Sizes among the words of a command line, each with words that have `@name` in its place."""
    found = []
    for place, word in enumerate(words):
        name, equals, value = word.removeprefix("--").partition("=")
        if kind_of(name) is None or (not word.startswith("--") and not equals):
            continue
        after = words[place + 1] if place + 1 < len(words) else ""
        if equals and value.isdigit():
            marked = [*words[:place], word.removesuffix(value) + f"@{name}", *words[place + 1 :]]
            found.append((Size(name, int(value)), marked))
        elif not equals and after.isdigit():
            marked = [*words[: place + 1], f"@{name}", *words[place + 2 :]]
            found.append((Size(name, int(after)), marked))
    return found


def watch_argparse(patches: Patches, tell: Callable[[Size], None]) -> None:
    """Tells of sizes among what any parser of the program gives back."""
    own = argparse.ArgumentParser.parse_known_args

    def parse_known_args(parser: Any, args: Any = None, namespace: Any = None) -> Any:
        given = own(parser, args, namespace)
        with contextlib.suppress(Exception):  # a parser may do it in its own way
            for one in _of_parser(parser, vars(given[0])):
                tell(one)
        return given

    patches.set(argparse.ArgumentParser, "parse_known_args", parse_known_args)


class BatchMet:
    """The batch among what the parsers of a program give back."""

    def __init__(self) -> None:
        self._sizes: list[Size] = []

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        with Patches() as patches:
            watch_argparse(patches, self._sizes.append)
            yield

    @property
    def found(self) -> Size | None:
        return next((one for one in in_order(self._sizes) if one.kind == BATCH), None)


def _of_parser(parser: argparse.ArgumentParser, values: Mapping[str, Any]) -> Iterable[Size]:
    for action in parser._actions:
        value = values.get(action.dest)
        if type(value) is not int or not action.option_strings or action.nargs is not None:
            continue
        flag = max(action.option_strings, key=len)
        name = flag.lstrip("-")
        if kind_of(name) is not None or kind_of(action.dest) is not None:
            yield Size(name, value, [] if flag.startswith("--") else [flag, f"@{name}"])


def of_globals(main: Any) -> list[Size]:
    """Globals of a script that runs a file over them, so that words such as `--name=4` set them."""
    try:
        tree = ast.parse(Path(main.__file__).read_bytes())
    except (AttributeError, OSError, SyntaxError, ValueError, TypeError):
        return []
    if not any(_executes(statement) for statement in tree.body):
        return []
    names = [
        target.id
        for statement in tree.body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
        for target in statement.targets
        if isinstance(target, ast.Name) and kind_of(target.id) is not None
    ]
    values = vars(main)
    return [
        Size(name, values[name], [f"--{name}=@{name}"])
        for name in names
        if type(values.get(name)) is int
    ]


def _executes(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "exec"


def of_function(function: Callable[..., Any]) -> list[Size]:
    """Of a training function: whole numbers that its arguments have by default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        Size(one.name, one.default)
        for one in parameters
        if type(one.default) is int
        and kind_of(one.name) is not None
        and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]
