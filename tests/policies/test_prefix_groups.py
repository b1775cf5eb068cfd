"""Priority groups by the part of a prompt that is kept (Preble), by the properties of its sheet."""

from __future__ import annotations

from collections import Counter
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from teola.errors import InputError
from teola.policies import batching
from teola.policies.batching.prefix_groups import PrefixGroups, next_group
from teola.policies.routing import make
from teola.policies.work import Slots, Work
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import Dispatch, PrefixChanged
from teola.schedule.instances import Limits
from tests.planted import catches, edited
from tests.policies.routed import call, end, prompt
from tests.recording import work


@pytest.mark.parametrize(
    ("found", "group"), [(63, 6), (60, 6), (9, 0), (10, 1), (99, 9), (100, 9), (0, 0)]
)
def test_groups_by_the_part_that_is_found(found: int, group: int) -> None:
    assert PrefixGroups().group(call("q", (), total=100), found) == group


@pytest.mark.parametrize("groups", [1, 2, 3, 10])
def test_a_group_is_the_part_that_is_found_of_any_prompt(groups: int) -> None:
    """As many tenths as are whole, but of the whole prompt the last one; nothing of nothing."""
    policy = PrefixGroups(groups)
    assert policy.group(work(total=0), 0) == 0
    for tokens in range(1, 25):
        for found in range(tokens + 1):
            whole = max(g for g in range(groups) if g * tokens <= found * groups)
            assert policy.group(work(total=tokens), found) == whole, (tokens, found)


@pytest.mark.parametrize("flies", ["a", "b", "c"])
def test_only_what_was_sent_of_a_batch_pays_for_its_place(flies: str) -> None:
    """Of three that a batch offers, one goes; the others are withdrawn."""
    policy = PrefixGroups(2)
    ones = {name: work(k, run=name, total=4) for k, name in enumerate("abc")}
    for one in ones.values():
        policy.add(one, 0.0)
    assert [one.run for one, _, _ in policy.choose(Slots(0, 99, 9, True), 0.0)] == [*"abc"]
    before, offered = policy._credit, dict(zip("abc", policy._offered, strict=True))
    for name, one in ones.items():
        one.queued = False
        one.flying = {(0, 4): (0, 1)} if name == flies else {}
        policy.remove(one, 0.0)
        gone = [*ones].index(name) >= [*ones].index(flies)
        assert policy._credit is (offered[flies][1] if gone else before)


def turns(groups: tuple[int, ...], slots: int) -> list[int]:
    """Whose turns they are, while all have enough."""
    waiting: dict[int, list[Work]] = {group: [] for group in groups}
    credit = [0] * 10
    return [next_group(waiting, credit) for _ in range(slots)]


@catches(
    "equal-weights",
    "all groups weigh the same",
    edited(next_group, "credit[group] += group + 1", "credit[group] += 1"),
)
def test_places_go_round_by_weight() -> None:
    assert turns((9, 0), 11) == [9, 9, 9, 9, 9, 0, 9, 9, 9, 9, 9]
    assert Counter(turns((9, 4, 0), 16)) == {9: 10, 4: 5, 0: 1}
    assert turns((2, 1, 0), 6) == [2, 1, 2, 0, 1, 2]


def test_nothing_starves() -> None:
    found = turns(tuple(range(10)), 300)
    for first in range(len(found) - 55):
        assert found[first : first + 55].count(0) == 1


def queue_with(sequences: int = 1, routing: str = "least_loaded", **options: Any) -> EngineQueue:
    limits = Limits(10**6, sequences, 1, True, None, 1)
    return EngineQueue("e", [limits], batching.make("prefix_groups", **options), make(routing))


def keys_of(name: str, found: int) -> tuple[Any, ...]:
    """Of a prompt of 101 tokens, so many of which are told to be kept."""
    return (*prompt(("kept", found)), *prompt((name, 101 - found)))


def sent(queue: EngineQueue) -> list[str]:
    return [
        work.run
        for command in queue.dispatch(0.0)
        if isinstance(command, Dispatch)
        for work, _, _ in command.slices
    ]


@catches(
    "credits-lost",
    "credits begin anew with every batch",
    edited(PrefixGroups.remove, "self._credit = credit", "pass"),
)
def test_credits_are_kept_from_batch_to_batch() -> None:
    queue = queue_with()
    queue.prefixes(PrefixChanged("e", 0, prompt(("kept", 100))), 0.0)
    for k in range(12):
        queue.submit(call(f"hit{k}", keys_of(f"hit{k}", 95)), 0.0)
    queue.submit(call("new", keys_of("new", 0)), 0.0)
    order: list[str] = []
    while batch := sent(queue):
        order += batch
        for run in batch:
            end(queue, run, 0.0)
    assert order.index("new") == 5
    assert order[:5] == [f"hit{k}" for k in range(5)]


def test_what_is_withdrawn_pays_for_no_place() -> None:
    one, other = call("one", (), total=5), call("other", (), total=5)
    queue = queue_with()
    policy = queue.line.policy
    assert isinstance(policy, PrefixGroups)
    queue.submit(one, 0.0)
    queue.submit(other, 0.0)
    assert sent(queue) == ["one"]
    before = policy._credit
    queue.withdraw("other", 0, 0.0)
    assert policy._credit is before


@catches(
    "grouped-once",
    "a call stays in the group that it came into",
    edited(PrefixGroups._found, "self._view.depth(i, work.keys, kept.get(i, 0))", "kept.get(i, 0)"),
)
def test_groups_follow_what_is_kept() -> None:
    queue = queue_with()
    queue.submit(call("first", (), total=1), 0.0)
    assert sent(queue) == ["first"]
    queue.submit(call("a", keys_of("a", 0)), 0.0)
    queue.submit(call("b", keys_of("b", 90)), 0.0)
    assert sent(queue) == []
    queue.prefixes(PrefixChanged("e", 0, prompt(("kept", 90))), 0.0)
    end(queue, "first", 0.0)
    assert sent(queue) == ["b"]
    queue.prefixes(PrefixChanged("e", 0, (), prompt(("kept", 90))), 0.0)
    queue.submit(call("c", keys_of("c", 90)), 0.0)
    end(queue, "b", 0.0)
    assert sent(queue) == ["a"]


def test_they_work_within_tenants_too() -> None:
    limits = Limits(10**6, 1, 1, True, None, 1)
    fair = batching.make("fair", inner="prefix_groups")
    queue = EngineQueue("e", [limits], fair, make("least_loaded"))
    queue.prefixes(PrefixChanged("e", 0, prompt(("kept", 100))), 0.0)
    queue.submit(call("new", keys_of("new", 0)), 0.0)
    queue.submit(call("hit", keys_of("hit", 95)), 0.0)
    assert sent(queue) == ["hit"]


@pytest.mark.parametrize("groups", [1, 2, 1000])
def test_as_few_and_as_many_groups_as_can_be_hold_all_calls(groups: int) -> None:
    policy = PrefixGroups(groups)
    one = call("q", (), total=1000)
    found = [policy.group(one, tokens) for tokens in range(1001)]
    assert (found[0], found[-1]) == (0, groups - 1)
    assert {*found} == {*range(groups)}
    assert found == sorted(found)


@pytest.mark.parametrize("groups", [0, 1001, 2.5, True, "10"])
def test_groups_that_make_no_sense_are_refused(groups: Any) -> None:
    with pytest.raises(InputError, match="groups must be a whole number from 1 to 1000"):
        batching.make("prefix_groups", groups=groups)


@catches(
    "saved-while-away",
    "a group that has nothing keeps what it had saved",
    edited(PrefixGroups.choose, "credit[group] = 0\n        before", "pass\n        before"),
)
def test_places_are_those_of_a_slow_model_while_calls_come_and_leave() -> None:
    for places in (1, 2, 5):
        comes_and_leaves(places)


def comes_and_leaves(places: int) -> None:
    """Each place of a batch by itself: the groups that have calls, and what each has saved."""
    draw, founds = Random(places), {0: 0, 3: 35, 9: 95}
    queue = queue_with(places)
    queue.prefixes(PrefixChanged("e", 0, prompt(("kept", 100))), 0.0)
    waiting: dict[int, list[str]] = {group: [] for group in founds}
    credit = dict.fromkeys(founds, 0)
    for k in range(80):
        for n in range(draw.choice([2, 3, 4]) if k % 10 < 6 else 0):
            group = draw.choice([*founds])
            run = f"{k}.{n}"
            waiting[group].append(run)
            queue.submit(call(run, keys_of(run, founds[group]), seq=10 * k + n), 0.0)
        if draw.random() < 0.3 and (left := draw.choice([*waiting.values()])):
            queue.withdraw(left.pop(draw.randrange(len(left))), 0, 0.0)
        if sum(map(len, waiting.values())) == 1:
            continue  # the only one is sent without being asked about
        expected = []
        for group in founds:
            if not waiting[group]:
                credit[group] = 0
        for _ in range(min(places, sum(map(len, waiting.values())))):
            there = [group for group in founds if waiting[group]]
            for group in there:
                credit[group] += group + 1
            turn = max(there, key=lambda group: (credit[group], group))
            credit[turn] -= sum(group + 1 for group in there)
            expected.append(waiting[turn].pop(0))
            if not waiting[turn]:
                credit[turn] = 0
        assert sent(queue) == expected, k
        for run in expected:
            end(queue, run, 0.0)


def test_nothing_is_remembered_of_a_call_that_has_gone() -> None:
    limits = Limits(100, 8, 1, True)
    view: Any = SimpleNamespace(depth=lambda i, keys, before: 3, limits=[limits])
    policy, one = PrefixGroups(), call("q", prompt(("q", 90)))
    policy.attach(view)
    policy.add(one, 0.0)
    assert [piece.work for piece in policy.choose(Slots(0, 100, 9, True), 0.0)] == [one]
    assert policy._kept == {("q", 0): {0: 3}}
    one.queued = False
    policy.remove(one, 0.0)
    assert policy._kept == policy._queue == {}
