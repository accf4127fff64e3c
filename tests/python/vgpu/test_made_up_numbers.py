"""Whole numbers that are read as NumPy's are told where one is used, and not where it is read."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

import peakline

LENGTHS = 'torch.randint(1, 9, (4,), device="cuda")'
GUESSES = 'torch.randn(4, 8, device="cuda").argmax(-1)'
READ = {
    "numpy": f"n = {LENGTHS}.cpu().numpy()",
    "data": f"n = {LENGTHS}.cpu().data.numpy()",
    "detached": f"n = {LENGTHS}.detach().to('cpu').numpy()",
    "forced": f"n = {LENGTHS}.numpy(force=True)",
    "a tensor": f"n = {LENGTHS}.cpu()",
}
SIZES = {
    "a shape": "torch.zeros(int(n[0]), device='cuda')",
    "a slice": "torch.zeros(8, device='cuda')[:n[1]]",
    "a bound": "for _ in range(n[0]): pass",
    "a list": "torch.zeros(n.tolist()[0])",
}
OF_ARRAYS = {
    "an index": "torch.zeros(9, device='cuda')[n[0]]",
    "the largest": "for _ in range(n.max()): pass",
    "an element that is computed with": "torch.zeros(4 * (n[0] + 1))",
    "one after the other": "for one in n:\n    torch.zeros(one)",
    "different ones": "np.unique(n)",
    "a mask": "n[n > 3]",
    "NumPy's own": "np.zeros(n[0])",
}
BRANCHES = {
    "a comparison": "if n[0] > 3: pass",
    "a number": "if n[0]: pass",
    "an all": "while (n == 3).all(): pass",
}
HARMLESS = {
    "a share of right answers": "right = (g == labels).mean()\nprint(right)",
    "a count": "hits = 0\nhits += (g == labels).sum()\nprint(hits / 4, '%d of %d' % (hits, 4))",
    "a count by int": "hits = 0\nhits += int((g == labels).sum())\nprint(hits / 4)",
    "collected": "all = []\nall.append(g)\nall = np.concatenate(all)\nprint(all.shape)",
    "shown": "print(g, g[0], f'{g[0]:3d}', str(g[0]), round(g[0]))",
    "given back": "torch.from_numpy(g).cuda()",
    "an index of NumPy's": "np.zeros((9, 2))[g]",
}
PLAIN_ARRAYS = {
    "asarray": f"n = np.asarray({LENGTHS}.cpu())",
    "array": f"n = np.array({LENGTHS}.cpu())",
}
LISTS = {
    "extended": "all = []\nall.extend(READ.tolist())\nprint(len(all))",
    "added": "all = []\nall += READ.tolist()\nprint(all)",
    "scored": "all = READ.tolist()\naccuracy_score(all, [1] * 4)",
    "an object's": "class M: all = []\nM.all.extend(READ.tolist())",
}


def told(text: str, folder: Path) -> list[str]:
    path = folder / "program.py"
    path.write_text(text)
    gpu = peakline.virtual_gpu("h200")
    names = {"torch": torch, "np": np, "accuracy_score": lambda one, other: 0.0}
    with gpu:
        exec(compile(text, str(path), "exec"), names | {"labels": np.arange(4)})
    assert gpu.counters()["unknown_values"] > 0
    return [note for note in gpu.notes() if "nobody can know" in note]


@pytest.mark.parametrize("use", SIZES.values(), ids=SIZES.keys())
@pytest.mark.parametrize("read", READ.values(), ids=READ.keys())
def test_a_size_is_told_by_the_line_that_uses_it(read: str, use: str, tmp_path: Path) -> None:
    (note,) = told(f"{read}\n\n{use}", tmp_path)
    assert note.startswith("sizes depend on values that nobody can know, at ")
    assert "program.py:3;" in note


@pytest.mark.parametrize("use", OF_ARRAYS.values(), ids=OF_ARRAYS.keys())
def test_what_is_computed_from_an_array_is_told_too(use: str, tmp_path: Path) -> None:
    (note,) = told(f"{READ['numpy']}\n{use}", tmp_path)
    assert "sizes depend" in note
    assert f"program.py:{1 + len(use.splitlines())};" in note


@pytest.mark.parametrize("read", PLAIN_ARRAYS.values(), ids=PLAIN_ARRAYS.keys())
def test_a_plain_array_is_told_where_it_is_made(read: str, tmp_path: Path) -> None:
    (note,) = told(f"{read}\n\ntorch.zeros(n[0])", tmp_path)
    assert "program.py:1;" in note


@pytest.mark.parametrize("read", PLAIN_ARRAYS.values(), ids=PLAIN_ARRAYS.keys())
def test_a_plain_array_that_is_only_collected_is_not_told(read: str, tmp_path: Path) -> None:
    assert told(f"all = []\nall.append({read[4:]})\nprint(len(all))", tmp_path) == []


@pytest.mark.parametrize("use", BRANCHES.values(), ids=BRANCHES.keys())
def test_a_branch_is_told(use: str, tmp_path: Path) -> None:
    (note,) = told(f"{READ['numpy']}\n{use}", tmp_path)
    assert note.startswith("which way the program goes")


@pytest.mark.parametrize("use", HARMLESS.values(), ids=HARMLESS.keys())
def test_what_decides_nothing_is_not_told(use: str, tmp_path: Path) -> None:
    assert told(f"g = {GUESSES}.cpu().numpy()\n{use}", tmp_path) == []


@pytest.mark.parametrize("read", [GUESSES, f"{GUESSES}.cpu()"], ids=["gpu", "host"])
@pytest.mark.parametrize("use", LISTS.values(), ids=LISTS.keys())
def test_a_list_that_is_only_collected_is_not_told(use: str, read: str, tmp_path: Path) -> None:
    assert told(use.replace("READ", read), tmp_path) == []


def test_a_tensor_that_is_shown_is_not_told(tmp_path: Path) -> None:
    assert told(f"g = {GUESSES}.cpu()\nprint(g, f'{{g}}', g[0])", tmp_path) == []


def test_known_numbers_are_not_told() -> None:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        known = torch.arange(4, device="cuda").cpu().numpy()
        torch.zeros(int(known[2]))
    assert type(known) is np.ndarray
    assert not any("nobody can know" in note for note in gpu.notes())


def test_the_array_is_as_any_other_to_who_looks_at_it() -> None:
    with peakline.virtual_gpu("h200"):
        array = torch.randint(1, 9, (4,), device="cuda").cpu().numpy()
        assert isinstance(array, np.ndarray)
        assert (type(array).__name__, type(array).__module__) == ("ndarray", "numpy")
        assert isinstance(array[0], np.int64)
        assert repr(array[0]) == "np.int64(1)"
        assert type(pickle.loads(pickle.dumps(array))) is np.ndarray
        assert type(pickle.loads(pickle.dumps(array[0]))) is np.int64
        assert torch.utils.data.default_collate([array, array]).shape == (2, 4)


def test_what_programs_and_compilers_know_by_identity_stays() -> None:
    """numba has np.array in a table of its own; modes compare functions with torch.Tensor.to."""
    known = (np.asarray, np.array, torch.Tensor.cpu, torch.Tensor.to, torch.Tensor.copy_)
    with peakline.virtual_gpu("h200"):
        torch.randint(1, 9, (4,), device="cuda").cpu().numpy()
        now = (np.asarray, np.array, torch.Tensor.cpu, torch.Tensor.to, torch.Tensor.copy_)
        assert all(one is another for one, another in zip(now, known, strict=True))


def test_nothing_is_left_of_it() -> None:
    before = (torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.item)
    with peakline.virtual_gpu("h200"):
        array = torch.randint(1, 9, (4,), device="cuda").cpu().numpy()
        assert torch.Tensor.item is not before[2]
    assert (torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.item) == before
    assert int(array[0]) == 1
    assert "__int__" not in vars(torch.Tensor)


@pytest.mark.parametrize("imports", ["", "import torch"])
def test_a_library_without_torch_may_do_what_it_likes_with_them(
    imports: str, tmp_path: Path
) -> None:
    path = tmp_path / "site-packages" / "game.py"
    path.parent.mkdir()
    path.write_text(
        f"{imports}\ndef act(action):\n    if action[0] > 2: pass\n    return int(action[0])"
    )
    names: dict[str, object] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        act = names["act"]
        assert callable(act)
        act(torch.randint(1, 9, (4,), device="cuda").cpu().numpy())
    assert len([note for note in gpu.notes() if "nobody can know" in note]) == 2 * bool(imports)


def test_values_answers_them() -> None:
    with peakline.virtual_gpu("h200", values={"int": 7}):
        assert int(torch.randint(1, 9, (4,), device="cuda").cpu().numpy()[0]) == 7
