"""On a real GPU: a tracked run, simulated, takes the segments that the run took.

Each program runs in a process of its own and is tracked before CUDA starts, so that nothing is in
the cache that the recording has not seen. Blocks that other streams use are freed late, which the
recording must tell.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

_FRAME = """
import json, os, sys
import torch
from torch import nn
import peakline

with peakline.track() as run:
{body}
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
run.save(sys.argv[1])
found = peakline.simulate(sys.argv[1])
shown = json.loads(run.to_json())
pairs = {{
    "peak reserved": (found.peak_reserved, stats["reserved_bytes.all.peak"]),
    "peak allocated": (found.peak_allocated, stats["allocated_bytes.all.peak"]),
    "segments": (found.segments, stats["num_device_alloc"]),
    "returned": (found.device_frees, stats["num_device_free"]),
    "retries": (found.retries, stats["num_alloc_retries"]),
    "retries shown": (shown["retries"], stats["num_alloc_retries"]),
    "settings": (found.conf, os.environ.get("PYTORCH_ALLOC_CONF", "")),
    "source": (found.settings_from, "recording"),
    "warnings": (run.warnings, []),
}}
print(json.dumps({{name: pair for name, pair in pairs.items() if pair[0] != pair[1]}}))
waits = stats["active_bytes.all.peak"] > stats["allocated_bytes.all.peak"]
print("waits" if waits else "no waits", "retries", stats["num_alloc_retries"], file=sys.stderr)
"""

_SIDE_STREAM = """
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    kept = []
    for i in range(200):
        x = torch.randn(1 << 20, device="cuda")
        with torch.cuda.stream(side):
            for _ in range(20):
                y = (x * 2).sin()
        x.record_stream(side)
        y.record_stream(main)
        kept.append(y)
        if i % 7 == 0:
            kept.clear()
        del x, y
"""

_PREFETCHING_LOADER = """
    model = nn.Sequential(nn.Linear(2048, 8192), nn.GELU(), nn.Linear(8192, 2048)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    copies = torch.cuda.Stream()

    def fetch(i):
        with torch.cuda.stream(copies):
            host = torch.randn(1024 + 64 * (i % 5), 2048).pin_memory()
            return host.to("cuda", non_blocking=True)

    following = fetch(0)
    for i in range(30):
        torch.cuda.current_stream().wait_stream(copies)
        batch, following = following, fetch(i + 1)
        batch.record_stream(torch.cuda.current_stream())
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        del batch
"""

_FSDP1 = """
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    torch.cuda.set_device(0)
    layers = [nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True) for _ in range(6)]
    model = FSDP(
        nn.Sequential(*layers).cuda(),
        auto_wrap_policy=ModuleWrapPolicy({{nn.TransformerEncoderLayer}}),
        use_orig_params=True,
    )
    optimizer = torch.optim.AdamW(model.parameters())
    for i in range(8):
        model(torch.randn(8, 128 + 32 * (i % 3), 512, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""

_RETRIES = """
    torch.cuda.set_per_process_memory_fraction(2e9 / torch.cuda.mem_get_info()[1])
    for i in range(12):
        size = 100_000_000 + 7_000_000 * i
        big = [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(9)]
        del big
        if i == 5:
            torch.cuda.empty_cache()
"""


def _differences(body: str, conf: str = "", folder: str = "/tmp") -> str:
    script = _FRAME.format(body=body.replace("{{", "{").replace("}}", "}"))
    path = os.path.join(folder, f"peakline-{os.getpid()}.peak")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), path],
        env={**os.environ, "PYTORCH_ALLOC_CONF": conf},
        capture_output=True,
        text=True,
        check=False,
    )
    if os.path.exists(path):
        os.remove(path)
    print(done.stderr.strip().splitlines()[-1:] or "")
    return done.stdout.strip() if done.returncode == 0 else done.stderr


def test_side_streams_are_simulated_as_they_ran() -> None:
    assert _differences(_SIDE_STREAM) == "{}"


def test_side_streams_with_expandable_segments_are_simulated_as_they_ran() -> None:
    assert _differences(_SIDE_STREAM, "expandable_segments:True") == "{}"


def test_a_prefetching_loader_is_simulated_as_it_ran() -> None:
    assert _differences(_PREFETCHING_LOADER) == "{}"


def test_fsdp1_on_a_fake_group_of_four_is_simulated_as_it_ran() -> None:
    assert _differences(_FSDP1) == "{}"


def test_retries_and_emptied_caches_are_simulated_as_they_happened() -> None:
    assert _differences(_RETRIES) == "{}"


def test_retries_under_other_settings_are_simulated_as_they_happened() -> None:
    assert _differences(_RETRIES, "max_split_size_mb:64") == "{}"
