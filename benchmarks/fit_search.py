"""What a search of `peakline fit` costs beside one estimate.

python benchmarks/fit_search.py [SCRIPT] [--vary batch=1..64] [-- script arguments]

Prints CPU seconds: of one `peakline estimate`, of the script's own lines in it (torch and
libraries imported already), and of a whole search. The search should take at most one estimate and
one body for each try after the first.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "llama.py"


def cpu_seconds(command: list[str], cache: str) -> tuple[float, str]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("script", nargs="?", default=str(EXAMPLE))
    parser.add_argument("--vary", default="batch=1..64")
    parser.add_argument("--memory", default="24GiB")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:at])
    usual = ["--size", "1b", "--checkpoint"] if args.script == str(EXAMPLE) else []
    words = sys.argv[at + 1 :] or usual
    name = args.vary.partition("=")[0]
    python = [sys.executable, "-m"]
    flags = [args.script, "--memory", args.memory]
    with tempfile.TemporaryDirectory() as cache:
        imports, _ = cpu_seconds([sys.executable, "-c", "import peakline, torch"], cache)
        one = [*python, "peakline._estimate_script", *flags, "--", *words, f"--{name}", "1"]
        estimate, _ = cpu_seconds(one, cache)
        search = [*python, "peakline._fit_script", *flags, "--vary", args.vary, "--json", "-"]
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
