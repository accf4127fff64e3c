"""`python -m peakline` is the C++ program."""

import os
import shutil
import sys
import sysconfig
from pathlib import Path


def main() -> None:
    beside = Path(sysconfig.get_path("scripts")) / "peakline"
    program = str(beside) if beside.exists() else shutil.which("peakline")
    if program is None:
        sys.exit("peakline: the program is not beside this Python; install peakline again")
    os.environ.setdefault("PEAKLINE_PYTHON", sys.executable)
    os.execv(program, ["peakline", *sys.argv[1:]])


if __name__ == "__main__":
    main()
