"""Home: the store's database, for others that keep tables of their own in it."""

from __future__ import annotations

from .embedded import EmbeddedPostgres


class Home:
    """A DatabaseServer: a use of the embedded server, or the DSN of another."""

    def __init__(self, server: EmbeddedPostgres | str) -> None:
        self._server = server

    def start(self) -> str:
        """See DatabaseServer."""
        return self._server if isinstance(self._server, str) else self._server.start()[0]

    def close(self) -> None:
        """See DatabaseServer."""
        if isinstance(self._server, EmbeddedPostgres):
            self._server.close()
