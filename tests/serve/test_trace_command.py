"""`teola trace` against a server, and `teola run --trace`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from teola import Runtime
from teola.serve.access.auth import KeyFile
from tests.command_line import CommandLine
from tests.serve.conftest import Served, applications, serving

ECHO = "/v1/apps/echo/queries"


def asked(served: Served, **headers: str) -> str:
    """The id of a query that has ended."""
    body = {"inputs": {"question": "hello"}}
    answer = httpx.post(f"{served.url}{ECHO}", json=body, headers=headers)
    found: str = answer.json()["query_id"]
    return found


def test_a_timeline_is_printed(teola: CommandLine, served: Served) -> None:
    id = asked(served)
    ended = teola("trace", id, "--url", served.url)
    assert ended.code == 0
    assert ended.out.startswith("echo  ok · ")
    assert id in ended.out
    assert "python 0" in ended.out
    assert "█" in ended.out


def test_every_form_can_be_written_to_a_file(
    teola: CommandLine, served: Served, tmp_path: Path
) -> None:
    id = asked(served)
    texts = {}
    for form in ("text", "json", "perfetto", "mermaid"):
        file = tmp_path / form
        ended = teola("trace", id, "--url", f"{served.url}/", "--format", form, "--out", file)
        assert (ended.code, ended.out) == (0, "")
        texts[form] = file.read_text()
    assert json.loads(texts["json"])["query_id"] == id
    slices = [e for e in json.loads(texts["perfetto"])["traceEvents"] if e["ph"] == "X"]
    assert "say.call" in {s["name"] for s in slices} or any("say" in s["name"] for s in slices)
    assert texts["mermaid"].startswith("gantt\n")
    assert "█" in texts["text"]
    printed = teola("trace", id, "--url", served.url, "--format", "perfetto")
    assert json.loads(printed.out) == json.loads(texts["perfetto"])


def test_what_is_wrong_is_said_in_one_line(
    teola: CommandLine, served: Served, tmp_path: Path
) -> None:
    assert "no query 'nope'" in teola("trace", "nope", "--url", served.url).refused(2)
    assert "no such path" in teola("trace", "../x", "--url", served.url).refused(2)
    assert "is no URL" in teola("trace", "x", "--url", "localhost").refused(2)
    assert "teola serve" in teola("trace", "x", "--url", "http://127.0.0.1:9").refused(1)
    where = tmp_path / "no" / "such" / "folder"
    words = ("trace", asked(served), "--url", served.url, "--format", "json", "--out", where)
    assert "cannot write" in teola(*words).refused(2)


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[tuple[Served, str]]:
    """A server that wants a key, and one."""
    keys = KeyFile(tmp_path / "keys.json")
    key = keys.create("alice", "shop")
    with Runtime() as runtime, serving(runtime, applications(), keys) as found:
        yield found, key


def test_a_key_is_sent(
    teola: CommandLine, locked: tuple[Served, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, key = locked
    id = asked(served, authorization=f"Bearer {key}")
    assert "TEOLA_API_KEY" in teola("trace", id, "--url", served.url).refused(2)
    assert teola("trace", id, "--url", served.url, "--key", key).code == 0
    monkeypatch.setenv("TEOLA_API_KEY", key)
    assert teola("trace", id, "--url", served.url).code == 0


def test_a_query_of_this_process_is_traced_to_a_file(
    teola: CommandLine, harbour: Path, tmp_path: Path
) -> None:
    file = tmp_path / "trace.json"
    ended = teola(
        "run",
        "naive-rag",
        "-i",
        "question=Who keeps the lamp?",
        "-i",
        f"documents={harbour / 'lighthouse.md'}",
        "--trace",
        file,
    )
    assert ended.code == 0, ended
    events = json.loads(file.read_text())["traceEvents"]
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert {"query", "embedding", "vectorstore", "llm"} <= names
    assert [e for e in events if e["ph"] == "s"]
