"""`peakline export` and `peakline.export`, read back with the tools that they are made for."""

from __future__ import annotations

import csv
import json
import pickle
import shutil
import sqlite3
import subprocess
import sys
import sysconfig
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.cuda import _memory_viz

import peakline
from peakline.export import TABLES

PROGRAM = shutil.which("peakline", path=sysconfig.get_path("scripts")) or "peakline"


def program(*args: str | Path) -> subprocess.CompletedProcess[str]:
    command = [PROGRAM, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def export(recording: Path | list[Path], to: str, out: Path, *more: str) -> Path:
    files = recording if isinstance(recording, list) else [recording]
    done = program("export", *files, "--to", to, "-o", out, *more)
    assert done.returncode == 0, done.stderr
    return out


def summary(recording: Path) -> Any:
    return json.loads(program("show", recording, "--json", "-").stdout)


def devices(recording: Path) -> list[Any]:
    """What is shown of each device, the main one first."""
    shown = summary(recording)
    return [shown, *shown["devices"]]


def train(width: int) -> peakline.Run:
    with peakline.virtual_gpu("H200") as run:
        model = nn.Sequential(nn.Linear(64, width), nn.GELU(), nn.Linear(width, 64)).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(3):
            model(torch.randn(256, 64, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    return run


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "run.peak"
    train(256).save(path)
    return path


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("ranks")
    paths = []
    for rank, width in ((0, 128), (3, 512)):
        paths.append(folder / f"run.{rank}.peak")
        train(width).save(paths[-1])
    return paths


def test_sqlite_reads_back_to_the_peak_by_category(recording: Path, tmp_path: Path) -> None:
    shown = summary(recording)
    with sqlite3.connect(export(recording, "sqlite", tmp_path / "run.db")) as database:
        for device in devices(recording):
            rows = dict(
                database.execute(
                    "SELECT category, bytes FROM peak_by_category WHERE rank = 0 AND device = ?",
                    (device["device"],),
                )
            )
            assert rows == {name: size for name, size in device["by_category"].items() if size}
            assert sum(rows.values()) == device["peak_allocated"]
        events = database.execute("SELECT count(*), max(event) + 1 FROM events").fetchone()
        assert events == (shown["events"], shown["events"])
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_csv_json_and_sqlite_hold_the_same_rows(recording: Path, tmp_path: Path) -> None:
    folder = export(recording, "csv", tmp_path / "tables")
    document = json.loads(export(recording, "json", tmp_path / "run.json").read_text())
    tables = document["recordings"][0]["tables"]
    with sqlite3.connect(export(recording, "sqlite", tmp_path / "run.db")) as database:
        for table in TABLES:
            with open(folder / f"{table}.csv", newline="") as file:
                as_csv = [tuple(row) for row in csv.reader(file)]
            cursor = database.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in cursor.description]
            rows = cursor.fetchall()
            assert as_csv[0] == tuple(names)
            as_text = [tuple("" if cell is None else str(cell) for cell in row) for row in rows]
            assert as_csv[1:] == as_text, table
            assert tables[table] == [
                {name: cell for name, cell in zip(names, row, strict=True) if cell is not None}
                for row in rows
            ], table


def test_ranks_are_a_column_of_one_export(ranks: list[Path], tmp_path: Path) -> None:
    with sqlite3.connect(export(ranks, "sqlite", tmp_path / "job.db")) as database:
        peaks = dict(
            database.execute("SELECT rank, peak_allocated FROM devices WHERE device = 'cuda:0'")
        )
    assert peaks == {
        0: summary(ranks[0])["peak_allocated"],
        3: summary(ranks[1])["peak_allocated"],
    }


def decoded(path: Path) -> tuple[dict[int, Any], list[Any]]:
    trace_pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace = trace_pb2.Trace()
    trace.ParseFromString(path.read_bytes())
    tracks = {
        packet.track_descriptor.uuid: packet.track_descriptor
        for packet in trace.packet
        if packet.HasField("track_descriptor")
    }
    return tracks, list(trace.packet)


def test_perfetto_counters_are_the_recordings(recording: Path, tmp_path: Path) -> None:
    tracks, packets = decoded(export(recording, "perfetto", tmp_path / "run.pftrace"))
    samples = defaultdict(list)
    for packet in packets:
        if packet.track_event.type == 4:  # TYPE_COUNTER
            name = tracks[packet.track_event.track_uuid].name
            samples[name].append((packet.timestamp, packet.track_event.counter_value))
    for device in devices(recording):
        name = device["device"]
        allocated = [value for _, value in samples[f"{name} allocated"]]
        assert max(allocated) == device["peak_allocated"]
        if device["peak_reserved"] is not None:
            assert max(v for _, v in samples[f"{name} reserved"]) == device["peak_reserved"]
        # The categories sum to the total after every change.
        changes = sorted_changes(packets, tracks, name)
        held: dict[str, int] = {}
        for total, category, value in changes:
            held[category] = value
            assert sum(held.values()) == total
            if total == device["peak_allocated"]:
                assert {k: v for k, v in held.items() if v} == {
                    k: v for k, v in device["by_category"].items() if v
                }
                break
        else:
            pytest.fail("the peak is not among the samples")


def sorted_changes(
    packets: list[Any], tracks: dict[int, Any], device: str
) -> list[tuple[int, str, int]]:
    """(allocated, category, bytes of the category) after each change of `device`."""
    changes = []
    total = 0
    for packet in packets:
        if packet.track_event.type != 4:
            continue
        track = tracks[packet.track_event.track_uuid].name
        if not track.startswith(device + " ") or track == f"{device} reserved":
            continue
        if track == f"{device} allocated":
            total = packet.track_event.counter_value
        else:
            category = track.removeprefix(device + " ")
            changes.append((total, category, packet.track_event.counter_value))
    return changes


def test_perfetto_slices_nest_and_name_modules_ops_and_steps(
    recording: Path, tmp_path: Path
) -> None:
    tracks, packets = decoded(export(recording, "perfetto", tmp_path / "run.pftrace"))
    names: dict[int, str] = {}
    open_slices: dict[int, int] = defaultdict(int)
    seen: dict[str, set[str]] = defaultdict(set)
    for packet in packets:
        names.update((word.iid, word.name) for word in packet.interned_data.event_names)
        event = packet.track_event
        if event.type == 1:
            open_slices[event.track_uuid] += 1
            seen[tracks[event.track_uuid].name].add(names[event.name_iid])
        elif event.type == 2:
            open_slices[event.track_uuid] -= 1
            assert open_slices[event.track_uuid] >= 0
    assert {"step 1", "step 2", "step 3"} <= seen["steps"]
    every = set().union(*seen.values())
    assert "aten::addmm" in every
    assert "backward" in every
    assert any(name.startswith("Sequential.0") for name in every)


def test_perfetto_has_the_clocks_streams_from_the_last_step_on(
    recording: Path, tmp_path: Path
) -> None:
    tracks, packets = decoded(export(recording, "perfetto", tmp_path / "run.pftrace"))
    streams = json.loads(peakline.load(recording).info["streams"])
    expected = {
        f"cuda:{stream['device']} {stream['name']}, by the clock": sum(
            length for _, length, _ in stream["spans"]
        )
        for stream in streams["streams"]
    }
    began: dict[int, int] = {}
    lasted: dict[str, int] = defaultdict(int)
    steps = []
    for packet in packets:
        event = packet.track_event
        name = tracks[event.track_uuid].name if event.track_uuid else ""
        if name == "steps" and event.type == 1:
            steps.append(packet.timestamp)
        if not name.endswith("by the clock"):
            continue
        if event.type == 1:
            began[event.track_uuid] = packet.timestamp
            assert packet.timestamp >= steps[2]
        elif event.type == 2:
            lasted[name] += packet.timestamp - began.pop(event.track_uuid)
    assert set(lasted) == set(expected)
    assert not began
    for name, us in expected.items():  # rounded to 0.1 us, and cut where rounding overlaps
        assert lasted[name] == pytest.approx(1000 * us, rel=0.05)


def test_snapshot_opens_in_torchs_own_viewer(recording: Path, tmp_path: Path) -> None:
    path = export(recording, "snapshot", tmp_path / "run.pickle")
    snapshot = pickle.loads(path.read_bytes())
    (trace,) = snapshot["device_traces"]
    assert {"action", "addr", "size", "stream", "time_us", "frames", "user_metadata"} <= set(
        trace[0]
    )
    assert "<html" in _memory_viz.trace_plot(snapshot).lower()
    assert "<html" in _memory_viz.segment_plot(snapshot).lower()
    assert "total_reserved" in _memory_viz.segsum(snapshot)
    assert "alloc" in _memory_viz.trace(snapshot)
    stacks = {frame["name"] for entry in trace for frame in entry["frames"]}
    assert "aten::addmm" in stacks
    assert any(name.startswith("Sequential.0") for name in stacks)


def test_snapshot_blocks_fill_their_segments(recording: Path, tmp_path: Path) -> None:
    path = export(recording, "snapshot", tmp_path / "run.pickle")
    snapshot = pickle.loads(path.read_bytes())
    shown = summary(recording)
    for segment in snapshot["segments"]:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
        assert segment["allocated_size"] == sum(
            block["size"] for block in segment["blocks"] if block["state"] == "active_allocated"
        )
    allocated = sum(segment["allocated_size"] for segment in snapshot["segments"])
    assert allocated == shown["allocated_at_end"]


def test_snapshot_imports_to_the_same_peaks(recording: Path, tmp_path: Path) -> None:
    path = export(recording, "snapshot", tmp_path / "run.pickle")
    done = program("import", path, "-o", tmp_path / "again.peak")
    assert done.returncode == 0, done.stderr
    before, after = summary(recording), summary(tmp_path / "again.peak")
    assert after["peak_allocated"] == before["peak_allocated"]
    assert after["peak_reserved"] == before["peak_reserved"]
    assert after["peak"]["op"] == before["peak"]["op"]


def test_snapshot_of_many_ranks_has_a_device_for_each(ranks: list[Path], tmp_path: Path) -> None:
    path = export(ranks, "snapshot", tmp_path / "job.pickle")
    snapshot = pickle.loads(path.read_bytes())
    assert len(snapshot["device_traces"]) == 2
    assert {segment["device"] for segment in snapshot["segments"]} == {0, 1}


def test_snapshot_of_a_cpu_run_says_that_its_places_are_simulated(tmp_path: Path) -> None:
    with peakline.track() as run:
        kept = [torch.zeros(1 << 20) for _ in range(4)]
    run.save(tmp_path / "cpu.peak")
    out = tmp_path / "cpu.pickle"
    done = program("export", tmp_path / "cpu.peak", "--to", "snapshot", "-o", out)
    assert done.returncode == 0, done.stderr
    assert "simulated allocator" in done.stderr
    snapshot = pickle.loads(out.read_bytes())
    assert sum(e["size"] for e in snapshot["device_traces"][0] if e["action"] == "alloc") >= sum(
        tensor.nbytes for tensor in kept
    )


def test_export_of_a_run_in_this_process_needs_no_file(tmp_path: Path) -> None:
    run = train(64)
    peakline.export(run, tmp_path / "run.db", to="sqlite", tables=["devices"])
    with sqlite3.connect(tmp_path / "run.db") as database:
        (peak,) = database.execute(
            "SELECT peak_allocated FROM devices WHERE device = 'cuda:0'"
        ).fetchone()
    assert peak == run.peak("cuda:0").bytes


def test_parquet_reads_back_to_the_same_totals(recording: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    peakline.export(recording, tmp_path / "tables", to="parquet")
    blocks = parquet.read_table(tmp_path / "tables" / "blocks.parquet").to_pylist()
    held: dict[str, int] = defaultdict(int)
    for block in blocks:
        if block["at_peak"] and block["device"] == "cuda:0":
            held[block["category"]] += block["bytes"]
    assert held == {name: size for name, size in summary(recording)["by_category"].items() if size}
    events = parquet.read_table(tmp_path / "tables" / "events.parquet")
    assert events.num_rows == summary(recording)["events"]


def test_parquet_without_pyarrow_is_one_sentence(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install peakline\[parquet\]"):
        peakline.export(recording, tmp_path / "tables", to="parquet")


@pytest.mark.parametrize(
    ("to", "sentence"),
    [("excel", "there is no format 'excel'"), ("csv", "there is no table 'rows'")],
)
def test_export_refuses_what_it_does_not_know(
    recording: Path, tmp_path: Path, to: str, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        peakline.export(recording, tmp_path / "out", to=to, tables=["rows"] if to == "csv" else [])


def test_a_damaged_recording_leaves_nothing_behind(recording: Path, tmp_path: Path) -> None:
    damaged = bytearray(recording.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    (tmp_path / "bad.peak").write_bytes(damaged)
    for to in ("csv", "json", "sqlite", "perfetto", "snapshot"):
        done = program("export", tmp_path / "bad.peak", "--to", to, "-o", tmp_path / f"out-{to}")
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        left = [path for path in tmp_path.rglob("*") if path.is_file() and path.stem != "bad"]
        assert left == []
