"""A server of small applications, one of them with documents on the real engines, to be fuzzed.
It keeps a journal, as `teola serve` does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from teola import App, Runtime, component
from teola.catalogue import load_app
from tests.serve.conftest import Served, applications, serving
from tests.serve.databases import journal_on
from tests.serve.hostile.asking import LIGHTHOUSE


@component(outputs="answer")
async def mirror(value: Any) -> Any:
    return value


def instant() -> dict[str, App]:
    """Applications that answer at once and never fail, whatever they are given."""
    found = applications()
    inputs, outputs = {"value": "any"}, {"answer": "answer"}
    found["mirror"] = App("mirror", template=mirror, inputs=inputs, outputs=outputs)
    return found


@pytest.fixture(scope="module")
def fuzzed(runtime: Runtime, admin: str) -> Iterator[Served]:
    apps = {**instant(), "naive-rag": load_app("naive-rag")}
    with journal_on(admin) as journal, serving(runtime, apps, journal=journal) as found:
        with httpx.Client(base_url=found.url, timeout=120) as client:
            _some_queries(client)
        yield found


def _some_queries(client: httpx.Client) -> None:
    """Queries that ended in different ways, to be looked at."""
    ask = "/v1/apps/{}/queries"
    for question in ("hello", "again"):
        client.post(ask.format("echo"), json={"inputs": {"question": question}})
    with_document = {"question": "Who keeps the lamp?", "documents": LIGHTHOUSE}
    client.post(ask.format("naive-rag"), json={"inputs": with_document}).raise_for_status()
    body = {"inputs": {"question": "please wait"}, "mode": "background"}
    client.delete(client.post(ask.format("echo"), json=body).headers["location"])
