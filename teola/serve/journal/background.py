"""Background queries as clients see them: accepted once, found again after any restart."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from teola.app import App
from teola.query.event_log import Event
from teola.query.journal import durable
from teola.query.journal.journal import Journal
from teola.query.journal.lost import (
    UNREADABLE,
    UNREADABLE_CODE,
    JournalLost,
    JournalUnreadable,
)
from teola.query.journal.query_rows import Asked, Body, Kept, digest_of
from teola.serve.access.auth import PAYING, paid_by
from teola.serve.board import RUN, Board
from teola.serve.intake.query_request import QueryRequest
from teola.serve.intake.uploads import Upload
from teola.serve.journal.keeper import Keeper
from teola.serve.problems import problem
from teola.serve.streaming import SILENCE, SILENCE_S, Events, EventStream, numbered_event

KEY: Final = "idempotency-key"
_ID: Final = re.compile(r"[0-9a-f]{32}")
UNREADABLE_ASKS: Final[dict[str, Any]] = {"code": UNREADABLE_CODE}
CANCEL_S: Final = 10.0
"""How long a client waits for another server to cancel."""


class Background:
    """See the module."""

    def __init__(self, keeper: Keeper, board: Board) -> None:
        self._keeper, self._journal, self._board = keeper, keeper.journal, board

    # --- asking -----------------------------------------------------------------------------

    async def accept(
        self, request: Request, name: str, app: App, query: QueryRequest, upload: Upload
    ) -> Response:
        """Commit a query, begin it, and say so; with a key that is known, only say so.

        Raises InputError, Overloaded, Draining, JournalLost.
        """
        tenant, key = request.scope["tenant"], _key(request)
        await self._keeper.ready()
        body = Body(
            inputs=query.inputs,
            overrides=query.overrides,
            passes=query.passes,
            session=query.session,
            finish_by_s=query.finish_by_s,
            most_tokens=query.most_tokens,
            most_cost=query.most_cost,
        )
        packed, files = await asyncio.to_thread(body.packed)
        digested = f"{name}\n{packed}"  # whichever of the tenant's keys pays
        if (body := body.paid_by(request.scope.get(PAYING))).key is not None:
            packed, files = await asyncio.to_thread(body.packed)
        digest = await asyncio.to_thread(digest_of, digested, files) if key else None
        if key and (earlier := await self._journal.known(tenant, key, digest)):
            upload.remove()
            return self._accepted(earlier)
        spec, cleanup = paid_by(request, query.ask(tenant)), upload.remove
        entry = self._board.start(app, spec, mode="background", cleanup=cleanup, keeps="accept")
        what = (entry.id, tenant, name, packed, entry.created, query.deadline_s, app.code)
        earlier = await self._board.desk.accept(entry, Asked(*what, files, key, digest))
        if earlier is not None:
            return self._accepted(earlier)
        return _accepted(entry.summary())

    def _accepted(self, kept: Kept) -> Response:
        """What the first one with this key was told, as far as it has come since."""
        entry = self._board.find(kept.id, kept.tenant)
        summary = entry.summary() if entry else kept.summary()
        return _accepted(summary, {"idempotency-replayed": "true"})

    # --- looking ----------------------------------------------------------------------------

    async def find(self, id: str, tenant: str) -> Kept | None:
        """A query of the tenant's that the board does not know. Raises JournalLost."""
        if self._board.find(id, tenant) is not None or not _ID.fullmatch(id):
            return None
        await self._keeper.ready()
        return await self._journal.find(tenant, id)

    async def all(
        self, tenant: str, app: str | None, state: str | None, most: int, apart: Collection[str]
    ) -> list[dict[str, Any]]:
        """Summaries of the tenant's queries but for some ids; none if the journal is away."""
        if "\0" in f"{app}{state}" or not self._keeper.opened.is_set():
            return []
        try:
            rows = await self._journal.all(tenant, app, state, most, apart)
            waiting = [kept.id for kept in rows if kept.state == "waiting"]
            asks = await self._open(tenant, waiting)
        except JournalLost:
            return []
        return [{**kept.summary(), **asks.get(kept.id, {})} for kept in rows]

    async def cancel(self, kept: Kept) -> dict[str, Any]:
        """Have it cancelled, wherever it runs; its summary then. Raises JournalLost."""
        if kept.ended:
            return kept.summary()
        with self._journal.hearing(kept.id) as heard:
            await self._board.desk.give_up(kept)
            try:
                async with asyncio.timeout(CANCEL_S):
                    while not kept.ended:
                        await heard.wait()
                        heard.clear()
                        kept = await self._journal.find(kept.tenant, kept.id) or kept
            except TimeoutError:
                pass  # its server is slow, or just dying: it is noted, and whoever takes it ends it
        return kept.summary()

    async def shown(self, kept: Kept) -> dict[str, Any]:
        """What clients see of a query that another server runs, or none. Raises JournalLost and
        JournalUnreadable."""
        whole = await asyncio.to_thread(kept.shown)
        asks = await self._open(kept.tenant, [kept.id] if kept.state == "waiting" else [])
        if asks.get(kept.id) == UNREADABLE_ASKS:
            raise JournalUnreadable(UNREADABLE.format(id=kept.id))
        return {**whole, **asks.get(kept.id, {})}

    async def _open(self, tenant: str, ids: list[str]) -> dict[str, dict[str, Any]]:
        """Query -> `asks`, of those that ask something; a `code` where that cannot be read."""
        if not ids:
            return {}
        by_query = await durable.open_of(self._journal, tenant, ids)
        return {
            id: UNREADABLE_ASKS if asks is None else {"asks": asks} for id, asks in by_query.items()
        }

    def follow(self, kept: Kept) -> Response:
        """Its events from now on; of one that has ended, how it did."""
        return EventStream(_Elsewhere(kept, self._journal, self._board))


def _key(request: Request) -> str | None:
    """A digest of the client's name for the query, which may be anything."""
    key = request.headers.get(KEY)
    return hashlib.sha256(key.encode()).hexdigest() if key else None


def _accepted(summary: dict[str, Any], more: dict[str, str] | None = None) -> Response:
    id = summary["query_id"]
    headers = {"x-query-id": id, "location": f"/v1/queries/{id}", **(more or {})}
    return JSONResponse(summary, 202, headers=headers)


class _Elsewhere:
    """Told of a query that another server runs, or none: how it ended, or its events once this
    server has taken it."""

    def __init__(self, kept: Kept, journal: Journal, board: Board) -> None:
        self._kept, self._journal, self._board = kept, journal, board
        self._events: Events | None = None
        self._taken = asyncio.Event()

    async def pieces(self) -> AsyncGenerator[str, None]:
        """See Told."""
        with self._journal.hearing(self._kept.id) as heard:
            while self._events is None:
                heard.clear()
                if (entry := self._board.find(self._kept.id, self._kept.tenant)) is not None:
                    self._events = Events(entry, partial(numbered_event, base=entry.base))
                    self._taken.set()
                    break
                if (last := await self._end()) is not None:
                    yield last
                    return
                try:
                    async with asyncio.timeout(SILENCE_S):
                        await heard.wait()
                except TimeoutError:
                    yield SILENCE
        async with aclosing(self._events.pieces()) as pieces:
            async for piece in pieces:
                yield piece

    async def too_slow(self) -> None:
        """See Told."""
        await self._taken.wait()
        assert self._events is not None
        await self._events.too_slow()

    async def _end(self) -> str | None:
        """The last event of one that has ended, or cannot be opened."""
        try:
            kept = await self._journal.find(self._kept.tenant, self._kept.id)
        except JournalLost:
            return None  # it comes back, or the client goes
        return _last(kept) if kept is not None and (kept.ended or kept.unreadable) else None


def _last(kept: Kept) -> str:
    """The last event of a query that has ended, with a number that no event had before."""
    if kept.unreadable:
        error = JournalUnreadable(UNREADABLE.format(id=kept.id))
        unreadable = Event("error", json.dumps(problem(error, kept.id).body()))
        return "".join(numbered_event(1, unreadable, kept.runs * RUN))
    if kept.state in ("ok", "partial") or kept.problem is not None:
        kind, data = ("error", kept.problem) if kept.problem else ("done", kept.result)
        return "".join(numbered_event(1, Event(kind, data or "{}"), kept.runs * RUN))
    return "".join(numbered_event(1, Event("error", kept.ending()), kept.runs * RUN))
