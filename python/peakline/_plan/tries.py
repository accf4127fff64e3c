"""Plans and what they need: each an estimate, unless it is remembered."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from peakline import _C
from peakline._estimate import arguments
from peakline._estimate.arguments import complain
from peakline._fit.remembered import Remembered
from peakline._plan.arguments import Orders
from peakline._plan.document import Plan
from peakline._plan.estimates import Result, Task
from peakline._plan.probe import Found
from peakline._plan.tried import Tried
from peakline.run import format_size

_PROBE = "probe"


class Runner(Protocol):
    def run(
        self, tasks: Sequence[Task], done: Callable[[int, Result], None], script: str | None
    ) -> None: ...
    def close(self) -> None: ...


class ScriptFailed(Exception):
    """The script fails without any change, for another reason than memory."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Tries:
    def __init__(self, orders: Orders, runner: Runner) -> None:
        self._orders = orders
        self._runner = runner
        self.made = 0
        self.recalled = 0
        self.dropped: list[tuple[Plan, str]] = []  # plans that the script cannot have, and why
        self._known: dict[str, Tried | None] = {}
        self._base: Plan | None = None  # without which there is nothing to compare with
        first = Plan(arguments={one.name: one.values[0] for one in orders.vary})
        self._script: str | None = arguments.parse(orders.estimate_words(first)).script
        import torch

        words = ["plan", *orders.own, "--", *orders.words]
        self._remembered = Remembered(words, (_C.version, str(torch.__version__)))

    def probe_and_ask(self, base: Plan) -> tuple[Found, Tried]:
        """Looks at the program closely, and estimates it as it is."""
        self._base = base
        kept = None if self._orders.forget else self._remembered.get_text(self._probe_key(base))
        probe: list[Found] = [Found.from_json(kept["probe"])] if kept else []
        tasks: list[Task] = []
        if not probe:
            words = self._orders.estimate_words(base, ("--steps", "1", "--eager"))
            tasks.append(Task(words, probe=True))
            complain("looking at the script's layers and ops")

        def taken(result: Result) -> None:
            if result.answer is None or "probe" not in result.answer:
                self._fail(result)
            assert result.answer is not None
            self._keep(self._probe_key(base), {"probe": result.answer["probe"]}, result.files)
            probe.append(Found.from_json(result.answer["probe"]))

        (tried,) = self._ask([base], extra=[(task, taken) for task in tasks])
        if tried is None:
            raise ScriptFailed(1, "the script as it is cannot be estimated, so nothing can be said")
        return probe[0], tried

    def ask(self, plans: Sequence[Plan]) -> list[Tried | None]:
        """What each needs, in the same order; None where the script cannot have it."""
        return self._ask(plans)

    def whole(self, plan: Plan, memory: int | None) -> dict[str, Any]:
        """The whole answer for one plan, under the real limit: the proof."""
        found: list[Result] = []
        words = self._orders.estimate_words(plan)
        if memory is not None:
            words[words.index("--") : words.index("--")] = ["--memory", str(memory)]
        task = Task(words, _text(plan), whole=True)
        self._runner.run([task], lambda number, result: found.append(result), self._script)
        if found[0].answer is None:
            self._fail(found[0])
        return found[0].answer or {}

    def _ask(
        self, plans: Sequence[Plan], extra: Sequence[tuple[Task, Callable[[Result], None]]] = ()
    ) -> list[Tried | None]:
        tasks = [task for task, _ in extra]
        then: list[Callable[[Result], None]] = [act for _, act in extra]
        for plan in {_key(plan): plan for plan in plans}.values():
            if _key(plan) in self._known or self._recall(plan):
                continue
            tasks.append(Task(self._orders.estimate_words(plan), _text(plan)))
            then.append(lambda result, plan=plan: self._take(plan, result))  # type: ignore[misc]
        if tasks:
            self._runner.run(tasks, lambda number, result: then[number](result), self._script)
        return [self._known[_key(plan)] for plan in plans]

    def _recall(self, plan: Plan) -> bool:
        kept = None if self._orders.forget else self._remembered.get_text(_key(plan))
        if kept is None:
            return False
        self.recalled += 1
        if "refused" in kept:
            self._drop(plan, kept["refused"], " (remembered)")
        else:
            self._known[_key(plan)] = tried = Tried(plan, kept)
            complain(f"{tried.line()} (remembered)")
        return True

    def _take(self, plan: Plan, result: Result) -> None:
        self.made += 1
        answer = result.answer
        # Nothing limits memory here, so a script that fails does so for another reason.
        if answer is not None and not answer.get("partial") and answer.get("step_ms"):
            self._keep(_key(plan), answer, result.files)
            self._known[_key(plan)] = tried = Tried(plan, answer)
            complain(tried.line())
            return
        if plan == self._base:
            self._fail(result)
        if not result.lost:
            self._keep(_key(plan), {"refused": result.reason}, result.files)
        self._drop(plan, result.reason, "")

    def _drop(self, plan: Plan, why: str, how: str) -> None:
        self._known[_key(plan)] = None
        self.dropped.append((plan, why))
        complain(f"{'; '.join(plan.changes())}: cannot be, {why}{how}")

    def _keep(self, key: str, made: dict[str, Any], files: Sequence[str]) -> None:
        self._remembered.keep_text(key, made, files)

    def _fail(self, result: Result) -> None:
        sys.stderr.write(result.output)
        no_step = result.answer is not None and not result.answer.get("partial")
        what = "made no step of an optimizer" if no_step else "failed"
        raise ScriptFailed(result.status or 1, f"the script {what}, so nothing can be planned")

    @staticmethod
    def _probe_key(base: Plan) -> str:
        return f"{_PROBE} {_key(base)}"


def _key(plan: Plan) -> str:
    return json.dumps({**plan.to_json(), "about": None}, sort_keys=True)


def _text(plan: Plan) -> str:
    """The plan without the script's arguments, which are on the command line."""
    made = plan.to_json()
    made.pop("arguments", None)
    return "" if set(made) <= {"schema_version", "model", "about"} else json.dumps(made)


def size_line(size: int) -> str:
    return format_size(size)
