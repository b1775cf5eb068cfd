"""Documents over HTTP, with the real engines."""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import openai
import pytest
from fpdf import FPDF
from starlette.types import Message

from teola import Runtime
from teola.catalogue import load_app
from teola.errors import DeadlineExceeded, InputError
from teola.serve.board import Board
from teola.serve.intake.fetching import NewPath
from teola.serve.intake.listed_documents import TOGETHER_BYTES, Intake
from teola.serve.intake.uploads import Allowance, Upload
from teola.serve.server import Readiness, make_app
from teola.workflow.kinds import Kind
from tests.conftest import PAGES
from tests.serve.conftest import Served, serving, soon

ASK, CHAT = "/v1/apps/naive-rag/queries", "/v1/chat/completions"
QUESTION = "Who looks after the lamp of the lighthouse?"


@pytest.fixture(scope="module")
def rag(runtime: Runtime) -> Iterator[Served]:
    app = load_app("naive-rag")
    with serving(runtime, {"naive-rag": app}) as found:
        yield found


@pytest.fixture
def client(rag: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # uploads of nobody else
    with httpx.Client(base_url=rag.url, timeout=120) as client:
        yield client


def kept() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("teola-uploads-*/*"))


def pdf(text: str) -> bytes:
    page = FPDF()
    page.add_page()
    page.set_font("helvetica", size=12)
    page.multi_cell(0, None, text)
    return bytes(page.output())


def test_an_uploaded_pdf_is_asked_about_and_not_kept(client: httpx.Client) -> None:
    before = kept()
    files = [("documents", ("../../a lamp.pdf", pdf(PAGES["lighthouse.md"]), "application/pdf"))]
    response = client.post(ASK, data={"question": QUESTION}, files=files)
    found = response.json()
    assert "Mara Quist" in found["outputs"]["answer"]
    assert {hit["document"] for hit in found["outputs"]["sources"]} == {"a lamp.pdf"}
    assert kept() == before


def test_several_files_and_inline_documents_go_together(client: httpx.Client) -> None:
    inline = {"name": "more.md", "text": PAGES["boats.md"] + "\nThat is all of them.\n"}
    files = [("documents", (name, text.encode())) for name, text in PAGES.items()]
    told = json.dumps({"inputs": {"question": "Which boat is the largest?", "documents": inline}})
    response = client.post(ASK, data={"request": told}, files=files[::2])
    found = response.json()["outputs"]
    assert {hit["document"] for hit in found["sources"]} == {
        "more.md",
        "lighthouse.md",
        "market.txt",
    }


def test_a_client_may_not_name_files_of_the_server(client: httpx.Client) -> None:
    for documents in ("/etc/passwd", ["/etc"], [{"path": "/etc/passwd"}], {"name": "x"}):
        body = {"inputs": {"question": QUESTION, "documents": documents}}
        response = client.post(ASK, json=body)
        assert response.status_code == 422
        assert "a document is" in response.json()["error"]["message"]
    refused = client.post(ASK, data={"question": QUESTION, "documents": "/etc/passwd"})
    assert refused.status_code == 422


def test_what_cannot_be_read_is_refused_and_not_kept(client: httpx.Client, rag: Served) -> None:
    before = kept()
    files = {"documents": ("broken.pdf", b"%PDF-1.7 and then nothing")}
    response = client.post(ASK, data={"question": QUESTION}, files=files)
    assert response.status_code == 422
    assert response.json()["error"]["code"] == "unreadable_document"
    assert response.json()["error"]["message"].startswith("cannot read 'broken.pdf'")
    soon(lambda: kept() == before and not rag.board.running)


def test_openais_client_gets_a_streamed_answer_about_a_document(rag: Served) -> None:
    documents = [{"name": name, "text": text} for name, text in PAGES.items()]
    with openai.OpenAI(base_url=f"{rag.url}/v1", api_key="none", max_retries=0) as client:
        stream = client.chat.completions.create(
            model="naive-rag",
            messages=[{"role": "user", "content": QUESTION}],
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"documents": documents},
        )
        pieces = list(stream)
    said = "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)
    assert "Mara Quist" in said
    assert pieces[-1].usage is not None
    assert pieces[-1].usage.prompt_tokens > 20
    assert pieces[-1].usage.completion_tokens > 0


# --- files within JSON -----------------------------------------------------------------------

FILES = [{"name": f"{i}.txt", "data": base64.b64encode(bytes(500_000)).decode()} for i in range(4)]


async def _stays() -> Message:
    """A client that waits for its answer."""
    await asyncio.Event().wait()
    raise AssertionError


async def test_the_files_of_a_query_share_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    app = load_app("naive-rag")
    for _ in range(30):
        upload = Upload()
        found = await Intake().documents(app, {"documents": FILES}, upload, _stays, 30.0)
        assert {source.path.parent for source in found["documents"]} == {upload.folder}
        upload.remove()
        assert not kept()


async def test_files_of_a_query_that_is_cancelled_while_they_are_written_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    app = load_app("naive-rag")
    for turns in range(12):
        upload = Upload()
        getting = Intake().documents(app, {"documents": FILES}, upload, _stays, 30.0)
        task = asyncio.ensure_future(getting)
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        upload.remove()
    await asyncio.get_running_loop().shutdown_default_executor()
    assert not kept()


TOLD: Any = [{"role": "user", "content": QUESTION}]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (ASK, {"inputs": {"question": QUESTION, "documents": FILES}}),
        (CHAT, {"model": "naive-rag", "messages": TOLD, "documents": FILES}),
        (CHAT, {"model": "naive-rag", "messages": TOLD, "documents": FILES, "stream": True}),
    ],
)
async def test_a_request_that_is_cancelled_while_its_files_are_written_leaves_none(
    path: str, body: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a server that stops cancels it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Runtime() as runtime:
        apps = {"naive-rag": load_app("naive-rag")}
        asgi: Any = make_app(runtime, apps, Board(9), Readiness(ready=True))
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(asgi), base_url="http://127.0.0.1"
        ) as client:
            for _ in range(3):
                asking = asyncio.create_task(client.post(path, json=body))
                while not kept():
                    assert not asking.done()
                    await asyncio.sleep(0)
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking
                await asyncio.to_thread(soon, lambda: not kept())


# --- of several inputs ----------------------------------------------------------------------


TWO: Any = SimpleNamespace(inputs=dict.fromkeys(("old", "new"), Kind.DOCUMENTS))
"""An application that takes two lists of documents."""


class Slow:
    """A fetcher. size: of each document. takes_s: to get one."""

    def __init__(self, size: int = 0, takes_s: float = 0.0) -> None:
        self.size, self.takes_s, self.asked = size, takes_s, list[str]()

    async def fetch(self, url: str, place: NewPath, allowance: Allowance) -> Path:
        self.asked.append(url)
        await asyncio.sleep(self.takes_s)
        allowance.take(self.size)
        path = place(".txt")
        path.write_text(url)
        return path


@pytest.fixture
def upload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Upload]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    upload = Upload()
    yield upload
    upload.remove()


def documents(kind: str, count: int) -> list[dict[str, Any]]:
    """So many that differ."""
    whole = {"url": "http://a.example/", "data": "QQ==", "text": ""}[kind]
    return [{"name": f"{k}.txt", kind: f"{whole}{k}" if kind == "url" else whole}
            for k in range(count)]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "most", "told"),
    [
        ("url", 16, "16 documents of a query are URLs"),
        ("data", 100, "100 documents of a query are files"),
        ("text", 10_000, "10000 documents belong to a query"),
    ],
)
async def test_bounds_on_how_many_hold_for_all_inputs_together(
    upload: Upload, kind: str, most: int, told: str
) -> None:
    slow: Any = Slow()
    intake, few = Intake(slow), most // 3
    inputs = {"old": documents(kind, few), "new": documents(kind, most - few), "k": 3}
    found = await intake.documents(TWO, inputs, upload, _stays, 30.0)
    assert [len(found[name]) for name in TWO.inputs] == [few, most - few]
    assert (found["k"], len(slow.asked)) == (3, most if kind == "url" else 0)
    inputs["new"] = documents(kind, most - few + 1)
    with pytest.raises(InputError, match=f"'new': at most {told}"):
        await intake.documents(TWO, inputs, upload, _stays, 30.0)
    assert len(slow.asked) <= most, "nothing is fetched for what is refused"


@pytest.mark.parametrize("inputs", [("old",), ("old", "new")])
async def test_bytes_are_counted_for_all_inputs_together(
    upload: Upload, inputs: tuple[str, ...]
) -> None:
    half: Any = Slow(TOGETHER_BYTES // 2)
    listed = {name: documents("url", 2 // len(inputs)) for name in inputs}
    await Intake(half).documents(TWO, listed, upload, _stays, 30.0)
    half.size += 1
    with pytest.raises(InputError, match="too large together"):
        await Intake(half).documents(TWO, listed, upload, _stays, 30.0)


async def test_the_time_for_documents_is_one_for_all_inputs(upload: Upload) -> None:
    slow: Any = Slow(takes_s=0.02)
    inputs = {name: documents("url", 1) for name in TWO.inputs}
    with pytest.raises(DeadlineExceeded):
        await Intake(slow).documents(TWO, inputs, upload, _stays, 0.03)
