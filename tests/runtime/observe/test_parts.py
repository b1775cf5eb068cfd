"""Parts of a query as people look at them."""

from __future__ import annotations

import re

import pytest

from teola import App, Each, component
from teola.explain_parts import FAILED, SLOWEST, grown
from teola.runtime.observe.parts import grown_primitives, kinds, label, parts_json
from teola.runtime.observe.trace import Parent, Trace
from tests.planted import catches, edited

PARTS = 40


def trace(id: str, begun: float, ran: float, state: str = "ok") -> Trace:
    found = Trace(id, "app", None, begun)
    found.finish(state, begun + ran)
    return found


def whole() -> Trace:
    """Forty items, of which every tenth failed and the third was slow; one of them had turns."""
    found = trace("q", 100.0, 10.0)
    for k in range(PARTS):
        part = trace(
            f"q/each/item/{k}",
            100 + k / 5,
            3.0 if k == 3 else 0.5,
            "failed" if k % 10 == 9 else "ok",
        )
        part.parent = Parent("q", "each.grow")
        found.inner.append(part)
    for k in (1, 2):
        turn = trace(f"q/each/item/3/loop/turn/{k}", 100.6 + k, 1.0)
        turn.parent = Parent("q/each/item/3", "loop.grow")
        found.inner[3].inner.append(turn)
    return found


def test_alike_parts_are_of_one_kind() -> None:
    (kind,) = kinds(whole())
    assert (kind.name, len(kind.parts)) == ("each/item", PARTS)
    assert kind.states == {"ok": 36, "failed": 4}
    assert [label(part) for part in kind.parts[:3]] == ["0", "1", "2"]
    assert [k.name for k in kinds(kind.parts[3])] == ["loop/turn"]
    assert grown_primitives(whole()) == 0


def test_a_query_inside_is_called_as_its_application() -> None:
    outer, inner = trace("q", 0.0, 1.0), trace("other", 0.2, 0.5)
    inner.parent = Parent("q", "call")
    outer.inner.append(inner)
    (kind,) = kinds(outer)
    assert (kind.name, label(inner)) == ("app", "")
    assert grown(outer)[1].split() == ["app", "0.200", "0.500", "ok", "····██████████"]


def test_parts_as_json() -> None:
    told = parts_json(whole(), 200.0)
    (kind,) = told["kinds"]
    assert (kind["name"], kind["median_s"]) == ("each/item", 0.5)
    third = kind["parts"][3]
    assert (third["label"], third["state"], round(third["start"], 3), round(third["end"], 3)) == (
        "3",
        "ok",
        0.6,
        3.6,
    )
    assert [part["label"] for part in third["kinds"][0]["parts"]] == ["1", "2"]
    running = whole()
    running.inner[0].finished = None
    assert round(parts_json(running, 104.0)["kinds"][0]["parts"][0]["end"], 3) == 4.0


@catches(
    "all-told",
    "each of many parts has a line",
    edited(grown, "[*_rows(trace, 0)]", "[*_rows(trace, 0)] * 9"),
)
def test_many_parts_are_told_in_few_lines() -> None:
    lines = grown(whole())
    assert len(lines) <= 2 + SLOWEST + FAILED + 2
    assert re.match(r"   each/item ×40 +0.000 +~0.500  36 ok, 4 failed █+", lines[1])
    named = [line.split()[0] for line in lines[2:]]
    assert {"/3", "/9", "/19", "/29"} <= set(named)
    assert "loop/turn/1" in named
    assert all(len(line) <= 100 for line in lines)


def test_parts_that_are_not_recorded_are_counted() -> None:
    found = whole()
    found.more, found.more_failed = 1_200, 3
    assert grown(found)[-1] == "   and 1,200 more, not recorded, 3 of them failed"
    assert parts_json(found, 0.0)["more"] == {"parts": 1_200, "failed": 3}


def test_an_explanation_tells_what_grew() -> None:
    @component(outputs="note", pure=True)
    async def note(topic: str) -> str:
        return topic

    each = Each(note, over="topics", item="topic", gives={"notes": "note"})
    app = App("noting", each, inputs={"topics": "texts"}, outputs={"notes": "notes"})
    told = app.explain({"topics": [str(k) for k in range(200)]}, analyze=True).text()
    assert "parts: what it grew" in told
    assert "each/item ×200" in told
    assert len([line for line in told.splitlines() if "/19" in line]) <= 3


@pytest.mark.parametrize("width", [50, 60, 80])
def test_parts_fit_a_terminal_with_their_whole_names(width: int) -> None:
    lines, wide = grown(whole(), width), grown(whole())
    assert max(map(len, lines)) <= width
    names = [line.split("  ")[0] for line in wide]
    assert all(any(name in line for line in lines) for name in names)
