"""A warm process on a worker of a cluster: reads tasks as lines, forks for each, writes results.

`python -m peakline._plan.worker`: one line of JSON in, one out. It ends with its input.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict

from peakline._fit import named_imports, warm
from peakline._plan.estimates import Task, make, result_of


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever is printed by others is no answer
    for line in sys.stdin:
        order = json.loads(line)
        os.chdir(order["folder"])
        os.environ.clear()
        os.environ.update(order["environment"])
        task = Task(**order["task"])
        script = order.get("script")
        if script:
            warm.import_installed(named_imports.installed(script))
        (outcome,) = warm.run_all([lambda task=task: make(task)])  # type: ignore[misc]
        answers.write(json.dumps(asdict(result_of(outcome))) + "\n")
        answers.flush()
        warm.import_installed(outcome.imported)


if __name__ == "__main__":
    main()
