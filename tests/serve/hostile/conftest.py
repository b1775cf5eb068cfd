"""A server that is asked badly, and the watch over what it holds."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import httpx
import pytest

from teola import Runtime
from teola.catalogue import load_app
from teola.query import query_files
from tests.serve.conftest import Served, serving, soon
from tests.serve.databases import journal_on
from tests.serve.fuzz.conftest import instant
from tests.serve.hostile.asking import BODIES, LIGHTHOUSE, RAG, body
from tests.serve.hostile.left import Held, held


@pytest.fixture(scope="package")
def hostile(
    runtime: Runtime, admin: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """Its temporary files are in a folder of their own, so that one sees what is left there. It
    keeps a journal, as `teola serve` does."""
    apps = {**instant(), "naive-rag": load_app("naive-rag")}
    tempfile.tempdir = str(tmp_path_factory.mktemp("temporary"))
    query_files.sweep()  # as `teola serve` begins
    with journal_on(admin) as journal, serving(runtime, apps, journal=journal) as found:
        with httpx.Client(base_url=found.url, timeout=120) as client:  # what stays, begins
            for path in BODIES:
                client.post(path, content=body(path, '"hello"')).raise_for_status()
            given = {"question": "lamp?", "documents": LIGHTHOUSE}
            for mode in ("sync", "background"):
                client.post(RAG, json={"inputs": given, "mode": mode}).raise_for_status()
        soon(lambda: not found.board.running)
        yield found
    query_files.clear()
    tempfile.tempdir = None


@pytest.fixture
def client(hostile: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=hostile.url, timeout=60) as client:
        yield client


@pytest.fixture
def nothing_left(hostile: Served, admin: str) -> Iterator[None]:
    """The server is afterwards as it was before."""
    before = _calm(hostile, admin)
    yield
    try:
        soon(lambda: held(hostile, admin).beside(before) == before)
    except AssertionError:
        assert held(hostile, admin).beside(before) == before


def _calm(hostile: Served, admin: str) -> Held:
    """What is held between two looks of the journal, each of which takes a moment."""
    while (found := held(hostile, admin)) != held(hostile, admin):
        pass
    return found
