"""What a report draws beside memory: the streams of the last step, and trade-off curves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

import peakline
from peakline import _stream_spans
from peakline.sac_estimator import SACEstimator


def facts(run: peakline.Run, tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "run.peak"
    run.save(path)
    return peakline.load(path).info


def trained(net: nn.Module, x: torch.Tensor, steps: int = 2) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        net(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_a_recording_has_the_streams_of_its_last_step(tmp_path: Path) -> None:
    with peakline.virtual_gpu("h200") as run:
        net = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()).cuda()
        trained(net, torch.rand(4096, 1024, device="cuda"))
    streams: dict[str, Any] = json.loads(facts(run, tmp_path)["streams"])
    assert [lane["name"] for lane in streams["streams"]] == ["default stream"]
    spans = streams["streams"][0]["spans"]
    assert len(spans) > 5
    assert all(start >= 0 and start + length <= streams["us"] + 1 for start, length, _ in spans)
    assert streams["kinds"][spans[0][2]] in ("compute", "memory", "latency")


def test_without_a_step_there_is_no_picture(tmp_path: Path) -> None:
    with peakline.virtual_gpu("h200") as run:
        torch.ones(8, device="cuda").sum()
    assert "streams" not in facts(run, tmp_path)


def test_copies_and_collectives_have_rows_of_their_own() -> None:
    spans: list[_stream_spans.Span] = [
        (0, 0, "kernel", "compute", 0.0, 10.0),
        (0, 7, "copy in", "memory", 2.0, 6.0),
        (0, -1, "network", "network", 5.0, 15.0),
        (0, 0, "kernel", "memory", 30.0, 40.0),
    ]
    found = json.loads(_stream_spans.as_json(spans, 1.0, 20.0))
    assert found["us"] == 19.0
    rows = {lane["name"]: lane["spans"] for lane in found["streams"]}
    assert rows == {
        "default stream": [[0.0, 9.0, 0]],
        "stream 7, copy in": [[1.0, 4.0, 3]],
        "collectives": [[4.0, 10.0, 4]],
    }


def test_spans_that_no_screen_tells_apart_become_one() -> None:
    many: list[_stream_spans.Span] = [
        (0, 0, "kernel", "memory", 2.0 * i, 2.0 * i + 1) for i in range(4 * _stream_spans.MOST)
    ]
    found = json.loads(_stream_spans.as_json(many, 0.0, 2.0 * len(many)))
    assert len(found["streams"][0]["spans"]) < len(many) / 3


def test_a_recording_has_the_trade_offs_that_were_found_meanwhile(tmp_path: Path) -> None:
    with peakline.virtual_gpu("h200") as run:
        net = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)).cuda()
        estimator = SACEstimator()
        with estimator(estimate_mode_type="operator-level-cost-model"):
            loss = net(torch.rand(32, 64, device="cuda")).sum()
        loss.backward()
        estimator.pwlf_sac_tradeoff_curve(n_segments=2)
    curves: dict[str, Any] = json.loads(facts(run, tmp_path)["tradeoffs"])
    assert set(curves) == set(estimator.sac_mod_tradeoff_stats)
    curve = curves["Sequential"]
    assert curve["memory"] == estimator.sac_mod_tradeoff_stats["Sequential"].sac_memory
    assert len(curve["points"]) >= 2
    assert all(len(piece) == 3 for piece in curve["pieces"])
