"""`--hf`: the flags, and the words that they are for the program behind it."""

from __future__ import annotations

import argparse
import os

from peakline._hf.choices import OPTIMIZERS, TRAIN, missing

_FLAGS = ("batch", "length", "train", "optimizer", "dtype", "new_tokens")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a model of Hugging Face's, without a script")
    group.add_argument("--hf", metavar="CONFIG", help="its config.json, or the folder that has one")
    group.add_argument("--batch", type=int, metavar="N", help="sequences a batch; default: 1")
    group.add_argument("--length", type=int, metavar="N", help="tokens a sequence; default: 2048")
    group.add_argument("--train", choices=TRAIN, help="what is trained; default: it generates")
    group.add_argument("--optimizer", choices=OPTIMIZERS, help="default: adamw")
    group.add_argument("--checkpoint", action="store_true", help="recompute layers in backward")
    group.add_argument("--dtype", metavar="NAME", help="of the weights; default: the config's")
    group.add_argument("--new-tokens", type=int, metavar="N", help="to generate; default: 16")


def given_without_config(args: argparse.Namespace) -> str | None:
    """A flag that only --hf understands, where that was not given."""
    named = [name for name in _FLAGS if getattr(args, name) is not None]
    named += ["checkpoint"] if args.checkpoint else []
    return "--" + named[0].replace("_", "-") if named and args.hf is None else None


def words(args: argparse.Namespace) -> list[str]:
    made = [os.path.abspath(args.hf)]
    for name in _FLAGS:
        value = getattr(args, name)
        if value is not None:
            made += ["--" + name.replace("_", "-"), str(value)]
    return [*made, "--checkpoint"] if args.checkpoint else made


def check(args: argparse.Namespace) -> None:
    """Raises ValueError with one sentence when no model can be built, or not trained so."""
    from peakline._hf import models

    lacking = missing(args.train, args.optimizer if args.train else None)
    if lacking:
        raise ValueError(lacking)
    models.check(args.hf)
