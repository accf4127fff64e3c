"""`peakline.export`: recordings for other tools, as `peakline export` writes them, and Parquet."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from peakline import _checks, _program
from peakline.run import Run

Recording = Run | str | os.PathLike[str]

# As core/src/export/schema.cc has them.
TABLES = (
    "recordings",
    "info",
    "devices",
    "categories",
    "modules",
    "ops",
    "steps",
    "blocks",
    "events",
)
_TEXT_COLUMNS = {
    *("file", "key", "value", "device", "model", "category", "subcategory", "module", "type"),
    *("op", "name", "phase", "certainty", "thread", "kind", "detail"),
    *("peak_phase", "peak_op", "peak_module"),
}


def export(
    run: Recording | Sequence[Recording],
    path: str | os.PathLike[str],
    to: str,
    tables: Sequence[str] = (),
) -> None:
    """Writes a run, or the runs of many ranks, for other tools.

    `to` is "csv", "json", "sqlite", "perfetto" or "snapshot", or "parquet", which needs pyarrow and
    makes `path` a folder with one file for each table. `tables` takes some of the tables only.
    """
    several = not isinstance(run, Run | str | os.PathLike)
    if several:
        _checks.words(run, "export(run)", "a run, a path, or several of them")
    path = _checks.path(path, "export(path=…)")
    _checks.of_kind(to, str, "export(to=…)", 'a format such as "csv"')
    _checks.words(tables, "export(tables=…)", "a list such as ['blocks']")
    runs: Sequence[Recording] = run if several else [run]  # type: ignore[assignment, list-item]
    if not runs:
        raise ValueError("there is no run to export")
    with _recordings(runs) as files:
        if to == "parquet":
            _write_parquet(files, Path(path), tables)
        else:
            _call(files, to, path, tables)


@contextlib.contextmanager
def _recordings(runs: Sequence[Recording]) -> Iterator[list[str]]:
    """The recordings as files; those of runs in this process for as long as it takes."""
    with tempfile.TemporaryDirectory(prefix="peakline-") as folder:
        files = []
        for i, run in enumerate(runs):
            if isinstance(run, Run):
                file = os.path.join(folder, f"run.{i}.peak")
                run.save(file)
            else:
                file = _checks.path(run, "export(run)")
            files.append(file)
        yield files


def _command(files: list[str], to: str, path: str, tables: Sequence[str]) -> list[str]:
    program = _program.find()
    if program is None:
        raise RuntimeError("the program peakline is not beside this Python; install peakline again")
    chosen = [word for table in tables for word in ("--table", table)]
    return [program, "export", *files, "--to", to, "-o", path, *chosen]


def _call(files: list[str], to: str, path: str, tables: Sequence[str]) -> None:
    done = subprocess.run(
        _command(files, to, path, tables), capture_output=True, text=True, check=False
    )
    _refuse_failure(done.returncode, done.stderr)


def _refuse_failure(code: int, said: str) -> None:
    if code == 0:
        return
    sentence = said.strip().removeprefix("peakline: ") or "peakline export failed"
    raise (ValueError if code == 2 else OSError)(sentence)


def _write_parquet(files: list[str], folder: Path, tables: Sequence[str]) -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise ImportError("Parquet needs pyarrow: pip install peakline[parquet]") from None
    unknown = [table for table in tables if table not in TABLES]
    if unknown:
        raise ValueError(f"there is no table '{unknown[0]}'; there are {', '.join(TABLES)}")
    folder.mkdir(parents=True, exist_ok=True)
    for table in tables or TABLES:
        _write_parquet_table(files, table, folder / f"{table}.parquet")


def _write_parquet_table(files: list[str], table: str, path: Path) -> None:
    """The table as CSV from the program's stdout, a piece after another: memory stays small."""
    from pyarrow import parquet

    unfinished = path.with_name(path.name + ".unfinished")
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(
            _command(files, "csv", "-", [table]), stdout=subprocess.PIPE, stderr=said
        ) as child,
    ):
        try:
            assert child.stdout is not None
            reader = _csv_reader(child.stdout)
            if reader is not None:
                with parquet.ParquetWriter(unfinished, reader.schema, compression="zstd") as out:
                    for batch in reader:
                        out.write_batch(batch)
            code = child.wait()
            said.seek(0)
            _refuse_failure(code, said.read())
            unfinished.rename(path)
        finally:
            child.kill()
            unfinished.unlink(missing_ok=True)


def _csv_reader(stream: Any) -> Any:
    """Batches of the CSV, or None where the program wrote nothing."""
    import pyarrow
    from pyarrow import csv

    header = stream.readline().decode().strip()
    if not header:
        return None
    names = header.split(",")
    unsigned = {"address", "block"}
    types = {
        name: pyarrow.string()
        if name in _TEXT_COLUMNS
        else pyarrow.uint64()
        if name in unsigned
        else pyarrow.int64()
        for name in names
    }
    return csv.open_csv(
        stream,
        read_options=csv.ReadOptions(column_names=names),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=types, null_values=[""], strings_can_be_null=True
        ),
    )
