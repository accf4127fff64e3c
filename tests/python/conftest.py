import gc
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
