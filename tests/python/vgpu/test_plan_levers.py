"""What each lever of a plan does to an unmodified script that is estimated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from estimate_support import Answer, Estimate, write

TRAIN = """
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            return x + self.down(torch.nn.functional.gelu(self.up(x)))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Block() for _ in range(4))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    model = Model().cuda()
    COMPILE
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(10):
        loss = model(torch.randn(ROWS, WIDTH, device="cuda")).sum()
        loss.backward()
        CLIP
        optimizer.step()
        optimizer.zero_grad()
"""


def script(
    folder: Path, rows: int = 4096, clip: str = "", compiled: str = "", width: int = 512
) -> None:
    text = TRAIN.replace("ROWS", str(rows)).replace("CLIP", clip).replace("COMPILE", compiled)
    text = text.replace("WIDTH", str(width))
    write(folder, "planned.py", text)


@pytest.fixture
def with_plan(folder: Path, answer: Answer) -> Any:
    def ask(plan: dict[str, Any], *flags: str) -> dict[str, Any]:
        (folder / "p.json").write_text(json.dumps({"schema_version": 1, **plan}))
        return answer("planned.py", "--plan", "p.json", *flags)

    return ask


def activations(policy: str, **more: Any) -> dict[str, Any]:
    entry = {"modules": ["layers.{0..3}"], "policy": policy, **more}
    return {"model": "Model", "activations": [entry]}


def test_checkpointing_saves_activations_and_costs_time(folder: Path, with_plan: Any) -> None:
    script(folder)
    plain = with_plan({})
    kept = with_plan(activations("selective", keep={"aten.addmm.default": [0]}))
    recomputed = with_plan(activations("recompute"))
    layer = 4096 * 2048 * 4
    # GELU's result is recomputed when the product before it is kept: a half of what there is, in
    # all layers but the one that backward is in.
    assert plain["peak_allocated"] - kept["peak_allocated"] == 3 * layer
    assert kept["peak_allocated"] > recomputed["peak_allocated"]
    assert plain["gpu_busy_ms"] < kept["gpu_busy_ms"] < recomputed["gpu_busy_ms"]
    saved = plain["by_category"]["Activation"] - recomputed["by_category"]["Activation"]
    assert saved >= 3 * 2 * layer


@pytest.mark.parametrize(
    ("entry", "moved"),
    [  # of a layer: its input, a quarter of GELU's, and GELU's input and result
        (activations("offload"), 2.25),
        (activations("selective", offload={"aten.addmm.default": [0]}), 1),
    ],
    ids=["all", "one op"],
)
def test_offloading_moves_activations_to_the_host(
    folder: Path, with_plan: Any, entry: dict[str, Any], moved: float
) -> None:
    script(folder)
    plain, offloaded = with_plan({}), with_plan(entry)
    layer = 4096 * 2048 * 4
    assert offloaded["host_pinned_peak"] == 4 * moved * layer
    # Either way neither GELU's input nor its result is there, but for the layer backward is in.
    assert plain["peak_allocated"] - offloaded["peak_allocated"] >= 5.5 * layer


def test_a_fused_optimizer_holds_no_temporaries(folder: Path, with_plan: Any) -> None:
    script(folder, rows=8)
    peaks = {
        kind: with_plan({"optimizer": {"implementation": kind}})["peak_allocated"]
        for kind in ("foreach", "fused", "single")
    }
    parameters = 4 * (2 * 512 * 2048 + 2560) * 4
    assert peaks["foreach"] - peaks["fused"] == pytest.approx(parameters, rel=0.005)
    one = 512 * 2048 * 4
    assert peaks["single"] - peaks["fused"] == pytest.approx(2 * one, rel=0.02)
    assert with_plan({})["peak_allocated"] == peaks["foreach"]


def test_the_optimizer_in_backward_frees_gradients(folder: Path, with_plan: Any) -> None:
    script(folder, rows=8)
    fused = {"implementation": "fused"}
    plain = with_plan({"optimizer": fused})
    inside = with_plan({"optimizer": {**fused, "in_backward": True}})
    gradients = 4 * (2 * 512 * 2048 + 2560) * 4
    # One of eight weights has its gradient at a time.
    assert plain["peak_allocated"] - inside["peak_allocated"] >= 0.85 * gradients
    assert "Gradient" not in inside["by_category"]
    assert inside["steps_by"] == "AdamW"
    assert inside["steps_completed"] == plain["steps_completed"] == 3


def test_clipping_keeps_the_optimizer_out_of_backward(folder: Path, estimate: Estimate) -> None:
    script(folder, clip="torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)")
    (folder / "p.json").write_text('{"schema_version": 1, "optimizer": {"in_backward": true}}')
    done = estimate("planned.py", "--plan", "p.json")
    assert done.returncode == 2
    assert "the plan cannot be applied: the script clips gradients" in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout


def test_state_on_the_host_leaves_the_gpu(folder: Path, with_plan: Any) -> None:
    script(folder, rows=8, width=4096)
    fused = {"implementation": "fused"}
    plain = with_plan({"optimizer": fused})
    hosted = with_plan({"optimizer": {**fused, "state": "host"}})
    weight = 4096 * 4 * 4096 * 4
    state = 2 * 8 * weight
    assert hosted["host_pinned_peak"] == pytest.approx(state, rel=0.002)
    assert hosted["by_category"].get("Optstate", 0) < 0.001 * state
    # The state of one weight visits the GPU at a time.
    saved = plain["peak_allocated"] - hosted["peak_allocated"]
    assert saved == pytest.approx(state - 2 * weight, rel=0.01)
    assert hosted["step_ms"] > plain["step_ms"]


def test_allocator_settings_are_set_before_the_gpu_is_there(folder: Path, with_plan: Any) -> None:
    script(folder)
    found = with_plan({"allocator": "expandable_segments:True"})
    assert found["allocator_conf"] == "expandable_segments:True"


def test_arguments_of_a_plan_go_to_the_script(folder: Path, answer: Answer) -> None:
    (folder / "p.json").write_text('{"schema_version": 1, "arguments": {"batch": 4096}}')
    planned = answer("train.py", "--plan", "p.json")
    assert (
        planned["peak_allocated"] == answer("train.py", "--", "--batch", "4096")["peak_allocated"]
    )


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        ('{"schema_version": 1, "optimizer": {"kind": 1}}', "'p.json' is no plan: 'optimizer' has"),
        ("nonsense", "'p.json' is no plan: it is no JSON"),
    ],
)
def test_a_bad_plan_is_one_sentence(
    folder: Path, estimate: Estimate, plan: str, sentence: str
) -> None:
    (folder / "p.json").write_text(plan)
    done = estimate("train.py", "--plan", "p.json")
    assert done.returncode == 2
    assert done.stderr.startswith(f"peakline: {sentence}")
    assert done.stderr.count("\n") == 1


def test_modules_that_no_model_has_are_named(folder: Path, estimate: Estimate) -> None:
    script(folder)
    plan = {"schema_version": 1, **activations("recompute")}
    plan["activations"][0]["modules"] = ["blocks.{0..3}"]
    (folder / "p.json").write_text(json.dumps(plan))
    done = estimate("planned.py", "--plan", "p.json")
    assert done.returncode == 2
    assert "Model has no module blocks.0, which the plan names" in done.stderr


def test_the_answer_says_what_was_changed(folder: Path, estimate: Estimate) -> None:
    script(folder)
    (folder / "p.json").write_text(
        json.dumps({"schema_version": 1, "optimizer": {"implementation": "fused"}})
    )
    done = estimate("planned.py", "--plan", "p.json")
    assert done.returncode == 0
    assert done.stdout.endswith("With the plan: fused optimizer.\n")


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        (
            {**activations("recompute"), "model": "Modell"},
            "no model of the script is a Modell, which the plan names; did you mean Model?",
        ),
        (
            {"fsdp": {"wrap": "layers"}},
            "the script does not call fully_shard, which fsdp.wrap would change",
        ),
    ],
)
def test_a_plan_for_another_script_is_refused_by_name(
    folder: Path, estimate: Estimate, plan: dict[str, Any], sentence: str
) -> None:
    script(folder)
    (folder / "p.json").write_text(json.dumps({"schema_version": 1, **plan}))
    done = estimate("planned.py", "--plan", "p.json")
    assert done.returncode == 2
    assert f"peakline: the plan cannot be applied: {sentence}\n" in done.stderr


FSDP = """
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Sequential(nn.Linear(512, 1024), nn.Linear(1024, 512))
            self.two = nn.Sequential(nn.Linear(512, 1024), nn.Linear(1024, 512))

        def forward(self, x):
            return self.two(self.one(x))

    dist.init_process_group("nccl")
    with torch.device("cuda"):
        model = nn.Sequential(*(Block() for _ in range(4)))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(10):
        model(torch.randn(8, 512, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_the_number_of_ranks_of_a_plan_is_the_jobs(folder: Path, with_plan: Any) -> None:
    write(folder, "planned.py", FSDP)
    found = with_plan({"arguments": {"world-size": 4}}, "--world-size", "8")
    assert found["world_size"] == 4


def test_levers_of_fsdp(folder: Path, with_plan: Any) -> None:
    write(folder, "planned.py", FSDP)
    flags = ("--world-size", "8")
    plain = with_plan({}, *flags)
    kept = with_plan({"fsdp": {"reshard_after_forward": False}}, *flags)
    parts = with_plan({"fsdp": {"wrap": "parts"}}, *flags)
    whole = with_plan({"fsdp": {"wrap": "model"}}, *flags)
    copies = with_plan({"fsdp": {"replicate": 2}}, *flags)
    assert kept["peak_allocated"] > plain["peak_allocated"]
    assert parts["peak_allocated"] < plain["peak_allocated"] < whole["peak_allocated"]
    state = "Optstate"  # a group of four has twice of what one of eight has
    assert copies["by_category"][state] == pytest.approx(2 * plain["by_category"][state], rel=0.01)
    assert {2, 4} <= set(copies["communicators"])


def test_layers_that_a_plan_makes_units_are_as_those_that_the_script_does(
    folder: Path, with_plan: Any
) -> None:
    write(folder, "planned.py", FSDP)
    flags = ("--world-size", "8")
    by_script = with_plan({}, *flags)
    one_unit = "\n".join(line for line in FSDP.splitlines() if "fully_shard(layer)" not in line)
    one_unit = "\n".join(line for line in one_unit.splitlines() if "for layer in model" not in line)
    write(folder, "planned.py", one_unit)
    by_plan = with_plan({"fsdp": {"wrap": "layers"}}, *flags)
    plain = with_plan({}, *flags)
    assert by_plan["peak_reserved"] == by_script["peak_reserved"] < plain["peak_reserved"]


def test_reducing_in_another_type_takes_more(folder: Path, with_plan: Any) -> None:
    text = FSDP.replace("fully_shard(layer)", "fully_shard(layer, mp_policy=P)")
    text = text.replace("fully_shard(model)", "fully_shard(model, mp_policy=P)")
    policy = "P = MixedPrecisionPolicy(param_dtype=torch.bfloat16)"
    text = text.replace(
        'dist.init_process_group("nccl")', f'{policy}; dist.init_process_group("nccl")'
    )
    write(folder, "planned.py", text)
    flags = ("--world-size", "8")
    narrow = with_plan({}, *flags)
    wide = with_plan({"fsdp": {"reduce_dtype": "float32"}}, *flags)
    assert wide["peak_allocated"] > narrow["peak_allocated"]
