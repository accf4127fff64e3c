import gc
import sys
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread_and_a_clean_heap() -> Iterator[None]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    gc.collect()
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def _the_excepthook_stays() -> Iterator[None]:
    """Every process group wraps it in one that prints `[rank0]`, for the rest of the process."""
    hook = sys.excepthook
    yield
    sys.excepthook = hook


@pytest.fixture(autouse=True)
def _the_default_type_stays() -> Iterator[None]:
    """Programs that are estimated in this process may change it, as examples/llama.py does."""
    dtype = torch.get_default_dtype()
    yield
    torch.set_default_dtype(dtype)
