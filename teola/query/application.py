"""Application: what an app is, apart from asking it: its definition, checked, and its plans.

An `App` is one that can be asked. A Job, which runs one query, needs only what stands here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Literal
from weakref import WeakKeyDictionary

from teola.engine import Splitting
from teola.errors import InputError
from teola.graph import DecodeParams, WaitParams
from teola.passes import select
from teola.profile import Profile
from teola.runtime.default_runtime import default_runtime
from teola.runtime.documents import Prepared
from teola.runtime.live.nesting import calling
from teola.runtime.objectives import checked_objective
from teola.runtime.optimiser import Optimiser
from teola.runtime.runtime import Runtime
from teola.tools.base import Tool
from teola.tools.mcp_server import ToolServer
from teola.workflow.build import Builder
from teola.workflow.component import Component, Template
from teola.workflow.components import Agent, Embedding, Indexing, Search
from teola.workflow.inputs import Input, absent, declared, kinds_of
from teola.workflow.kinds import Kind
from teola.workflow.part_template import all_primitives

if TYPE_CHECKING:
    from teola.query.result import Result

SHARED_S: Final = 600.0
"""For how long an application's answers are shared that shares them."""
RENEWED_S: Final = 0.2
"""After which a plan is made anew: the first calls of the query that needed it are out by then."""


def _later(renew: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(RENEWED_S, renew)


class Application:
    """A template with a name, what it takes and gives, and where it runs; see App.

    users: engine -> a component that uses it. optimisers: those of each runtime that it has run on,
    by profile, with the plans that they have made.
    """

    def __init__(
        self,
        name: str,
        template: Component | Template,
        *,
        inputs: Mapping[str, str | Kind | Input],
        outputs: Mapping[str, str],
        description: str = "",
        passes: str | Sequence[str] | None = "all",
        runtime: Runtime | None = None,
        version: str = "",
        on_unknown: Literal["ask", "fail"] = "ask",
        finish_by_s: float | None = None,
        shares_answers: bool = False,
        shares_answers_s: float = SHARED_S,
    ) -> None:
        self.name, self.description = name, description
        if on_unknown not in ("ask", "fail"):
            raise InputError(f"on_unknown must be 'ask' or 'fail', got {on_unknown!r}")
        self.version, self.on_unknown = version, on_unknown
        self.finish_by_s = checked_objective(finish_by_s)
        if not (shares_answers_s > 0):
            raise InputError(f"shares_answers_s must be positive, got {shares_answers_s!r}")
        self.shares_answers, self.shares_answers_s = shares_answers, shares_answers_s
        self.declared = declared(inputs)
        self.inputs = kinds_of(self.declared)
        self.builder = Builder(name, template, self.inputs, outputs, absent(self.declared))
        self.users = self._users()
        self.passes = passes if passes is None or isinstance(passes, str) else tuple(passes)
        select(self.passes)
        self.runtime = runtime
        self.optimisers: WeakKeyDictionary[Runtime, dict[str, Optimiser]] = WeakKeyDictionary()

    @cached_property
    def optional_engines(self) -> frozenset[str]:
        """Those that only optional components use."""
        needed = {p.engine for p in all_primitives(self.builder) if not p.optional}
        if Kind.DOCUMENTS in self.inputs.values():
            needed |= {"documents", *self.indexing()[:2]}
        return frozenset(self.engine_names) - needed

    @cached_property
    def asks(self) -> bool:
        """Whether a query of it may ask people."""
        return any(isinstance(p.params, WaitParams) for p in all_primitives(self.builder))

    @cached_property
    def code(self) -> str:
        """Digest of what it is: its graph with those of its parts, what it takes and gives, its
        version. What was done of a query means something to an app of the same digest only."""
        takes = sorted((name, kind.value) for name, kind in self.inputs.items())
        told: list[Any] = [self.name, self.version, takes, sorted(self.outputs)]
        for p in all_primitives(self.builder):
            reads = [(ref.producer, ref.port) for ref in p.refs()]
            params = p.params
            more = (params.parser, params.schema) if isinstance(params, DecodeParams) else ()
            told.append((p.id, p.op.value, p.engine, p.outputs, reads, more))
        return blake2b(repr(told).encode(), digest_size=16).hexdigest()

    @cached_property
    def tool_sources(self) -> tuple[ToolServer | str, ...]:
        """Servers of tools that its agents use, and names of tools and servers."""
        agents = (c for c in self.builder.inside.values() if isinstance(c, Agent))
        sources = (source for agent in agents for source in agent.tools.sources)
        return tuple(dict.fromkeys(s for s in sources if not isinstance(s, Tool)))

    @property
    def needed_engines(self) -> list[str]:
        """Those without which it has no answer."""
        return [name for name in self.engine_names if name not in self.optional_engines]

    @cached_property
    def engine_names(self) -> list[str]:
        """Engines that this application uses, those of the step before the graph included."""
        return list(self.users)

    @cached_property
    def word_searches(self) -> Mapping[str, tuple[str, str]]:
        """Components that search by words, too, unless a query says otherwise -> their engines, and
        the modes that they have."""
        return {
            name: (c.engine, c.mode)
            for name, c in self.builder.inside.items()
            if isinstance(c, Search) and c.mode != "vector"
        }

    def _users(self) -> dict[str, str]:
        """Engine -> a component that uses it ("" for the step before the graph)."""
        users: dict[str, str] = {}
        for p in all_primitives(self.builder):
            if p.engine:
                users.setdefault(p.engine, p.component)
        if Kind.DOCUMENTS in self.inputs.values():
            for name in ("documents", *self.indexing()[:2]):
                users.setdefault(name, "")
        return users

    def __repr__(self) -> str:
        return f"App({self.name!r}, inputs={list(self.inputs)}, outputs={list(self.outputs)})"

    @property
    def outputs(self) -> list[str]:
        """Names of what it answers."""
        return list(self.builder.finals)

    @property
    def runtime(self) -> Runtime | None:
        """Where it runs; None: where all do that name none. Setting it raises UnknownName if that
        runtime has not an engine that a component names."""
        return self._runtime

    @runtime.setter
    def runtime(self, runtime: Runtime | None) -> None:
        if runtime is not None:
            runtime.fitting.add(self, self.name, self.users, runtime.configs)
        self._runtime = runtime

    @property
    def home(self) -> Runtime:
        """Where a query runs that is asked now: its own runtime, that of the component which asks,
        or the default one."""
        if self.runtime is not None:
            return self.runtime
        caller = calling.get()
        around = caller.query.terms.runtime if caller is not None else None
        return around if isinstance(around, Runtime) else default_runtime()

    def indexing(self) -> tuple[str, str, str | None]:
        """Embedding engine, store, and the indexing component of this template."""
        components = self.builder.template.components
        for c in components:
            if isinstance(c, Indexing):
                return c.engine, c.store, c.name
        embedding = next((c.engine for c in components if isinstance(c, Embedding)), "embedding")
        store = next((c.engine for c in components if isinstance(c, Search)), "vectorstore")
        return embedding, store, None

    def splitting(self, overrides: Mapping[str, Mapping[str, Any]]) -> Splitting:
        """How its documents are cut into chunks under `overrides`."""
        name = self.indexing()[2]
        if name is None:
            return Splitting()
        config: Any = self.builder.configure(overrides)[name]
        return Splitting(config.chunk_size, config.overlap)

    def judged(self, result: Result) -> Result:
        """How a query ended, for whoever asked; what it gave may say more than that it ran."""
        return result

    def told(
        self, outputs: Mapping[str, Any], given: Mapping[str, Any], prepared: Prepared
    ) -> Mapping[str, Any]:
        """What a query answers that was given this, documents among it, and ended well."""
        return outputs

    def optimiser(self, runtime: Runtime, profile: Profile | None) -> Optimiser:
        """Plans for `runtime` under `profile`, or (None) under what is known of its engines."""
        of = self.optimisers.setdefault(runtime, {})
        key = profile.name if profile else ""
        found = of.get(key)
        if found is None or (profile is not None and found.declared != profile):
            if profile is None:
                declared = runtime.declared_for(self.engine_names)
                found = Optimiser(self.builder, declared, runtime.learner, later=_later)
            else:
                found = Optimiser(self.builder, profile)
            of[key] = found
        return found
