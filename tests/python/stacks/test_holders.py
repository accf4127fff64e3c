"""The path in Python that keeps a tensor alive."""

import contextvars
import functools
import gc
import weakref

import pytest
import torch
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

import peakline

HISTORY: list = []
LARGE = 1 << 22  # elements: among the largest tensors, whatever else the process has


class Keeper:
    shared: torch.Tensor | None = None

    def __init__(self) -> None:
        self.history: list[dict[str, torch.Tensor]] = []


def path_of(size: int) -> str:
    """Of the one tensor with so many elements."""
    with peakline.track() as run:
        (held,) = [one for one in run.holders(20, "cpu") if one.bytes == 4 * size]
    return held.path


def test_an_attribute_a_list_and_a_dict():
    keeper = Keeper()
    keeper.history = [{}, {"loss": torch.zeros(LARGE + 1)}]
    assert path_of(LARGE + 1).endswith("keeper.history[1]['loss']")


def test_a_variable_of_a_module():
    HISTORY.append(torch.zeros(LARGE + 2))
    assert path_of(LARGE + 2).endswith("HISTORY[0]")
    HISTORY.clear()


def test_a_variable_that_was_frozen():
    HISTORY.append(torch.zeros(LARGE + 13))
    gc.freeze()
    assert path_of(LARGE + 13).endswith("HISTORY[0]")
    HISTORY.clear()


def test_a_class():
    Keeper.shared = torch.zeros(LARGE + 3)
    assert path_of(LARGE + 3).endswith("Keeper.shared")
    Keeper.shared = None


def test_a_variable_of_a_running_function():
    mine = torch.zeros(LARGE + 4)
    assert path_of(LARGE + 4).endswith("test_a_variable_of_a_running_function(): mine")
    del mine


def test_a_closure():
    def make():
        kept = torch.zeros(LARGE + 5)
        return lambda: kept

    function = make()
    assert path_of(LARGE + 5).endswith("function closes over kept")
    assert function().numel() == LARGE + 5


def test_a_hook_of_a_module():
    model = torch.nn.Linear(2, 2)

    def make():
        seen = [torch.zeros(LARGE + 6)]
        return lambda module, args, output: seen.append(output)

    model.register_forward_hook(make())
    assert "model._forward_hooks[" in path_of(LARGE + 6)
    assert path_of(LARGE + 6).endswith("closes over seen[0]")


def test_an_exception_that_is_kept():
    def fail():
        large = torch.zeros(LARGE + 7)
        raise ValueError(large.shape)

    errors = []
    try:
        fail()
    except ValueError as error:
        errors.append(error)
    path = path_of(LARGE + 7)
    assert "errors[0].__traceback__" in path
    assert path.endswith("fail(): large")


def test_what_an_exception_was_raised_with():
    error = ValueError("too large", torch.zeros(LARGE + 14))
    assert path_of(LARGE + 14).endswith("error.args[1]")
    del error


def test_the_arguments_of_a_partial():
    function = functools.partial(print, torch.zeros(LARGE + 15), end=torch.zeros(LARGE + 16))
    assert path_of(LARGE + 15).endswith("function.args[0]")
    assert path_of(LARGE + 16).endswith("function.keywords['end']")
    del function


def test_slots_that_are_not_a_tuple():
    class Slotted:
        __slots__ = "kept"

    thing = Slotted()
    thing.kept = torch.zeros(LARGE + 17)
    assert path_of(LARGE + 17).endswith("thing.kept")


def test_a_context_variable():
    variable: contextvars.ContextVar[torch.Tensor] = contextvars.ContextVar("of_the_test")
    token = variable.set(torch.zeros(LARGE + 18))
    assert path_of(LARGE + 18) == "the context variable of_the_test"
    variable.reset(token)


def test_a_function_of_torchs_own_says_less_than_a_variable_of_the_program():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))])
    optimizer.param_groups[0]["seen"] = torch.zeros(LARGE + 19)
    paths = []
    optimizer.register_step_pre_hook(lambda *_: paths.append(path_of(LARGE + 19)))
    optimizer.step()
    (path,) = paths
    assert path.endswith("optimizer.param_groups[0]['seen']")


def test_a_leaf_that_only_a_graph_knows():
    def make():
        leaf = torch.ones(LARGE + 20, requires_grad=True)
        return leaf.sum()

    result = make()
    assert path_of(LARGE + 20).endswith("result.grad_fn, saved for AccumulateGrad")
    assert result.requires_grad


def test_a_generator_that_waits():
    def produce():
        large = torch.zeros(LARGE + 8)
        yield 1
        yield large

    generator = produce()
    next(generator)
    assert "generator" in path_of(LARGE + 8)
    assert path_of(LARGE + 8).endswith("produce(): large")


def test_a_graph():
    x = torch.ones(LARGE + 9, requires_grad=True)
    result = (x * 2).exp().sum()
    with peakline.track() as run:
        paths = [one.path for one in run.holders(20, "cpu") if one.bytes == 4 * (LARGE + 9)]
    assert any("result.grad_fn, saved for ExpBackward0" in path for path in paths), paths
    assert result.requires_grad


def test_what_only_a_graph_shows_is_held_by_it_also_where_python_made_it():
    weight = torch.ones(2, requires_grad=True)
    result = (torch.ones(LARGE + 11, 2) @ weight).sum()
    path = path_of(2 * (LARGE + 11))
    assert path.endswith("result.grad_fn, saved for MvBackward0")
    assert result.requires_grad


def test_a_graph_is_named_by_its_last_result():
    weight = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        x = torch.ones(LARGE + 13, 2)
    for _ in range(3):  # the results between live on in the graph, and no variable shows them
        x = x * weight
    with peakline.track() as run:
        paths = [one.path for one in run.holders(20, "cpu") if one.bytes == 8 * (LARGE + 13)]
    graph = "test_a_graph_is_named_by_its_last_result(): x"
    assert sorted(paths) == [graph, *[f"{graph}.grad_fn, saved for MulBackward0"] * 3]


def test_what_an_array_shares_is_not_said_to_be_nobodys():
    array = torch.zeros(LARGE + 14).numpy()
    with peakline.track() as run:
        (held,) = [one for one in run.holders(20, "cpu") if one.bytes == 4 * (LARGE + 14)]
    assert str(held).startswith("(no variable found; C++ or a NumPy array may hold it): (4194318,)")
    del array


class Key:
    def __repr__(self) -> str:
        raise AssertionError("nobody asked for it")


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (torch.nn.Parameter(torch.ones(3, 2)), "Parameter of (3, 2)"),
        (Key(), "Key"),
        ("layer.0", "'layer.0'"),
        ((0, "k"), "(0, 'k')"),
        (Key, "Key"),
        (torch.device("cuda", 1), "device(type='cuda', index=1)"),
    ],
)
def test_a_key_is_named_and_never_printed(key, said):
    state = {key: torch.zeros(LARGE + 12)}
    assert path_of(LARGE + 12).endswith(f"(): state[{said}]")
    del state


def test_looking_computes_nothing_again():
    x = torch.ones(LARGE + 10, requires_grad=True)
    calls = []

    def unpack(packed):
        calls.append(packed)
        return packed

    # Packed as it is, a result would hold the graph that holds it, for ever.
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor.detach(), unpack):
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


def test_asking_keeps_nothing_of_the_function_that_asked(no_collector):
    def ask() -> weakref.ref:
        mine = torch.zeros(100)
        with peakline.track() as run:
            run.holders(1)
        return weakref.ref(mine)

    assert ask()() is None


def test_what_is_deleted_after_asking_is_gone(no_collector):
    mine = torch.zeros(100)
    died = weakref.ref(mine)
    with peakline.track() as run:
        run.holders(1)
    del mine
    assert died() is None


def test_asking_leaves_a_dict_of_variables_that_the_program_has():
    mine = 17
    variables = locals()
    with peakline.track() as run:
        run.holders(1)
    assert variables["mine"] == mine


def test_asking_leaves_the_body_of_a_class():
    class Body:
        mine = torch.zeros(LARGE + 11)
        path = path_of(LARGE + 11)
        again = mine.numel()

    assert Body.path.endswith("Body(): mine")
    assert Body.again == LARGE + 11


def test_what_a_compiler_reckons_with_holds_nothing():
    real = torch.zeros(LARGE + 12)
    mode = FakeTensorMode(shape_env=ShapeEnv())
    sizes = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC])
    whole = mode.from_tensor(real)
    symbolic = mode.from_tensor(real, symbolic_context=sizes, source=ConstantSource("real"))
    assert not isinstance(symbolic.untyped_storage().nbytes(), int)
    meta = torch.zeros(LARGE + 12, device="meta")
    with peakline.track() as run:
        shown = run.holders(50)
    assert [one.device for one in shown if one.bytes == 4 * (LARGE + 12)] == ["cpu"]
    del whole, symbolic, meta
