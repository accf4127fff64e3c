"""What a search of `peakline fit` costs beside one estimate.

python benchmarks/fit_search.py [SCRIPT] [--vary NAME=A..B]… [-- script arguments]

Prints CPU seconds: of one `peakline estimate`, of the script's own lines in it (torch and
libraries imported already), and of a whole search. The search should take at most one estimate and
one body for each try after the first.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "llama.py"
USUAL = ["--size", "1b", "--checkpoint", "--length", "1024"]


def cpu_seconds(command: list[str], cache: str) -> tuple[float, str]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, done.stdout


def with_first_value(vary: str) -> list[str]:
    """How a script is given the smallest value: batch=1..64 is --batch 1."""
    name, _, values = vary.partition("=")
    return [f"--{name}", re.split(r"\.\.|,", values)[0]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("script", nargs="?", default=str(EXAMPLE))
    parser.add_argument("--vary", action="append", help="default: batch=1..32")
    parser.add_argument("--memory", default="24GiB")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:at])
    words = sys.argv[at + 1 :] or (USUAL if args.script == str(EXAMPLE) else [])
    vary = args.vary or ["batch=1..32"]  # nine tries
    smallest = [word for one in vary for word in with_first_value(one)]
    python = [sys.executable, "-m"]
    flags = [args.script, "--memory", args.memory]
    with tempfile.TemporaryDirectory() as cache:
        imports, _ = cpu_seconds([sys.executable, "-c", "import peakline, torch"], cache)
        one = [*python, "peakline._estimate_script", *flags, "--", *words, *smallest]
        estimate, _ = cpu_seconds(one, cache)
        search = [*python, "peakline._fit_script", *flags, "--json", "-"]
        search += [f"--vary={one}" for one in vary]
        whole, told = cpu_seconds([*search, "--", *words], cache)
    tries = len(json.loads(told)["tries"])
    body = estimate - imports
    allowed = estimate + (tries - 1) * body
    print("| | CPU seconds |\n|---|---:|")
    print(f"| imports | {imports:.2f} |\n| one estimate | {estimate:.2f} |")
    print(f"| its body | {body:.2f} |\n| a search of {tries} tries | {whole:.2f} |")
    print(f"| an estimate and {tries - 1} bodies | {allowed:.2f} |")


if __name__ == "__main__":
    main()
