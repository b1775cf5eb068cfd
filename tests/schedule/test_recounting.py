"""What a queue keeps of its instances, against a recount after everything that happens."""

from __future__ import annotations

import pytest

from teola.policies.routing import make
from teola.schedule.asking import Asking
from teola.schedule.coming import Coming
from teola.schedule.instances import Instance, Instances
from teola.schedule.placing import Placing
from teola.schedule.validate import validate_queue
from tests.planted import catches, edited
from tests.schedule.recounted import LIMITS, Life


def lives(routing: str, seed: int, steps: int = 120, *, fails: bool = False) -> None:
    """A queue's life, in which each figure is compared after each step."""
    life = Life(seed, make(routing))
    life.more = [life.fail] * 3 if fails else []
    queue = life.queue
    asking, view = queue.line.asking, queue.placing.routing.view
    for happened in life.steps(steps):
        free = len(life.bound(-1))
        keys = life.probe().keys if queue.placing.by_keys else ()
        kept, expected = view.hits(keys, life.now), view.expected(keys, life.now)
        for i, seen in enumerate(view.instances(life.now)):
            assert seen == life.view(i), f"instance {i} after {happened} at {life.now}"
            bound = len(life.bound(i))
            assert asking.bound_to(i) == bound
            assert [asking.part(i, n) for n in (1, 2)] == [
                max(1, each + bound) for each in (free, (free + 1) // 2)
            ]
            slots = queue.instances.room(i, life.now)
            assert (slots.weight if slots else 0) == life.room(i), f"{i} after {happened}"
            if slots:
                assert slots.entries == LIMITS[i].max_sequences - len(life.flying(i))
            assert kept.get(i, 0) == life.kept(i, keys), f"{i} after {happened}"
            assert expected.get(i, 0) == life.expected(i, keys), f"{i} after {happened}"
            assert view.depth(i, keys, 2) == life.kept(i, keys), f"{i} after {happened}"
        assert asking.bound == sum(len(life.bound(i)) for i in range(len(LIMITS)))
    validate_queue(queue, life.now)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("routing", ["lmetric", "least_loaded", "prefix_affinity"])
def test_a_queue_knows_what_its_instances_have(routing: str, seed: int) -> None:
    lives(routing, seed)


@catches(
    "memory-found-twice",
    "what is found in a cache takes no free memory",
    edited(Instances.send, "instance.free -= items", "instance.free -= items - found"),
)
@catches(
    "memory-of-the-dead",
    "a fresh instance has the memory that the one before it told",
    edited(Instances.restored, "instance.free = None", "pass"),
)
@catches(
    "memory-full-for-ever",
    "an instance without a call takes none while its memory is full",
    edited(Instance.left, " and self.entries", ""),
)
@catches(
    "tokens-left-whole",
    "who leaves the queue takes more tokens along than it brought",
    edited(Asking.left, "-= work.missing", "-= work.tokens"),
)
@catches(
    "placed-anew-counted-as-before",
    "what is placed anew counts as if it found what it found at first",
    edited(Placing.rebind, "elif finds != counted_hits", "elif False"),
)
@catches(
    "coming-for-ever",
    "a second call that brings the same blocks is forgotten with the first",
    edited(Coming.remove, "if len(chains[key]) == 1", "if True"),
)
def test_a_queue_counts_right_in_one_long_life() -> None:
    lives("lmetric", 1, 220)


@catches(
    "part-rounded-down",
    "what is left over of an even share goes to nobody",
    edited(Asking.part, "-(-self._free // idle)", "self._free // idle"),
)
def test_a_queue_counts_right_what_is_bound_to_nobody() -> None:
    lives("least_loaded", 1)


@pytest.mark.parametrize("routing", ["lmetric", "least_loaded"])
def test_a_queue_counts_right_while_calls_fail_and_are_tried_again(routing: str) -> None:
    lives(routing, 0, 100, fails=True)
