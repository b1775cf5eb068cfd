"""Doors: where contents come in. A line each, with the kinds of content that can come through it.

A route's door has the method and the path of the route as its name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from experiments.doors.contents import Content, called
from experiments.doors.mcp_side import ORDINARY
from experiments.doors.prepared import LONG
from experiments.doors.site import DEADLINE_S, Site

Way = Callable[[Site, Content, Any], int]
"""Sends a content and returns the status of the answer."""
ASKED: Final = "Who keeps the lamp?"
PAPERS: Final = "/v1/collections/papers/documents"


@dataclass(frozen=True, slots=True)
class Door:
    """kinds: of contents. way: sends one. before: what is done first and is not measured."""

    name: str
    kinds: tuple[str, ...]
    way: Way
    before: Callable[[Site, Content], None] = lambda site, content: None


# --- routes -----------------------------------------------------------------------------------


def route(name: str, *kinds: str, **ways: Way) -> Door:
    """A door of a route. ways: by which contents of a kind come, where that is special to it."""
    method, path = name.split(" ")

    def way(site: Site, content: Content, made: Any) -> int:
        if content.kind in ways:
            return ways[content.kind](site, content, made)
        return _requested(site, method, path, content, made)

    return Door(name, ("head", *kinds, *ways), way, _begun if "{id}" in path else _nothing)


def _requested(site: Site, method: str, path: str, content: Content, made: Any) -> int:
    """A request whose headers, path, parameters or body are the content."""
    headers, body = [], b"{}"
    name, rest = "0" * 32, path.partition("{")[0]
    match content.kind:
        case "head":
            headers = made
        case "id":
            name = made
        case "search":
            return site.send(method, f"{_filled(path, name)}?{made}")[0]
        case "body":
            body = made
        case "value" | "question":
            name = site.query
    where = _filled(path, name) if rest != path else path
    return site.send(method, where, body, headers)[0]


PREFILL: Final = "generate.prefill"
"""A primitive of the application that gets a content as its question."""


def _filled(path: str, name: str) -> str:
    before, brace, after = path.partition("{")
    rest = after.partition("}")[2].replace("{primitive}", PREFILL)
    return before + name + rest if brace else path


def _nothing(site: Site, content: Content) -> None:
    """Most contents need nothing beforehand."""


def _begun(site: Site, content: Content) -> None:
    """Let a query end that has the content in its question or in the result of a tool."""
    if content.kind == "value":
        _prepare(site, content)
        site.fakes.replies = [called(json.dumps({"content": content.name}))]
        _, body = site.ask("functions", {"question": ASKED})
    elif content.kind == "question":
        _, body = site.ask("plain", {"question": content.make()})
    else:
        return
    found = json.loads(body)
    site.query = found.get("query_id") or found["error"].get("query_id") or "0" * 32


# --- bodies of routes ---------------------------------------------------------------------------


def _query(site: Site, content: Content, made: Any) -> int:
    """A question, to an application that reads it with a language model."""
    return site.ask("plain", {"question": made})[0]


def _document(site: Site, content: Content, made: Any) -> int:
    document = {"name": "long.txt", "text": made}
    return site.ask("naive-rag", {"question": ASKED, "documents": document})[0]


def _metadata(site: Site, content: Content, made: Any) -> int:
    documents = [
        {"name": f"{i}.txt", "text": "lamp", "metadata": one} for i, one in enumerate(made)
    ]
    return site.ask("naive-rag", {"question": ASKED, "documents": documents})[0]


def _indexed(site: Site, content: Content, made: Any) -> int:
    """A document for a collection, until it is there or refused."""
    body = {"documents": {"name": "long.txt", "text": made}, "deadline_s": DEADLINE_S}
    return _watched(site, json.dumps(body).encode())


def _indexed_metadata(site: Site, content: Content, made: Any) -> int:
    documents = [
        {"name": f"{i}.txt", "text": "lamp", "metadata": one} for i, one in enumerate(made)
    ]
    body = {"documents": documents, "deadline_s": DEADLINE_S}
    return _watched(site, json.dumps(body).encode())


def _indexed_file(site: Site, content: Content, made: Any) -> int:
    name, data = made
    body = _form({"deadline_s": DEADLINE_S}, name, data)
    return _watched(site, body, "multipart/form-data; boundary=B")


def _watched(site: Site, body: bytes, kind: str = "application/json") -> int:
    """Send documents to index and follow the query to its end."""
    status, told = site.send("POST", PAPERS, body, kind=kind)
    if status == 202:
        id = json.loads(told)["query_id"]
        site.send("GET", f"/v1/queries/{id}/events")
        site.send("DELETE", f"/v1/queries/{id}")
    return status


def _schema(site: Site, content: Content, made: Any) -> int:
    overrides = {"generate.json_schema": made}
    return site.ask("plain", {"question": ASKED}, overrides=overrides)[0]


def _uploaded(site: Site, content: Content, made: Any) -> int:
    """A form with the file."""
    name, data = made
    body = _form({"inputs": {"question": ASKED}, "deadline_s": DEADLINE_S}, name, data)
    path, kind = "/v1/apps/naive-rag/queries", "multipart/form-data; boundary=B"
    return site.send("POST", path, body, kind=kind)[0]


def _form(request: Mapping[str, Any], name: str, data: bytes) -> bytes:
    """A body of multipart/form-data with the boundary B: what is asked, and a file."""
    file = f'form-data; name="documents"; filename="{name}"'.encode()
    return (
        b'--B\r\nContent-Disposition: form-data; name="request"\r\n\r\n%s\r\n'
        b"--B\r\nContent-Disposition: %s\r\n\r\n%s\r\n--B--\r\n"
        % (json.dumps(request).encode(), file, data)
    )


def _chat(site: Site, content: Content, made: Any) -> int:
    return _chatted(site, [{"role": "user", "content": made}])


def _brought(site: Site, content: Content, made: Any) -> int:
    return _chatted(site, [{"role": "user", "content": ASKED}], model="functions", tools=made)


def _wanted(site: Site, content: Content, made: Any) -> int:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": made}}
    return _chatted(site, [{"role": "user", "content": ASKED}], response_format=wanted)


def _chatted(site: Site, messages: list[Any], model: str = "plain", **more: Any) -> int:
    return site.post("/v1/chat/completions", {"model": model, "messages": messages, **more})[0]


def _client_result(site: Site, content: Content, made: Any) -> int:
    """What a client says that its own tool has returned."""
    call = {"id": "c1", "type": "function", "function": {"name": "t0", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": ASKED},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": made},
    ]
    tools = [{"type": "function", "function": {"name": "t0", "parameters": {"type": "object"}}}]
    return _chatted(site, messages, model="functions", tools=tools)


def _embedded(site: Site, content: Content, made: Any) -> int:
    return site.post("/v1/embeddings", {"model": "embedding", "input": made})[0]


def _ranked(site: Site, content: Content, made: Any) -> int:
    texts = [made] if isinstance(made, str) else made
    body = {"model": "rerank", "query": ASKED, "documents": texts}
    return site.post("/v1/rerank", body)[0]


def _answered(site: Site, content: Content, made: Any) -> int:
    """An answer to a question that nobody has asked."""
    body = {"ask": "a1", "answer": made}
    return site.post(f"/v1/queries/{'0' * 32}/answers", body)[0]


# --- tools, servers, models --------------------------------------------------------------------


def _prepare(site: Site, content: Content) -> None:
    site.ask("preparing", {"question": content.name})


def _prepare_long(site: Site, content: Content) -> None:
    site.ask("preparing", {"question": LONG})


def calls(app: str, name: str) -> Way:
    """An agent calls a tool, by the name of the content."""

    def way(site: Site, content: Content, made: Any) -> int:
        arguments = {"question" if app == "nested" else "content": content.name}
        site.fakes.replies = [called(json.dumps(arguments), name)]
        return site.ask(app, {"question": ASKED})[0]

    return way


def looks_up(app: str) -> Way:
    def way(site: Site, content: Content, made: Any) -> int:
        site.fakes.replies = [called(json.dumps({"sql": made}), "sql_lookup")]
        return site.ask(app, {"question": ASKED})[0]

    return way


def mcp(by: str) -> Way:
    """An agent calls a tool of a server, or reads its list."""

    def way(site: Site, content: Content, made: Any) -> int:
        listed = content.name if content.kind == "list" else ORDINARY
        tool = "write" if content.kind == "line" else "give"
        if content.kind != "list":
            site.fakes.replies = [called(json.dumps({"content": content.name}), tool)]
        site.number += 1
        return site.ask("mcp", {"question": f"{by}|{listed}|{site.number}"})[0]

    return way


def _returned(site: Site, content: Content, made: Any) -> int:
    """A component of an application returns it, and the answer holds it."""
    return site.ask("inner", {"question": ASKED})[0]


def _referred(site: Site, content: Content, made: Any) -> int:
    first = called(json.dumps({"content": LONG}))
    site.fakes.replies = [[*first, *called(json.dumps(made), "take", index=1)]]
    return site.ask("functions", {"question": ASKED})[0]


def _found(site: Site, content: Content, made: Any) -> int:
    site.fakes.pages = made
    return site.ask("web", {"question": ASKED})[0]


def writes(app: str) -> Way:
    def way(site: Site, content: Content, made: Any) -> int:
        site.fakes.replies = [list(made)]
        return site.ask(app, {"question": ASKED})[0]

    return way


# --- all of them -------------------------------------------------------------------------------

LOOK: Final = ("id", "question", "value")
ROUTES: Final[tuple[Door, ...]] = (
    route("GET /v1/apps"),
    route("GET /v1/apps/{app}", "id"),
    route(
        "POST /v1/apps/{app}/queries",
        "body",
        question=_query,
        text=_document,
        metadata=_metadata,
        schema=_schema,
        file=_uploaded,
    ),
    route("GET /v1/queries", "search"),
    route("GET /v1/queries/{id}", *LOOK),
    route("DELETE /v1/queries/{id}", "id"),
    route("DELETE /v1/queries/{id}/asked", "id"),
    route("GET /v1/queries/{id}/events", *LOOK),
    route("GET /v1/queries/{id}/trace", *LOOK),
    route("GET /v1/queries/{id}/graph", *LOOK, "search"),
    route("POST /v1/queries/{id}/answers", "body", text=_answered),
    route("GET /v1/models"),
    route("GET /v1/models/{model}", "id"),
    route(
        "POST /v1/chat/completions",
        "body",
        question=_chat,
        text=_client_result,
        tools=_brought,
        schema=_wanted,
    ),
    route("POST /v1/embeddings", "body", text=_embedded, texts=_embedded),
    route("POST /v1/rerank", "body", text=_ranked, texts=_ranked),
    route("GET /v1/queries/{id}/explanation", *LOOK),
    route("GET /v1/queries/{id}/timeline", *LOOK),
    route("GET /v1/queries/{id}/primitives/{primitive}", *LOOK),
    route("GET /v1/collections"),
    route("GET /v1/collections/{name}/documents", "id", "search"),
    route(
        "POST /v1/collections/{name}/documents",
        "id",
        "body",
        text=_indexed,
        metadata=_indexed_metadata,
        file=_indexed_file,
    ),
    route("DELETE /v1/collections/{name}/documents", "id", "search"),
    route("GET /v1/engines"),
    route("GET /healthz"),
    route("GET /readyz"),
    route("GET /metrics"),
)
LEFT_OUT: Final[Mapping[str, str]] = {
    "POST /v1/sql": "its body is read as that of POST /v1/rerank is, and may have one text, of "
    "10,000 characters; queries are read and run in threads",
}
"""Route -> why it is no door."""
OTHERS: Final[tuple[Door, ...]] = (
    Door("tool: sync function", ("value",), calls("functions", "give"), _prepare),
    Door("tool: async function", ("value",), calls("functions", "give_async"), _prepare),
    Door("tool: application", ("value",), calls("nested", "inner"), _prepare),
    Door("tool: sql_lookup, SQLite", ("select",), looks_up("sqlite")),
    Door("tool: sql_lookup, PostgreSQL", ("select",), looks_up("postgres")),
    Door("tool: MCP by stdio", ("value", "line"), mcp("stdio")),
    Door("tool: MCP by URL", ("value", "line"), mcp("url")),
    Door("list: MCP by stdio", ("list",), mcp("stdio")),
    Door("list: MCP by URL", ("list",), mcp("url")),
    Door("references", ("references",), _referred, _prepare_long),
    Door("web search", ("pages",), _found),
    Door("component: function", ("value",), _returned, _prepare),
    Door("model: Generate", ("reply",), writes("plain")),
    Door("model: Agent", ("reply",), writes("functions")),
)
DOORS: Final = (*ROUTES, *OTHERS)
"""A new door is a line in one of these."""
