"""Files of recorded queries: what is read of them, and what is refused by its place."""

from __future__ import annotations

import json
import re
from math import nan
from pathlib import Path
from typing import Any

import pytest

from teola.errors import InputError
from teola.runtime.sim.staged import StagedCall, StagedQuery
from teola.runtime.tuning import recorded_queries
from teola.runtime.tuning.recorded_queries import LONGEST, read_queries

CALL = ["a", 3, 4]
STAGES = [[CALL]]


def read(folder: Path, text: str | bytes) -> list[StagedQuery]:
    path = folder / "calls.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_queries(path)


def refused(folder: Path, text: str | bytes) -> str:
    with pytest.raises(InputError) as raised:
        read(folder, text)
    return str(raised.value)


def test_queries_stand_in_a_list_in_lines_or_alone_and_come_as_they_arrived(
    tmp_path: Path,
) -> None:
    late = {"stages": STAGES, "arrival": 5, "app": "x", "tenant": "t", "finish_by_s": 2.5}
    soon = {"stages": [[["b", 1, LONGEST], CALL], [CALL]]}
    a, b = StagedCall("a", 3, 4), StagedCall("b", 1, LONGEST)
    expected = [StagedQuery(((b, a), (a,))), StagedQuery(((a,),), "x", 5.0, "t", 2.5)]
    lines = "\n\n".join(map(json.dumps, (late, soon)))
    for text in (json.dumps([late, soon]), lines, lines + "\n"):
        assert read(tmp_path, text) == expected
    assert read(tmp_path, json.dumps(late)) == expected[1:]
    unusual = json.dumps([[["a\u2028b", 3, 4]]], ensure_ascii=False)  # JSON takes it as it is
    one = f'{{"stages": {unusual}}}'
    assert (
        read(tmp_path, f"{one}\r\n{one}") == [StagedQuery(((StagedCall("a\u2028b", 3, 4),),))] * 2
    )


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"stages": None}, "`stages` must be a list of stages, each a list of calls"),
        ({}, "`stages` must be a list of stages, each a list of calls"),
        ({"stages": [CALL]}, "a call is [name, prompt tokens, answer tokens], got 'a'"),
        ({"stages": ["ab"]}, "a stage is a list of calls, and not an empty one"),
        ({"stages": [[["a", 1]]]}, "a call is [name, prompt tokens, answer tokens], got ['a', 1]"),
        ({"stages": [[[1, 1, 1]]]}, "a call is [name, prompt tokens, answer tokens]"),
        *(
            ({"stages": [[["a", *lengths]]]}, f"from 1 to 10,000,000, got {lengths!r}")
            for lengths in ([0, 1], [1, LONGEST + 1], [1.0, 1], [True, 1], ["1", 1])
        ),
        *(
            ({"stages": STAGES, **wrong}, "arrival and finish_by_s are seconds, the latter above 0")
            for wrong in (
                {"arrival": "0"},
                {"arrival": True},
                {"arrival": nan},
                {"arrival": 1e12},
                {"finish_by_s": 0},
                {"finish_by_s": -1.0},
                {"finish_by_s": "1"},
            )
        ),
    ],
)
def test_what_is_no_query_is_refused_by_its_number(
    tmp_path: Path, query: dict[str, Any], told: str
) -> None:
    """From 0 in a list, as its lines are from 1."""
    good = {"stages": STAGES}
    said = refused(tmp_path, json.dumps([good, query]))
    assert said.startswith("calls.json, query 1: ")
    assert told in said
    said = refused(tmp_path, "\n".join(map(json.dumps, (good, query))))
    assert said.startswith("calls.json, line 2: ")
    assert told in said


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f'{json.dumps({"stages": STAGES})}\n{{"stages": ', "calls.json, line 2: it is no JSON"),
        ("[" * 100_000, "calls.json, line 1: it is no JSON"),
        (b"\xff", "calls.json'?: it is not UTF-8"),
        ("[]", "calls.json has no query: it is empty"),
        ("", "calls.json has no query: it is empty"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, text: str | bytes, told: str) -> None:
    assert re.search(told, refused(tmp_path, text))


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read '.*': No such file or directory"):
        read_queries(tmp_path / "absent.json")


def test_there_are_as_many_calls_and_queries_as_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_queries, "MOST_CALLS", 3)
    monkeypatch.setattr(recorded_queries, "MOST_QUERIES", 2)
    for stages in ([[CALL] * 3], [[CALL]] * 3, [[CALL] * 2, [CALL]]):
        (query,) = read(tmp_path, json.dumps({"stages": stages}))
        assert query.calls == 3
    assert "4 calls, and a query has 3 at most" in refused(
        tmp_path, json.dumps({"stages": [[CALL] * 2, [CALL] * 2]})
    )
    assert "4 stages, and a query has 3 at most" in refused(
        tmp_path, json.dumps({"stages": [[CALL]] * 4})
    )
    assert len(read(tmp_path, json.dumps([{"stages": STAGES}] * 2))) == 2
    assert refused(tmp_path, json.dumps([{"stages": STAGES}] * 3)) == (
        "calls.json: 3 queries, and 2 are read"
    )


def test_of_a_timeline_the_calls_count_that_ended_well_and_tell_their_tokens(
    tmp_path: Path,
) -> None:
    def span(primitive: str, queued: float, end: float, state: str = "done") -> dict[str, Any]:
        component = primitive.partition(".")[0]
        times = {"queued": queued, "end": end, "state": state}
        return {"primitive": primitive, "component": component, **times}

    timeline: dict[str, Any] = {
        "app": "x",
        "spans": [
            span("a.prefill", 0.0, 3.0),
            span("a.decode", 3.0, 5.0, "cancelled"),
            span("b.prefill", 4.0, 6.0),
            span("b.0", 6.0, 9.0),
            span("b.1", 9.0, 12.0),
            span("c.prefill", 7.0, 8.0, "failed"),
            span("d.prefill", 11.0, 12.0),
            span("e.prefill", 12.0, 13.0),
        ],
        "calls": [
            {"primitive": "a.prefill", "prompt_tokens": 0, "answer_tokens": 0},
            {"primitive": "b.prefill", "prompt_tokens": 7, "answer_tokens": 2},
            {"primitive": "c.prefill", "prompt_tokens": 7, "answer_tokens": 2},
            {"primitive": "d.prefill", "prompt_tokens": 9},
            {"primitive": "e.prefill", "prompt_tokens": 8, "answer_tokens": 1},
            {"primitive": "f.prefill", "prompt_tokens": 8, "answer_tokens": 1},
        ],
    }
    (query,) = read(tmp_path, json.dumps(timeline))
    calls = ("a", 1, 1), ("b", 7, 2), ("e", 8, 1)
    assert query.stages == tuple((StagedCall(*call),) for call in calls)
    del timeline["spans"][0]["end"]
    told = refused(tmp_path, json.dumps(timeline))
    assert told == "calls.json, query 0: that is no timeline of this version (KeyError('end'))"
