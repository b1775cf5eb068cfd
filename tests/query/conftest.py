"""Processes of either kind on one database: leaving one is its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from teola import App, Runtime
from tests.query.mail import LOG, engines, mail_apps
from tests.query.sides import PROGRAM, SERVER, Program, Server, Side
from tests.serve.journal.conftest import Serve, dsn, made, postgres, serve  # noqa: F401

Process = Callable[..., AbstractContextManager[Side]]


@pytest.fixture(autouse=True)
def log() -> None:
    LOG.clear()


@pytest.fixture
def process(dsn: str, serve: Serve) -> Process:  # noqa: F811
    """Begins a process. kind: PROGRAM or SERVER. version: of its applications. key: that seals its
    journal. apps: in place of `mail_apps`."""

    @contextmanager
    def begin(
        kind: str,
        version: str = "",
        key: str | None = None,
        apps: dict[str, App] | None = None,
    ) -> Iterator[Side]:
        chosen = apps or mail_apps(version)
        if kind == SERVER:
            with serve(chosen, key=key, engines=engines(dsn)) as (_, client):
                yield Server(client)
            return
        with Runtime(engines(dsn), learn=False, journal=dsn, journal_key=key) as runtime:
            for app in chosen.values():
                app.runtime = runtime
            yield Program(chosen)

    return begin


@pytest.fixture(params=[PROGRAM, SERVER])
def kind(request: pytest.FixtureRequest) -> str:
    """Where queries live."""
    found: str = request.param
    return found
