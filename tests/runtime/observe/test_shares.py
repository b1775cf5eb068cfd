"""What a query's time was spent on, from critical paths made by hand."""

from __future__ import annotations

import re
from importlib.resources import files

from teola.runtime.observe.shares import CLASSES, TimeShare, in_lines, shares, shares_in_words
from teola.runtime.observe.stretches import NONE, Stretch
from teola.runtime.observe.trace import Span

EMBEDS = Span("embed", "embedding", "c", "vectorstore", 0, 0, 17)
FINDS = Span("find", "searching", "c", "vectorstore", 0, 18, 20)


def part(kind: str, op: str, start: float, end: float, blocker: int = NONE) -> Stretch:
    return Stretch(kind, "find", op, "vectorstore", start, end, 1, blocker)


def test_each_wait_goes_to_who_was_waited_for() -> None:
    path = [
        part("behind", "searching", 0, 17, 0),
        part("queued", "searching", 17, 18),
        part("ran", "searching", 18, 20),
        part("people", "wait", 20, 23),
    ]
    found = shares([EMBEDS, FINDS], path)
    assert [(one.label, one.s) for one in found] == [
        ("embedding", 17),
        ("waiting for people", 3),
        ("store and search", 2),
        ("waiting for others at vectorstore", 1),
    ]
    assert shares_in_words(found).startswith("embedding 74 %, waiting for people 13 %, ")


def test_what_nobody_knows_is_a_call_and_nothing_is_between_before_the_first() -> None:
    load = Span("load", "load", "load", "", 0, 0, 1)
    path = [part("ran", "load", 0, 1), part("between", "", 1, 3), part("ran", "own", 3, 4)]
    assert shares([load], path) == [
        TimeShare("between", "before any primitive", 2),
        TimeShare("load", "reading documents, planning", 1),
        TimeShare("call", "calls and outside", 1),
    ]


def test_words_leave_out_what_is_nothing() -> None:
    assert shares_in_words(
        [TimeShare("decode", "decoding", 9.96), TimeShare("rank", "reranking", 0.04)]
    ) == ("decoding 100 %")
    assert shares_in_words([]) == shares_in_words([TimeShare("load", "x", 0.0)]) == ""


def test_the_page_has_the_same_classes() -> None:
    script = (files("teola.serve") / "ui" / "js" / "ops.js").read_text()
    rows = re.findall(r'(\w+): \{ label: "([^"]+)", ops: \[([^\]]+)\] \}', script)
    assert {
        name: (label, tuple(re.findall(r'"(\w+)"', ops))) for name, label, ops in rows
    } == CLASSES


def test_lines_break_between_shares_only() -> None:
    found = [TimeShare(name, name, 1.0) for name in ("decoding", "store and search", "embedding")]
    for width in (22, 30, 45, 80):
        lines = in_lines(found, width)
        assert max(map(len, lines)) <= width
        assert " ".join(lines) == shares_in_words(found)
    assert in_lines([], 80) == []
