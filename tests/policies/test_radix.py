"""The radix tree of E2: how prompts part it, who keeps what, and what is evicted next."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teola.policies.routing.e2 import found
from teola.policies.routing.radix import RadixNode, RadixTree
from tests.planted import catches, edited
from tests.policies.routed import prompt


def nodes(tree: RadixTree) -> list[tuple[tuple[Any, ...], int]]:
    found, todo = [], list(tree.root.children.values())
    while todo:
        node = todo.pop(0)
        found.append((tuple(node.keys), node.context))
        todo += node.children.values()
    return found


def test_prompts_part_a_node_where_they_differ() -> None:
    tree = RadixTree(1, 1)
    tree.insert((1, 2, 3, 4))
    tree.insert((1, 2, 5))
    assert nodes(tree) == [((1, 2), 0), ((3, 4), 2), ((5,), 2)]
    tree.insert((1,))
    assert nodes(tree) == [((1,), 0), ((2,), 1), ((3, 4), 2), ((5,), 2)]


@settings(max_examples=50)
@given(st.lists(st.text("ab", min_size=1, max_size=6), max_size=8))
def test_a_path_is_its_prompt_and_parts_where_some_prompt_did(texts: list[str]) -> None:
    """Keys are prefixes, as those of blocks stand for all before them, too."""
    tree, prompts = RadixTree(1, 3), [[text[: k + 1] for k in range(len(text))] for text in texts]
    for number, keys in enumerate(prompts, 1):
        path = tree.insert(keys)
        assert [key for node in path for key in node.keys] == keys
        known = {key for keys in prompts[:number] for key in keys}
        assert len(tree) == len(known)
        ends = {keys[-1] for keys in prompts[:number]}
        ends |= {key for key in known if {key + "a", key + "b"} <= known}
        assert {node.keys[-1] for node in path} == ends & set(keys)
        for node in path:
            first, last = node.keys[0], node.keys[-1]
            assert (node.context, node.length) == (3 * len(first) - 3, 3 * len(node.keys))
            assert set(node.children) == {key for key in (last + "a", last + "b") if key in known}


def test_both_halves_of_a_node_are_kept_and_used_by_the_same() -> None:
    tree = RadixTree(2, 1)
    path = tree.insert((1, 2, 3, 4))
    tree.use(path, 1, 7.0)
    upper = tree.insert((1, 2, 5))[0]
    lower = path[0]
    for node in (upper, lower):
        assert (node.cached_on, node.hits, node.active) == ({1}, {1: 1}, {1: 1})
        assert node.last_access == {1: 7.0}
    assert tree.used == [0, 4]
    tree.ended(lower, 1)
    tree.expired(lower, 1)
    assert (upper.hits, upper.active, lower.hits, lower.active) == ({}, {}, {}, {})


@catches(
    "whole-node-evicted",
    "an instance that evicts the end of a node is taken to keep nothing of it",
    edited(RadixTree.evicted, "if first:", "if False:"),
)
def test_an_instance_evicts_the_end_of_a_node() -> None:
    tree = RadixTree(2, 1)
    path = tree.insert((1, 2, 3, 4))
    for i in (0, 1):
        tree.use(path, i, 0.0)
    tree.evicted(0, [4, 3])
    assert nodes(tree) == [((1, 2), 0), ((3, 4), 2)]
    path = tree.insert((1, 2, 3, 4))
    assert [node.cached_on for node in path] == [{0, 1}, {1}]
    assert (tree.used, found(path, 0), found(path, 1)) == ([2, 4], 2, 4)


def test_a_parent_is_evicted_after_its_children_and_calls_under_way_never() -> None:
    tree = RadixTree(1, 1)
    for k, name in enumerate(("a", "b")):
        path = tree.insert(prompt(("s", 10), (name, 20)))
        tree.use(path, 0, float(k))
        tree.ended(path[-1], 0)

    def cost(need: int) -> float:
        return tree.eviction_cost(0, need, (), lambda tokens, context: 1000 * tokens + context)

    assert cost(20) == 20_030
    assert cost(21) == 2 * 20_030
    assert cost(41) == 2 * 20_030 + 2 * 10_010  # both calls used the parent
    assert cost(51) == inf
    assert cost(41) == 2 * 20_030 + 2 * 10_010
    tree.use(tree.insert(prompt(("s", 10), ("b", 20))), 0, 2.0)
    assert (cost(20), cost(21)) == (20_030, inf)


# --- beside a slow one, which keeps every call and every key --------------------------------


@dataclass(eq=False)
class Call:
    """active: it is under way; counts: it is in the window."""

    keys: list[str]
    i: int
    leaf: RadixNode
    active: bool = True
    counts: bool = True


class Slow:
    """kept: by instance, the keys that it keeps. A key is all that stands before and in a block."""

    def __init__(self, tree: RadixTree) -> None:
        self.tree, self.calls = tree, list[Call]()
        self.last: dict[tuple[str, int], float] = {}
        """When a call last used a key."""
        self.kept: list[set[str]] = [set(), set()]

    def nodes(self) -> list[RadixNode]:
        found, todo = list[RadixNode](), [*self.tree.root.children.values()]
        while todo:
            found.append(todo.pop())
            todo += found[-1].children.values()
        return found

    def using(self, key: str, i: int) -> list[Call]:
        return [call for call in self.calls if call.i == i and key in call.keys]

    def next(self, i: int, kept: set[str], stay: list[RadixNode]) -> RadixNode | None:
        """The leaf of what it keeps that no call uses: used longest ago, deepest, oldest."""

        def may_go(node: RadixNode) -> bool:
            key = node.keys[-1]
            below = any(child.keys[0] in kept for child in node.children.values())
            used = any(call.active for call in self.using(key, i))
            return key in kept and not below and not used and node not in stay

        def rank(node: RadixNode) -> tuple[float, int, int]:
            return self.last[node.keys[-1], i], -node.context, node.number

        return min(filter(may_go, self.nodes()), key=rank, default=None)

    def trim(self, i: int, capacity: int) -> None:
        while len(self.kept[i]) * 3 > capacity:
            node = self.next(i, self.kept[i], [])
            if node is None:
                return
            self.kept[i] -= {*node.keys}

    def cost(self, i: int, need: int, path: list[RadixNode]) -> float:
        kept, freed, cost = {*self.kept[i]}, 0, 0.0
        while freed < need:
            node = self.next(i, kept, path)
            if node is None:
                return inf
            kept -= {*node.keys}
            freed += node.length
            calls = sum(call.counts for call in self.using(node.keys[-1], i))
            cost += calls * (1000 * node.length + node.context + node.length)
        return cost

    def compare(self) -> None:
        tree, nodes = self.tree, self.nodes()
        assert (len(tree), tree._nodes) == (sum(len(node.keys) for node in nodes), len(nodes))
        for i, kept in enumerate(self.kept):
            assert tree.used[i] == 3 * len(kept)
            assert len(tree._leaves[i]) <= 64 + 2 * len(nodes) + 1
            for node in nodes:
                assert {key in kept for key in node.keys} == {i in node.cached_on}
                calls = self.using(node.keys[-1], i)
                assert node.hits.get(i, 0) == sum(call.counts for call in calls)
                assert node.active.get(i, 0) == sum(call.active for call in calls)
                below = sum(child.keys[0] in kept for child in node.children.values())
                assert node.below.get(i, 0) == below
        for node in nodes:
            assert node.cached_on or node.hits or node.active or node.children, "of no use"


@pytest.mark.parametrize("seed", range(8))
def test_a_tree_is_what_all_calls_and_evictions_say(seed: int) -> None:
    draw, now, tree = Random(seed), 0.0, RadixTree(2, 3)
    slow = Slow(tree)
    for _ in range(150):
        now += draw.choice([0.0, 1.0])
        i, what = draw.randrange(2), draw.random()
        kept = sorted(slow.kept[i])
        if what < 0.4:
            text = "".join(draw.choice("aab") for _ in range(draw.randint(1, 6)))
            keys = [text[: k + 1] for k in range(len(text))]
            path = tree.insert(keys)
            tree.use(path, i, now)
            slow.calls.append(Call(keys, i, path[-1]))
            slow.last |= {(key, i): now for key in keys}
            slow.kept[i] |= {*keys}
        elif what < 0.7 and slow.calls:
            call = draw.choice(slow.calls)
            if call.active and draw.random() < 0.7:
                call.active = False
                tree.ended(call.leaf, call.i)
            elif call.counts:
                call.counts = False
                tree.expired(call.leaf, call.i)
            if not (call.active or call.counts):
                slow.calls.remove(call)
        elif what < 0.8 and kept:
            gone = draw.sample(kept, draw.randint(1, min(3, len(kept))))
            tree.evicted(i, [*gone, "unheard of"])
            slow.kept[i] = {key for key in kept if not any(key.startswith(k) for k in gone)}
        elif what < 0.85:
            capacity = draw.choice([0, 6, tree.used[i] - 1, tree.used[i]])
            slow.trim(i, capacity)
            tree.trim(i, capacity)
        elif what < 0.87:
            tree.forget(i)
            slow.kept[i] = set()
        slow.compare()
        if slow.calls and draw.random() < 0.4:
            keys = [key for key in draw.choice(slow.calls).keys if any(key in k for k in slow.kept)]
            path = tree.insert(keys) if set(keys) <= set(tree._at) else []
            need = draw.choice([0, 1, 3, 4, 9, tree.used[i], tree.used[i] + 1])
            expected = slow.cost(i, need, path)
            for _ in range(2):  # nothing is evicted by asking
                found = tree.eviction_cost(i, need, path, lambda n, context: 1000 * n + context)
                assert found == expected
            slow.compare()
