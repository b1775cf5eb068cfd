"""`teola queries` against a server."""

from __future__ import annotations

import httpx
import pytest

from tests.command_line import CommandLine
from tests.serve.conftest import Served

LONG = "what is the lamp for? " * 9


@pytest.fixture
def asked(served: Served) -> list[str]:
    """Ids of two queries that have ended."""
    bodies = ({"question": "hello\nthere"}, {"question": LONG})
    path = f"{served.url}/v1/apps/echo/queries"
    return [httpx.post(path, json={"inputs": one}).json()["query_id"] for one in bodies]


def test_queries_are_listed_with_their_questions(
    teola: CommandLine, served: Served, asked: list[str]
) -> None:
    ended = teola("queries", "--url", served.url, "--app", "echo", "--limit", "2")
    assert ended.code == 0
    head, *rows = ended.out.splitlines()
    assert head.split() == ["query", "state", "app", "asked", "took", "question"]
    assert [row.split()[0] for row in rows] == asked[::-1]
    assert rows[0].rstrip().endswith(LONG.strip())
    assert rows[1].rstrip().endswith("hello there")
    found = teola("queries", "--url", served.url, "--state", "ok", "--json").json["queries"]
    assert {one["question"] for one in found} >= {"hello\nthere", LONG}


def test_on_a_terminal_each_is_one_line(
    teola: CommandLine, served: Served, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    out = teola("queries", "--url", served.url, "--limit", "2").out
    lines = [line.replace("\x1b[1m", "").replace("\x1b[0m", "") for line in out.splitlines()]
    assert len(lines) == 3
    assert max(map(len, lines)) <= 80
    assert asked[1][:12] in lines[1]
    assert "what is the lamp" in lines[1]


def test_nothing_and_wrong_usage_are_said(teola: CommandLine, served: Served) -> None:
    assert teola("queries", "--url", served.url, "--state", "failed").out == "no queries\n"
    assert "--limit" in teola("queries", "--url", served.url, "--limit", "0").refused(2)
    assert "teola serve" in teola("queries", "--url", "http://127.0.0.1:9").refused(1)
