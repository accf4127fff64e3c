"""Running somebody's script as Python itself would, from inside another program."""

from __future__ import annotations
import __future__

import ast
import contextlib
import functools
import importlib.util
import operator
import os
import runpy
import symtable
import sys
import types
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import TracebackType

_FUTURE = functools.reduce(
    operator.or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)
INTERRUPTED = 130
NOBODY_READS = 141  # as a shell says it of a program that SIGPIPE ended


# Called after each of a script's own statements.
Between = Callable[[], None]


class Script:
    """The script as Python would run it: as __main__, from its own folder."""

    def __init__(self, path: str, args: list[str]) -> None:
        with open(path, "rb") as source:
            self._code = source.read()
        self._path = path
        self.name = Path(path).stem
        self._main = _new_main()
        self._main.__file__ = path
        sys.argv = [path, *args]
        sys.path[0] = str(Path(path).resolve().parent)

    def defines(self, name: str) -> bool:
        """Whether one of its own statements may give it a global of this name."""
        try:
            names = symtable.symtable(self._code.decode(), self._path, "exec")
            imports_all = any(
                isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
                for node in ast.walk(ast.parse(self._code))
            )
            return imports_all or _is_bound(names, name)
        except (SyntaxError, ValueError):  # running it tells more
            return True

    def run(self, between: Between | None = None) -> None:
        _execute(self._code, self._path, self._main, between)


def _is_bound(names: symtable.SymbolTable, name: str) -> bool:
    if name not in names.get_identifiers():
        return False
    symbol = names.lookup(name)
    return symbol.is_assigned() or symbol.is_imported()


class Module:
    """The module as `python -m` would run it."""

    def __init__(self, name: str, args: list[str]) -> None:
        self._name = self.name = name
        sys.argv = [name, *args]
        sys.path[0] = os.getcwd()

    def defines(self, name: str) -> bool:
        return True  # its source need not be there

    def run(self, between: Between | None = None) -> None:
        source = None if between is None else self._source()
        if source is None:
            runpy.run_module(self._name, run_name="__main__", alter_sys=True)
            return
        main = _new_main()
        code, spec = source
        main.__spec__, main.__loader__, main.__package__ = spec, spec.loader, spec.parent
        main.__file__ = sys.argv[0] = str(spec.origin)
        _execute(code, str(spec.origin), main, between)

    def _source(self) -> tuple[str, ModuleSpec] | None:
        for name in (f"{self._name}.__main__", self._name):
            with contextlib.suppress(ImportError):
                spec = importlib.util.find_spec(name)
                source = getattr(spec and spec.loader, "get_source", lambda name: None)(name)
                if spec is not None and source is not None:
                    return source, spec
        return None


def _new_main() -> types.ModuleType:
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    return main


def _execute(
    source: str | bytes, path: str, main: types.ModuleType, between: Between | None
) -> None:
    if between is None:
        exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)
        return
    features = 0  # that `from __future__` has turned on
    for statement in ast.parse(source, path).body:
        part = ast.Module([statement], [])
        code = compile(part, path, "exec", flags=features, dont_inherit=True)
        features |= code.co_flags & _FUTURE
        exec(code, main.__dict__)
        between()


def _trim(trace: TracebackType | None) -> TracebackType | None:
    """Without the frames that only running it under peakline adds."""
    hidden = (str(Path(__file__).parent), runpy.__file__, "<frozen runpy>")
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(hidden):
        trace = trace.tb_next
    return trace


def exit_status(code: object) -> int:
    """The exit status that Python gives to sys.exit(code)."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def show(raised: BaseException) -> None:
    """The exception as Python shows it, without the frames that only running it here adds."""
    error = raised.with_traceback(_trim(raised.__traceback__))
    sys.excepthook(type(error), error, error.__traceback__)


def for_a_reader(command: Callable[[], int]) -> int:
    """Its exit status, also when who reads the output goes away before the end (`| head`)."""
    try:
        status = command()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more
        return NOBODY_READS
    return status


def execute(run: Callable[[], None]) -> int:
    """The exit status of running it; an exception has been shown."""
    try:
        run()
    except SystemExit as end:
        return exit_status(end.code)
    except BaseException as raised:
        show(raised)
        return INTERRUPTED if isinstance(raised, KeyboardInterrupt) else 1
    return 0
