"""The table of an estimate, from an answer made by hand."""

from __future__ import annotations

from typing import Any

from peakline._estimate.table import render

GIB = 2**30


def answer(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "device": "cuda:0",
        "gpu": "NVIDIA H200",
        "peak_allocated": 10 * GIB,
        "peak_reserved": 12 * GIB,
        "memory_limit": 24 * GIB,
        "segments": 1234,
        "retries": 0,
        "ooms": 0,
        "peak": {"step": 2, "phase": "backward", "op": "aten::mm", "module": "Model.head"},
        "by_category": {"Parameter": 4 * GIB, "Activation": 6 * GIB},
        "modules": [
            {"path": "Model", "peak": 8 * GIB, "by_category": {"Parameter": 4 * GIB}},
            {"path": "Model.head", "peak": 2 * GIB, "by_category": {"Activation": 2 * GIB}},
        ],
        "steps": [{"peak_allocated": 9 * GIB, "peak_reserved": 11 * GIB}] * 3,
        "steps_completed": 3,
        "devices": [],
        "warnings": [],
    }
    found.update(changes)
    return found


def test_it_says_by_how_much_it_fits() -> None:
    text = render(answer(), "title")
    assert "fits, 12.00 GiB to spare" in text
    assert "20.0% above allocated, 1,234 segments" in text
    assert "in Model.head" in text


def test_it_says_how_sure_it_is() -> None:
    parts = {"exact": 9 * GIB, "modelled": GIB // 2, "guessed": 0, "outputs_only": GIB // 2}
    text = render(answer(confidence=parts), "title")
    assert "90.0% exact, 5.0% modelled, 5.0% outputs only" in text


def test_what_is_not_all_exact_is_not_called_so() -> None:
    parts = {"exact": 40 * GIB, "modelled": 8 << 20, "guessed": 0, "outputs_only": 0}
    text = render(answer(confidence=parts), "title")
    assert ">99.9% exact, <0.1% modelled" in text
    parts["modelled"] = 0
    assert "100.0% exact\n" in render(answer(confidence=parts), "title")


def test_it_says_what_failed_and_what_would_help() -> None:
    oom = {
        "message": "CUDA out of memory. Tried to allocate 2.00 GiB. " + "Words. " * 30,
        "by_category": {"Parameter": 4 * GIB},
        "where": "It failed in step 1, Model.head.",
        "by_module": {"Model.head": 2 * GIB, "(no module)": GIB},
        "fragmentation": "1.000 GiB lay free inside segments, the largest piece 2.000 MiB.",
        "advice": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True would let it pass.",
    }
    text = render(answer(ooms=1, oom=oom), "title")
    assert "does not fit" in text
    assert "Tried to allocate 2.00 GiB" in text
    assert "(no module) 1.000 GiB" in text
    assert "expandable_segments:True" in text
    assert max(map(len, text.splitlines())) <= 80


def test_odd_names_neither_widen_the_table_nor_reach_the_terminal() -> None:
    rows = [{"path": "M" * 300 + "\x1b[2J", "peak": GIB, "by_category": {}}]
    text = render(answer(modules=rows, warnings=["w" * 20 + " long words" * 20]), "title")
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


def test_a_module_that_only_wraps_another_is_left_out() -> None:
    rows = [
        {"path": "Wrapper", "peak": 8 * GIB, "by_category": {}},
        {"path": "Wrapper.inner", "peak": 8 * GIB, "by_category": {}},
        {"path": "Wrapper.inner.a", "peak": 3 * GIB, "by_category": {}},
    ]
    lines = render(answer(modules=rows), "title").splitlines()
    start = lines.index("Top modules at the peak") + 2
    assert [line.split("  ")[1:3] for line in lines[start : start + 2]] == [
        ["Wrapper.inner", "8.000 GiB"],
        ["", "a"],
    ]


def test_layers_that_hold_the_same_are_one_row() -> None:
    rows = [{"path": "M", "peak": 9 * GIB, "by_category": {}}]
    for number, size in enumerate([3, 2, 2, 2]):
        rows.append({"path": f"M.layers.{number}", "peak": size * GIB, "by_category": {}})
        rows.append({"path": f"M.layers.{number}.mlp", "peak": GIB, "by_category": {}})
    lines = render(answer(modules=rows), "title").splitlines()
    start = lines.index("Top modules at the peak") + 2
    shown = [line[:19].rstrip() for line in lines[start : start + 5]]
    expected = ["  M", "    layers.0", "      mlp", "    layers.1-3, each", "      mlp"]
    assert shown == [line[:19] for line in expected]
