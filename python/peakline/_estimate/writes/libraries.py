"""Libraries that write past Python's own functions, and those that send what they are given."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from concurrent.futures import Future
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from peakline._estimate.writes.overlay import Overlay
from peakline._imports import Action
from peakline._patches import Patches

# Loggers that can be told to stay at home.
_ENVIRONMENT = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "COMET_OFFLINE": "1"}
_ENVIRONMENT["MLFLOW_ALLOW_FILE_STORE"] = "true"  # the one store that needs no server, nor SQL
# How names of functions begin that change something on the Hugging Face Hub.
_CHANGES = {
    *("accept", "add", "batch", "cancel", "change", "comment", "copy", "create", "delete"),
    *("disable", "duplicate", "edit", "enable", "grant", "hide", "like", "merge", "move", "pause"),
    *("permanently", "preupload", "reject", "rename", "request", "restart", "resume", "scale"),
    *("set", "super", "suspend", "sync", "trigger", "unlike", "update", "upload"),
}
_JOBS = ("run_job", "run_uv_job")


def install(patches: Patches, overlay: Overlay) -> None:
    """For torch, which is there, and for what the environment tells."""
    _redirect_torch(patches, overlay)
    for name, value in _ENVIRONMENT.items():
        if name not in os.environ:
            patches.set(os.environ, name, value)


def _redirect_torch(patches: Patches, overlay: Overlay) -> None:
    """torch's C++ writers and readers open files by their names."""
    native: Any = torch._C
    patches.set(native, "PyTorchFileWriter", _with_path(native.PyTorchFileWriter, overlay, True))
    patches.set(native, "PyTorchFileReader", _with_path(native.PyTorchFileReader, overlay, False))
    patches.set(torch.jit, "save", _naming_second(torch.jit.save, overlay))
    patches.set(torch.jit, "load", _reading_first(torch.jit.load, overlay))
    patches.set(torch, "load", _reading_first(torch.load, overlay))
    patches.set(torch.serialization, "load", torch.load)


def _with_path(kind: Any, overlay: Overlay, writes: bool) -> Any:
    class Redirected(kind):  # type: ignore[misc]
        def __init__(self, file: Any, *args: Any, **kwargs: Any) -> None:
            if isinstance(file, (str, os.PathLike)):
                place = overlay.place_to_write(file) if writes else overlay.place(file)
                file = os.fspath(place)
            super().__init__(file, *args, **kwargs)

    Redirected.__name__ = Redirected.__qualname__ = kind.__name__
    return Redirected


def _is_path(thing: Any) -> bool:
    return isinstance(thing, (str, bytes, os.PathLike))


def _naming_second(function: Any, overlay: Overlay) -> Any:
    """`function(object, path, …)` writes."""

    @functools.wraps(function)
    def write(thing: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        return function(thing, overlay.place_to_write(f) if _is_path(f) else f, *args, **kwargs)

    return write


def _reading_first(function: Any, overlay: Overlay) -> Any:
    """`function(path, …)` reads."""

    @functools.wraps(function)
    def read(f: Any, *args: Any, **kwargs: Any) -> Any:
        return function(overlay.place(f) if _is_path(f) else f, *args, **kwargs)

    return read


def when_imported(patches: Patches, overlay: Overlay) -> dict[str, Action]:
    """What to do to which module, once the script imports it."""
    found: dict[str, Callable[[Patches, Overlay, Any], None]] = {
        "safetensors": _safetensors,
        "safetensors.torch": _safetensors,
        "safetensors.numpy": _safetensors,
        "h5py": _h5py,
        "pyarrow.parquet": _parquet,
        "wandb": _wandb,
        "mlflow": _mlflow,
        "huggingface_hub.hf_api": _hub,
    }
    return {name: _acting(action, patches, overlay) for name, action in found.items()}


def _acting(action: Any, patches: Patches, overlay: Overlay) -> Action:
    def act(module: ModuleType) -> None:
        action(patches, overlay, module)

    return act


def _safetensors(patches: Patches, overlay: Overlay, module: Any) -> None:
    """Its writer and its reader are Rust."""
    if hasattr(module, "serialize_file"):
        patches.set(module, "serialize_file", _naming_second(module.serialize_file, overlay))
    if hasattr(module, "safe_open"):
        patches.set(module, "safe_open", _reading_first(module.safe_open, overlay))


def _h5py(patches: Patches, overlay: Overlay, module: Any) -> None:
    kind: Any = module.File

    class File(kind):  # type: ignore[misc]
        def __init__(self, name: Any, mode: str = "r", *args: Any, **kwargs: Any) -> None:
            if _is_path(name):
                write = mode != "r"
                name = overlay.place_to_write(name, mode != "w") if write else overlay.place(name)
            super().__init__(name, mode, *args, **kwargs)

    patches.set(module, "File", File)


def _parquet(patches: Patches, overlay: Overlay, module: Any) -> None:
    patches.set(module, "write_table", _naming_second(module.write_table, overlay))
    patches.set(module, "read_table", _reading_first(module.read_table, overlay))


def _wandb(patches: Patches, overlay: Overlay, module: Any) -> None:
    """Weights & Biases keeps its run in the scratch folder, whatever mode the script names."""
    init = module.init

    @functools.wraps(init)
    def stay_at_home(*args: Any, **kwargs: Any) -> Any:
        overlay.uploads.append("Weights & Biases")
        kwargs["dir"] = os.path.join(overlay.folder, "wandb")
        os.makedirs(kwargs["dir"], exist_ok=True)
        if kwargs.get("mode") != "disabled":
            kwargs["mode"] = os.environ.get("WANDB_MODE", "offline")
        return init(*args, **kwargs)

    patches.set(module, "init", stay_at_home)


def _mlflow(patches: Patches, overlay: Overlay, module: Any) -> None:
    home = "file://" + os.path.join(overlay.folder, "mlruns")
    overlay.uploads.append("MLflow")
    module.set_tracking_uri(home)
    patches.set(module, "set_tracking_uri", lambda uri: None)
    patches.set(module, "set_registry_uri", lambda uri: None)


def _hub(patches: Patches, overlay: Overlay, module: Any) -> None:
    """Uploads end here; downloads, which scripts need, do not."""

    def stay_at_home(*args: Any, repo_id: Any = None, **kwargs: Any) -> Any:
        named = repo_id or next((arg for arg in args if isinstance(arg, str)), "a repository")
        overlay.uploads.append(f"the Hugging Face Hub ({named})")
        address = f"https://huggingface.co/{named}"
        made = _Repository(address, repo_id=str(named))
        return _done(made) if kwargs.get("run_as_future") else made

    for name in dir(module.HfApi):
        if name.split("_")[0] not in _CHANGES and name not in _JOBS:
            continue
        patches.set(module.HfApi, name, stay_at_home)
        if hasattr(module, name):
            patches.set(module, name, stay_at_home)


def _done(result: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(result)
    return future


class _Repository(str):
    """What the Hub's functions give: an address with facts about what was made."""

    def __new__(cls, address: str, **facts: Any) -> _Repository:
        made = super().__new__(cls, address)
        made.__dict__.update(facts, url=address, commit_url=address, repo_url=address, oid="")
        made.__dict__.update(pr_url=None, commit=SimpleNamespace(oid="", url=address))
        return made
