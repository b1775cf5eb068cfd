"""Agent sessions: what a request has in common with earlier ones, and which session comes next."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from experiments.replay.sessions import (
    AgentRequest,
    AgentSession,
    AgentThread,
    Coming,
    agent_sessions,
)
from teola.errors import InputError
from tests.planted import catches, edited

FIELDS = "t,in,out,reuse_tokens,api_time,think_time,stop,model"


def thread(id: str, *requests: tuple[int, int, int, float | None], parent: Any = None) -> Any:
    rows = [[0.0, a, b, c, 1.0, think, "", ""] for a, b, c, think in requests]
    return {"id": id, "parent": parent, "fields": FIELDS, "requests": rows, "subagents": []}


def read(folder: Path, *threads: Any) -> tuple[AgentThread, ...]:
    path = folder / "sessions.jsonl"
    path.write_text("\n".join(map(json.dumps, threads)))
    return agent_sessions(path)


THREE: list[tuple[int, int, int, float | None]] = [
    (100, 5, 0, 0.0),
    (200, 0, 64, None),
    (300, 7, 192, 5000.0),
]


def test_sessions_are_roots_of_three_requests_and_no_longer_prompts(tmp_path: Path) -> None:
    long = [*THREE, (200_001, 1, 0, 1.0)]
    other = [*THREE, (200_000, 1, 0, 1.0)]
    found = read(
        tmp_path,
        thread("a", *THREE),
        thread("b", *THREE, parent="a"),
        thread("c", *THREE[:2]),
        thread("d", *long),
        thread("e", *other),
    )
    assert [one.id for one in found] == ["a", "e"]


def test_thinking_is_capped_and_an_answer_has_a_token(tmp_path: Path) -> None:
    (found,) = read(tmp_path, thread("a", *THREE))
    assert found.requests[1] == AgentRequest(200, 1, 64, 0.0, 1.0)
    assert found.requests[2] == AgentRequest(300, 7, 192, 1800.0, 1.0)


def shared(session: AgentSession, count: int) -> list[list[int]]:
    """Of the first prompts, how many blocks of a token each pair has in common."""
    keys = [session.ask().keys(1, 0) for _ in range(count)]

    def common(x: tuple[int, ...], y: tuple[int, ...]) -> int:
        both = [*zip(x, y, strict=False)]
        return next((k for k, (a, b) in enumerate(both) if a != b), len(both))

    return [[common(x, y) for y in keys] for x in keys]


@catches(
    "the-longest-prompt",
    "a prompt goes on with the first of the last ones",
    edited(AgentSession.ask, "reversed(self._prompts)", "self._prompts"),
)
def test_a_prompt_begins_as_the_latest_one_that_is_long_enough() -> None:
    requests = [(10, 0), (30, 10), (20, 8), (40, 25), (50, 28)]
    given = tuple(AgentRequest(tokens, 1, reused, 0.0) for tokens, reused in requests)
    found = shared(AgentSession(AgentThread("a", given), 1), 5)
    assert [found[k][k] for k in range(5)] == [10, 30, 20, 40, 50]
    assert found[1][0] == 10
    assert found[2][1] == 8
    assert found[3][1:3] == [25, 8]  # the third prompt is too short for it
    assert found[4][1:4] == [25, 8, 28]


def test_only_the_last_three_prompts_are_looked_at() -> None:
    requests = [(90, 0), (20, 0), (20, 0), (20, 0), (95, 60)]
    given = tuple(AgentRequest(tokens, 1, reused, 0.0) for tokens, reused in requests)
    found = shared(AgentSession(AgentThread("a", given), 1), 5)
    assert found[4][:4] == [0, 0, 0, 0]


def test_nothing_is_shared_between_sessions() -> None:
    given = AgentThread("a", (AgentRequest(50, 1, 0, 0.0), AgentRequest(60, 1, 50, 0.0)))
    first, second = AgentSession(given, 1), AgentSession(given, 2)
    one = {key for _ in range(2) for key in first.ask().keys(1, 0)}
    assert not one & {key for _ in range(2) for key in second.ask().keys(1, 0)}
    assert first.next is None
    assert (first.id, second.id) == ("a/1", "a/2")


def test_threads_come_in_an_order_of_the_seed_all_of_them_before_one_comes_again() -> None:
    threads = [AgentThread(str(k), (AgentRequest(9, 1, 0, 0.0),)) for k in range(20)]

    def order(seed: int) -> list[str]:
        coming = Coming(threads, seed)
        assert all(0 <= at <= 60 for at in coming.starts(9))
        return [coming.begin().thread.id for _ in range(40)]

    assert order(1) == order(1) != order(2)
    assert {*order(1)[:20]} == {*order(1)[20:]} == {one.id for one in threads}
    numbers = [Coming(threads, 1).begin().number for _ in range(2)]
    assert numbers == [1, 1]
    assert all(a != b for a, b in pairwise(order(1)[:20]))


@pytest.mark.parametrize("line", ["{", "[1]", '{"parent": null}', '{"parent": null, "id": 1}'])
def test_what_is_no_session_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(line)
    with pytest.raises(InputError, match=r"bad\.jsonl"):
        agent_sessions(path)


def test_without_sessions_there_is_nothing_to_replay() -> None:
    with pytest.raises(InputError, match="no sessions"):
        Coming([])
