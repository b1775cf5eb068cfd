"""Parts that end without an optional component: the query is told what is missing."""

from __future__ import annotations

from typing import Any

from teola import App, Each, Loop, component
from teola.runtime.driver import Driver
from teola.schedule.graph_run import GraphRun
from tests.planted import catches, edited


@component(outputs="extra", pure=True, optional=True)
async def look_up(topic: str) -> str:
    if topic.startswith("bad"):
        raise ValueError(f"nothing about {topic}")
    return topic.upper()


@component(outputs="note", pure=True)
async def note(topic: str, extra: str | None = None) -> str:
    return f"{topic}: {extra}"


def listing(body: Any, gives: str, **more: Any) -> App:
    template = Each(body, over="topics", item="topic", gives={"notes": gives}, **more)
    return App("noting", template, inputs={"topics": "texts"}, outputs={"notes": "notes"})


@catches(
    "nothing-missing",
    "a query is whole although its parts are not",
    edited(Driver.part_ended, "zip(finish.missing, finish.reasons, strict=True)", "()"),
)
def test_what_a_part_is_missing_its_query_is_missing() -> None:
    result = listing(look_up >> note, "note").run(topics=["a", "bad", "b", "bad again"])
    assert result["notes"] == ["a: A", "bad: None", "b: B", "bad again: None"]
    assert result.state == "partial"
    assert list(result.missing) == ["look_up"]


@catches(
    "not-told",
    "what is missing in a part is forgotten where it ends",
    edited(GraphRun._completed, "self._lacks(component, cause)", "pass"),
)
def test_what_is_missing_deep_inside_is_told_outside() -> None:
    loop = Loop(
        Each(look_up >> note, over="topics", item="topic", gives={"notes": "note"}),
        carry={"topics": "notes"},
        until=lambda notes: True,
        reads=["notes"],
        gives=["notes"],
    )
    app = App("deep", loop, inputs={"topics": "texts"}, outputs={"notes": "notes"})
    result = app.run(topics=["a", "bad"])
    assert (result.state, list(result.missing)) == ("partial", ["look_up"])


def test_a_part_without_its_only_output_leaves_a_gap_and_is_told() -> None:
    """Whatever `on_error` says: it is its component that may fail."""
    for on_error in ("fail", "none"):
        result = listing(look_up, "extra", on_error=on_error).run(topics=["a", "bad"])
        assert result["notes"] == ["A", None]
        assert (result.state, list(result.missing)) == ("partial", ["look_up"])


def test_whole_parts_make_a_whole_query() -> None:
    result = listing(look_up >> note, "note").run(topics=["a", "b"])
    assert (result.state, list(result.missing)) == ("ok", [])
