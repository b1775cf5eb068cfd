"""App: a template with a name, and everything one can do with it.

app = App("my-rag", template=index >> embed >> search >> generate,
          inputs={"question": "text", "documents": "documents"},
          outputs={"answer": "answer"})
app.run(question="Why?", documents="notes.pdf")
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any

from teola.explain import Explanation
from teola.graph import Inquiry, ToolStep
from teola.profile import Profile, load_profile
from teola.query import ways
from teola.query.application import Application
from teola.query.job import Job
from teola.query.parameters import ResumeCall, RunCall, parameters_of, resume_call, run_call_of
from teola.query.result import Result
from teola.query.spec import DEADLINE_S, Overrides, Passes, QuerySpec
from teola.runtime.documents import collected
from teola.runtime.live.query import Progress, Token
from teola.runtime.optimiser import Optimiser
from teola.sim_result import SimResult
from teola.simulation import PLANNED_CHUNKS, Branch, Workload, simulate
from teola.workflow.inputs import absent, by_name, completed, nested
from teola.workflow.kinds import LISTS, Kind


class App(Application):
    """An application that answers queries.

    name: as users type it. template: components joined by `>>`. inputs: name -> kind ("text",
    "texts", "documents", "any"), or an Input, which may have a default. outputs: name -> name in
    the template. finish_by_s: seconds by which an answer is wanted, the objective of queries that
    state none (docs/scheduling.md). passes: which optimisation passes run ("all", "none", "a,b").
    runtime: where it runs; by default one shared by all. version: yours; queries that outlive their
    server are taken over by the same one only. on_unknown: what happens to such a query where it is
    not known whether a function that may change the world has ended: people are asked, or it fails.
    shares_answers: calls of LLMs that are equal to the last parameter, at temperature 0, are made
    once for all queries of a tenant, while one is under way and for `shares_answers_s` seconds
    after it (within a query they always are). Raises TemplateError where the template cannot run,
    and UnknownName where the runtime has not an engine that it names.
    """

    # --- running --------------------------------------------------------------------------

    @parameters_of(run_call_of)
    def run(self, call: RunCall) -> Result:
        """Answer one query; inputs by keyword or as a mapping.

        overrides: parameters of components for this query, {"search.top_k": 4} or {"search":
        {"top_k": 4}}. deadline_s: seconds until it is given up. finish_by_s: seconds by which its
        answer is wanted, its objective (docs/scheduling.md); nothing is given up then. tenant:
        whose documents it sees. session: a name of the tenant's for what this query is a turn of,
        such as a conversation, by which routing policies know what comes back (docs/routing.md).
        most_tokens, most_cost: that all its calls of LLMs may take, with those of its parts, its
        agents and the queries inside it (docs/agents.md#one-budget); what finds no room any more
        is left out, and the result `partial`. most_cost needs `prices` of the Runtime.
        secrets: by name, for its tools only (`ToolContext.secret`); they are never written down.
        on_ask: answers what it asks people (docs/people-in-the-loop.md), in another thread or, if
        it is async, on the runtime's loop; without it the result of a query that waits has the
        state `waiting` and what it `asks`, and `resume` goes on. Called in a component, it is a
        part of the query around it: it shares that one's runtime (unless the app has its own),
        tenant and time, and ends with it. Raises InputError before anything starts, and
        QueryFailed, DeadlineExceeded or QueryCancelled if there is no answer.
        """
        return ways.wait(self, call)

    @parameters_of(run_call_of)
    async def arun(self, call: RunCall) -> Result:
        """`run` for async code; cancelling it cancels the query."""
        return await ways.awaited(self, call)

    @parameters_of(resume_call)
    def resume(self, reply: ResumeCall) -> Result:
        """Answer what a query of this app waits for, and wait on: for its end, or until it waits
        again. ask: id of the question, where it has asked several. Without an answer, go on with a
        query in the runtime's journal whose process has died. secrets: see `run`; they are kept in
        memory only, so a query that another process began needs them again.

        Raises InputError for an answer that does not fit its question's schema, UnknownName for a
        query that does not wait here or a question that is not open, Answered where somebody was
        faster, and CodeChanged where another version of the app began it.
        """
        return ways.resume(self, reply)

    @parameters_of(resume_call)
    async def aresume(self, reply: ResumeCall) -> Result:
        """`resume` for async code."""
        return await ways.resumed(self, reply)

    def waiting(self, tenant: str = "default") -> list[Inquiry]:
        """Questions of its queries that wait for people, here and in the runtime's journal."""
        return ways.waits(self, tenant)

    def cancel(self, query_id: str, tenant: str = "default") -> None:
        """Give up a query that waits. Raises UnknownName if none of that id does."""
        ways.cancel(self, query_id, tenant)

    def batch(
        self,
        queries: Iterable[Mapping[str, Any]],
        *,
        overrides: Overrides | None = None,
        passes: Passes = None,
        deadline_s: float = DEADLINE_S,
        finish_by_s: float | None = None,
        tenant: str | None = None,
        most_tokens: int | None = None,
        most_cost: float | None = None,
        on_done: Callable[[int, Result], None] | None = None,
    ) -> list[Result]:
        """Answer many queries at once; they share the engines' batches.

        One result for each, in order; a query that failed has its `state` and `error` there. Every
        query's inputs are checked before the first one starts. most_tokens, most_cost: as of `run`,
        for each query. on_done: called (in another thread) with the position and result of each
        query as it ends.
        """
        how = overrides or {}, passes, deadline_s, tenant
        most: Any = {"most_tokens": most_tokens, "most_cost": most_cost, "finish_by_s": finish_by_s}
        jobs = [ways.job_of(self, QuerySpec(dict(q), *how, **most)) for q in queries]
        return ways.wait_for_all(jobs, on_done)

    @parameters_of(run_call_of)
    def stream(self, call: RunCall) -> Iterator[Token | Progress | ToolStep | Result]:
        """Tokens of the final answer, progress, and steps of agents (`ToolStep` of teola.tools) as
        they come; the Result is the last item.

        Leaving the loop early cancels the query. The inputs are checked at once. on_ask: answers
        what it asks people, in the thread of the loop, once nothing else can run; without it the
        Result of a query that waits is the last item, too, and `resume` goes on.
        """
        return ways.follow(ways.job_of(self, call.spec), call.on_ask)

    @parameters_of(run_call_of)
    def astream(self, call: RunCall) -> AsyncIterator[Token | Progress | ToolStep | Result]:
        """`stream` for async code."""
        return ways.follow_here(ways.job_of(self, call.spec), call.on_ask)

    # --- looking --------------------------------------------------------------------------

    def explain(
        self,
        inputs: Mapping[str, Any] | None = None,
        /,
        *,
        profile: Profile | str | None = None,
        overrides: Overrides | None = None,
        passes: Passes = None,
        analyze: bool = False,
        **more: Any,
    ) -> Explanation:
        """How a query would run: p-graph, e-graph, what each pass did and why, and the times.

        profile: `paper-13b`, a file or a Profile; by default what is known by now. Without
        documents, 48 chunks are assumed. analyze: run it, and put what was measured beside; the
        graphs are then those that ran.
        """
        stated = by_name(inputs, more)
        values = completed(self.declared, stated)
        lacks = absent(self.declared, values) if stated else frozenset()
        runtime = self.home
        names = self.engine_names
        if isinstance(profile, str):
            profile = load_profile(profile)
        chosen = (
            profile.for_engines([runtime.spec(name) for name in names])
            if profile
            else runtime.profile_for(names, newest=not analyze)
        )
        if analyze:
            ask = QuerySpec(values, overrides or {}, passes, tenant="default")
            job = self.job(ask, profile=chosen)
            result = runtime.start(job.run()).result().checked()
            return Explanation.of_run(chosen, result, runtime.price_of)
        sizes = self._list_sizes(values)
        if values.get("documents") is not None:
            sizes["chunks"] = runtime.start(self._count(values, overrides)).result()
        optimised = Optimiser(self.builder, chosen).optimise(
            nested(overrides),
            sizes,
            self.passes if passes is None else passes,
            debug=True,
            absent=lacks,
        )
        return Explanation(self.name, optimised, chosen, price_of=runtime.price_of)

    def simulate(
        self,
        *,
        rate: float,
        queries: int = 600,
        pools: Mapping[str, int] | None = None,
        profile: Profile | str | None = None,
        inputs: Mapping[str, Any] | None = None,
        lengths: Mapping[str, int] | None = None,
        branches: Mapping[str, Branch] | None = None,
        overrides: Overrides | None = None,
        batching: str | None = None,
        routing: str | None = None,
        seed: int = 0,
    ) -> SimResult:
        """How it would do under load, in virtual time and without an engine (docs/operations.md).

        rate: queries a second, which arrive by chance. queries: how many. pools: engine -> number
        of instances, where not as configured. profile: `paper-13b`, a file or a Profile; by default
        what is known by now. inputs: name -> tokens of a text, a list of those, or a text as long;
        of documents the number of their chunks (0: they are stored already). lengths: component ->
        tokens of its answer, of each item of its list, or of each of its hits. branches: condition
        -> a branch, or how often each is taken, such as {"then": 3, "otherwise": 1}. batching,
        routing: other policies than those configured. seed: the same one gives the same figures.

        Raises UnknownName and InputError, also where the times of an engine are not known.
        """
        load = Workload(
            rate,
            queries,
            pools or {},
            profile,
            inputs or {},
            lengths or {},
            branches or {},
            overrides,
            batching,
            routing,
            seed,
        )
        return simulate(self, load)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return self.explain()._repr_mimebundle_()

    def job(self, ask: QuerySpec, *, id: str | None = None, profile: Profile | None = None) -> Job:
        """One query, checked but not started; see Job."""
        return Job(self, ask, id=id, profile=profile)

    def _list_sizes(self, values: Mapping[str, Any]) -> dict[str, int]:
        lists = {k: len(v) for k, v in values.items() if self.inputs.get(k) in LISTS}
        if Kind.DOCUMENTS in self.inputs.values():
            lists["chunks"] = PLANNED_CHUNKS
        return lists

    async def _count(self, values: Mapping[str, Any], overrides: Overrides | None) -> int:
        """Chunks of the given documents, without storing anything."""
        embedding, store, _ = self.indexing()
        runtime = self.home
        await runtime.ensure(["documents", embedding, store])
        preparer = runtime.preparer(embedding, store)
        splitting = self.splitting(nested(overrides))
        return await preparer.count(collected(values["documents"]).sources, splitting)
