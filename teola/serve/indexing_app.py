"""The application of the server's own that indexes documents; its result says what it has done."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Final

from teola.app import App
from teola.collections import STORE
from teola.errors import InputError
from teola.runtime.documents import Prepared
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

    def told(
        self, outputs: Mapping[str, Any], given: Mapping[str, Any], prepared: Prepared
    ) -> Mapping[str, Any]:
        """What was stored in numbers and names, and not chunk by chunk."""
        new = prepared.new + prepared.taken
        return {
            "collection": given["collection"],
            "documents": new + prepared.known,
            "new": new,
            "known": prepared.known,
            "replaced": list(prepared.replaced),
            "taken": prepared.taken,
            "chunks": len(prepared.chunks),
            "hidden": sum(prepared.hidden.values()),
        }
