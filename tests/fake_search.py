"""A real HTTP server that answers as three search services document it, and misbehaves on request.

    with FakeSearch("tavily") as service:
        engine = Tavily(url=service.url, api_key=KEY)

Results, quotas and refusals have the fields and the bodies of the real services. `script(...)` sets
how the next requests are answered; after that, and without one, they are answered well. What was
asked is in `seen`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qsl, urlsplit

KEY: Final = "canary-7f3a9c"
"""The API key that is accepted; it may appear in no message and no log."""
ENGINE_ID: Final = "0123456789:abcdefg"


@dataclass(frozen=True)
class Result:
    """One page that the service knows."""

    url: str
    title: str
    text: str
    score: float = 0.5


@dataclass(frozen=True)
class Seen:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Reply:
    """An answer as it is: status, body, and what kind of body it says it is."""

    status: int
    body: bytes | str | Mapping[str, Any] = b""
    kind: str = "application/json"
    headers: Mapping[str, str] | None = None

    @property
    def raw(self) -> bytes:
        if isinstance(self.body, Mapping):
            return json.dumps(self.body).encode()
        return self.body.encode() if isinstance(self.body, str) else self.body


class Hang:
    """No answer, until the server ends."""


class Reset:
    """The connection is cut within the answer."""


Misbehaviour = Reply | Hang | Reset


class FakeSearch:
    """service: `google`, `searxng` or `tavily`. results: what each query finds, or a function of
    the query. rendezvous: requests that must have arrived before the first one is answered."""

    def __init__(
        self,
        service: str,
        results: Sequence[Result] | Callable[[str], Sequence[Result]] = (),
        *,
        rendezvous: int = 1,
    ) -> None:
        self.service = service
        self._results = results if callable(results) else lambda query: results
        self.seen: list[Seen] = []
        self._script: list[Misbehaviour] = []
        self.arrived = threading.Event()
        self._ended = threading.Event()
        self._barrier = threading.Barrier(rendezvous)
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        where = f"http://127.0.0.1:{self._server.server_port}"
        return f"{where}/customsearch/v1" if self.service == "google" else where

    @property
    def queries(self) -> list[str]:
        """What was searched for, sorted."""
        name = "query" if self.service == "tavily" else "q"
        return sorted(str(one.fields[name]) for one in self.seen)

    def script(self, *misbehaviours: Misbehaviour) -> None:
        self._script = list(misbehaviours)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, seen: Seen) -> Reply | None:
        """The answer to one request; None to cut the connection."""
        with self._lock:
            self.seen.append(seen)
            self.arrived.set()
            scripted = self._script.pop(0) if self._script else None
        if isinstance(scripted, Hang):
            self._ended.wait()
            return None
        if isinstance(scripted, Reset):
            return None
        if scripted is not None:
            return scripted
        if self._barrier.parties > 1:
            self._barrier.wait(10)
        return {"google": self._google, "searxng": self._searxng, "tavily": self._tavily}[
            self.service
        ](seen)

    # --- as the services document it ------------------------------------------------------

    def _google(self, seen: Seen) -> Reply:
        key = seen.headers.get("x-goog-api-key", seen.fields.get("key"))
        if key != KEY:
            return GOOGLE_BAD_KEY
        num, start = int(seen.fields.get("num", 10)), int(seen.fields.get("start", 1))
        if seen.fields.get("cx") != ENGINE_ID or not 1 <= num <= 10 or start + num > 101:
            return google_error(400, "Request contains an invalid argument.", "badRequest")
        found = list(self._results(seen.fields["q"]))[start - 1 : start - 1 + num]
        items = [
            {
                "kind": "customsearch#result",
                "title": one.title,
                "htmlTitle": f"<b>{one.title}</b>",
                "link": one.url,
                "displayLink": one.url.partition("://")[2].partition("/")[0],
                "snippet": one.text,
                "htmlSnippet": f"<b>{one.text}</b>",
            }
            for one in found
        ]
        answer: dict[str, Any] = {
            "kind": "customsearch#search",
            "searchInformation": {"searchTime": 0.2, "totalResults": str(len(found))},
        }
        return Reply(200, {**answer, "items": items} if items else answer)

    def _searxng(self, seen: Seen) -> Reply:
        if seen.fields.get("format") != "json" or seen.path != "/search":
            return SEARXNG_NO_JSON
        results = [
            {
                "url": one.url,
                "title": one.title,
                "content": one.text,
                "engine": "brave",
                "engines": ["brave", "mojeek"],
                "positions": [1, 2],
                "score": one.score,
                "category": "general",
                "publishedDate": None,
            }
            for one in self._results(seen.fields["q"])
        ]
        return Reply(200, searxng_answer(seen.fields["q"], results))

    def _tavily(self, seen: Seen) -> Reply:
        if seen.headers.get("authorization") != f"Bearer {KEY}":
            return TAVILY_BAD_KEY
        query, most = seen.fields["query"], seen.fields.get("max_results", 5)
        if len(query) > 400:
            return tavily_error(400, "Query is too long. Max query length is 400 characters.")
        if not 0 <= most <= 20:
            return Reply(422, {"detail": [{"loc": ["body", "max_results"], "msg": "too many"}]})
        results = [
            {
                "url": one.url,
                "title": one.title,
                "content": one.text,
                "score": one.score,
                "raw_content": None,
            }
            for one in self._results(query)[:most]
        ]
        return Reply(
            200,
            {
                "query": query,
                "follow_up_questions": None,
                "answer": None,
                "images": [],
                "results": results,
                "response_time": 0.94,
                "request_id": "5e2c",
            },
        )


def google_error(code: int, message: str, reason: str, **more: Any) -> Reply:
    """Google's error object."""
    first = {"message": message, "domain": "global", "reason": reason}
    error = {"code": code, "message": message, "errors": [first], **more}
    return Reply(code, {"error": error})


GOOGLE_BAD_KEY = google_error(
    400,
    "API key not valid. Please pass a valid API key.",
    "badRequest",
    status="INVALID_ARGUMENT",
    details=[
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "API_KEY_INVALID",
            "domain": "googleapis.com",
        }
    ],
)
GOOGLE_QUOTA = google_error(
    429,
    "Quota exceeded for quota metric 'Queries' and limit 'Queries per day' of service "
    "'customsearch.googleapis.com' for consumer 'project_number:1'.",
    "rateLimitExceeded",
    status="RESOURCE_EXHAUSTED",
)
GOOGLE_DAILY_LIMIT = google_error(403, "Daily Limit Exceeded", "dailyLimitExceeded")
GOOGLE_NOT_ENABLED = google_error(
    403,
    "Custom Search API has not been used in project 1 before or it is disabled.",
    "forbidden",
    status="PERMISSION_DENIED",
)
SEARXNG_NO_JSON = Reply(403, "<!doctype html><title>403 Forbidden</title>", "text/html")
SEARXNG_LIMITED = Reply(429, "Too Many Requests", "text/plain")


def searxng_answer(
    query: str, results: Sequence[Mapping[str, Any]], unresponsive: Sequence[Sequence[str]] = ()
) -> dict[str, Any]:
    """SearXNG's answer in JSON."""
    return {
        "query": query,
        "number_of_results": 0,
        "results": results,
        "answers": [],
        "corrections": [],
        "infoboxes": [],
        "suggestions": [],
        "unresponsive_engines": unresponsive,
    }


def tavily_error(status: int, message: str) -> Reply:
    """Tavily's error object."""
    return Reply(status, {"detail": {"error": message}})


TAVILY_BAD_KEY = tavily_error(401, "Unauthorized: missing or invalid API key.")
TAVILY_TOO_FAST = tavily_error(
    429, "Your request has been blocked due to excessive requests. Please reduce rate of requests."
)
TAVILY_PLAN_LIMIT = tavily_error(432, "This request exceeds your plan's set usage limit.")
TAVILY_SPENT = tavily_error(433, "This request exceeds the pay-as-you-go limit.")


def _handler(fake: FakeSearch) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._serve({})

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            form = "form" in self.headers.get("content-type", "")
            self._serve(dict(parse_qsl(raw.decode())) if form else json.loads(raw))

        def _serve(self, fields: dict[str, Any]) -> None:
            parts = urlsplit(self.path)
            headers = {key.lower(): value for key, value in self.headers.items()}
            given = {**dict(parse_qsl(parts.query)), **fields}
            reply = fake.answer(Seen(self.command, parts.path, headers, given))
            if reply is None:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{")
                self.close_connection = True
                return
            self.send_response(reply.status)
            self.send_header("content-type", reply.kind)
            self.send_header("content-length", str(len(reply.raw)))
            for key, value in (reply.headers or {}).items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(reply.raw)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
