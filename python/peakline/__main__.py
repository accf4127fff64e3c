"""`python -m peakline` is the C++ program."""

import os
import sys

from peakline import _program


def main() -> None:
    program = _program.find()
    if program is None:
        sys.exit("peakline: the program is not beside this Python; install peakline again")
    os.environ.setdefault("PEAKLINE_PYTHON", sys.executable)
    os.execv(program, ["peakline", *sys.argv[1:]])


if __name__ == "__main__":
    main()
