"""The cheaper of two providers first: the other where that refuses, or would let a call wait."""

from __future__ import annotations

from random import Random

import pytest

from teola.errors import InputError
from teola.policies.preferring import ranks
from teola.policies.work import Estimate
from teola.price import Price
from teola.schedule.events import FirstTokenLate
from teola.schedule.instances import Instances
from teola.schedule.placing import Placing
from teola.schedule.preference import Preference
from tests.planted import catches, edited
from tests.schedule.refusing import Refusing, Server


def providers(cheap: Server, dear: Server, *, most_s: float = 1.0, most: int = 64) -> Refusing:
    world = Refusing(cheap, dear, most=most)
    world.queue.prefer([0, 1], most_s)
    return world


@catches(
    "dear-at-once",
    "a dearer instance takes calls although a cheaper one has room",
    edited(Preference.order, "key=self._ranks.__getitem__", "key=lambda i: 0"),
    edited(Preference.takes, "if not there", "if True"),
)
def test_the_dearer_is_not_asked_while_the_cheaper_has_room() -> None:
    world = Refusing(Server(call_s=0.1), Server(call_s=0.2))
    world.queue.prefer([1, 0], 1.0)
    world.comes(60, every=0.1)
    world.run(until=20.0)
    assert world.calls == [0, 60]


@catches(
    "dear-when-full",
    "a dearer instance takes calls as soon as the cheaper ones are full",
    edited(Preference.takes, "return waited or", "return True or"),
)
def test_what_would_wait_for_too_long_goes_to_the_dearer() -> None:
    cheap = Server(call_s=0.5)
    world = providers(cheap, Server(call_s=0.5), most_s=1.2, most=2)
    world.comes(2)
    world.run(until=3.0)  # 4 calls a second
    world.comes(6, when=3.0)
    world.run(until=6.0)
    assert world.calls == [8, 0], "two run at once, four wait for a second at most"
    world.comes(12, when=6.0)
    world.run(until=30.0)
    assert world.calls == [14, 6]
    assert max(world.took) <= 1.2 + 0.5 + 0.01


@catches(
    "dear-never",
    "a call waits for a cheaper instance for as long as nobody knows how long that takes",
    edited(Preference.takes, "return waited or", "return"),
)
def test_nobody_waits_for_longer_whatever_was_expected() -> None:
    world = providers(Server(call_s=30.0), Server(call_s=0.5), most_s=2.0, most=1)
    world.comes(2)  # nothing is known of calls yet
    world.run(until=60.0)
    assert world.calls == [1, 1]
    assert min(world.took) == pytest.approx(2.5)


def test_what_the_cheaper_refuses_goes_to_the_dearer_at_once() -> None:
    world = providers(Server(at_once=3, call_s=0.2, after_s=5.0), Server(call_s=0.2), most_s=100.0)
    world.comes(5)
    world.comes(4, when=1.0)  # while it is closed
    world.comes(9, when=8.0, every=0.1)
    world.run(until=20.0)
    assert len(world.ok) == 18
    assert max(world.took) < 0.5
    assert [i for when, i in world.begun if when >= 8.0] == [0] * 9


def test_the_first_that_opens_again_is_asked_whichever_it_is() -> None:
    """Nothing runs, so nothing but the time begins a round; the dearer opens first."""
    cheap = Server(call_s=0.2, per_minute=0, after_s=50.0)
    world = providers(cheap, Server(at_once=1, call_s=0.2, after_s=3.0), most_s=100.0)
    world.comes(3)
    world.run(until=40.0)
    assert world.calls[1] >= 3
    assert len(world.ok) == 3
    assert max(world.took) < 30.0


def dear_share(*, independent: bool) -> float:
    """Of calls at random times, the cheaper taking three at once and no call waiting for it."""
    cheap = Server(at_once=3, call_s=0.2, after_s=1.0)
    world = Refusing(cheap, Server(call_s=0.2), batching="critical_path", independent=independent)
    world.queue.prefer([0, 1], 0.0)
    world.estimate = Estimate(base_s=0.1)
    chance, when = Random(1), 0.0
    for _ in range(240):
        when += chance.expovariate(12.0)
        world.comes(1, when=when)
    world.run(until=100.0)
    assert len(world.ok) == 240
    assert sum(world.calls) <= 1.03 * 240
    return sum(i == 1 for _, i in world.ok) / 240


@catches(
    "waits-for-prompts-at-an-api",
    "calls wait for the prompts of others where those hold nobody up",
    edited(Instances._room_of_llm, "0 if instance.limits.independent else", ""),
)
def test_where_calls_hold_nobody_up_none_waits_for_the_prompts_of_others() -> None:
    """What waits at the cheaper goes to the dearer. Of 2.4 calls at once in the mean, as many
    places as three lose 27 % (Erlang's formula B)."""
    assert dear_share(independent=True) < 0.36
    assert dear_share(independent=False) > 0.48


def test_a_budget_of_the_minute_is_waited_for_only_if_it_is_there_soon() -> None:
    cheap = Server(call_s=0.1, per_minute=10)
    world = providers(cheap, Server(call_s=0.1), most_s=5.0)
    world.queue.instances.limit(0, "e").account.requests.most = 10
    world.comes(12)
    world.comes(1, when=57.0)
    world.run(until=100.0)
    assert world.calls == [11, 2]
    assert world.ok[-1][1] == 0, "the last one has waited for 3.6 s"


@catches(
    "dear-try-waits",
    "another try waits before a dearer instance takes it",
    edited(Placing.bind, "at = prefers.instead(work.avoid, now)", "pass"),
)
def test_another_try_of_what_failed_at_the_cheaper_does_not_wait() -> None:
    world = providers(Server(call_s=0.2, hangs=(0.0, 1.0)), Server(call_s=0.2), most_s=1000.0)
    world.comes(1)
    world.run(until=100.0)
    assert world.calls == [1, 1]
    assert world.aborted == [(60.0, 0)]
    assert world.late == [FirstTokenLate("e", 0, 60.0, elsewhere=True)]
    assert world.took == [pytest.approx(60.2)]


def test_prices_are_compared_for_a_usual_call() -> None:
    cheap, same, dear = Price(1.0, 9.0), Price(3.0, 3.0), Price(2.0, 8.0)
    assert ranks([dear, cheap, same], "e") == [1, 0, 0]
    with pytest.raises(InputError, match="that of entry 1 is not known"):
        ranks([cheap, None], "e")
