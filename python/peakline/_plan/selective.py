"""Selective checkpointing of eager programs: some results are kept or wait on the host.

It does what torch's own does, and two things more. Results may wait on the host, which torch does
in compiled programs alone. And it costs the host less: where the GPU is fast a step takes as long
as the host does. Where a plan only keeps, and nobody else watches ops from Python, C++ does it
(recompute/contexts.h). Otherwise modes of Python do, which ask for each op once instead of for each
call.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import SAC_IGNORED_OPS

from peakline import _C
from peakline._plan.document import Calls
from peakline._plan.offload import Hosted, is_worth_it

_CHANGED = "a result that the plan keeps was changed in place after it was made: {op}"
_RANDOM_APART = (
    "ops that draw random numbers are kept together or recomputed together, and the plan keeps "
    "some of them: {kept} and not {other}"
)


def draws(op: Any, args: Any, kwargs: Any) -> bool:
    """Whether this call takes random numbers: attention without dropout takes none."""
    if torch.Tag.nondeterministic_seeded not in getattr(op, "tags", ()):
        return False
    for place, argument in enumerate(op._schema.arguments):
        if argument.name == "dropout_p":
            given = args[place] if place < len(args) else kwargs.get("dropout_p", 0)
            return bool(given)
    return True


class _Rule:
    """What happens to the calls of one op. Asking an op for its hash runs Python, so ops are found
    by their ids; this keeps its op alive."""

    __slots__ = ("call", "keep", "keep_all", "offload", "offload_all", "op", "plain", "random")

    def __init__(self, op: Any, keep: Calls | bool, offload: Calls | bool) -> None:
        """`Calls` as a plan has them; False: of none."""
        self.op = op
        self.call = op._op if type(op) is torch._ops.OpOverload else op
        self.keep_all, self.offload_all = keep is None, offload is None
        self.keep = frozenset(keep or ())  # type: ignore[arg-type]
        self.offload = frozenset(offload or ())  # type: ignore[arg-type]
        self.random = torch.Tag.nondeterministic_seeded in getattr(op, "tags", ())
        # Every call is recomputed, and none draws.
        self.plain = keep is False and offload is False and not self.random

    def action(self, number: int) -> str:
        if self.offload_all or number in self.offload:
            return "offload"
        return "keep" if self.keep_all or number in self.keep else "recompute"


class Rules:
    """Which calls of which ops are kept or offloaded, for all calls of some modules."""

    def __init__(self, keep: Mapping[str, Calls], offload: Mapping[str, Calls]) -> None:
        self._keep, self._offload = keep, offload
        self.native = None if offload else _native(keep)
        self.known: dict[int, _Rule] = {id(op): _Rule(op, False, False) for op in SAC_IGNORED_OPS}

    def of(self, op: Any) -> _Rule:
        rule = self.known.get(id(op))
        if rule is None:
            name = str(op)
            rule = _Rule(op, self._keep.get(name, False), self._offload.get(name, False))
            self.known[id(op)] = rule
        return rule


class Choices:
    """What happens to the ops of one forward, asked in their order."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._called: dict[int, int] = {}
        self._random: dict[str, str] = {}  # what happened to random ops: an op for each

    def of(self, op: Any, args: Any, kwargs: Any) -> tuple[str, int]:
        """ "keep", "offload" or "recompute" for the next call of `op`, and which call it is."""
        return self.of_rule(self._rules.of(op), args, kwargs)

    def of_rule(self, rule: _Rule, args: Any, kwargs: Any) -> tuple[str, int]:
        if rule.plain:
            return "recompute", 0
        number = self._called.get(id(rule.op), 0)
        self._called[id(rule.op)] = number + 1
        action = rule.action(number)
        if rule.random and draws(rule.op, args, kwargs):
            self._check_random(str(rule.op), action)
        return action, number

    def _check_random(self, name: str, action: str) -> None:
        self._random.setdefault("recompute" if action == "recompute" else "keep", name)
        if len(self._random) == 2:
            raise RuntimeError(
                _RANDOM_APART.format(kept=self._random["keep"], other=self._random["recompute"])
            )


class _Kept:
    """A result that stays on the GPU. Nobody may have changed it when it is used."""

    __slots__ = ("_op", "_tensor", "_version")

    def __init__(self, tensor: torch.Tensor, op: Any) -> None:
        # Below autograd a view would count its changes apart from what it is a view of.
        with torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.ADInplaceOrView, False):
            self._tensor = tensor.detach()
        self._op, self._version = op, self._tensor._version

    def back(self) -> torch.Tensor:
        if self._tensor._version != self._version:
            raise RuntimeError(_CHANGED.format(op=self._op))
        return self._tensor


def _hold(value: Any, action: str, op: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return Hosted(value) if action == "offload" and is_worth_it(value) else _Kept(value, op)
    if isinstance(value, (tuple, list)):
        return type(value)([_hold(part, action, op) for part in value])
    return value


def _back(held: Any) -> Any:
    if isinstance(held, (_Kept, Hosted)):
        return held.back()
    if isinstance(held, (tuple, list)):
        return type(held)([_back(part) for part in held])
    return held


def _mark(function: Any) -> bool:
    """Tells Dynamo to leave it alone, and whatever it calls; whether this torch can be told so."""
    try:
        from torch._C._dynamo import eval_frame
    except ImportError:
        return False
    if not hasattr(eval_frame, "set_code_exec_strategy"):
        return False
    skip = eval_frame._FrameAction.SKIP
    strategy = eval_frame._FrameExecStrategy(skip, skip)
    eval_frame.set_code_exec_strategy(function.__code__, strategy)
    return True


class _Mode(TorchDispatchMode):
    supports_higher_order_operators = True  # which are recomputed

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch would put four functions around each call to keep Dynamo out of it; a mark on the
        code does, too."""
        own = vars(cls).get("__torch_dispatch__")
        return own is not None and not _mark(own)


Results = dict[int, dict[int, Any]]  # by the op's id and the number of its call


class _Forward(_Mode):
    def __init__(self, rules: Rules, results: Results) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._rules, self._known = rules, rules.known
        self._choices = Choices(rules)
        self._results = results

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        rule = self._known.get(id(func)) or self._rules.of(func)
        out = rule.call(*args, **kwargs) if kwargs else rule.call(*args)
        if rule.plain:  # as most ops are
            return out
        action, number = self._choices.of_rule(rule, args, kwargs or {})
        if action != "recompute":
            self._results.setdefault(id(func), {})[number] = _hold(out, action, func)
        return out


class _Recompute(_Mode):
    def __init__(self, rules: Rules, results: Results) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._rules, self._known = rules, rules.known
        self._results = results
        self._called: dict[int, int] = {}

    def __enter__(self) -> Any:
        self._called.clear()
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = self._results.get(id(func))
        if results is not None:
            number = self._called.get(id(func), 0)
            self._called[id(func)] = number + 1
            if number in results:
                return _back(results.pop(number))
        rule = self._known.get(id(func)) or self._rules.of(func)
        return rule.call(*args, **kwargs) if kwargs else rule.call(*args)


class _Again:
    """The recomputation of what C++ has kept; by a mode where somebody watches ops from Python, who
    would otherwise see ops that are not computed."""

    def __init__(self, rules: Rules, native: Any) -> None:
        self._rules, self._native = rules, native

    def __enter__(self) -> None:
        self._used = self._native if nobody_watches() else self._mode()
        self._used.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._used.__exit__(*error)

    def _mode(self) -> _Recompute:
        kept = self._native.take()
        return _Recompute(self._rules, {id(_operator(name)): kept[name] for name in kept})


def contexts(rules: Rules) -> tuple[Any, Any]:
    """For one call of a module: forward's and the recomputation's."""
    if rules.native is not None and nobody_watches():
        forward, recomputation = rules.native.contexts()
        return forward, _Again(rules, recomputation)
    results: Results = {}
    return _Forward(rules, results), _Recompute(rules, results)


def _native(keep: Mapping[str, Calls]) -> Any:
    """The rules in C++, where an op with a schema is all that they name."""
    if not _C.recompute.available() or not all(_operator(name) for name in keep):
        return None
    never = {str(op) for op in SAC_IGNORED_OPS}
    return _C.recompute.Rules(dict(keep), never)


def _operator(name: str) -> Any:
    """Of "aten.mm.default"; None where there is none."""
    space, _, rest = name.partition(".")
    packet, _, overload = rest.rpartition(".")
    try:
        return getattr(getattr(getattr(torch.ops, space), packet), overload)
    except (AttributeError, RuntimeError):
        return None


def nobody_watches() -> bool:
    """Whether ops are those of the program alone: no mode of Python is on, and nothing compiles."""
    if torch._C._len_torch_dispatch_stack():
        return False
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    return dynamo is None or not any(callable(one) for one in dynamo.cached_backends.values())
