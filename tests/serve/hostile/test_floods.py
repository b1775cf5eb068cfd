"""Floods of what is no document and no question: nobody else waits, and nothing of it is kept."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial

import pytest

from tests.serve.hostile.asking import ECHO
from tests.serve.hostile.flooding import Flooded, at_once, flooded, watched

MIB = 2**20
CHAT = "/v1/chat/completions"
INDEX = "/v1/collections/harbour/documents"
FORMS = [
    ["multipart/form-data"],
    ["multipart/form-data; boundary=B"],
    ["MULTIPART/Form-Data"],
    ["multipart/form-datax"],
    ["multipart/form-data-json; boundary=B"],
    ["multipart/mixed; boundary=B"],
    ["application/json", "multipart/form-data; boundary=B"],
    ["multipart/form-data; boundary=B", "application/json"],
]
"""Values of Content-Type, each in a header of its own."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, servers: None) -> Iterator[Flooded]:
    with flooded(tmp_path_factory.mktemp("flooded"), apps="echo", keys=True) as found:
        body = {"inputs": {"question": "hello"}}
        assert found.post(ECHO, body).status_code == 200
        found.post(CHAT, {"model": "echo", "messages": []})
        yield found


def head(server: Flooded, path: str, *lines: str, key: bool = True) -> bytes:
    """Of a request, its end left out."""
    named = [f"authorization: Bearer {server.key}"] if key else []
    return "\r\n".join((f"POST {path} HTTP/1.1", "host: localhost", *named, *lines, "")).encode()


# --- heads and trailers -----------------------------------------------------------------------


@pytest.mark.parametrize("key", [True, False], ids=["a key", "no key"])
def test_one_giant_header(server: Flooded, key: bool) -> None:
    with watched(server) as watch:
        told = server.send(head(server, ECHO, key=key) + b"x: ", b"y" * MIB, times=85)
    watch.check()
    assert b"431" in told or not told


@pytest.mark.parametrize("key", [True, False], ids=["a key", "no key"])
def test_headers_without_end_over_three_connections(server: Flooded, key: bool) -> None:
    begun = head(server, ECHO, key=key)
    with watched(server) as watch:
        found = at_once([partial(server.send, begun, b"x: y\r\n" * 2**15, times=160)] * 3)
    watch.check()
    assert all(told.startswith(b"HTTP/1.1 431") or not told for told in found)


QUESTION = b'{"inputs": {"question": "hello"}}'
CHUNK = b"%x\r\n%b\r\n0\r\n" % (len(QUESTION), QUESTION)


@pytest.mark.parametrize(
    ("piece", "times"), [(b"x: y\r\n" * 2**15, 320), (b"z" * MIB, 60)], ids=["many", "one"]
)
def test_trailers_of_sixty_mebibytes(server: Flooded, piece: bytes, times: int) -> None:
    begun = head(server, ECHO, "transfer-encoding: chunked") + b"\r\n" + CHUNK
    with watched(server) as watch:
        told = server.send(begun + b"x: y\r\nz: ", piece, times=times)
    watch.check()
    assert told.startswith(b"HTTP/1.1 431") or not told
    assert server.send(begun + b"x: y\r\n\r\n").startswith(b"HTTP/1.1 200")


# --- JSON that says that it is a form ---------------------------------------------------------


def json_routes(server: Flooded) -> list[str]:
    """Paths of all routes that take a body."""
    paths = server.get("/openapi.json").json()["paths"]
    found = [path for path, methods in paths.items() if "requestBody" in methods.get("post", {})]
    assert len(found) >= 4
    return [path.replace("{app}", "echo").replace("{name}", "harbour") for path in found]


@pytest.mark.parametrize("kinds", FORMS, ids=", ".join)
def test_only_forms_with_documents_have_more_than_four_mebibytes(
    server: Flooded, kinds: list[str]
) -> None:
    """Also where the body comes in pieces, of which nobody can say how many there will be."""
    types = [f"content-type: {kind}" for kind in kinds]
    length, size = f"content-length: {4 * MIB + 1}", 4 * MIB // 64
    piece = b"%x\r\n%b\r\n" % (size, b"[" + b"[]," * (size // 3))
    assert len(b"[" + b"[]," * (size // 3)) == size
    for path in json_routes(server):
        if path in (ECHO, INDEX) and kinds[0].lower().split(";")[0] == "multipart/form-data":
            continue  # a form that is none: told so once it is there
        whole = server.send(head(server, path, *types, length) + b"\r\n")
        chunked = head(server, path, *types, "transfer-encoding: chunked") + b"\r\n"
        for told in (whole, server.send(chunked, piece, times=65)):
            assert told.startswith(b"HTTP/1.1 413"), (path, kinds, told)


def test_mislabelled_json_of_sixty_mebibytes(server: Flooded) -> None:
    wrong = [(CHAT, "multipart/form-data"), (ECHO, "multipart/form-datax"), (CHAT, "text/x")]

    def one(path: str, kind: str) -> bytes:
        lines = (f"content-type: {kind}", "transfer-encoding: chunked")
        piece = b"[]," * (MIB // 3)
        chunk = b"%x\r\n%b\r\n" % (len(piece), piece)
        return server.send(head(server, path, *lines) + b"\r\n1\r\n[\r\n", chunk, times=60)

    with watched(server) as watch:
        found = at_once([partial(one, *how) for how in wrong])
    watch.check()
    assert all(told.startswith(b"HTTP/1.1 413") or not told for told in found)


@pytest.mark.parametrize("item", ["[]", "{}", '{"":0}', '""', "1", "[[[]]]", '"\\"[,"'], ids=repr)
def test_json_of_many_small_values(server: Flooded, item: str) -> None:
    """Each is below 4 MiB; in memory they are thirty times their size."""
    body = b"[" + (item.encode() + b",") * (4_000_000 // (len(item) + 1)) + b"0]"
    paths = json_routes(server)
    with watched(server) as watch:
        found = at_once([partial(server.post, path, content=body) for path in paths])
    watch.check()
    for told in found:
        assert told.status_code in (400, 422), told.text
        assert "values" in told.json()["error"]["message"]


def test_a_long_text_full_of_brackets_is_one_value(server: Flooded) -> None:
    text = '[{,"\\\n' * 300_000
    told = server.post(ECHO, {"inputs": {"question": "a", "documents": text}})
    assert told.status_code == 422
    assert "documents" in told.json()["error"]["message"]
    assert len(json.dumps(text)) > 2**21


# --- what is written down of it -----------------------------------------------------------------


def test_what_is_no_http_is_told_once_a_second(server: Flooded) -> None:
    upgrade = b"connection: upgrade\r\nupgrade: h2c\r\n\r\n"
    before, began = len(server.log.read_text().splitlines()), time.monotonic()
    for _ in range(200):
        assert server.send(b"NONSENSE\r\n\r\n").startswith(b"HTTP/1.1 400")
        assert server.send(head(server, "/", key=False) + upgrade).startswith(b"HTTP/1.1 4")
        assert server.send(b"GET / HTTP/1.1\r\nupgrade: websocket\r\n" + upgrade)
    lines = server.log.read_text().splitlines()[before:]
    assert len(lines) <= 3 * (2 + time.monotonic() - began), lines[-3:]
    events = [json.loads(line) for line in lines]
    assert {event["event"] for event in events} == {"refused"}
    assert "malformed" in {event["code"] for event in events}
