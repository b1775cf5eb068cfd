"""Sessions of coding agents: what each one asks next, once it has its last answer.

A session is a thread of requests, of which the lengths are known, what each has in common with
earlier ones, and how long the agent's tools and people took before it. Replayed, the next request
comes so long after the answer to the last one: a closed loop, in which a slow service is asked
less.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from experiments.replay.calls import TRACED
from teola.errors import InputError
from teola.kv import Excerpt
from teola.runtime.values import Composite

SESSION_BLOCK: Final = 64
LEAST_REQUESTS: Final = 3
MOST_TOKENS: Final = 200_000
MOST_THINK_S: Final = 1800.0
STARTS_S: Final = 60.0
"""Over which time the first sessions begin."""
REMEMBERED: Final = 3
"""Prompts of a thread that the next one may begin as."""
TEXTS: Final = 1 << 16
"""Numbers of texts that a session has to itself."""
FIELDS: Final = ("in", "out", "reuse_tokens", "think_time", "api_time", "stop")


class AgentRequest(NamedTuple):
    """prompt, output, reused: tokens; the first `reused` ones are those of an earlier prompt.
    think_s: from the last answer to this request. api_s: how long its answer took when it was
    recorded. stop: why that ended."""

    prompt: int
    output: int
    reused: int
    think_s: float
    api_s: float = 0.0
    stop: str = ""


@dataclass(frozen=True)
class AgentThread:
    """One recorded session."""

    id: str
    requests: tuple[AgentRequest, ...]


def agent_sessions(
    path: Path, *, least: int = LEAST_REQUESTS, most_tokens: int = MOST_TOKENS
) -> tuple[AgentThread, ...]:
    """The threads of a file that no other thread began, of at least so many requests and whose
    prompts are no longer than that. Raises InputError."""
    found = []
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                if line.strip() and (row := json.loads(line))["parent"] is None:
                    found.append(AgentThread(str(row["id"]), tuple(_requests(row))))
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise InputError(f"{path} is no file of agent sessions: {error!r}") from None
    return tuple(
        thread
        for thread in found
        if len(thread.requests) >= least
        and all(request.prompt <= most_tokens for request in thread.requests)
    )


def _requests(row: Mapping[str, Any]) -> Iterator[AgentRequest]:
    columns = row["fields"].split(",")
    at = [columns.index(name) for name in FIELDS]
    for request in row["requests"]:
        prompt, output, reused, think, api, stop = (request[k] for k in at)
        think_s = min(float(think or 0.0), MOST_THINK_S)
        yield AgentRequest(
            int(prompt),
            max(1, int(output)),
            int(reused),
            think_s,
            float(api or 0.0),
            str(stop or ""),
        )


class AgentSession:
    """A thread that is under way. number: makes its texts its own."""

    def __init__(self, thread: AgentThread, number: int) -> None:
        self.thread, self.number = thread, number
        self.asked = 0
        self._prompts: deque[Composite] = deque(maxlen=REMEMBERED)

    @property
    def id(self) -> str:
        """Of this run of the thread."""
        return f"{self.thread.id}/{self.number}"

    @property
    def next(self) -> AgentRequest | None:
        """The request that comes next; None: it has ended."""
        requests = self.thread.requests
        return requests[self.asked] if self.asked < len(requests) else None

    def ask(self) -> Composite:
        """The next request's prompt: it begins as the latest of the last three prompts that is long
        enough, and goes on with what is new."""
        request = self.thread.requests[self.asked]
        text = TRACED + self.number * TEXTS + self.asked
        base = next((p for p in reversed(self._prompts) if p >= request.reused), Composite())
        reused = min(request.reused, base, request.prompt)
        fresh = Excerpt(text, 0, request.prompt - reused)
        prompt = base.continued(reused, *([fresh] if fresh.length else []))
        self._prompts.append(prompt)
        self.asked += 1
        return prompt


class Coming:
    """Sessions, one after another: all threads in an order drawn by seed, then in another one."""

    def __init__(self, threads: Sequence[AgentThread], seed: int = 0) -> None:
        if not threads:
            raise InputError("there are no sessions to replay")
        self._threads, self._chance = tuple(threads), random.Random(f"sessions/{seed}")
        self._left: list[AgentThread] = []
        self._count = 0

    def starts(self, count: int) -> list[float]:
        """When the first `count` sessions begin, in seconds."""
        return [self._chance.uniform(0.0, STARTS_S) for _ in range(count)]

    def begin(self) -> AgentSession:
        """The session that begins next."""
        if not self._left:
            self._left = list(self._threads)
            self._chance.shuffle(self._left)
        self._count += 1
        return AgentSession(self._left.pop(), self._count)
