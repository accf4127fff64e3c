"""Runs the test functions of a folder that need no fixtures, on a machine without pytest.

python tools/run_plain_tests.py FOLDER [WORD…]     files with one of the words in their names
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from pathlib import Path


def main() -> int:
    failed = run = 0
    sys.path.insert(0, sys.argv[1])  # tests may share what one of them defines
    words = sys.argv[2:] or [""]
    for path in sorted(Path(sys.argv[1]).glob("test_*.py")):
        if not any(word in path.stem for word in words):
            continue
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name, function in vars(module).items():
            if not name.startswith("test_") or inspect.signature(function).parameters:
                continue
            run += 1
            try:
                function()
                print(f"ok     {name}", flush=True)
            except Exception:
                failed += 1
                print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
    print(f"{run} run, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
