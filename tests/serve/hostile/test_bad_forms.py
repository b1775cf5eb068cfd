"""Names, forms and documents that are wrong."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.serve.hostile.asking import (
    BODIES,
    COUNT,
    ECHO,
    LIGHTHOUSE,
    OF_FORM,
    RAG,
    field,
    form,
    refused,
)

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_names_that_are_unknown(client: httpx.Client) -> None:
    long = "x" * 1_000_000
    refused(client.post(f"/v1/apps/{'y' * 5000}/queries", json={}), 404, "unknown application")
    for path in ("/v1/chat/completions", "/v1/embeddings", "/v1/rerank"):
        refused(client.post(path, json={**BODIES[path], "model": long}), 404)
    for more in (
        {"inputs": {long: "x"}},
        {"overrides": {long: {}}},
        {"overrides": {"say": {long: 1}}},
        {"passes": long},
        {"mode": long},
        {long: 1},
    ):
        refused(client.post(ECHO, json={**BODIES[ECHO], **more}), 422)


HELLO = field("question", b"hello")
FORMS: dict[str, tuple[str, bytes, str]] = {
    "no boundary": ("multipart/form-data", form(HELLO), "boundary"),
    "another boundary": ("multipart/form-data; boundary=C", form(HELLO), ""),
    "a long boundary": (f"multipart/form-data; boundary={'B' * 9000}", form(HELLO), ""),
    "no end": (OF_FORM, form(HELLO)[:-8], ""),
    "nothing": (OF_FORM, b"", ""),
    "no name": (OF_FORM, form(b"X-Y: z\r\n\r\nhello"), ""),
    "given twice": (OF_FORM, form(HELLO, HELLO), "twice"),
    "given here and there": (
        OF_FORM,
        form(field("request", b'{"inputs": {"question": "x"}}'), HELLO),
        "twice",
    ),
    "two requests": (OF_FORM, form(*[field("request", b"{}")] * 2, HELLO), "twice"),
    "a request that is none": (OF_FORM, form(field("request", b"{"), HELLO), "not JSON"),
    "a request that is a file": (
        OF_FORM,
        form(field("request", b"{}", b'; filename="x"'), HELLO),
        "not a file",
    ),
    "a file for a text": (OF_FORM, form(field("question", b"x", b'; filename="x"')), "file"),
    "an unknown field": (OF_FORM, form(HELLO, field("tenant", b"other")), "unknown input"),
    "an unknown file": (OF_FORM, form(HELLO, field("x", b"x", b'; filename="x"')), "file"),
    "NUL in a text": (OF_FORM, form(field("question", b"a\0b")), "NUL"),
    "NUL in a name": (OF_FORM, form(HELLO, field("a\0b", b"x")), ""),
    "thousands of fields": (OF_FORM, form(*[field("x", b"y")] * 3000), "fields"),
    "thousands of files": (OF_FORM, form(*[field("x", b"y", b'; filename="x"')] * 300), "files"),
    "a text of 10 MB": (OF_FORM, form(field("question", b"x" * 10_000_000)), "1024KB"),
    "a head of 10 MB": (OF_FORM, form(b"X-Y: " + b"z" * 10_000_000 + b"\r\n\r\nx"), ""),
    "thousands of heads": (OF_FORM, form(b"X-Y: z\r\n" * 5000 + HELLO), ""),
    **{
        f"in {charset}": (f"{OF_FORM}; charset={charset}", form(HELLO), "charset")
        for charset in ("utf-16", "punycode", "idna", "undefined", "unicode_escape", "x" * 3000)
    },
}


@pytest.mark.parametrize("name", FORMS)
def test_forms(client: httpx.Client, name: str) -> None:
    kind, sent, told = FORMS[name]
    response = client.post(ECHO, content=sent, headers={"content-type": kind})
    refused(response, 422, told)


def test_a_list_of_texts_by_form_is_one(client: httpx.Client) -> None:
    wrong = field("request", b'{"inputs": {"names": {"a": 1}, "unit": "x"}}')
    sent = form(wrong, field("names", b"b"))
    response = client.post(COUNT, content=sent, headers={"content-type": OF_FORM})
    refused(response, 422, "list of texts")


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ("x", "a document is"),
        (None, "documents"),
        ([None], "a document is"),
        ({"name": "x"}, "a document is"),
        ({"name": 1, "text": "x"}, "a document is"),
        ({"name": "", "text": "x"}, "name"),
        ({"name": " ", "text": "x"}, "name"),
        ({"name": "x" * 1000, "text": "x"}, "name"),
        ({"name": "a\nb", "text": "x"}, "name"),
        ({"name": "a\u202efdp.exe", "text": "x"}, "name"),
        ({"name": "x", "text": ""}, "empty"),
        ({"name": "x", "text": " \n"}, "no text"),
        ({"name": "x", "text": "x", "metadata": 7}, "metadata"),
        ({"name": "x", "text": "x", "metadata": [["a", 1]]}, "metadata"),
        ({"path": "/etc/passwd"}, "a document is"),
    ],
)
def test_documents(client: httpx.Client, document: Any, told: str) -> None:
    given = {"question": "lamp?", "documents": document}
    refused(client.post(RAG, json={"inputs": given}), 422, told)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"collection": ""}, "collection"),
        ({"collection": 7}, "collection"),
        ({"collection": ["default"]}, "collection"),
        ({"collection": "no such"}, "no collection"),
        ({"documents": LIGHTHOUSE, "filters": "x"}, "filters"),
        ({"documents": LIGHTHOUSE, "filters": [1]}, "filters"),
        ({"documents": LIGHTHOUSE, "filters": {"name": 7}}, "name"),
    ],
)
def test_scopes(client: httpx.Client, more: dict[str, Any], told: str) -> None:
    refused(client.post(RAG, json={"inputs": {"question": "lamp?", **more}}), 422, told)
