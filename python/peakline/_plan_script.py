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
from peakline._plan import arguments, document, smaller, text
from peakline._plan.answer import as_json, budget_of
from peakline._plan.clusters import runner_for
from peakline._plan.errors import NoCluster
from peakline._plan.search import Outcome, Search
from peakline._plan.tries import Runner, ScriptFailed, Tries
from peakline._script_sizes import Size


def main(argv: list[str]) -> int:
    orders = arguments.parse(argv)
    try:
        with contextlib.closing(runner_for(orders.on, orders.jobs)) as runner:
            return _plan(orders, runner)
    except ScriptFailed as failed:
        complain(str(failed))
        return failed.status
    except (ValueError, OSError, ImportError, NoCluster) as error:
        complain(str(error))
        return BAD_USAGE
    except KeyboardInterrupt:
        complain("interrupted; what was estimated is remembered")
        return _script.INTERRUPTED


def _plan(orders: arguments.Orders, runner: Runner) -> int:
    tries = Tries(orders, runner)
    budget = budget_of(orders)
    outcome = Search(tries, orders.vary, orders.levers).run(budget)
    memory = None if orders.memory is None and not orders.margin else budget
    whole = _proof(outcome, tries, budget, memory)
    shown = outcome.chosen or outcome.floor
    less = None if outcome.chosen is not None else _smaller(outcome, orders, runner, budget)
    answer = as_json(whole, outcome, orders, budget, tries, less)
    if orders.output and outcome.chosen is not None:
        about: dict[str, Any] = {"memory": budget, "peak_reserved": shown.reserved}
        about |= {"step_ms": shown.step_ms, "gpu": whole["gpu"], "torch": whole["torch"]}
        document.write(document.Plan(**{**vars(shown.plan), "about": about}), orders.output)
    if orders.json == "-":
        print(json.dumps(answer))
    else:
        if orders.json:
            Path(orders.json).write_text(json.dumps(answer) + "\n")
        print(text.of_plan(answer, outcome, orders, budget, less), end="")
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


def _smaller(
    outcome: Outcome, orders: arguments.Orders, runner: Runner, budget: int
) -> smaller.Smaller | None:
    """What would fit with a smaller batch, or length."""
    sizes = smaller.sizes_of(outcome, orders)
    if not sizes:
        return None
    names = " or ".join(one.name for one in sizes)
    complain(f"nothing fits; looking for what would, with a smaller {names}")
    with_less = {one.name: smaller.orders_for(one, orders) for one in sizes}
    tries = {name: Tries(these, runner) for name, these in with_less.items()}

    def holds_for(size: Size) -> smaller.Holds:
        return lambda plan: bool(tries[size.name].whole(plan, budget)["gpu_fits"])

    found = smaller.first_that_fits(
        sizes, outcome, lambda size: tries[size.name].ask, budget, holds_for
    )
    found.command = with_less[found.size.name].search_command()
    return found


if __name__ == "__main__":
    sys.exit(_script.for_a_reader(lambda: main(sys.argv[1:])))
