"""How instances are told to clients, and which other queries of a tenant are looked at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from teola.serve import looking, primitives_api
from teola.serve.board import Board
from teola.serve.looking import _instance, recent_traces


def instance(**more: Any) -> Any:
    plain = {
        "up": True, "gone": False, "health": None, "quota": None, "entries": 3, "batches": {1: 2},
        "weight": 40, "free": None,
    }  # fmt: skip
    return SimpleNamespace(**{**plain, **more})


def health(ejected: bool, well: bool) -> Any:
    return SimpleNamespace(ejected=lambda now: ejected, well=lambda now: well)


def quota(closed: bool, opens_at: float = 13.26) -> Any:
    return SimpleNamespace(closed=lambda now: closed, opens_at=lambda now: opens_at, refusals=4)


@pytest.mark.parametrize(
    ("more", "state", "opens_s"),
    [
        ({}, "up", None),
        ({"up": False}, "down", None),
        ({"up": False, "gone": True}, "gone", None),
        ({"health": health(False, True)}, "up", None),
        ({"health": health(True, False)}, "ejected", None),
        ({"health": health(False, False)}, "recovering", None),
        ({"quota": quota(False)}, "up", None),
        ({"quota": quota(True)}, "closed", 3.3),
        ({"quota": quota(True, 9.0)}, "closed", 0.0),
        ({"quota": quota(True), "health": health(True, False)}, "ejected", 3.3),
        ({"quota": quota(True), "up": False}, "down", 3.3),
    ],
)
def test_an_instance_tells_the_worst_of_its_states(
    more: dict[str, Any], state: str, opens_s: float | None
) -> None:
    found = _instance(instance(**more), 10.0)
    assert (found["state"], found["opens_s"]) == (state, opens_s)
    assert found["refusals"] == (4 if "quota" in more else 0)
    assert (found["in_flight"], found["batches"], found["weight"]) == (3, 1, 40)
    assert found["kv_free_tokens"] is None


class Copied(SimpleNamespace):
    """A trace, which is copied where its query runs."""

    def copy(self) -> Any:
        return Copied(**{**vars(self), "name": f"copy of {self.name}"})


def entry(name: str, tenant: str = "us", at: float = 0.0, **more: Any) -> Any:
    plain = {"name": name, "plan": "a plan", "admitted": at, "finished": at + 1.0}
    trace = Copied(**{**plain, **more}) if more.pop("traced", True) else None
    return SimpleNamespace(
        id=name, created=at, job=SimpleNamespace(tenant=tenant, trace=trace), result=None
    )


def board_of(*ended: Any, running: Any = ()) -> Board:
    board = Board(10)
    board.past.update((one.id, one) for one in ended)
    board.running.update((one.id, one) for one in running)
    return board


def test_recent_queries_are_a_tenants_last_and_those_that_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(looking, "RECENT_QUERIES", 2)
    board = board_of(
        entry("a"), entry("b"), entry("c", "them"), entry("d"),
        running=[entry("e"), entry("f", "them"), entry("g", traced=False), entry("h", plan=None)],
    )  # fmt: skip
    names = [trace.name for trace in recent_traces(board, "us")]  # type: ignore[attr-defined]
    assert names == ["copy of d", "copy of b", "copy of e"]


def test_queries_beside_one_ran_while_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    me = entry("me", at=10.0)
    board = board_of(
        me, entry("before", at=8.0), entry("until then", at=9.0), entry("within", at=10.5),
        entry("from then", at=11.0), entry("after", at=11.1), entry("theirs", "them", at=10.5),
        running=[entry("runs", at=9.5, finished=None), entry("new", at=12.0, finished=None)],
    )  # fmt: skip

    def beside(of: Any) -> set[str]:
        return {trace.name for trace in primitives_api._beside(board, of, "us")}  # type: ignore[attr-defined]

    assert beside(me) == {"until then", "within", "from then", "copy of runs"}
    running = board.running["runs"]
    later = {"until then", "within", "from then", "after", "copy of new", "me"}
    assert beside(running) == later
    monkeypatch.setattr(primitives_api, "MOST_BESIDE", 2)
    assert len(beside(running)) == 2
