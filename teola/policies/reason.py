"""Why a call went where it went, or is held: figures that a routing policy gives at the moment of
placing, if somebody observes, and the words for them, which are made when somebody looks.

    held 0.4 s: no room beside programs that come back; then instance 1 of 2: finds 1,024 of
    1,300 tokens; least cost 0.12 s, next 0.31 s (instance 0)
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple


class Because(Enum):
    """What decided: the first group where a call goes, the second that it waits. Metrics have the
    values as a label, so that there must be few of them."""

    ONLY = "only"
    HOME = "home"
    PROGRAM = "program"
    FOUND = "found"
    KEPT = "kept"
    FIRST = "first"
    COST = "cost"
    LOAD = "load"
    SPEED = "speed"
    LOOKS = "looks"
    DECODES = "decodes"
    SHIFTED = "shifted"
    TURN = "turn"
    POLICY = "policy"
    ROOM = "room"
    ENDS = "ends"
    SOONEST = "soonest"
    UNTIMED = "untimed"
    CHEAPEST = "cheapest"
    DEARER = "dearer"
    BACKUP = "backup"

    GATE = "gate"
    HITS = "hits"
    SIBLINGS = "siblings"
    AHEAD = "ahead"
    HELD = "held"
    LIMIT = "limit"

    __hash__ = object.__hash__


ONLY_ONE: Final = "the only instance"
_PLACED: Final[Mapping[Because, str]] = {
    Because.HOME: "bound to its home",
    Because.PROGRAM: "what its program left is there, cost {here}, elsewhere {next}",
    Because.FOUND: "that is the most, next {next}",
    Because.KEPT: "least loaded of those that keep its beginning: {here} of calls, next {next}",
    Because.FIRST: "least to compute before its first token: {here}, next {next}",
    Because.COST: "least cost {here}, next {next}",
    Because.LOAD: "least loaded: {here}, next {next}",
    Because.SPEED: "done soonest there, by its load and its speed: {here}, next {next}",
    Because.LOOKS: "slow when it was used last; this call looks whether it still is",
    Because.DECODES: "decodes more than it prefills",
    Because.SHIFTED: "takes calls over: {here} of them against {next}",
    Because.TURN: "its turn",
    Because.POLICY: "chosen by its policy when the call was queued",
    Because.ROOM: "had room",
    Because.ENDS: "its work ahead and the call take {here}, next {next}",
    Because.SOONEST: "predicted to end first there",
    Because.UNTIMED: "had room, since times are not known yet",
    Because.CHEAPEST: "none is cheaper",
    Because.BACKUP: "a second time, since its first token is late elsewhere",
    Because.DEARER: "cheaper ones refuse, or would let it wait for too long",
}
_HELD: Final[Mapping[Because, str]] = {
    Because.GATE: "no room beside programs that come back",
    Because.HITS: "others are computed first where it would go",
    Because.SIBLINGS: "another call of its program computes what they share",
    Because.AHEAD: "the rest of its prompt comes later",
    Because.HELD: "its policy said so",
}
_LIMITED: Final = "waited for the server's rate limit, {seconds}"


class Hold(NamedTuple):
    """How long a call was held for one reason."""

    because: Because
    seconds: float

    @property
    def words(self) -> str:
        """For people."""
        seconds = _figure(self.seconds, "s")
        if self.because is Because.LIMIT:
            return _LIMITED.format(seconds=seconds)
        return f"held {seconds}: {_held(self.because)}"


class Reason(NamedTuple):
    """Why a call went to an instance, or (since: a time) is held.

    unit: of what instances were compared by, `s`, `calls` or `tokens` ("": none). here: that figure
    of the instance; next: the least of the others, which `other` has (None: there are no others).

    The rest is filled in by the scheduler. instances: how many there are. found: of the `total`
    tokens of its prompt, those that the instance was expected to find (total 0: nobody looked).
    holds: how long it was held before, and why. since: when the present hold began.
    """

    because: Because
    unit: str = ""
    here: float = 0.0
    next: float | None = None
    other: int = -1
    instances: int = 1
    found: int = 0
    total: int = 0
    holds: tuple[Hold, ...] = ()
    since: float | None = None

    def until(self, now: float) -> Reason:
        """With the time in `holds` for which it is held by now."""
        if self.since is None:
            return self
        seconds = {hold.because: hold.seconds for hold in self.holds}
        seconds[self.because] = seconds.get(self.because, 0.0) + now - self.since
        return self._replace(holds=tuple(map(Hold._make, seconds.items())), since=now)

    def words(self, instance: int) -> str:
        """A sentence about a call that went to `instance`, or is bound to it (-1: to none)."""
        told = [hold.words for hold in self.holds]
        if self.since is None and instance >= 0:
            told.append(self._placed(instance))
        return "; then ".join(told)

    def _placed(self, instance: int) -> str:
        if self.because is Because.ONLY:
            return ONLY_ONE
        found = f"finds {self.found:,} of {self.total:,} tokens; " if self.total else ""
        return f"instance {instance} of {self.instances}: {found}{self._compared()}"

    def _compared(self) -> str:
        words = _PLACED.get(self.because, _PLACED[Because.POLICY])
        if self.next is None:  # without what is said of others
            words = words.partition(", next")[0].partition(", elsewhere")[0]
        here, other = _figure(self.here, self.unit), _figure(self.next or 0.0, self.unit)
        if self.next == self.here:
            return words.replace("next {next}", "{next}").format(
                here=here, next=f"the same on instance {self.other}"
            )
        return words.format(here=here, next=f"{other} (instance {self.other})")


def _held(because: Because) -> str:
    return _HELD.get(because, _HELD[Because.HELD])


def _figure(value: float, unit: str) -> str:
    """A figure as people read it."""
    if unit == "s":
        if value < 0.1:
            return f"{1e3 * value:.{1 if value < 0.01 else 0}f} ms" if value else "0 s"
        return f"{value:.2f} s" if value < 10 else f"{value:,.0f} s"
    if unit:
        return f"{value:,.0f} {unit[:-1] if value == 1 else unit}"
    return f"{value:.2f}"
