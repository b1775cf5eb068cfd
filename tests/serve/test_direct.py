"""Which requests go the quick way, which may be forms, and headers of every answer."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message

from teola.serve.access.answer_headers import AnswerHeaders
from teola.serve.api import announced
from teola.serve.collections_api import takes_forms
from teola.serve.direct import asked_of


def scope(path: str, method: str = "POST", **more: Any) -> dict[str, Any]:
    return {"type": "http", "method": method, "path": path, "headers": [], **more}


@pytest.mark.parametrize(
    ("path", "app"),
    [
        ("/v1/apps/naive-rag/queries", "naive-rag"),
        ("/v1/apps/a b/queries", "a b"),
        ("/v1/apps//queries", None),
        ("/v1/apps/queries", None),
        ("/v1/apps/a/b/queries", None),
        ("/v1/apps/a/queries/", None),
        ("/v2/apps/a/queries", None),
        ("/v1/apps/a", None),
    ],
)
def test_only_a_query_goes_the_quick_way(path: str, app: str | None) -> None:
    assert asked_of(scope(path)) == app
    assert asked_of(scope(path, "GET")) is None
    assert asked_of({**scope(path), "type": "websocket"}) is None
    assert takes_forms(scope(path)) is (app is not None)


@pytest.mark.parametrize(
    ("path", "method", "forms"),
    [
        ("/v1/collections/papers/documents", "POST", True),
        ("/v1/collections/a/b/documents", "POST", True),
        ("/v1/collections/papers/documents", "DELETE", False),
        ("/v1/collections/papers", "POST", False),
        ("/v1/sql", "POST", False),
        ("/v1/chat/completions", "POST", False),
    ],
)
def test_what_brings_documents_may_be_a_form(path: str, method: str, forms: bool) -> None:
    assert takes_forms(scope(path, method)) is forms
    assert not takes_forms({**scope(path, method), "type": "lifespan"})


@pytest.mark.parametrize(
    ("length", "size"),
    [(None, 0), ("0", 0), ("17", 17), ("9" * 15, 10**15 - 1), ("9" * 16, 0), ("-1", 0), ("x", 0)],
)
def test_the_size_of_a_body_is_what_its_head_says(length: str | None, size: int) -> None:
    headers = [] if length is None else [(b"content-length", length.encode())]
    assert announced(Request(scope("/v1/sql", headers=headers))) == size


async def answered(*headers: tuple[bytes, bytes], kind: str = "http") -> list[Message]:
    sent: list[Message] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": f"{kind}.response.start", "status": 200, "headers": headers})
        await send({"type": f"{kind}.response.body", "body": b"x"})

    async def send(message: Message) -> None:
        sent.append(message)

    await AnswerHeaders(app)({"type": kind}, send, send)  # type: ignore[arg-type]
    return sent


async def test_an_answer_is_kept_by_nobody_unless_it_says_so_itself() -> None:
    own = (b"content-type", b"text/plain"), (b"Cache-Control", b"max-age=9")
    start, body = await answered(own[0])
    wanted = [own[0], (b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
    assert (start["headers"], start["status"], body["body"]) == (wanted, 200, b"x")
    start, _ = await answered(*own)
    assert start["headers"] == [*own, (b"x-content-type-options", b"nosniff")]
    start, _ = await answered(own[0], kind="other")
    assert start["headers"] == (own[0],)
