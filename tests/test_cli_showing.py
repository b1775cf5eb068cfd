"""What commands print: results, tables, progress, timelines, and what servers say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from rich.cells import cell_len
from typer.main import get_command

from teola.cli import program, tables_sql, tracing
from teola.cli.reaching import query_path, span, told
from teola.cli.showing import LEAST_ROOM, cut_cell, show_result, show_table, shown_value
from teola.cli.timeline import _axis, _bar, _shortened, _time
from teola.cli.watching import Watch, watching
from teola.collections import IndexingStep
from teola.engine import Hit
from teola.errors import InputError
from teola.query.result import Result
from teola.runtime.live.query import Progress
from teola.runtime.observe.trace import Span

STEP = {"tool": "look", "args": {}, "result": "x", "failed": False, "seconds": 0}
HIT = Hit("id", "notes.md", "The lamp. " * 60, 0.756, metadata={"url": "https://a.example/x"})


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns without colours."""
    for name, value in {"COLUMNS": "80", "TTY_COMPATIBLE": "1", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)


def plain(text: str) -> list[str]:
    """Lines without what a terminal is commanded, also where they were written over."""
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    return [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]


def commands(command: Any, *path: str) -> Iterator[tuple[str, Any]]:
    """All commands of the program by their words."""
    if (inner := getattr(command, "commands", None)) is None:
        yield " ".join(path), command
        return
    for name, one in inner.items():
        yield from commands(one, *path, name)


def test_every_command_has_an_example_and_shows_where_an_error_comes_from() -> None:
    every = dict(commands(get_command(program.app)))
    assert {"run", "profile fit", "collections tidy", "llm up"} <= every.keys()
    for name, command in every.items():
        assert "debug" in {parameter.name for parameter in command.params}, name
        assert f"teola {name}" in command.epilog, name
        assert command.help, name


# --- results --------------------------------------------------------------------------------------


def shown(capsys: pytest.CaptureFixture[str], outputs: dict[str, Any], **more: Any) -> list[str]:
    flags = {name: more.pop(name) for name in ("streamed", "told_steps") if name in more}
    show_result(Result("a", "q", "ok", outputs, 1.234, **more), **flags)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_a_result_is_its_outputs_and_how_it_went(capsys: pytest.CaptureFixture[str]) -> None:
    end = ["", "ok · 1.23 s · 0 primitives"]
    assert shown(capsys, {"answer": "Yes."}) == ["Yes.", *end]
    assert shown(capsys, {"answer": None}) == ["(no answer)", *end]
    assert shown(capsys, {"answer": "Yes.", "other": None}) == ["Yes.", *end]
    both = shown(capsys, {"draft": "No.", "answer": "Yes."})
    assert both == ["draft", "No.", "Yes.", *end]
    assert shown(capsys, {"draft": {"é": [1]}})[:3] == ["{", '  "é": [', "    1"]
    more = {"missing": ("web",), "reasons": {"web": "down"}, "notices": ("quoted",)}
    told = shown(capsys, {"answer": "Yes."}, **more)
    assert told == ["Yes.", "", "without web: down", "quoted", "ok · 1.23 s · 0 primitives"]


def test_what_was_streamed_is_not_printed_twice(capsys: pytest.CaptureFixture[str]) -> None:
    outputs = {"draft": "No.", "answer": "Yes.", "steps": [STEP]}
    whole = shown(capsys, outputs)
    assert whole[:5] == ["draft", "No.", "Yes.", "steps", "  look() -> x"]
    assert shown(capsys, outputs, streamed=True)[:3] == ["draft", "No.", "steps"]
    assert shown(capsys, outputs, told_steps=True)[:4] == ["draft", "No.", "Yes.", ""]


def test_sources_are_numbered_with_where_they_stand(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, {"answer": "Yes.", "sources": [HIT, HIT], "hits": []})
    at = lines.index("Sources")
    assert lines[at - 1 : at + 3] == [
        "", "Sources", "  1  notes.md  0.76", "     https://a.example/x",
    ]  # fmt: skip
    assert lines[at + 3].startswith("     The lamp. The lamp.")
    assert lines[at + 3].endswith(" …")
    assert len(lines[at + 3]) <= 5 + 240
    assert lines[at + 4] == "  2  notes.md  0.76"
    assert "Hits" not in lines


# --- tables ---------------------------------------------------------------------------------------


def test_the_last_cell_is_cut_to_fit(capsys: pytest.CaptureFixture[str], terminal: None) -> None:
    rows = [("a" * 30, "b" * 49), ("灯台", "c" * 48), ("x", "灯" * 30)]
    show_table(("one", "two"), rows, whole_lines=True)
    lines = plain(capsys.readouterr().out)
    assert len(lines) == 4
    assert max(map(cell_len, lines)) <= 80
    assert lines[1].endswith(" " + "b" * 47 + "…")
    assert lines[2].endswith("c" * 48)
    assert lines[3].endswith("…")
    show_table(("one", "two"), [("a" * 100, "b" * 20)], whole_lines=True)
    assert "b" * LEAST_ROOM not in capsys.readouterr().out


def test_a_cell_is_cut_by_columns() -> None:
    assert cut_cell("abc", 3) == "abc"
    assert cut_cell("abcd", 3) == "ab…"
    assert cut_cell("灯台守", 6) == "灯台守"
    assert cell_len(cut_cell("灯台守", 5)) == 5
    assert (shown_value(None), shown_value(""), shown_value(0)) == ("NULL", "", "0")


# --- progress -------------------------------------------------------------------------------------


def test_indexing_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, told = Watch(True), list[tuple[str, int, int]]()
    update = watch._bars.update

    def updated(*given: Any, **named: Any) -> None:
        told.append((named["description"].partition(", ")[2], named["completed"], named["total"]))
        update(*given, **named)

    monkeypatch.setattr(watch._bars, "update", updated)
    for state, items in (
        ("found", 3), ("embedded", 8), ("embedded", 2), ("indexed", 10), ("known", 0),
        ("failed", 0), ("found", 1), ("embedded", 1),
    ):  # fmt: skip
        watch.step(IndexingStep(state, items=items))
    watch.hide()
    assert told == [
        ("0 chunks embedded", 0, 3),
        ("8 chunks embedded", 0, 3),
        ("10 chunks embedded", 0, 3),
        ("10 chunks embedded", 1, 3),
        ("10 chunks embedded", 2, 3),
        ("10 chunks embedded", 3, 3),
        ("0 chunks embedded", 0, 1),
        ("1 chunks embedded", 0, 1),
    ]


def test_what_a_query_does_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[str]()
    with watching() as watch:
        monkeypatch.setattr(watch, "show", told.append)
        for op, state, items in (
            ("embedding", "started", 8), ("searching", "started", 1), ("prefilling", "started", 1),
            ("partial_prefilling", "started", 2), ("prefilling", "writing", 1),
            ("aggregate", "started", 1), ("embedding", "finished", 8),
        ):  # fmt: skip
            watch.event(Progress("a.prefill", op, "engine", state, items))
    assert told == [
        "embedding 8 items (a.prefill)",
        "searching (a.prefill)",
        "asking the LLM (a.prefill)",
        "asking the LLM 2 items (a.prefill)",
        "the LLM writes (a)",
        "running (a.prefill)",
    ]


def test_an_interrupt_says_that_it_was_heard(
    capsys: pytest.CaptureFixture[str], terminal: None
) -> None:
    with pytest.raises(KeyboardInterrupt), watching():
        raise KeyboardInterrupt
    assert plain(capsys.readouterr().err) == ["teola: cancelling"]
    with pytest.raises(KeyError), watching():
        raise KeyError
    assert capsys.readouterr().err == ""


# --- timelines ------------------------------------------------------------------------------------


def test_a_name_is_cut_where_it_tells_least() -> None:
    assert _shortened("abcdef", 6) == "abcdef"
    assert _shortened("abcdefg", 6) == "abcde…"
    assert _shortened("agent/turn", 6) == "…/turn"
    assert len(_shortened("agent/turn", 7)) == 7


def test_times_have_seven_columns() -> None:
    assert [_time(seconds) for seconds in (0.0, 0.01234, 0.9994, 1.0, 61.5)] == [
        "  0.0ms", " 12.3ms", "999.4ms", "  1.00s", " 61.50s",
    ]  # fmt: skip


def spans(*times: tuple[float, float, float], engine: str = "llm") -> list[Span]:
    return [Span("a", "decoding", "a", engine, *given) for given in times]


@pytest.mark.parametrize(
    ("times", "bar"),
    [
        ([(0.0, 0.4, 0.8)], "░░░░████  "),
        ([(0.0, 0.2, 0.4), (0.0, 0.6, 0.8)], "░░██░░██  "),
        ([(0.5, 0.5, 0.5)], "     █    "),
        ([(0.5, 0.8, 0.8)], "     ░░░  "),
        ([(0.2, 0.2, 1.0)], "  ████████"),
        ([(0.9, 1.0, 1.0)], "         ░"),
        ([(0.0, 1.0, 1.2)], "░░░░░░░░░█"),
        ([(-0.5, 0.0, 1.0)], "██████████"),
    ],
)
def test_a_bar_shows_what_waited_and_what_ran(
    times: list[tuple[float, float, float]], bar: str
) -> None:
    assert str(_bar(spans(*times), 10, 1.0)) == bar
    assert "░" not in str(_bar(spans(*times, engine=""), 10, 1.0)), "it needs no instance"


def test_an_axis_names_the_beginning_the_middle_and_the_end() -> None:
    axis = str(_axis(1.5, 40))
    assert len(axis) == 40
    assert (axis[0], axis[20:24], axis[-6:]) == ("0", "0.75", "1.50 s")
    assert str(_bar(spans((0.0, 0.0, 0.0)), 10, 0.0)) == "█" + " " * 9


# --- servers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (59, "59 s"), (60, "1 min"), (3599, "60 min"), (3600, "1 h"), (86_400, "1 d")],
)
def test_a_span_is_told_in_its_largest_unit(seconds: float, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (404, {"error": {"message": "no query"}}, "no query"),
        (401, {"error": {"message": "a key"}}, "a key; give --key, or set TEOLA_API_KEY"),
        (500, {}, "the server answers 500"),
        (500, {"error": "odd"}, "the server answers 500"),
        (502, ["odd"], "the server answers 502"),
        (200, ["odd"], "the server answers 200"),
    ],
)
def test_what_a_server_refuses_is_told_in_its_words(status: int, body: Any, said: str) -> None:
    with pytest.raises(InputError) as refused:
        told(httpx.Response(status, json=body))
    assert str(refused.value) == said


def test_what_is_no_server_of_ours_is_told() -> None:
    request = httpx.Request("GET", "http://other/v1/queries")
    with pytest.raises(InputError, match="http://other/v1/queries is no Teola server"):
        told(httpx.Response(200, text="<html>", request=request))
    assert told(httpx.Response(201, json={"a": 1})) == {"a": 1}
    assert query_path("a/b?c") == "/v1/queries/a%2Fb%3Fc"


@pytest.mark.parametrize(
    ("graph", "shown"),
    [(httpx.Response(200, json={"e": 1}), {"e": 1}), (httpx.Response(404), None)],
)
def test_the_trace_of_a_query_that_has_no_graph_is_shown_all_the_same(
    graph: httpx.Response, shown: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that was refused before it was planned."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/queries/q/graph":
            return graph
        assert request.url.path == "/v1/queries/q/timeline"
        return httpx.Response(200, json={"query_id": "q"})

    client = httpx.Client(base_url="http://x", transport=httpx.MockTransport(answer))
    monkeypatch.setattr(tracing.reach, "reaching", lambda url, key: client)
    assert tracing.fetched("http://x", "q", None, "timeline") == ({"query_id": "q"}, shown)


# --- teola sql ------------------------------------------------------------------------------------


def error(rows: int, example: str = "") -> dict[str, Any]:
    return {"error": "no JSON", "rows": rows, "example": example}


def test_a_few_errors_of_rows_are_told() -> None:
    assert tables_sql._errors([]) == []
    told = tables_sql._errors([error(1), error(2_000, "a " * 80), error(3), error(4)])
    assert told[0] == "1 row has an error: no JSON"
    assert told[1].startswith("2,000 rows have an error: no JSON (such as a a")
    assert told[1].endswith("a ...)")
    assert told[3:] == ["and 1 other errors: --json lists them"]
    assert len(tables_sql._errors([error(1)] * 3)) == 3


@pytest.mark.parametrize(
    ("state", "reason", "keeps", "counts", "code", "said"),
    [
        ("ok", "", True, (3, 0, 0), 0, ""),
        ("partial", "", True, (3, 0, 1), 0, ""),
        ("partial", "a budget", True, (3, 0, 1), 1, "answers are kept"),
        ("failed", "away", True, (0, 2, 0), 1, "answers are kept"),
        ("failed", "away", False, (3, 0, 0), 1, "failed: away"),
        ("failed", "away", True, (1, 1, 2), 1, "failed: away"),
        ("failed", "away", True, (0, 0, 0), 1, "failed: away"),
    ],
)
def test_the_end_of_a_query_says_whether_to_ask_again(
    state: str,
    reason: str,
    keeps: bool,
    counts: tuple[int, int, int],
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = dict(zip(("asked", "answered_before", "failed"), counts, strict=True))
    report["errors"] = [error(1)]  # type: ignore[assignment]
    done: Any = SimpleNamespace(
        state=state, reason=reason, report=report, notes=["of a model"], to_json=lambda: report
    )
    got = tables_sql._ended(done, Path("o.csv"), None, None, keeps=keeps, as_json=True)
    lines = capsys.readouterr().err.splitlines()
    assert got == code
    notes = ["teola: of a model"] if counts[0] or counts[1] else []
    assert lines[: len(notes)] == notes
    assert lines[len(notes) :][-1:] == ([next(one for one in lines if said in one)] if said else [])
    assert any("answers are kept" in one for one in lines) is ("kept" in said)
