"""Bodies that are no JSON, or JSON that cannot be taken: refused on every route that takes any."""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx
import pytest

from tests.serve.hostile.asking import BODIES, ECHO, body, refused

pytestmark = pytest.mark.usefixtures("nothing_left")

TEXTS = {
    r'"\ud800"': "surrogate",
    r'"a\udfffb"': "surrogate",
    r'"\ud83d \ude00"': "surrogate",
    r'"a\u0000b"': "NUL",
    '"a\x00b"': "not JSON",
    '"a\nb"': "not JSON",
    "NaN": "NaN",
    "-Infinity": "Infinity",
    "1e999": "too large",
    "-1e999": "too large",
    "9" * 5000: "64 bits",
    "9223372036854775808": "64 bits",
    "7": "",
    "true": "",
    "null": "",
    "{}": "",
    '{"a": 1, "a": 2}': "twice",
    "[" * 70 + "]" * 70: "deeper than 64",
    '{"a":' * 90_000 + "1" + "}" * 90_000: "deeper than 64",
    '"x': "not JSON",
    "'x'": "not JSON",
    '"x" // a remark': "not JSON",
}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_texts_that_are_none(client: httpx.Client, path: str, text: str) -> None:
    refused(client.post(path, content=body(path, text)), 422, TEXTS[text])


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"[" * 100_000,
        b"\xff\xfe{\x00}\x00",
        b'{"a": "\xff"}',
        b'{"a": "\xed\xa0\x80"}',
        json.dumps({"a": 1}).encode("utf-16"),
        gzip.compress(b"{}", mtime=0),
        b"%PDF-1.7",
        b'{"model": "x", "model": "y"}',
    ],
)
def test_bodies_that_are_none(client: httpx.Client, path: str, sent: bytes) -> None:
    refused(client.post(path, content=sent), 422)


@pytest.mark.parametrize("path", BODIES)
def test_ten_megabytes_of_question(client: httpx.Client, path: str) -> None:
    big = body(path, json.dumps("x" * 10_000_000)).encode()
    refused(client.post(path, content=big), 413, "4 MiB")
    pieces = [big[at : at + 2**20] for at in range(0, len(big), 2**20)]
    refused(client.post(path, content=iter(pieces)), 413, "4 MiB")


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    "text",
    [
        "e\u0301" * 2000,
        "Z" + "\u0335" * 5000,
        "\u202eabc\u2066",
        "👩‍👩‍👧‍👦" * 50,
        "\ufeff x",
        "\u200b",
    ],
)
def test_oddities_that_are_text(client: httpx.Client, path: str, text: str) -> None:
    for written in (json.dumps(text), json.dumps(text, ensure_ascii=False)):
        response = client.post(path, content=body(path, written).encode())
        assert response.status_code == 200, response.text
    if path == ECHO:
        assert response.json()["outputs"]["answer"] == f"you said: {text}"


def test_a_pair_of_escapes_is_one_character(client: httpx.Client) -> None:
    for written in (r'"\ud83d\ude00 \\u0000 \\ud800"', json.dumps("😀 \\u0000 \\ud800")):
        found = client.post(ECHO, content=body(ECHO, written)).json()
        assert found["outputs"]["answer"] == "you said: 😀 \\u0000 \\ud800"


def test_what_a_component_makes_of_it_is_sent_as_json(client: httpx.Client) -> None:
    deep: Any = 1
    for _ in range(55):
        deep = [deep]
    for value in (deep, 1e308, -(2**63), {"": ""}, ["\\"], "\u2028"):
        found = client.post("/v1/apps/mirror/queries", json={"inputs": {"value": value}})
        assert found.json()["outputs"] == {"answer": value}
