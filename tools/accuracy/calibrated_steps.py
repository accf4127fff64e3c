"""Step times on the machine at hand: its host is calibrated, steps are predicted with that and the
rates that are installed for such a GPU, and only then measured and compared.

    python tools/accuracy/calibrated_steps.py -o FOLDER [--workloads FILE.py] [NAME ...]

FOLDER gets here.toml, predicted.jsonl, upstream.jsonl (with --upstream), measured.jsonl and
compare.txt, each as far as time reached, and log.txt with what failed. --gpu PROFILE takes that
profile in place of calibrating, --seconds is for all together (200). Without names: the models of
blind_models.py, three programs of two streams, and all of FILE.py.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TextIO

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "benchmarks")]
from accuracy import step_times  # noqa: E402

_STEPS = str(Path(__file__).with_name("step_times.py"))
_CALIBRATE_S = 75  # at most
_PREDICT_S = 90  # each, many at once
_MEASURE_S = 40  # each
_NOT_AFTER_A_FORK = 3  # a child's status
_AT_ONCE = min(16, os.cpu_count() or 1)
# Asking whether there is a GPU must not start CUDA before the fork.
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"

# A workload, and the file that has it.
Named = tuple[str, str | None]


def chosen(args: argparse.Namespace) -> list[Named]:
    from accuracy import blind_models, stream_programs

    own = [*blind_models.MODELS, *stream_programs.PROGRAMS]
    found: list[Named] = [(name, None) for name in own]
    if args.workloads:
        found += [(name, args.workloads) for name in step_times.builders(args.workloads)]
    if args.names:
        known = dict(found)
        known = {**dict.fromkeys(step_times.builders(None)), **known}
        missing = [name for name in args.names if name not in known]
        if missing:
            sys.exit(f"calibrated_steps: there is no workload '{missing[0]}'")
        found = [(name, known[name]) for name in args.names]
    return found


class Folder:
    """What is written, as it comes."""

    def __init__(self, path: Path, seconds: float) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._begin = time.monotonic()
        self._end = self._begin + seconds
        self._log = (path / "log.txt").open("w")

    def left(self) -> float:
        return self._end - time.monotonic()

    def say(self, words: str) -> None:
        line = f"{time.monotonic() - self._begin:6.1f} s  {words}"
        print(line, flush=True)
        print(line, file=self._log, flush=True)


def calibrated(folder: Folder) -> str | None:
    """The profile of this machine; nothing where that failed."""
    profile = folder.path / "here.toml"
    command = [sys.executable, "-m", "peakline._calibrate", "--host", "-o", str(profile)]
    done = _run(command, _CALIBRATE_S, dict(os.environ))
    if not profile.exists():
        folder.say(f"calibrate failed: {_last(done)}")
        return None
    folder.say(f"calibrated: {profile}")
    return str(profile)


def answered(folder: Folder, action: str, names: list[Named], gpu: str) -> None:
    """`predict` or `upstream` for each, many at once."""

    def one(named: Named) -> tuple[str, subprocess.CompletedProcess[str] | None]:
        name, where = named
        command = [sys.executable, _STEPS, action, "--one", name, "--gpu", gpu]
        command += ["--workloads", where] if where else []
        alone = {**os.environ, "OMP_NUM_THREADS": "1"}
        return name, _run(command, min(_PREDICT_S, max(1.0, folder.left())), alone)

    with (
        (folder.path / f"{_FILE[action]}.jsonl").open("w") as out,
        ThreadPoolExecutor(_AT_ONCE) as pool,
    ):
        for name, done in pool.map(one, names):
            if done is None or done.returncode:
                folder.say(f"{action} {name}: {_last(done)}")
                continue
            print(done.stdout.strip().splitlines()[-1], file=out, flush=True)
    folder.say(f"{action}: done")


_FILE = {"predict": "predicted", "upstream": "upstream"}


def measured(folder: Folder, names: list[Named]) -> None:
    """One after another, each in a child that has torch imported already."""
    import torch  # noqa: F401 (the children have it)

    with contextlib.suppress(ImportError):
        import transformers  # noqa: F401
    path = folder.path / "measured.jsonl"
    path.write_text("")
    fork = multiprocessing.get_context("fork")
    for name, where in names:
        seconds = min(float(_MEASURE_S), folder.left())
        if seconds < 1:
            folder.say(f"measure {name}: no time left")
            continue
        child = fork.Process(target=_measure_one, args=(name, where, str(path)))
        child.start()
        child.join(seconds)
        if child.is_alive():
            child.kill()
            child.join()
        if child.exitcode == _NOT_AFTER_A_FORK:
            _measure_anew(name, where, path, seconds)
        done = f'"{name}"' in path.read_text()
        folder.say(f"measure {name}: {'done' if done else 'failed'}")


def _measure_one(name: str, where: str | None, path: str) -> None:
    try:
        found = step_times.measure(step_times.builders(where)[name], "")
    except Exception as error:
        print(f"{name}: {(str(error).splitlines() or [''])[0][:200]}", file=sys.stderr)
        os._exit(_NOT_AFTER_A_FORK if "forked subprocess" in str(error) else 1)
    with Path(path).open("a") as out:
        print(json.dumps({"name": name, **found}), file=out)
    os._exit(0)


def _measure_anew(name: str, where: str | None, path: Path, seconds: float) -> None:
    """In a process that imports everything itself, where something started CUDA before the fork."""
    command = [sys.executable, _STEPS, "measure", "--one", name]
    done = _run([*command, *(["--workloads", where] if where else [])], seconds, dict(os.environ))
    if done is not None and not done.returncode:
        with path.open("a") as out:
            print(done.stdout.strip().splitlines()[-1], file=out)


def compared(folder: Folder) -> None:
    upstream = folder.path / "upstream.jsonl"
    predicted, seen = (str(folder.path / f"{kind}.jsonl") for kind in ("predicted", "measured"))
    with (folder.path / "compare.txt").open("w") as out, _to(out):
        step_times.compare(predicted, seen, str(upstream) if upstream.exists() else None)
    print((folder.path / "compare.txt").read_text(), end="")


@contextlib.contextmanager
def _to(out: TextIO) -> Iterator[None]:
    with contextlib.redirect_stdout(out):
        yield


def _run(
    command: list[str], seconds: float, environment: dict[str, str]
) -> subprocess.CompletedProcess[str] | None:
    """Nothing when it took longer than that."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=seconds, env=environment
        )
    except subprocess.TimeoutExpired:
        return None


def _last(done: subprocess.CompletedProcess[str] | None) -> str:
    if done is None:
        return "it took too long"
    return (done.stderr.strip().splitlines() or ["no answer"])[-1]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("-o", dest="output", required=True, metavar="FOLDER")
    parser.add_argument("--workloads", metavar="FILE.py")
    parser.add_argument("--gpu", help="this profile, in place of calibrating")
    parser.add_argument("--upstream", action="store_true", help="ask torch's cost model, too")
    parser.add_argument("--predict-only", action="store_true", help="measure nothing")
    parser.add_argument("--seconds", type=float, default=200.0, help="for all (default: 200)")
    args = parser.parse_intermixed_args()
    names: Any = chosen(args)
    folder = Folder(Path(args.output), args.seconds)
    gpu = args.gpu or calibrated(folder)
    if gpu is None:
        gpu = "h200"
        folder.say("what follows is predicted with the profile that is installed")
    answered(folder, "predict", names, gpu)
    if args.upstream:
        answered(folder, "upstream", names, gpu)
    if args.predict_only:
        return 0
    measured(folder, names)
    compared(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
