"""One LLM call of a live query: who hears what of its stream.

the first piece of text   the core: the prefilling is over
a decoding's output       the store and the core
every piece of text       the query's watcher, if it is of the answer; never the core
the end                   the query remembers it, if the text was cut, a refusal, or empty
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

from teola.engine import Call, Engine, LanguageModel, NextRead, RetriesEmpty, Usage, near
from teola.graph import DecodeParams, Op
from teola.runtime.hosts.call import Listener, run_call
from teola.runtime.hosts.field_text import FieldText
from teola.runtime.hosts.local import LocalHost
from teola.runtime.in_flight import is_heard
from teola.runtime.live.kept_model import KeptModel
from teola.runtime.live.query import LiveQuery
from teola.runtime.live.thoughts import WithoutThoughts
from teola.schedule.events import Dispatch, FirstToken, MemberCompleted, QueueEvent

NO_USAGE: Final = Usage()
PREFILLED: Final = DecodeParams(max_tokens=1)
"""What is asked of a prefilling that nothing is decoded from yet."""


def call_of(
    query: LiveQuery,
    i: int,
    instance: int,
    priority: int = 0,
    reads: tuple[NextRead, ...] = (),
    most: int | None = None,
    *,
    by_text: bool = False,
) -> Call:
    """The call that primitive `i` leads, or its prefilling if it leads none. most: tokens that it
    may write, if that is less than it asks for. by_text: token ids of another instance mean nothing
    there."""
    members = query.plan.members[i]
    decode = query.plan.primitives[members[0]].params if members else PREFILLED
    assert isinstance(decode, DecodeParams)
    if most is not None and most < decode.max_tokens:
        decode = replace(decode, max_tokens=most)
    before = query.run.before(i)
    prefix = query.store.values[before]["sequence"] if before >= 0 else None
    if prefix is not None and prefix.instance != instance:
        ids = () if by_text else prefix.token_ids
        prefix = replace(prefix, state=None, token_ids=ids)  # state is of no use elsewhere
    parts = tuple(part for k in (*query.run.fused.get(i, ()), i) for part in query.store.prompt(k))
    spec = query.plan.specs[i]
    category = query.trace.app, spec.component
    expects = spec.expected_output
    return Call(query.context, parts, decode, prefix, priority, category, reads, expects)


class Hearer:
    """A query that hears a call: the one that makes it, or one whose own call, which `head` leads,
    is equal.

    live: takes what it tells the core.
    items: items of its list that were written so far.
    shown: its text goes to the watcher as it comes.
    follows: it is not the one that makes the call.
    """

    __slots__ = ("_field", "_sent", "follows", "head", "items", "live", "query", "shown")

    def __init__(
        self, query: LiveQuery, head: int, sent: Dispatch, live: Lives, *, follows: bool
    ) -> None:
        self.query, self.head, self._sent, self.live = query, head, sent, live
        self.items, self.follows = 0, follows
        self.shown = query.streams and any(map(query.run.answers, query.plan.members[head]))
        decode = query.plan.primitives[query.plan.members[head][0]].params
        assert isinstance(decode, DecodeParams)
        self._field = FieldText(decode.field) if decode.field is not None else None
        query.ends.pop(head, None)  # that was an earlier try's
        query.finishes.pop(head, None)

    def first(self) -> None:
        """Its first token has come."""
        query, head = self.query, self.head
        if query.run.state is not None:
            return
        if not query.run.ended(head):  # another try: what was released must not come back
            query.store.put(head, {"sequence": True})
        query.trace.ended(head, 0, self.live.clock(), self._state)
        query.watch(head, 1, "writing")
        engine, instance = self._sent.engine, self._sent.instance
        self.live.post(FirstToken(engine, instance, query.id, head, self.shown))

    def deliver(self, k: int, result: Mapping[str, Any]) -> None:
        """Outputs of its decoding `k`."""
        query, member = self.query, self.query.plan.members[self.head][k]
        if query.run.state is None and not query.run.ended(member):
            counts = query.store.put(member, own_copy(result) if self.follows else result)
            query.trace.ended(member, 0, self.live.clock(), self._state)
            engine, instance = self._sent.engine, self._sent.instance
            self.live.post(MemberCompleted(engine, instance, query.id, self.head, member, counts))

    def item(self, item: Any) -> None:
        """It has written an item of its list."""
        if self.query.run.state is not None:
            return
        k, self.items = self.items, self.items + 1
        if is_heard(self.query, self.head):
            self.live.wrote(self.query, self.head, self._sent, k, item)

    def token(self, text: str) -> None:
        """A piece of its text."""
        if not self.shown or self.query.run.state is not None:
            return
        if self._field is not None:
            text = self._field.feed(text)
        if text:
            self.query.tell(text)

    def ends(self, end: str) -> None:
        """It did not end as it should."""
        self.query.ends[self.head] = end

    def finished(self, reason: str) -> None:
        """Why its text ended."""
        self.query.finishes[self.head] = reason

    @property
    def _state(self) -> str:
        return "shared" if self.follows else "done"


class Lives(NamedTuple):
    """What a call needs of its driver."""

    post: Callable[[QueueEvent], None]
    clock: Callable[[], float]
    wrote: Callable[[LiveQuery, int, Dispatch, int, Any], None]


class LiveCall:
    """A try of the call that primitive `head` leads, with all who hear it.

    is_shared: others may join, so what has come is kept.
    started: its first token has come.
    characters, usage: what came, when it is over.
    rival: another try at the same time (see Hedging), as long as neither has given a token.
    lost: the other one was sooner.
    """

    __slots__ = (
        "_command",
        "_end",
        "_head",
        "_hearers",
        "_items",
        "_live",
        "_query",
        "_reason",
        "_results",
        "_text",
        "cached",
        "characters",
        "generated",
        "is_shared",
        "lost",
        "rival",
        "started",
        "usage",
    )

    def __init__(
        self, command: Dispatch, query: LiveQuery, head: int, live: Lives, *, shared: bool = False
    ) -> None:
        self._command, self._query, self._head, self._live = command, query, head, live
        self._hearers: list[Hearer] = []
        self.is_shared, self._end, self._reason = shared, "", ""
        self._text: list[str] = []
        self._items: list[Any] = []
        self._results: list[tuple[int, Mapping[str, Any]]] = []
        self.started = self.lost = False
        self.rival: LiveCall | None = None
        self.characters, self.usage = 0, NO_USAGE
        self.cached: int | None = None
        """Tokens of the prompt that were in the instance's cache (None: it does not tell)."""
        self.generated: int | None = None
        """Tokens of the answer (None: it does not tell)."""

    @property
    def answer(self) -> tuple[str, str]:
        """What it wrote, and how it ended (see Trace.ends), if it is shared."""
        return "".join(self._text), self._end

    @property
    def batch(self) -> int:
        """Number of this try's dispatch."""
        return self._command.batch

    def join(self, query: LiveQuery, head: int, at_once: Lives) -> None:
        """The call that `head` leads in `query` is equal: it is told what comes, and before that,
        by `at_once`, what has come."""
        if any((one.query, one.head) == (query, head) for one in self._hearers):
            return
        hearer = Hearer(query, head, self._command, at_once, follows=True)
        self._hearers.append(hearer)
        self._catch_up(hearer)
        hearer.live = self._live

    def _catch_up(self, hearer: Hearer) -> None:
        query, head = hearer.query, hearer.head
        query.trace.shares(head)
        if self.started:
            hearer.first()
        if self._text:
            hearer.token("".join(self._text))
        for item in self._items:
            hearer.item(item)
        if self._end:
            hearer.ends(self._end)
        if self._reason:
            hearer.finished(self._reason)
        for k, result in self._results:
            hearer.deliver(k, result)

    async def run(self, host: LocalHost, call: Call) -> None:
        """To its end. Raises EngineError."""
        query, head = self._query, self._head
        first_hearer = Hearer(query, head, self._command, self._live, follows=False)
        self._hearers.insert(0, first_hearer)
        members = [query.plan.primitives[m] for m in query.plan.members[head]]
        decode = members[0].params
        assert isinstance(decode, DecodeParams)
        wanted = any(m.op is Op.DECODING or "text" in m.outputs for m in members)
        token = self._token if self.is_shared or first_hearer.shown else None
        item = self._item if self.is_shared or is_heard(query, head) else None
        again = self._is_first_try and not first_hearer.shown and retries_empty(host.engine)
        listener = Listener(
            self._first,
            self._deliver,
            token,
            self._ends,
            item,
            self._over,
            self._finished,
            again,
        )
        model = cast("LanguageModel", host.engine)
        if not decode.keep_thoughts:
            model = cast("LanguageModel", WithoutThoughts(model))
        if (steps := query.terms.steps) is not None:
            model = cast("LanguageModel", KeptModel(model, steps, steps.key(query.run, head)))
        usage = await run_call(model, call, members, listener, wanted)
        if usage.prompt_tokens:
            self.cached = usage.cached_tokens
        if usage.completion_tokens:
            self.generated = usage.completion_tokens

    def _over(self, characters: int, usage: Usage) -> None:
        self.characters, self.usage = characters, usage

    def races(self, other: LiveCall) -> None:
        """Both run at once, until one of them gives a token or fails."""
        self.rival, other.rival = other, self

    def leaves(self) -> bool:
        """It is over before it gave a token. Whether the other try goes on."""
        other, self.rival = self.rival, None
        if other is not None:
            other.rival = None
            self._query.trace.beaten(self._head, self.batch, self._live.clock())
        return other is not None

    def _first(self) -> None:
        if self.lost:  # nothing of it may be mixed with what the other try wrote
            raise asyncio.CancelledError
        if (other := self.rival) is not None:
            other.lost = True
            other.leaves()
        self.started = True
        for hearer in self._hearers:
            hearer.first()

    def _deliver(self, k: int, result: Mapping[str, Any]) -> None:
        if self.is_shared:
            self._results.append((k, result))
        for hearer in self._hearers:
            hearer.deliver(k, result)

    def _item(self, item: Any) -> None:
        if self.is_shared:
            self._items.append(item)
        for hearer in self._hearers:
            hearer.item(item)

    def _token(self, text: str) -> None:
        if self.is_shared:
            self._text.append(text)
        for hearer in self._hearers:
            hearer.token(text)

    @property
    def _is_first_try(self) -> bool:
        key = self._query.id, self._head
        works = (one for one, _, _ in self._command.slices if (one.run, one.primitive) == key)
        work = next(works, None)
        return work is not None and work.tries <= work.excused

    def _finished(self, reason: str) -> None:
        self._reason = reason
        for hearer in self._hearers:
            hearer.finished(reason)

    def _ends(self, end: str) -> None:
        self._end = end
        for hearer in self._hearers:
            hearer.ends(end)


def retries_empty(engine: Engine) -> bool:
    """Whether an empty answer of this engine is asked for once more."""
    asked = near(engine)
    return isinstance(asked, RetriesEmpty) and asked.retries_empty


def own_copy(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same outputs, which somebody else may change: lists and JSON values are new ones."""
    return {port: _copied(value) for port, value in result.items()}


def _copied(value: Any) -> Any:
    if type(value) is list:
        return list(map(_copied, value))
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    return value
