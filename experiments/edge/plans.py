"""The cases: what servers do and when, who asks how often, all of it from a seed.

Standard library only: the peers' processes, which have an environment of their own, read this too.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

CALL_S: Final = 0.2
"""Of an answer, where a case says nothing else."""
FIRST: Final = 0.5
"""The part of it until the first token."""
WORDS: Final = ("lamp", "river", "stone", "seven", "north", "cloud", "amber", "field")
PIECES: Final = 5
SLOW: Final = "slow"
"""Stands in the tag of a question whose answer takes `SLOW_FACTOR` times as long."""
SLOW_FACTOR: Final = 10
MIX_ROWS: Final = 20
MIX_S: Final = 30.0
MIX_DEADLINE_S: Final = 12.0
"""A tenth of what queries have by default, so that a tenth of the time shows what comes of it."""
MIX_AT_ONCE: Final = 4
MIX_RATE: Final = MIX_AT_ONCE / (CALL_S * (1 + SLOW_FACTOR + MIX_ROWS) / 3)
"""Queries a second that use a server up."""
MIX_FIRST: Final = round(MIX_DEADLINE_S * MIX_RATE)
LONG: Final = "This sentence only fills the prompt of a question. " * 28
"""About 350 tokens."""


@dataclass(frozen=True, slots=True)
class Case:
    """about: what the servers do, for the page. servers: how many. queries, first, rate: so many in
    all, of them `first` at once, the others at random times at this rate a second. deadline_s: of
    each. bad: the server that misbehaves, from `bad_s` on. at_once: calls that a server takes,
    others are refused (`queues`: wait). requests, tokens: that it takes in any minute. long:
    prompts are. side_by_side: its seeds run at the same time, since it mostly waits. kind: what is
    asked: single `questions`, `urgent` ones among patient ones, a `map` beside a chat, `equal`
    ones, or a `mix` of questions, long answers and maps. prices: of a million tokens, by server,
    where they differ.
    """

    name: str
    about: str
    servers: int = 2
    queries: int = 150
    first: int = 0
    rate: float = 6.0
    deadline_s: float = 30.0
    bad: int | None = None
    bad_s: float = 0.0
    call_s: float = CALL_S
    at_once: int | None = None
    queues: bool = False
    requests: int | None = None
    tokens: int | None = None
    long: bool = False
    side_by_side: bool = False
    kind: str = "questions"
    max_sequences: int | None = None
    prices: tuple[float, ...] = ()


CASES: Final[Mapping[str, Case]] = {
    case.name: case
    for case in (
        Case(
            "limit_3",
            "one server takes three calls at once and refuses others (429, Retry-After: 1)",
            servers=1,
            first=12,
            rate=10.0,
            at_once=3,
        ),
        Case(
            "rpm_60",
            "one server takes 60 calls in any minute, tells what is left in headers, and refuses "
            "others (429, Retry-After: when the oldest is a minute old)",
            servers=1,
            queries=150,
            first=150,
            requests=60,
            deadline_s=170.0,
            side_by_side=True,
        ),
        Case(
            "tpm_20000",
            "one server takes 20,000 tokens in any minute, prompts and longest answers when they "
            "come and what was written when they end; headers and refusals as before",
            servers=1,
            queries=130,
            first=130,
            tokens=20_000,
            long=True,
            deadline_s=170.0,
            side_by_side=True,
        ),
        Case(
            "one_refuses",
            "one of two servers refuses everything (429, Retry-After: 1)",
            bad=0,
        ),
        Case(
            "one_hangs",
            "one of two servers takes calls from the 4th second on and says nothing more",
            bad=0,
            bad_s=4.0,
        ),
        Case(
            "one_20x_slow",
            "one of four servers is 20 times slower from the 8th second on",
            servers=4,
            queries=160,
            rate=5.0,
            bad=0,
            bad_s=8.0,
        ),
        Case(
            "resets",
            "both servers reset one connection in ten, half of them before the first token and "
            "half in the middle of the answer",
        ),
        Case(
            "flaps",
            "one of two servers is there for three seconds and away for three, with all "
            "connections reset",
            bad=0,
        ),
        Case(
            "all_down_10s",
            "both servers are away from the 4th to the 14th second",
            deadline_s=40.0,
            bad_s=4.0,
        ),
        Case(
            "two_providers",
            "the cheaper of two providers takes three calls at once (429, Retry-After: 1), the "
            "other takes any; their keys and the names of their models differ",
            rate=12.0,
            at_once=3,
            prices=(1.0, 10.0),
        ),
        Case(
            "urgent",
            "one server answers two calls at once, of half a second, and lets others wait; a fifth "
            "of the questions have 1.5 to 4 s to live, the others ten minutes",
            servers=1,
            queries=100,
            first=30,
            rate=3.0,
            deadline_s=600.0,
            call_s=0.5,
            at_once=2,
            queues=True,
            kind="urgent",
            max_sequences=2,
        ),
        Case(
            "map_beside_chat",
            "one server answers four calls at once and lets others wait; beside a map of 200 rows "
            "come single questions, two a second",
            servers=1,
            queries=20,
            rate=2.0,
            deadline_s=120.0,
            at_once=4,
            queues=True,
            kind="map",
            max_sequences=4,
        ),
        Case(
            "equal",
            "ten times ten equal questions at once, and five maps of twenty rows with two values, "
            "one row at a time",
            servers=1,
            queries=105,
            deadline_s=60.0,
            kind="equal",
        ),
        *(
            Case(
                name,
                "one server answers four calls at once and lets others wait; questions, answers "
                "that take ten times as long and maps of 20 rows in equal numbers, "
                f"{load:g} times as many as it can answer, each with 12 s to live; at the "
                "beginning there are so many that they all need those 12 s",
                servers=1,
                queries=MIX_FIRST + round(MIX_S * load * MIX_RATE),
                first=MIX_FIRST,
                rate=load * MIX_RATE,
                deadline_s=MIX_DEADLINE_S,
                at_once=MIX_AT_ONCE,
                queues=True,
                kind="mix",
                max_sequences=MIX_AT_ONCE,
            )
            for name, load in (("overload_1_2x", 1.2), ("overload_2x", 2.0))
        ),
    )
}
QUICK: Final = ("limit_3", "one_refuses", "one_hangs", "one_20x_slow", "all_down_10s")
MAP_ROWS: Final = 200
EQUAL_ROUNDS: Final = 10
EQUAL_AT_ONCE: Final = 10
EQUAL_MAPS: Final = 5
EQUAL_ROWS: Final = 20


@dataclass(frozen=True, slots=True)
class Query:
    """One question. at: when it is asked, seconds after the beginning. tag: its number, which the
    answer is computed from. rows: of a map; 0: it is one question."""

    at: float
    tag: str
    question: str
    deadline_s: float
    rows: int = 0

    @property
    def calls(self) -> tuple[str, ...]:
        """The tags of its questions."""
        return tuple(f"{self.tag}/{k}" for k in range(self.rows)) if self.rows else (self.tag,)


def queries(case: Case, seed: int, count: int | None = None) -> list[Query]:
    """What is asked, in order of time. count: other than the case's number."""
    chance = random.Random(f"{case.name}/{seed}")
    found, at = [], 0.0
    for k in range(count or case.queries):
        if k >= case.first:
            at += chance.expovariate(case.rate)
        deadline_s = case.deadline_s
        if case.kind == "urgent" and k >= case.first and chance.random() < 0.3:
            deadline_s = chance.uniform(1.5, 4.0)
        tag, rows = f"{seed}/{k}", 0
        if case.kind == "mix":
            slow, rows = chance.choice((("", 0), (f"/{SLOW}", 0), ("", MIX_ROWS)))
            tag += slow
        found.append(Query(at, tag, question(tag, long=case.long), deadline_s, rows))
    return found


def call_s(case: Case, tag: str) -> float:
    """How long the answer to this question takes."""
    return case.call_s * (SLOW_FACTOR if tag.endswith(SLOW) else 1)


def question(tag: str, *, long: bool = False) -> str:
    """A question whose number stands in it."""
    return f"[[{tag}]] Which words belong to this number? {LONG if long else ''}".strip()


def answer(tag: str) -> tuple[str, ...]:
    """The pieces of the answer to the question of this number."""
    digest = hashlib.sha256(tag.encode()).digest()
    words = [WORDS[byte % len(WORDS)] for byte in digest[: PIECES - 1]] + [digest[:4].hex()]
    return tuple(word if k == 0 else f" {word}" for k, word in enumerate(words))


def met_in_turn(case: Case, seed: int) -> set[str]:
    """The queries that are answered in time if the one that came first always goes first, and what
    cannot be in time any more is dropped: what nobody should be worse than."""
    free = [0.0] * (case.at_once or 1)
    met = set()
    for query in sorted(queries(case, seed), key=lambda query: query.at):
        ends = 0.0
        for tag in query.calls:
            first = min(range(len(free)), key=free.__getitem__)
            ends = max(free[first], query.at) + call_s(case, tag)
            if ends > query.at + query.deadline_s:
                break
            free[first] = ends
        else:
            met.add(query.tag)
    return met


def met_by_deadlines(case: Case, seed: int) -> set[str]:
    """The questions that are answered in time if the server always takes the one whose deadline is
    the earliest, and drops what cannot be in time any more: what an order could reach at most."""
    coming = sorted(queries(case, seed), key=lambda query: query.at)
    free = [0.0] * (case.at_once or 1)
    waiting: list[Query] = []
    met = set()
    while coming or waiting:
        now = min(free)
        if not waiting and coming[0].at > now:
            now = coming[0].at
        while coming and coming[0].at <= now:
            waiting.append(coming.pop(0))
        waiting = [q for q in waiting if q.at + q.deadline_s >= now + case.call_s]
        if not waiting:
            continue
        first = min(waiting, key=lambda query: query.at + query.deadline_s)
        waiting.remove(first)
        met.add(first.tag)
        free[free.index(min(free))] = now + case.call_s
    return met
