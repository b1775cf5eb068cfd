"""Servers that are killed while their queries do things and ask people: nothing is done twice.

`python -m tests.serve.killing_asking 200` kills two hundred.
"""

from __future__ import annotations

import random
import signal
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

import httpx

from tests.serve.mortal import Mortal, mortal, place

PAUSE_S = 0.4
"""That a function takes."""
LIMIT_S = 90.0


@dataclass(frozen=True, slots=True)
class Asked:
    """kills: in all. unknown: of them, those after which people had to say what had become of a
    function. waiting: those of a query that waited for people."""

    kills: int
    unknown: int
    waiting: int


def kill_while_asking(n: int, seed: int = 0) -> Asked:
    """Kill `n` servers with SIGKILL, each at a random moment of a query that changes the world,
    asks a person, and changes it again; the next server must end it.

    Raises AssertionError where a query is lost, or something is done twice or not at all.
    """
    chance, found = random.Random(seed), Counter[str]()
    with place() as (folder, _), ExitStack() as stack:
        effects = folder / "effects"
        server = _started(stack, folder, effects)
        for round_ in range(n):
            token = f"round-{round_}"
            id: str = server.ask("asking", {"token": token}).json()["query_id"]
            until = monotonic() + chance.uniform(0.0, 4 * PAUSE_S)
            answers = chance.random() < 0.5  # else it is to be killed while it waits, perhaps
            while monotonic() < until:
                if answers:
                    _go_on(server, id, token, effects)
                sleep(0.02)
            found[server.get(id)["state"]] += 1
            server.end(signal.SIGKILL)
            server = _started(stack, folder, effects)
            limit = monotonic() + LIMIT_S
            while (state := _go_on(server, id, token, effects, found)) in ("running", "waiting"):
                assert monotonic() < limit, f"query {id} is {state} for ever"
                sleep(0.02)
            assert state == "ok", server.get(id)
            assert server.get(id)["result"]["outputs"]["answer"] == f"yes to the draft of {token}"
            done = _done(effects)
            assert done[f"prepare {token}"] == done[f"act {token}"] == 1, done
    return Asked(n, found["unknown"], found["waiting"])


def _started(stack: ExitStack, folder: Path, effects: Path) -> Mortal:
    return stack.enter_context(mortal(folder, ("asking",), pause_s=PAUSE_S, effects=effects))


def _go_on(
    server: Mortal, id: str, token: str, effects: Path, found: Counter[str] | None = None
) -> str:
    """Its state, after whatever it asks was answered."""
    query = server.get(id)
    for asked in query.get("asks", ()):
        answer: object = "yes"
        if asked["kind"] == "unknown":
            what = asked["component"]
            result = {"prepare": f"draft of {token}", "act": f"yes to the draft of {token}"}[what]
            done = _done(effects)[f"{what} {token}"]
            answer = {"do": "take", "result": result} if done else {"do": "repeat"}
            if found is not None:
                found["unknown"] += 1
        body = {"ask": asked["ask"], "answer": answer}
        httpx.post(f"{server.url}/v1/queries/{id}/answers", json=body, timeout=60)
    state: str = query["state"]
    return state


def _done(effects: Path) -> Counter[str]:
    """What was done to the world, and how often."""
    text = effects.read_text() if effects.exists() else ""
    return Counter(line.rpartition(" ")[0] for line in text.splitlines())


if __name__ == "__main__":
    print(kill_while_asking(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
