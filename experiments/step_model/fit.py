"""Finds the step time that a run had, from how long its answers took to decode.

The time from an answer's first token to its last is that of all steps between, its own decodings
and whatever was prefilled beside them: linear in the terms of the step, once it is known which
steps these were. A replay says so for a guess of the terms, least squares give a better guess, and
so on.
Times to the first token are not fitted: engines overlap steps, which delays a first token by more
than its own step.
"""

from __future__ import annotations

from typing import Final

import numpy
from scipy.optimize import nnls

from experiments.step_model.recorded import Recorded
from experiments.step_model.replay import TERMS, replay
from teola.profile import StepTime

ROUNDS: Final = 40
CLOSE: Final = 1e-4
"""A round that changes no answer's time by more than this fraction is the last one."""
GUESS: Final = StepTime(base_s=0.02, per_token_s=5e-5)


def fitted(run: Recorded, count: int) -> StepTime:
    """The step time that explains the first `count` answers, of least relative error; no term is
    negative. Of the other requests, only arrivals and lengths are looked at."""
    found = numpy.array([getattr(GUESS, term) for term in TERMS])
    seconds = numpy.array([request.last - request.first for request in run.requests[:count]])
    told = seconds > 0  # answers of one token say nothing
    for number in range(ROUNDS):
        made = replay(run, step_time(found))
        rows = numpy.array(made.decode[:count])[told] / seconds[told, None]
        scale = numpy.maximum(rows.max(axis=0), 1e-30)
        best = nnls(rows / scale, numpy.ones(len(rows)))[0] / scale
        # Halfway: what the terms change is which steps there are, so full strides overshoot.
        before, found = found, best if number == 0 else (found + best) / 2
        if numpy.abs(rows @ (found - before)).max() < CLOSE:
            break
    return step_time(found)


def step_time(terms: numpy.ndarray) -> StepTime:
    """From values in the order of TERMS."""
    return StepTime(**{name: float(value) for name, value in zip(TERMS, terms, strict=True)})
