"""A served application whose components run another one, and can do without what is down."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.fake_openai import FakeOpenAI
from tests.serve.process import ready

APPS = """
from teola import App, Generate, component

inner = App("inner", Generate(), inputs={"question": "text"}, outputs={"answer": "answer"})

@component(outputs="reply")
def ask(question: str) -> str:
    return inner.run(question=question).answer

@component(optional=True)
def boom(question: str) -> str:
    raise ValueError("no such place")

@component
def report(reply: str, boom: str = "", answer: str = "") -> str:
    return f"{reply} {boom} {answer}".strip()

app = App("parts", [ask, boom, Generate(engine="llm2", optional=True)] >> report,
          inputs={"question": "text"}, outputs={"answer": "report"})
"""

CONFIG = """
[server]
journal = false

[engines.llm2]
type = "openai"
options = {{ url = "http://127.0.0.1:{port}/v1" }}
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, servers: None) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("parts")
    file, config = folder / "parts.py", folder / "teola.toml"
    file.write_text(APPS)
    with socket.socket() as closed, FakeOpenAI("said by the server") as model:
        closed.bind(("127.0.0.1", 0))  # and never listens
        config.write_text(CONFIG.format(port=closed.getsockname()[1]))
        words = [f"{file}:app", "--config", str(config), "--llm", model.url]
        with ready(words, folder / "stderr.log") as (_, found):
            yield found


@pytest.fixture(scope="module")
def told(url: str) -> dict[str, object]:
    asked = {"inputs": {"question": "Why?"}}
    answer = httpx.post(f"{url}/v1/apps/parts/queries", json=asked, timeout=60)
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


def test_it_is_ready_and_answers_without_them(told: dict[str, object]) -> None:
    assert told["state"] == "partial"
    assert told["outputs"] == {"answer": "said by the server"}


def test_what_is_missing_is_named_with_the_reason(told: dict[str, object]) -> None:
    assert sorted(told["missing"]) == ["boom", "generate"]  # type: ignore[call-overload]
    reasons = told["reasons"]
    assert isinstance(reasons, dict)
    assert reasons["boom"] == "ValueError: no such place"
    assert "127.0.0.1" in reasons["generate"]


def test_the_trace_has_the_inner_query_and_no_texts(url: str, told: dict[str, object]) -> None:
    trace = httpx.get(f"{url}/v1/queries/{told['query_id']}/trace").json()
    (inner,) = trace["inner"]
    assert inner["parent"] == {"query_id": told["query_id"], "primitive": "ask.call"}
    assert (inner["app"], inner["state"]) == ("inner", "ok")
    failed = [span for span in trace["spans"] if span["state"] == "failed"]
    assert {span["component"] for span in failed} >= {"boom"}
    assert not any("error" in span for span in failed), "what an error says may quote the query"
