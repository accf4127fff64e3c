"""The picture of `peakline estimate … --curve`, from rows that no estimate made."""

import xml.etree.ElementTree as ElementTree
from typing import Any

from peakline._fit import chart

MIB = 1 << 20
SVG = "{http://www.w3.org/2000/svg}"


def rows(*values: tuple[int, int], generates: bool = False) -> list[dict[str, Any]]:
    made = []
    for batch, length in values:
        size = batch * length * MIB
        phases = {"prefill": {"peak_reserved": size}, "decode": {"peak_reserved": size // 2}}
        more = phases if generates else {"prefill": None, "decode": None}
        made.append({"batch": batch, "length": length, "peak_reserved": size, **more})
    return made


def texts(picture: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def test_each_value_of_the_shorter_variable_has_a_line() -> None:
    curve = rows(*((batch, length) for batch in (1, 2) for length in (16, 32, 64)))
    picture = chart.svg(["batch", "length"], curve, None)
    assert [text for text in texts(picture) if "reserved" in text] == [
        "batch 1 reserved",
        "batch 2 reserved",
    ]
    assert "length" in texts(picture)
    assert len(list(ElementTree.fromstring(picture).iter(f"{SVG}circle"))) == 6


def test_prefill_and_decoding_are_drawn_apart() -> None:
    picture = chart.svg(["batch"], rows((1, 16), (2, 16), generates=True), None)
    said = [text for text in texts(picture) if text in ("reserved", "prefill", "decoding")]
    assert said == ["reserved", "prefill", "decoding"]
    assert picture.count("stroke-dasharray") == 4  # two lines, and their two in the legend


def test_a_limit_that_is_near_is_drawn_and_one_that_is_far_is_not() -> None:
    curve = rows((1, 16), (2, 16))
    assert "limit 40.00 MiB" in texts(chart.svg(["batch"], curve, 40 * MIB))
    assert not any("limit" in text for text in texts(chart.svg(["batch"], curve, 4096 * MIB)))


def test_a_single_value_is_a_point() -> None:
    picture = chart.svg(["batch"], rows((1, 16)), None)
    assert len(list(ElementTree.fromstring(picture).iter(f"{SVG}circle"))) == 1


def test_names_are_escaped() -> None:
    curve = [{"a<b": 1, "peak_reserved": MIB}, {"a<b": 2, "peak_reserved": MIB}]
    assert "a<b" in texts(chart.svg(["a<b"], curve, None))
