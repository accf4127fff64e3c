"""`peakline estimate`: the C++ program starts it."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peakline import _C, _new_file, _scratch, _script
from peakline._ending import SO_FAR
from peakline._estimate import all_ranks, arguments, host, job, leftovers, needed, neighbours
from peakline._estimate.arguments import BAD_USAGE, complain
from peakline._fit import curve

_LEAVE = os._exit  # a script's own call of it ends only the script


def main(argv: list[str]) -> int:
    if curve.is_asked_for(argv):
        return curve.main(argv)
    second_pass = needed.SecondPass(argv)
    others = neighbours.Neighbours(argv)
    args = arguments.parse(argv)
    began = time.perf_counter()
    status, found = estimate(args, others, began)
    if found is None:
        return status
    _say_what_is_needed(args, found, second_pass)
    return _tell(args, found, time.perf_counter() - began, status)


def estimate(
    args: argparse.Namespace, others: neighbours.Neighbours, began: float = 0.0
) -> tuple[int, dict[str, Any] | None]:
    """The exit status, and the answer unless there is nothing to tell."""
    try:
        if args.script:
            program: Any = _script.Script(args.script, args.script_args)
        else:
            program = _script.Module(args.module, args.script_args)
    except OSError as error:
        complain(f"cannot read '{args.script}': {error.strerror}")
        return BAD_USAGE, None
    _scratch.sweep()
    with contextlib.closing(others):
        if args.world_size:
            others.prepare()
        if not args.ranks:
            return _Estimate(args, program, args.rank or 0, others, began=began).run()
        status, answers = all_ranks.estimate_distinct(
            lambda rank, tell: _Estimate(args, program, rank, others, tell).run()
        )
    found = all_ranks.largest(answers) if answers else None
    if found is not None and len(found["ranks"]) < len(found["distinct_ranks"]):
        return status, None
    return status, found


class _Estimate:
    """One rank's. `run` gives the exit status, and the answer unless there is nothing to tell."""

    def __init__(
        self,
        args: argparse.Namespace,
        program: Any,
        rank: int,
        others: neighbours.Neighbours,
        tell_ranks: all_ranks.Tell | None = None,
        began: float = 0.0,
    ) -> None:
        self._args = args
        self._program = program
        self._rank = rank
        self._others = others
        self._tell_ranks = tell_ranks
        self._began = began

    def run(self) -> tuple[int, dict[str, Any] | None]:
        from peakline._estimate.course import Course
        from peakline._estimate.fakes import Fakes
        from peakline._estimate.finders import Finders
        from peakline._estimate.generation import Generation
        from peakline._estimate.leftovers import Leftovers
        from peakline._estimate.longest import LongestFirst
        from peakline._estimate.step_on import check
        from peakline._estimate.writes import Overlay
        from peakline._remedies import LayersMet
        from peakline._script_sizes import BatchMet
        from peakline.virtual_gpu import virtual_gpu

        args = self._args
        job.set_environment(args, self._rank)
        try:
            if args.step_on:
                args.step_on = check(args.step_on, self._program)
            self._gpu = gpu = virtual_gpu(
                args.gpu,
                memory=args.memory,
                devices=args.devices,
                values=dict(args.values),
                real_host=args.real_host,
                eager=args.eager,
                stand_ins=args.stand_ins,
                progress=complain,
                clock=not args.no_clock,
                source=not args.no_source,
                cpp=args.cpp_stacks,
            )
            self._fakes = Fakes(args.fakes)
            gpu.job.routing_imbalance = args.routing_imbalance
            gpu.job.tell_ranks = self._tell_ranks
            if args.world_size:
                self._exchange = self._others.of(self._rank, args.wanted)
                gpu.job.receive, gpu.job.send = self._receive, self._send
            self._course = Course(gpu.steps, args.steps, gpu.suspects_growth)
            self._generation = Generation()
            self._finders = Finders(gpu.steps)
            self._longest = LongestFirst()
            self._overlay = Overlay()
            self._leftovers = Leftovers()
            self._batch, self._layers = BatchMet(), LayersMet()
            gpu.on_model(self._layers.met)
            self._garbage = 0
            self._applied = self._apply_plan()
            with self._around(gpu), gpu as self._recording:
                ended = self._run_script()
                self._leftovers.end_processes()
                self._course.close()
                if ended.partial:
                    gpu.ended_early(ended.partial)
                gpu.job.finish()
            return self._conclude(ended)
        except (ValueError, OSError) as error:
            complain(str(error))
            return BAD_USAGE, None

    def _apply_plan(self) -> Any:
        if self._args.planned is None:
            return None
        from peakline._plan.applied import Applied

        return Applied(self._args.planned)

    @contextlib.contextmanager
    def _around(self, gpu: Any) -> Iterator[None]:
        """What changes the script, and what looks at it, from before there is a GPU."""
        with contextlib.ExitStack() as stack:
            for one in (self._applied, self._args.probe):
                if one is not None:
                    stack.enter_context(one.before(gpu))
            yield

    def _run_script(self) -> Any:
        from peakline._estimate import deadline, outcome
        from peakline._estimate.epochs import watched_loaders
        from peakline._estimate.step_on import NamedSteps
        from peakline._estimate.trainers import Trainers

        args, between = self._args, None
        with contextlib.ExitStack() as stack:
            if args.step_on:
                named = NamedSteps(args.step_on, self._gpu.steps)
                stack.enter_context(named.counted())
                between = named.look_in_script if named.in_script else None
            stack.enter_context(self._batch.watched())
            stack.enter_context(watched_loaders(self._course.epochs))
            stack.enter_context(Trainers(self._course.epochs).watched())
            stack.enter_context(self._generation.watched())
            stack.enter_context(self._finders.watched())
            if args.longest_first:
                stack.enter_context(self._longest.watched())
            stack.enter_context(self._fakes.registered())
            stack.enter_context(self._leftovers.watched())
            if not args.allow_writes:
                self._keep_writes_apart(stack)
            stack.enter_context(deadline.caught_os_exit(self._give_up))
            stack.enter_context(deadline.ending_on_sigterm(self._give_up))

            def run() -> None:
                # Around the script alone: the alarm rings again and again until it ends.
                with deadline.ending_after(args.timeout, self._give_up):
                    self._program.run(between)
                    self._leftovers.wait()

            return outcome.run_script(run, self._course, self._script_failed)

    def _script_failed(self) -> None:
        import torch

        from peakline._ending import caused_by
        from peakline._oom_facts import collect_garbage

        self._gpu.label_alive()
        if caused_by(sys.exc_info()[1], torch.OutOfMemoryError):
            self._garbage = collect_garbage(self._recording)

    def _keep_writes_apart(self, stack: contextlib.ExitStack) -> None:
        from peakline._estimate.writes import kept_apart

        second = self._args.second_pass is not None
        self._overlay = stack.enter_context(kept_apart(everything=second))
        if second:
            self._overlay.hide(self._args.hidden)

    def _receive(self, source: int) -> list[Any]:
        with self._overlay.plainly():
            return self._exchange.receive(source)

    def _send(self, target: int, objects: list[Any]) -> None:
        with self._overlay.plainly():
            self._exchange.send(target, objects)

    def _give_up(self, end: Any) -> None:
        """The script cannot be ended from inside: answers for what ran, and ends the process."""
        from peakline._estimate import outcome

        outcome.give_stdout_back()
        with self._overlay.plainly():
            ended = outcome.ended(end)
            if ended.partial:
                self._gpu.ended_early(ended.partial)
            status, found = self._conclude(ended)
            if found is not None:
                status = _tell(self._args, found, time.perf_counter() - self._began, status)
            self._overlay.close()
        sys.stdout.flush()
        sys.stderr.flush()
        self._others.close()
        _LEAVE(status)

    def _conclude(self, ended: Any) -> tuple[int, dict[str, Any] | None]:
        from peakline._estimate import answer, outcome
        from peakline._oom_facts import garbage_sentences

        args, gpu, recording = self._args, self._gpu, self._recording
        if self._applied is not None and self._applied.refused:
            complain(f"the plan cannot be applied: {self._applied.refused}")
            return BAD_USAGE, None
        if args.output:
            recording.save(_output(args, self._rank))
        has_answer = any(device.startswith("cuda") for device in recording.devices)
        if ended.partial:
            why = ended.partial if has_answer else ended.partial.removesuffix(SO_FAR)
            complain((f"rank {self._rank}: " if args.world_size else "") + why)
        if not has_answer:
            complain(self._leftovers.why_nothing())
            return ended.exit or outcome.SCRIPT_FAILED, None
        notes = [*gpu.notes(), *self._course.sentences(), *self._overlay.sentences()]
        notes += self._finders.sentences() + self._longest.sentences()
        notes += self._fakes.sentences() + self._leftovers.sentences()
        if args.step_on and not gpu.steps.done:
            notes.append(f"{args.step_on}, which --step-on names, was never called")
        found = answer.build(recording, ended, gpu.steps, gpu.survived_last_oom(), notes)
        self._generation.complete(found)
        # Memory that runs out after the steps does so in what follows them: an evaluation.
        found["trains"] = found["fits"] or gpu.steps.done >= (args.steps or 1)
        if gpu.times is not None:
            found |= gpu.times.answer(_C.cost.Profile(args.gpu))
        found["redirected"] = self._overlay.redirected
        found["made"] = self._overlay.made()
        found["chose_batch"] = self._finders.searched
        if found["oom"] is not None:
            found["oom"]["would_help"] += garbage_sentences(self._garbage)
        found["remedies"] = (self._batch.found, self._layers.checkpointed())
        found = gpu.job.complete(found, self._rank, args.nccl_memory, args.memory)
        host.complete(found, gpu.pinned_peak(), args.host_memory)
        if args.planned is not None:
            found["plan"] = args.planned.to_json()
        return ended.exit, found


def _output(args: argparse.Namespace, rank: int) -> Path:
    """`-o`; one file per rank when there are several."""
    path = Path(args.output)
    return path.with_name(f"{path.stem}.{rank}{path.suffix}") if args.ranks else path


def _say_what_is_needed(
    args: argparse.Namespace, found: dict[str, Any], second_pass: needed.SecondPass
) -> None:
    made, chose_batch = found.pop("made"), found.pop("chose_batch")
    batch, plan = found.pop("remedies")
    if found["gpu_fits"] or args.second_pass:
        return
    if found["oom"] is None:  # only what lies outside the allocator is too much
        found["needed_reserved"] = found["peak_reserved"]
    elif chose_batch:
        found["warnings"].append(
            "how much memory would do is not told: with more of it, the script's search for a "
            "batch size finds another batch"
        )
    else:
        complain("it does not fit; a second pass without the limit finds out how much would do")
        found["needed_reserved"] = second_pass.reserved(found["rank"], made)
        if args.advice and not args.ranks and args.planned is None:
            _try_remedies(
                args,
                found,
                batch,
                plan,
                lambda *asked: second_pass.with_change(found["rank"], made, *asked),
            )


def _try_remedies(
    args: argparse.Namespace, found: dict[str, Any], batch: Any, plan: Any, attempt: Any
) -> None:
    from peakline import _remedies

    if batch is None and plan is None:
        return
    complain(_remedies.announcement(batch, plan, args.advice))
    found["oom"]["would_help"] += _remedies.proven(attempt, batch, plan, args.advice)


def _tell(args: argparse.Namespace, found: dict[str, Any], seconds: float, status: int) -> int:
    from peakline._estimate import answer, generation, outcome

    answer.finish(found)
    if args.json == "-":
        print(json.dumps(found))
    elif args.json:
        _new_file.write_text(args.json, json.dumps(found) + "\n")
    if args.json != "-":
        what = args.hf or args.script or f"-m {args.module}"
        print(_C.estimate_text(json.dumps(host.gpu_side(found)), what, seconds), end="")
        print(generation.line(found), host.line(found), sep="", end="")
        if args.planned is not None:
            print(f"\nWith the plan: {'; '.join(args.planned.changes()) or 'no change'}.")
    return status if found["fits"] else outcome.DOES_NOT_FIT


if __name__ == "__main__":
    leftovers.leave(_script.for_a_reader(lambda: main(sys.argv[1:])))
