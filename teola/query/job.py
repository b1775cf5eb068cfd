"""Job: one query on its way through: prepare documents, plan, execute, release.

Long because the way of one query is told in one place.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf
from typing import Any, Final, NamedTuple

from teola.engine import QueryContext
from teola.errors import DeadlineExceeded, InputError, TeolaError
from teola.passes import select
from teola.policies.asker import Asker
from teola.policies.ledger import Ledger
from teola.profile import Profile
from teola.query.application import Application
from teola.query.result import Result
from teola.query.spec import QuerySpec, ledger_of, program_of
from teola.run_secrets import OF_NONE, Secrets
from teola.runtime.day_accounts import check_bounds
from teola.runtime.documents import (
    Prepared,
    Preparer,
    collected,
    left_out,
    passed_over,
    replaced_line,
)
from teola.runtime.live.kept_answers import KeptAnswers
from teola.runtime.live.nesting import Caller, Terms, calling
from teola.runtime.live.people import People
from teola.runtime.live.query import Ending, Watcher, as_failure, component_failure
from teola.runtime.live.steps import Steps
from teola.runtime.objectives import checked_objective
from teola.runtime.observe.demand import done
from teola.runtime.observe.kept_values import room_for
from teola.runtime.observe.noting import working_for
from teola.runtime.observe.trace import Parent, Trace
from teola.schedule.plan import Plan, writes_text
from teola.workflow.inputs import absent, check_inputs, completed, nested
from teola.workflow.kinds import LISTS, Kind

ENDS: Final = {
    "length": "the answer is cut off: it had all the tokens that it may have; raise max_tokens",
    "refusal": "the model refused to answer, and says so in place of an answer",
    "empty": "the answer is empty: the model wrote nothing, or only reasoning",
}
"""How a text may end, in words; see Trace.ends."""


class _Listener(NamedTuple):
    """Who is told of a query while it runs, and whether of its tokens as they come."""

    watcher: Watcher | None
    streams: bool


class Job:
    """One query of `app`, checked and not started.

    given: its inputs, with the defaults of those that it leaves out.
    overrides: component -> parameter -> value.
    passes: names of those that run.
    tenant, deadline_s, finish_by_s, bounds, session, asked, most_tokens, most_cost: see QuerySpec.
    budget: what it may take, with all that it shares that with (None: there is no bound).
    part_of: the program that it belongs to ("": it is one by itself).
    caller: the component that asks it, if one does.
    trace: what has run of it, from its admission on.
    people: who is asked what it asks.
    steps: what has been done of it, if that is kept.
    chunks: of its documents, once they are prepared; hidden: texts left out of them; taken,
    replaced: see Prepared.

    id: if it has one before. profile: what its passes go by, in place of what is known of the
    engines. Raises InputError, UnknownName, and QueryCancelled if it is asked by a
    component that nobody waits for.
    """

    def __init__(
        self,
        app: Application,
        ask: QuerySpec,
        *,
        id: str | None = None,
        profile: Profile | None = None,
        steps: Steps | None = None,
    ) -> None:
        check_inputs(ask.inputs, app.declared, app.name)
        self.app, self.profile = app, profile
        self.given = completed(app.declared, ask.inputs)
        self.caller = calling.get()
        self.tenant = self._tenant(ask)
        self.part_of = self._part_of(ask)
        if not ask.deadline_s > 0:
            raise InputError(f"deadline_s must be positive, got {ask.deadline_s}")
        self.finish_by_s = checked_objective(ask.finish_by_s, ask.deadline_s)
        self.deadline_s, self.bounds, self.session = ask.deadline_s, ask.bounds, ask.session
        self.asked, self.most_tokens, self.most_cost = ask.asked, ask.most_tokens, ask.most_cost
        if ask.most_tokens is not None or ask.most_cost is not None:
            check_bounds(ask.most_tokens, ask.most_cost, "most_tokens", "most_cost")
        self.secrets = Secrets(ask.secrets) if ask.secrets else OF_NONE
        self.runtime = app.home
        self.budget = self._budget(ask)
        self.runtime.fitting.add(app, app.name, app.users, self.runtime.configs)
        self.runtime.fitting.look(self.runtime.configs)
        self.overrides: Mapping[str, Mapping[str, Any]] = nested(ask.overrides)
        app.builder.configure(self.overrides)
        self.overrides = self._settled(self.overrides)
        self.passes = select(app.passes if ask.passes is None else ask.passes)
        self.id = id or uuid.uuid4().hex
        self.people = People(self.id) if self.caller is None else self._people_around()
        self.steps = steps
        self.chunks = self.hidden = self.taken = 0
        self.replaced: tuple[str, ...] = ()
        self.trace: Trace | None = None

    def _settled(self, given: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
        """The overrides, with searches by vectors alone where a component leaves that open and its
        engine has no full text. Raises InputError for one that wants words there."""
        settled = dict(given)
        for component, (engine, declared) in self.app.word_searches.items():
            mode = given.get(component, {}).get("mode", declared)
            if mode == "vector" or self.runtime.spec(engine).full_text:
                continue
            if mode == "hybrid":
                raise InputError(
                    f"component {component!r} of application {self.app.name!r} searches by words, "
                    f"too, which engine {engine!r} does not do: set {component}.mode=vector, or "
                    "give it an engine with full_text, such as Teola's 'vectorstore'"
                )
            settled[component] = {**given.get(component, {}), "mode": "vector"}
        return settled

    def _tenant(self, ask: QuerySpec) -> str:
        if ask.tenant is not None:
            return ask.tenant
        return self.caller.query.context.tenant if self.caller is not None else "default"

    def _part_of(self, ask: QuerySpec) -> str:
        """A session, else the program of the query around it, if both are of one tenant."""
        if ask.session is not None:
            return program_of(self.tenant, ask.session)
        if self.caller is None or self.caller.query.context.tenant != self.tenant:
            return ""
        return self.caller.query.context.program

    def _people_around(self) -> People:
        assert self.caller is not None
        return self.caller.query.terms.people or People(self.id)

    async def wait_for_engines(self) -> None:
        """Wait until those that it needs run; that counts as its time. Raises DeadlineExceeded,
        EngineUnavailable."""
        needed = self.app.needed_engines
        if self.runtime.runs(needed):
            return
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(self.deadline_s):
                await self.runtime.ensure(needed)
        except TimeoutError:
            raise DeadlineExceeded("the deadline passed while the engines started") from None
        self.deadline_s -= loop.time() - began

    def waiting(self) -> Result:
        """As long as it waits for people: what for."""
        assert self.trace is not None
        latency = asyncio.get_running_loop().time() - self.trace.admitted
        asks = self.people.inquiries
        return Result(self.app.name, self.id, "waiting", {}, latency, trace=self.trace, asks=asks)

    def forget(self) -> None:
        """Keep nothing of what it was given: documents may be large."""
        self.given = {}

    async def run(self, watcher: Watcher | None = None, *, streams: bool = True) -> Result:
        """The query's result. InputError and EngineUnavailable are raised, and QueryCancelled where
        the query around it has ended.

        watcher: is told tokens and progress. streams: tokens as they come; else the answer as a
        whole, once it is certain.
        """
        caller, task, before = self.caller, asyncio.current_task(), working_for.get()
        assert task is not None
        if caller is not None:
            caller.enter(task, self.app.name)
        working_for.set((self.id,))
        self.people.busy += 1
        try:
            return await self._run(_Listener(watcher, streams))
        finally:
            self.people.busy -= 1
            working_for.set(before)
            if caller is not None:
                caller.leave(task)

    async def _run(self, listener: _Listener) -> Result:
        app, runtime = self.app, self.runtime
        await runtime.ensure(app.engine_names, app.optional_engines)
        terms = self._terms()
        if not terms.depth:
            runtime.admit()
        loop = asyncio.get_running_loop()
        admitted = loop.time()
        trace = self.trace = Trace(self.id, app.name, None, admitted)
        context = QueryContext(
            self.id, self.tenant, admitted + self.deadline_s, part_of=self.part_of
        )
        if self.caller is not None:
            context = self._inside(self.caller, context, trace)
        if Kind.DOCUMENTS not in app.inputs.values():
            ending = await self._execute(self.given, {}, context, trace, terms, listener)
            return app.judged(self._result(ending))
        embedding, store, indexing = app.indexing()
        preparer = runtime.preparer(embedding, store)
        self.people.pauses[self.id] = lambda: preparer.unpin(self.id)
        try:
            prepared = await self._load(preparer, context, indexing, trace)
            self.chunks, self.hidden = len(prepared.chunks), sum(prepared.hidden.values())
            if prepared.notice:
                trace.add_notice(prepared.notice)
            self.taken, self.replaced = prepared.taken, prepared.replaced
            if prepared.hidden:
                trace.add_notice(left_out(prepared.hidden))
            if prepared.replaced:
                trace.add_notice(replaced_line(prepared.replaced))
            skip = ("documents", "collection", "filters")
            values = {k: v for k, v in self.given.items() if k not in skip}
            values |= {"chunks": prepared.chunks, "scope": prepared.scope}
            sizes = {"chunks": len(prepared.chunks)}
            ending = await self._execute(values, sizes, context, trace, terms, listener)
            result = self._result(ending)
            if result.state != "ok":
                return result
            return replace(result, outputs=app.told(result.outputs, self.given, prepared))
        finally:
            del self.people.pauses[self.id]
            await asyncio.shield(preparer.release(self.id))

    def _terms(self) -> Terms:
        """What it leaves to queries inside it. Raises QueryCancelled."""
        if self.caller is None:
            bounds = self.bounds
            return Terms(
                self.runtime,
                bounds.most_primitives,
                bounds.most_bytes,
                bounds.most_parts,
                people=self.people,
                steps=self.steps,
                secrets=self.secrets,
                values=room_for(self.runtime.keep_values, self.secrets),
                answers=KeptAnswers(self.id),
                shares_s=self.app.shares_answers_s if self.app.shares_answers else 0.0,
            )
        around = self.caller.query
        terms = around.terms  # whose steps have no names for what is inside it
        spender = around.spender
        shares_s = self.app.shares_answers_s if self.app.shares_answers else 0.0
        inside: Any = {"spender": spender, "shares_s": shares_s, "around": around.run}
        return replace(terms, depth=terms.depth + 1, steps=None, **inside)

    def _budget(self, ask: QuerySpec) -> Ledger | None:
        """What it may take: its own bound, those of the queries around it, and of its application
        and whoever asks for the day. Raises InputError for money without prices."""
        runtime, name = self.runtime, self.app.name
        around = self.caller.query.run.asker.budget if self.caller is not None else None
        others = list(ask.accounts)
        if (day := runtime.budgets.get(name)) is not None:
            others.append(runtime.days.account(f"application {name!r} today", day))
        found = ledger_of(ask, around, others)
        if found is not None and found.counts_money and not runtime.priced:
            raise InputError(
                "a bound on money needs prices: Runtime(prices={MODEL: Price(prompt, answer)}), or "
                "[prices.MODEL] in the configuration"
            )
        return found

    def _inside(self, caller: Caller, context: QueryContext, trace: Trace) -> QueryContext:
        """Link it to the query around it, which has no more time for it than for itself."""
        around = caller.query
        trace.parent = Parent(around.id, caller.primitive)
        around.trace.inner.append(trace)
        return replace(context, deadline=min(context.deadline, around.context.deadline))

    async def _load(
        self, preparer: Preparer, context: QueryContext, indexing: str | None, trace: Trace
    ) -> Prepared:
        """Prepare its documents, which is a step of the trace however it ends."""
        state = "failed"
        try:
            prepared = await self._prepare(preparer, context, indexing, trace)
            state = "done"
            return prepared
        except asyncio.CancelledError:
            state = "cancelled"
            raise
        finally:
            trace.step("load", trace.admitted, asyncio.get_running_loop().time(), state)

    async def _prepare(
        self, preparer: Preparer, context: QueryContext, indexing: str | None, trace: Trace
    ) -> Prepared:
        documents = collected(None)
        if self.given.get("documents") is not None:  # looks into directories, and at each of many
            documents = await asyncio.to_thread(collected, self.given["documents"])
        given = documents.sources
        if documents.passed_over:
            trace.add_notice(passed_over(documents.passed_over))
        collection = self.given.get("collection")
        if given and indexing is None:
            raise InputError(
                f"application {self.app.name!r} has no Indexing component and takes no documents; "
                "give it a collection"
            )
        try:
            async with asyncio.timeout_at(context.deadline):
                return await preparer.prepare(
                    given,
                    owner=self.id,
                    tenant=self.tenant,
                    collection=collection,
                    filters=self.given.get("filters") or {},
                    splitting=self.app.splitting(self.overrides),
                    asked=self.asked,
                )
        except TimeoutError:
            raise DeadlineExceeded("the deadline passed while the documents were read") from None

    async def _execute(
        self,
        values: Mapping[str, Any],
        sizes: dict[str, int],
        context: QueryContext,
        trace: Trace,
        terms: Terms,
        listener: _Listener,
    ) -> Ending:
        app, runtime = self.app, self.runtime
        sizes |= {k: len(v) for k, v in values.items() if app.inputs.get(k) in LISTS}
        optimiser = app.optimiser(runtime, self.profile)
        loop = asyncio.get_running_loop()
        began = loop.time()
        plan = optimiser.plan(
            self.overrides,
            sizes,
            self.passes,
            debug=runtime.debug,
            most_primitives=terms.most_primitives,
            absent=absent(app.declared, self.given),
            at_once=False,
        )
        trace.step("optimise", began, loop.time())
        asker = Asker(
            context.tenant,
            app.name,
            context.program,
            trace.admitted,
            self._finish_by(plan, trace),
            self.budget,
        )
        told = listener.watcher, listener.streams, terms
        self.people.busy -= 1
        try:
            return await runtime.live.execute(plan, values, context, asker, trace, *told)
        finally:
            self.people.busy += 1

    def _finish_by(self, plan: Plan, trace: Trace) -> float:
        """When its answer is wanted, on the loop's clock; of a query inside another one, no later
        than that of the one around it."""
        app = self.app
        found = self.runtime.objectives.of(
            self.finish_by_s, app.name, app.finish_by_s, plan, self.deadline_s
        )
        around = inf if self.caller is None else self.caller.query.run.asker.finish_by
        own = inf
        if found is not None and (found.stated or around == inf):
            trace.objective, own = found, trace.admitted + found.by_s
        return min(own, around)

    def _result(self, ending: Ending) -> Result:
        error: TeolaError | None = None
        if ending.failed is not None and ending.error is not None:
            error = component_failure(ending.error, ending.failed)
        elif ending.error is not None:
            error = as_failure(ending.error)
        return Result(
            self.app.name,
            self.id,
            ending.state.value,
            ending.outputs,
            ending.trace.latency_s,
            missing=ending.missing,
            reasons={**_failures(ending.trace), **ending.reasons},
            error=error,
            trace=ending.trace,
            notices=self._notices(ending.trace) if error is None else (),
        )

    def _notices(self, trace: Trace) -> tuple[str, ...]:
        """What to know of how the answer was made: what the engines that wrote a text say of it,
        how their texts ended, and what grew says of itself."""
        # A text that only a part has written is the query's too, such as a candidate's in a loop.
        wrote = [part for part in _with_inner(trace) if part.plan is not None and part.plan.texts]
        if not (wrote or trace.ends or trace.notices or trace.failures):
            return ()
        primitives = (p for part in wrote for p in done(part))
        engines = dict.fromkeys(p.engine for p in primitives if writes_text(p))
        said = (self.runtime.spec(name).notice for name in engines)
        ends = (told for end, told in ENDS.items() if end in trace.ends)
        failed = (f"{name}: {told}" for name, told in _failures(trace).items())
        return tuple(dict.fromkeys((*filter(None, said), *ends, *trace.notices, *failed)))


def _with_inner(trace: Trace) -> Iterator[Trace]:
    """A trace, and those of its parts and of the queries inside it."""
    yield trace
    for inner in trace.inner:
        yield from _with_inner(inner)


def _failures(trace: Trace) -> dict[str, str]:
    return {name: str(one) for name, one in trace.failures.items() if one.reasons}
