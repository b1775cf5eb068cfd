"""e2: exploit or explore (Preble: Efficient Distributed Prompt Scheduling, ICLR 2025).

A radix tree knows which prompts begin alike and who keeps what. If more than half of a prompt is
kept somewhere, the call *exploits*: it goes to the least loaded instance of those that keep the
longest node of that prefix. Else it *explores*: it goes where load + evictions + its own prefill
cost least, all in seconds, or first to an instance whose prompts were mostly found of late and
which therefore decodes more than it prefills. The load is that of the last three minutes.

Then it repairs: while one instance has more than `balance` times the load of another, calls for the
first go to the second; and a prefix whose calls wait twice as long as before on such an instance
may go to the second as well, which computes it anew then.

    L_i  sum of prefill_s + mean decoding, over the calls of the window
    M_i  prefill_s x calls in the window of each node, least recently used, that has to go
    R_i  prefill_s of the call's own prompt, less what is found

A call that waits is not routed again, but if its instance is not to be had.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import inf
from typing import Final

from teola.errors import InputError, UnknownName
from teola.plain_number import is_number
from teola.policies.reason import Because, Reason
from teola.policies.routing.base import (
    ANY,
    CameUp,
    Dispatched,
    EngineView,
    Evicted,
    Finished,
    Happening,
    Left,
    Prefilled,
    RoutingPolicy,
    WentDown,
)
from teola.policies.routing.destinations import bound, compared, prefill_s
from teola.policies.routing.radix import RadixNode, RadixTree
from teola.policies.routing.recent_load import History, Routed, overloaded
from teola.policies.work import Work

ANSWER: Final = 45
"""Tokens of an answer, before one is complete."""
ANSWER_S: Final = ANSWER * 0.15
"""Seconds of such an answer on an instance whose times are not known."""
CAPACITY: Final = 198_516
"""Tokens that an instance can keep, where its KV memory is not known."""
KEY_RULES: Final = ("longest", "majority")


class E2(RoutingPolicy):
    """window_s: how far back load counts. balance: how many times the least load the most may be.
    min_routed: calls before anything is shifted (None: 50 an instance). decode_heavy: from which
    part of its prompts found an instance counts as busy with decoding. key_rule: which node of a
    prompt's known prefix its call exploits: the longest, or the last that is longer than all
    before it. decode_s: of an answer, before one is complete (None: by the profile). shifts,
    prefill_decode: parts of the policy that can be left out."""

    wants_keys = True
    observes = (Dispatched, Prefilled, Finished, Left, Evicted, WentDown, CameUp)

    def __init__(
        self,
        window_s: float = 180.0,
        balance: float = 1.5,
        min_routed: int | None = None,
        decode_heavy: float = 0.7,
        key_rule: str = "longest",
        decode_s: float | None = None,
        shifts: bool = True,
        prefill_decode: bool = True,
    ) -> None:
        _check("window_s", window_s, "a number of seconds above 0", 0)
        _check("balance", balance, "a number above 1", 1)
        _check("decode_heavy", decode_heavy, "a number above 0", 0)
        if min_routed is not None:
            _check("min_routed", min_routed, "a number of calls above 0, or none", 0)
        if decode_s is not None:
            _check("decode_s", decode_s, "a number of seconds above 0, or none", 0)
        for name, value in (("shifts", shifts), ("prefill_decode", prefill_decode)):
            if not isinstance(value, bool):
                raise InputError(
                    f"routing policy 'e2': {name} must be true or false, got {value!r}"
                )
        if key_rule not in KEY_RULES:
            raise UnknownName("key_rule", key_rule, KEY_RULES, "routing policy 'e2'")
        self.window_s, self.balance, self.min_routed = window_s, balance, min_routed
        self.decode_heavy, self.key_rule, self._decode_s = decode_heavy, key_rule, decode_s
        self.shifts, self.prefill_decode = shifts, prefill_decode
        self.redirect: dict[int, int] = {}
        self.routed = 0
        self._calls: dict[tuple[str, int], Routed] = {}
        self._by: tuple[Because, Mapping[int, float]] = (Because.POLICY, {})
        """Why the last call went where it went, and the seconds of each instance."""
        self._reason = Reason(Because.POLICY)

    def attach(self, view: EngineView) -> None:
        super().attach(view)
        count = len(view)
        self.tree = RadixTree(count, view.limits[0].block_tokens if count else 16)
        self.histories = [History(self.window_s, self._answer_s(i)) for i in range(count)]
        self._capacity = [
            CAPACITY if limits.kv_blocks is None else limits.kv_blocks * limits.block_tokens
            for limits in view.limits
        ]

    def _answer_s(self, i: int) -> float:
        step = self.view.profiles[i].step
        return self._decode_s or (step.seconds(1, repeat=ANSWER) or ANSWER_S)

    # --- routing ----------------------------------------------------------------------------

    def place(self, work: Work, now: float) -> int:
        at = bound(self.view, work, now)
        routed = self._calls.get((work.run, work.primitive))
        if routed is not None:
            if at == routed.instance:
                return at
            self._undo(work)
        for history in self.histories:
            history.expire(now, self.tree)
        instances = self.view.instances(now)
        candidates = [i for i, seen in enumerate(instances) if seen.usable and i != work.avoid]
        if not candidates:
            return ANY
        path = self.tree.insert(work.keys)
        if at < 0:
            meant = self._choose(work, path, candidates, now)
            at = (
                self.redirect.get(meant, meant) if self.redirect.get(meant) in candidates else meant
            )
            if self.explains:
                self._reason = self._told(at, meant)
        self._commit(work, path, at, now)
        return at

    def why(self, work: Work, at: int, now: float) -> Reason:
        return self._reason

    def _told(self, at: int, meant: int) -> Reason:
        """Why a call goes to instance `at`; meant: where it would go if no calls were shifted."""
        if at != meant:
            return Reason(Because.SHIFTED, "s", self._load(at), self._load(meant), meant)
        because, figures = self._by
        return compared(because, at, "s", figures)

    def _choose(self, work: Work, path: list[RadixNode], candidates: list[int], now: float) -> int:
        cached_nodes = [node for node in path if node.cached_on]
        if 2 * sum(node.length for node in cached_nodes) > work.tokens:
            key = self.key(cached_nodes)
            replicas = {i for i, at in [*key.replicas.items()] if self._in_use(key, i, at, now)}
            keepers = [i for i in candidates if i in key.cached_on or i in replicas]
            if keepers:
                loads = {i: self._load(i) for i in keepers}
                self._by = Because.KEPT, loads
                return min(keepers, key=lambda i: (loads[i], -found(path, i), i))
        return self._explore(work, path, candidates)

    def _explore(self, work: Work, path: list[RadixNode], candidates: list[int]) -> int:
        if self.prefill_decode:
            least = min(self._load(i) for i in candidates)
            heavy = max(candidates, key=lambda i: (self.histories[i].hit_ratio, -self._load(i), -i))
            if (
                self.histories[heavy].hit_ratio >= self.decode_heavy
                and self._load(heavy) <= self.balance * least
            ):
                self._by = Because.DECODES, {}
                return heavy
        evictions = {i: self._eviction_cost(work, path, i) for i in candidates}
        if min(evictions.values()) == inf:
            evictions = dict.fromkeys(candidates, 0.0)

        def cost(i: int) -> float:
            missing = work.tokens - found(path, i)
            return self._load(i) + evictions[i] + self._prefill_s(i, missing, work.tokens)

        costs = {i: cost(i) for i in candidates}
        self._by = Because.COST, costs
        return min(candidates, key=costs.__getitem__)

    def key(self, path: list[RadixNode]) -> RadixNode:
        """The node of a prefix by which its calls are told apart."""
        if self.key_rule == "majority":
            return majority(path)
        return max(path, key=lambda node: (node.length, node.context))

    def _load(self, i: int) -> float:
        return self.histories[i].load_s

    def _prefill_s(self, i: int, missing: int, total: int) -> float:
        return prefill_s(self.view.profiles[i], missing, total)

    def _eviction_cost(self, work: Work, path: list[RadixNode], i: int) -> float:
        need = work.tokens - found(path, i) - (self._capacity[i] - self.tree.used[i])
        if need <= 0:
            return 0.0
        return self.tree.eviction_cost(
            i, need, path, lambda tokens, context: self._prefill_s(i, tokens, context)
        )

    def _in_use(self, key: RadixNode, i: int, since: float, now: float) -> bool:
        """Whether a replica has had a call in the window, or is new."""
        if i in key.hits or now - since < self.window_s:
            return True
        del key.replicas[i]
        return False

    # --- what becomes of it -----------------------------------------------------------------

    def _commit(self, work: Work, path: list[RadixNode], i: int, now: float) -> None:
        here = found(path, i)
        seconds = self._prefill_s(i, work.tokens - here, work.tokens)
        leaf, key = (path[-1], majority(path)) if path else (None, None)
        call = Routed(i, now, seconds, work.tokens, here, leaf, key)
        self.tree.use(path, i, now)
        self.tree.trim(i, self._capacity[i])
        self.histories[i].add(call)
        self._calls[work.run, work.primitive] = call
        self.routed += 1
        if self.shifts:
            self._shift(now)

    def _shift(self, now: float) -> None:
        """Turn calls for the most loaded instance to the least loaded one, while that helps."""
        load, redirect = [history.load_s for history in self.histories], self.redirect
        for heavy, light in list(redirect.items()):
            if load[heavy] <= self.balance * load[light]:
                del redirect[heavy]
        numbers = [i for i, seen in enumerate(self.view.instances(now)) if seen.usable]
        if not numbers or self.routed < (self.min_routed or 50 * len(load)):
            return
        heavy = max(numbers, key=lambda i: (load[i], -i))
        light = min(numbers, key=lambda i: (load[i], i))
        if load[heavy] > self.balance * load[light]:
            redirect[heavy] = light

    def observe(self, event: Happening, now: float) -> None:
        match event:
            case Dispatched(i, works):
                for work in works:
                    self._sent(work, i, now)
            case Prefilled(_, work):
                call = self._calls.get((work.run, work.primitive))
                if call is not None:
                    call.first = now
            case Finished(_, work, failed):
                self._finished(work, failed, now)
            case Left(work):
                self._undo(work)
            case Evicted(i, keys):
                self.tree.evicted(i, keys)
            case WentDown(i) | CameUp(i):
                self._forget(i)

    def _sent(self, work: Work, i: int, now: float) -> None:
        call = self._calls.get((work.run, work.primitive))
        if call is None or call.sent:
            return
        if call.instance != i:  # nobody was to be had where it was routed
            self._undo(work)
            self._commit(work, self.tree.insert(work.keys), i, now)
            call = self._calls[work.run, work.primitive]
        call.sent = True
        if self.shifts and call.key is not None:
            waits = call.key.waits.setdefault(i, deque())
            while waits and waits[0][0] < now - self.window_s:
                waits.popleft()
            waits.append((now, now - work.arrival))
            light = self.redirect.get(i)
            if light is not None and overloaded(waits, now, self.window_s):
                call.key.replicas[light] = now
                waits.clear()

    def _finished(self, work: Work, failed: bool, now: float) -> None:
        if failed:
            self._undo(work)
            return
        call = self._calls.pop((work.run, work.primitive), None)
        if call is not None:
            if call.leaf is not None:
                self.tree.ended(call.leaf, call.instance)
            if call.first is not None:
                self.histories[call.instance].answered(now - call.first, now)

    def _undo(self, work: Work) -> None:
        """Take a call back that runs elsewhere, or not at all."""
        call = self._calls.pop((work.run, work.primitive), None)
        if call is not None:
            counts = self.histories[call.instance].forget(call)
            if call.leaf is not None:
                self.tree.ended(call.leaf, call.instance)
                if counts:
                    self.tree.expired(call.leaf, call.instance)

    def _forget(self, i: int) -> None:
        """Forget what instance `i` kept and what it had to do."""
        self.tree.forget(i)
        for call in self.histories[i].calls():
            self.histories[i].forget(call)
            if call.leaf is not None:
                self.tree.expired(call.leaf, i)
        self.histories[i] = History(self.window_s, self._answer_s(i))
        pairs = self.redirect.items()
        self.redirect = {heavy: light for heavy, light in pairs if i not in (heavy, light)}


def found(path: list[RadixNode], i: int) -> int:
    """Tokens of a prompt that instance `i` keeps."""
    tokens = 0
    for node in path:
        if i not in node.cached_on:
            break
        tokens += node.length
    return tokens


def majority(path: list[RadixNode]) -> RadixNode:
    """The deepest node that is longer than all above it."""
    return next(node for node in reversed(path) if node.length > node.context)


def _check(name: str, value: float, needed: str, above: float) -> None:
    if not is_number(value) or not above < value < inf:
        raise InputError(f"routing policy 'e2': {name} must be {needed}, got {value!r}")
