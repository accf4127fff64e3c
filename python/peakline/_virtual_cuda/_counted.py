"""Whole numbers that a program reads to count something, and not to make something as large.

`correct += (guess == y).sum().item()` stands in most training loops. What is only added up,
divided, collected in a list for a score, and shown decides no size. Nor do tokens that become text:
`tokenizer.decode(tokens.tolist())`. That is seen in the program's own text; what is not seen to be
harmless is not.
"""

from __future__ import annotations

import ast
import functools
import linecache
from types import CodeType, FrameType

_READS = {"item", "int", "tolist", "array", "asarray"}
_SHOWS = {"print", "format", "str", "float", "round", "write", "log"}
_SHOWS |= {"debug", "info", "warning", "add_scalar", "set_description"}
_COLLECTS = {"append", "extend"}
# Of a list only how long it is, or how good.
_SHOWS |= {"len", "add_batch", "compute", "decode", "batch_decode"}
_SCORES = ("_score", "_report", "_matrix", "_error")
_Place = tuple[int | None, int | None, int | None, int | None]


def is_only_counted(frame: FrameType) -> bool:
    """The number that this frame reads just now."""
    return _is_counted_at(frame.f_code, frame.f_lasti)


@functools.lru_cache(maxsize=256)
def _is_counted_at(code: CodeType, instruction: int) -> bool:
    text = _Text.of(code.co_filename)
    place = list(code.co_positions())[instruction // 2]
    read = text.call_at(place) if text else None
    if not text or not read or _name_of(read) not in _READS:
        return False
    if _name_of(read) == "tolist" and text.is_statement(read):
        return False  # nothing shows that it becomes text
    return text.is_number(read, frozenset())


class _Text:
    """Of a file."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._parents = {
            child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)
        }

    @staticmethod
    @functools.lru_cache(maxsize=64)
    def of(filename: str) -> _Text | None:
        try:
            return _Text(ast.parse("".join(linecache.getlines(filename))))
        except (SyntaxError, ValueError, RecursionError):
            return None

    def call_at(self, place: _Place) -> ast.Call | None:
        for node in ast.walk(self._tree):
            if not isinstance(node, ast.Call) or node.lineno > (place[0] or 0):
                continue
            if (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset) == place:
                return node
        return None

    def is_statement(self, node: ast.expr) -> bool:
        return isinstance(self._parents[node], ast.Expr)

    def is_number(self, node: ast.expr, met: frozenset[str]) -> bool:
        """Of what is made of the expression; `met`: variables that are looked at already."""
        around = self._parents[node]
        if isinstance(around, ast.BinOp):
            other = around.left if around.right is node else around.right
            return _makes_a_number(around, other) or self.is_number(around, met)
        if isinstance(around, ast.UnaryOp):
            return self.is_number(around, met)
        if isinstance(around, ast.AugAssign):
            target = around.target
            return not isinstance(target, ast.Name) or self._is_variable(target, met)
        if isinstance(around, ast.Assign) and len(around.targets) == 1:
            made = around.targets[0]
            return isinstance(made, ast.Name) and self._is_variable(made, met)
        if isinstance(around, ast.keyword):
            around = self._parents[around]
        if isinstance(around, ast.Call):
            return around.func is not node and self._is_number_there(around, met)
        if isinstance(around, ast.Attribute):  # the list that others are added to
            return around.attr in _COLLECTS and isinstance(self._parents[around], ast.Call)
        if isinstance(around, ast.Tuple):  # "%d of %d" % (one, two)
            whole = self._parents[around]
            return isinstance(whole, ast.BinOp) and _is_text(whole.left)
        return isinstance(around, ast.FormattedValue | ast.Expr)

    def _is_number_there(self, call: ast.Call, met: frozenset[str]) -> bool:
        """As an argument of the call."""
        name = _name_of(call)
        if name in _COLLECTS and isinstance(call.func, ast.Attribute):
            to = call.func.value
            return not isinstance(to, ast.Name) or self._is_variable(to, met)
        return name in _SHOWS or name.endswith(_SCORES)

    def _is_variable(self, name: ast.Name, met: frozenset[str]) -> bool:
        """All that is done with it."""
        if name.id in met:
            return True
        scope = self._scope(name)
        nodes = list(ast.walk(scope))
        if any(
            isinstance(one, ast.Global | ast.Nonlocal) and name.id in one.names for one in nodes
        ):
            return False
        uses = [
            one
            for one in nodes
            if isinstance(one, ast.Name) and one.id == name.id and isinstance(one.ctx, ast.Load)
        ]
        return all(self.is_number(use, met | {name.id}) for use in uses)

    def _scope(self, node: ast.AST) -> ast.AST:
        while node in self._parents and not isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        ):
            node = self._parents[node]
        return node


def _name_of(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _makes_a_number(made: ast.BinOp, other: ast.expr) -> bool:
    """A quotient, a fraction, or text."""
    if isinstance(made.op, ast.Div):
        return True
    if isinstance(made.op, ast.Mod) and _is_text(made.left):
        return True
    return isinstance(other, ast.Constant) and isinstance(other.value, float)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
