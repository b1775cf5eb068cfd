"""Vectors of texts for an engine that finds texts by meaning, through the core.

    an engine's thread ─▶ a plan of one primitive ─▶ the queue of `embedding` ─▶ vectors
                          (inside the query that asks, if one does)

Work inside a query ends with that query and stands in its trace. Work in the background is a query
by itself, and is refused like any other where there are too many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, wait
from dataclasses import replace
from hashlib import blake2b
from math import inf
from typing import Any, Final, Literal, Protocol
from uuid import uuid4

from teola.engine import QueryContext
from teola.errors import QueryCancelled, TeolaError
from teola.learning import Learner
from teola.policies.asker import Asker
from teola.profile import Profile
from teola.runtime.engines import DEFAULTS, EMBEDDING, EngineConfig
from teola.runtime.live.nesting import Caller, Terms, calling
from teola.runtime.live.query import as_failure
from teola.runtime.observe.trace import Parent, Trace
from teola.runtime.optimiser import Optimiser
from teola.schedule.events import State
from teola.workflow.build import Builder
from teola.workflow.components import Embedding
from teola.workflow.kinds import Kind

NAME: Final = "text-vectors"
LOOK_S: Final = 0.1
"""How often whoever waits is asked whether the vectors are still wanted."""
EmbeddingRole = Literal["query", "document"]


class VectorsHome(Protocol):
    """What is needed of a runtime."""

    learner: Learner | None

    @property
    def configs(self) -> Mapping[str, EngineConfig]: ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def live(self) -> Any: ...

    def admit(self) -> None: ...

    def declared_for(self, names: Iterable[str]) -> Profile: ...

    def start(self, work: Coroutine[Any, Any, Any], *, blocks: bool = True) -> Future[Any]: ...

    async def ensure(self, names: Iterable[str], optional: Collection[str] = ()) -> None: ...


class EmbeddedTexts:
    """A `TextVectors` of one runtime."""

    def __init__(self, home: VectorsHome) -> None:
        self._home = home
        self._optimisers: dict[EmbeddingRole, Optimiser] = {}

    @property
    def configured(self) -> bool:
        """Whether it is another engine than the one that runs by default."""
        config, default = self._home.configs[EMBEDDING], DEFAULTS[EMBEDDING]
        return replace(config, **_POLICIES) != replace(default, **_POLICIES)

    @property
    def identity(self) -> str:
        """Of the configuration, which names the model."""
        config = self._home.configs[EMBEDDING]
        told = repr((config.source, config.instance_names(EMBEDDING)))
        return blake2b(told.encode(), digest_size=8).hexdigest()

    def __call__(
        self,
        texts: Sequence[str],
        role: EmbeddingRole,
        *,
        tenant: str,
        wanted: Callable[[], bool],
    ) -> Sequence[Any]:
        """See `TextVectors`."""
        caller = calling.get()
        if caller is not None and caller.over:
            raise QueryCancelled("the query that asks for vectors has ended")
        future = self._home.start(self._embedded(list(texts), role, tenant, caller))
        while wait([future], LOOK_S).not_done:
            if not wanted():
                future.cancel()
                raise QueryCancelled("nobody waits for these vectors any more")
        try:
            vectors: Sequence[Any] = future.result()
        except CancelledError:
            raise QueryCancelled("the runtime is closed") from None
        return vectors

    async def _embedded(
        self, texts: list[str], role: EmbeddingRole, tenant: str, caller: Caller | None
    ) -> Sequence[Any]:
        home = self._home
        await home.ensure([EMBEDDING])
        id, now = uuid4().hex, home.loop.time()
        context, terms = QueryContext(id, tenant), Terms()
        trace = Trace(id, NAME, None, now)
        finish_by = inf
        if caller is None:
            home.admit()
        else:
            around = caller.query
            terms = replace(around.terms, depth=around.terms.depth + 1, steps=None)
            context = replace(
                context, deadline=around.context.deadline, part_of=around.context.program
            )
            trace.parent = Parent(around.id, caller.primitive)
            around.trace.inner.append(trace)
            finish_by = around.run.asker.finish_by
        plan = self._optimiser(role).plan({}, {"texts": len(texts)}, "all")
        asker = Asker(tenant, NAME, context.program, now, finish_by)
        ending = await home.live.execute(
            plan, {"texts": texts}, context, asker, trace, None, False, terms
        )
        if ending.state is not State.OK:
            error = ending.error
            raise (
                as_failure(error)
                if error is not None
                else TeolaError(f"embedding ended as {ending.state.value}")
            )
        vectors: Sequence[Any] = ending.outputs["vectors"]
        return vectors

    def _optimiser(self, role: EmbeddingRole) -> Optimiser:
        if role not in self._optimisers:
            template = Embedding(inputs={"texts": "texts"}, role=role)
            inputs, outputs = {"texts": Kind.TEXTS}, {"vectors": "vectors"}
            builder = Builder(NAME, template, inputs, outputs)
            declared = self._home.declared_for([EMBEDDING])
            self._optimisers[role] = Optimiser(builder, declared, self._home.learner)
        return self._optimisers[role]


_POLICIES: Final[Any] = {
    key: getattr(EngineConfig(EMBEDDING), key)
    for key in ("batching", "routing", "batching_options", "routing_options")
}
"""What does not make another engine."""
