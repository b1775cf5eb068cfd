"""What only the client may read: not in what the process writes, nor in traces, graphs, metrics."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from teola.serve.access.auth import KeyFile
from tests.serve.process import ready

APP = """
from teola import App, component

@component(outputs="answer")
async def say(question: str) -> str:
    if "fail" in question:
        raise ValueError(f"cannot do {question}")
    if "deep" in question:
        raise RuntimeError("first line\\n" + question)
    return "the answer is " + question[::-1]

app = App("parrot", template=say, inputs={"question": "text"}, outputs={"answer": "answer"})
"""
KINDS = (
    "question",
    "fail",
    "deep",
    "text",
    "name",
    "metadata",
    "collection",
    "instruction",
    "body",
)


@dataclass
class Process:
    """`teola serve`, its keys and what it wrote."""

    running: subprocess.Popen[str]
    url: str
    key: str
    metrics_key: str
    output: Path

    def client(self) -> httpx.Client:
        headers = {"authorization": f"Bearer {self.key}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=120)


@pytest.fixture(scope="module")
def canaries() -> dict[str, str]:
    """One for each kind of secret; backwards it is one as well."""
    return {kind: f"canary{kind}{secrets.token_hex(8)}" for kind in KINDS}


@pytest.fixture(
    scope="module",  # with --debug it writes what it does without, and more
    params=[
        pytest.param(False, id="plain", marks=pytest.mark.nightly),
        pytest.param(True, id="debug"),
    ],
)
def process(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, data_dir: Path,
    admin: str,
) -> Iterator[Process]:  # fmt: skip
    folder = tmp_path_factory.mktemp("canaries")
    (folder / "parrot.py").write_text(APP)
    keys = KeyFile(folder / "keys.json")
    key, metrics_key = keys.create("one", "red"), keys.create("two", "ops", ["metrics"])
    words = [str(folder / "parrot.py"), "naive-rag", "--keys", str(keys.path)]
    words += ["--data-dir", str(data_dir), *(["--debug"] if request.param else [])]
    with ready(words, folder / "output") as (running, url):
        yield Process(running, url, key, metrics_key, folder / "output")


@pytest.fixture(scope="module")
def ids(process: Process, canaries: dict[str, str]) -> list[str]:
    """Queries that hold secrets in all places, and end well and badly."""
    with process.client() as client:
        return [*_asked(client, canaries)]


def _asked(client: httpx.Client, canaries: dict[str, str]) -> Iterator[str]:
    parrot, rag = "/v1/apps/parrot/queries", "/v1/apps/naive-rag/queries"
    for kind in ("question", "fail", "deep"):
        for mode in ("sync", "stream", "background"):
            question = {"question": f"{kind} {canaries[kind]}"}
            yield client.post(parrot, json={"inputs": question, "mode": mode}).headers["x-query-id"]
    document = {
        "name": f"{canaries['name']}.md",
        "text": f"The lamp is kept by {canaries['text']}.",
        "metadata": {"mark": canaries["metadata"]},
    }
    inputs = {"question": canaries["question"], "documents": document}
    instruction = {"generate.instruction": f"Say {canaries['instruction']}. "}
    for more in ({}, {"collection": canaries["collection"]}):
        response = client.post(rag, json={"inputs": {**inputs, **more}, "overrides": instruction})
        yield response.raise_for_status().headers["x-query-id"]
    broken = {"documents": (f"{canaries['name']}.pdf", canaries["text"].encode())}
    response = client.post(rag, data={"question": canaries["question"]}, files=broken)
    yield response.headers.get("x-query-id", "")
    _refused(client, canaries["body"])


def _refused(client: httpx.Client, canary: str) -> None:
    """Requests that are wrong, and hold a secret where they are."""
    chat = "/v1/chat/completions"
    say: dict[str, Any] = {"role": "user", "content": f"fail {canary}"}
    for path, body in (
        ("/v1/apps/parrot/queries", f'{{"inputs": {canary}'),
        ("/v1/apps/parrot/queries", json.dumps({"inputs": {canary: canary}})),
        ("/v1/apps/parrot/queries", json.dumps({"overrides": {"say": {canary: 1}}})),
        (f"/v1/apps/{canary}/queries", "{}"),
        (f"/v1/{canary}", "{}"),
        (chat, json.dumps({"model": canary, "messages": []})),
        (chat, json.dumps({"model": "parrot", "messages": [say]})),
        (chat, json.dumps({"model": "parrot", "messages": [say], "stream": True})),
        ("/v1/embeddings", json.dumps({"model": "embedding", "input": [canary, 7]})),
        ("/v1/rerank", json.dumps({"model": "rerank", "query": canary, "documents": []})),
    ):
        assert client.post(path, content=body).status_code in (200, 400, 404, 405, 422, 502)
    bad = {"authorization": f"Bearer {canary}", "x-api-key": canary, "cookie": canary}
    assert client.get("/v1/apps", headers=bad).status_code == 401


def found_in(text: str, canaries: dict[str, str]) -> list[str]:
    """Kinds of secrets in a text; an answer has them backwards."""
    return [kind for kind, one in canaries.items() if one in text or one[::-1] in text]


def test_views_of_a_query_hold_no_texts(
    process: Process, ids: list[str], canaries: dict[str, str]
) -> None:
    with process.client() as client:
        paths = [path for path in client.get("/openapi.json").json()["paths"] if "{id}/" in path]
        assert len(paths) >= 3
        for id in filter(None, ids):
            for path in paths:
                if path.endswith(("/events", "/explanation")):
                    continue  # events are the answer; an explanation says what was overridden
                for form in ("json", "mermaid", "dot"):
                    response = client.get(path.replace("{id}", id), params={"form": form})
                    # a timeline says why a try failed, in the words of the query's own error
                    told = ([], ["fail"], ["deep"]) if path.endswith("/timeline") else ([],)
                    assert found_in(response.text, canaries) in told, path
        shown = client.get(f"/v1/queries/{ids[0]}").text
        assert found_in(shown, canaries) == ["question"]  # it would be noticed


def test_metrics_and_lists_hold_no_texts(
    process: Process, ids: list[str], canaries: dict[str, str]
) -> None:
    headers = {"authorization": f"Bearer {process.metrics_key}"}
    metrics = httpx.get(f"{process.url}/metrics", headers=headers).text
    assert "teola_query_seconds" in metrics
    assert not found_in(metrics, canaries)
    assert process.key not in metrics
    with process.client() as client:
        rows = client.get("/v1/queries").json()["queries"]
        asked = [row.pop("question", "") for row in rows]
        assert "question" in found_in(json.dumps(asked), canaries)  # it would be noticed
        assert not found_in(json.dumps(rows), canaries)
        for path in ("/v1/apps", "/v1/engines", "/v1/models", "/openapi.json"):
            assert not found_in(client.get(path).text, canaries), path


def test_the_process_writes_no_secrets(
    process: Process, ids: list[str], canaries: dict[str, str]
) -> None:
    """The last test on a process: it is stopped here, with what it says at its end."""
    process.running.send_signal(signal.SIGTERM)
    said, _ = process.running.communicate(timeout=60)
    assert process.running.returncode == 0
    written = process.output.read_text() + said
    assert "parrot" in written
    assert not found_in(written, canaries), written
    assert process.key not in written
    assert process.metrics_key not in written
