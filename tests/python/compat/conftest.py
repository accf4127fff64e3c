"""Where compat tests run: real tensors on the CPU and, where there is one, on an NVIDIA GPU."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    if request.param == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU here")
    return torch.device("cuda", torch.cuda.current_device())
