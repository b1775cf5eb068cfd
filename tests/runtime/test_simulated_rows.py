"""Rows in virtual time: the same run, windows and slices as live, on StepServers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from teola.profile import EngineProfile, Profile, StepTime
from teola.runtime.asked_rows import WINDOW, AskedRows
from teola.runtime.sim import Sim
from teola.runtime.sim.llm import Stepper
from teola.runtime.sim.sim_rows import RowsOnServer, SimRow
from teola.runtime.values import Composite, Tokens
from teola.schedule.events import RowsEnded, State
from tests.planted import catches, edited

LLM = EngineProfile(
    max_batch=2048,
    max_sequences=16,
    step=StepTime(base_s=0.005, per_token_s=1e-5),
    prefix_reuse=True,
    keeps_prefixes=True,
    kv_blocks=2000,
    block_tokens=16,
)


def rows(count: int, groups: int = 20) -> Iterator[SimRow]:
    """An instruction of 64 tokens, 80 that `groups` rows share, 20 of a row's own."""
    instruction = Tokens.of(7, 0, 64).excerpt()
    for k in range(count):
        group, own = Tokens.of(100 + k // groups, 0, 80), Tokens.of(10_000 + k, 0, 20)
        parts = instruction, group.excerpt(), own.excerpt()
        yield SimRow(Composite.made_of(parts), 4, k % groups == 0)


def sim(instances: int = 1, **options: object) -> Sim:
    return Sim(Profile("p", {"llm": LLM}), instances={"llm": instances}, **options)  # type: ignore[arg-type]


@catches(
    "in-any-order",
    "rows have no identity on the server",
    edited(RowsOnServer.begin, "keys = row_keys(asked, said, self._profile)", "keys = ()"),
)
def test_rows_in_order_find_what_those_before_them_left() -> None:
    bed = sim()
    bed.ask_rows(rows(600))
    bed.run()
    (end,) = bed.rows_results
    assert (end.state, end.asked, end.tries) == (State.OK, 600, 600)
    assert end.prompt_tokens == 600 * 164
    assert end.completion_tokens == 600 * 4
    assert end.cached_tokens > 0.75 * end.prompt_tokens


def test_rows_that_no_memory_holds_fail_and_the_run_ends() -> None:
    """Also where nothing else happens that could end it."""
    bed = Sim(Profile("p", {"llm": replace(LLM, kv_blocks=5)}))
    bed.ask_rows(rows(3))
    bed.run()
    (end,) = bed.rows_results
    assert (end.failed, end.completion_tokens) == (3, 0)


@catches(
    "as-if-alone",
    "rows are sent as if nothing of them would be found, until some have ended",
    edited(AskedRows.found_of, "int(self.shared * tokens)", "0"),
)
def test_rows_that_are_said_to_share_go_more_at_a_time() -> None:
    """A step takes 500 tokens: three rows of 164 tokens, or more of the few that are their own."""
    engine, seconds = replace(LLM, max_batch=500, max_sequences=256), []
    for shared in (0.0, 0.8):
        bed = Sim(Profile("p", {"llm": engine}))
        bed.ask_rows(rows(200), warm=True, shared=shared)
        bed.run()
        (end,) = bed.rows_results
        assert (end.state, end.asked) == (State.OK, 200)
        seconds.append(end.seconds)
    assert seconds[1] < 0.8 * seconds[0]


@pytest.mark.parametrize("routing", ["least_loaded", "graph_aware"])
def test_an_instance_that_dies_costs_its_rows_and_no_others(routing: str) -> None:
    bed = sim(3, routing=routing)
    bed.ask_rows(rows(WINDOW + 100))
    bed.kill("llm", 1, at=0.3, back_s=0.5)
    bed.kill("llm", 0, at=0.7, back_s=0.5)
    bed.run()
    (end,) = bed.rows_results
    assert (end.state, end.asked, end.failed) == (State.OK, WINDOW + 100, 0)
    assert end.tries - end.asked <= 2 * 16
    assert bed.core.queues["llm"].idle
    assert bed.core.queues["llm"].retry_budget.budgeted == 0


def test_rows_end_with_their_deadline_or_when_they_are_cancelled() -> None:
    bed = sim()
    bed.ask_rows(rows(5000), id="late", deadline_s=0.5)
    bed.ask_rows(rows(5000), id="unwanted", cancel_after_s=0.7)
    bed.run()
    ended = {end.id: (end.state, end.finished) for end in bed.rows_results}
    assert ended == {"late": (State.DEADLINE, 0.5), "unwanted": (State.CANCELLED, 0.7)}
    assert bed.core.queues["llm"].idle
    assert not bed.rows


@pytest.mark.parametrize("cancel_after_s", [0.2, 0.2003, 0.31, 1.0])
def test_rows_that_are_stopped_are_told_at_once_and_not_after_a_step(
    cancel_after_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed, told = sim(), list[float]()
    handle = bed.handle

    def heard(event: Any, now: float) -> None:
        if isinstance(event, RowsEnded) and event.run == "unwanted" and now >= cancel_after_s:
            told.append(now)
        handle(event, now)

    monkeypatch.setattr(bed, "handle", heard)
    bed.ask_rows(rows(5000), id="unwanted", cancel_after_s=cancel_after_s)
    bed.run()
    assert told
    assert set(told) == {cancel_after_s}


@catches(
    "aborted-stay",
    "a slice whose rows were stopped stays on its server",
    edited(RowsOnServer.abort, "on_server.left -= 1", "pass"),
)
def test_a_server_forgets_a_slice_when_its_rows_have_ended_or_were_stopped() -> None:
    """Some of them have ended by then, and some wait for a place."""
    bed = sim()
    bed.ask_rows(rows(400), id="unwanted", cancel_after_s=0.2)
    bed.ask_rows(rows(50), id="wanted")
    bed.run()
    assert {end.state for end in bed.rows_results} == {State.CANCELLED, State.OK}
    (server,) = bed.servers.values()
    assert isinstance(server, Stepper)
    assert not server.rows._slices
    assert not server.calls
