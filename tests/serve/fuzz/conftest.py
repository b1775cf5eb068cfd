"""A server of small applications, one of them with documents on the real engines, to be fuzzed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from teola import App, Runtime, component
from teola.catalogue import load_app
from tests.serve.conftest import Served, applications, serving
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
def fuzzed(runtime: Runtime) -> Iterator[Served]:
    rag = load_app("naive-rag")
    own = rag.runtime
    with serving(runtime, {**instant(), "naive-rag": rag}) as found:
        with httpx.Client(base_url=found.url, timeout=120) as client:
            _some_queries(client)
        yield found
    rag.runtime = own


def _some_queries(client: httpx.Client) -> None:
    """Queries that ended in different ways, to be looked at."""
    ask = "/v1/apps/{}/queries"
    for question in ("hello", "again"):
        client.post(ask.format("echo"), json={"inputs": {"question": question}})
    with_document = {"question": "Who keeps the lamp?", "documents": LIGHTHOUSE}
    client.post(ask.format("naive-rag"), json={"inputs": with_document}).raise_for_status()
    body = {"inputs": {"question": "please wait"}, "mode": "background"}
    client.delete(client.post(ask.format("echo"), json=body).headers["location"])
