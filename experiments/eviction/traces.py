"""The traces that are replayed: requests with the keys of their blocks, and who asks.

`Access.query` is who comes back for what is in the cache: a chat, or an agent's session. A call to
an API is a query by itself, which has ended when it is answered. Mooncake's trace does not tell.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from experiments.common.datasets import TRACES
from experiments.replay.calls import Recording, TracedCall
from experiments.replay.sessions import SESSION_BLOCK, AgentSession, agent_sessions
from experiments.replay.synthetic import trace_a, trace_b
from experiments.replay.traces import mooncake, public
from teola.errors import InputError
from teola.kv import NEVER, Access

SECONDS: Final = (7200.0, 900.0)
SESSIONS: Final = (60, 8)
STARTS_S: Final = 3600.0
CALLS: Final = 3000
AGENTS: Final = "llm_serving/agent_sessions.jsonl"
SYNTHETIC: Final = ("synthetic_a", "synthetic_b")
SHEET: Final = (5000, 10_000, 20_000, 40_000)
"""Capacities by which trace A was checked."""
PARTS: Final = {"agent_sessions": (64, 32, 16, 8)}
ALL_PARTS: Final = (64, 32, 16, 8, 4)
QUICK_PARTS: Final = (32, 8)
"""Capacities, as parts of the working set."""


class Asked(NamedTuple):
    """A request. keys: of its full blocks. tokens: of its prompt."""

    at: float
    keys: Sequence[Hashable]
    tokens: int
    access: Access


@dataclass(frozen=True)
class Trace:
    """Requests in order of arrival. graphs: whether it is known who comes back."""

    name: str
    block_tokens: int
    requests: Sequence[Asked]
    graphs: bool
    capacities: Sequence[int]

    @property
    def since(self) -> float:
        """When the second half of the requests begins; what comes before is to learn from, and not
        counted. (By time it would be the last, lonely ones where sessions begin early.)"""
        return self.requests[len(self.requests) // 2].at


def names(data: Path | None, file: Path | None) -> list[str]:
    """What can be replayed: a file alone, else whatever there is. Raises InputError."""
    if file is not None:
        if not file.is_file():
            raise InputError(f"{file} is no file")
        return [file.stem]
    if data is None:
        return [*SYNTHETIC]
    found = {"mooncake_conversation": TRACES["mooncake"], "agent_sessions": AGENTS}
    there = [name for name, path in found.items() if (data / path).is_file()]
    return [*there[:1], *SYNTHETIC, *there[1:]] if there else [*SYNTHETIC]


@lru_cache(1)
def load(name: str, data: Path | None, file: Path | None, quick: bool, seed: int) -> Trace:
    """One of them. Raises InputError."""
    if file is not None:
        return _file(name, file, quick, seed)
    if name == "synthetic_a":
        return _calls(name, trace_a(SECONDS[quick], seed=seed), _chat, quick)
    if name == "synthetic_b":
        return _calls(name, trace_b(SECONDS[quick], seed=seed), _single, quick)
    assert data is not None
    if name == "agent_sessions":
        return _agents(name, data / AGENTS, quick, seed)
    return _file(name, data / TRACES["mooncake"], quick, seed)


def _file(name: str, path: Path, quick: bool, seed: int) -> Trace:
    """A file, by what its first line says."""
    try:
        with path.open(encoding="utf-8-sig") as lines:
            first = json.loads(lines.readline())
            keys = set(first)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path} is no trace: {error}") from None
    if "requests" in keys:
        return _agents(name, path, quick, seed)
    if "chat_id" in keys:
        return _calls(name, public(path), _chat, quick)
    return _calls(name, mooncake(path, seed=seed), _unknown, quick)


Whose = Callable[[TracedCall, int], Access]


def _chat(call: TracedCall, number: int) -> Access:
    return Access((call.category, ""), 0, call.session or None)


def _single(call: TracedCall, number: int) -> Access:
    return Access((call.category, ""), 0, number, NEVER)


def _unknown(call: TracedCall, number: int) -> Access:
    return Access((call.category, ""))


def _calls(name: str, recording: Recording, whose: Whose, quick: bool) -> Trace:
    size = recording.block_tokens
    calls = recording.calls[:CALLS] if quick else recording.calls
    requests = [
        Asked(call.at, call.prompt.keys(size, 0), int(call.prompt), whose(call, number))
        for number, call in enumerate(calls)
    ]
    return _trace(name, size, requests, whose is _chat, quick)


def _agents(name: str, path: Path, quick: bool, seed: int) -> Trace:
    """An open loop: requests come when they were recorded, whatever the cache does. A session is
    of the category by which its last answer ended: what comes back for a tool's result comes sooner
    than what a person has to answer."""
    chance = random.Random(f"eviction/{seed}")
    threads = [*agent_sessions(path)]
    chance.shuffle(threads)
    requests = list[Asked]()
    for number, thread in enumerate(threads[: SESSIONS[quick]]):
        session, at = AgentSession(thread, number), chance.uniform(0.0, STARTS_S)
        while (request := session.next) is not None:
            at += request.think_s
            prompt = session.ask()
            access = Access(("agent", request.stop), 0, session.id)
            requests.append(Asked(at, prompt.keys(SESSION_BLOCK, 0), request.prompt, access))
            at += request.api_s
    requests.sort(key=lambda one: one.at)
    return _trace(name, SESSION_BLOCK, requests, True, quick)


def _trace(
    name: str, block_tokens: int, requests: Sequence[Asked], graphs: bool, quick: bool
) -> Trace:
    blocks = len({key for one in requests for key in one.keys})
    parts = QUICK_PARTS if quick else PARTS.get(name, ALL_PARTS)
    capacities: Sequence[int] = [max(1, blocks // part) for part in parts]
    if name == "synthetic_a" and not quick:
        capacities = SHEET
    return Trace(name, block_tokens, requests, graphs, capacities)
