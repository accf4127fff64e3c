"""Compiled programs on a virtual GPU. What Inductor writes is kept for all tests of one run."""

from collections.abc import Iterator

import pytest

pytest.importorskip("triton")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()
