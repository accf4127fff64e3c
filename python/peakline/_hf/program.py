"""The program behind `peakline estimate --hf`: trains or runs a model given by its configuration.

It is an ordinary program: on a machine with a GPU it does the same, and can be measured there.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
from collections.abc import Callable
from typing import Any

import torch

from peakline._hf import choices, models
from peakline._hf.choices import OPTIMIZERS, TRAIN
from peakline._hf.models import Unusable

_STEPS = 10


def add_arguments(parser: Any) -> None:
    parser.add_argument("--batch", type=int, default=1, metavar="N", help="default: 1")
    parser.add_argument(
        "--length", type=int, default=2048, metavar="N", help="tokens a sequence; default: 2048"
    )
    parser.add_argument("--train", choices=TRAIN, help="default: it generates")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw", help="default: adamw")
    parser.add_argument(
        "--checkpoint", action="store_true", help="recompute each layer in backward"
    )
    parser.add_argument(
        "--dtype", metavar="NAME", help="of the weights; default: the configuration's"
    )
    parser.add_argument(
        "--new-tokens", type=int, default=16, metavar="N", help="to generate; default: 16"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="peakline._hf.program", description=__doc__)
    parser.add_argument("config")
    add_arguments(parser)
    args = parser.parse_args()
    try:
        _check_packages(args)
        config = models.load_config(args.config)
        run = train if args.train else infer
        run(args, config)
    except Unusable as error:
        print(f"peakline: {error}", file=sys.stderr)
        return 2
    return 0


def infer(args: argparse.Namespace, config: Any) -> None:
    model = models.build(config, models.dtype_of(config, args.dtype)).eval()
    given = models.inputs(model, args.batch, args.length)
    with torch.inference_mode():
        if "input_ids" in given and model.can_generate() and args.new_tokens > 0:
            many = {"max_new_tokens": args.new_tokens, "min_new_tokens": args.new_tokens}
            model.generate(given["input_ids"], do_sample=False, **many)
        else:
            model(**given)


def train(args: argparse.Namespace, config: Any) -> None:
    config.use_cache = False
    dtype = models.dtype_of(config, args.dtype)
    _check_types(args, dtype)
    model = _quantised(config, dtype) if args.train == "qlora" else models.build(config, dtype)
    model.train()
    given = models.inputs(model, args.batch, args.length)
    given |= models.labels(model, given)
    if args.checkpoint:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    if args.train != "full":
        model = _with_adapters(model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = _optimizer(args.optimizer)(trained)
    # Weights in full precision are trained under autocast, as trainers do.
    narrow = dtype == torch.float32
    for _ in range(_STEPS):
        with torch.autocast("cuda", torch.bfloat16) if narrow else contextlib.nullcontext():
            loss = _loss(model(**given))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()


def _loss(results: Any) -> torch.Tensor:
    found = getattr(results, "loss", None)
    loss: torch.Tensor = results[0].float().mean() if found is None else found
    return loss


def _check_packages(args: argparse.Namespace) -> None:
    lacking = choices.missing(args.train, args.optimizer if args.train else None)
    if lacking:
        raise Unusable(lacking)


def _with_adapters(model: Any) -> Any:
    peft = importlib.import_module("peft")
    return peft.get_peft_model(model, peft.LoraConfig(r=16, target_modules="all-linear"))


def _quantised(config: Any, dtype: torch.dtype) -> Any:
    """All linear layers but the last in 4 bits, as bitsandbytes does on loading."""
    bnb = importlib.import_module("bitsandbytes")
    model = models.build(config, dtype, "cpu")
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is torch.nn.Linear and child is not head:
                made = bnb.nn.Linear4bit(
                    child.in_features,
                    child.out_features,
                    bias=child.bias is not None,
                    compute_dtype=dtype,
                    quant_type="nf4",
                    compress_statistics=True,
                )
                setattr(parent, name, made.to(dtype))
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model.to("cuda")


def _check_types(args: argparse.Namespace, dtype: torch.dtype) -> None:
    """Adapters are float32 beside narrower weights, so they can be stepped in any case."""
    if args.optimizer == "sgd8bit" and args.train == "full" and dtype == torch.bfloat16:
        raise Unusable(
            "bitsandbytes' SGD takes no bfloat16 gradients: give --dtype float32, or another "
            "--optimizer"
        )


def _optimizer(name: str) -> Callable[[Any], torch.optim.Optimizer]:
    if name.endswith("8bit"):
        optim = importlib.import_module("bitsandbytes.optim")
        kind = {"adamw8bit": optim.AdamW8bit, "sgd8bit": optim.SGD8bit}[name]
        extra = {"momentum": 0.9} if name == "sgd8bit" else {}
        return lambda parameters: kind(parameters, lr=1e-4, **extra)
    made: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
        "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-4),
        "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-4),
        "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-4, momentum=0.9),
        "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=1e-4),
        "adafactor": lambda parameters: torch.optim.Adafactor(parameters, lr=1e-4),
    }
    return made[name]


if __name__ == "__main__":
    sys.exit(main())
