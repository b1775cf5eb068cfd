"""Patience: a database that falls silent is left, so that nothing waits for it for ever.

Cancelling a statement is no way out: psycopg asks the database to end it and waits for the answer.
So the connection itself is broken, and whoever waits for it hears at once that it is.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from psycopg import AsyncConnection


class Patience:
    """How long a database may take, in seconds, for all that is done under one watch, or for each
    part of it, where renew() parts them."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._watched: AsyncConnection[Any] | None = None
        self._over = False
        self._timer: asyncio.TimerHandle | None = None

    def watching(self, connection: AsyncConnection[Any]) -> Self:
        """`with` it, break the connection once it takes too long. Raises TimeoutError then."""
        self._watched = connection
        return self

    def __enter__(self) -> Self:
        self.renew()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._watched = None
        self._stop()
        if self._over and isinstance(error, Exception):
            raise TimeoutError(f"PostgreSQL took more than {self._limit_s:g} s") from error

    def renew(self) -> None:
        """A part is done; the next may take as long again."""
        self._stop()
        if self._watched is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._limit_s, self._break, self._watched)

    def leave(self) -> None:
        """Break the connection now, if there is one."""
        if self._watched is not None:
            self._break(self._watched)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _break(self, connection: AsyncConnection[Any]) -> None:
        self._over = True
        if not connection.closed:
            with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
                duplicate.shutdown(socket.SHUT_RDWR)
