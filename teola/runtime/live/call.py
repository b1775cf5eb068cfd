"""One LLM call of a live query: who hears what of its stream.

the first piece of text   the core: the prefilling is over
a decoding's output       the store and the core
every piece of text       the query's watcher, if it is of the answer; never the core
the end                   the query remembers it, if the text was cut, a refusal, or empty
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

from teola.engine import Call, Engine, LanguageModel, NextRead, near
from teola.graph import DecodeParams, Op
from teola.runtime.growing import is_heard
from teola.runtime.hosts.call import Listener, run_call
from teola.runtime.hosts.field_text import FieldText
from teola.runtime.hosts.local import LocalHost
from teola.runtime.live.kept_model import KeptModel
from teola.runtime.live.query import LiveQuery
from teola.runtime.live.thoughts import WithoutThoughts
from teola.schedule.events import Dispatch, FirstToken, MemberCompleted, QueueEvent


def retries_empty(engine: Engine) -> bool:
    """Whether an empty answer of this engine is asked for once more."""
    return bool(getattr(near(engine), "retries_empty", False))


PREFILLED: Final = DecodeParams(max_tokens=1)
"""What is asked of a prefilling that nothing is decoded from yet."""


def call_of(
    query: LiveQuery,
    i: int,
    instance: int,
    priority: int = 0,
    reads: tuple[NextRead, ...] = (),
) -> Call:
    """The call that primitive `i` leads, or its prefilling if it leads none."""
    members = query.plan.members[i]
    decode = query.plan.primitives[members[0]].params if members else PREFILLED
    assert isinstance(decode, DecodeParams)
    before = query.run.before(i)
    prefix = query.store.values[before]["sequence"] if before >= 0 else None
    if prefix is not None and prefix.instance != instance:
        prefix = replace(prefix, state=None)  # of no use elsewhere: it is computed anew
    parts = tuple(part for k in (*query.run.fused.get(i, ()), i) for part in query.store.prompt(k))
    spec = query.plan.specs[i]
    category = query.trace.app, spec.component
    expects = spec.expected_output
    return Call(query.context, parts, decode, prefix, priority, category, reads, expects)


class LiveCall:
    """A try of the call that primitive `head` leads. shown: its text goes to the watcher as it
    comes. items: of its list, that were written so far. sent: something of it has been passed on,
    so there can be no further try."""

    __slots__ = (
        "_clock",
        "_command",
        "_field",
        "_first_try",
        "_head",
        "_post",
        "_query",
        "_wrote",
        "cached",
        "generated",
        "items",
        "sent",
        "shown",
    )

    def __init__(
        self,
        command: Dispatch,
        query: LiveQuery,
        head: int,
        post: Callable[[QueueEvent], None],
        clock: Callable[[], float],
        wrote: Callable[[LiveQuery, int, Dispatch, int, Any], bool],
    ) -> None:
        self._command, self._query, self._head = command, query, head
        self._post, self._clock, self._wrote = post, clock, wrote
        works = (work for work, _, _ in command.slices)
        work = next(work for work in works if (work.run, work.primitive) == (query.id, head))
        self._first_try = work.tries <= work.excused
        self.items = 0
        self.shown = query.streams and any(map(query.run.answers, query.plan.members[head]))
        self._field: FieldText | None = None
        self.sent = False
        self.cached: int | None = None
        """Tokens of the prompt that were in the instance's cache (None: it does not tell)."""
        self.generated: int | None = None
        """Tokens of the answer (None: it does not tell)."""

    async def run(self, host: LocalHost, call: Call) -> None:
        """To its end. Raises EngineError."""
        query, head = self._query, self._head
        query.ends.pop(head, None)  # that was an earlier try's
        query.finishes.pop(head, None)
        members = [query.plan.primitives[m] for m in query.plan.members[head]]
        decode = members[0].params
        assert isinstance(decode, DecodeParams)
        if decode.field is not None:
            self._field = FieldText(decode.field)
        wanted = any(m.op is Op.DECODING or "text" in m.outputs for m in members)
        token = self._token if self.shown else None
        item = self._item if is_heard(query, head) else None
        ends = partial(query.ends.__setitem__, head)
        finished = partial(query.finishes.__setitem__, head)
        again = self._first_try and not self.shown and retries_empty(host.engine)
        listener = Listener(self._first, self._deliver, token, ends, item, finished, again)
        model = cast("LanguageModel", host.engine)
        if not decode.keep_thoughts:
            model = cast("LanguageModel", WithoutThoughts(model))
        if (steps := query.terms.steps) is not None:
            model = cast("LanguageModel", KeptModel(model, steps, steps.key(query.run, head)))
        usage = await run_call(model, call, members, listener, wanted)
        query.trace.used(usage, head)
        if usage.prompt_tokens:
            self.cached = usage.cached_tokens
        if usage.completion_tokens:
            self.generated = usage.completion_tokens

    def _first(self) -> None:
        query, head = self._query, self._head
        if not query.run.ended(head):  # another try: what was released must not come back
            query.store.put(head, {"sequence": True})
        query.trace.ended(head, 0, self._clock())
        query.watch(head, 1, "writing")
        engine, instance = self._command.engine, self._command.instance
        self._post(FirstToken(engine, instance, query.id, head, self.shown))

    def _deliver(self, k: int, result: Mapping[str, Any]) -> None:
        query, member = self._query, self._query.plan.members[self._head][k]
        if query.run.state is None and not query.run.ended(member):
            counts = query.store.put(member, result)
            query.trace.ended(member, 0, self._clock())
            engine, instance = self._command.engine, self._command.instance
            self._post(MemberCompleted(engine, instance, query.id, self._head, member, counts))

    def _item(self, item: Any) -> None:
        k, self.items = self.items, self.items + 1
        self.sent |= self._wrote(self._query, self._head, self._command, k, item)

    def _token(self, text: str) -> None:
        if self._field is not None:
            text = self._field.feed(text)
        if text:
            self.sent = True
            self._query.tell(text)
