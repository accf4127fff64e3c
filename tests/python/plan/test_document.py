"""Plans as JSON: what is wrong is one sentence that says where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peakline._plan import document, names
from peakline._plan.document import Activations, Plan
from peakline._plan.errors import PlanError

PLAN = Plan(
    "Llama",
    (
        Activations(("layers.0", "layers.1", "layers.2"), "recompute"),
        Activations(
            ("layers.3",), "selective", {"aten.mm.default": (0, 2), "aten.mul.Tensor": None}
        ),
    ),
    {"optimizer.implementation": "fused", "fsdp.reshard_after_forward": 2},
    {"batch-size": 4},
)


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    document.write(PLAN, tmp_path / "p.json")
    assert document.load(tmp_path / "p.json") == PLAN
    assert '"layers.{0..2}"' in (tmp_path / "p.json").read_text()


def test_ranges_of_names_are_written_short_and_read_again() -> None:
    listed = ["a.0.b", "a.1.b", "a.3.b", "c", "d.0", "d.1", "d.2"]
    assert names.compress(listed) == ["a.{0..1}.b", "a.3.b", "c", "d.{0..2}"]
    assert [name for one in names.compress(listed) for name in names.expand(one)] == listed


BAD: list[tuple[Any, str]] = [
    ([], "one JSON object"),
    ({}, "schema_version is not 1"),
    ({"schema_version": 2}, "schema_version is not 1"),
    ({"schema_version": True}, "schema_version is not 1"),
    ({"schema_version": 1, "optimiser": {}}, "did you mean 'optimizer'"),
    ({"schema_version": 1, "optimizer": []}, "'optimizer' is an object"),
    ({"schema_version": 1, "optimizer": {"fused": True}}, "has no 'fused'"),
    ({"schema_version": 1, "optimizer": {"implementation": "fast"}}, "takes 'fused', 'foreach'"),
    ({"schema_version": 1, "optimizer": {"in_backward": 1}}, "takes true or false"),
    (
        {"schema_version": 1, "optimizer": {"in_backward": True, "state": "host"}},
        "either in backward",
    ),
    ({"schema_version": 1, "allocator": "expandable:1"}, "as in PYTORCH_ALLOC_CONF"),
    ({"schema_version": 1, "allocator": 3}, "as in PYTORCH_ALLOC_CONF"),
    ({"schema_version": 1, "fsdp": {"replicate": 0}}, "takes the number of groups"),
    ({"schema_version": 1, "arguments": {"a b": 1}}, "no name of an argument"),
    ({"schema_version": 1, "arguments": {"lr": 0.5}}, "whole number"),
    ({"schema_version": 1, "activations": {}}, "'activations' is a list"),
    ({"schema_version": 1, "activations": [3]}, r"activations\[0\] is an object"),
    ({"schema_version": 1, "activations": [{"policy": "drop"}]}, r"\[0\].policy is one of"),
    (
        {"schema_version": 1, "activations": [{"policy": "recompute", "modules": []}]},
        "list of names",
    ),
    (
        {"schema_version": 1, "activations": [{"policy": "recompute", "modules": ["a/b"]}]},
        "names no module",
    ),
    (
        {"schema_version": 1, "activations": [{"policy": "recompute", "modules": ["a.{5..2}"]}]},
        "no range",
    ),
    (
        {
            "schema_version": 1,
            "activations": [{"policy": "recompute", "modules": ["a.{0..999999999999}"]}],
        },
        "no range",
    ),
    (
        {"schema_version": 1, "activations": [{"policy": "recompute", "modules": ["a", "a"]}]},
        "named before",
    ),
    (
        {"schema_version": 1, "activations": [{"policy": "recompute", "modules": ["a", "a.b"]}]},
        "a.b lies inside a",
    ),
    (
        {
            "schema_version": 1,
            "activations": [
                {"policy": "recompute", "modules": ["a"], "keep": {"aten.mm.default": "all"}}
            ],
        },
        "for the policy 'selective'",
    ),
    (
        {
            "schema_version": 1,
            "activations": [{"policy": "selective", "modules": ["a"], "keep": {"mm": "all"}}],
        },
        "'mm' is no op",
    ),
    (
        {
            "schema_version": 1,
            "activations": [
                {"policy": "selective", "modules": ["a"], "keep": {"aten.mmm.default": "all"}}
            ],
        },
        "torch has no op 'aten.mmm.default'",
    ),
    (
        {
            "schema_version": 1,
            "activations": [
                {"policy": "selective", "modules": ["a"], "keep": {"aten.mm.default": [-1]}}
            ],
        },
        "counted from 0",
    ),
    (
        {
            "schema_version": 1,
            "activations": [
                {
                    "policy": "selective",
                    "modules": ["a"],
                    "keep": {"aten.mm.default": "all"},
                    "offload": {"aten.mm.default": [1]},
                }
            ],
        },
        "both kept and offloaded",
    ),
]


@pytest.mark.parametrize(("found", "sentence"), BAD)
def test_what_is_wrong_is_said_in_one_sentence(found: Any, sentence: str) -> None:
    with pytest.raises(PlanError, match=sentence) as error:
        document.loads(json.dumps(found))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ('{"schema_version": 1, "schema_version": 1}', "twice"),
        ('{"schema_version": NaN}', "NaN is no number"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_text_that_is_no_plan_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(PlanError, match=sentence):
        document.loads(text)


def test_files_that_are_no_plans_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "large.json").write_bytes(b" " * (5 << 20))
    for name, sentence in {
        "bytes": "no text",
        "large": "larger than",
        "none": "cannot read",
    }.items():
        with pytest.raises(PlanError, match=sentence):
            document.load(tmp_path / f"{name}.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        "schema_version",
        "model",
        "activations",
        "optimizer",
        "allocator",
        "fsdp",
        "arguments",
        "about",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(KEYS, JSON | st.just(1), max_size=6))
def test_whatever_it_holds_it_is_a_plan_or_refused(found: dict[str, Any]) -> None:
    try:
        plan = document.parse({**found, "schema_version": 1})
    except PlanError:
        return
    assert document.loads(plan.dumps()) == plan
