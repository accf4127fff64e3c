"""`peakline estimate … --curve NAME=…`: one estimate for each value, as a table and a picture."""

from __future__ import annotations

import argparse
import itertools
import json
from typing import Any

from peakline import _new_file
from peakline._estimate import launchers
from peakline._estimate.arguments import complain
from peakline._fit import chart, variables
from peakline._fit.arguments import Orders, _Parser, variable
from peakline._fit.tries import DOES_NOT_FIT, Tries, TryFailed
from peakline._script import INTERRUPTED
from peakline.run import format_size

_KEYS = ("fits", "peak_allocated", "peak_reserved", "host_peak", "prefill", "decode")


def is_asked_for(argv: list[str]) -> bool:
    own, _ = launchers.split(argv)
    return any(word == "--curve" or word.startswith("--curve=") for word in own)


def main(argv: list[str]) -> int:
    orders, given = _orders(argv)
    tries = Tries(orders)
    names = [variable.name for variable in orders.vary]
    points = [
        dict(zip(names, values, strict=True))
        for values in itertools.product(*(variable.values for variable in orders.vary))
    ]
    try:
        answers = tries.ask(points[:1]) + tries.ask(points[1:])  # the first warms the others
    except TryFailed as failed:
        complain(str(failed))
        return failed.status
    except KeyboardInterrupt:
        return INTERRUPTED
    curve = [
        {**point, **{key: answer.get(key) for key in _KEYS}}
        for point, answer in zip(points, answers, strict=True)
    ]
    largest = max(answers, key=lambda answer: answer["peak_allocated"])
    if given.json == "-":
        print(json.dumps({**largest, "curve": curve}))
    else:
        if given.json:
            _new_file.write_text(given.json, json.dumps({**largest, "curve": curve}) + "\n")
        print(_table(names, curve), end="")
    if given.output:
        _new_file.write_text(given.output, chart.svg(names, curve, largest["memory_limit"]))
    return 0 if all(answer["fits"] for answer in answers) else DOES_NOT_FIT


def _orders(argv: list[str]) -> tuple[Orders, argparse.Namespace]:
    own, words = launchers.split(argv)
    parser = _Parser(prog="peakline estimate", add_help=False, allow_abbrev=False)
    parser.add_argument("--curve", action="append", default=[], type=variable)
    parser.add_argument("--json")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("-o", dest="output")
    given, rest = parser.parse_known_args(own)
    if given.output and not given.output.endswith(".svg"):
        parser.error(f"the picture of a --curve is an .svg file, and '{given.output}' is none")
    vary = [variables.doubling(variable) for variable in given.curve]
    return Orders(vary, 0.0, given.jobs, given.json, False, True, rest, words), given


def _table(names: list[str], curve: list[dict[str, Any]]) -> str:
    has_phases = any(row["prefill"] for row in curve)
    head = [*names, *(["prefill", "decoding"] if has_phases else []), "allocated", "reserved", ""]
    rows = [head]
    for row in curve:
        cells = [str(row[name]) for name in names]
        if has_phases:
            cells += [_peak(row[phase]) for phase in ("prefill", "decode")]
        cells += [format_size(row["peak_allocated"]), format_size(row["peak_reserved"])]
        rows.append([*cells, "" if row["fits"] else "does not fit"])
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = []
    for line in rows:
        cells = [cell.rjust(width) for cell, width in zip(line[:-1], widths, strict=False)]
        lines.append("  ".join([*cells, line[-1]]).rstrip())
    return "\n".join(lines) + "\n"


def _peak(phase: dict[str, int] | None) -> str:
    return format_size(phase["peak_allocated"]) if phase else "-"
