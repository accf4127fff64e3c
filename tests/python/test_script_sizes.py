"""Which arguments of a script are its batch and its length, and how a value is handed over."""

from __future__ import annotations

import argparse
import types
from pathlib import Path

import pytest

from peakline._fit.variables import with_values
from peakline._patches import Patches
from peakline._script_sizes import (
    BATCH,
    LENGTH,
    BatchMet,
    Size,
    in_order,
    kind_of,
    of_function,
    of_globals,
    of_words,
    watch_argparse,
)


@pytest.mark.parametrize(
    "name",
    [
        *("batch", "batch-size", "batch_size", "batchsize", "bs", "train_batch_size", "mbs"),
        *("per_device_train_batch_size", "micro-batch-size", "training.local_batch_size"),
    ],
)
def test_names_of_a_batch(name: str) -> None:
    assert kind_of(name) == BATCH


@pytest.mark.parametrize(
    "name", ["length", "seq-len", "seq_length", "max_seq_len", "block_size", "context-length"]
)
def test_names_of_a_length(name: str) -> None:
    assert kind_of(name) == LENGTH


@pytest.mark.parametrize(
    "name",
    [
        *("eval_batch_size", "batches", "num-batches", "total_batch_size", "rows", "lr", "steps"),
        *("batch_norm", "patch_size", "val_bs", "max_new_tokens", ""),
    ],
)
def test_names_of_something_else(name: str) -> None:
    assert kind_of(name) is None


def test_a_batch_is_tried_before_a_length_and_that_of_one_process_before_the_whole() -> None:
    sizes = [Size("seq-len", 9), Size("batch", 8), Size("micro_batch_size", 4), Size("bs", 1)]
    assert [one.name for one in in_order(sizes)] == ["micro_batch_size", "batch", "seq-len"]


def test_a_name_that_is_found_twice_counts_as_it_was_typed() -> None:
    assert in_order([Size("batch-size", 8), Size("batch_size", 4)]) == [Size("batch-size", 8)]


@pytest.mark.parametrize(
    ("words", "then"),
    [
        (["--lr", "1", "--batch-size", "64"], ["--lr", "1", "--batch-size", "3"]),
        (["--batch-size=64", "--lr=1"], ["--batch-size=3", "--lr=1"]),
        (["train.batch-size=64"], ["train.batch-size=3"]),
    ],
)
def test_a_word_is_replaced_where_it_stands(words: list[str], then: list[str]) -> None:
    ((size, marked),) = of_words(words)
    assert size.value == 64
    assert with_values(marked, {size.name: 3}) == then


def test_words_that_are_no_whole_number_are_none() -> None:
    assert of_words(["--batch-size", "auto", "batch", "--bs"]) == []


def test_what_argparse_gives_a_script_is_seen_and_argparse_is_left_as_it_was() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-b", "--batch-size", type=int, default=256)
    parser.add_argument("-l", dest="seq_len", type=int, default=128)
    parser.add_argument("--bs", default="8")
    parser.add_argument("--lengths", type=int, nargs="*", default=[1])
    own, seen = argparse.ArgumentParser.parse_known_args, list[Size]()
    with Patches() as patches:
        watch_argparse(patches, seen.append)
        assert parser.parse_args(["-b", "32"]).batch_size == 32
    assert argparse.ArgumentParser.parse_known_args is own
    assert seen == [Size("batch-size", 32), Size("l", 128, ["-l", "@l"])]


GLOBALS = """
batch_size = 12
block_size = 1024
name = "x"
batch = 1.5
exec(open("configurator.py").read())
batch_size = batch_size
"""


def script(folder: Path, text: str, **values: object) -> types.ModuleType:
    path = folder / "train.py"
    path.write_text(text)
    main = types.ModuleType("__main__")
    main.__file__ = str(path)
    vars(main).update(values)
    return main


def test_globals_that_a_script_lets_its_words_replace(tmp_path: Path) -> None:
    found = of_globals(script(tmp_path, GLOBALS, batch_size=4, block_size=1024, batch=1.5))
    assert found[0] == Size("batch_size", 4, ["--batch_size=@batch_size"])
    assert [one.name for one in found] == ["batch_size", "block_size"]


def test_globals_of_other_scripts_cannot_be_set(tmp_path: Path) -> None:
    assert of_globals(script(tmp_path, "batch_size = 12", batch_size=12)) == []
    assert of_globals(script(tmp_path, "batch_size = (", batch_size=12)) == []
    assert of_globals(types.ModuleType("__main__")) == []


def test_arguments_of_a_function_with_a_whole_number() -> None:
    def train(batch: int = 8, length: int = 4, rate: float = 0.1, *, bs: bool = True) -> None: ...

    assert of_function(train) == [Size("batch", 8), Size("length", 4)]
    assert of_function(lambda batch: None) == []


@pytest.mark.parametrize(
    ("options", "words", "found"),
    [
        (["--batch-size"], ["--batch-size", "8"], ("--batch-size", 8)),
        (["--eval-batch-size", "--batch_size"], [], ("--batch_size", 32)),
        (["--bs"], [], ("--bs", 32)),
        (["--batch-size", "--micro-batch-size"], [], ("--micro-batch-size", 32)),
        (["--per_device_train_batch_size"], [], ("--per_device_train_batch_size", 32)),
        (["--eval-batch-size", "--batches"], [], None),
        (["--batch-size"], ["--batch-size", "1"], None),
    ],
)
def test_the_batch_argument_is_recognised_by_its_name(
    options: list[str], words: list[str], found: tuple[str, int] | None
) -> None:
    parser = argparse.ArgumentParser()
    for option in options:
        parser.add_argument(option, type=int, default=32)
    batch = BatchMet()
    with batch.watched():
        parser.parse_args(words)
    met = batch.found and (batch.found.option, batch.found.value)
    assert met == found
    assert argparse.ArgumentParser.parse_known_args.__module__ == "argparse"
