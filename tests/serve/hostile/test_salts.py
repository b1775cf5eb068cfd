"""Prefix caches: what reaches an LLM server tells tenants apart, whatever clients send."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from teola import App, EngineConfig, Generate, Runtime
from teola.serve.access.auth import KeyFile
from tests.fake_openai import FakeOpenAI
from tests.serve.conftest import Served, serving

MINE = "the-clients-own-salt"
NAMES = {"one": "blue", "other": "green", "again": "green"}
"""Keys, and whose they are."""


@pytest.fixture
def vllm() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as server:
        yield server


@pytest.fixture
def secrets(tmp_path: Path) -> list[str]:
    keys = KeyFile(tmp_path / "keys.json")
    return [keys.create(name, tenant) for name, tenant in NAMES.items()]


@pytest.fixture
def served(vllm: FakeOpenAI, secrets: list[str], tmp_path: Path) -> Iterator[Served]:
    app = App(
        "ask",
        template=Generate(context_required=False),
        inputs={"question": "text"},
        outputs={"answer": "answer"},
    )
    engines = {"llm": EngineConfig("openai", {"url": vllm.url})}
    keys = KeyFile(tmp_path / "keys.json")
    with Runtime(engines) as runtime, serving(runtime, {"ask": app}, keys) as found:
        yield found


def test_every_tenant_has_a_salt_that_the_server_made(
    served: Served, vllm: FakeOpenAI, secrets: list[str]
) -> None:
    salts = []
    for secret in secrets:
        before = len(vllm.calls)
        response = ask(served, secret, user="red")
        assert response.status_code == 200, response.text
        seen = [call.body for call in vllm.calls[before:]]
        assert seen
        assert all("user" not in sent for sent in seen)
        (salt,) = {sent["cache_salt"] for sent in seen}
        salts.append(salt)
    one, other, same = salts
    assert one != other == same
    assert not {"", *NAMES.values()} & {*salts}


@pytest.mark.parametrize(
    "more",
    [
        {"cache_salt": MINE},
        {"session_id": MINE},
        {"priority": -100},
        {"extra_body": {"cache_salt": MINE}},
        {"metadata": {"cache_salt": MINE}},
        {"overrides": {"generate.cache_salt": MINE}},
    ],
    ids=str,
)
def test_what_a_client_says_of_it_goes_nowhere(
    served: Served, vllm: FakeOpenAI, secrets: list[str], more: dict[str, Any]
) -> None:
    ask(served, secrets[0]).raise_for_status()
    usual = vllm.calls[-1].body
    before = len(vllm.calls)
    response = ask(served, secrets[0], **more)
    assert response.status_code in (200, 400), response.text
    for seen in vllm.calls[before:]:
        assert seen.body == usual


def ask(served: Served, secret: str, **more: Any) -> httpx.Response:
    said = [{"role": "user", "content": "Who keeps the lamp?"}]
    return httpx.post(
        f"{served.url}/v1/chat/completions",
        json={"model": "ask", "messages": said, **more},
        headers={"x-api-key": secret},
        timeout=30,
    )
