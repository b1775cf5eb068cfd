"""Documents by URL through the whole server, from a web server on an address of its own."""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from teola import Runtime
from teola.catalogue import load_app
from teola.cli.serving import intake
from teola.config import ServerTable
from teola.serve.intake.fetch_policy import FetchPolicy
from teola.serve.intake.fetching import Fetcher
from teola.serve.intake.listed_documents import URLS, Intake
from tests.conftest import PAGES
from tests.serve.conftest import Served, serving, soon
from tests.serve.intake.test_listed_documents import kept, pdf
from tests.serve.intake.web import HANG, Web
from tests.serve.intake.web import serving as web_at

ASK = "/v1/apps/naive-rag/queries"
QUESTION = "Who looks after the lamp of the lighthouse?"


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    """In a thread of its own, as the server is in another."""
    loop, found = asyncio.new_event_loop(), []
    ready, ending = threading.Event(), asyncio.Event()

    async def run() -> None:
        async with web_at() as web:
            found.append(web)
            ready.set()
            await ending.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    ready.wait()
    pages = found[0].pages
    pages["/a%20lamp.pdf"] = (
        200, {"content-type": "application/pdf"}, pdf(PAGES["lighthouse.md"])
    )  # fmt: skip
    pages["/boats"] = (200, {"content-type": "text/html"}, b"<p>Fourteen boats are moored.</p>")
    pages["/hang"] = HANG
    pages["/empty.pdf"] = (200, {"content-type": "application/pdf"}, b"%PDF-1.7 and nothing")
    yield found[0]
    loop.call_soon_threadsafe(ending.set)
    thread.join()
    loop.close()


@pytest.fixture(scope="module")
def rag(runtime: Runtime, web: Web) -> Iterator[Served]:
    app = load_app("naive-rag")
    here = ip_address("127.0.0.2")
    policy = FetchPolicy(ports=(web.port,), allowed=lambda address: address == here)
    intake = Intake(Fetcher(policy))
    with serving(runtime, {"naive-rag": app}, intake=intake) as found:
        yield found


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that `kept` sees what these tests leave there, and nothing else."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def client(rag: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=rag.url, timeout=120) as client:
        yield client


def at(web: Web, path: str, **more: Any) -> dict[str, Any]:
    return {"url": f"http://127.0.0.2:{web.port}{path}", **more}


def named(response: httpx.Response) -> set[str]:
    assert response.status_code == 200, response.text
    return {hit["document"] for hit in response.json()["outputs"]["sources"]}


def test_a_document_is_fetched_and_asked_about(client: httpx.Client, web: Web) -> None:
    before = kept()
    body = {"inputs": {"question": QUESTION, "documents": at(web, "/a%20lamp.pdf?x=1#2")}}
    web.pages["/a%20lamp.pdf?x=1"] = web.pages["/a%20lamp.pdf"]
    response = client.post(ASK, json=body)
    assert named(response) == {"a lamp.pdf"}
    assert "Mara Quist" in response.json()["outputs"]["answer"]
    assert kept() == before


def test_urls_texts_and_files_go_together(client: httpx.Client, web: Web) -> None:
    documents = [
        at(web, "/boats", name="fleet"),
        {"name": "inline.md", "text": f"{PAGES['market.txt']}\n\nIt is loud."},
    ]
    told = json.dumps(
        {"inputs": {"question": "How many boats are moored?", "documents": documents}}
    )
    files = {"documents": ("lamp.md", f"{PAGES['lighthouse.md']}\n\nIt is tall.".encode())}
    response = client.post(ASK, data={"request": told}, files=files)
    assert named(response) == {"fleet", "inline.md", "lamp.md"}


def test_openais_client_names_a_url(rag: Served, web: Web) -> None:
    with openai.OpenAI(base_url=f"{rag.url}/v1", api_key="none", max_retries=0) as client:
        stream = client.chat.completions.create(
            model="naive-rag",
            messages=[{"role": "user", "content": QUESTION}],
            stream=True,
            extra_body={"documents": [at(web, "/a%20lamp.pdf")]},
        )
        said = "".join(piece.choices[0].delta.content or "" for piece in stream)
    assert "Mara Quist" in said


@pytest.mark.parametrize(
    ("documents", "told"),
    [
        ([{"url": "http://127.0.0.1:{port}/"}], "no public server answers"),
        ([{"url": "http://127.0.0.2:{port}/nothing"}], "answers 404"),
        ([{"url": "file:///etc/passwd"}], "begins with https"),
        ([{"url": "http://127.0.0.2:{port}/empty.pdf"}], "cannot read 'empty.pdf'"),
        ([{"url": "http://127.0.0.2:{port}/boats"}] * (URLS + 1), f"at most {URLS}"),
        ([{"url": "http://127.0.0.2:{port}/boats", "text": "x"}], "has one of"),
        ([{"url": "http://127.0.0.2:{port}/boats", "name": "a\nb"}], "name has"),
        ([{"url": 7}], "a document is"),
    ],
)
def test_what_cannot_be_fetched_is_refused_and_nothing_is_kept(
    documents: Any, told: str, client: httpx.Client, web: Web, rag: Served
) -> None:
    before = kept()
    given = json.loads(json.dumps(documents).replace("{port}", str(web.port)))
    response = client.post(ASK, json={"inputs": {"question": "Who?", "documents": given}})
    assert response.status_code == 422
    assert told in response.json()["error"]["message"]
    soon(lambda: kept() == before and not rag.board.running)


def test_the_deadline_counts_while_it_is_fetched(client: httpx.Client, web: Web) -> None:
    inputs = {"question": "Who?", "documents": at(web, "/hang")}
    response = client.post(ASK, json={"inputs": inputs, "deadline_s": 0.2})
    assert response.status_code == 504
    assert response.json()["error"]["code"] == "deadline"


async def test_a_client_that_leaves_ends_the_fetching(rag: Served, web: Web) -> None:
    web.left.clear()
    web.asked.clear()
    before = kept()
    inputs = {"question": "Who?", "documents": at(web, "/hang")}
    async with httpx.AsyncClient(base_url=rag.url, timeout=60) as client:
        asking = asyncio.create_task(client.post(ASK, json={"inputs": inputs}))
        await asyncio.to_thread(soon, web.asked.is_set)
        asking.cancel()
        await asyncio.wait({asking})
    await asyncio.to_thread(soon, web.left.is_set)
    await asyncio.to_thread(soon, lambda: kept() == before)


def test_the_configuration_says_what_is_fetched() -> None:
    off = intake(ServerTable())
    assert (off.fetcher, off.history_characters) == (None, 16_000)
    told = {"documents_by_url": True, "url_hosts": ["Docs.test"], "history_characters": 0}
    on = intake(ServerTable(**told))
    assert on.fetcher.policy == FetchPolicy(hosts=("docs.test",))
    assert on.history_characters == 0
