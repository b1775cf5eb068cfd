"""Trace: what happened to one query and when; one format, live and simulated.

Recording appends tuples; spans are made of them only when somebody looks. Long because it is one
record of one query: what is appended, and what is read from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, starmap
from math import inf
from typing import Any, Final, NamedTuple

from teola.engine import Usage
from teola.errors import QueryCancelled, UnknownName, reason_of
from teola.graph import NOBODY, Failures, Remarks
from teola.policies.reason import Because, Hold, Reason
from teola.runtime.objectives import Objective
from teola.runtime.observe.kept_values import KeptValues
from teola.runtime.observe.usage import CallCounts
from teola.schedule.plan import Plan

NOT_RUN: Final = ("skipped", "fused")
"""States of what no engine has run by itself: there was nothing to do, or it was done with the rest
of its prompt."""
_LOST: Final = ("failed", "cancelled")
"""States of tries that gave nothing."""

NO_PRIMITIVE: Final = -1
"""Index of a step that is outside the graph."""
NO_SECONDS: Final[Mapping[str, float]] = {}
MOST_NOTICES: Final = 20
"""Notices that are kept of a query; those of a thousand parts would say little more."""


@dataclass(frozen=True, slots=True)
class Span:
    """One slice of one primitive, in seconds since the query was admitted.

    queued: when the primitive became ready.
    start: when it was sent to its instance; what was never sent begins when it ends.
    end: when its outputs were there.
    batch: number of the batch.
    batch_size: primitives (slices) in it.
    lo, hi: its items.
    state: done, failed (that try), skipped or cancelled; running while its end is not known.
    error: why that try failed.
    why: why an LLM call went to its instance, or waits, in words.
    limited_s: how much of its wait a rate limit caused.
    """

    primitive: str
    op: str
    component: str
    engine: str
    queued: float
    start: float
    end: float
    instance: int = -1
    batch: int = -1
    batch_size: int = 1
    lo: int = 0
    hi: int = 1
    state: str = "done"
    error: str = ""
    why: str = ""
    limited_s: float = 0.0


class Parent(NamedTuple):
    """The query around a query, and its primitive that began it."""

    query_id: str
    primitive: str


class Batch(NamedTuple):
    """What an instance was sent at once. size: primitives (slices). at: on the driver's clock."""

    engine: str
    instance: int
    batch: int
    size: int
    at: float


class _Sent(NamedTuple):
    primitive: int
    lo: int
    hi: int
    queued: float
    at: float
    instance: int
    batch: int
    batch_size: int
    reason: Reason | None = None
    limited_s: float = 0.0


class _Ended(NamedTuple):
    primitive: int
    lo: int
    at: float
    state: str


SentTuple = tuple[int, int, int, float, float, int, int, int]
"""The fields of `_Sent`, which takes longer to make, without its reason."""
EndedTuple = tuple[int, int, float, str]


class Trace:
    """Records of one query. Times are the driver's clock; spans are relative to `admitted`.

    prompt_tokens, completion_tokens: of all its LLM calls, as the engines counted them, and of the
    queries inside it. ends: how the calls that wrote the answer ended, where that is not as it
    should be: `length` (the text is cut), `refusal`, `empty` (known when the query ended).
    finish_reasons: why the texts of outputs ended, by name, as their engines say. notices:
    what to know of how it came about, without what `ends` says. failures: of parts that were not
    necessary, by component. parent: of a query that a component began. inner: the traces of those
    that its own components began. more: parts that ended and are not among them, because there were
    too many; more_failed: of those. values: what is kept of what its primitives read and gave
    (None: nothing). objective: when its answer is wanted (None: nobody knows). left_s: by engine,
    the seconds of parts that are not among `inner`. steps: of agents that did not come to their
    end.
    """

    left_s: Mapping[str, float] = NO_SECONDS
    steps: tuple[Mapping[str, Any], ...] = ()

    def __init__(self, query_id: str, app: str, plan: Plan | None, admitted: float) -> None:
        self.query_id, self.app, self.plan, self.admitted = query_id, app, plan, admitted
        self.finished: float | None = None
        self.state = "running"
        self.ends = NOBODY
        self.finish_reasons: dict[str, str] = {}
        self.notices: list[str] = []
        self.failures: dict[str, Failures] = {}
        self.parent: Parent | None = None
        self.inner: list[Trace] = []
        self.more = self.more_failed = 0
        self.values: KeptValues | None = None
        self.objective: Objective | None = None
        self._sent: list[SentTuple] = []
        self._ended: list[EndedTuple] = []
        self._extra: list[Span] = []
        self._usage: dict[int, Usage] = {}
        self._reasons: dict[int, Reason] = {}
        """Reasons of LLM calls, by their places in `_sent`."""
        self._limited: dict[int, float] = {}
        """How much of a wait a rate limit caused, likewise."""
        self._errors: dict[EndedTuple, str] = {}
        self._beaten: dict[int, float] = {}
        """Tries that another one at the same time was sooner than, by their places in `_sent`:
        until when they ran."""
        self._unsent: list[_Sent] = []
        """What waited for an instance when the query ended."""
        self._counts = CallCounts()
        """Counts of its own calls, and of those of parts that are not among `inner`."""

    @property
    def cut(self) -> bool:
        """Whether a call that wrote the answer had all the tokens that it might have."""
        return "length" in self.ends

    def remark(self, component: str, remarks: Remarks) -> None:
        """Add what a primitive that grew has to say of itself."""
        for notice in remarks.notices:
            self.add_notice(f"{component}: {notice}")
        if remarks.failures is not None:
            self.failures.setdefault(component, Failures()).join(remarks.failures)

    def take_remarks(self, part: Trace) -> None:
        """Take over the remarks of a part that has ended."""
        for notice in part.notices:
            self.add_notice(notice)
        for component, failures in part.failures.items():
            self.failures.setdefault(component, Failures()).join(failures)

    def add_notice(self, notice: str) -> None:
        """Each is told once, and no more than MOST_NOTICES."""
        if notice not in self.notices and len(self.notices) < MOST_NOTICES:
            self.notices.append(notice)

    def sent(
        self,
        primitive: int,
        lo: int,
        hi: int,
        queued: float,
        at: float,
        instance: int = -1,
        batch: int = -1,
        batch_size: int = 1,
    ) -> None:
        """A slice went to an instance (a control primitive: was run)."""
        self._sent.append((primitive, lo, hi, queued, at, instance, batch, batch_size))

    def limited(self, seconds: float) -> None:
        """Note how much of the wait of what was sent last a rate limit caused."""
        self._limited[len(self._sent) - 1] = seconds

    def explained(self, reason: Reason) -> None:
        """Why what was sent last went there."""
        self._reasons[len(self._sent) - 1] = reason

    def ended(self, primitive: int, lo: int, at: float, state: str = "done") -> None:
        """A slice came back."""
        self._ended.append((primitive, lo, at, state))

    def failed(self, primitive: int, lo: int, at: float, error: Exception) -> None:
        """A slice failed, or was withdrawn."""
        state = "cancelled" if isinstance(error, QueryCancelled) else "failed"
        self._ended.append(ended := (primitive, lo, at, state))
        if state == "failed":
            self._errors[ended] = reason_of(error)

    def beaten(self, primitive: int, batch: int, at: float) -> None:
        """Of two tries of a call at once, the one in this batch is over, and the other goes on."""
        for k in range(len(self._sent) - 1, -1, -1):
            if self._sent[k][0] == primitive and self._sent[k][6] == batch:
                self._beaten[k] = at
                return

    def unsent(
        self,
        primitive: int,
        lo: int,
        hi: int,
        queued: float,
        instance: int = -1,
        limited_s: float = 0.0,
    ) -> None:
        """A slice waits for an instance while the query ends."""
        sent = _Sent(primitive, lo, hi, queued, queued, instance, -1, 1, None, limited_s)
        self._unsent.append(sent)

    def step(self, name: str, start: float, end: float, state: str = "done") -> None:
        """Work outside the graph, such as loading documents."""
        began, ended = start - self.admitted, end - self.admitted
        self._extra.append(Span(name, name, name, "", began, began, ended, state=state))

    def used(self, usage: Usage, primitive: int, cost: float | None = None) -> None:
        """A try of the LLM call that this primitive leads took so many tokens. cost: in money, if
        its price is known."""
        self._usage[primitive] = usage
        self._counts.add(usage, cost)

    def shares(self, primitive: int) -> None:
        """The LLM call that this primitive leads was not made, because an equal one was."""
        self._usage[primitive] = Usage()
        self._counts.shared += 1

    def leave_out(self, part: Trace) -> None:
        """A part has ended that is not one of `inner`: count it, and its tokens."""
        self.more += 1 + part.more
        self.more_failed += (part.state == "failed") + part.more_failed
        self._counts.join(part.counts)
        if seconds := engine_seconds(part):
            self.left_s = added(self.left_s, seconds)

    def rows_took(self, counts: CallCounts) -> None:
        """Rows that were asked on behalf of the query, which have no trace in it, took so much."""
        self._counts.join(counts)

    @property
    def counts(self) -> CallCounts:
        """Counts of its calls, and of those of its parts and the queries inside it."""
        if not self.inner:
            return self._counts
        counts = replace(self._counts)
        for trace in self.inner:
            counts.join(trace.counts)
        return counts

    def forget_values(self) -> None:
        """Drop what is kept of what its primitives read and gave, and of what is inside it, and
        keep no more of it."""
        if self.values is not None:
            self.values.room.close()
            self.values.forget()
        for trace in self.inner:
            trace.forget_values()

    @property
    def kept_bytes(self) -> int:
        """Bytes of `values`, and of those inside it, about."""
        own = self.values.bytes if self.values is not None else 0
        return own + sum(trace.kept_bytes for trace in self.inner)

    @property
    def open(self) -> set[int]:
        """Primitives that were sent and have not ended."""
        ended = {one[0] for one in self._ended}
        return {one[0] for one in self._sent if one[0] not in ended}

    def finish(self, state: str, at: float) -> None:
        """The query ended."""
        self.state, self.finished = state, at

    @property
    def prompt_tokens(self) -> int:
        return self._counts.prompt + sum(trace.prompt_tokens for trace in self.inner)

    @property
    def completion_tokens(self) -> int:
        return self._counts.generated + sum(trace.completion_tokens for trace in self.inner)

    @property
    def found_tokens(self) -> int:
        """Tokens of the prompts that engines found in their caches, as far as they tell."""
        return self._counts.cached + sum(trace.found_tokens for trace in self.inner)

    @property
    def calls(self) -> dict[str, Usage]:
        """Tokens of each LLM call that has ended, by the primitive that leads it."""
        return {self.plan.ids[i]: usage for i, usage in self._usage.items()} if self.plan else {}

    @property
    def used_by_head(self) -> Mapping[int, Usage]:
        """Tokens of each of its own LLM calls that has ended, by the index of its head."""
        return self._usage

    def copy(self) -> Trace:
        """A copy of it as it is now, for another thread to look at while this one goes on."""
        copied = Trace.__new__(Trace)
        copied.__dict__ |= self.__dict__
        copied._sent, copied._ended, copied._extra = self._sent[:], self._ended[:], self._extra[:]
        copied._usage, copied._errors = {**self._usage}, {**self._errors}
        copied._reasons = {**self._reasons}
        copied._limited, copied._beaten = {**self._limited}, {**self._beaten}
        copied._unsent = self._unsent[:]
        copied._counts = replace(self._counts)
        copied.inner = [trace.copy() for trace in self.inner]
        return copied

    @property
    def latency_s(self) -> float:
        """Seconds from admission to the end (0 while running)."""
        return 0.0 if self.finished is None else self.finished - self.admitted

    @property
    def raw(self) -> tuple[list[SentTuple], list[EndedTuple], list[Span]]:
        """What was recorded, for counting (`runtime.demand`): slices sent, slices that came back
        (on the driver's clock), and the steps outside the graph."""
        return self._sent, self._ended, self._extra

    @property
    def spans(self) -> list[Span]:
        """All spans by start time. What was in flight or waited when the query ended was cancelled
        then."""
        opened: dict[tuple[int, int], list[_Sent]] = {}
        beaten = []
        for k, fields in enumerate(self._sent):
            attempt = _Sent(*fields, self._reasons.get(k), self._limited.get(k, 0.0))
            if k in self._beaten:
                beaten.append(self._span(attempt, self._beaten[k], "cancelled"))
                continue
            opened.setdefault((attempt.primitive, attempt.lo), []).append(attempt)
        spans, dropped = [*self._extra, *beaten], dict[int, float]()
        for end in map(_Ended._make, self._ended):
            tries = opened.get((end.primitive, end.lo))
            begun = tries and tries[0].at <= end.at  # else it is of a decoding, before another try
            attempt = tries.pop(0) if tries and begun else self._decoding(end)
            spans.append(self._span(attempt, end.at, end.state, self._errors.get(end, "")))
            if end.state == "skipped":
                dropped[end.primitive] = end.at
        open_state = "running" if self.finished is None else "cancelled"
        for attempt in (*chain(*opened.values()), *self._decodings()):
            end_at = attempt.at if self.finished is None else self.finished
            end_at = max(attempt.at, min(end_at, dropped.get(attempt.primitive, end_at)))
            spans.append(self._span(attempt, end_at, open_state))
        if (at := self.finished) is not None:
            spans += [
                self._span(attempt._replace(at=at), at, open_state) for attempt in self._unsent
            ]
        return sorted(spans, key=lambda span: (span.start, span.end, span.primitive))

    @property
    def reasons(self) -> Iterator[tuple[SentTuple, Reason]]:
        """Each try of an LLM call, as it was sent, and why it went there."""
        return ((self._sent[k], reason) for k, reason in self._reasons.items())

    def places(self) -> Iterator[tuple[str, int]]:
        """Engine and batch of every slice that was sent, and of its parts'."""
        for scope in scopes(self):
            if (plan := scope.trace.plan) is not None:
                for sent in scope.trace.raw[0]:
                    if sent[6] >= 0:
                        yield plan.primitives[sent[0]].engine, sent[6]

    def usage(self, i: int) -> Usage | None:
        """Tokens of the LLM call that primitive `i` leads or decodes, once it has ended."""
        return self._usage.get(self.plan.head[i]) if self.plan is not None else None

    def batches(self) -> Iterator[Batch]:
        """Every batch that something of this query went in, by when it was sent."""
        seen: set[tuple[str, int]] = set()
        for sent in starmap(_Sent, self._sent):
            assert self.plan is not None
            engine = self.plan.primitives[sent.primitive].engine
            if engine and (engine, sent.batch) not in seen:
                seen.add((engine, sent.batch))
                yield Batch(engine, sent.instance, sent.batch, sent.batch_size, sent.at)

    def _decoding(self, end: _Ended) -> _Sent:
        """A decoding is never sent: it begins where what it continues (its stream) ended. A call
        that fails after its prefilling fails in the decoding that is being written."""
        assert self.plan is not None
        i, head = end.primitive, self.plan.head[end.primitive]
        if i == head and end.state in _LOST:
            return self._written(head, end.at) or _Sent(i, 0, 1, end.at, end.at, -1, -1, 1)
        if i == head or end.state in NOT_RUN:
            return _Sent(i, 0, 1, end.at, end.at, -1, -1, 1)
        begun = self._done(self.plan.sequence_of[i], end.at)
        return self._member(i, end.at if begun is None else begun, end.at)

    def _decodings(self) -> Iterator[_Sent]:
        """Decodings that are being written: nothing is recorded of one until it has ended."""
        if self.plan is None:
            return
        last = {end[0]: end[3] for end in self._ended}
        until = inf if self.finished is None else self.finished
        for head, members in enumerate(self.plan.members):
            sent = self._written(head, until) if members and last.get(head) == "done" else None
            if sent is not None and sent.primitive not in last:
                yield sent

    def _written(self, head: int, at: float) -> _Sent | None:
        """The decoding that the call led by `head` is in the middle of at `at`, if it is in one."""
        assert self.plan is not None
        begun = self._done(head, at)
        if begun is None:
            return None
        for member in self.plan.members[head]:
            ended = self._done(member, at)
            if ended is None:
                return self._member(member, begun, at)
            begun = max(begun, ended)
        return None

    def _done(self, i: int, until: float) -> float | None:
        """When primitive `i` last ended well until then."""
        ends = (e[2] for e in self._ended if e[0] == i and e[2] <= until and e[3] not in _LOST)
        return max(ends, default=None)

    def _member(self, member: int, at: float, until: float) -> _Sent:
        """A decoding from `at` on, where its call was sent last before `until`."""
        assert self.plan is not None
        head = self.plan.head[member]
        sent = zip(range(len(self._sent) - 1, -1, -1), reversed(self._sent), strict=True)
        calls = (s for k, s in sent if s[0] == head and s[4] <= until and k not in self._beaten)
        call = next(calls, None)
        where = call[5:] if call else (-1, -1, 1)
        return _Sent(member, 0, 1, at, at, *where)

    def _span(self, sent: _Sent, end: float, state: str, error: str = "") -> Span:
        assert self.plan is not None
        p, zero = self.plan.primitives[sent.primitive], self.admitted
        return Span(
            primitive=p.id,
            op=p.op.value,
            component=p.component,
            engine=p.engine,
            queued=sent.queued - zero,
            start=sent.at - zero,
            end=end - zero,
            instance=sent.instance,
            batch=sent.batch,
            batch_size=sent.batch_size,
            lo=sent.lo,
            hi=sent.hi,
            state=state,
            error=error,
            why=_why(sent),
            limited_s=sent.limited_s,
        )

    def primitive(self, id: str, *, beside: Iterable[Trace] = ()) -> dict[str, Any]:
        """What is known of one primitive, as JSON values. id: "generate.1.prefill", or of a part
        with its path, "agent/turn/2/plan.decode". beside: of other queries, whose places in its
        batches are told.

            query_id, primitive, op, component, engine
            state     of its last try: done, failed, cancelled, running, skipped, fused; "" before
            inputs    name -> the beginning of its value; null: not kept
            outputs   the same of what it gave; null, too, where it has not ended well
            prompt    [{"role", "text", "before"}] of the call that it leads; before: an earlier
                      primitive has prefilled it; null: it leads none
            tokens    {"in", "cached", "out"} of its LLM call, as its instance counted; or null
            tries     its spans, with errors, in seconds since the query was admitted
            batches   [{"batch", "instance", "size", "queries", "others"}] that it went in. queries:
                      ids of this one and of those `beside` that had a place there; others: places
                      of queries that are not told
            kept      "off", "small" or "all"; "full": the query's room is used up; "forgotten"

        Raises UnknownName.
        """
        every = scopes(self)
        for scope in every:
            i = scope.index(id)
            if i is not None:
                row = scope.primitive(id, i)
                row["batches"] = _members(scope.batches(i), [self, *beside])
                return {"query_id": self.query_id, **row}
        raise UnknownName("primitive", id, every[0].known)

    def to_json(self, *, errors: bool = True) -> dict[str, Any]:
        """The trace as JSON values, with those of the queries inside it (`after_s`: how long after
        its own admission they were admitted)."""
        fields: dict[str, Any] = {
            "query_id": self.query_id,
            "app": self.app,
            "state": self.state,
            "latency_s": self.latency_s,
            "spans": [span_json(span, errors=errors) for span in self.spans],
        }
        if self.parent is not None:
            fields["parent"] = self.parent._asdict()
        if self.more:
            fields["more"] = {"parts": self.more, "failed": self.more_failed}
        if self.inner:
            fields["inner"] = [
                {"after_s": trace.admitted - self.admitted, **trace.to_json(errors=errors)}
                for trace in self.inner
            ]
        return fields


def engine_seconds(trace: Trace) -> Mapping[str, float]:
    """Engine -> seconds in which something of a query, its parts and the queries inside it had a
    place there. A batch's time is shared evenly among its slices; an LLM call has its place until
    its last decoding ends; of a slice that was tried again, all tries count, with the time between
    them."""
    seconds = trace.left_s
    for part in trace.inner:
        seconds = added(seconds, engine_seconds(part))
    plan, (sent, ended, _) = trace.plan, trace.raw
    if plan is None:
        return seconds
    by_engine, head, primitives = dict[str, float](), plan.head, plan.primitives
    last = {head[i]: at for i, _, at, state in ended if state not in NOT_RUN}
    for i, _, _, _, at, _, _, size in sent:
        if engine := primitives[i].engine:
            took_s = last.pop(i, at) - at  # of tries after the first no end is left
            by_engine[engine] = by_engine.get(engine, 0.0) + (took_s / size if took_s > 0 else 0.0)
    return added(seconds, by_engine) if seconds else by_engine


def added(some: Mapping[str, float], more: Mapping[str, float]) -> Mapping[str, float]:
    """Sums, by name."""
    found = dict(some)
    for name, value in more.items():
        found[name] = found.get(name, 0.0) + value
    return found


@dataclass(frozen=True, slots=True)
class GraphScope:
    """One graph that ran. path: before the ids of its primitives, "" of the query itself. begun:
    seconds since the query was admitted. container: what began it, by its path. around: the index
    of the scope that it is in."""

    trace: Trace
    path: str
    begun: float
    container: str = ""
    around: int = -1

    def id(self, primitive: str) -> str:
        """What a primitive of it is called in the query."""
        return f"{self.path}/{primitive}" if self.path else primitive

    def placed(self, span: Span) -> Span:
        """A span of its own trace as one of the query."""
        at = self.begun
        return replace(
            span,
            primitive=self.id(span.primitive),
            queued=span.queued + at,
            start=span.start + at,
            end=span.end + at,
        )

    @property
    def known(self) -> Sequence[str]:
        """Ids of its primitives, and of the steps before it."""
        _, _, extra = self.trace.raw
        plan = self.trace.plan
        return [*(plan.ids if plan else ()), *(span.primitive for span in extra)]

    def index(self, id: str) -> int | None:
        """Index of the primitive that is called `id` in the query, -1 of a step before the graph;
        None: it is not one of this scope."""
        own = id.removeprefix(f"{self.path}/") if self.path else id
        if self.id(own) != id or own not in self.known:
            return None
        return self.trace.plan.index.get(own, NO_PRIMITIVE) if self.trace.plan else NO_PRIMITIVE

    def batches(self, i: int) -> list[Batch]:
        """The batches that primitive `i` went in."""
        plan, (every, _, _) = self.trace.plan, self.trace.raw
        if plan is None or i == NO_PRIMITIVE:
            return []
        by_number: dict[int, Batch] = {}
        engine = plan.primitives[i].engine
        for sent in starmap(_Sent, every):
            if sent.primitive == i and sent.batch >= 0:
                by_number[sent.batch] = Batch(
                    engine, sent.instance, sent.batch, sent.batch_size, sent.at
                )
        return list(by_number.values())

    def primitive(self, id: str, i: int) -> dict[str, Any]:
        """See `Trace.primitive`."""
        trace, plan = self.trace, self.trace.plan
        primitive = id.removeprefix(f"{self.path}/")
        tries = [self.placed(span) for span in trace.spans if span.primitive == primitive]
        p = plan.primitives[i] if plan is not None and i != NO_PRIMITIVE else None
        values = trace.values if p is not None else None
        began = any(span.state not in (*NOT_RUN, "queued") for span in tries)
        inputs = values.inputs(plan, i) if values and plan and began else None
        prompt = values.prompt(i) if values else None
        usage = trace.usage(i) if p is not None else None
        return {
            "primitive": id,
            "op": p.op.value if p else primitive,
            "component": p.component if p else primitive,
            "engine": p.engine if p else "",
            "state": tries[-1].state if tries else "",
            "inputs": inputs,
            "outputs": values.outputs(i) if values else None,
            "prompt": None if prompt is None else [message._asdict() for message in prompt],
            "tokens": None if usage is None else _tokens(usage),
            "tries": [span_json(span, errors=True) for span in tries],
            "kept": trace.values.room.state if trace.values is not None else "off",
        }

    @property
    def parents(self) -> Mapping[str, Sequence[str]]:
        """The parents of its graph, by their paths."""
        plan = self.trace.plan
        known = plan.graph.parents.items() if plan else ()
        return {self.id(one): tuple(map(self.id, above)) for one, above in known}


def scopes(trace: Trace) -> list[GraphScope]:
    """The scopes of a query: itself first, and each one after the one around it."""
    found = [GraphScope(trace, "", 0.0)]
    for k, scope in enumerate(found):  # which grows meanwhile
        found += _inside(scope, k, trace.admitted)
    return found


def _inside(scope: GraphScope, k: int, zero: float) -> Iterator[GraphScope]:
    around, seen = scope.trace, dict[str, int]()
    for part in around.inner:
        container = part.parent.primitive if part.parent is not None else ""
        if part.query_id.startswith(f"{around.query_id}/"):
            path = part.query_id.removeprefix(f"{around.query_id}/")
        else:  # a query inside
            path = f"{container}/{part.app}"
            seen[path] = seen.get(path, 0) + 1
            path += f"/{seen[path]}" if seen[path] > 1 else ""
        yield GraphScope(part, scope.id(path), part.admitted - zero, scope.id(container), k)


def _tokens(usage: Usage) -> dict[str, int]:
    return {
        "in": usage.prompt_tokens,
        "cached": usage.cached_tokens,
        "out": usage.completion_tokens,
    }


def _members(batches: Sequence[Batch], traces: Sequence[Trace]) -> list[dict[str, Any]]:
    """For each of these batches, whose places in it are known."""
    wanted = {(batch.engine, batch.batch) for batch in batches}
    places: dict[tuple[str, int], Counter[str]] = {batch: Counter() for batch in wanted}
    for trace in traces:
        for place in trace.places():
            if place in wanted:
                places[place][trace.query_id] += 1
    rows = []
    for batch in batches:
        there = places[batch.engine, batch.batch]
        rows.append(
            {
                "batch": batch.batch,
                "instance": batch.instance,
                "size": batch.size,
                "queries": [*there],
                "others": max(0, batch.size - there.total()),
            }
        )
    return rows


def _why(sent: _Sent) -> str:
    """Why a call went where it went, or for what a slice waited, in words."""
    if sent.reason is not None:
        return sent.reason.words(sent.instance)
    return Hold(Because.LIMIT, sent.limited_s).words if sent.limited_s else ""


def span_json(span: Span, *, errors: bool) -> dict[str, Any]:
    """The span as JSON values; errors: with what its error says, if it has one."""
    fields = asdict(span)
    if not (span.error and errors):
        del fields["error"]
    if not span.why:
        del fields["why"]
    if not span.limited_s:
        del fields["limited_s"]
    return fields
