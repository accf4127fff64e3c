"""torch's own list of operators on the virtual GPU: a part of it, `make opinfo` runs all."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
# One of each kind: what torch knows in Python alone, what is sparse, what has a shape of its own on
# CUDA, what is compiled when it is called, and what depends on values.
SAMPLE = [
    "add",
    "cumsum",
    "geqrf",
    "index_put",
    "jiterator_binary",
    "linalg.eig",
    "linalg.lstsq",
    "linalg.svd",
    "logcumsumexp",
    "masked_select",
    "nn.functional.conv_transpose2d",
    "nn.functional.ctc_loss",
    "nn.functional.fractional_max_pool3d",
    "nn.functional.multi_margin_loss",
    "nn.functional.multilabel_margin_loss",
    "nn.functional.scaled_dot_product_attention",
    "sgn",
    "sparse.sampled_addmm",
    "to_sparse",
    "torch.ops.aten._efficient_attention_forward",
    "unique",
]


@pytest.fixture(scope="module")
def table() -> Any:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import opinfo_table
    finally:
        sys.path.remove(str(ROOT / "tools"))
    return opinfo_table


@pytest.fixture(scope="module")
def results(table: Any) -> Any:
    return table.run_chunk(SAMPLE, samples=3)


@pytest.mark.parametrize("name", SAMPLE)
def test_an_entry_gives_what_the_cpu_gives(results: Any, name: str) -> None:
    assert (results[name].status, results[name].reason) == ("right", "")


def test_an_entry_that_no_gpu_computes_is_refused_in_one_sentence(table: Any) -> None:
    refused = table.run_chunk(["sparse.mm.reduce"], samples=2)["sparse.mm.reduce"]
    assert refused.status == "refused"
    assert refused.reason.count(". ") == 0


def test_a_crash_is_one_entry_and_the_others_are_run_again(
    table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "child.py"
    child.write_text(
        "import json, os, sys\n"
        "with open(sys.argv[-1], 'a', buffering=1) as out:\n"
        "    for name in sys.stdin.read().split():\n"
        "        out.write(json.dumps({'started': name}) + '\\n')\n"
        "        if name == 'b': os.abort()\n"
        "        done = {'name': name, 'status': 'right', 'reason': '', 'samples': 1}\n"
        "        out.write(json.dumps(done) + '\\n')\n"
    )
    monkeypatch.setattr(table, "__file__", str(child))
    results = table.run_chunk(["a", "b", "c"], samples=1)
    assert {name: result.status for name, result in results.items()} == {
        "a": "right",
        "b": "failed",
        "c": "right",
    }


def test_a_message_about_the_inside_is_a_failure_and_no_refusal(table: Any) -> None:
    sentence = "peakline's virtual GPU cannot run x: torch has no shape function for it"
    assert table.judged(NotImplementedError(sentence))[0] == "refused"
    assert table.judged(RuntimeError("false INTERNAL ASSERT FAILED at virtual GPU"))[0] == "failed"
    assert table.judged(RuntimeError("shapes do not fit"))[0] == "failed"
