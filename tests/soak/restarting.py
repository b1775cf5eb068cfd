"""Two servers of one database are restarted in turn under load: no background query fails."""

from __future__ import annotations

import logging
import random
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from tests.serve.mortal import Document, Mortal, document, mortal, place, wanted

SERVERS: Final = 2
PAUSE_S: Final = 0.5
"""For each batch of eight lines; a server runs four batches at a time."""
LINES: Final = 16
CAPACITY: Final = SERVERS * 4 * 8 / PAUSE_S / LINES
"""Documents a second."""
LOAD: Final = 0.8
COLLECTION: Final = "rolled"
PATIENCE_S: Final = 60.0
"""A client gives up if no server has taken its query by then."""

log = logging.getLogger(__name__)


@dataclass
class Clients:
    """Ask at random moments, of whichever server takes it. asked: document -> id of its query.
    elsewhere: how often another server had to be asked."""

    rng: random.Random
    servers: list[Mortal] = field(default_factory=list)
    asked: dict[str, str] = field(default_factory=dict)
    documents: list[Document] = field(default_factory=list)
    elsewhere: int = 0
    stopped: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None

    def run(self) -> None:
        """Until `stopped` is set."""
        try:
            while not self.stopped.wait(self.rng.expovariate(LOAD * CAPACITY)):
                self._ask(document(f"doc-{len(self.documents)}", LINES))
        except Exception as error:  # noqa: BLE001 - a thread's edge: `restarting` raises it
            self.error = error

    def _ask(self, one: Document) -> None:
        self.documents.append(one)
        until = time.monotonic() + PATIENCE_S
        while (id := self._accepted(one)) is None:
            assert time.monotonic() < until, f"nobody takes {one['name']}"
            self.elsewhere += 1
            time.sleep(0.05)
        self.asked[one["name"]] = id

    def _accepted(self, one: Document) -> str | None:
        """Id of the query; None if this server does not take it, or does not say."""
        server = self.rng.choice(self.servers)
        inputs = {"documents": [one], "collection": COLLECTION}
        body = {"inputs": inputs, "mode": "background", "deadline_s": 600}
        where, key = f"{server.url}/v1/apps/ingesting/queries", {"Idempotency-Key": one["name"]}
        try:
            found = httpx.post(where, json=body, headers=key, timeout=60)
        except httpx.TransportError:
            return None
        if found.status_code in (429, 503):
            return None
        assert found.status_code in (200, 202), found.text
        return str(found.json()["query_id"])


def restarting(restarts: int, seed: int) -> dict[str, Any]:
    """Stop and start servers in turn, so many times; how all queries ended."""
    clients = Clients(random.Random(seed))
    with place() as (folder, database), ExitStack() as stack:
        clients.servers = [stack.enter_context(_server(folder)) for _ in range(SERVERS)]
        thread = threading.Thread(target=clients.run)
        thread.start()
        codes = []
        try:
            for i in range(restarts):
                time.sleep(1.0)
                old = clients.servers[i % SERVERS]
                codes.append(old.end(signal.SIGTERM))
                clients.servers[i % SERVERS] = stack.enter_context(_server(folder))
                log.info("%d of %d restarts, %d queries", i + 1, restarts, len(clients.asked))
        finally:
            clients.stopped.set()
            thread.join()
        if clients.error is not None:
            raise clients.error
        last = clients.servers[0]
        states = Counter(last.ended(id, 600)["state"] for id in clients.asked.values())
        exact = database.stored(COLLECTION) == wanted(clients.documents)
        return {
            "restarts": restarts,
            "exit_codes": codes,
            "queries": len(clients.asked),
            "asked_elsewhere": clients.elsewhere,
            "states": dict(states),
            "chunks_equal": exact and database.pending() == 0,
        }


def _server(folder: Path) -> Any:
    return mortal(folder, ("ingesting",), drain_s=1.0, pause_s=PAUSE_S)
