"""`peakline plan`: the C++ program starts it."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from peakline import _script
from peakline._estimate.arguments import BAD_USAGE, complain
from peakline._estimate.outcome import DOES_NOT_FIT
from peakline._plan import arguments, document, text
from peakline._plan.answer import as_json, budget_of
from peakline._plan.clusters import runner_for
from peakline._plan.errors import NoCluster
from peakline._plan.search import Outcome, Search
from peakline._plan.tries import ScriptFailed, Tries


def main(argv: list[str]) -> int:
    orders = arguments.parse(argv)
    try:
        with contextlib.closing(runner_for(orders.on, orders.jobs)) as runner:
            return _plan(orders, Tries(orders, runner))
    except ScriptFailed as failed:
        complain(str(failed))
        return failed.status
    except (ValueError, OSError, ImportError, NoCluster) as error:
        complain(str(error))
        return BAD_USAGE
    except KeyboardInterrupt:
        complain("interrupted; what was estimated is remembered")
        return _script.INTERRUPTED


def _plan(orders: arguments.Orders, tries: Tries) -> int:
    budget = budget_of(orders)
    outcome = Search(tries, orders.vary, orders.levers).run(budget)
    memory = None if orders.memory is None and not orders.margin else budget
    whole = _proof(outcome, tries, budget, memory)
    shown = outcome.chosen or outcome.floor
    answer = as_json(whole, outcome, orders, budget, tries)
    if orders.output and outcome.chosen is not None:
        about: dict[str, Any] = {"memory": budget, "peak_reserved": shown.reserved}
        about |= {"step_ms": shown.step_ms, "gpu": whole["gpu"], "torch": whole["torch"]}
        document.write(document.Plan(**{**vars(shown.plan), "about": about}), orders.output)
    if orders.json == "-":
        print(json.dumps(answer))
    else:
        if orders.json:
            Path(orders.json).write_text(json.dumps(answer) + "\n")
        print(text.of_plan(answer, outcome, orders, budget), end="")
    return 0 if outcome.chosen is not None else DOES_NOT_FIT


def _proof(outcome: Outcome, tries: Tries, budget: int, memory: int | None) -> dict[str, Any]:
    """The chosen plan once more, under the real limit. One that does not hold is not chosen."""
    while outcome.chosen is not None:
        whole = tries.whole(outcome.chosen.plan, memory)
        if whole["gpu_fits"]:
            return whole
        complain(f"{outcome.chosen.line()}: does not fit under the limit")
        outcome.reject(outcome.chosen, budget)
    return tries.whole(outcome.floor.plan, memory)


if __name__ == "__main__":
    sys.exit(_script.for_a_reader(lambda: main(sys.argv[1:])))
