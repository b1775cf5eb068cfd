"""LlamaIndex and LangChain, pointed at a server of applications; the documentation's examples."""

from __future__ import annotations

import base64
import json
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from teola import Runtime, collections
from teola.catalogue import load_app
from tests.conftest import PAGES
from tests.docs.blocks import ROOT, blocks
from tests.serve.chat.talking import BEGIN, GOOD, TALK, Keeper, Model, user
from tests.serve.conftest import Served, applications, serving, soon
from tests.serve.intake.test_listed_documents import QUESTION, kept, pdf
from tests.serve.test_queries import events

# --- LlamaIndex ------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that `kept` sees what these tests leave there, and nothing else."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@contextmanager
def llama_index(served: Served) -> Iterator[Any]:
    from llama_index.llms.openai_like import OpenAILike

    with httpx.Client() as http:
        yield OpenAILike(
            model="plain",
            api_base=f"{served.url}/v1",
            api_key="none",
            is_chat_model=True,
            max_retries=0,
            http_client=http,
        )


def llama_talk() -> list[Any]:
    from llama_index.core.llms import ChatMessage

    kept = [message for message in TALK if message["role"] != "developer"]
    return [ChatMessage(role=message["role"], content=message["content"]) for message in kept]


@pytest.mark.slow
def test_llama_index_chats(served: Served, model: Model) -> None:
    with llama_index(served) as llm:
        assert llm.chat(llama_talk()).message.content == "Since 1987."
        assert "User: Who keeps the lamp?\nAssistant: Mara." in model.prompts[0]
        pieces = list(llm.stream_chat(llama_talk()))
        assert len(pieces) > 1
        assert pieces[-1].message.content == "Since 1987."
        assert llm.complete("Since when?").text == "Since 1987."
        assert model.prompts[-1] == f"{BEGIN}Question: Since when?\n\nAnswer: "


async def test_llama_index_chats_asynchronously(served: Served, model: Model) -> None:
    from llama_index.llms.openai_like import OpenAILike

    async with httpx.AsyncClient() as http:
        llm = OpenAILike(
            model="plain",
            api_base=f"{served.url}/v1",
            api_key="none",
            is_chat_model=True,
            max_retries=0,
            async_http_client=http,
        )
        answer = await llm.achat(llama_talk())
    assert answer.message.content == "Since 1987."


# --- LangChain -------------------------------------------------------------------------------


@contextmanager
def langchain(served: Served, **more: Any) -> Iterator[Any]:
    from langchain_openai import ChatOpenAI

    with httpx.Client() as http:
        yield ChatOpenAI(
            model="plain",
            base_url=f"{served.url}/v1",
            api_key="none",
            max_retries=0,
            http_client=http,
            **more,
        )


@pytest.mark.slow
def test_langchain_invokes_streams_and_batches(served: Served, model: Model) -> None:
    with langchain(served) as llm:
        answer = llm.invoke(
            [("system", "Be brief."), ("human", "hi"), ("ai", "ho"), ("human", "?")]
        )
        assert answer.content == "Since 1987."
        assert "Be brief.\n\nConversation so far:\nUser: hi\nAssistant: ho" in model.prompts[0]
        assert answer.usage_metadata["output_tokens"] == 2
        assert answer.response_metadata["finish_reason"] == "stop"
        assert "".join(piece.content for piece in llm.stream("Since when?")) == "Since 1987."
        answers = llm.batch(["one", "two", "three"])
        assert [one.content for one in answers] == ["Since 1987."] * 3


async def test_langchain_invokes_asynchronously(served: Served, model: Model) -> None:
    async with httpx.AsyncClient() as http:
        with langchain(served, http_async_client=http) as llm:
            assert (await llm.ainvoke("Since when?")).content == "Since 1987."


@pytest.mark.parametrize("method", ["json_schema", "json_mode"])
def test_langchain_gets_objects(served: Served, model: Model, method: str) -> None:
    model.says["Question"] = GOOD
    with langchain(served) as llm:
        found = llm.with_structured_output(Keeper, method=method).invoke("Who? Answer in JSON.")
    assert found == Keeper(name="Mara", since=1987)


# --- documents, on the real engines -----------------------------------------------------------


@pytest.fixture(scope="module")
def rag(runtime: Runtime) -> Iterator[Served]:
    real = {name: load_app(name) for name in ("naive-rag", "advanced-rag")}
    with serving(runtime, {**real, **applications()}) as found:
        yield found


def test_langchain_embeds(rag: Served) -> None:
    from langchain_openai import OpenAIEmbeddings

    with httpx.Client() as http:
        embeddings = OpenAIEmbeddings(
            model="embedding",
            base_url=f"{rag.url}/v1",
            api_key="none",
            check_embedding_ctx_length=False,
            http_client=http,
        )
        vectors = embeddings.embed_documents(["a lamp", "a boat"])
    assert [len(vector) for vector in vectors] == [384, 384]


def test_a_pdf_goes_along_within_json(rag: Served) -> None:
    data = base64.b64encode(pdf(PAGES["lighthouse.md"])).decode()
    talk = [user("Tell me of the lighthouse."), {"role": "assistant", "content": "It is tall."}]
    with openai.OpenAI(base_url=f"{rag.url}/v1", api_key="none", max_retries=0) as client:
        ask: Any = {"model": "naive-rag", "messages": [*talk, user("Who looks after its lamp?")]}
        for document in (
            {"name": "lamp.pdf", "data": data},
            [{"name": "lamp.md", "text": f"{PAGES['lighthouse.md']}\n\nIt is white."}],
        ):
            found = client.chat.completions.create(**ask, extra_body={"documents": document})
            assert "Mara Quist" in (found.choices[0].message.content or "")
        for document, told in (
            ({"name": "lamp.pdf", "data": "%%%"}, "not base64"),
            ({"name": "lamp.pdf", "data": data, "text": "x"}, "one of"),
            ({"url": "https://example.org/lamp.pdf"}, "no documents by URL"),
            ("/etc/passwd", "a document is"),
        ):
            with pytest.raises(openai.BadRequestError, match=told):
                client.chat.completions.create(**ask, extra_body={"documents": document})


@pytest.mark.parametrize("name", ["naive-rag", "advanced-rag"])
def test_a_streamed_answer_about_a_pdf(rag: Served, name: str) -> None:
    data = base64.b64encode(pdf(PAGES["lighthouse.md"])).decode()
    with openai.OpenAI(base_url=f"{rag.url}/v1", api_key="none", max_retries=0) as client:
        pieces = client.chat.completions.create(
            model=name,
            messages=[user(QUESTION)],
            stream=True,
            extra_body={"documents": {"name": "lamp.pdf", "data": data}},
        )
        said = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
    assert "Mara Quist" in said


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("name", ["naive-rag", "advanced-rag"])
def test_curl_uploads_a_pdf_and_gets_a_stream(rag: Served, tmp_path: Path, name: str) -> None:
    """By the two commands of the documentation, first without and then with its events."""
    (tmp_path / "offer.pdf").write_bytes(pdf(PAGES["lighthouse.md"]))
    pages = blocks(ROOT / "docs" / "serving.md")
    asking = [b.text for b in pages if "/queries" in b.text and "@offer.pdf" in b.text]
    found = [text for text in asking if "background" not in text]
    whole, streamed = (_said_by(_asking(text, rag.url, name), tmp_path) for text in found)
    assert "Mara Quist" in json.loads(whole)["outputs"]["answer"]
    told = events(streamed)
    assert told[-1][1] == "done"
    assert "Mara Quist" in "".join(data["text"] for _, kind, data in told if kind == "token")


def _asking(command: str, url: str, app: str) -> list[str]:
    """A documented command, of this server, and with a question that the document answers."""
    asked = command.replace("localhost:8080", url).replace("What does it cost?", QUESTION)
    words = shlex.split(asked.replace("advanced-rag", app).replace("\\\n", " "))
    assert words[0] == "curl"
    return [*words, "--silent", "--show-error"]


def _said_by(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=True)
    return done.stdout.decode()


def test_files_that_came_along_are_not_kept(rag: Served) -> None:
    before = kept()
    data = base64.b64encode(b"%PDF-1.7 and then nothing").decode()
    with openai.OpenAI(base_url=f"{rag.url}/v1", api_key="none", max_retries=0) as client:
        for stream in (False, True):
            ask: Any = {
                "model": "naive-rag",
                "messages": [user("Who?")],
                "stream": stream,
                "extra_body": {"documents": {"name": "broken.pdf", "data": data}},
            }
            with pytest.raises(openai.APIError, match=r"cannot read 'broken\.pdf'"):
                list(client.chat.completions.create(**ask))
    soon(lambda: kept() == before and not rag.board.running)


def test_the_examples_of_the_documentation_run(rag: Served, runtime: Runtime) -> None:
    examples = [block for block in blocks(ROOT / "docs" / "serving.md") if block.language == "py"]
    pages = [{"name": name, "text": text} for name, text in PAGES.items()]
    collections.index(pages, collection="papers", runtime=runtime)
    try:
        for example in examples:
            told: dict[str, Any] = {}
            exec(example.text.replace("http://localhost:8080", rag.url), told)
            assert "Mara Quist" in str(told["answer"])
    finally:
        collections.delete("papers", runtime=runtime)
    assert len(examples) == 3
