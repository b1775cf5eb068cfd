"""The application of the server's own that indexes documents; its result says what it has done."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import Any, Final

from teola.app import App
from teola.collections import STORE
from teola.engine import QueryContext
from teola.errors import InputError
from teola.profile import Profile
from teola.query.job import Job
from teola.query.result import Result
from teola.query.spec import QuerySpec
from teola.runtime.documents import Prepared, Preparer
from teola.runtime.live.query import Watcher
from teola.runtime.observe.trace import Trace
from teola.runtime.runtime import Runtime
from teola.workflow.components import Indexing

NAME: Final = "index-documents"
"""As queries of it are listed; no application that is served may have it."""


class IndexingApp(App):
    """Takes `documents` and a `collection`; gives {"collection", "documents", "new", "known",
    "replaced", "taken", "chunks", "hidden"}, as `teola.collections.index` does."""

    def __init__(self, runtime: Runtime, served: Container[str] = ()) -> None:
        """served: names of applications. Raises InputError if one is this one's."""
        if NAME in served:
            raise InputError(f"no application may be called {NAME!r}, as the server's own is")
        super().__init__(
            NAME,
            Indexing(store=STORE),
            inputs={"documents": "documents"},
            outputs={"stored": "stored"},
            description="Indexes documents into a collection",
            runtime=runtime,
        )

    def job(self, ask: QuerySpec, *, id: str | None = None, profile: Profile | None = None) -> Job:
        """One query, checked but not started."""
        return _IndexingJob(self, ask, id=id, profile=profile)


class _IndexingJob(Job):
    """Tells what was stored in numbers and names, and not chunk by chunk."""

    _told: dict[str, Any]

    async def run(self, watcher: Watcher | None = None, *, streams: bool = True) -> Result:
        """See Job."""
        result = await super().run(watcher, streams=streams)
        return replace(result, outputs=self._told) if result.state == "ok" else result

    async def _load(
        self, preparer: Preparer, context: QueryContext, indexing: str | None, trace: Trace
    ) -> Prepared:
        prepared = await super()._load(preparer, context, indexing, trace)
        new = prepared.new + prepared.taken
        self._told = {
            "collection": self.given["collection"],
            "documents": new + prepared.known,
            "new": new,
            "known": prepared.known,
            "replaced": list(prepared.replaced),
            "taken": prepared.taken,
            "chunks": len(prepared.chunks),
            "hidden": sum(prepared.hidden.values()),
        }
        return prepared
