"""What a live query is besides its run: who waits for it, what it tells, how it ended.

Long because whatever looks at one query only has its place here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, cast

from teola.engine import Life, QueryContext, SequenceHandle
from teola.errors import EngineError, QueryFailed, TeolaError, reason_of
from teola.graph import (
    QUERY,
    AggregateParams,
    Aggregation,
    CountsTokens,
    DecodeParams,
    GrowParams,
    Growth,
    Inquiry,
    NamesCounter,
    Op,
    Primitive,
    Ref,
    Spends,
    ToolStep,
    WaitParams,
)
from teola.graph.ops import DECODES
from teola.policies.asker import Asker
from teola.policies.ledger import Reservation
from teola.price import FREE, Price
from teola.runtime.hosts.field_text import FieldText
from teola.runtime.hosts.local import LocalHost
from teola.runtime.in_flight import Place, Query, part_run, part_trace
from teola.runtime.live.batch import refusal_of
from teola.runtime.live.kept_answers import KeptAnswer
from teola.runtime.live.nesting import Caller, Spender, Terms
from teola.runtime.live.purse import Purse
from teola.runtime.live.steps import key_of_step
from teola.runtime.observe.kept_values import kept_in
from teola.runtime.observe.trace import Trace
from teola.runtime.store import Store
from teola.runtime.tally import Tally
from teola.schedule.events import Cause, Finish, State
from teola.schedule.graph_run import GraphRun
from teola.schedule.plan import CHOOSES, Plan


class Token(NamedTuple):
    """A piece of the final answer."""

    text: str


class Progress(NamedTuple):
    """A slice of a primitive was sent to its engine (`started`) or came back (`finished`); or the
    first token of an LLM call is there (`writing`), told of what leads the call."""

    primitive: str
    op: str
    engine: str
    state: str
    items: int


Watcher = Callable[[Token | Progress | ToolStep], None]
STEP_CHARACTERS: Final = 2000
"""Characters of a step's result that the watcher of a query is told."""


@dataclass(slots=True)
class Ending:
    """How a query ended. outputs: by name (absent ones None). missing: failed optional parts, and
    why in `reasons`."""

    state: State
    outputs: dict[str, Any]
    error: Exception | None
    missing: tuple[str, ...]
    trace: Trace
    failed: Primitive | None
    reasons: Mapping[str, str] = field(default_factory=dict)


class LiveQuery(Query):
    """A query with what a live one needs.

    terms: what it leaves to queries inside it.
    done: is given its ending; None of a part, whose end is told to what it is a part of.
    watcher, streams: who follows it, and whether tokens are told as they come.
    callers: tries of primitives that have begun queries inside it.
    deciding: tests of Conditions, and other work beside the core, that still run.
    asking: what people are asked, by the primitive that asks.
    tokens: of prompts, with what stands before, by the primitives that were measured.
    estimated: tokens of the own parts of the other prompts, where it has a budget.
    same: what calls that are being measured are equal by.
    answers: what equal calls have given before, by primitive.
    ends: how calls have ended, by the primitive that leads them, where not as they should (see
        Trace.ends).
    finishes: why their texts ended, in the words of their engines.
    """

    def __init__(
        self,
        context: QueryContext,
        plan: Plan,
        store: Store,
        run: GraphRun,
        trace: Trace,
        done: asyncio.Future[Ending] | None,
        watcher: Watcher | None,
        streams: bool,
        terms: Terms,
        tally: Tally | None = None,
        place: Place | None = None,
    ) -> None:
        super().__init__(context.query_id, plan, store, run, trace, tally, place)
        self.terms = terms
        self.asking: dict[int, str] = {}
        self.callers: set[Caller] = set()
        self.deciding: set[asyncio.Task[None]] = set()
        self.context, self.done, self.watcher = context, done, watcher
        self.timer: asyncio.TimerHandle | None = None
        self.late: Callable[[], None] | None = None
        self.postponed: Callable[[LiveQuery, float], None] = _unheard
        self.streams, self.streamed = streams and watcher is not None, False
        self.ends: dict[int, str] = {}
        self.finishes: dict[int, str] = {}
        self.tokens: dict[int, int] = {}
        self.estimated: dict[int, int] = {}
        self.same: dict[int, bytes] = {}
        self.answers: dict[int, KeptAnswer] = {}

    @property
    def spender(self) -> Spender | None:
        """The nearest run of an agent that it is a part of, or that called what it is a part of,
        and the key of that part. What it takes counts against that one's bounds."""
        query = self
        while (place := query.place) is not None:
            if place.growing.spends is not None:
                return place.growing.spends, place.key
            query = cast("LiveQuery", place.growing.query)
        return query.terms.spender

    def kept_for_answer(self) -> Reservation | None:
        """What its agent has kept of the budget for the answer that this part of it gives."""
        place = self.place
        if place is None or not place.grow.last or place.growing.spends is None:
            return None
        purse = place.growing.spends.purse
        return purse.taken() if isinstance(purse, Purse) else None

    @property
    def outermost(self) -> LiveQuery:
        """The query of which it is a part, of a part perhaps, or itself."""
        query = self
        while query.place is not None:
            query = cast("LiveQuery", query.place.growing.query)
        return query

    def inquiry(self, i: int, kind: str, question: str, schema: Any, about: Any) -> Inquiry:
        """What people are asked for primitive `i`. Raises EngineError where there is nobody."""
        people, p = self.terms.people, self.plan.primitives[i]
        if people is None:
            raise EngineError("nobody can be asked here")
        id = key_of_step(people.root, self.run, i)
        return Inquiry(id, people.root, kind, p.component, question, schema, about)

    def first_about(self, i: int, about: Any) -> Any:
        """What the question of primitive `i` is about, as it was when it was first asked."""
        steps = self.terms.steps
        return about if steps is None else steps.asked(steps.key(self.run, i), about)

    def read_answer(self, i: int, answer: Any) -> Any:
        """The output of a question that was answered while the query was nowhere."""
        params = self.plan.primitives[i].params
        assert isinstance(params, WaitParams)
        if params.read is None:
            return answer
        _, _, about = params.words(self.store.resolve(i))
        return params.read(answer, self.first_about(i, about))

    def uncomputed(self, i: int) -> SequenceHandle:
        """For a piece of a prompt whose call is known: nobody has to compute it."""
        before = self.run.before(i)
        parts = self.store.values[before]["sequence"].parts if before >= 0 else ()
        return SequenceHandle("", -1, (*parts, *self.store.prompt(i)))

    def stand_still(self) -> None:
        """Stop its deadline while it waits for people."""
        if self.timer is not None:
            self.timer.cancel()

    def postpone(self, by_s: float) -> None:
        """Move its deadline, by so many seconds."""
        self.context = replace(self.context, deadline=self.context.deadline + by_s)
        self.postponed(self, by_s)
        if self.timer is not None and self.late is not None:
            self.timer = asyncio.get_running_loop().call_at(self.context.deadline, self.late)

    def tell_written(self, p: Primitive, text: str) -> None:
        """The text of a call that was made before, whole, as its decoding `p` lets it be seen."""
        field = p.params.field if isinstance(p.params, DecodeParams) else None
        if shown := FieldText(field).feed(text) if field is not None else text:
            self.tell(shown)

    def tell(self, text: str) -> None:
        """A piece of its answer, for its watcher."""
        self.streamed = True
        if self.place is not None:
            cast("LiveQuery", self.place.growing.query).tell(text)
            return
        if self.watcher and self.run.state is None:
            self.watcher(Token(text))

    def watch(self, i: int, items: int, state: str) -> None:
        """Tell its watcher that a slice of primitive `i` was sent or came back; see Progress."""
        if self.watcher:
            p = self.plan.primitives[i]
            items = items if p.batchable else 1
            self.watcher(Progress(p.id, p.op.value, p.engine, state, items))

    def tell_step(self, state: str, outputs: Mapping[str, Any] | None = None) -> None:
        """Tell its watcher that a step of an agent begins, or has ended with these outputs."""
        place, watcher = self.place, self.watcher
        if place is None or watcher is None or place.grow.step is None or place.growing.over:
            return
        step_result = (outputs or {}).get("result")
        result: Mapping[str, Any] = step_result if isinstance(step_result, Mapping) else {}
        text, step = str(result.get("text", "")), place.grow.step
        if len(text) > STEP_CHARACTERS:
            text = f"{text[:STEP_CHARACTERS]} [cut]"
        agent = place.growing.query.plan.primitives[place.growing.i].component
        ended = "failed" if result.get("failed") else state
        seconds = round(result.get("seconds", 0.0), 6)
        watcher(ToolStep(agent, self.id, step["tool"], step["args"], ended, text, seconds))

    def failed(
        self,
        i: int,
        lo: int,
        error: Exception,
        now: float,
        *,
        again: bool = False,
        traced: bool = True,
    ) -> Cause:
        """A slice of primitive `i` failed. again: another try may help. traced: nothing of it goes
        on elsewhere."""
        if self.run.state is None and traced:
            self.trace.failed(i, lo, now, error)
            self.store.keep_pieces(i)
        return Cause(error, again, refused=refusal_of(error) if again else None)

    def left_alone(self) -> None:
        """End what its components began: queries inside it, and its tests."""
        self.context.life.over = True
        if self.timer:
            self.timer.cancel()
        for caller in list(self.callers):
            caller.end()
        for task in self.deciding:  # in the next turn: they have all begun by then
            task.get_loop().call_soon(task.cancel)

    def left_over(self) -> dict[str, Any]:
        """Outputs of what was stopped while it grew, as far as they had come."""
        index, outputs = self.plan.index, dict[str, Any]()
        for name, ref in self.plan.graph.outputs.items():
            if ref.producer != QUERY and (left := self.left.get(index[ref.producer])) is not None:
                outputs[name] = left.get(ref.port)
        return outputs

    def answer_ends(self) -> frozenset[str]:
        """How the calls have ended that wrote its outputs, where not as they should. To be asked
        when it has ended."""
        if not self.ends and not self.grown_ends:
            return frozenset()
        ends = set[str]()
        for i in self._wrote(self.plan.graph.outputs.values()):
            ends |= self.grown_ends.get(i, frozenset())
            if (end := self.ends.get(self.plan.head[i])) is not None:
                ends.add(end)
        return frozenset(ends)

    def finish_reasons(self) -> dict[str, str]:
        """Why the text of each output ended that a call wrote, by name."""
        if not self.finishes:
            return {}
        by_name, head = {}, self.plan.head
        for name, ref in self.plan.graph.outputs.items():
            for i in self._wrote([ref]):
                if (reason := self.finishes.get(head[i])) is not None:
                    by_name[name] = reason
        return by_name

    def _wrote(self, refs: Iterable[Ref]) -> Iterator[int]:
        """What wrote these outputs, decodings and what has grown: where one of several parts is
        chosen, the one that was."""
        plan, frontier = self.plan, list(refs)
        while frontier:
            ref = frontier.pop()
            if ref.producer == QUERY:
                continue
            i = plan.index[ref.producer]
            p = plan.primitives[i]
            if p.op in DECODES or p.op is Op.GROW:
                yield i
            elif isinstance(p.params, AggregateParams) and p.params.mode in CHOOSES:
                parts = [part for part in p.refs() if self.run.delivered(part)]
                frontier += parts[:1] if p.params.mode is Aggregation.FIRST else parts[-1:]

    def tell_whole(self, outputs: Mapping[str, Any]) -> None:
        """Pass on the answer's text if none of it went out as it came: the watcher is not to have
        it in pieces, or the call that would have streamed was skipped, and another text stands."""
        if self.watcher is None or self.streamed:
            return
        for name, ref in self.plan.graph.outputs.items():
            text = outputs[name]
            if ref.producer != QUERY and isinstance(text, str):
                self.watcher(Token(text))
                return


def _unheard(query: LiveQuery, by_s: float) -> None:
    """Nobody hears it: the query is in no driver."""


def component_failure(error: Exception, failed: Primitive) -> QueryFailed:
    """The error that a caller sees when a primitive has failed: its component and what it says, of
    which all lines but the first are indented."""
    message = f"component {failed.component!r}, {failed.op.value}: {reason_of(error)}"
    failure = QueryFailed(message)
    failure.component, failure.__cause__ = failed.component, error
    return failure


def as_failure(error: Exception) -> TeolaError:
    """The error that a caller sees when a query has failed by none of its primitives."""
    if isinstance(error, TeolaError):
        return error
    failure = QueryFailed(f"a bug, of Teola or of an extension: {reason_of(error)}")
    failure.__cause__ = error
    return failure


def query_of(
    context: QueryContext,
    asker: Asker,
    plan: Plan,
    inputs: Mapping[str, Any],
    trace: Trace,
    done: asyncio.Future[Ending],
    watcher: Watcher | None,
    streams: bool,
    terms: Terms,
) -> LiveQuery:
    """A query that is part of none. One inside another is as old as that, and weighs as much and
    its own besides, as far as times are known."""
    around, admitted, longer_s = terms.around, asker.admitted, 0.0
    if around is not None and around.total_s:
        admitted, longer_s = around.admitted, around.total_s
    run = GraphRun(
        context.query_id,
        plan,
        asker,
        began=asker.admitted,
        admitted=admitted,
        deadline=context.deadline,
        longer_s=longer_s,
    )
    tally = Tally(terms.most_parts, terms.most_primitives, terms.most_bytes)
    kept_values = trace.values = kept_in(terms.values, inputs)
    store = Store(plan, inputs, tally=tally, kept=kept_values)
    return LiveQuery(context, plan, store, run, trace, done, watcher, streams, terms, tally)


def ending_of(query: LiveQuery, finish: Finish, outputs: dict[str, Any]) -> Ending:
    """How a query has ended."""
    reasons = (reason_of(cause.error) for cause in finish.reasons)
    return Ending(
        finish.state,
        outputs,
        finish.cause.error if finish.cause else None,
        finish.missing,
        query.trace,
        query.plan.primitives[finish.failed] if finish.failed >= 0 else None,
        dict(zip(finish.missing, reasons, strict=True)),
    )


def failure_of(query: LiveQuery, finish: Finish) -> Exception | None:
    """The error of a part, as a caller sees it."""
    if finish.cause is None or finish.failed < 0:
        return finish.cause.error if finish.cause else None
    return component_failure(finish.cause.error, query.plan.primitives[finish.failed])


def growth_of(
    query: LiveQuery,
    i: int,
    hosts: Mapping[tuple[str, int], LocalHost],
    price_of: Callable[[str], Price | None],
) -> Growth:
    """How primitive `i` grows, by the values that it reads. An agent cuts texts by the tokenizer of
    its engine, whose price is told by `price_of`."""
    params = query.plan.primitives[i].params
    assert isinstance(params, GrowParams)
    grower, growth = params.grower, params.grower.growth(query.store.resolve(i))
    price = FREE
    if isinstance(grower, NamesCounter) and isinstance(growth, CountsTokens):
        price = price_of(grower.counts_by) or FREE
        host = hosts.get((grower.counts_by, 0))
        if host is not None:
            growth.counts(host.count_tokens, host.engine.spec.window)
    if isinstance(growth, Spends):
        if (around := query.spender) is not None:
            growth.within(*around)
        if (ledger := query.run.asker.budget) is not None:
            growth.purse = Purse(ledger, price)
    return growth


def part_of(around: LiveQuery, id: str, plan: Plan, place: Place, now: float) -> LiveQuery:
    """A query for a part of the query `around`, for the same watcher and until the same time."""
    trace = part_trace(around, id, plan, place, now)
    about = around.context
    context = QueryContext(id, about.tenant, about.deadline, Life(), about.program)
    answers = place.grow.answers and around.streams and around.run.answers(place.growing.i)
    inputs, nulls = place.grow.inputs, place.grow.nulls
    if place.recorded:  # else nobody could look at it
        trace.values = kept_in(around.terms.values, inputs)
    store = Store(plan, inputs, tally=around.tally, nulls=nulls, kept=trace.values)
    run = part_run(around, id, plan, place, now)
    watcher, terms, tally = around.watcher, around.terms, around.tally
    part = LiveQuery(context, plan, store, run, trace, None, watcher, answers, terms, tally, place)
    part.tell_step("started")
    return part
