"""A torch that is not as expected in one place costs what needs that place, and says so once."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest
import torch

from peakline import _torch_places
from peakline._torch_places import WATCHED

ASKED = [(part, name) for part, names in WATCHED.items() for name in names]


def in_fresh_process(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )


def test_this_torch_is_as_expected() -> None:
    code = """
        import importlib, torch
        from peakline._torch_places import WATCHED, problems
        for names in WATCHED.values():
            for name in names:
                importlib.import_module(name.partition(":")[0])  # what torch loads later, too
            assert problems(names) == [], problems(names)
        print("all")
    """
    done = in_fresh_process(code)
    assert done.stdout == "all\n", done.stderr


def test_places_are_looked_for_without_importing_anything() -> None:
    assert _torch_places.problems(["torch.no_such_module:anything"]) == []
    code = """
        import sys, torch
        import peakline._torch_check
        before = set(sys.modules)
        from peakline import _torch_places
        new = {name for name in set(sys.modules) - before if name.startswith("torch")}
        print(sorted(new))
    """
    assert in_fresh_process(code).stdout == "[]\n"


@pytest.fixture
def one_place_missing(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, str]]:
    """As a torch without that name would answer."""
    part, name = request.param
    find = _torch_places._find

    def find_all_but_one(asked: str) -> object:
        if asked == name:
            raise AttributeError(name)
        return find(asked)

    __import__(name.partition(":")[0])
    monkeypatch.setattr(_torch_places, "_find", find_all_but_one)
    _torch_places.why_not_watched.cache_clear()
    yield part, name
    _torch_places.why_not_watched.cache_clear()


@pytest.mark.parametrize("one_place_missing", ASKED, ids=[n for _, n in ASKED], indirect=True)
def test_each_place_costs_its_own_part(one_place_missing: tuple[str, str]) -> None:
    part, name = one_place_missing
    module, _, rest = name.partition(":")
    missing = {one: why for one in WATCHED if (why := _torch_places.why_not_watched(one))}
    assert missing == {part: f"{module} has no {rest.partition('/')[0]}"}


BROKEN = {
    "modules after torch.fx traced": "del torch.fx._symbolic_trace._Patcher.revert_all_patches",
    "fake tensors": "del torch._subclasses.fake_tensor.FakeTensorMode.from_tensor",
    "ranges of the profiler": "del torch.cuda.nvtx.range_push",
    "which module a module belongs to": (
        "del torch.nn.modules.module.register_module_module_registration_hook"
    ),
    "optimizers": (
        "from torch.optim import optimizer as hooks; "
        "hooks.register_optimizer_step_pre_hook = lambda hook, other: None"
    ),
}

TRAIN = """
    import warnings
    import torch
    {change}
    import peakline
    def train():
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with peakline.track(model, optimizer) as run:
                loss = model(torch.ones(2, 4)).sum()
                loss.backward()
                optimizer.step()
        return run, [str(warning.message) for warning in told]
    run, told = train()
    assert run.peak().by_category["Parameter"] == 80, run.peak().by_category
    again, no_more = train()
    assert no_more == [], "it is said once"
    print(*told, sep="\\n")
"""


@pytest.mark.parametrize("part", BROKEN)
def test_a_run_goes_on_without_what_torch_lacks(part: str) -> None:
    done = in_fresh_process(TRAIN.format(change=BROKEN[part]))
    assert done.returncode == 0, done.stderr
    (told,) = done.stdout.splitlines()
    assert told.startswith(
        f"peakline does not watch {part}: torch {torch.__version__} is not as expected (torch."
    )


def test_what_cannot_be_imported_says_so_when_it_is_used_and_the_rest_works() -> None:
    code = """
        import torch
        del torch._guards.active_fake_mode
        import peakline
        with peakline.track() as run:
            torch.ones(1000)
        assert run.peak().bytes >= 4000
        try:
            peakline.MemTracker()
        except RuntimeError as error:
            print(error)
    """
    done = in_fresh_process(code)
    assert done.stdout == (
        f"peakline.MemTracker does not work with torch {torch.__version__}, which is not as "
        "expected: cannot import name 'active_fake_mode' from 'torch._guards'\n"
    ), done.stderr


def test_a_mistake_of_our_own_is_not_blamed_on_torch() -> None:
    with pytest.raises(ImportError):
        _torch_places.import_faces({"anything": "no_such_module"})
    with pytest.raises(AttributeError):
        _torch_places.import_faces({"no_such_name": "run"})


def test_a_virtual_gpu_refuses_a_torch_that_it_cannot_watch() -> None:
    code = """
        import torch
        del torch.fx._symbolic_trace._Patcher.revert_all_patches
        import peakline
        try:
            with peakline.virtual_gpu("h100"):
                pass
        except RuntimeError as error:
            print(error)
    """
    done = in_fresh_process(code)
    assert done.stdout.startswith("peakline does not watch modules after torch.fx traced: torch ")
