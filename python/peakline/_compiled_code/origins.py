"""What the nodes of a traced graph know: their module, and the line that they were traced from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

# An nn_module_stack in the order of calls: names as Dynamo writes them, and classes.
Stack = Mapping[str, tuple[str, Any]]

_TOP = re.compile(r"[LG]\['\w+'\]\.")  # a variable of the function that was traced
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


class Origin(NamedTuple):
    path: str  # from the module that was compiled
    kind: str  # the class
    line: str  # "model.py:12", "" where nobody knows


Origins = dict[str, Origin]


def origins_of(graph_module: Any) -> Origins:
    """By the names that Inductor calls them: Dynamo's own nodes, and those of backward."""
    found: Origins = {}
    for node in graph_module.graph.nodes:
        if "from_node" in node.meta and node.meta.get("partitioner_tag") != "is_backward":
            continue  # known by the name of the node that it came from
        stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
        if stack:
            found[node.name] = _origin(stack, node.meta.get("stack_trace") or "")
    return found


def _origin(stack: Stack, trace: str) -> Origin:
    *_, (name, kind) = stack.values()
    return Origin(_TOP.sub("", name), _class_name(kind), _line(trace))


def _class_name(kind: Any) -> str:
    """Graphs that were kept on disk have names in place of classes."""
    return kind.__name__ if isinstance(kind, type) else str(kind).rpartition(".")[2]


def _line(trace: str) -> str:
    frames = list(_FRAME.finditer(trace))
    if not frames:
        return ""
    return f"{PurePath(frames[-1]['file']).name}:{frames[-1]['line']}"
