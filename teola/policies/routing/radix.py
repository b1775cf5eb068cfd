"""The radix tree of E2: which prompts begin alike, and which instance keeps how much of them.

       [] -- (1, 2) --+-- (3, 4)       after 1 2 3 4 and 1 2 5: a node for each run of blocks
                      +-- (5)          that no prompt parts within

A node is kept by the instances in `cached_on`; whoever keeps a node keeps those above it, since
instances evict ends first. Leaves of one instance's part of the tree are in a heap by when they
were used last; entries that are not true any more are dropped when they are met.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from heapq import heappop, heappush
from math import inf


class RadixNode:
    """A run of blocks.

    context: tokens above it. hits: calls of the window that used it, by instance; active: those
    under way; last_access: when one did. below: by instance, how many of its children that keeps.
    waits: by instance, when calls that it is the key of were sent, and how long they had waited.
    replicas: instances that may get such calls, too, and since when.
    """

    __slots__ = (
        "active",
        "below",
        "cached_on",
        "children",
        "context",
        "hits",
        "keys",
        "last_access",
        "length",
        "number",
        "parent",
        "replicas",
        "waits",
    )

    def __init__(self, keys: Sequence[Hashable], length: int, context: int, number: int) -> None:
        self.keys, self.length, self.context, self.number = keys, length, context, number
        self.parent: RadixNode | None = None
        self.children: dict[Hashable, RadixNode] = {}
        self.cached_on: set[int] = set()
        self.hits: dict[int, int] = {}
        self.active: dict[int, int] = {}
        self.last_access: dict[int, float] = {}
        self.below: dict[int, int] = {}
        self.waits: dict[int, deque[tuple[float, float]]] = {}
        self.replicas: dict[int, float] = {}

    def up(self) -> Iterator[RadixNode]:
        """The node and those above it, without the root."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent


class RadixTree:
    """A prefix tree over the keys of blocks of `block_tokens` tokens, for so many instances."""

    def __init__(self, instances: int, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.root = RadixNode((), 0, 0, 0)
        self.used = [0] * instances
        """Tokens that each instance keeps."""
        self._made = self._nodes = 0
        self._at: dict[Hashable, RadixNode] = {}
        self._leaves: list[list[tuple[float, int, int, RadixNode]]] = [[] for _ in range(instances)]

    def __len__(self) -> int:
        """How many blocks the tree has."""
        return len(self._at)

    # --- prompts ----------------------------------------------------------------------------

    def insert(self, keys: Sequence[Hashable]) -> list[RadixNode]:
        """The nodes of a prompt, from its beginning. What is not in the tree becomes one new
        node."""
        node, done, path = self.root, 0, list[RadixNode]()
        while done < len(keys):
            child = node.children.get(keys[done])
            if child is None:
                child = self._new(keys[done:], node)
            else:
                length = len(child.keys)
                if keys[done : done + length] != child.keys:
                    pairs = zip(child.keys, keys[done:], strict=False)
                    same = next((k for k, (a, b) in enumerate(pairs) if a != b), len(keys) - done)
                    child = self._split(child, same)
            path.append(child)
            done += len(child.keys)
            node = child
        return path

    def _new(self, keys: Sequence[Hashable], parent: RadixNode) -> RadixNode:
        self._made += 1
        self._nodes += 1
        length = len(keys) * self.block_tokens
        node = RadixNode(keys, length, parent.context + parent.length, self._made)
        node.parent = parent
        parent.children[keys[0]] = node
        for key in keys:
            self._at[key] = node
        return node

    def _split(self, node: RadixNode, at: int) -> RadixNode:
        """Split a node behind its first `at` blocks. Returns the upper half, which is new."""
        parent = node.parent
        assert parent is not None
        upper = self._new(node.keys[:at], parent)
        node.keys, node.parent = node.keys[at:], upper
        node.length -= upper.length
        node.context += upper.length
        upper.children = {node.keys[0]: node}
        upper.cached_on = set(node.cached_on)
        upper.hits, upper.active = dict(node.hits), dict(node.active)
        upper.last_access = dict(node.last_access)
        upper.below = dict.fromkeys(node.cached_on, 1)
        return upper

    # --- what calls do ----------------------------------------------------------------------

    def use(self, path: Sequence[RadixNode], i: int, now: float) -> None:
        """A call with this prompt goes to instance `i`, which keeps it from now on."""
        for node in path:
            if i not in node.cached_on:
                self._keep(node, i)
            node.hits[i] = node.hits.get(i, 0) + 1
            node.active[i] = node.active.get(i, 0) + 1
            node.last_access[i] = now

    def _keep(self, node: RadixNode, i: int) -> None:
        node.cached_on.add(i)
        self.used[i] += node.length
        assert node.parent is not None
        node.parent.below[i] = node.parent.below.get(i, 0) + 1

    def ended(self, leaf: RadixNode, i: int) -> None:
        """A call whose prompt ends with this node is not under way any more."""
        for node in leaf.up():
            _less(node.active, i)
        kept = next((node for node in leaf.up() if i in node.cached_on), leaf)
        self._offer(kept, i)  # the end of the prompt may have been evicted meanwhile
        self._prune(leaf)

    def expired(self, leaf: RadixNode, i: int) -> None:
        """A call whose prompt ends with this node has left the window."""
        for node in leaf.up():
            _less(node.hits, i)
        self._prune(leaf)

    # --- what instances evict ---------------------------------------------------------------

    def evicted(self, i: int, keys: Collection[Hashable]) -> None:
        """Note that instance `i` has evicted these blocks."""
        gone: dict[RadixNode, set[Hashable]] = {}
        for key in keys:
            node = self._at.get(key)
            if node is not None and i in node.cached_on:
                gone.setdefault(node, set()).add(key)
        for node, evicted_keys in gone.items():
            if i in node.cached_on:
                first = next(k for k, key in enumerate(node.keys) if key in evicted_keys)
                if first:
                    self._split(node, first)
                self._drop(node, i)

    def trim(self, i: int, capacity: int) -> None:
        """Instance `i` has evicted what was used least recently: it has room for `capacity`."""
        while self.used[i] > capacity and (leaf := self._next(i, frozenset())) is not None:
            self._drop(leaf, i)

    def forget(self, i: int) -> None:
        """Note that instance `i` has lost all its blocks."""
        for node in list(self.root.children.values()):
            if i in node.cached_on:
                self._drop(node, i)

    def _drop(self, node: RadixNode, i: int) -> None:
        """Note that instance `i` has evicted this node and all below it."""
        todo, dropped = [node], list[RadixNode]()
        while todo:
            current = todo.pop()
            dropped.append(current)
            if current.below.pop(i, 0):
                todo += [child for child in current.children.values() if i in child.cached_on]
            current.cached_on.discard(i)
            current.replicas.pop(i, None)
            self.used[i] -= current.length
        parent = node.parent
        assert parent is not None
        _less(parent.below, i)
        self._offer(parent, i)
        for current in reversed(dropped):
            self._prune(current)

    def _prune(self, node: RadixNode) -> None:
        """Remove a node, and those above it, that no instance keeps and no call of the window
        used."""
        while (
            node.parent is not None
            and not (node.cached_on or node.hits or node.active or node.children)
            and node.parent.children.get(node.keys[0]) is node
        ):
            del node.parent.children[node.keys[0]]
            self._nodes -= 1
            for key in node.keys:
                del self._at[key]
            node = node.parent

    def _offer(self, node: RadixNode, i: int) -> None:
        """Note a node that instance `i` might evict next."""
        if _free(node, i) and node.parent is not None:
            entry = (node.last_access[i], -node.context, node.number, node)
            heappush(self._leaves[i], entry)
            if len(self._leaves[i]) > 64 + 2 * self._nodes:
                self._sweep(i)

    def _sweep(self, i: int) -> None:
        """Drop entries that are out of date, or twice in the heap."""
        live = {
            entry[2]: entry
            for entry in self._leaves[i]
            if _free(entry[3], i) and entry[3].last_access[i] == entry[0]
        }
        self._leaves[i] = sorted(live.values())

    def _next(self, i: int, but: Collection[RadixNode]) -> RadixNode | None:
        """Take the leaf that instance `i` evicts next off its heap, but none of `but`."""
        heap = self._leaves[i]
        while heap:
            at, _, _, node = heappop(heap)
            if _free(node, i) and node.last_access[i] == at and node not in but:
                return node
        return None

    def eviction_cost(
        self, i: int, need: int, path: Collection[RadixNode], seconds: Callable[[int, int], float]
    ) -> float:
        """What it costs to evict `need` tokens on instance `i`, where nothing is evicted yet: the
        prefill of each victim by `seconds(tokens, context with them)`, times its calls in the
        window; infinity if so much cannot be evicted. path: the call's own nodes, which stay."""
        freed, cost = 0, 0.0
        victims: list[RadixNode] = []
        lost: dict[RadixNode, int] = {}
        but = set(path)
        while freed < need:
            node = self._next(i, but)
            if node is None:
                cost = inf
                break
            victims.append(node)
            but.add(node)
            freed += node.length
            cost += seconds(node.length, node.context + node.length) * node.hits.get(i, 0)
            parent = node.parent
            assert parent is not None
            lost[parent] = lost.get(parent, 0) + 1
            if parent.below.get(i) == lost[parent] and i not in parent.active:
                at = parent.last_access.get(i, 0.0)
                if parent.parent is not None:
                    parent.below[i] -= lost[parent]
                    heappush(self._leaves[i], (at, -parent.context, parent.number, parent))
        for node, count in lost.items():
            if node.below.get(i) == 0:
                node.below[i] = count
        for node in (*victims, *(above for above in path if _free(above, i))):
            self._offer(node, i)
        return cost


def _free(node: RadixNode, i: int) -> bool:
    """Whether a node is a leaf of what instance `i` keeps, and no call uses it."""
    return i in node.cached_on and not node.below.get(i) and not node.active.get(i)


def _less(counts: dict[int, int], i: int) -> None:
    """Count one less for instance `i`, and drop the count at zero."""
    left = counts.get(i, 0) - 1
    if left > 0:
        counts[i] = left
    else:
        counts.pop(i, None)
