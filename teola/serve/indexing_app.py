"""The application of the server's own that indexes documents; its result says what it has done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from teola.app import App
from teola.collections import STORE
from teola.job import Job
from teola.profile import Profile
from teola.query_spec import QuerySpec
from teola.result import Result
from teola.runtime.live.query import Watcher
from teola.runtime.runtime import Runtime
from teola.workflow.components import Indexing

NAME: Final = "index-documents"
"""As queries of it are listed; no application that is served may have it."""


class IndexingApp(App):
    """Takes `documents` and a `collection`; gives {"collection", "documents", "new", "known",
    "replaced", "taken", "chunks", "hidden"}, as `teola.collections.index` does."""

    def __init__(self, runtime: Runtime) -> None:
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
    async def run(self, watcher: Watcher | None = None, *, streams: bool = True) -> Result:
        """See Job; what was stored is told in numbers and names, not chunk by chunk."""
        result = await super().run(watcher, streams=streams)
        return replace(result, outputs=self._told()) if result.state == "ok" else result

    def _told(self) -> dict[str, Any]:
        raise NotImplementedError
