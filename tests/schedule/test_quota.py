"""What a server takes: closed, calls at once, budgets; and a queue whose servers refuse.

Long because a budget and a queue that keeps to it are tried by one world.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf
from random import Random

import pytest

from teola.cost import StepTime
from teola.learning.observer import Observer
from teola.policies.work import Slice, Slots, Work
from teola.profile import EngineProfile
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import CallEnded, InstanceDown, LimitsTold, Recovered
from teola.schedule.overdue import ENOUGH, FACTOR, LEAST_S, UNKNOWN_S, Late, Overdue
from teola.schedule.quota import (
    GRAIN_S,
    LONGEST_S,
    MINUTE_S,
    MOST_S,
    UNLIMITED,
    ApiAccount,
    MinuteBudget,
    MinuteLimits,
    Quota,
    Refusal,
)
from tests.planted import catches, edited
from tests.recording import work
from tests.schedule.refusing import ANSWER, Refusing, Server
from tests.schedule.test_engine_queue import call, llm_queue, sent

BUSY, AWAY = Refusal("busy"), Refusal("away")


# --- the state of one server ------------------------------------------------------------------


def test_what_it_kept_of_those_in_flight_is_what_it_takes() -> None:
    quota = Quota("e/0")
    for left in range(11, 2, -1):  # of twelve, nine are refused
        quota.refused(BUSY, batch=left, after=100, calls=left, now=1.0)
    assert quota.window == 3
    assert quota.refusals == 9
    assert quota.room(3, 50.0) == 0
    assert quota.room(2, 50.0) == 1


def test_calls_that_end_meanwhile_do_not_narrow_it() -> None:
    quota = Quota("e/0")
    quota.refused(BUSY, batch=0, after=9, calls=5, now=1.0)
    quota.refused(BUSY, batch=1, after=9, calls=1, now=1.1)  # three more came back
    assert quota.window == 4


def test_who_kept_none_takes_half_as_many_and_one_at_least() -> None:
    quota = Quota("e/0")
    quota.refused(BUSY, batch=0, after=1, calls=0, now=1.0)
    assert quota.window == 1
    quota.refused(BUSY, batch=1, after=2, calls=0, now=9.0)
    assert quota.window == 1


def test_no_refusal_lets_more_through() -> None:
    """Whatever came back meanwhile, and however many were in flight."""
    for seed in range(100):
        chance, quota, batch, now = Random(seed), Quota("e/0"), 0, 0.0
        for _ in range(12):
            now += chance.choice((0.0, 1.0, 40.0))
            calls, before = chance.randint(0, 9), quota.window
            if chance.random() < 0.5:
                quota.came_back(calls + 1, now)
                assert before <= quota.window <= before + 1
                continue
            batch += chance.randint(0, 1)
            quota.refused(BUSY, batch, batch + chance.randint(1, 2), calls, now)
            assert 1 <= quota.window <= before


def test_a_batch_draws_all_its_slices_as_one_call() -> None:
    for together, requests in ((True, 1), (False, 3)):
        account = ApiAccount(MinuteLimits(10, 100))
        Quota("e/0", account).sent([3, 7, 5], 1.0, together=together)
        assert account.requests.left(1.0) == 10 - requests
        assert account.tokens.left(1.0) == 100 - 15


def test_it_grows_to_what_it_took_and_by_one_in_half_a_minute_beyond() -> None:
    quota = Quota("e/0")
    for batch in range(3):
        quota.refused(BUSY, batch=batch, after=3, calls=5 - batch, now=0.0)
    assert quota.window == 3
    for _ in range(50):
        quota.came_back(3, now=29.0)
    assert quota.window == 3
    for _ in range(2):
        quota.came_back(3, now=31.0)
    assert int(quota.window) == 3  # a third of a call at a time
    for _ in range(4):
        quota.came_back(3, now=31.0)
    assert quota.window == 4
    quota.came_back(4, now=32.0)  # it took four
    for _ in range(50):
        quota.came_back(4, now=61.0)
    assert quota.window == 4
    for _ in range(50):
        quota.came_back(4, now=62.0)
    assert quota.window == 5
    quota.came_back(2, now=200.0)  # not all of it was used
    assert quota.window == 5


@pytest.mark.parametrize(("why", "first_s"), [(BUSY, 1.0), (AWAY, 0.125)])
def test_back_off_doubles_within_bounds_and_begins_anew_when_one_came_back(
    why: Refusal, first_s: float
) -> None:
    """One connection that broke says little, so a server that was away is asked again sooner."""
    quota, waits, now = Quota("e/0"), [], 0.0
    for batch in range(11):
        until = quota.refused(why, batch=batch, after=batch + 1, calls=0, now=now)
        waits.append(until - now)
        now = until
    for k, wait in enumerate(waits):
        most = min(MOST_S, first_s * 2.0**k)
        assert most / 2 <= wait <= most
    quota.came_back(1, now)
    until = quota.refused(why, batch=11, after=12, calls=0, now=now)
    assert now + first_s / 2 <= until <= now + first_s


def test_back_off_is_spread_by_the_seed_alone() -> None:
    def waits(seed: str) -> float:
        return Quota(seed).refused(AWAY, batch=0, after=1, calls=0, now=0.0)

    assert waits("e/0") == waits("e/0")
    assert len({waits(f"e/{i}") for i in range(20)}) == 20


@pytest.mark.parametrize(("said", "waits"), [(2.5, 2.5), (299.0, 299.0), (4000.0, LONGEST_S)])
def test_retry_after_is_believed_up_to_five_minutes(said: float, waits: float) -> None:
    until = Quota("e/0").refused(Refusal("busy", said), batch=0, after=1, calls=0, now=7.0)
    assert until == 7.0 + waits


def test_who_says_to_come_back_at_once_is_not_asked_without_end() -> None:
    quota, now = Quota("e/0"), 0.0
    for batch in range(10):
        now = quota.refused(Refusal("busy", 0.0), batch=batch, after=batch + 1, calls=0, now=now)
    assert now > 60


def test_one_refused_together_with_others_does_not_double_it() -> None:
    quota = Quota("e/0")
    until = quota.refused(BUSY, batch=0, after=5, calls=4, now=0.0)
    assert quota.refused(BUSY, batch=1, after=5, calls=3, now=0.0) == until
    assert quota.refused(Refusal("busy", 20.0), batch=2, after=5, calls=2, now=0.0) == 20.0


def test_who_was_away_is_probed_by_one_call_until_one_comes_back() -> None:
    quota = Quota("e/0")
    until = quota.refused(AWAY, batch=0, after=1, calls=0, now=0.0)
    assert quota.room(0, until - 0.001) == 0
    assert quota.closed(until - 0.001)
    assert quota.room(0, until) == 1
    assert quota.room(1, until) == 0
    assert quota.window == inf
    quota.came_back(1, until)
    assert quota.room(1, until) == inf


# --- budgets ----------------------------------------------------------------------------------


def test_a_budget_holds_in_any_minute() -> None:
    budget = MinuteBudget(3)
    for now in (0.0, 20.0, 40.0):
        assert budget.left(now) >= 1
        budget.draw(1, now)
    assert budget.left(40.0) == 0
    opens = budget.opens_at(1, 40.0)
    assert MINUTE_S <= opens <= MINUTE_S + 0.5
    assert budget.left(opens) == 1
    assert 20 + MINUTE_S <= budget.opens_at(2, 40.0) <= 20.5 + MINUTE_S


def test_what_the_server_says_is_left_holds_until_it_is_whole_again() -> None:
    budget = MinuteBudget(None)
    budget.told(2, reset_s=30.0, now=10.0)
    budget.draw(1, 11.0)
    assert budget.left(11.0) == 1
    budget.draw(1, 12.0)
    assert budget.left(39.9) == 0
    assert budget.opens_at(1, 12.0) == 40.0
    assert budget.left(40.0) == inf


@catches(
    "sent-meanwhile",
    "what was sent since a server wrote what is left counts as if it were in that",
    edited(MinuteBudget.told, "left -= amount", "pass"),
)
def test_what_is_on_its_way_is_not_in_what_a_server_says_is_left() -> None:
    """A server counts a call when it comes, and tells what was left then with its answer. 16 at
    once, answers in any order: all of its budget is used, and no more is asked for."""
    for seed in range(8):
        draw, budget, now, taken, refused = Random(seed), MinuteBudget(None), 0.0, 0, 0
        flying: list[tuple[float, float, int]] = []  # when it is answered, when sent, what is left
        while now < 50.0:
            while len(flying) < 16 and budget.left(now) >= 1:
                budget.draw(1, now)
                taken, refused = taken + (taken < 60), refused + (taken >= 60)
                sent = now + 1e-4 * len(flying)  # all at once are drawn, and then sent
                takes_s = draw.choice([0.1, 0.5, 2.0]) + 0.02 * draw.random()
                heappush(flying, (now + takes_s, sent, 60 - taken))
            if not flying:
                break
            now, sent, left = heappop(flying)
            budget.told(left, 60.0 - now, now, sent)
        assert (taken, refused) == (60, 0)


@catches(
    "last-is-newest",
    "the answer that comes last is taken for that to the newest question",
    edited(MinuteBudget.told, "left = min(left, self._told)", "pass"),
)
def test_of_calls_that_went_together_the_last_one_tells_what_is_left() -> None:
    budget = MinuteBudget(None)
    for _ in range(3):
        budget.draw(1, 1.0)
    budget.told(57, 60.0, 2.0, sent=1.003)
    budget.told(59, 60.0, 2.1, sent=1.001)
    assert budget.left(2.1) == 57
    budget.told(58, 60.0, 2.2, sent=1.004)
    assert budget.left(2.2) == 58


def test_a_call_that_was_refused_is_not_on_its_way() -> None:
    budget = MinuteBudget(None)
    for now in (1.0, 2.0, 3.0):
        budget.draw(1, now)
    budget.give_back(1, 3.0, 3.5)
    budget.told(10, 60.0, 4.0, sent=1.0)
    assert budget.left(4.0) == 9
    budget.told(10, 60.0, 4.0)
    assert budget.left(4.0) == 10


def test_tokens_are_drawn_as_expected_and_settled_as_used() -> None:
    account = ApiAccount(MinuteLimits(tokens=1000))
    assert account.calls(0.0) == 1  # how many tokens a call has is not known
    account.draw(200, 0.0)
    assert account.calls(0.0) == 4
    quota = Quota("e/0", account)
    quota.settled(400, 0.0, 1.0)
    assert account.calls(1.0) == 2
    quota.settled(-100, 0.0, 1.0)
    assert account.calls(1.0) == 2.5


def test_a_call_larger_than_the_budget_goes_when_nothing_else_does() -> None:
    account = ApiAccount(MinuteLimits(tokens=100))
    account.draw(500, 0.0)
    assert account.calls(1.0) == 0
    opens = account.opens_at(1.0)
    assert account.calls(opens) == 1


@pytest.mark.parametrize("tokens", [500, 501])
def test_one_that_was_refused_though_it_is_larger_than_the_budget_goes_again(tokens: int) -> None:
    quota = Quota("e/0", ApiAccount(MinuteLimits(tokens=100)))
    for batch, each in enumerate((500, tokens)):
        quota.sent([each], 0.0, together=False)
        until = quota.refused(BUSY, batch=batch, after=batch + 1, calls=0, now=0.0)
    assert quota.opens_at(until) > until or not quota.closed(until), "it would ask without end"
    assert not quota.closed(quota.opens_at(until))


def test_to_ask_when_it_opens_forgets_nothing() -> None:
    account = ApiAccount(MinuteLimits(requests=10))
    one, other = Quota("e/0", account), Quota("e/1", account)
    one.sent([1] * 10, 0.0, together=False)
    one.refused(Refusal("busy", 120.0), batch=0, after=1, calls=9, now=0.0)
    one.sent([1], 0.0, together=False)
    assert one.opens_at(1.0) == 120.0
    assert other.closed(1.0)
    assert other.opens_at(1.0) >= MINUTE_S


def test_what_the_server_says_is_left_is_believed_for_five_minutes() -> None:
    budget = MinuteBudget(None)
    budget.told(0, reset_s=9e6, now=10.0)
    assert budget.opens_at(1, 10.0) == 10.0 + LONGEST_S
    assert budget.left(10.0 + LONGEST_S) == inf


@pytest.mark.parametrize(("ago_s", "counted"), [(4.0, False), (3.0, True), (2.0, True)])
@pytest.mark.parametrize("which", ["requests", "tokens", "both"])
def test_what_is_told_is_as_old_as_the_call_that_it_answers(
    ago_s: float, counted: bool, which: str
) -> None:
    """What was drawn since then is not in it; and it may tell of one budget alone."""
    queue, account = Refusing(Server()).queue, ApiAccount()
    queue.instances.limit(0, "e", account)
    account.requests.draw(1, 5.0)
    account.tokens.draw(30, 5.0)
    requests, tokens = (which in (name, "both") for name in ("requests", "tokens"))
    told = LimitsTold(
        "e", 0, 10 if requests else None, 100 if tokens else None, 60.0, 40.0, ago_s, 20, 200
    )
    assert queue.limits_told(told, 8.0) == []
    late = 0 if counted else 1
    assert account.requests.left(8.0) == (10 - late if requests else inf)
    assert account.tokens.left(8.0) == (100 - 30 * late if tokens else inf)
    assert account.requests.size == (20 if requests else inf)
    assert account.tokens.size == (200 if tokens else inf)
    assert account.requests.opens_at(15, 8.0) == (68.0 if requests else 8.0)
    assert account.tokens.opens_at(150, 8.0) == (48.0 if tokens else 8.0)


def test_what_several_say_of_one_account_holds_where_it_is_less() -> None:
    account = ApiAccount()
    for limits in (MinuteLimits(tokens=90), MinuteLimits(5, 100), MinuteLimits(7), MinuteLimits()):
        account.also(limits)
    assert (account.requests.most, account.tokens.most) == (5, 90)


def test_one_refusal_does_not_hold_a_server_down_for_hours() -> None:
    """It was refused for something else than the budget, once, when little had been sent."""
    quota, learned = Quota("e/0"), []
    budget = quota.account.requests
    quota.sent([1, 1, 1], 0.0, together=False)
    quota.refused(Refusal("busy", 10.0), batch=2, after=3, calls=0, now=5.0)
    for minute in range(10):
        learned.append(budget.most)
        quota.came_back(1, 6.0 + (minute + 1) * MINUTE_S)
    assert learned[:3] == [2, 3, 4]
    assert learned[-1] is not None
    assert learned[-1] > 300
    quota.sent([1] * 9, 700.0, together=False)
    quota.refused(Refusal("busy", 10.0), batch=20, after=21, calls=0, now=701.0)
    quota.came_back(1, 702.0 + MINUTE_S)
    assert budget.most == 9, "it grows slowly again"


def test_a_refusal_for_a_budget_says_nothing_of_calls_at_once() -> None:
    quota = Quota("e/0")
    quota.account.requests.told(0, reset_s=20.0, now=0.0)
    quota.refused(Refusal("busy", 20.0), batch=0, after=1, calls=7, now=0.0)
    assert quota.window == inf
    assert quota.account.requests.most is None, "how many a minute it takes is not known by that"


# --- a queue whose servers refuse -------------------------------------------------------------


def test_twelve_calls_at_a_server_that_takes_three_are_all_answered() -> None:
    world = Refusing(Server(at_once=3, after_s=1.0))
    world.comes(12)
    world.run(until=30.0)
    assert len(world.ok) == 12
    assert not world.failed
    assert len(world.waits) == 9
    assert all(wait.until == pytest.approx(1.01) for wait in world.waits)
    assert world.queue.retry_budget.budgeted == 0
    assert world.queue.idle


def test_its_limit_is_learned_and_seldom_tried() -> None:
    world = Refusing(Server(at_once=3, after_s=0.5))
    world.comes(600, every=0.3)  # as fast as it can, and a little more
    world.run(until=300.0)
    assert len(world.ok) == 600
    assert world.calls[0] <= 1.03 * 600


def test_a_server_that_takes_more_later_is_sent_more() -> None:
    server = Server(at_once=1, after_s=0.5)
    world = Refusing(server)
    world.comes(540, every=0.2)
    world.at(10.0, lambda: setattr(server, "at_once", 8))
    world.run(until=200.0)
    assert len(world.ok) >= 500, "one more in half a minute"


@pytest.mark.parametrize("policy", ["fifo", "topology", "critical_path"])
def test_the_order_of_those_refused_stays(policy: str) -> None:
    world = Refusing(Server(at_once=1, after_s=1.0, call_s=0.2), batching=policy)
    world.comes(6)
    world.run(until=1.0)
    waiting = [work.seq for work in world.queue.works.values() if work.queued]
    assert len(waiting) == 5
    chosen = world.queue.line.policy.choose(Slots(0, 99, 99, True), 1.0)
    assert [piece.work.seq for piece in chosen] == sorted(waiting)
    world.run(until=60.0)
    assert len(world.ok) == 6


def test_others_of_its_pool_take_what_one_refuses() -> None:
    world = Refusing(Server(at_once=0, after_s=30.0), Server(call_s=0.1))
    world.comes(50, every=0.05)
    world.run(until=20.0)
    assert [i for _, i in world.ok] == [1] * 50
    assert world.calls[0] <= 3
    assert not world.failed


def test_a_server_that_is_not_there_is_waited_for() -> None:
    world = Refusing(Server(away=(0.0, 10.0), call_s=0.1))
    world.comes(40)
    world.run(until=60.0)
    assert len(world.ok) == 40
    assert min(at for at, _ in world.ok) < 10 + 16  # the back-off doubles
    assert world.calls[0] <= 40 + 40 + 6  # all at once at first, then one at a time


def test_who_is_there_takes_what_one_that_is_away_does_not() -> None:
    world = Refusing(Server(away=(0.0, 1e9), call_s=0.1), Server(call_s=0.1))
    world.comes(100, every=0.05)
    world.run(until=60.0)
    assert len(world.ok) == 100
    assert world.calls[0] <= 6
    assert not world.failed


def test_requests_a_minute_are_learned_from_its_refusals() -> None:
    world = Refusing(Server(per_minute=60, call_s=0.2))
    world.queue.instances.limit(0, "e", ApiAccount())
    world.comes(600)
    world.run(until=700.0)
    assert len(world.ok) == 600
    assert world.calls[0] <= 1.2 * 600
    assert world.queue.instances.limit(0, "e").window >= 60


def test_a_budget_that_is_known_is_used_and_never_passed() -> None:
    server = Server(per_minute=60, call_s=0.2)
    world = Refusing(server)
    world.queue.instances.limit(0, "e", ApiAccount(MinuteLimits(requests=60)))
    world.comes(300)
    world.run(until=180.0)
    assert server.calls == len(world.ok)  # none refused
    assert len(world.ok) >= 0.95 * 3 * 60


@pytest.mark.parametrize("known", [True, False])
def test_tokens_of_a_minute_are_used_and_never_passed(known: bool) -> None:
    """A server takes all off that an answer may have, and gives back what it had not when it has
    ended. Where nobody says how many there are, its headers do."""
    server = Server(tokens=20_000, call_s=0.2)
    world = Refusing(server, most=1000, tokens=350, answer=100)
    limits = MinuteLimits(tokens=20_000) if known else UNLIMITED
    world.queue.instances.limit(0, "e", ApiAccount(limits))
    world.comes(1)
    world.comes(200, 1.0)
    for minute in (1, 2, 3):
        world.run(until=60.4 * minute)
        assert len(world.ok) >= 0.95 * minute * (20_000 // (350 + ANSWER))
        assert server.calls - len(world.ok) <= 0.05 * len(world.ok)


@catches(
    "more-than-a-minute",
    "calls that may have more than a minute's tokens go one a minute",
    edited(Quota.answer, "return most if fits", "return most if True"),
)
def test_a_long_answer_that_may_have_more_than_a_minute_draws_what_is_expected() -> None:
    """A server that counted all of it would take no such call. One that is exactly a minute's goes
    as it is."""
    spec = work(most_output=30, expected_output=9).spec
    quota = Quota("e/0", ApiAccount(MinuteLimits(tokens=100)))
    assert (quota.answer(70, spec), quota.answer(71, spec)) == (30, 9)
    server = Server(call_s=0.2)
    world = Refusing(server, most=1000, tokens=350, answer=30_000)
    world.queue.instances.limit(0, "e", ApiAccount(MinuteLimits(tokens=20_000)))
    world.comes(100)
    world.run(until=59.0)
    assert len(world.ok) == 20_000 // (350 + ANSWER)


@catches(
    "settled-anew",
    "what a call drew is reckoned again when it ends",
    edited(
        EngineQueue._ended,
        "usage[1] - work.drawn",
        "usage[1] - target.quota.answer(work.total, work.spec)",
    ),
)
@catches(
    "average-of-unbounded",
    "calls sent before a bound was known are what others are measured by",
    edited("teola.schedule.quota.ApiAccount._per_call.fget", "self._unbounded and", "False and"),
)
def test_a_first_call_that_may_have_more_than_headers_tell_leaves_the_minute_to_others() -> None:
    """Nobody knows of a limit when it is sent."""
    server = Server(tokens=20_000, call_s=0.2, reserves=False)
    world = Refusing(server, most=1000, tokens=350, answer=30_000)
    world.queue.instances.limit(0, "e", ApiAccount(UNLIMITED))
    world.comes(1)
    world.comes(100, 1.0)
    world.run(until=59.0)
    assert len(world.ok) >= 0.95 * (20_000 // (350 + ANSWER))


@catches(
    "bound-forgotten",
    "a call that is more than a known minute counts as unknown",
    edited(ApiAccount.draw, "self._unbounded = self.tokens.size == inf", "self._unbounded = True"),
)
def test_calls_that_are_more_than_a_known_minute_wait_until_it_is_whole() -> None:
    account = ApiAccount(MinuteLimits(tokens=100))
    account.draw(150, 0.0)
    assert account.calls(61.0) >= 1, "nothing else was drawn"
    account.draw(20, 61.0)
    assert account.calls(61.0) < 1
    assert account.calls(122.0) >= 1


def test_servers_of_one_key_share_its_budget() -> None:
    account, servers = (
        ApiAccount(MinuteLimits(requests=10)),
        (Server(call_s=0.1), Server(call_s=0.1)),
    )
    world = Refusing(*servers)
    for i in range(2):
        world.queue.instances.limit(i, "e", account)
    world.comes(100)
    world.run(until=59.0)
    assert len(world.ok) == 10
    world.run(until=119.0)
    assert len(world.ok) == 20


# --- first tokens that do not come ------------------------------------------------------------


def test_a_call_that_gives_no_token_in_time_goes_elsewhere() -> None:
    world = Refusing(Server(hangs=(0.0, 1e9)), Server(call_s=0.1))
    world.comes(4)
    world.run(until=UNKNOWN_S - 1)
    assert len(world.ok) == 2
    world.run(until=UNKNOWN_S + 5)
    assert [i for _, i in world.ok] == [1] * 4
    assert world.aborted == [(UNKNOWN_S, 0)] * 2
    assert world.queue.retry_budget.budgeted == 1, "the second one is lost with its server"


def test_who_hangs_twice_is_tried_by_one_call_at_a_time_and_seldom() -> None:
    world = Refusing(Server(hangs=(0.0, 1e9)), Server(call_s=0.1))
    world.comes(1000, every=0.2)
    world.run(until=400.0)
    assert len(world.ok) == 1000
    assert world.calls[0] <= 0.5 * 25 + 25  # those of the first seconds, and then a few


@catches(
    "pairs-of-long-prompts",
    "a time that was learned for pairs of short prompts counts as of long ones",
    edited(
        EngineQueue.expected_s,
        "min(TYPICAL, (self.instances.mean_tokens or tokens) / 2)",
        "TYPICAL",
    ),
)
def test_short_prompts_that_hang_are_late_however_their_times_were_put_down() -> None:
    """All of 18 tokens take 0.1 s to a token, for their 171 pairs."""
    queue = Refusing(Server(), Server(), tokens=18).queue
    queue.placing.profiles = [EngineProfile(step=StepTime(per_pair_s=0.1 / 171))] * 2
    queue.instances.send(0, 0, 18 * 4, 4)
    expected = queue.expected_s(0, 18, 18, 1, 10, 0.0)
    assert expected is not None
    assert expected == pytest.approx(5 * 0.1, rel=0.1)


@catches(
    "blind",
    "where no time is known, others' first tokens say nothing",
    edited(Overdue._blind_s, "self._blind_firsts < FEW", "True"),
)
@catches(
    "ten-move",
    "of what hangs at once only as many move as the budget of retries has room for",
    edited(EngineQueue._late, "lost=quota.probing > 0", "lost=False"),
)
def test_all_that_hangs_at_once_moves_soon_though_no_time_is_known() -> None:
    world = Refusing(Server(hangs=(0.0, 1e9)), Server(call_s=0.5))
    world.comes(30)
    world.run(until=2 * LEAST_S)
    assert [i for _, i in world.ok] == [1] * 30
    assert world.aborted == [(LEAST_S, 0)] * 15
    assert world.queue.overdue is not None
    assert world.queue.overdue.next_at() is None


@catches(
    "due-twice",
    "who is due sooner is late at its first time as well",
    edited(Overdue.next_at, " and sent.due == at", ""),
)
@catches(
    "blind-to-size",
    "a long prompt is as soon late as the short ones before it",
    edited(Overdue._blind_s, " * max(1.0, tokens / self._most_tokens)", ""),
)
def test_who_is_sent_blind_is_late_by_the_slowest_of_the_others_and_by_size() -> None:
    overdue = Overdue()
    overdue.sent(("q", 0), 1, 0, None, 0.0, tokens=100)
    overdue.sent(("q", 1), 1, 1, None, 0.0, tokens=300)
    for k, took_s in ((2, 0.5), (3, 2.0), (4, 1.0)):
        overdue.sent(("q", k), 0, k, None, 0.0, tokens=100)
        assert overdue.next_at() == UNKNOWN_S
        overdue.came(("q", k), took_s)
    assert overdue.next_at() == FACTOR * 2.0
    assert [late.key for late in overdue.late(FACTOR * 2.0)] == [("q", 0)]
    overdue.left(("q", 0))
    assert overdue.next_at() == FACTOR * 2.0 * 3
    overdue.sent(("q", 5), 0, 5, None, 16.0, tokens=100)
    overdue.came(("q", 5), 26.0)
    assert overdue.late(FACTOR * 2.0 * 3) == []
    assert overdue.next_at() == UNKNOWN_S, "another one took longer meanwhile"
    assert [late.key for late in overdue.late(UNKNOWN_S)] == [("q", 1)]


def test_who_hung_is_taken_back_when_it_answers() -> None:
    world = Refusing(Server(hangs=(0.0, 1.0), call_s=0.1), Server(call_s=0.1))
    world.comes(2)
    world.comes(2, 0.1)
    world.comes(600, 2.0, every=0.2)
    world.run(until=200.0)
    assert len(world.ok) == 604
    assert world.calls[0] > 200


def test_the_only_server_keeps_what_it_has_and_is_tried_by_one_more() -> None:
    world = Refusing(Server(hangs=(0.0, 1.0), call_s=0.1))
    world.comes(2)
    world.comes(3, UNKNOWN_S + 1)
    world.run(until=UNKNOWN_S + 10)
    assert not world.aborted
    assert len(world.ok) == 3


def test_what_is_late_goes_by_how_late_others_were() -> None:
    given, overdue = Overdue(factor=8.0), Overdue(least_s=1.0)
    overdue.sent(("q", 0), 0, 0, 2.0, now=0.0)
    assert overdue.next_at() == 16.0
    overdue.came(("q", 0), 2.0)
    for k in range(1, ENOUGH):
        overdue.sent(("q", k), 0, k, 2.0, now=0.0)
        overdue.came(("q", k), 3.0 if k != 7 else 6.0)
    assert (overdue.factor, given.factor) == (2 * 3.0, 8.0), "one that is given stays"
    overdue.sent(("q", 99), 0, 99, 2.0, now=100.0)
    assert [late.key for late in overdue.late(111.9)] == []
    assert [(late.key, late.after_s) for late in overdue.late(112.0)] == [(("q", 99), 12.0)]
    assert overdue.late(113.0) == []
    assert [(late.after_s, late.again) for late in overdue.late(124.0)] == [(24.0, True)]


def test_a_timer_that_fires_a_little_early_is_set_anew() -> None:
    overdue = Overdue()
    overdue.sent(("q", 0), 0, 0, None, now=0.0)
    assert overdue.alarm() == UNKNOWN_S
    assert overdue.alarm() is None
    assert overdue.late(UNKNOWN_S - 1e-9) == []
    assert overdue.alarm() == UNKNOWN_S


def test_a_prefix_that_is_computed_ahead_and_hangs_goes_elsewhere() -> None:
    world = Refusing(Server(hangs=(0.0, 1e9)), Server(call_s=0.1))
    world.at(0.0, lambda: world.submit(members=()))
    world.run(until=UNKNOWN_S + 1)
    assert world.ok == [(UNKNOWN_S + 0.1, 1)]


def test_what_hung_while_the_other_was_closed_goes_there_later() -> None:
    world = Refusing(Server(hangs=(0.0, 1e9)), Server(at_once=0, after_s=UNKNOWN_S + 10))
    world.comes(2)
    world.at(5.0, lambda: setattr(world.servers[1], "at_once", 9))
    world.run(until=3 * UNKNOWN_S)
    assert [i for _, i in world.ok] == [1] * 2


def test_a_late_call_without_another_try_stays_and_may_be_answered() -> None:
    slow = 3.5 * UNKNOWN_S
    world = Refusing(Server(call_s=2 * slow), Server(call_s=2 * slow))
    world.comes(1)
    world.run(until=5 * slow)
    assert world.aborted == [(UNKNOWN_S, 0), (2 * UNKNOWN_S, 1)]
    assert not world.failed
    assert world.queue.idle


def test_a_probe_that_hangs_at_the_only_server_does_not_hold_up_all_others() -> None:
    world = Refusing(Server(away=(0.0, 0.5), hangs=(0.5, 5.0), call_s=0.1))
    world.comes(3)
    world.run(until=UNKNOWN_S + 5)
    assert len(world.ok) == 2


def test_the_first_token_of_a_probe_lets_the_others_follow() -> None:
    world = Refusing(Server(away=(0.0, 0.5), call_s=100.0))
    world.comes(10)
    world.run(until=60.0)
    assert world.servers[0].running == 10
    world.run(until=200.0)
    assert len(world.ok) == 10


def test_what_learns_times_hears_the_end_of_a_late_call() -> None:
    world = Refusing(Server(hangs=(0.0, 1e9)), Server(call_s=0.1))
    heard = Heard()
    world.queue.observer = heard
    world.comes(2)
    world.run(until=2 * UNKNOWN_S)
    assert heard.running == 0
    assert len(world.aborted) == 1


class Heard(Observer):
    """How many calls are under way."""

    running = 0

    def sent(self, i: int, batch: int, slices: Sequence[Slice], now: float) -> None:
        self.running += len(slices)

    def ended(
        self, work: Work, failed: bool, cached: int | None, generated: int | None, now: float
    ) -> None:
        self.running -= 1


def test_a_call_that_is_sent_again_has_the_time_of_its_second_try() -> None:
    overdue = Overdue(factor=8.0, least_s=1.0)
    overdue.sent(("q", 0), 0, 0, 2.0, now=0.0)
    overdue.left(("q", 0))
    overdue.sent(("q", 0), 1, 1, 2.0, now=10.0)
    assert overdue.late(25.9) == []
    assert overdue.late(26.0) == [Late(("q", 0), 1, 1, 16.0, again=False)]


def test_draws_of_a_tenth_of_a_second_are_there_again_together() -> None:
    """What comes at its very end begins the next piece of the minute."""
    budget = MinuteBudget(4)
    for at in (0.0, 0.05, GRAIN_S, GRAIN_S):
        budget.draw(1, at)
    again = [budget.opens_at(wanted, GRAIN_S) for wanted in (1, 2, 3, 4)]
    first, second = GRAIN_S + MINUTE_S, 2 * GRAIN_S + MINUTE_S
    assert again == pytest.approx([first, first, second, second])
    assert (budget.left(first - 0.01), budget.left(first)) == (0, 2)


@pytest.mark.parametrize(("before", "learned"), [(0, None), (1, 1), (4, 4)])
def test_so_many_a_minute_are_learned_when_one_beyond_them_is_refused(
    before: int, learned: int | None
) -> None:
    """The first call of a minute that is refused says nothing of how many a minute it takes."""
    account = ApiAccount()
    quota = Quota("e/0", account)
    for k in range(before + 1):
        quota.sent([10], float(k), together=False)
        if k < before:
            quota.came_back(1, k + 0.5)
    quota.refused(Refusal("busy", 30.0), before, before + 1, 0, float(before))
    assert account.requests.most == learned
    assert quota.rationed is (learned is not None)
    assert quota.window == (1 if learned is None else inf)


@pytest.mark.parametrize("other", [False, True])
def test_what_one_that_is_away_did_not_take_goes_back_to_it_if_there_is_no_other(
    other: bool,
) -> None:
    world = Refusing(Server(away=(0.0, 5.0)), Server())
    if not other:
        world.queue.down(InstanceDown("e", 1), 0.0)
    world.comes(1)
    world.run(until=60.0)
    assert [i for _, i in world.ok] == [int(other)]
    assert not world.failed


def test_a_call_that_nobody_waits_for_any_more_still_tells_of_its_server() -> None:
    """What it took of a budget, and that an instance which had failed is well again."""
    queue = llm_queue()
    account = ApiAccount(MinuteLimits(tokens=1000))
    queue.instances.limit(0, "e", account)
    queue.instances.failed(0, 0.0, lost=True)
    queue.submit(call(0, 40, most_output=100), 31.0)
    (probe,) = sent(queue, 31.0)
    assert account.tokens.left(31.0) == 1000 - 140
    queue.withdraw("q", 0, 32.0)
    told = queue.call_ended(CallEnded("e", probe.batch, "q", 0, {}, None, 10), 33.0)
    assert account.tokens.left(33.0) == 1000 - 50
    assert Recovered("e", 0) in told
    assert queue.idle
