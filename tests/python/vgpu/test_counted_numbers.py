"""Numbers that a program reads to count something decide no size, and are not told."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import peakline

HITS = '(torch.randn(8, 4, device="cuda").argmax(-1) == 1).sum()'
COUNTED = {
    "added up and divided": "total = 0\nfor _ in '12':\n    total += HITS.item()\nprint(total / 8)",
    "a variable in between": "hits = HITS.item()\ntotal = 0\ntotal += hits\nprint(100.0 * total)",
    "in a class": "class M: hits = 0\nM.hits += HITS.item()",
    "divided at once": "share = HITS.item() / 8\ntorch.zeros(int(share > 0))",
    "shown": "print(HITS.item(), f'{HITS.item()}', '%d of %d' % (HITS.item(), 8))",
    "formatted": "print('{} of {}'.format(HITS.item(), 8))",
    "tokens as text": "class T: decode = str\nprint(T.decode(HITS.view(1).tolist()))",
    "a variable of tokens": "class T: decode = str\nids = HITS.view(1).tolist()\nT.decode(ids)",
    "by int()": "total = int(HITS)\nprint(total * 100 / 8)",
}
SIZES = {
    "a shape": "torch.zeros(HITS.item())",
    "a variable": "many = HITS.item()\ntorch.zeros(many, device='cuda')",
    "added up": "end = 0\nend += HITS.item()\ntorch.zeros(8)[:end]",
    "given to others": "def use(n): torch.zeros(n)\nuse(HITS.item())",
    "returned": "def count():\n    return HITS.item()\ntorch.zeros(count())",
    "a list": "sizes = [HITS.item()]\ntorch.zeros(*sizes)",
    "a list of tokens": "torch.zeros(HITS.view(1).tolist())",
    "a loop over tokens": "for one in HITS.view(1).tolist(): torch.zeros(one)",
    "a whole quotient": "half = HITS.item() // 2\ntorch.zeros(half)",
    "elsewhere": "def read():\n    global many\n    many = HITS.item()\nread()\ntorch.zeros(many)",
    "a mask": "torch.randn(8, device='cuda').gt(0).nonzero()",
}


def told(text: str, folder: Path) -> bool:
    path = folder / "program.py"
    path.write_text("import torch\n" + text.replace("HITS", HITS))
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        exec(compile(path.read_text(), str(path), "exec"), {"__name__": "program"})
    assert gpu.counters()["unknown_values"] > 0 or "nonzero" in text
    return any("sizes depend on values" in note for note in gpu.notes())


@pytest.mark.parametrize("text", COUNTED.values(), ids=COUNTED.keys())
def test_what_is_counted_is_not_told(text: str, tmp_path: Path) -> None:
    assert not told(text, tmp_path)


@pytest.mark.parametrize("text", SIZES.values(), ids=SIZES.keys())
def test_what_may_be_a_size_is_told(text: str, tmp_path: Path) -> None:
    assert told(text, tmp_path)


def test_a_program_without_its_text_is_told() -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        exec(f"total = 0\ntotal += {HITS}.item()", {"torch": torch})
    assert any("sizes depend on values" in note for note in gpu.notes())
