"""Arguments of another kind: one sentence that names what the public functions take."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import peakline


@pytest.fixture(scope="module")
def run() -> peakline.Run:
    with peakline.track() as run:
        nn.Linear(4, 4)(torch.ones(2, 4)).sum().backward()
    return run


def nothing(batch: int = 1) -> None: ...


PLAN = {"schema_version": 1, "optimizer": {"implementation": "fused"}}
NET = nn.Linear(2, 2)
A_WHOLE_NUMBER = "takes a whole number, and got"
A_SIZE = r'takes a size \(bytes, or text such as "24GiB"\), and got'
OF_A_RUN: dict[str, tuple[Callable[[Any], Any], str]] = {
    "lines": (lambda run: run.lines("cpu"), r"lines\(n=…\) .*'cpu'; .* device='cpu'$"),
    "top": (lambda run: run.top(torch.device("cpu")), r"top\(n=…\) .*; a device is given as"),
    "modules": (lambda run: run.modules("cpu"), rf"modules\(depth=…\) {A_WHOLE_NUMBER} 'cpu'"),
    "fewer than none": (lambda run: run.lines(-1), r"lines\(n=…\) takes 0 or more, and got -1"),
    "holders": (lambda run: run.holders("cpu"), rf"holders\(n=…\) {A_WHOLE_NUMBER} 'cpu'"),
    "peak": (lambda run: run.peak("gpu0"), r"'gpu0' is no device; write 'cpu', 'cuda:0'"),
    "growth": (lambda run: run.growth([]), r"\[\] is no device"),
    "live": (lambda run: run.live(2.5), r"2.5 is no device"),
    "on_step": (lambda run: run.on_step(5), r"on_step\(report=…\) takes a function, and got 5"),
    "every": (lambda run: run.on_step(print, "a"), rf"on_step\(every=…\) {A_WHOLE_NUMBER} 'a'"),
    "save": (lambda run: run.save(None), r"save\(path\) takes a path, and got None"),
    "load": (peakline.load, r"load\(path\) takes a path, and got an object of class Run"),
    "conf": (
        lambda run: peakline.simulate(run, conf=[5]),
        r"simulate\(conf=…\) takes text such as",
    ),
    "memory": (
        lambda run: peakline.simulate(run, memory=[]),
        rf"simulate\(memory=…\) {A_SIZE} \[\]",
    ),
    "export to": (lambda run: peakline.export(run, "out", 5), r"export\(to=…\) takes a format"),
    "export": (lambda run: peakline.export(5, "out", "csv"), r"export\(run\) takes a run, a path"),
}
OTHERS: dict[str, tuple[Callable[[], Any], str]] = {
    "ops": (lambda: peakline.track(ops="no"), r"track\(ops=…\) takes True or False, and got 'no'"),
    "stacks": (lambda: peakline.track(stacks=[]), r'stacks=\[\]: choose one of "all"'),
    "max_size": (lambda: peakline.track(max_size=[]), r"max_size=… takes a size"),
    "gpu": (lambda: peakline.virtual_gpu(5), r"virtual_gpu\(gpu=…\) takes the name of a GPU, or"),
    "memory": (lambda: peakline.virtual_gpu(memory=1.5), rf"virtual_gpu\(memory=…\) {A_SIZE} 1.5"),
    "no memory": (
        lambda: peakline.virtual_gpu(memory=0),
        r"virtual_gpu\(memory=…\) takes 1 or more",
    ),
    "devices": (lambda: peakline.virtual_gpu(devices="2"), rf"\(devices=…\) {A_WHOLE_NUMBER} '2'"),
    "values": (lambda: peakline.virtual_gpu(values=5), r"virtual_gpu\(values=…\) takes a dict"),
    "progress": (lambda: peakline.virtual_gpu(progress=5), r"\(progress=…\) takes a function"),
    "region": (lambda: peakline.region(5), r"region\(5\): give it a name"),
    "explain_oom": (lambda: peakline.explain_oom(None), r"explain_oom\(path\) takes a path"),
    "simulate": (
        lambda: peakline.simulate(5),
        r"simulate\(run\) takes a run, or a path, and got 5",
    ),
    "fit": (lambda: peakline.fit("train.py"), r"fit\(fn\) takes a function, and got 'train.py'"),
    "fit low": (lambda: peakline.fit(nothing, low="a"), rf"fit\(low=…\) {A_WHOLE_NUMBER} 'a'"),
    "fit memory": (lambda: peakline.fit(nothing, memory=[]), rf"fit\(memory=…\) {A_SIZE} \[\]"),
    "plan": (lambda: peakline.plan(5), r"plan\(train\) takes a function, or the path of a script"),
    "vary": (lambda: peakline.plan(nothing, vary=5), r"plan\(vary=…\) takes a dict such as"),
    "values of vary": (
        lambda: peakline.plan(nothing, vary={"b": 5}),
        r"plan\(vary=…\)\['b'\] takes",
    ),
    "no values": (lambda: peakline.plan(nothing, vary={"b": []}), r"\['b'\] has no values"),
    "words": (lambda: peakline.plan(nothing, vary={"b": ["x"]}), rf"\['b'\] {A_WHOLE_NUMBER} 'x'"),
    "levers": (lambda: peakline.plan(nothing, levers="fused"), r"plan\(levers=…\) takes a list"),
    "margin": (lambda: peakline.plan(nothing, margin="5%"), r"margin takes a share from 0 to 1"),
    "jobs": (lambda: peakline.plan("train.py", jobs="x"), rf"plan\(jobs=…\) {A_WHOLE_NUMBER} 'x'"),
    "args": (lambda: peakline.plan("train.py", args="--lr 1"), r"plan\(args=…\) takes a list of"),
    "a model": (lambda: peakline.checkpoint(5, PLAN), r"checkpoint\(model\) takes a module"),
    "a plan": (lambda: peakline.checkpoint(NET, None), r"checkpoint\(plan\) takes a plan, a dict"),
    "an optimizer": (lambda: peakline.checkpoint(NET, PLAN, 5), r"checkpoint\(optimizer=…\) takes"),
}


def refuses(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises((TypeError, ValueError)) as error:
        call()
    said = str(error.value)
    assert re.search(sentence, said), said
    assert "\n" not in said


@pytest.mark.parametrize("name", OF_A_RUN)
def test_questions_to_a_run(run: peakline.Run, name: str) -> None:
    call, sentence = OF_A_RUN[name]
    refuses(lambda: call(run), sentence)


@pytest.mark.parametrize("name", OTHERS)
def test_other_functions(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refuses(*OTHERS[name])
