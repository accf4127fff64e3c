import sys
from pathlib import Path
from typing import Any

import pytest
from estimate_support import answer, estimate, folder

__all__ = ["answer", "compare_ops", "estimate", "folder"]

TOOLS = Path(__file__).parents[3] / "tools"


@pytest.fixture(scope="session")
def compare_ops() -> Any:
    """tools/compare_ops.py: operators on a virtual GPU beside what was measured on a real one."""
    sys.path.insert(0, str(TOOLS))
    try:
        import compare_ops
    finally:
        sys.path.remove(str(TOOLS))
    return compare_ops
