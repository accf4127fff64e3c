"""CPU tensors that have no bytes: models that are larger than the machine."""

import copy
import io
import json
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import peakline
from peakline import _C

MIB = 1 << 20
WIDE = 4096  # 64 MiB as a square of float32


@pytest.fixture
def run() -> Iterator[peakline.Run]:
    with peakline.virtual_gpu("h200", real_host=False) as run:
        yield run


def is_virtual(tensor: torch.Tensor) -> bool:
    return _C.vgpu.is_virtual_host(tensor)


def host_peak(run: peakline.Run) -> int:
    return int(json.loads(run.to_json())["host_peak"])


def test_a_model_larger_than_the_machine_is_built_on_the_cpu_and_moved(run: peakline.Run) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = nn.Sequential(*(nn.Linear(65536, 65536, bias=False) for _ in range(8)))
    model.to(torch.bfloat16).to("cuda")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100 * 1024  # kilobytes
    assert torch.cuda.memory_allocated() == 8 * 65536 * 65536 * 2
    assert host_peak(run) >= 8 * 65536 * 65536 * 4  # all of it in float32


def test_a_large_tensor_says_it_is_on_the_cpu(run: peakline.Run) -> None:
    tensor = torch.randn(WIDE, WIDE)
    assert is_virtual(tensor)
    assert tensor.is_cpu
    assert tensor.device == torch.device("cpu")
    assert tensor.type() == "torch.FloatTensor"
    assert tensor.cuda().device == torch.device("cuda:0")
    assert is_virtual(tensor.cuda().cpu())


def test_a_small_tensor_and_token_ids_are_real(run: peakline.Run) -> None:
    assert torch.full((10,), 2.0).sum().item() == 20.0
    ids = torch.arange(4_000_000)
    assert not is_virtual(ids)
    assert ids.max().item() == 3_999_999


def test_without_being_asked_for_a_virtual_gpu_leaves_host_tensors_real() -> None:
    with peakline.virtual_gpu("h200"):
        assert torch.ones(WIDE, WIDE).sum().item() == WIDE * WIDE


def test_a_value_that_is_read_counts_as_unknown(run: peakline.Run) -> None:
    tensor = torch.randn(WIDE, WIDE)
    assert _C.vgpu.unknown_values() == {}
    assert tensor.mean().item() == pytest.approx(1)
    assert tensor[0, :2].tolist() == pytest.approx([1, 1])
    assert tensor[0, :2].numpy().tolist() == pytest.approx([1, 1])
    assert sum(_C.vgpu.unknown_values().values()) == 3


def test_a_constant_is_known_at_any_size(run: peakline.Run) -> None:
    assert torch.zeros(WIDE, WIDE)[5, 5].item() == 0.0
    assert not torch.isnan(torch.randn(WIDE, WIDE)).any().item()


def test_casts_copies_and_state_dicts_stay_virtual(run: peakline.Run) -> None:
    model = nn.Linear(WIDE, WIDE)
    assert is_virtual(model.weight)
    assert model.weight.requires_grad
    twin = copy.deepcopy(model)
    assert is_virtual(twin.weight)
    twin.load_state_dict(model.state_dict())
    twin.half()
    assert is_virtual(twin.weight)
    assert twin.weight.dtype == torch.float16
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert torch.empty(WIDE, WIDE).dtype == torch.bfloat16
    finally:
        torch.set_default_dtype(torch.float32)


def test_what_is_computed_on_the_cpu_has_shapes(run: peakline.Run) -> None:
    model = nn.Linear(WIDE, WIDE)
    optimizer = torch.optim.AdamW(model.parameters())
    result = model(torch.ones(3, WIDE))
    assert result.shape == (3, WIDE)
    assert result.is_cpu
    result.pow(2).mean().backward()
    optimizer.step()
    state = optimizer.state[model.weight]["exp_avg"]
    assert is_virtual(state)
    assert state.shape == (WIDE, WIDE)


def test_pinned_tensors_are_pinned_and_counted_apart(run: peakline.Run) -> None:
    made = torch.empty(WIDE, WIDE, pin_memory=True)
    copied = torch.randn(WIDE, WIDE).pin_memory()
    assert made.is_pinned()
    assert copied.is_pinned()
    assert is_virtual(copied)
    assert _C.vgpu.pinned_peak() == 2 * 64 * MIB
    assert host_peak(run) >= 3 * 64 * MIB


def test_the_host_s_peak_is_that_of_real_tensors() -> None:
    peaks = []
    for real in (True, False):
        with peakline.virtual_gpu("h200", real_host=real) as run:
            first = torch.empty(WIDE, WIDE)
            second = torch.empty(WIDE, WIDE // 2)
            del first
            third = torch.empty(WIDE, WIDE // 4)
            del second, third
        peaks.append(host_peak(run))
    assert peaks[0] == peaks[1] == 96 * MIB


def test_the_free_of_a_host_tensor_gives_its_addresses_back(run: peakline.Run) -> None:
    def mapped() -> int:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")

    before = mapped()
    for _ in range(50):
        torch.empty(1 << 36, dtype=torch.uint8)
    assert mapped() - before < 1 << 36


def test_saving_writes_no_bytes_and_loading_reads_none(run: peakline.Run, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    model = nn.Linear(WIDE, WIDE)
    torch.save(model.state_dict(), path)
    assert path.stat().st_size > 64 * MIB
    assert path.stat().st_blocks * 512 < MIB
    loaded = torch.load(path)
    assert loaded["weight"].shape == (WIDE, WIDE)
    assert host_peak(run) >= 2 * 64 * MIB  # a real torch.load reads the file into memory
    model.load_state_dict(loaded)


def test_what_was_saved_without_bytes_is_unknown_when_it_comes_back(
    run: peakline.Run, tmp_path: Path
) -> None:
    weight = nn.Linear(WIDE, WIDE).weight
    torch.save(
        {"one": weight, "tied": weight.detach(), "zeros": torch.zeros(4 * MIB, dtype=torch.int64)},
        tmp_path / "model.pt",
    )
    loaded = torch.load(tmp_path / "model.pt")
    assert loaded["one"].flatten()[5].item() != 0
    assert loaded["one"].data_ptr() == loaded["tied"].data_ptr()
    assert loaded["one"].requires_grad
    assert host_peak(run) == 2 * (64 + 32) * MIB  # tied weights are one
    # What does have bytes in the file is known.
    assert loaded["zeros"].flatten()[5].item() == 0
    assert not bool((loaded["zeros"] != 0).any())


def test_batches_of_a_large_dataset_come_out_of_worker_processes(run: peakline.Run) -> None:
    data = torch.utils.data.TensorDataset(
        torch.randn(8000, 3, 32, 32), torch.randint(0, 10, (8000,))
    )
    for workers in (0, 1):
        images, labels = next(iter(torch.utils.data.DataLoader(data, 64, num_workers=workers)))
        assert images.shape == (64, 3, 32, 32)
        assert images.cuda().is_cuda
        assert labels.tolist() == data.tensors[1][:64].tolist()


def test_tensors_of_host_and_gpu_do_not_mix(run: peakline.Run) -> None:
    host = torch.randn(WIDE, WIDE)
    with pytest.raises(RuntimeError, match="same device"):
        host + host.cuda()


def test_a_real_tensor_takes_what_is_made_up(run: peakline.Run) -> None:
    real = torch.zeros(4)
    real.copy_(torch.randn(WIDE, WIDE)[0, :4])
    assert real.tolist() == pytest.approx([1] * 4)
    out = torch.empty(0)
    torch.stack([torch.randn(WIDE, WIDE)[0, 0]] * 3, out=out)
    assert out.shape == (3,)


def test_many_tensors_of_middling_size_are_virtual_in_the_end(run: peakline.Run) -> None:
    experts = [torch.empty(1024, 1024) for _ in range(64)]  # 4 MiB each
    assert not is_virtual(experts[0])
    assert is_virtual(experts[-1])


def test_initialisers_of_all_kinds_leave_large_tensors_alone(run: peakline.Run) -> None:
    for init in (
        nn.init.normal_,
        nn.init.uniform_,
        nn.init.trunc_normal_,
        nn.init.xavier_uniform_,
        nn.init.kaiming_normal_,
        nn.init.orthogonal_,
        nn.init.ones_,
    ):
        assert is_virtual(init(torch.empty(WIDE, WIDE)))


def test_activations_saved_on_the_cpu_are_there(run: peakline.Run) -> None:
    with torch.device("cuda"):
        model = nn.Sequential(*(nn.Linear(WIDE, WIDE) for _ in range(4)))
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        loss = model(torch.randn(WIDE, WIDE, device="cuda")).sum()
    loss.backward()
    assert host_peak(run) >= 4 * 64 * MIB
    assert _C.vgpu.pinned_peak() >= 4 * 64 * MIB


def test_safetensors_far_larger_than_memory_are_loaded_and_moved(
    run: peakline.Run, tmp_path: Path
) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    path, rows = tmp_path / "model.safetensors", 1 << 17
    size = rows * rows * 2  # 32 GiB
    tensors = {"weight": {"dtype": "BF16", "shape": [rows, rows], "data_offsets": [0, size]}}
    head = json.dumps(tensors).encode()
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        file.truncate(8 + len(head) + size)  # a hole
    weight = safetensors.load_file(path)["weight"]
    wide = weight.float()
    assert is_virtual(wide)
    assert weight.cuda().shape == wide.shape == (rows, rows)


def test_a_result_that_torch_makes_with_out_is_virtual_too(run: peakline.Run) -> None:
    tensor = torch.randn(WIDE, WIDE)
    assert is_virtual(tensor.abs())
    assert torch.isfinite(tensor).all().item()


def test_values_that_are_known_stay_known_beside_many_tensors(run: peakline.Run) -> None:
    held = [torch.empty(1024, 1024) for _ in range(64)]
    known = torch.arange(200_000, device="cuda").double().mul(2.0)
    assert len(held) == 64
    assert known[-1].item() == 399_998.0
    assert _C.vgpu.unknown_values() == {}


def test_weights_that_are_drawn_until_they_are_in_bounds_come_to_an_end(run: peakline.Run) -> None:
    weight = torch.empty(WIDE, WIDE)
    assert is_virtual(weight)
    nn.init.trunc_normal_(weight, std=0.0625, a=-0.1875, b=0.1875)
    nn.init.trunc_normal_(weight, std=0.02, a=0.08, b=0.1)  # drawn evenly, and most is rejected
    assert weight.cuda().shape == (WIDE, WIDE)


class _Wrapper(io.IOBase):
    """As torch.distributed.checkpoint wraps its files: it writes, and does not seek."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def write(self, data: Any) -> Any:
        return self.raw.write(data)


class _Pipe:
    """It has nothing but `write` and `flush`."""

    def __init__(self, file: Any) -> None:
        self.write, self.flush = file.write, file.flush


@pytest.mark.parametrize("wrap", [lambda file: file, _Wrapper, _Pipe], ids=["file", "dcp", "pipe"])
def test_what_has_no_bytes_is_saved_into_any_stream(
    run: peakline.Run, tmp_path: Path, wrap: Callable[[Any], Any]
) -> None:
    weight = torch.zeros(WIDE, WIDE)
    assert is_virtual(weight)
    with open(tmp_path / "saved.pt", "wb") as file:
        torch.save({"weight": weight, "after": torch.arange(3)}, wrap(file))
    loaded = torch.load(tmp_path / "saved.pt")
    assert loaded["weight"].shape == (WIDE, WIDE)
    assert loaded["after"].tolist() == [0, 1, 2]
    on_disk = os.stat(tmp_path / "saved.pt").st_blocks * 512
    assert (on_disk < MIB) == (wrap is not _Pipe)
