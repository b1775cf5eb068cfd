"""Which first tokens are late beside an instance that shows life, and beside one that hangs."""

from __future__ import annotations

import random
from functools import partial
from math import inf

import pytest

from teola.graph import Op
from teola.policies import batching, routing
from teola.policies.routing.destinations import memory_wait_s
from teola.profile import EngineProfile, Profile, StepTime
from teola.runtime.sim import Sim
from teola.runtime.sim.outcome import Planned
from teola.runtime.values import Tokens
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import FirstToken, State
from teola.schedule.instances import Limits
from teola.schedule.overdue import (
    FACTOR,
    LATE_ENOUGH,
    LATE_S,
    LATE_TIMES,
    LEAST_S,
    MOST_SIGNS,
    UNKNOWN_S,
    Overdue,
    SignsOfLife,
)
from tests.planted import catches, edited
from tests.recording import work
from tests.schedule.plans import call, plan

WAIT_S = FACTOR * 1.0


def sent(overdue: Overdue, *names: str, at: float = 0.0, instance: int = 0) -> None:
    """Calls go to an instance, of which a first token is expected within a second."""
    for k, name in enumerate(names):
        overdue.sent((name, 0), instance, k, 1.0, at)


def late(overdue: Overdue, now: float) -> list[str]:
    return [one.key[0] for one in overdue.late(now)]


@catches(
    "late-once",
    "a call that is as late as one that hangs tells no more than one that is just late",
    edited(Overdue.slow, "before += 1", "before = len(LATE_TIMES)"),
)
@catches(
    "late-in-line",
    "who stands in line at an instance that works is late there",
    edited(
        Overdue.slow, "max(sent.since, self.signs.before(sent.instance, sent.order))", "sent.since"
    ),
)
def test_late_is_who_has_no_token_after_twice_the_time_of_nearly_all_others() -> None:
    overdue, usual_s = Overdue(), 1.0
    for k in range(LATE_ENOUGH):
        overdue.sent((f"{k}", 0), 0, k, usual_s, 0.0, compared=True)
        overdue.came((f"{k}", 0), usual_s)
    after_s, again_s, last_s = (times * usual_s + LATE_S for times in LATE_TIMES)
    for k, name in enumerate(("first", "second"), 100):
        overdue.sent((name, 0), 0, k, usual_s, 10.0, compared=True)
    overdue.sent(("alone", 0), 0, 102, usual_s, 10.0)
    overdue.sent(("there", 0), 1, 103, usual_s, 10.0, compared=True)
    overdue.came(("first", 0), 11.5)
    assert overdue.slow(10.0 + after_s - 0.01) == []
    assert overdue.slow(10.0 + after_s) == [("there", 0)]
    assert overdue.slow(11.5 + after_s - 0.01) == [], "its instance gave another one a token"
    assert overdue.slow(11.5 + after_s) == [("second", 0)]
    assert overdue.slow(11.5 + again_s) == [("there", 0), ("second", 0)]
    assert overdue.slow(10.0 + last_s) == [("there", 0)]
    overdue.left(("second", 0))
    assert overdue.slow(100.0) == []


def test_nobody_is_late_as_long_as_few_have_come() -> None:
    overdue = Overdue()
    for k in range(LATE_ENOUGH - 1):
        overdue.sent((f"{k}", 0), 0, k, 1.0, 0.0, compared=True)
        overdue.came((f"{k}", 0), 1.0)
    overdue.sent(("q", 0), 0, 99, 1.0, 1.0, compared=True)
    assert overdue.slow(100.0) == []


@catches(
    "no-life",
    "what an instance gives to those before says nothing of those behind",
    edited(Overdue._has_more_time, "alive > sent.since", "False"),
)
@catches(
    "life-of-all",
    "who was overtaken is never late",
    edited(SignsOfLife.before, "bisect_left(signs, (order, -inf))", "len(signs)"),
)
@catches(
    "life-elsewhere",
    "each instance proves that all others live",
    edited(SignsOfLife.gave, "setdefault(instance", "setdefault(0"),
    edited(SignsOfLife.before, "get(instance", "get(0"),
)
def test_who_stands_in_line_is_not_late_while_those_before_are_served() -> None:
    overdue = Overdue()
    sent(overdue, "first", "second", "third")
    sent(overdue, "there", instance=1)
    sent(overdue, "last")
    overdue.came(("first", 0), 1.0)
    overdue.gave(("first", 0), 6.0)
    overdue.came(("last", 0), 7.0)
    assert late(overdue, WAIT_S) == ["there"], "nothing came there"
    assert late(overdue, WAIT_S + 5.9) == []
    overdue.gave(("last", 0), 13.0)  # it was sent after the others: so they may be lost
    assert late(overdue, WAIT_S + 6.0) == ["second", "third"]


@catches(
    "hung-lives",
    "an instance that hangs has as much time again as it had before",
    edited(Overdue._has_more_time, "sent.since = alive", "sent.since += sent.wait_s"),
)
def test_an_instance_that_hangs_is_noticed_as_soon_after_its_last_sign() -> None:
    overdue = Overdue()
    sent(overdue, "before")
    sent(overdue, "waits", at=1.0)
    overdue.came(("before", 0), 2.0)
    for at in (3.0, 4.0, 4.5):
        overdue.gave(("before", 0), at)
    sent(overdue, "after", at=5.0)
    assert overdue.next_at() == 1.0 + WAIT_S
    assert late(overdue, 1.0 + WAIT_S) == []
    assert overdue.next_at() == 4.5 + WAIT_S
    assert late(overdue, 4.5 + WAIT_S) == ["waits"]
    assert late(overdue, 5.0 + WAIT_S) == ["after"], "as if nothing had ever come"


def test_a_call_that_failed_or_was_answered_elsewhere_is_no_sign() -> None:
    overdue = Overdue()
    sent(overdue, "fails", "beaten", "waits")
    overdue.left(("fails", 0))
    overdue.came(("beaten", 0), 7.0, here=False)
    overdue.gave(("beaten", 0), 7.5)
    assert late(overdue, WAIT_S) == ["waits"]


def test_a_late_call_that_stays_has_time_from_the_next_sign_on() -> None:
    overdue = Overdue()
    sent(overdue, "before", "stays")
    assert late(overdue, WAIT_S) == ["before", "stays"]
    overdue.came(("before", 0), 10.0)
    assert late(overdue, 2 * WAIT_S) == []
    assert [one.again for one in overdue.late(10.0 + WAIT_S)] == [True]


def test_who_is_sent_blind_has_time_by_signs_too() -> None:
    overdue = Overdue()
    for k in range(2):
        overdue.sent(("q", k), 0, k, None, 0.0)
    overdue.came(("q", 0), 50.0)
    assert overdue.late(UNKNOWN_S) == []
    assert [one.key for one in overdue.late(50.0 + UNKNOWN_S)] == [("q", 1)]


def test_how_much_longer_first_tokens_take_is_learned_from_the_last_sign_on() -> None:
    """Else an instance that hangs under load would be noticed late."""
    overdue = Overdue()
    sent(overdue, "before", "waits")
    overdue.came(("before", 0), 1.0)
    for at in range(2, 100):
        overdue.gave(("before", 0), float(at))
        overdue.late(float(at))
    overdue.came(("waits", 0), 100.0)
    (least, most) = (overdue.longer(part, enough=1) for part in (0.0, 0.99))
    assert least == 1.0
    assert most is not None
    assert most <= WAIT_S


def test_signs_are_as_a_slow_reference_says_and_their_number_is_bounded() -> None:
    rng, signs = random.Random(3), SignsOfLife()
    told: list[tuple[int, float]] = []
    orders = [signs.next_order() for _ in range(300)]
    for now in range(1, 900):
        order = rng.choice(orders)
        told.append((order, float(now)))
        signs.gave(0, order, float(now))
        asked = rng.choice(orders)
        expected = max((at for other, at in told if other < asked), default=-inf)
        assert signs.before(0, asked) == expected
        assert signs.before(1, asked) == -inf
    for order in range(301, 301 + 3 * MOST_SIGNS):
        signs.gave(0, order, 1000.0 + order)
        assert len(signs._signs[0]) <= MOST_SIGNS
    assert signs.before(0, 2000) == 1000.0 + 300 + 3 * MOST_SIGNS


def test_nobody_is_late_before_the_least_time() -> None:
    overdue = Overdue()
    overdue.sent(("q", 0), 0, 0, 0.01, 0.0)
    assert late(overdue, LEAST_S - 0.01) == []
    assert late(overdue, LEAST_S) == ["q"]


# --- an instance whose KV memory is full ------------------------------------------------------


def crowded() -> Sim:
    """A call with an answer of half a minute, and then more than two instances have memory for."""
    llm = EngineProfile(
        step=StepTime(base_s=0.03, per_token_s=1e-5),
        max_batch=2048,
        max_sequences=64,
        instances=2,
        kv_blocks=2 * 150,
    )
    sim = Sim(Profile("small", {"llm": llm}), outcomes=Planned(answer_tokens=1000))
    for at in (0.0, *(40.0 + 0.5 * k for k in range(12))):
        sim.submit(plan(*call("m")), {"question": Tokens(1000)}, at=at)
    assert {result.state for result in sim.run()} == {State.OK}
    return sim


@catches(
    "waits-for-nothing",
    "what is expected of a first token counts no waiting for memory",
    edited(EngineQueue.expected_s, "kv_tokens is not None", "False"),
)
def test_an_instance_that_has_no_memory_for_more_is_not_hung() -> None:
    sim = crowded()
    queue = sim.core.queues["llm"]
    assert max(result.latency_s for result in sim.results) > 60.0, "calls wait for memory"
    assert queue.retries == 0
    assert [one.quota for one in queue.instances] == [None, None]


@catches(
    "long-ones-forgotten",
    "those that run have as long answers as all others",
    edited(memory_wait_s, "max(answer, written_s / step_s / calls)", "answer"),
)
@catches(
    "part-of-an-end",
    "a call gives up its memory bit by bit",
    edited(memory_wait_s, "ceil(excess * calls / held)", "(excess * calls / held)"),
)
def test_waiting_for_memory_takes_until_so_many_others_have_ended() -> None:
    step = StepTime(base_s=0.02, per_context_s=1e-6)
    wait = partial(memory_wait_s, EngineProfile(step=step), 10_000)
    assert wait(0, 0, 9_999, 100.0) == 0.0, "it is alone: what is cached makes room"
    assert wait(3, 7_000, 2_700, 100.0) == 0.0
    assert wait(3, 7_000, 2_701, 100.0) == pytest.approx(100 / 3 * (0.02 + 1e-6 * 7_300))
    whole_s = 100 * (0.02 + 1e-6 * 10_000)
    assert wait(8, 30_000, 1_600, 100.0) == pytest.approx(whole_s * 18 / 8), "others come first"
    writing_s = 3 * 1_000 * (0.02 + 1e-6 * 5_000)
    told = wait(3, 5_000, 2_500, 100.0, written_s=writing_s)
    assert told == pytest.approx(1_000 / 3 * (0.02 + 1e-6 * 8_000)), "each wrote 1,000 tokens"


@pytest.mark.parametrize("writing", [0, 1, 2])
def test_a_first_token_is_expected_once_those_have_ended_that_write_there(writing: int) -> None:
    """Two calls fill the memory of one of two instances. For each that writes it has been 50 s: its
    answer is longer than the ten tokens that a call is expected to give."""
    profile = EngineProfile(step=StepTime(base_s=0.02, per_token_s=0.001), max_batch=10_000)
    limits = [Limits(10_000, 8, 1, True, kv_blocks=100, block_tokens=16)] * 2
    queue = EngineQueue(
        "e", limits, batching.make("fifo"), routing.make("least_loaded"), [profile] * 2
    )
    queue.overdue = Overdue()
    for k in range(2):
        one = work(k, run=f"q{k}", op=Op.PREFILLING, lane=None, total=700, home=0, affinity=0)
        queue.submit(one, 0.0)
    assert [*queue.dispatch(0.0)]
    assert [one.entries for one in queue.instances] == [2, 0]
    for k in range(writing):
        queue.first_token(FirstToken("e", 0, f"q{k}", k), 10.0)
    token_s, pending = 0.001 + 0.02 / 10_000, 700 * (2 - writing)
    expected = queue.expected_s(0, 300, 300, 1, 10, 60.0)
    waits_s = memory_wait_s(profile, 1600, 2, 1400, 300, 10.0, written_s=50.0 * writing)
    assert waits_s > 0
    assert expected == pytest.approx(token_s * (pending + 300) + waits_s)
    assert queue.expected_s(1, 300, 300, 1, 10, 60.0) == pytest.approx(token_s * 300), (
        "nobody is there"
    )


def test_for_how_long_calls_have_been_writing_is_as_a_slow_reference_says() -> None:
    rng, overdue = random.Random(5), Overdue()
    firsts: dict[tuple[str, int], tuple[int, float]] = {}
    for k in range(400):
        key, now, instance = ("q", rng.randrange(60)), float(k), rng.randrange(3)
        if key in firsts and rng.random() < 0.7:
            overdue.left(key)
            del firsts[key]
        else:
            overdue.sent(key, instance, k, 1.0, now)
            firsts.pop(key, None)
            if rng.random() < 0.8:
                overdue.came(key, now)
                firsts[key] = instance, now
        for i in range(3):
            expected = sum(now - at for there, at in firsts.values() if there == i)
            assert overdue.written_s(i, now) == pytest.approx(expected)


def test_who_is_late_is_told_behind_one_that_has_more_time() -> None:
    """Both are due; the first one's instance gave a token meanwhile."""
    overdue = Overdue()
    sent(overdue, "gives", "waits")
    overdue.sent(("there", 0), 1, 9, 1.0, 0.0)
    overdue.came(("gives", 0), WAIT_S / 2)
    assert late(overdue, WAIT_S) == ["there"]
    assert late(overdue, 1.5 * WAIT_S) == ["waits"]
