"""What a request leaves of its time once its documents are there."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message

from teola.serve.intake import index_request, query_request
from teola.serve.intake.query_request import QueryRequest
from teola.workflow.kinds import Kind

APP: Any = SimpleNamespace(inputs={"documents": Kind.DOCUMENTS})


class SlowIntake:
    """Has documents after so many seconds, on the clock that requests are read by."""

    def __init__(self, takes_s: float, patch: pytest.MonkeyPatch) -> None:
        self.now, self.takes_s, self.limit_s = 100.0, takes_s, 0.0
        clock = SimpleNamespace(monotonic=lambda: self.now)
        for module in (index_request, query_request):
            patch.setattr(module, "time", clock)

    async def documents(self, app: Any, inputs: Any, *rest: Any) -> Any:
        self.limit_s = rest[-1]
        self.now += self.takes_s
        return inputs


async def read(kind: str, intake: Any, **body: Any) -> QueryRequest:
    """A request of this kind, as it is read."""

    async def receive() -> Message:
        return {"type": "http.request", "body": json.dumps(body).encode()}

    scope = {"type": "http", "method": "POST", "headers": []}
    request, upload = Request(scope, receive), SimpleNamespace()
    if kind == "query":
        return await query_request.asked(request, APP, upload, intake)  # type: ignore[arg-type]
    return await index_request.to_index(request, APP, "c", upload, intake)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["query", "index"])
@pytest.mark.parametrize("takes_s", [0.0, 2.5, 10.0, 30.0])
async def test_the_time_that_documents_take_is_the_requests_own(
    kind: str, takes_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late they come, some time is left: the query ends by its deadline and as such."""
    intake = SlowIntake(takes_s, monkeypatch)
    listed = [{"name": "a", "text": "b"}]
    body = {"documents": listed} if kind == "index" else {"inputs": {"documents": listed}}
    query = await read(kind, intake, deadline_s=10.0, **body)
    assert intake.limit_s == 10.0
    assert query.inputs["documents"] == listed
    assert query.deadline_s == (10.0 - takes_s if takes_s < 10.0 else 0.001)


async def test_an_answer_is_not_wanted_later_than_its_query_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for takes_s, wanted in ((0.0, 8.0), (1.0, 8.0), (3.0, 7.0)):
        intake = SlowIntake(takes_s, monkeypatch)
        query = await read("query", intake, deadline_s=10.0, finish_by_s=8.0)
        assert (query.deadline_s, query.finish_by_s) == (10.0 - takes_s, wanted)


def test_what_a_document_says_of_itself_goes_before_what_is_said_of_all() -> None:
    named = {"name": "a", "text": "b", "metadata": {"lang": "en"}}
    merged = index_request._with(named, {"lang": "de", "year": 2026})
    assert merged == {**named, "metadata": {"lang": "en", "year": 2026}}
    for nothing in ({}, {"metadata": None}, {"metadata": {}}):
        assert index_request._with(nothing, {"year": 1}) == {"metadata": {"year": 1}}
    for odd in ("a", 3, None, {"metadata": []}):
        assert index_request._with(odd, {"year": 1}) == odd
