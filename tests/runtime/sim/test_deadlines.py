"""Who is answered in time: a question in a hurry behind patient ones, and one beside a map."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from teola import App, Generate
from teola.passes import estimate
from teola.policies.work import Work
from teola.runtime import in_flight as module
from teola.runtime.optimiser import Optimiser
from teola.runtime.sim.outcome import Planned
from teola.runtime.values import Tokens
from teola.schedule.events import State
from tests.planted import catches, edited
from tests.runtime.sim.test_weights import LLM, LOOP, MAP, PROFILE, TOKENS, Seen

CHAT = App("chat", Generate(), inputs={"question": "text"}, outputs={"answer": "answer"})
CALL_S = 0.05 + (TOKENS - 1) * 0.01


def seen(calls: int = 4, batching: str = "critical_path") -> Seen:
    profile = replace(PROFILE, engines={"llm": replace(LLM, max_sequences=calls)})
    sim = Seen(profile, outcomes=Planned(answer_tokens=TOKENS), batching=batching)
    sim.works = []
    return sim


def plan(app: App, rows: int = 0) -> object:
    return Optimiser(app.builder, PROFILE).plan({}, {"rows": rows} if rows else {})


@pytest.mark.parametrize("known", [True, False])
def test_a_question_in_a_hurry_does_not_die_behind_patient_ones(known: bool) -> None:
    """Sixty that have ten minutes wait, two at a time of 0.2 s; then one comes that has three
    seconds, and would have waited six. So it is where times are not known yet, too."""
    sim = seen(2)
    profile = PROFILE if known else PROFILE.untimed()
    chat = Optimiser(CHAT.builder, profile).plan({}, {})
    for _ in range(60):
        sim.submit(chat, {"question": Tokens(9)}, deadline_s=600.0)
    sim.submit(chat, {"question": Tokens(9)}, at=0.1, id="urgent", deadline_s=3.0)
    found = {result.id: result for result in sim.run()}
    assert {result.state for result in found.values()} == {State.OK}
    assert 1.0 <= found["urgent"].latency_s < 3.0


def test_a_question_beside_a_map_waits_for_one_call_and_the_map_hardly_for_it() -> None:
    """A map of 200 calls, four at a time, of another application or of the same one."""
    alone = seen()
    each, chat = plan(MAP, 8), plan(CHAT)
    rows = {"question": Tokens(9), "rows": [Tokens(9)] * 200}
    alone.submit(each, rows)  # type: ignore[arg-type]
    (whole,) = alone.run()
    for app in ("chat", "map"):
        sim = seen()
        sim.submit(each, rows, id="map", app="map")  # type: ignore[arg-type]
        for k in range(20):
            asked = {"question": Tokens(9)}
            sim.submit(chat, asked, at=0.33 + 0.5 * k, id=f"{k}", app=app)  # type: ignore[arg-type]
        found = {result.id: result.latency_s for result in sim.run()}
        assert found.pop("map") <= 1.12 * whole.latency_s
        assert max(found.values()) <= 2 * CALL_S + 0.06
        assert len(found) == 20


@catches(
    "part-without-deadline",
    "a part's works do not know until when its query is wanted",
    edited(module.part_run, "deadline=run.deadline", "deadline=float('inf')"),
)
def test_parts_have_their_query_s_deadline() -> None:
    sim = seen()
    sim.submit(plan(LOOP), {"question": Tokens(9), "draft": Tokens(9)}, at=2.0, deadline_s=40.0)  # type: ignore[arg-type]
    sim.run()
    assert len(sim.works) == 5
    assert {work.deadline for work in sim.works} == {42.0}


def test_what_is_left_of_a_map_makes_its_first_items_hurry_before_its_last() -> None:
    """Its latest start counts the items behind an item, four at a time."""
    sim = seen()
    sim.submit(plan(MAP, 8), {"question": Tokens(9), "rows": [Tokens(9)] * 40}, deadline_s=60.0)  # type: ignore[arg-type]
    sim.run()
    *items, _ = sim.works
    left = [_left_s(work) for work in items]
    assert all(a >= b for a, b in pairwise(left))
    assert left[0] == pytest.approx((39 / 4 + 2) * (0.05 + TOKENS * 0.01))
    call = estimate.seconds(plan(CHAT).graph, plan(CHAT).primitives[0], PROFILE)  # type: ignore[attr-defined]
    assert items[0].spec.estimate.call_s > call


def _left_s(work: Work) -> float:
    return work.spec.estimate.rest_s + work.behind_s
