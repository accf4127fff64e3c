"""The path in Python that keeps a tensor alive."""

import pytest
import torch

import peakline

HISTORY: list = []


class Keeper:
    shared: torch.Tensor | None = None

    def __init__(self) -> None:
        self.history: list[dict[str, torch.Tensor]] = []


def path_of(size: int) -> str:
    """Of the one tensor with so many elements."""
    with peakline.track() as run:
        (held,) = [one for one in run.holders(50, "cpu") if one.bytes == 4 * size]
    return held.path


def test_an_attribute_a_list_and_a_dict():
    keeper = Keeper()
    keeper.history = [{}, {"loss": torch.zeros(10_001)}]
    assert path_of(10_001).endswith("keeper.history[1]['loss']")


def test_a_variable_of_a_module():
    HISTORY.append(torch.zeros(10_002))
    assert path_of(10_002).endswith("HISTORY[0]")
    HISTORY.clear()


def test_a_class():
    Keeper.shared = torch.zeros(10_003)
    assert path_of(10_003).endswith("Keeper.shared")
    Keeper.shared = None


def test_a_variable_of_a_running_function():
    mine = torch.zeros(10_004)
    assert path_of(10_004).endswith("test_a_variable_of_a_running_function(): mine")
    del mine


def test_a_closure():
    def make():
        kept = torch.zeros(10_005)
        return lambda: kept

    function = make()
    assert path_of(10_005).endswith("function closes over kept")
    assert function().numel() == 10_005


def test_a_hook_of_a_module():
    model = torch.nn.Linear(2, 2)

    def make():
        seen = [torch.zeros(10_006)]
        return lambda module, args, output: seen.append(output)

    model.register_forward_hook(make())
    assert "model._forward_hooks[" in path_of(10_006)
    assert path_of(10_006).endswith("closes over seen[0]")


def test_an_exception_that_is_kept():
    def fail():
        large = torch.zeros(10_007)
        raise ValueError(large.shape)

    errors = []
    try:
        fail()
    except ValueError as error:
        errors.append(error)
    path = path_of(10_007)
    assert "errors[0].__traceback__" in path
    assert path.endswith("fail(): large")


def test_a_generator_that_waits():
    def produce():
        large = torch.zeros(10_008)
        yield 1
        yield large

    generator = produce()
    next(generator)
    assert "generator" in path_of(10_008)
    assert path_of(10_008).endswith("produce(): large")


def test_a_graph():
    x = torch.ones(10_009, requires_grad=True)
    result = (x * 2).exp().sum()
    with peakline.track() as run:
        paths = [one.path for one in run.holders(50, "cpu") if one.bytes == 4 * 10_009]
    assert any("result.grad_fn, saved for ExpBackward0" in path for path in paths), paths
    assert result.requires_grad


def test_looking_computes_nothing_again():
    x = torch.ones(10_010, requires_grad=True)
    calls = []

    def unpack(packed):
        calls.append(packed)
        return packed

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
        result = x.exp().sum()
    with peakline.track() as run:
        run.holders()
    assert not calls
    del result


@pytest.mark.parametrize("n", [0, 3])
def test_so_many_are_given(n):
    kept = [torch.zeros(100) for _ in range(5)]
    with peakline.track() as run:
        assert len(run.holders(n)) == n
    del kept
