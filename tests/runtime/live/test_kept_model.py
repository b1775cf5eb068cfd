"""What a model writes is kept before it is read where steps outlive their query, and told as it
comes elsewhere; a text that is known is told like one that was written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from teola import App, Each, Generate, QueryExpansion, Runtime, component
from teola.engine import Call, Delta, QueryContext, TextPart, Usage
from teola.errors import OutputError
from teola.graph import DecodeParams, Role
from teola.query.job import Job
from teola.query.result import Result
from teola.query.spec import QuerySpec
from teola.runtime.live.kept_model import KeptModel
from teola.runtime.live.query import Token
from teola.runtime.live.steps import Steps
from tests.runtime.faults import Scripted
from tests.runtime.live.test_steps import Log

USAGE = Usage(9, 2)


async def written(deltas: list[Any], log: Log | None) -> tuple[list[Delta], dict[str, Any]]:
    """What is told of a call that streams this, and what is kept of it."""
    steps = Steps("q", keeps=log) if log is not None else Steps("q")
    model = Scripted(deltas) if deltas else Scripted([Delta("")])
    if not deltas:
        model.generate = _silent  # type: ignore[method-assign]
    call = Call(QueryContext("q"), (TextPart(Role.QUESTION, "why?"),), DecodeParams())
    kept = KeptModel(model, steps, "m.decode")
    assert kept.spec is model.spec
    told = [delta async for delta in kept.generate(call)]
    assert log is None or log.found == {key: steps.found[key] for key in log.found}
    return told, {key: json.loads(text or "") for key, text in steps.found.items()}


async def _silent(call: Call) -> Any:
    for delta in ():
        yield delta


@pytest.mark.parametrize("outlive", [True, False])
@pytest.mark.parametrize(
    ("texts", "reason", "end"),
    [
        (["a"], "stop", ""),
        (["a", "b", ""], "stop", ""),
        (["a", " ", "b"], None, ""),
        (["a", "b"], "length", "length"),
        ([" ", "\n"], "length", "length"),
        (["a", "b"], "refusal", "refusal"),
        ([" ", "\n"], "stop", "empty"),
        ([""], None, "empty"),
    ],
)
async def test_a_text_is_kept_whole_with_how_it_ended(
    texts: list[str], reason: str | None, end: str, outlive: bool
) -> None:
    """Where it outlives its query it comes once it is kept; before that it is known to begin."""
    deltas = [*map(Delta, texts[:-1]), Delta(texts[-1], reason, USAGE)]
    told, kept = await written(deltas, Log() if outlive else None)
    whole = "".join(texts)
    assert told == ([Delta(""), Delta(whole, reason, USAGE)] if outlive else deltas)
    assert kept == {"m.decode": {"text": whole, "end": end}}


@pytest.mark.parametrize("outlive", [True, False])
async def test_of_a_model_that_says_nothing_nothing_is_kept(outlive: bool) -> None:
    assert await written([], Log() if outlive else None) == ([], {})


async def test_what_is_no_delta_is_refused_and_nothing_is_kept() -> None:
    log = Log()
    model = Scripted([Delta("a")])

    async def wrong(call: Call) -> Any:
        yield Delta("a")
        yield "b"

    model.generate = wrong  # type: ignore[method-assign]
    call = Call(QueryContext("q"), (TextPart(Role.QUESTION, "why?"),), DecodeParams())
    with pytest.raises(OutputError, match=f"engine {model.spec.name!r} streamed"):
        _ = [delta async for delta in KeptModel(model, Steps("q", keeps=log), "k").generate(call)]
    assert log.told == []


# --- texts that are known -----------------------------------------------------------------------

MODEL = Scripted(["never ", "asked"])
NOTED: list[str] = []


@component(outputs="note", pure=True)
def note(topic: str) -> str:
    NOTED.append(topic)
    return topic.upper()


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime({"llm": lambda: MODEL}, learn=False) as made:
        yield made


def recalled(app: App, found: dict[str, Any]) -> tuple[Result, list[str], Log]:
    """A query of which something is known. What its watcher was told, and what it keeps."""
    job, log, told = Job(app, QuerySpec({"question": "why?"}), id="q"), Log(), list[str]()
    MODEL.calls.clear()
    NOTED.clear()
    job.steps = Steps("q", {key: json.dumps(value) for key, value in found.items()}, log)

    def watch(event: Any) -> None:
        if isinstance(event, Token):
            told.append(event.text)

    return app.home.start(job.run(watch)).result(30), told, log


@pytest.mark.parametrize(
    ("text", "end", "finish", "notice"),
    [
        ("It rains.", "", "stop", ""),
        ("It rai", "length", "length", "cut"),
        ("", "empty", "stop", "empty"),
        ("I will not.", "refusal", "refusal", "refus"),
    ],
)
def test_a_known_answer_is_told_at_once_with_how_it_ended(
    runtime: Runtime, text: str, end: str, finish: str, notice: str
) -> None:
    app = App(
        "answering",
        Generate(),
        inputs={"question": "text"},
        outputs={"answer": "answer"},
        runtime=runtime,
    )
    result, told, log = recalled(app, {"generate.decode": {"text": text, "end": end}})
    assert (result.state, result.outputs) == ("ok", {"answer": text})
    assert "".join(told) == text
    assert (MODEL.calls, log.told) == ([], [])
    assert result.trace is not None
    assert result.trace.finish_reasons == {"answer": finish}
    assert result.trace.ends == ({end} if end else set())
    assert any(notice in said for said in result.notices) == bool(notice)
    spans = {span.primitive: span for span in result.trace.spans}
    assert spans["generate.decode"].state == "known"
    items = {(span.lo, span.hi) for span in result.trace.spans}
    assert items == {(0, 1)}, "what is known is one item, as what is computed is"


def test_items_of_a_known_list_are_told_one_by_one(runtime: Runtime) -> None:
    """So what is done with each has begun as it would have."""
    app = App(
        "noting",
        QueryExpansion(n=3) >> Each(note, over="queries", item="topic", gives={"notes": "note"}),
        inputs={"question": "text"},
        outputs={"queries": "queries", "notes": "notes"},
        runtime=runtime,
    )
    result, _, log = recalled(app, {"expand.decode": {"text": "tides\nwinds\nrain\n", "end": ""}})
    assert result.state == "ok", result.error
    assert MODEL.calls == []
    assert result["queries"] == ["tides", "winds", "rain"]
    assert sorted(NOTED) == ["rain", "tides", "winds"]
    assert result["notes"] == ["TIDES", "WINDS", "RAIN"]
    assert {key for key, _ in log.told} <= {f"each/item/{k}/note.call" for k in range(3)}
