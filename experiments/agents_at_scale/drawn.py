"""Sessions drawn as those of coding agents are distributed, where no file of them is given."""

from __future__ import annotations

import random
from math import exp, log
from typing import Final

from experiments.replay.sessions import MOST_THINK_S, MOST_TOKENS, AgentRequest, AgentThread

THREADS: Final = 268
"""As many as the public file has of the kind that is replayed."""
PERSON: Final = 0.07
"""Requests that follow a person's turn instead of a tool's."""


def drawn_sessions(seed: int = 0, threads: int = THREADS) -> tuple[AgentThread, ...]:
    """Medians of: 47 requests a session, a first prompt of 21,000 tokens, 600 more and an answer of
    200 each time; pauses of 8 s for tools and 3 minutes for people. All but the first are assumed
    to be log-normal, and each prompt to begin as the one before."""
    chance = random.Random(f"agents/{seed}")

    def about(median: float, spread: float) -> float:
        return exp(chance.gauss(log(median), spread))

    def thread(number: int) -> AgentThread:
        prompt, think_s, stop = min(100_000, round(about(21_000, 0.8))), 0.0, ""
        reused, requests = 0, list[AgentRequest]()
        for _ in range(max(3, round(about(47, 1.0)))):
            person = chance.random() < PERSON
            output, stop = round(about(200, 1.0)), "end_turn" if person else "tool_use"
            requests.append(AgentRequest(prompt, max(1, output), reused, think_s, stop=stop))
            think_s = min(MOST_THINK_S, about(180, 1.5) if person else about(8, 1.2))
            reused, prompt = prompt, prompt + output + round(about(400, 1.2))
            if prompt > MOST_TOKENS:
                break
        return AgentThread(f"drawn-{number}", tuple(requests))

    return tuple(thread(number) for number in range(threads))
