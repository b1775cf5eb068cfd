"""Hostile contents: a line each. A kind says through which doors a content can come.

A content is made anew when it is sent: the largest has 100 MB.
"""

from __future__ import annotations

import html
import io
import json
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

MIB: Final = 2**20
JSON_LIMIT: Final = 3_900_000
"""Characters: with what is around it, a body of JSON may have 4 MiB."""
QUESTION: Final = 262_000
"""Characters that a question may have."""
PIECES: Final[Mapping[str, str]] = {
    "spaces": " ",
    "one word": "a",
    "accents": "\u0301",
    "full stops": ". ",
    "newlines": "\n",
    "zero width": "\u200b",
    "CJK": "\u6f22",
    "tags": "<b>",
}
"""What texts are made of, over and over."""


@dataclass(frozen=True, slots=True)
class Content:
    """kind: see KINDS. make: the content itself. quick: part of a smaller run."""

    kind: str
    name: str
    make: Callable[[], Any]
    quick: bool = False


KINDS: Final[Mapping[str, str]] = {
    "head": "headers of a request",
    "id": "an id, or another part of a path",
    "search": "the part of a URL behind the question mark",
    "body": "bytes that say they are JSON",
    "text": "a text in the place where a route takes one",
    "question": "a text as long as a question may be",
    "texts": "a list of texts, to be embedded or ranked",
    "metadata": "documents with metadata",
    "schema": "a JSON schema for an answer",
    "tools": "tools that a client brings along",
    "file": "a file that is uploaded: its name and its bytes",
    "value": "a value that a tool returns",
    "select": "a SELECT of a model",
    "references": "arguments of a call that refer to a result of 7 MB",
    "reply": "what a language model writes: events of its stream",
    "list": "the list of tools of an MCP server",
    "line": "an answer of an MCP server, byte for byte",
    "pages": "what a search engine finds",
}


def repeated(piece: str, size: int) -> str:
    """The piece over and over, between two words, of about `size` bytes."""
    return "oil" + piece * (size // len(piece.encode())) + "lamp"


# --- bodies -----------------------------------------------------------------------------------


def nested(levels: int) -> bytes:
    return b'{"inputs": {"question": ' + b"[" * levels + b"]" * levels + b"}}"


def many(count: int) -> bytes:
    """A list of so many numbers."""
    return b'{"inputs": {"question": [' + b"1," * (count - 1) + b"1]}}"


def padded(size: int) -> bytes:
    return b'{"inputs": ' + b" " * size + b"{}}"


# --- schemas ----------------------------------------------------------------------------------


def wide(properties: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {f"p{i}": {"type": "string"} for i in range(properties)},
    }


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"p": schema}}
    return schema


def doubling(levels: int) -> dict[str, Any]:
    """References that lead twice to the next."""
    parts = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(levels)}
    return {"$defs": {**parts, f"d{levels}": {}}, "$ref": "#/$defs/d0"}


def client_tools(count: int, schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Tools in the form of OpenAI."""
    return [
        {"type": "function", "function": {"name": f"t{i}", "parameters": schema}}
        for i in range(count)
    ]


def server_tools(
    count: int, schema: Mapping[str, Any], description: str = "A tool."
) -> list[dict[str, Any]]:
    """Tools in the form of MCP."""
    return [
        {"name": f"t{i}", "description": description, "inputSchema": schema} for i in range(count)
    ]


# --- files ------------------------------------------------------------------------------------


def pdf(stream: bytes) -> bytes:
    """A PDF of one page; stream: the object that is its content."""
    objects = (
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents 4 0 R/Resources<<>>>>",
        stream,
    )
    out, offsets = bytearray(b"%PDF-1.7\n"), []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 5\n0000000000 65535 f \n"
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    return bytes(out + b"trailer<</Size 5/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % start)


def deflated(mib: int) -> bytes:
    """A PDF whose page unpacks to so much."""
    pack = zlib.compressobj(1)
    piece = b"BT (boom) Tj ET " * 65536
    data = b"".join(pack.compress(piece) for _ in range(mib)) + pack.flush()
    head = b"<</Length %d/Filter/FlateDecode>>" % len(data)
    return pdf(head + b"stream\n" + data + b"\nendstream")


def packed(mib: int) -> bytes:
    """A .docx that unpacks to so much."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", bytes(mib * MIB))
    return out.getvalue()


# --- values -----------------------------------------------------------------------------------


def rows(count: int) -> list[list[Any]]:
    return [[i, "row"] for i in range(count)]


def inside(levels: int) -> Any:
    """A list in a list in a list ..."""
    value: Any = "lamp"
    for _ in range(levels):
        value = [value]
    return value


# --- what models write -------------------------------------------------------------------------


def said(text: str, size: int = 2**14) -> list[dict[str, Any]]:
    """Deltas of a stream that writes a text in pieces of `size`."""
    return [{"content": text[at : at + size]} for at in range(0, len(text), size)]


def called(arguments: str, name: str = "give", index: int = 0) -> list[dict[str, Any]]:
    """Deltas of a call, its arguments in pieces."""
    pieces = [arguments[at : at + 2**14] for at in range(0, len(arguments), 2**14)]
    return [
        {"tool_calls": [{"index": index, "function": {"name": name, "arguments": piece}}]}
        for piece in pieces
    ]


def calls(count: int) -> list[dict[str, Any]]:
    made = (called('{"content": "nothing"}', index=i) for i in range(count))
    return list(chain.from_iterable(made))


def references(text: str) -> dict[str, Any]:
    return {"text": text}


# --- all of them -------------------------------------------------------------------------------

QUICK_PIECES: Final = ("spaces", "accents")
CONTENTS: Final[tuple[Content, ...]] = (
    Content("head", "a header of 1 MB", lambda: [("x-long", "a" * 10**6)], True),
    Content("head", "100,000 headers", lambda: [(f"x-{i}", "a") for i in range(100_000)]),
    Content("head", "a cookie of 60 kB", lambda: [("cookie", "a=b;" * 15_000)]),
    Content("id", "an unknown id", lambda: "0" * 32, True),
    Content("id", "an id of 60,000 characters", lambda: "a" * 60_000),
    Content("id", "10,000 dots in a path", lambda: "%2e%2e%2f" * 5_000),
    Content("search", "10,000 parameters", lambda: "&".join(f"a{i}=b" for i in range(10_000))),
    Content("search", "a number of 60,000 digits", lambda: "limit=" + "9" * 60_000, True),
    *(
        Content("body", f"45 MiB of {name}", lambda p=piece: repeated(p, 45 * MIB).encode())
        for name, piece in PIECES.items()
    ),
    Content("body", "45 MiB of spaces in JSON", lambda: padded(45 * MIB), True),
    Content("body", "3.9 MB of spaces in JSON", lambda: padded(JSON_LIMIT)),
    Content("body", "JSON with 1,900,000 levels", lambda: nested(1_900_000), True),
    Content("body", "JSON with 1,900,000 values", lambda: many(1_900_000)),
    Content("body", "JSON with 260,000 values", lambda: many(260_000)),
    *(
        Content("text", f"3.9 MB of {name}", lambda p=piece: repeated(p, JSON_LIMIT), q)
        for name, piece in PIECES.items()
        for q in [name in QUICK_PIECES]
    ),
    *(
        Content("question", f"262,000 of {name}", lambda p=piece: (p * QUESTION)[:QUESTION], q)
        for name, piece in PIECES.items()
        for q in [name == "one word"]
    ),
    Content("texts", "2,000 texts", lambda: ["The lamp is lit."] * 2_000, True),
    Content("texts", "2,000 texts of 1,900 characters", lambda: ["lamp " * 380] * 2_000),
    Content("metadata", "10,000 with some", lambda: [{"a": i} for i in range(10_000)]),
    Content("metadata", "200 with 16 kB", lambda: [{"a": "b" * 16_000}] * 200),
    Content("metadata", "100 levels", lambda: [{"a": inside(100)}], True),
    Content("metadata", "1,500 entries", lambda: [{f"k{i}": i for i in range(1_500)}] * 100),
    Content("schema", "of 500 properties", lambda: wide(500)),
    Content("schema", "of 90,000 properties", lambda: wide(90_000)),
    Content("schema", "of 400 levels", lambda: deep(400)),
    Content("schema", "doubling 40 times", lambda: doubling(40), True),
    Content("tools", "20 x 6 properties", lambda: client_tools(20, wide(6))),
    Content("tools", "16 x 100 properties", lambda: client_tools(16, wide(100)), True),
    Content("tools", "128 x 25 properties", lambda: client_tools(128, wide(25))),
    Content("tools", "128 x 100 properties", lambda: client_tools(128, wide(100))),
    Content("tools", "3,003 tools", lambda: client_tools(3_003, wide(1))),
    Content("tools", "one of 1,500 properties", lambda: client_tools(1, wide(1_500))),
    Content("tools", "one of 400 levels", lambda: client_tools(1, deep(400))),
    *(
        Content(
            "file",
            f"45 MiB of {name}",
            lambda p=piece: (f"{0}.txt", repeated(p, 45 * MIB).encode()),
            q,
        )
        for name, piece in PIECES.items()
        for q in [name == "spaces"]
    ),
    Content("file", "a PDF of 600 MiB unpacked", lambda: ("a.pdf", deflated(600))),
    Content("file", "a PDF of 200,000 levels", lambda: ("a.pdf", pdf(b"[" * 200_000))),
    Content("file", "a .docx of 100 MiB unpacked", lambda: ("a.docx", packed(100))),
    Content("file", "HTML with 1,000,000 levels", lambda: ("a.html", b"<div>" * 10**6)),
    Content(
        "file",
        "HTML with 2,000,000 entities",
        lambda: ("a.html", html.escape("<" * 2_000_000).encode()),
    ),
    Content("value", "200,000 rows", lambda: rows(200_000), True),
    Content("value", "1,000,000 rows", lambda: rows(1_000_000)),
    Content("value", "200 rows of 1 MB", lambda: [[i, "x" * 10**6] for i in range(200)], True),
    Content("value", "one text of 100 MB", lambda: "x" * 10**8),
    Content("value", "100,000 levels", lambda: inside(100_000)),
    Content("value", "900 levels", lambda: inside(900)),
    *(
        Content("value", f"45 MiB of {name}", lambda p=piece: repeated(p, 45 * MIB))
        for name, piece in PIECES.items()
    ),
    Content("select", "1,000,000 rows", lambda: "SELECT * FROM long"),
    Content("select", "200 rows of 1 MB", lambda: "SELECT * FROM wide", True),
    Content("select", "one value of 100 MB", lambda: "SELECT * FROM huge", True),
    Content("select", "a statement of 1 MB", lambda: "SELECT 1" + " + 1" * 250_000),
    Content("select", "20,000 parentheses", lambda: "SELECT " + "(" * 20_000 + "1" + ")" * 20_000),
    Content("references", "100 times", lambda: references("$1" * 100), True),
    Content("references", "400 times", lambda: references("$1" * 400)),
    Content("references", "1,000 arguments", lambda: {"texts": ["$1"] * 1_000}),
    Content("references", "300,000 of a field", lambda: references("$1.x[0]" * 300_000)),
    Content("reply", "10 MB of spaces", lambda: said(" " * 10**7), True),
    Content("reply", "10 MB of one word", lambda: said("a" * 10**7)),
    Content("reply", "200,000 pieces of one character", lambda: said("a" * 200_000, 1)),
    Content("reply", "JSON with 100,000 levels", lambda: said('{"answer": ' + "[" * 100_000)),
    Content(
        "reply", "arguments of 10 MB", lambda: called('{"content": "' + "a" * 10**7 + '"}'), True
    ),
    Content(
        "reply", "arguments of 1 MB", lambda: called('{"content": "' + "a" * 10**6 + '"}'), True
    ),
    Content(
        "reply",
        "arguments of 3 MB of braces",
        lambda: called('{"content": "' + "}" * 3_000_000 + '"}'),
    ),
    Content(
        "reply",
        "arguments with 400,000 levels",
        lambda: called('{"content": ' + "[" * 400_000 + "]" * 400_000 + "}"),
    ),
    Content("reply", "5,000 calls", lambda: calls(5_000)),
    Content("list", "3,003 tools", lambda: server_tools(3_003, wide(3)), True),
    Content("list", "128 x 100 properties", lambda: server_tools(128, wide(100))),
    Content("list", "500 x 100 properties", lambda: server_tools(500, wide(100))),
    Content("list", "one of 90,000 properties", lambda: server_tools(1, wide(90_000))),
    Content("list", "one of 150 levels", lambda: server_tools(1, deep(70))),
    Content("list", "descriptions of 1 MB", lambda: server_tools(7, wide(1), "x" * 10**6)),
    Content("line", "16 MiB in a line", lambda: b"x" * (16 * MIB), True),
    Content("line", "64 MiB in a line", lambda: b"x" * (64 * MIB)),
    Content("line", "1,000,000 empty lines", lambda: b"\n" * 10**6),
    Content("line", "400,000 levels in a line", lambda: b"[" * 400_000 + b"\n"),
    Content("pages", "200,000 pages", lambda: [("http://a.example/", "lamp")] * 200_000, True),
    *(
        Content(
            "pages",
            f"a page of 45 MiB of {name}",
            lambda p=piece: [("http://a.example/", repeated(p, 45 * MIB))],
        )
        for name, piece in PIECES.items()
    ),
)
"""A new content is a line here."""
BY_NAME: Final[Mapping[tuple[str, str], Content]] = {(one.kind, one.name): one for one in CONTENTS}


def of_kinds(kinds: tuple[str, ...], quick: bool) -> list[Content]:
    """The contents that come through a door of these kinds."""
    return [one for one in CONTENTS if one.kind in kinds and (one.quick or not quick)]


def size(made: Any) -> int:
    """Bytes of a content, as JSON where it is a value."""
    if isinstance(made, bytes):
        return len(made)
    if isinstance(made, str):
        return len(made.encode())
    if isinstance(made, tuple):
        return len(made[1])
    try:
        return len(json.dumps(made))
    except RecursionError:
        return 2 * _levels(made)


def _levels(value: Any) -> int:
    levels = 0
    while isinstance(value, list) and value:
        value, levels = value[0], levels + 1
    return levels
