"""The step time of an LLM, found from runs that were measured: `teola profile fit`."""

from teola.runtime.step_fit.capacity import learned
from teola.runtime.step_fit.fit import errors, fitted, fitted_to_rates
from teola.runtime.step_fit.rates import MeasuredRate, measured_rates
from teola.runtime.step_fit.recorded_run import RecordedRequest, RecordedRun, load
from teola.runtime.step_fit.stepping import replay

__all__ = [
    "MeasuredRate",
    "RecordedRequest",
    "RecordedRun",
    "errors",
    "fitted",
    "fitted_to_rates",
    "learned",
    "load",
    "measured_rates",
    "replay",
]
