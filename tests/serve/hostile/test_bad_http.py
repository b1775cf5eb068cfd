"""HTTP that is none, and heads, paths and bodies that are meant to confuse or to hold on."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

import httpx
import pytest

from teola.serve.intake import bounds
from tests.serve.conftest import Served
from tests.serve.hostile.asking import ECHO, OF_FORM, RAG, field, form

pytestmark = pytest.mark.usefixtures("nothing_left")


def raw(hostile: Served, *pieces: bytes, end: bool = False) -> bytes:
    """What the server sends back to these bytes, until it hangs up or has answered."""
    where = urlsplit(hostile.url)
    with socket.create_connection((where.hostname, where.port), timeout=60) as connection:
        for piece in pieces:
            connection.sendall(piece)
        if end:
            connection.shutdown(socket.SHUT_WR)
        found = b""
        while piece := connection.recv(65536):
            found += piece
            head, _, rest = found.partition(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            if length.isdigit() and len(rest) >= int(length):
                break
    return found


def head(*lines: str, method: str = "POST", path: str = ECHO) -> bytes:
    named = [] if any(line.startswith("Host:") for line in lines) else ["Host: localhost"]
    return "\r\n".join((f"{method} {path} HTTP/1.1", *named, *lines, "", "")).encode("latin-1")


QUESTION = b'{"inputs": {"question": "hello"}}'
LENGTH = f"Content-Length: {len(QUESTION)}"


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        head("Content-Length: -1"),
        head("Content-Length: x"),
        head("Content-Length: 99999999999999999999999"),
        head("Content-Length: 5", "Content-Length: 6") + b"hello!",
        head("Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
        head("Transfer-Encoding: chunked") + b"zz\r\nhello\r\n0\r\n\r\n",
        head("A B: c", LENGTH) + QUESTION,
        head("A: b\x00c", LENGTH) + QUESTION,
        head(LENGTH, path="/v1/\xff") + QUESTION,
    ],
)
def test_what_is_not_http(hostile: Served, sent: bytes) -> None:
    found = raw(hostile, sent, end=True)
    assert found.startswith(b"HTTP/1.1 400"), found
    assert found.partition(b"\r\n\r\n")[2]


def test_a_body_longer_than_it_says_is_cut_there(hostile: Served) -> None:
    """What follows is the next request, and none."""
    found = raw(hostile, head("Content-Length: 5"), QUESTION[:5])
    assert found.startswith(b"HTTP/1.1 422")
    assert b"not JSON" in found
    assert raw(hostile, head("Content-Length: 5") + QUESTION).startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Type: \xff"],
        ["Content-Type: application/json; charset=latin-1"],
        ["Content-Type: application/json", "Content-Type: text/plain"],
        ["Accept: \xff", "Accept-Encoding: zstd"],
        ["Authorization: Bearer \xff"],
        ["X-Forwarded-For: 1.2.3.4", "X-Forwarded-Proto: gopher", "Forwarded: for=x"],
        ["traceparent: 00-zz-zz-zz", "tracestate: \xff"],
        ["Cookie: " + "a=b; " * 2000],
        ["Upgrade: websocket", "Connection: Upgrade"],
        ["Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: x"],
        ["Expect: 100-continue"],
        ["Idempotency-Key: \xff" + "x" * 1000],
        [f"X-{i}: y" for i in range(90)],
    ],
)
def test_heads_of_odd_kinds(hostile: Served, lines: list[str]) -> None:
    found = raw(hostile, head(*lines, LENGTH) + QUESTION)
    found = found.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert found[:12] in (b"HTTP/1.1 200", b"HTTP/1.1 400", b"HTTP/1.1 422"), found
    missing = raw(hostile, head(*lines, method="GET", path="/nowhere"))
    assert missing[:12] in (b"HTTP/1.1 404", b"HTTP/1.1 400"), missing


@pytest.mark.parametrize(
    "id", ["", "x", "-1", "0", "1e9", "\xff", "\u0663", "9" * 5000, "1; DROP TABLE", "%00", "NaN"]
)
def test_last_event_ids_that_are_none_mean_the_first(client: httpx.Client, id: str) -> None:
    asked = {"inputs": {"question": "hello"}, "mode": "background"}
    path = client.post(ECHO, json=asked).headers["location"] + "/events"
    whole = client.get(path).text
    sent = {b"last-event-id": id.encode("utf-8")}
    assert client.get(path, headers=sent).text == whole
    assert "event: done" in whole


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/queries?limit=0", 422),
        ("/v1/queries?limit=501", 422),
        ("/v1/queries?limit=x", 422),
        ("/v1/queries?limit=" + "9" * 5000, 422),
        ("/v1/queries?app=%ff&state=%00", 200),
        ("/v1/queries/%00", 404),
        ("/v1/queries/%ed%a0%80", 404),
        ("/v1/queries/..%2f..%2fapps", 404),
        ("/v1/queries/x/graph?form=exe", 422),
        ("/v1/apps/%00", 404),
        ("/v1/apps/", 404),
        ("//v1/apps", 404),
        ("/v1/../v1/apps/%2e%2e", 404),
        ("/" + "x" * 20_000, 404),
    ],
)
def test_paths_and_what_stands_behind_them(hostile: Served, path: str, status: int) -> None:
    found = raw(hostile, head(method="GET", path=path))
    assert found.startswith(b"HTTP/1.1 %d" % status), found
    if status != 200:
        assert json.loads(found.partition(b"\r\n\r\n")[2])["error"]["message"]


@pytest.mark.parametrize("method", ["PUT", "PATCH", "TRACE", "OPTIONS", "PROPFIND"])
def test_methods_that_are_none(client: httpx.Client, method: str) -> None:
    response = client.request(method, ECHO)
    assert response.status_code == 405
    assert "POST" in response.headers["allow"]


@pytest.mark.parametrize("kind", ["application/json", OF_FORM])
@pytest.mark.parametrize("closes", [True, False])
def test_bodies_that_never_end(
    hostile: Served, monkeypatch: pytest.MonkeyPatch, kind: str, closes: bool
) -> None:
    """The client leaves in the middle of its upload, or sends a byte now and then."""
    monkeypatch.setattr(bounds, "PATIENCE_S", 60.0 if closes else 0.5)
    monkeypatch.setattr(bounds, "SLOWEST", 2**20)
    sent = form(field("documents", b"x" * 3_000_000, b'; filename="x.txt"'))[:2_500_000]
    begun = head(f"Content-Type: {kind}", "Content-Length: 3500000", path=RAG)
    if kind == "application/json":
        sent = b'{"inputs": {"question": "' + b"x" * 2_000_000
    found = raw(hostile, begun, sent, end=closes)
    if not closes:
        assert found.startswith(b"HTTP/1.1 408"), found
        assert b"did not come in time" in found
        assert b"connection: close" in found.lower()


def test_a_body_that_trickles_ends_too(hostile: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "PATIENCE_S", 1.0)
    where = urlsplit(hostile.url)
    with socket.create_connection((where.hostname, where.port), timeout=0.2) as connection:
        connection.sendall(head("Content-Length: 100000"))
        found, sent = b"", 0
        while not found and sent < 500:
            connection.sendall(b" ")
            sent += 1
            try:
                found = connection.recv(65536)
            except TimeoutError:
                continue
    assert found.startswith(b"HTTP/1.1 408"), found
    assert sent < 400


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ([], 200),
        (["Host: localhost:8080"], 200),
        (["Host: LOCALHOST"], 200),
        (["Host: [::1]:8080"], 200),
        (["Host: 127.0.0.1"], 200),
        (["Host: localhost:8080", "Origin: http://localhost:8080"], 200),
        (["Host: LOCALHOST", "Origin: http://localhost:80"], 200),
        (["Host: [::1]:8080", "Origin: http://[::1]:8080"], 200),
        (["Host: localhost:8443", "Origin: https://localhost:8443"], 200),
        (["Origin: http://localhost:3000"], 403),
        (["Host: localhost:8080", "Origin: http://localhost:3000"], 403),
        (["Host: localhost:8080", "Origin: http://localhost"], 403),
        (["Host: localhost:8080", "Origin: http://127.0.0.1:8080"], 403),
        (["Host: localhost:8080", "Origin: http://localhost:8080x"], 403),
        (["Host: localhost", "Origin: http://localhost", "Origin: http://evil.example"], 403),
        (["Host: localhost", "Origin: http://evil.example", "Origin: http://localhost"], 403),
        (["Host: evil.example", "Host: localhost"], 403),
        (["Host: evil.example"], 403),
        (["Host: localhost.evil.example"], 403),
        (["Host: evil.example@localhost.x"], 403),
        (["Host: [::1"], 403),
        (["Host: a b"], 403),
        (["Host: \xff\xfe"], 403),
        (["Host:"], 403),
        (["Origin: http://evil.example"], 403),
        (["Origin: null"], 403),
        (["Origin: http://[::1"], 403),
        (["Origin: http://localhost.evil.example"], 403),
    ],
)
def test_pages_of_the_web_may_not_ask(hostile: Served, lines: list[str], status: int) -> None:
    """No browser lets a page hide where it comes from, or under which name it asks."""
    sent = head("Content-Type: text/plain", *lines, LENGTH) + QUESTION
    found = raw(hostile, sent)
    if status == 403 and found.startswith(b"HTTP/1.1 400"):
        status = 400  # what is not even a name is refused before anybody looks at it
    assert found.startswith(b"HTTP/1.1 %d" % status), found
    assert (b"you said" in found) == (status == 200)
