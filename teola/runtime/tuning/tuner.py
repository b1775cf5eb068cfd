"""When an option is tuned, and on which queries (Hexgen-Text2SQL, section 4.4).

A state machine without clock and without processes: it is told what queries came and ended, is
asked at the end of each window, and names a sample to replay, once at a time.

    sample="window"      the paper's: after the first window; then whenever queries of the last
                         window took longer than those of the reference: what ended in that window
    sample="resampled"   the default: every `every_s` seconds, too; what runs now, and then 80
                         queries drawn from those that came in the last ten minutes, at their rate
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Literal

from teola.errors import InputError, UnknownName
from teola.plain_number import is_number
from teola.runtime.sim.staged import StagedQuery, Stages
from teola.runtime.tuning.drift import greater
from teola.runtime.tuning.recent import WINDOW_S, Recent
from teola.runtime.tuning.replay_case import MINIMISE, Minimise

EVERY_S: Final = 300.0
REFERENCES: Final = ("previous", "since_tuning")
SAMPLES: Final = ("window", "resampled")


@dataclass(frozen=True, slots=True)
class TunerOptions:
    """minimise: `mean` or `p95` of latencies, or the part of objectives that are `missed`.
    window_s: how often queries are compared with those before. p_value: how unlikely it has to be
    that they did not become slower. ref: what they are compared with, the `previous` window or the
    one `since_tuning`. sample, every_s: see the module."""

    minimise: Minimise = "mean"
    window_s: float = 100.0
    p_value: float = 0.01
    ref: Literal["previous", "since_tuning"] = "previous"
    sample: Literal["window", "resampled"] = "resampled"
    every_s: float = EVERY_S

    def __post_init__(self) -> None:
        choices: Mapping[str, tuple[Any, Sequence[str]]] = {
            "minimise": (self.minimise, MINIMISE),
            "ref": (self.ref, REFERENCES),
            "sample": (self.sample, SAMPLES),
        }
        for name, (value, known) in choices.items():
            if value not in known:
                raise UnknownName(name, str(value), known, "tuner")
        for name in ("window_s", "every_s"):
            if not _is_positive(getattr(self, name)):
                raise InputError(
                    f"tuner: {name} must be seconds above 0, got {getattr(self, name)!r}"
                )
        if not _is_positive(self.p_value) or self.p_value >= 1:
            raise InputError(f"tuner: p_value must be between 0 and 1, got {self.p_value!r}")


def _is_positive(value: object) -> bool:
    return is_number(value) and 0 < value < inf


class Tuner:
    """now: when it begins. so_far: see Recent. busy: a sample is being replayed; what would trigger
    another meanwhile is ignored."""

    def __init__(
        self,
        options: TunerOptions | None = None,
        now: float = 0.0,
        so_far: Callable[[str], Stages] | None = None,
    ) -> None:
        self.options = options or TunerOptions()
        self.recent = Recent(max(WINDOW_S, self.options.window_s), so_far)
        self.busy = False
        self._began = self._tuned = now
        self._window = now
        self._reference: list[float] | None = None
        self._samples = 0

    def began(self, id: str, query: StagedQuery) -> None:
        """A query was admitted."""
        self.recent.began(id, query)

    def ended(self, id: str, stages: Stages, now: float) -> None:
        """A query has ended well."""
        self.recent.ended(id, stages, now)

    @property
    def due(self) -> float:
        """When it is to be asked next: at the end of a window."""
        return self._window + self.options.window_s

    def look(self, now: float) -> list[StagedQuery] | None:
        """A window has ended. The sample to replay, if it is time to; it is `busy` then."""
        options, began = self.options, self._window
        self._window = now
        self.recent.forget(now)
        latencies = self.recent.latencies(began)
        first = self._reference is None
        drift = greater(latencies, self._reference or ())
        slower = drift is not None and drift.p < options.p_value
        if latencies and (first or options.ref == "previous"):
            self._reference = latencies
        if self.busy:
            return None
        if options.sample == "window":
            sample = self.recent.window(began) if (first and latencies) or slower else []
        else:
            late = now - self._tuned >= options.every_s
            seed = self._samples
            sample = (
                self.recent.resampled(now, seed) if (first and latencies) or slower or late else []
            )
        if not sample:
            return None
        self._samples += 1
        self.busy, self._tuned = True, now
        if options.ref == "since_tuning":
            self._reference = latencies or self._reference
        return sample

    def told(self) -> None:
        """The replay is over, however it ended."""
        self.busy = False
