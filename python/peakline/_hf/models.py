"""A configuration as a model, and as a batch of inputs for it."""

from __future__ import annotations

import importlib.util
import inspect
import json
from pathlib import Path
from typing import Any

import torch

_MISSING = "a model given by its configuration needs transformers, which is not installed"
_AUDIO_FRAMES = 3000  # 30 seconds, which is all that Whisper takes
_SAMPLES_A_LETTER = 1600  # ten letters a second at 16 kHz


class Unusable(ValueError):
    """The text is one sentence for the user."""


def check(path: str) -> None:
    """Raises Unusable when there is nothing to build from `path`."""
    if importlib.util.find_spec("transformers") is None:
        raise Unusable(_MISSING)
    _read(path)


def _read(path: str) -> dict[str, Any]:
    file = Path(path) / "config.json" if Path(path).is_dir() else Path(path)
    try:
        found = json.loads(file.read_text())
    except OSError as error:
        raise Unusable(f"cannot read '{file}': {error.strerror}") from None
    except ValueError:
        raise Unusable(f"'{file}' is no JSON") from None
    if not isinstance(found, dict) or "model_type" not in found:
        raise Unusable(f"'{file}' names no model_type, so it is no configuration of transformers'")
    return found


def load_config(path: str) -> Any:
    from transformers import AutoConfig

    words = _read(path)
    try:
        return AutoConfig.for_model(words.pop("model_type"), **words)
    except ValueError as error:
        raise Unusable(f"transformers cannot use '{path}': {str(error).splitlines()[0]}") from None


def dtype_of(config: Any, given: str | None) -> torch.dtype:
    """The one that was asked for, the configuration's, or float32."""
    named = given or getattr(config, "dtype", None) or "float32"
    found = named if isinstance(named, torch.dtype) else getattr(torch, str(named), None)
    if not isinstance(found, torch.dtype):
        raise Unusable(f"torch has no type '{named}'")
    return found


def build(config: Any, dtype: torch.dtype, device: str = "cuda") -> Any:
    """The class that the configuration names, else a language model of its kind."""
    import transformers

    named = [getattr(transformers, name, None) for name in config.architectures or []]
    kinds = [kind for kind in named if kind is not None]
    with torch.device(device):
        build = kinds[0]._from_config if kinds else _of_its_kind
        model = build(config, dtype=dtype)
    return model.to(device)  # a parameter made by torch.Tensor(n) is the CPU's all the same


def _of_its_kind(config: Any, dtype: torch.dtype) -> Any:
    import transformers

    try:
        return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    except ValueError:
        return transformers.AutoModel.from_config(config, dtype=dtype)


def inputs(model: Any, batch: int, length: int, device: str = "cuda") -> dict[str, torch.Tensor]:
    """What its forward takes, without labels."""
    name = model.main_input_name
    config = model.config
    text = config.get_text_config()
    dtype = model.dtype
    if name == "pixel_values":
        vision = getattr(config, "vision_config", config)
        size = getattr(vision, "image_size", 224)
        high, wide = size if isinstance(size, (list, tuple)) else (size, size)
        channels = getattr(vision, "num_channels", 3)
        made = {name: torch.rand(batch, channels, high, wide, dtype=dtype, device=device)}
    elif name == "input_features":
        bins = getattr(config, "num_mel_bins", 80)
        made = {name: torch.rand(batch, bins, _AUDIO_FRAMES, dtype=dtype, device=device)}
    elif name == "input_values":
        made = {name: torch.rand(batch, length, dtype=dtype, device=device)}
    else:
        made = {name: _tokens(text.vocab_size, batch, length, device)}
    takes = inspect.signature(model.forward).parameters
    if config.is_encoder_decoder and "decoder_input_ids" in takes:
        made["decoder_input_ids"] = _tokens(text.vocab_size, batch, length, device)
    return made


def labels(model: Any, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Those of a language model or of a classifier; none where it takes none."""
    if "labels" not in inspect.signature(model.forward).parameters:
        return {}
    tokens = given.get("decoder_input_ids", given.get("input_ids"))
    first = next(iter(given.values()))
    if type(model).__name__.endswith("ForCTC"):
        letters = max(1, first.shape[-1] // _SAMPLES_A_LETTER)
        return {"labels": torch.ones(first.shape[0], letters, dtype=torch.long).to(first.device)}
    if tokens is None or "Classification" in type(model).__name__:
        if "TokenClassification" in type(model).__name__:
            return {"labels": torch.zeros_like(given["input_ids"])}
        return {"labels": torch.zeros(first.shape[0], dtype=torch.long, device=first.device)}
    return {"labels": tokens}


def _tokens(vocabulary: int, batch: int, length: int, device: str) -> torch.Tensor:
    return torch.randint(0, vocabulary, (batch, length)).to(device)
