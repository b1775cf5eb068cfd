"""The radix tree of E2: how prompts part it, who keeps what, and what is evicted next."""

from __future__ import annotations

from math import inf
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from teola.policies.routing.e2 import found
from teola.policies.routing.radix import RadixTree
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
