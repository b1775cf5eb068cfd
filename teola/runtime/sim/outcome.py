"""Outcome sources: what a simulated engine answers. Times come from profiles, never from here."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from teola.graph import (
    ConditionParams,
    DecodeParams,
    GrowParams,
    Growth,
    Op,
    Primitive,
    SearchParams,
    WebSearchParams,
)
from teola.passes.estimate import ANSWER_TOKENS, CHUNK_TOKENS, ITEM_TOKENS
from teola.runtime.in_flight import Query, told_port
from teola.runtime.values import Tokens, new_text

T = TypeVar("T", int, float, str)
SNIPPET_TOKENS: Final = 120
STORED_TOKENS: Final = 16
"""Tokens of a stored chunk's id; no prompt has it."""


class Delivery(NamedTuple):
    """A decoding of a call delivers `result` once `at` tokens have been generated. item: it has
    written that item of its list, and `result` is the item."""

    primitive: int
    at: int
    result: Any
    item: int = -1


class Outcomes(Protocol):
    """Where a simulated query's values come from."""

    def result(self, query: Query, i: int, lo: int, hi: int) -> Mapping[str, Any]:
        """Outputs of items lo..hi of primitive `i`: values are Tokens or lists of them."""
        ...

    def call(self, query: Query, head: int) -> tuple[int, list[Delivery]]:
        """What the LLM call led by `head` gives: tokens generated, and what its decodings
        deliver."""
        ...

    def branch(self, query: Query, i: int) -> str:
        """What Condition `i` decides."""
        ...

    def growth(self, query: Query, i: int) -> Growth:
        """How primitive `i` grows."""
        ...

    def answer_s(self, query: Query, i: int) -> float:
        """Seconds that people take to answer primitive `i`."""
        ...

    def stretch(self, query: Query, i: int, sigma: float) -> float:
        """Factor on the time of primitive `i`, whose time is lognormal with shape `sigma`."""
        ...


Assumed = int | float | str
"""A length in tokens, a time in seconds, or a branch."""


class Planned:
    """Everything as planned: full lists, the expected branches, lengths as given here.

    answer_tokens, item_tokens, chunk_tokens, snippet_tokens: length of an answer, of one item of a
    list, of a hit of a search, and of one in the web. lengths: component -> tokens of its answer
    (of each item, or each hit), where they differ. seed: for times that vary. What is used of all
    this and was not given is told by `assumed`.
    """

    def __init__(
        self,
        *,
        answer_tokens: int | None = None,
        item_tokens: int | None = None,
        chunk_tokens: int | None = None,
        snippet_tokens: int | None = None,
        lengths: Mapping[str, int] | None = None,
        seed: int = 0,
    ) -> None:
        self.answer_tokens = answer_tokens
        self.item_tokens = item_tokens
        self.chunk_tokens = chunk_tokens
        self.snippet_tokens = snippet_tokens
        self.lengths = dict(lengths or {})
        self.seed = seed
        self._assumed: dict[tuple[str, str], Assumed] = {}

    @property
    def assumed(self) -> dict[str, Assumed]:
        """What was used until now because nothing was given, such as `generate.answer_tokens`."""
        return {f"{component}.{what}": value for (component, what), value in self._assumed.items()}

    def _assume(self, p: Primitive, what: str, value: T) -> T:
        self._assumed[p.component, what] = value
        return value

    def _answer(self, p: Primitive) -> int:
        """Tokens of an answer."""
        given = self.lengths.get(p.component, self.answer_tokens)
        return self._assume(p, "answer_tokens", ANSWER_TOKENS) if given is None else given

    def _item(self, p: Primitive) -> int:
        """Tokens of each item of a list."""
        given = self.lengths.get(p.component, self.item_tokens)
        return self._assume(p, "item_tokens", ITEM_TOKENS) if given is None else given

    def _hit(self, p: Primitive) -> int:
        """Tokens of each hit of a search."""
        given = self.lengths.get(p.component, self.chunk_tokens)
        return self._assume(p, "chunk_tokens", CHUNK_TOKENS) if given is None else given

    def _snippet(self, p: Primitive) -> int:
        """Tokens of each hit of a search in the web."""
        given = self.lengths.get(p.component, self.snippet_tokens)
        return self._assume(p, "snippet_tokens", SNIPPET_TOKENS) if given is None else given

    def result(self, query: Query, i: int, lo: int, hi: int) -> Mapping[str, Any]:
        p, n = query.plan.primitives[i], hi - lo
        if p.op is Op.EMBEDDING:
            return {"vectors": [Tokens(1)] * n}
        if isinstance(p.params, SearchParams):
            return {"hits": [_texts(self._hit(p), p.params.top_k) for _ in range(n)]}
        if isinstance(p.params, WebSearchParams):
            return {"hits": [_texts(self._snippet(p), p.params.top_k) for _ in range(n)]}
        if p.op is Op.RERANKING:
            return {"scores": [0.0] * n}
        if p.op is Op.INGESTION:
            return {port: _texts(STORED_TOKENS, n) for port in p.outputs}
        length, many = self._answer(p), p.batchable
        return {port: _texts(length, n) if many else Tokens(length) for port in p.outputs}

    def call(self, query: Query, head: int) -> tuple[int, list[Delivery]]:
        plan, deliveries, length, text = query.plan, list[Delivery](), 0, new_text()
        if told_port(query, head):
            assert query.place is not None
            member = plan.members[head][0]
            expects = query.place.grow.expects
            deliveries += [Delivery(member, at, item, k) for k, (at, item) in enumerate(expects)]
            p = plan.primitives[member]
            length = expects[-1][0] if expects else self._answer(p)
            outputs = p.outputs
            result: dict[str, Any] = {name: Tokens.of(text, 0, length) for name in outputs}
            result["items"] = [item for _, item in expects]
            return length, [*deliveries, Delivery(member, length, result)]
        for member in plan.members[head]:
            p, so_far = plan.primitives[member], length
            assert isinstance(p.params, DecodeParams)
            length = self._length(query, p, so_far)
            generated = self._generated(p, text, so_far, length)
            if head in plan.feeding:
                items, size = generated["items"], self._item(p)
                deliveries += self._items(member, length, items, p.params.item or 0, size)
            deliveries.append(Delivery(member, length, generated))
        return length, deliveries

    def _items(
        self, member: int, length: int, items: Sequence[Any], first: int, size: int
    ) -> list[Delivery]:
        """The items of a list that are heard of as they are written, the last at `length`."""
        start = length - (len(items) - 1) * size
        return [Delivery(member, start + k * size, item, first + k) for k, item in enumerate(items)]

    def branch(self, query: Query, i: int) -> str:
        p = query.plan.primitives[i]
        assert isinstance(p.params, ConditionParams)
        return self._assume(p, "branch", p.params.prefer)

    def growth(self, query: Query, i: int) -> Growth:
        params = query.plan.primitives[i].params
        assert isinstance(params, GrowParams)
        return params.grower.planned(query.store.resolve(i))

    def answer_s(self, query: Query, i: int) -> float:
        return self._assume(query.plan.primitives[i], "answer_s", 0.0)

    def stretch(self, query: Query, i: int, sigma: float) -> float:
        return random.Random(f"{self.seed}/{query.id}/{i}").lognormvariate(0.0, sigma)

    def _length(self, query: Query, p: Primitive, so_far: int) -> int:
        assert isinstance(p.params, DecodeParams)
        if p.params.item is not None:
            return so_far + self._item(p)
        if p.params.items is not None:
            return so_far + self._item(p) * p.params.items
        return so_far + self._answer(p)

    def _generated(self, p: Primitive, text: int, lo: int, hi: int) -> Mapping[str, Any]:
        """What a decoding delivers of the generated `text` when it has `hi` tokens, `lo` of them
        delivered before: its item, or all there is."""
        assert isinstance(p.params, DecodeParams)
        start = 0 if p.params.item is None else lo
        result: dict[str, Any] = {port: Tokens.of(text, start, hi - start) for port in p.outputs}
        if "items" in result:
            size = self._item(p)
            count = 1 if p.params.item is not None else p.params.items or 1
            result["items"] = [Tokens.of(text, start + k * size, size) for k in range(count)]
        return result


def _texts(length: int, count: int) -> list[Tokens]:
    return [Tokens(length) for _ in range(count)]
