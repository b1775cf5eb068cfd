"""Files of queries whose server is killed, beside servers that go on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from teola.query.query_files import PREFIX
from tests.serve.conftest import soon
from tests.serve.mortal import Mortal, mortal, place

LONG_S = 600.0


def files(shared: Path) -> list[Path]:
    return list(shared.glob(f"{PREFIX}*/*/*"))


def ask(server: Mortal) -> None:
    """A query that stays, with a file, by a client that waits for it."""

    def post() -> None:
        with suppress(httpx.HTTPError):
            httpx.post(
                f"{server.url}/v1/apps/ingesting/queries",
                files={"documents": ("a.txt", b"a line")},
                timeout=LONG_S,
            )

    threading.Thread(target=post, daemon=True).start()


@pytest.fixture
def folder(servers: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Of the servers, whose temporary folder it has, too."""
    with place() as (folder, _):
        (folder / "tmp").mkdir()
        monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
        yield folder


def test_the_next_server_deletes_what_a_killed_one_left(folder: Path) -> None:
    shared = folder / "tmp"
    with mortal(folder, ["ingesting"], pause_s=LONG_S) as killed:
        ask(killed)
        soon(lambda: len(files(shared)) == 1, 60)
        (left,) = files(shared)
        with mortal(folder, ["ingesting"], pause_s=LONG_S) as alive:
            ask(alive)
            soon(lambda: len(files(shared)) == 2, 60)
            (kept,) = set(files(shared)) - {left}
            killed.end(signal.SIGKILL)
            assert left.exists()
            with mortal(folder, ["ingesting"]) as following:
                assert files(shared) == [kept]
                assert not left.parents[1].exists()
                assert following.end(signal.SIGTERM) == 0
            assert files(shared) == [kept]
            assert alive.end(signal.SIGTERM) == 0
    assert not list(shared.glob(f"{PREFIX}*"))
