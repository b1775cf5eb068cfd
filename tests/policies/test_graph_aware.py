"""graph_aware: each switch where it decides otherwise, and marginal_cost without graphs.

Long because each switch is shown with the case that it is for.
"""

from __future__ import annotations

import random
from itertools import count
from typing import Any, NamedTuple

import pytest

from teola.errors import InputError
from teola.graph import Op
from teola.policies.routing import make
from teola.policies.routing.destinations import prefill_s
from teola.policies.routing.graph_aware import SWITCHES, GraphAware
from teola.policies.routing.marginal_cost import MarginalCost, Offers
from teola.policies.routing.programs import Programs
from teola.policies.routing.returns import ALL, AwayTime, Returns
from teola.policies.work import Estimate, Work, WorkSpec
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import InstanceDown, PrefixChanged, ProgramPaused
from teola.schedule.quota import Refusal
from teola.schedule.validate import validate_queue
from tests.planted import catches, edited
from tests.policies.routed import TOKEN_S, call, end, first, prompt, route, router, send

NUMBERS = count()
"""Of calls, in the order in which they come."""
LONG = 50
"""Tokens of a step, beyond which a call that finds nothing is long."""


def routed(**options: Any) -> EngineQueue:
    """Two instances with room for 1,000 tokens each."""
    return router(GraphAware(**options), max_batch=LONG, kv_blocks=1000)


def turn(queue: EngineQueue, program: str, keys: tuple[Any, ...], now: float, **more: Any) -> int:
    """A call of a program, from its arrival to its end; where it was."""
    run = f"{program} at {now}"
    at = route(queue, run, keys, now, program=program, **more)
    first(queue, run, now)
    end(queue, run, now, 1)
    return at


def ask(queue: EngineQueue, run: str, keys: tuple[Any, ...], now: float, program: str = "") -> int:
    """Where a call is bound (-1: it is held); nothing is sent."""
    queue.submit(call(run, keys, now, seq=next(NUMBERS), program=program or run), now)
    return queue.works[run, 0].affinity


def held(queue: EngineQueue) -> set[str]:
    return {run for run, _ in queue.line.held}


def taught(queue: EngineQueue, pause_s: float) -> None:
    """Others have come back after so long."""
    policy = queue.placing.routing
    assert isinstance(policy, GraphAware)
    returns = policy.programs.returns
    for _ in range(30):
        returns.back(returns.away("any", 0.0), pause_s)


def owned(
    queue: EngineQueue, *, now: float = 0.0, tokens: int = 800, pause_s: float = 3.0, busy: int = 60
) -> dict[str, tuple[Any, ...]]:
    """Two programs that have called twice and are away, with most of an instance each. pause_s: how
    long others were. busy: calls of others that are decoding on each."""
    prompts = {name: prompt((name, tokens)) for name in ("p", "q")}
    taught(queue, pause_s)
    for i, (name, keys) in enumerate(prompts.items()):
        turn(queue, name, keys, now, affinity=i)
        turn(queue, name, (*keys, f"more of {name}"), now + 1)
        decoding(queue, i, busy, now + 1)
    return prompts


def decoding(queue: EngineQueue, i: int, calls: int, now: float) -> None:
    for k in range(calls):
        run = f"busy {i}/{k}"
        queue.submit(call(run, (), now, total=1, affinity=i, program=run), now)
        send(queue, now)
        first(queue, run, now)


# --- gate -----------------------------------------------------------------------------------


@catches(
    "gate-is-open",
    "a call without a prefix pushes out what will be read again",
    edited(GraphAware._open, "self._gain(work, i, offers, now) < 1.0", "True"),
)
def test_a_new_program_waits_for_room() -> None:
    queue = routed()
    owned(queue)
    assert ask(queue, "new", prompt(("new", 300)), 2.0) == -1
    assert held(queue) == {"new"}
    without = routed(gate=False)
    owned(without)
    assert ask(without, "new", prompt(("new", 300)), 2.0) >= 0


class Gain(NamedTuple):
    """What the gate found for a call: seconds saved a second, and what it was reckoned from."""

    instance: int
    held: int
    calls: int
    excess: float
    now: float
    seconds: float


@pytest.fixture
def gains(monkeypatch: pytest.MonkeyPatch) -> list[Gain]:
    """All that the gate reckons from now on."""
    noted, reckon = list[Gain](), GraphAware._gain

    def noting(self: GraphAware, work: Work, i: int, offers: Offers, now: float) -> float:
        excess, held = self._excess(work, i), len(self._held)
        seconds = reckon(self, work, i, offers, now)
        noted.append(Gain(i, held, offers.seen[i].calls, excess, now, seconds))
        return seconds

    monkeypatch.setattr(GraphAware, "_gain", noting)
    return noted


@catches(
    "gain-without-itself",
    "the call that is held does not count itself",
    edited(GraphAware._gain, "1 + PUSHED_ON", "0 + PUSHED_ON"),
)
@catches(
    "held-once",
    "those held already count once",
    edited(GraphAware._gain, "PUSHED_ON * len", "len"),
)
def test_a_hold_is_worth_what_is_pushed_out_for_the_call_those_held_and_those_there(
    gains: list[Gain],
) -> None:
    """One who is away on each instance; what there is no room for is computed again."""
    queue = routed()
    owned(queue, busy=60)
    programs = queue.placing.routing.programs  # type: ignore[attr-defined]
    for k in range(3):
        ask(queue, f"new {k}", prompt((f"new {k}", 300)), 2.0)
    assert [gain.held for gain in gains[:3]] == [0, 1, 2]
    for gain in gains[:3]:
        (away,) = programs.away[gain.instance].values()
        out = min(away.claim, gain.excess)
        assert 0 < out < away.claim, "not all of it is pushed out"
        rate = programs.returns.rate(away.away.kind, gain.now - away.since, gain.now)
        waiting = 1 + 2 * gain.held + gain.calls / 2
        assert gain.seconds == pytest.approx(rate * out * TOKEN_S * waiting)


@pytest.mark.parametrize("why", ["gone", "own"])
def test_who_has_nothing_there_or_asks_itself_is_passed_over_and_not_those_behind(
    gains: list[Gain], why: str
) -> None:
    """Two are away on each instance; the one who has been for longer is not pushed out."""
    queue = routed()
    taught(queue, 3.0)
    for i in range(2):
        for k, tokens in enumerate((50, 750)):
            name = f"{i}/{k}"
            keys = prompt((name, tokens))
            turn(queue, name, keys, 0.3 * k, affinity=i)
            turn(queue, name, (*keys, f"more of {name}"), 1 + 0.3 * k, affinity=i)
            if why == "gone" and not k:
                queue.prefixes(PrefixChanged("e", i, (), (*keys, f"more of {name}")), 1.2)
        decoding(queue, i, 60, 1.5)
    policy = queue.placing.routing
    assert isinstance(policy, GraphAware)
    programs, view = policy.programs, policy.view
    for i in range(2):
        before, second = programs.away[i].values()
        asks = call(
            "new", prompt(("new", 300)), 2.0, program=before.name if why == "own" else "new"
        )
        assert (programs.kept(before) == 0) is (why == "gone")
        offers = policy._costs.offers(asks, 2.0)
        policy._gain(asks, i, offers, 2.0)
        gain = gains[-1]
        out = min(float(programs.kept(second)), gain.excess)
        assert out > 0
        away = second.away
        assert away is not None
        rate = programs.returns.rate(away.kind, 2.0 - away.since, 2.0)
        seconds = rate * prefill_s(view.profiles[i], out, out + second.common)
        left = min(gain.excess - out, programs.settled[i] - out)
        if left <= 0:
            waiting = 1 + 2 * gain.held + gain.calls / 2
            assert gain.seconds == pytest.approx(seconds * waiting)
        else:
            assert gain.seconds >= seconds


@catches(
    "who-runs-never-returns",
    "programs that run where a call would push them out count for nothing",
    edited(GraphAware._gain, "if excess > 0:", "if False:"),
)
def test_what_runs_will_be_read_again_after_a_pause(gains: list[Gain]) -> None:
    queue = routed()
    prompts = owned(queue, busy=60)
    for i, (name, keys) in enumerate(prompts.items()):  # both go on
        queue.submit(call(f"{name} again", keys, 2.0, program=name, affinity=i), 2.0)
        send(queue, 2.0)
        first(queue, f"{name} again", 2.0)
    ask(queue, "new", prompt(("new", 300)), 2.0)
    programs = queue.placing.routing.programs  # type: ignore[attr-defined]
    gain = gains[-1]
    assert not programs.away[gain.instance]
    out = min(gain.excess, programs.settled[gain.instance])
    assert out > 0
    waiting = 1 + 2 * gain.held + gain.calls / 2
    rate = programs.returns.rate(ALL, 0.0, 2.0)
    assert gain.seconds == pytest.approx(out * TOKEN_S * rate * waiting)


@catches(
    "held-for-one",
    "what a hold saves counts for one, however many would wait behind that prefill",
    edited(GraphAware._gain, "gain *= ", "waiting = "),
)
def test_a_hold_is_worth_what_it_saves_to_all_who_are_there() -> None:
    """0.1 s of prefill that come back after 2 s more are worth a wait to 30, not to 3."""
    for busy, waits in ((5, False), (60, True)):
        queue = routed()
        owned(queue, busy=busy)
        assert (ask(queue, "new", prompt(("new", 300)), 2.0) == -1) == waits


def test_a_hold_is_looked_at_when_the_first_who_is_away_is_worth_less() -> None:
    """Two are away on each instance, and both would be pushed out, the first one wholly."""
    queue = routed()
    taught(queue, 3.0)
    for i in range(2):
        for k, tokens in enumerate((50, 750)):
            name = f"{i}/{k}"
            keys = prompt((name, tokens))
            turn(queue, name, keys, 0.3 * k, affinity=i)
            turn(queue, name, (*keys, f"more of {name}"), 1 + 0.3 * k, affinity=i)
        decoding(queue, i, 60, 1.5)
    assert ask(queue, "new", prompt(("new", 300)), 2.0) == -1
    policy = queue.placing.routing
    assert isinstance(policy, GraphAware)
    programs = policy.programs
    for i in range(2):
        assert [one.since for one in programs.away[i].values()] == [1.0, 1.3]
    assert policy.wake_at(2.0) == 1.0 + programs.returns.changes_at(1.0)


@catches(
    "waits-for-what-is-gone",
    "a call waits for a program whose KV is gone",
    edited(Programs.kept, "blocks < program.blocks", "False"),
)
def test_nobody_waits_for_what_is_not_kept_any_more() -> None:
    queue = routed()
    prompts = owned(queue)
    for i, (name, keys) in enumerate(prompts.items()):
        queue.prefixes(PrefixChanged("e", i, (), (*keys, f"more of {name}")), 1.5)
    assert ask(queue, "new", prompt(("new", 300)), 2.0) >= 0


@catches(
    "held-where-nothing-runs",
    "a call is held while its instance runs nothing",
    edited(GraphAware._open, " or not seen.calls", ""),
)
@pytest.mark.parametrize("busy", [0, 2])
def test_a_hold_never_lasts_while_its_instance_runs_nothing(busy: int) -> None:
    queue = routed()
    owned(queue, busy=0)
    policy = queue.placing.routing
    assert isinstance(policy, GraphAware)
    for i in range(2):
        decoding(queue, i, busy, 1.5)
    for k in range(60):  # so many that what is saved is worth it to them
        ask(queue, f"new {k}", prompt((f"new {k}", 300)), 2.0)
    queue.dispatch(2.0)
    running = [sum(one.on(i) for one in queue.works.values()) for i in range(2)]
    assert all(running)
    for run in [key[0] for key, one in queue.works.items() if one.flying]:
        end(queue, run, 2.5, 1)
        queue.dispatch(2.5)
        views = policy.view.instances(2.5)
        assert all(views[one.at].calls for one in policy._line)


def test_what_fits_does_not_wait() -> None:
    queue = routed()
    owned(queue, tokens=400)
    assert ask(queue, "new", prompt(("new", 300)), 2.0) >= 0


def test_what_is_found_does_not_wait() -> None:
    queue = routed()
    prompts = owned(queue)
    assert ask(queue, "again", (*prompts["p"], *range(150)), 2.0, "p") >= 0


def test_room_is_there_when_a_program_has_ended() -> None:
    queue = routed()
    owned(queue)
    ask(queue, "new", prompt(("new", 300)), 2.0)
    queue.dispatch(2.0)
    assert held(queue) == {"new"}
    queue.paused(ProgramPaused("e", "p", ended=True), 3.0)
    queue.dispatch(3.0)
    assert not held(queue)
    assert queue.works["new", 0].on(0)
    validate_queue(queue, 3.0)


def test_room_is_there_when_nobody_waits_for_a_program_any_more() -> None:
    queue = routed()
    owned(queue)
    ask(queue, "new", prompt(("new", 300)), 2.0)
    now = 2.0
    while held(queue):
        wake = queue.placing.routing.wake_at(now)
        assert wake is not None
        assert now < wake < 12.0
        queue.dispatch(now := wake)
    assert queue.works["new", 0].flying


def test_a_program_is_waited_for_by_what_it_waits_for_itself() -> None:
    returns, seconds = Returns(), {"person": 1200.0, "tool": 5.0}
    for reason, pause_s in seconds.items():
        for _ in range(60):
            returns.back(returns.away(returns.kind("c", reason, None), 0.0), pause_s)
    person, tool = (returns.rate(returns.kind("c", reason, None), 0.0, 0.0) for reason in seconds)
    assert person < 1 / 1000
    assert 1 / 6 < tool < 1 / 4


@catches(
    "deaf",
    "what a program tells of its pause is not heard",
    edited(Programs.paused, "program.since, reason", "program.since, ''"),
)
def test_what_a_program_tells_of_its_pause_decides_whether_it_keeps_its_room() -> None:
    for reason, room in (("person", True), ("tool", False)):
        queue = routed()
        policy = queue.placing.routing
        assert isinstance(policy, GraphAware)
        returns = policy.programs.returns
        for told, pause_s in (("person", 1200.0), ("tool", 5.0)):
            for last_s in (None, 1.0):
                for _ in range(60):
                    kind = returns.kind(("", "c"), told, last_s)
                    returns.back(returns.away(kind, 0.0), pause_s)
        owned(queue)
        for name in ("p", "q"):
            queue.paused(ProgramPaused("e", name, reason), 1.0)
        assert (ask(queue, "new", prompt(("new", 300)), 2.0) >= 0) == room


def test_whoever_never_comes_back_is_not_waited_for() -> None:
    returns = Returns()
    for _ in range(60):
        returns.gone(returns.away("k", 0.0), 3600.0)
    assert returns.hope_s("k", 30.0, 3600.0) == 0.0


@catches(
    "held-beyond-its-time",
    "what is held by the policy's own bound is not",
    edited(GraphAware.free, "waiting[0] + self.held_s", "waiting[0] + 300"),
)
def test_nothing_is_held_for_longer_than_held_s() -> None:
    queue = routed(held_s=0.5)
    owned(queue)
    for run in ("new", "other"):
        ask(queue, run, prompt((run, 300)), 2.0)
    wake = queue.placing.routing.wake_at(2.4)
    assert wake is not None
    assert wake <= 2.5
    queue.dispatch(2.4)
    assert held(queue) == {"new", "other"}
    queue.dispatch(2.5)
    assert not held(queue)
    at_once = routed(held_s=0)
    owned(at_once)
    assert ask(at_once, "new", prompt(("new", 300)), 2.0) >= 0


# --- turns ----------------------------------------------------------------------------------


def beside(queue: EngineQueue, p: int = 600, q: int = 600) -> dict[str, tuple[Any, ...]]:
    """Two programs left their KV on instance 0, and a call of one, `p`, is answered there. p, q:
    tokens."""
    prompts = {name: prompt((name, tokens)) for name, tokens in (("p", p), ("q", q))}
    for name, keys in prompts.items():
        turn(queue, name, keys, 0.0, affinity=0)
    decoding(queue, 1, 60, 0.0)  # nobody would move
    assert ask(queue, "p goes on", (*prompts["p"], "p"), 2.0, "p") == 0
    queue.dispatch(2.0)
    first(queue, "p goes on", 2.0)
    return prompts


@catches(
    "no-turns",
    "two programs push each other out, call by call",
    edited(GraphAware._turn_s, "out <= 0", "True"),
)
def test_programs_that_do_not_fit_beside_each_other_take_turns() -> None:
    queue = routed()
    prompts = beside(queue)
    assert ask(queue, "next", (*prompts["q"], "next"), 2.0, "q") == -1
    end(queue, "p goes on", 2.1, 1)
    queue.dispatch(2.1)
    assert queue.works["next", 0].affinity == 0
    assert not held(queue)


@pytest.mark.parametrize(
    ("tokens", "program", "where"),
    [
        (600, "q", -1),
        (400, "q", 0),  # both fit
        (600, "p", 0),  # it is the one that runs there
        (600, "other", 0),  # it left nothing there
    ],
)
def test_a_call_waits_for_its_turn_only_where_another_program_has_its_place(
    tokens: int, program: str, where: int
) -> None:
    queue = routed()
    prompts = beside(queue, tokens, tokens)
    keys = prompts.get(program, prompts["q"])
    assert ask(queue, "next", (*keys, "next"), 2.0, program) == where


@catches(
    "turns-without-gate",
    "calls wait for their turn, though the gate is left out",
    edited(GraphAware._turn_s, "not self.gate or ", ""),
)
def test_without_the_gate_nobody_waits_for_a_turn() -> None:
    queue = routed(gate=False)
    prompts = beside(queue)
    assert ask(queue, "next", (*prompts["q"], "next"), 2.0, "q") == 0


@catches(
    "turns-for-ever",
    "a call waits for its turn as long as the other program calls",
    edited(GraphAware._turn_s, "TURNS * (1 + behind)", "1e6 * (1 + behind)"),
)
@catches(
    "turn-not-looked-at",
    "nobody looks when a call has waited long enough for its turn",
    edited(GraphAware._choose, "min(self._look_at, turn)", "self._look_at"),
)
@pytest.mark.parametrize(("p", "q"), [(600, 600), (100, 1050)])
def test_a_turn_is_waited_for_as_long_as_a_change_would_cost_those_who_wait(p: int, q: int) -> None:
    """Thrice what `p` would compute again, for the call and for half of the one that runs there.
    That is no more than `p` has, however much there is no room for."""
    queue = routed()
    prompts = beside(queue, p, q)
    policy = queue.placing.routing
    assert isinstance(policy, GraphAware)
    assert ask(queue, "next", (*prompts["q"], "next"), 2.0, "q") == -1
    claim = policy.programs.claims("p", 0)
    excess = claim + q + 1 + policy._answer - 1000
    out = min(claim, excess)
    assert (out < excess) == (q > p)
    until = 2.0 + 3 * (1 + 1 / 2) * out * TOKEN_S
    assert policy.wake_at(2.0) == pytest.approx(until)
    queue.dispatch(until - 0.01)
    assert held(queue) == {"next"}
    queue.dispatch(until + 0.01)
    assert not held(queue)
    assert queue.works["next", 0].affinity == 0


# --- hits first -----------------------------------------------------------------------------


@catches(
    "misses-first",
    "what finds nothing goes though others are being computed",
    edited(GraphAware._open, "self.hits and seen.pending", "False"),
)
def test_what_finds_nothing_lets_others_go_first() -> None:
    for hits in (True, False):
        queue = routed(hits=hits)
        prompts = owned(queue, tokens=100)
        for name, keys in prompts.items():
            assert route(queue, name, (*keys, *range(40)), 2.0, program=name) >= 0
        ask(queue, "new", prompt(("new", 300)), 2.0)
        assert held(queue) == ({"new"} if hits else set())
        if hits:
            first(queue, "p", 3.0)
            queue.dispatch(3.0)
            assert not held(queue)


@catches(
    "sent-elsewhere",
    "what waits where it costs least is sent to the next best instance",
    edited(GraphAware._choose, "self._open(work, best, offers, now)", "True"),
)
def test_what_waits_for_others_is_not_sent_elsewhere() -> None:
    queue = routed(gate=False)
    prompts = owned(queue, tokens=400)
    assert route(queue, "p", (*prompts["p"], *range(20)), 2.0, program="p") == 0
    ask(queue, "new", (*prompts["p"], *prompt(("new", 450))), 2.0)
    assert held(queue) == {"new"}, "instance 1 is free, but it would find nothing there"
    first(queue, "p", 3.0)
    queue.dispatch(3.0)
    assert queue.works["new", 0].on(0)


@catches(
    "no-ageing",
    "the longest waits for all that come",
    edited(GraphAware._choose, "self.ageing * work.arrival", "0.0"),
)
def test_of_those_held_the_shortest_goes_first_unless_one_is_old() -> None:
    for later_s, order in ((0.5, ["short", "long"]), (1.0, ["long", "short"])):
        queue = routed(ageing=1.0)
        owned(queue)
        ask(queue, "long", prompt(("long", 900)), 2.0)
        ask(queue, "short", prompt(("short", 300)), 2.0 + later_s)
        policy = queue.placing.routing
        assert isinstance(policy, GraphAware)
        assert [one.work.run for one in policy._line] == order


def test_where_an_instance_has_nothing_to_do_those_who_wait_for_it_are_asked_though_many_wait() -> (
    None
):
    """Five that would be computed sooner wait for the other one."""
    queue = routed()
    owned(queue)
    policy = queue.placing.routing
    assert isinstance(policy, GraphAware)
    for k in range(5):
        one = call(f"short {k}", prompt((f"s{k}", 300)), 2.0, seq=k, program=f"s{k}", avoid=1)
        queue.submit(one, 2.0)
    queue.submit(call("long", prompt(("l", 900)), 2.0, seq=9, program="l", avoid=0), 2.0)
    assert held(queue) == {*(f"short {k}" for k in range(5)), "long"}
    asked = [one.run for one in policy.free(2.0)]
    assert asked == [f"short {k}" for k in range(4)], "the first few"
    for k in range(60):
        end(queue, f"busy 1/{k}", 2.5, 1)
    asked = [one.run for one in policy.free(2.5)]
    assert asked == [*(f"short {k}" for k in range(4)), "long"]
    assert [*policy.free(2.5)] == [], "nothing has changed since"


# --- home -----------------------------------------------------------------------------------


def _with_a_busy_home(beside: bool = False, **options: Any) -> tuple[int, int]:
    """Where a program's KV lies, which has calls decoding there, and where its call goes. beside:
    another one of its calls runs."""
    queue = routed(**options)
    home = turn(queue, "p", prompt(("p", 100)), 0.0)
    for k in range(40):
        one = call(f"busy {k}", (), 0.0, total=1, affinity=home, program="busy")
        queue.submit(one, 0.0)
        send(queue)
        first(queue, f"busy {k}", 0.0)
    if beside:
        route(queue, "beside", (*prompt(("p", 100)), "x"), 0.5, program="p", affinity=home)
        first(queue, "beside", 0.5)
    return home, ask(queue, "again", (*prompt(("p", 100)), *range(100)), 1.0, "p")


@catches(
    "homeless",
    "a program's call leaves its KV",
    edited(GraphAware._best, "if here", "if 9e9 + here"),
)
def test_a_program_keeps_its_home_where_others_would_move_it() -> None:
    home, at = _with_a_busy_home()
    assert at == home
    home, at = _with_a_busy_home(home=False)
    assert at != home


@catches(
    "home-side-by-side",
    "calls that a program makes at the same time all stay at its home",
    edited(GraphAware._best, "or program.works ", ""),
)
def test_calls_side_by_side_go_where_they_cost_least() -> None:
    home, at = _with_a_busy_home(beside=True)
    assert at != home


def test_a_program_leaves_a_home_that_has_a_longer_wait_than_what_it_saves() -> None:
    queue = routed()
    home = turn(queue, "p", prompt(("p", 100)), 0.0)
    queue.submit(call("busy", (), 0.0, total=400, affinity=home, program="b"), 0.0)
    assert ask(queue, "again", (*prompt(("p", 100)), "more"), 1.0, "p") == 1 - home


@catches(
    "home-in-ruins",
    "a program stays where others push out what it left, and pushes out theirs",
    edited(GraphAware._best, " or not self._whole(work, program, offers)", ""),
)
def test_a_program_leaves_a_home_where_a_part_of_what_it_left_was_pushed_out() -> None:
    queue, keys = routed(), prompt(("p", 100))
    home = turn(queue, "p", keys, 0.0)
    decoding(queue, home, 40, 0.5)
    evicted = PrefixChanged("e", home, (), keys[-40:])
    queue.prefixes(evicted, 0.6)
    assert ask(queue, "again", (*keys, *range(100)), 1.0, "p") == 1 - home


# --- siblings -------------------------------------------------------------------------------


@catches(
    "nobody-leads",
    "what a program's other call computes is computed again",
    edited(GraphAware._follows, "not program.begun", "True"),
)
def test_of_siblings_one_leads() -> None:
    shared = prompt(("shared", 100))
    for siblings in (True, False):
        queue = routed(siblings=siblings)
        leader = route(queue, "a", (*shared, "a"), 0.0, program="p")
        for run in ("b", "c"):
            ask(queue, run, (*shared, run), 0.0, "p")
        assert held(queue) == ({"b", "c"} if siblings else set())
        if siblings:
            first(queue, "a", 1.0)
            queue.dispatch(1.0)
            assert not held(queue)
            assert queue.works["b", 0].found == 100
            assert queue.works["b", 0].on(leader)
            validate_queue(queue, 1.0)


@catches(
    "followers-of-nobody",
    "who follows a call that is withdrawn waits for it",
    edited(GraphAware._led, "self._again |= followers", "pass"),
)
def test_siblings_go_when_their_leader_is_gone() -> None:
    queue = routed()
    shared = prompt(("shared", 100))
    ask(queue, "a", (*shared, "a"), 0.0, "p")
    ask(queue, "b", (*shared, "b"), 0.0, "p")
    queue.withdraw("a", 0, 1.0)
    queue.dispatch(1.0)
    assert not held(queue)
    assert queue.works["b", 0].flying


def test_siblings_go_elsewhere_when_their_leaders_instance_dies() -> None:
    queue = routed()
    shared = prompt(("shared", 100))
    leader = route(queue, "a", (*shared, "a"), 0.0, program="p")
    ask(queue, "b", (*shared, "b"), 0.0, "p")
    queue.down(InstanceDown("e", leader), 1.0)
    for _ in range(2):
        queue.dispatch(1.0)
    first(queue, "a", 2.0)
    queue.dispatch(2.0)
    assert queue.works["b", 0].on(1 - leader)
    validate_queue(queue, 2.0)


def test_nobody_follows_a_sibling_to_an_instance_that_takes_nothing() -> None:
    """What is computed there is of no use to a call that has to go elsewhere."""
    queue = routed()
    shared = prompt(("shared", 100))
    leader = route(queue, "a", (*shared, "a"), 0.0, program="p")
    queue.instances.refused(leader, "e", Refusal("busy", 60.0), 0, 1, 0.0)
    assert ask(queue, "b", (*shared, "b"), 0.0, "p") == 1 - leader


@catches(
    "followers-lose-their-place",
    "a call that goes where its leader is loses its place in a long line",
    edited(GraphAware._follows, "offers.missing[best] == least", "False"),
)
@catches(
    "followers-in-no-line",
    "a call is not held though its leader is computed next",
    edited(GraphAware._follows, " and offers.seen[best].pending > limits[best].max_batch", ""),
)
def test_a_follower_stands_behind_its_leader_where_that_stands_in_line() -> None:
    for more in (LONG // 2, 2 * LONG):
        queue = routed(hits=False)
        keys = prompt(("kept", 200))
        home = turn(queue, "p", keys, 0.0)
        longer = prompt(("kept", 200), ("more", more))
        assert route(queue, "a", longer, 1.0, program="p") == home
        followed = ask(queue, "b", (*longer, "b"), 1.0, "p")
        assert followed == (home if more > LONG else -1)


def test_calls_of_others_do_not_follow() -> None:
    queue = routed()
    shared = prompt(("shared", 100))
    ask(queue, "a", (*shared, "a"), 0.0)
    ask(queue, "b", (*shared, "b"), 0.0)
    assert not held(queue)


# --- prefill ahead --------------------------------------------------------------------------


def _piece(queue: EngineQueue, latest_s: float, run: str = "piece") -> None:
    spec = WorkSpec(
        engine="e",
        op=Op.PARTIAL_PREFILLING,
        component="c",
        lane=None,
        cuttable=False,
        depth=0,
        estimate=Estimate(latest_s=latest_s),
    )
    piece = call(run, prompt((run, 40)), 0.0)
    piece.spec = spec
    queue.submit(piece, 0.0)


@catches(
    "too-early",
    "a piece goes long before the rest of its prompt comes",
    edited(GraphAware._choose, "self.ahead and", "False and"),
)
def test_a_piece_goes_one_prefill_before_the_rest_of_its_prompt() -> None:
    queue = routed()
    for i in (0, 1):
        queue.submit(call(f"busy {i}", (), total=1, affinity=i), 0.0)
    for run in ("piece", "other"):
        _piece(queue, 2.0, run)
    assert held(queue) == {"piece", "other"}
    due = queue.placing.routing.wake_at(0.0)
    assert due is not None
    assert 1.9 < due < 2.0
    queue.dispatch(1.9)
    assert held(queue) == {"piece", "other"}
    queue.dispatch(due)
    assert not held(queue)


def test_a_piece_goes_at_once_where_there_is_nothing_to_do() -> None:
    queue = routed()
    _piece(queue, 2.0)
    assert not held(queue)


# --- without graphs -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_without_graphs_it_decides_as_marginal_cost(seed: int) -> None:
    """Calls that are programs of their own, in a crowd that pushes each other's KV out."""
    decided = []
    for policy in (GraphAware(), MarginalCost()):
        chance = random.Random(seed)
        queue = router(policy, 3, max_batch=LONG, kv_blocks=300)
        running, found = list[str](), list[int]()
        for k in range(200):
            now = k / 10
            keys = prompt((f"s{chance.randrange(6)}", 80), (k, chance.randrange(1, 90)))
            found.append(ask(queue, f"r{k}", keys, now))
            queue.dispatch(now)
            assert not queue.line.held
            running.append(f"r{k}")
            for run in chance.sample(running, min(len(running), chance.randrange(3))):
                if queue.works[run, 0].flying:
                    first(queue, run, now)
                    end(queue, run, now, chance.randrange(200))
                    queue.paused(ProgramPaused("e", run, ended=True), now)
                    running.remove(run)
            queue.dispatch(now)
            validate_queue(queue, now)
        decided.append(found)
    assert decided[0] == decided[1]
    assert len(set(decided[0])) == 3


# --- what it counts, and its options --------------------------------------------------------


def recounted(programs: Programs) -> None:
    everybody = list(programs._all.values())
    for i in range(len(programs.claimed)):
        here = [program for program in everybody if program.at == i]
        assert programs.claimed[i] == sum(program.claim for program in here)
        assert programs.owners[i] == sum(program.owner for program in here)
        assert programs.settled[i] == sum(program.claim for program in here if program.owner)
        works = {one.name: one for one in here if one.works and one.claim}
        assert {k: one for k, one in programs.running[i].items() if one.claim} == works
        for name in ("", *works):
            others = [one.claim for one in works.values() if one.name != name]
            assert programs.largest_beside(name, i) == max(others, default=0)
    away = {program.name for program in everybody if program.since is not None}
    assert programs._since.keys() == away


@pytest.mark.parametrize("seed", range(5))
def test_what_it_counts_follows_from_what_happened(seed: int) -> None:
    chance = random.Random(seed)
    queue = routed(held_s=20.0)
    policy = queue.placing.routing
    assert isinstance(policy, GraphAware)
    running, said, now = list[str](), {f"p{k}": prompt((k, 60)) for k in range(8)}, 0.0
    for k in range(400):
        now += chance.choice((0.0, 0.1, 5.0, 4000.0 if k % 100 == 0 else 1.0))
        name = chance.choice(list(said))
        said[name] = (*said[name], *((name, k, j) for j in range(chance.randrange(40))))
        ask(queue, f"{name}/{k}", said[name], now, name)
        running.append(f"{name}/{k}")
        queue.dispatch(now)
        for run in chance.sample(running, min(len(running), chance.randrange(4))):
            program = run.split("/")[0]
            if queue.works[run, 0].flying:
                first(queue, run, now)
                end(queue, run, now, chance.randrange(20))
                ended = chance.random() < 0.1
                queue.paused(ProgramPaused("e", program, chance.choice("ab"), ended), now)
                running.remove(run)
            elif chance.random() < 0.3:
                queue.withdraw(run, 0, now)
                running.remove(run)
        queue.dispatch(now)
        validate_queue(queue, now)
        recounted(policy.programs)
        assert len(policy._line) == len(policy._held) == len(policy._oldest)


@catches(
    "names-for-ever",
    "whoever names a session once is remembered as long as everybody else",
    edited(Programs._pauses, "len(self._since) > MOST_AWAY", "False"),
)
@catches(
    "forgotten-at-once",
    "those that are forgotten count as gone in the second in which they went",
    edited(Programs._pauses, "max(0.0, since - gone_at)", "0.0"),
)
def test_however_many_sessions_come_few_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("teola.policies.routing.programs.MOST_AWAY", 50)
    away, gone = list[float](), Returns.gone

    def noting(self: Returns, pause: AwayTime, seconds: float) -> None:
        away.append(seconds)
        gone(self, pause, seconds)

    monkeypatch.setattr(Returns, "gone", noting)
    queue = routed()
    policy = queue.placing.routing
    assert isinstance(policy, GraphAware)
    for k in range(2000):
        turn(queue, f"s{k}", prompt((k, 20)), k / 100)
        recounted(policy.programs)
    assert len(policy.programs) == len(policy.programs._since) == 50
    assert len(policy.programs._away) <= 64 + 2 * 51
    assert policy.programs.get("s1999") is not None, "the last ones are"
    assert away == pytest.approx([0.5] * 1950), "50 came after each, one in 10 ms"
    returns = policy.programs.returns
    assert sum(map(sum, returns._gone.values())) > 0, "it is learned from those that are forgotten"
    turn(queue, "s0", prompt((0, 20)), 21.0)
    assert len(policy.programs) == 50


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gate": 1}, "gate must be true or false, got 1"),
        ({"held_s": 301}, "held_s must be seconds from 0 to 300, got 301"),
        ({"held_s": -1}, "held_s must be seconds from 0 to 300, got -1"),
        ({"ageing": "x"}, "ageing must be a number from 0 on, got 'x'"),
        ({"ageing": -0.5}, "ageing must be a number from 0 on, got -0.5"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make("graph_aware", **options)


def test_every_switch_is_an_option() -> None:
    policy = make("graph_aware", **dict.fromkeys(SWITCHES, False))
    assert not any(getattr(policy, switch) for switch in SWITCHES)
