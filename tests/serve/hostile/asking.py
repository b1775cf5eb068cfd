"""Requests that are right but for one thing, and what a refusal looks like."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import httpx

ECHO = "/v1/apps/echo/queries"
COUNT = "/v1/apps/count/queries"
RAG = "/v1/apps/naive-rag/queries"
PORE = "/v1/apps/pore/queries"
"""Holds documents for as long as its question makes it wait."""
LIGHTHOUSE = {"name": "lighthouse.md", "text": "The lamp is looked after by Mara Quist."}
TEXT = "@@"
"""Stands for the text in the bodies below."""
BODIES: dict[str, Any] = {
    ECHO: {"inputs": {"question": TEXT}},
    "/v1/chat/completions": {"model": "echo", "messages": [{"role": "user", "content": TEXT}]},
    "/v1/embeddings": {"model": "embedding", "input": TEXT},
    "/v1/rerank": {"model": "rerank", "query": "lamp", "documents": [TEXT]},
}
TIMES: Final = "SOAK_REFUSALS"
"""Names the file, if there is to be one, where it is written down how long refusals took."""
OF_FORM = "multipart/form-data; boundary=B"


def body(path: str, text: str) -> str:
    """The body for `path`, with `text`, which is JSON or is not, in the place of its text."""
    return json.dumps(BODIES[path]).replace(f'"{TEXT}"', text)


def refused(response: httpx.Response, status: int, *told: str) -> None:
    """It is, in the form of its path, in one line that holds one of `told`."""
    openai = not response.request.url.path.startswith("/v1/apps")
    if openai and status == 422:
        status = 400  # there it is all one
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert ("type" in error) == openai
    assert error["message"]
    assert "\n" not in error["message"]
    assert len(error["message"]) < 1100
    assert not told or any(one in error["message"] for one in told), error["message"]
    if name := os.environ.get(TIMES):
        seconds, test = response.elapsed.total_seconds(), os.environ["PYTEST_CURRENT_TEST"]
        with Path(name).open("a") as times:
            times.write(f"{seconds}\t{error['code']}\t{test!a}\n")


def form(*parts: bytes, boundary: bytes = b"B") -> bytes:
    """A body of multipart/form-data; each part with its headers."""
    return b"".join(b"--" + boundary + b"\r\n" + part + b"\r\n" for part in parts) + (
        b"--" + boundary + b"--\r\n"
    )


def field(name: str, value: bytes, more: bytes = b"") -> bytes:
    head = f'Content-Disposition: form-data; name="{name}"'.encode()
    return head + more + b"\r\n\r\n" + value
