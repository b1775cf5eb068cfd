"""What goes wrong in a run, drawn from its seed. Times in virtual seconds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf
from random import Random
from typing import Final

ENGINES: Final = ("embedding", "vectorstore", "rerank", "llm", "python")
NOTICED_S: Final = 40.0
"""An instance that hangs for ever is found out and replaced within this time."""


class Kind(Enum):
    """Faults of the last section of the reliability rules; see docs/reliability.md."""

    CRASH_BEFORE = "the instance dies as a request arrives"
    CRASH_AFTER = "the instance dies after it did the work, before it says so"
    LOST_ACK = "the work is done, the answer is lost"
    RESET = "the connection is reset in mid-stream"
    GARBAGE = "the answer has not the form that was asked for"
    KILL = "the instance dies, whatever it does"
    HANG = "nothing comes from the instance for a while"
    SLOW = "the instance takes 100 times as long"
    OUTAGE = "all instances of the engine die at once"
    FLAP = "the instance dies again and again"
    DRAIN = "the instance is drained and replaced"
    CLIENT_GONE = "the caller goes away"
    DEADLINE = "there is little time"
    REFUSE = "the instance's server takes no calls for a while"
    AWAY = "the instance's server is not there for a while"


ARMED: Final = (Kind.CRASH_BEFORE, Kind.CRASH_AFTER, Kind.LOST_ACK, Kind.RESET, Kind.GARBAGE)
"""They happen to the first request (stream) that comes after their time."""
OF_SERVERS: Final = (Kind.REFUSE, Kind.AWAY)
"""They are drawn apart from the others, which each seed had before."""
OF_QUERIES: Final = (Kind.CLIENT_GONE, Kind.DEADLINE)


@dataclass(frozen=True, slots=True)
class Fault:
    """kind: see there. at, lasts_s: when and how long. A fault of a query names its number."""

    kind: Kind
    engine: str
    instance: int
    at: float
    lasts_s: float = 0.0
    query: int = -1

    @property
    def over(self) -> float:
        """From when on it does no harm, unless it is one that waits for a request."""
        return self.at + (NOTICED_S if self.lasts_s == inf else self.lasts_s)


def draw(rng: Random, instances: int, queries: int, busy_s: float) -> list[Fault]:
    """A subset of the kinds, each once to three times, while queries run (`busy_s`)."""
    found: list[Fault] = []
    kinds = [kind for kind in Kind if kind not in OF_SERVERS]
    for kind in rng.sample(kinds, rng.choice((0, 1, 1, 2, 2, 3, 5))):
        for _ in range(1 if kind in OF_QUERIES else rng.choice((1, 1, 2, 3))):
            at, lasts_s = rng.uniform(0.0, busy_s), rng.uniform(0.05, 2.0)
            if kind is Kind.RESET:
                engine = "llm"
            elif kind is Kind.GARBAGE:
                engine = rng.choice([name for name in ENGINES if name != "llm"])
            else:
                engine = rng.choice(ENGINES)
            if kind is Kind.HANG:
                lasts_s = rng.choice((lasts_s, lasts_s, inf))
            place = rng.randrange(instances)
            query = rng.randrange(queries) if kind in OF_QUERIES else -1
            found.append(Fault(kind, engine, place, at, lasts_s, query))
    return found


def draw_refusals(rng: Random, instances: int, busy_s: float) -> list[Fault]:
    """In three of ten runs, one or two servers that refuse, or are away."""
    if rng.random() >= 0.3:
        return []
    return [
        Fault(
            rng.choice(OF_SERVERS),
            rng.choice(ENGINES),
            rng.randrange(instances),
            rng.uniform(0.0, busy_s),
            rng.uniform(0.05, 4.0),
        )
        for _ in range(rng.choice((1, 1, 2)))
    ]
