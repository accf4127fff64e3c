"""Which nodes of its graph a buffer of Inductor's written code belongs to."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from types import CodeType
from typing import NamedTuple

NOTE = "_peakline_note"  # called with a buffer and its number

_NODES = re.compile(r"#.*\bSource Nodes: \[(?P<names>[^\]]*)\]")
_FUNCTION = re.compile(r"call$|partition_\d+$")
_ALLOCATES = re.compile(r"empty_strided_\w+$")
_RETURNS = re.compile(r"(torch\.ops|extern_kernels|aten)\.")
_LAUNCHES = re.compile(r"\w+\.run$|extern_kernels\.|torch\.ops\.|cpp_\w+$|aten\.")

Names = tuple[str, ...]


class NotedCode(NamedTuple):
    functions: dict[str, CodeType]  # by qualified name: the same, and each buffer is noted
    buffers: list[Names]  # by number: the nodes of the kernel that fills it, in order


def noted_code(source: str, path: str) -> NotedCode | None:
    """Nothing where the code has no buffers with a comment."""
    tree = ast.parse(source)
    comments = _comments(source)
    kernels = _kernels(tree, comments)
    buffers: list[Names] = []
    wanted = []
    for name, function in _functions(tree):
        wanted.append(name)
        _Function(function, comments, kernels).note(buffers)
    if not buffers:
        return None
    ast.fix_missing_locations(tree)
    compiled = dict(_codes(compile(tree, path, "exec", dont_inherit=True), ""))
    return NotedCode({name: compiled[name] for name in wanted}, buffers)


class _Function:
    """One function's statements, in the order of their lines."""

    def __init__(
        self, function: ast.FunctionDef, comments: dict[int, Names], kernels: dict[str, Names]
    ) -> None:
        self._function = function
        self._comments = comments
        self._kernels = kernels
        self._statements = sorted(_simple_statements(function), key=lambda item: item.lineno)
        self._nodes = self._nodes_of_launches()

    def note(self, buffers: list[Names]) -> None:
        """Puts a note behind each statement that allocates; the nodes go to `buffers`."""
        for body in _bodies(self._function):
            noted: list[ast.stmt] = []
            for statement in body:
                noted.append(statement)
                names = self._owner(statement)
                if names:
                    noted.append(_note(_target(statement), len(buffers), statement))
                    buffers.append(names)
            body[:] = noted

    def _owner(self, statement: ast.stmt) -> Names:
        name, call = _target(statement), _called(statement)
        if not name or not call:
            return ()
        if _RETURNS.match(call):
            return self._nodes.get(statement.lineno, ())
        return self._first_use(name, statement.lineno) if _ALLOCATES.match(call) else ()

    def _first_use(self, name: str, line: int) -> Names:
        """What fills a buffer is the first to be launched with it, by whichever name."""
        names = {name}
        for statement in self._statements:
            if statement.lineno <= line or not names & _mentioned(statement):
                continue
            if statement.lineno in self._nodes:
                return self._nodes[statement.lineno]
            if _is_launch(statement) or isinstance(statement, ast.Return):
                return ()
            if target := _target(statement):
                names.add(target)
        return ()

    def _nodes_of_launches(self) -> dict[int, Names]:
        found, last = {}, 0
        for statement in filter(_is_launch, self._statements):
            kernel = _called(statement).removesuffix(".run")
            names = _above(self._comments, statement.lineno, last) or self._kernels.get(kernel)
            if names:
                found[statement.lineno] = names
            last = statement.lineno
        return found


def _comments(source: str) -> dict[int, Names]:
    """By line."""
    found = {}
    for number, line in enumerate(source.splitlines(), 1):
        match = _NODES.search(line)
        if match:
            found[number] = tuple(name.strip() for name in match["names"].split(",") if name)
    return found


def _above(comments: dict[int, Names], line: int, after: int) -> Names:
    """The nearest comment above a line, and below line `after`."""
    near = max((number for number in comments if after < number < line), default=0)
    return comments.get(near, ())


def _kernels(tree: ast.Module, comments: dict[int, Names]) -> dict[str, Names]:
    """By name: what stands above the definition of each."""
    found, last = {}, 0
    for statement in tree.body:
        if _called(statement).startswith("async_compile."):
            found[_target(statement)] = _above(comments, statement.lineno, last)
        last = statement.end_lineno or last
    return found


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef):
            for member in statement.body:
                if isinstance(member, ast.FunctionDef) and _FUNCTION.match(member.name):
                    yield f"{statement.name}.{member.name}", member
        elif isinstance(statement, ast.FunctionDef) and _FUNCTION.match(statement.name):
            yield statement.name, statement


def _bodies(block: ast.AST) -> Iterator[list[ast.stmt]]:
    body = getattr(block, "body", None)
    if isinstance(body, list):
        yield body
        for statement in list(body):
            yield from _bodies(statement)


def _simple_statements(function: ast.FunctionDef) -> Iterator[ast.stmt]:
    for body in _bodies(function):
        yield from (item for item in body if not hasattr(item, "body"))


def _target(statement: ast.stmt) -> str:
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return ""
    target = statement.targets[0]
    return target.id if isinstance(target, ast.Name) else ""


def _called(statement: ast.stmt) -> str:
    value = statement.value if isinstance(statement, ast.Assign | ast.Expr) else None
    return ast.unparse(value.func) if isinstance(value, ast.Call) else ""


def _is_launch(statement: ast.stmt) -> bool:
    return bool(_LAUNCHES.match(_called(statement)))


def _mentioned(statement: ast.stmt) -> set[str]:
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def _note(name: str, number: int, beside: ast.stmt) -> ast.stmt:
    call = ast.Call(
        func=ast.Name(id=NOTE, ctx=ast.Load()),
        args=[ast.Name(id=name, ctx=ast.Load()), ast.Constant(value=number)],
        keywords=[],
    )
    return ast.copy_location(ast.Expr(value=call), beside)


def _codes(code: CodeType, prefix: str) -> Iterator[tuple[str, CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            name = prefix + constant.co_name
            yield name, constant
            yield from _codes(constant, f"{name}.")
