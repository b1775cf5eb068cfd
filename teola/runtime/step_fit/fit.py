"""Finds the step time that a run had, from how long its answers took to decode.

The time from an answer's first token to its last is that of all steps between, its own decodings
and whatever was prefilled beside them: linear in the terms of the step, once it is known which
steps these were. A replay says so for a guess of the terms, least squares give a better guess, and
so on.
Times to the first token are not fitted: engines overlap steps, which delays a first token by more
than its own step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy

from teola.extras import needs
from teola.profile import StepTime
from teola.runtime.step_fit.rates import MeasuredRate
from teola.runtime.step_fit.recorded_run import RecordedRun
from teola.runtime.step_fit.stepping import TERMS, TermValues, replay

with needs("local", "`teola profile fit`"):
    from scipy.optimize import nnls

ROUNDS: Final = 40
CLOSE: Final = 1e-4
"""A round that changes no answer's time by more than this fraction is the last one."""
USUAL_ERROR: Final = 0.02
"""Runs that are off by less than this fraction weigh alike."""
GUESS: Final = StepTime(base_s=0.02, per_token_s=5e-5)


def fitted(run: RecordedRun, count: int, guess: StepTime = GUESS) -> StepTime:
    """The step time that explains the first `count` answers, of least relative error; no term is
    negative. Of the other requests, only arrivals and lengths are looked at."""
    terms = numpy.array([getattr(guess, term) for term in TERMS])
    seconds = numpy.array([request.last - request.first for request in run.requests[:count]])
    telling = seconds > 0  # answers of one token say nothing
    for number in range(ROUNDS):
        replayed = replay(run, step_time(terms))
        rows = numpy.array(replayed.decode[:count])[telling] / seconds[telling, None]
        best = _least_relative(rows)
        # Halfway: what the terms change is which steps there are, so full strides overshoot.
        before, terms = terms, best if number == 0 else (terms + best) / 2
        if numpy.abs(rows @ (terms - before)).max() < CLOSE:
            break
    return step_time(terms)


def fitted_to_rates(measured: Sequence[MeasuredRate]) -> StepTime:
    """The step time that explains measured runs of one load each, of least relative error; no term
    is negative. Runs that no such time explains weigh little: published ones are not all sound."""
    rows = _relative(measured)
    found = _least_relative(rows)
    for _ in range(ROUNDS):
        off = numpy.maximum(numpy.abs(rows @ found - 1), USUAL_ERROR)
        found = _least_relative(rows, 1 / numpy.sqrt(off))
    return step_time(found)


def errors(measured: Sequence[MeasuredRate], time: StepTime) -> list[float]:
    """For each run, the relative error of a token's time."""
    terms = numpy.array([getattr(time, term) for term in TERMS])
    return [float(one) for one in _relative(measured) @ terms - 1]


def _relative(measured: Sequence[MeasuredRate]) -> TermValues:
    """A row for each run: what its time is in proportion to, for each second of it."""
    return numpy.array([numpy.array(rate.terms) / rate.tpot_s for rate in measured])


def _least_relative(rows: TermValues, weights: TermValues | float = 1.0) -> TermValues:
    """The terms, none negative, with which all rows are as close to 1 as can be."""
    wanted = numpy.ones(len(rows)) * weights
    scale = numpy.maximum(rows.max(axis=0), 1e-30)
    found: TermValues = nnls(rows / scale * wanted[:, None], wanted)[0] / scale
    return found


def step_time(terms: TermValues) -> StepTime:
    """From values in the order of TERMS."""
    return StepTime(**{name: float(value) for name, value in zip(TERMS, terms, strict=True)})
