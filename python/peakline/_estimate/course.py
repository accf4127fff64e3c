"""How far a script is run: its first steps, and once what follows them."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable

from peakline import _C
from peakline._ending import EnoughSteps, EpochCut, caused_by
from peakline._estimate.epochs import Epochs
from peakline._estimate.idle import IdleOptimizers
from peakline._steps import Steps

_UNASKED = 2  # steps without asking a DataLoader for more: none feeds this training
_USUAL_STEPS = 3  # of an estimate
_SURE_OF_A_LEAK = 5  # steps: as many show any
_EVALUATIONS = 300  # of a closure in one step; LBFGS's history is full by then
_WARM_UPS = 16  # steps on a side stream, which a capture is taken to follow
_PREFETCHED = 100  # steps from batches that were taken before their DataLoader ended

_NOT_SEEN = (
    "the script was ended after {steps}, so what follows them (an evaluation, a checkpoint) was "
    "not seen; --steps all runs it to its end"
)
_SURPRISED = (
    "the script failed after its {what} had been ended early ({error}), so what follows was "
    "not seen; --steps all runs it to its end"
)
_LONG_STEP = (
    "one step evaluated its closure {times:,} times and was ended there, so what follows was not "
    "seen; --steps all runs the script to its end"
)
_NO_EVALUATION = (
    "evaluation was not seen: none came between the shortened epoch and the next; --steps all runs "
    "the script to its end"
)


class Course:
    """Ends the script by raising EnoughSteps inside it.

    After `limit` steps the DataLoaders that feed training end, so that the epoch does and whatever
    comes after it runs; the next epoch's first step is the last. Where no DataLoader feeds training
    nothing tells the script that an epoch is over, and the last of the steps ends it. Where
    `suspects` says that one more would show whether something leaks, there is one more, and at most
    another. Steps on a side stream warm up for a CUDA graph, which takes memory of its own, and do
    not count.
    """

    def __init__(
        self, steps: Steps, limit: int | None, suspects: Callable[[], bool] = lambda: False
    ) -> None:
        self._steps = steps
        self._suspects = suspects
        self._limit = limit  # None: to the script's own end
        self._warm_ups = 0
        self._is_usual = limit == _USUAL_STEPS
        self.epochs = Epochs(lambda: steps.done)
        self._process = os.getpid()
        self._ended_early = False
        self._not_seen = ""
        self._idle = IdleOptimizers()
        self._idle_sentences: list[str] = []
        steps.on_end(self._step_ended)
        steps.on_evaluation(self._evaluated)

    def _evaluated(self, times: int) -> None:
        if self._limit is None or times < _EVALUATIONS:
            return
        self._not_seen = _LONG_STEP.format(times=times)
        raise EnoughSteps

    def _step_ended(self) -> None:
        self.epochs.step_ended()
        if self._limit is None or self._warms_up() or self._steps.done < self._limit:
            return
        if self._steps.done == self._limit and (self.epochs.shorten() or self._one_more()):
            return
        if self._more_to_see():
            return
        if os.getpid() != self._process:  # a child of the script's
            raise SystemExit(0)
        self._ended_early = True
        self._idle_sentences = self._idle.sentences(self._steps.done)
        raise EnoughSteps

    def _warms_up(self) -> bool:
        assert self._limit is not None
        if self._warm_ups >= _WARM_UPS or _on_its_default_stream():
            return False
        self._warm_ups += 1
        self._limit += 1
        return True

    def _one_more(self) -> bool:
        assert self._limit is not None
        if not self._is_usual or self._limit == _SURE_OF_A_LEAK or not self._suspects():
            return False
        self._limit += 1
        return True

    def _more_to_see(self) -> bool:
        assert self._limit is not None
        beyond = self._steps.done - self._limit
        if beyond == 0 or self.epochs.next_has_begun():
            return False
        return beyond < (_PREFETCHED if self.epochs.any_has_ended() else _UNASKED)

    def stumbled(self, error: BaseException) -> bool:
        """Whether the script did not expect its DataLoader to end, and failed by it. A generator
        of its own around the loader raises its own StopIteration."""
        by_cut = caused_by(error, EpochCut) or (
            caused_by(error, StopIteration) and self.epochs.training_was_cut()
        )
        if by_cut:
            self._not_seen = _NOT_SEEN
        return by_cut

    def surprised(self, error: BaseException) -> bool:
        """Whether the script may have failed because it did not see its evaluation's end, or
        raised an error of its own about an epoch that was too short."""
        if self._limit is None:
            return False
        if self.epochs.evaluation_was_cut():
            what = "evaluation"
        elif self.epochs.training_was_just_cut() and _is_raised_on_purpose(error):
            what = "epoch"
        else:
            return False
        self._not_seen = _SURPRISED.format(what=what, error=type(error).__name__)
        return True

    def sentences(self) -> list[str]:
        """What was not seen, when the script has ended."""
        if self._ended_early and not self.epochs.any_has_ended():
            self._not_seen = _NOT_SEEN
        elif self._ended_early and not self.epochs.evaluations():
            self._not_seen = _NO_EVALUATION
        return (
            [self._not_seen.format(steps=_C.counted(self._steps.done, "step"))]
            if self._not_seen
            else []
        ) + self._idle_sentences

    def close(self) -> None:
        self._idle.close()


def _on_its_default_stream() -> bool:
    return bool(_C.vgpu.current_stream(_C.vgpu.current_device())[0] == 0)


def _is_raised_on_purpose(error: BaseException) -> bool:
    """By a check of the program's own, and not by torch or by anything that went wrong."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or "site-packages" in frames[-1].filename:
        return False
    return (frames[-1].line or "").startswith(("raise", "assert"))
