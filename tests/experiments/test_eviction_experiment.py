"""The replay over a cache counts what the sheet says, Belady is a bound, and reports repeat."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from experiments.eviction import figures, traces
from experiments.eviction.__main__ import main
from experiments.eviction.belady import Belady
from experiments.eviction.measure import POLICIES, policy_of, replayed
from experiments.eviction.traces import Asked, Trace
from teola.errors import InputError
from teola.kv import NEVER, Access, make_policy
from teola.kv import POLICIES as NAMES
from tests.planted import catches, edited

KEYS = {"trace", "capacity", "policy", "hit_ratio", "qttft_mean_s"}


def trace(prompts: list[str], gap: float = 1.0) -> Trace:
    """Prompts, one after another; a block is a token."""
    asked = [Asked(k * gap, tuple(p), len(p), Access()) for k, p in enumerate(prompts)]
    return Trace("made", 1, asked, True, (2,))


def drawn(seed: int) -> Trace:
    """Single blocks, so that Belady's choice is the best."""
    chance = random.Random(seed)
    return trace([chance.choice("abcdefghij") for _ in range(200)])


@catches(
    "all-of-it-is-counted",
    "what the policies learn from is counted, too",
    edited(replayed, "one.at >= trace.since", "True"),
)
def test_the_second_half_is_counted() -> None:
    made = trace(["ab", "cd", "ef", "ab"])
    assert made.since == 2.0
    found = replayed(made, make_policy("lru"), None)
    assert found.hit_ratio == 0.5
    assert found.capacity == 6


def test_a_prompt_that_is_longer_than_the_cache_is_cut() -> None:
    made = trace(["abcde"] * 4)
    assert replayed(made, make_policy("lru"), 3).hit_ratio == 0.6


@catches(
    "nearest-next-use",
    "Belady evicts what is read soonest",
    edited(Belady.touch, "-coming[0]", "coming[0]"),
)
def test_nobody_finds_more_than_belady() -> None:
    for seed in range(10):
        made = drawn(seed)
        best = replayed(made, Belady(made.requests), 4).hit_ratio
        for name in NAMES:
            assert replayed(made, make_policy(name), 4).hit_ratio <= best + 0.03, "of its half"
        assert replayed(made, policy_of("belady", made), 4).hit_ratio == best


def test_who_waits_in_the_queue_waits_for_what_was_not_found() -> None:
    made = trace(["x", "abcdefgh", "abcdefgh", "abcdefgh", "abcdefgh"], gap=0.01)
    with_hits = replayed(made, make_policy("lru"), 20).qttft_mean_s
    without = replayed(made, make_policy("lru"), 1).qttft_mean_s
    assert without > with_hits > 0


def run(folder: Path, *arguments: str) -> dict[str, Any]:
    main(["--quick", "--workers", "1", "--json", "--out", str(folder), *arguments])
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


def public(path: Path, count: int = 40) -> Path:
    """A small file in the public format: chats whose turns grow."""
    lines = []
    for number in range(count):
        chat, turn = divmod(number, 4)
        ids = [0, *(100 * chat + k for k in range(1, 3 * (turn + 1)))]
        lines.append(
            json.dumps(
                {
                    "chat_id": number,
                    "parent_chat_id": number - 1 if turn else -1,
                    "timestamp": 3.0 * turn + 2.0 * chat,
                    "input_length": 16 * len(ids),
                    "output_length": 5,
                    "type": "text",
                    "turn": turn + 1,
                    "hash_ids": ids,
                }
            )
        )
    path.write_text("\n".join(lines))
    return path


def test_a_file_is_replayed_at_given_capacities(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = public(tmp_path / "chats.jsonl")
    report = run(tmp_path, "--trace", str(file), "--capacities", "8,20")
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {"rows", "belady"}
    assert all(set(row) == KEYS for row in told["rows"])
    assert {row["trace"] for row in told["rows"]} == {"chats"}
    assert {row["policy"] for row in told["rows"]} == {*POLICIES, "unlimited"}
    ideal = next(row for row in told["rows"] if row["policy"] == "unlimited")
    assert all(row["hit_ratio"] <= ideal["hit_ratio"] for row in told["rows"])
    assert set(told["belady"]["chats"]) == {"8", "20"}
    again = run(tmp_path / "again", "--trace", str(file), "--capacities", "8,20")
    assert again == report
    assert "| chats | 8 |" in figures.section(report, Path("x.svg"))


def test_sessions_come_at_recorded_times_by_how_their_last_answer_ended(tmp_path: Path) -> None:
    rows = [
        [0.0, 200, 5, 0, 2.0, 0.0, "tool_use", "m"],
        [9.0, 400, 5, 192, 2.0, 7.0, "end_turn", "m"],
        [99.0, 500, 5, 384, 2.0, 88.0, "tool_use", "m"],
    ]
    thread = {
        "id": "t",
        "parent": None,
        "fields": "t,in,out,reuse_tokens,api_time,think_time,stop,model",
        "requests": rows,
    }
    file = tmp_path / "sessions.jsonl"
    file.write_text(json.dumps(thread))
    made = traces.load("sessions", None, file, True, 0)
    assert [round(b.at - a.at, 6) for a, b in pairwise(made.requests)] == [9.0, 90.0]
    stops = [one.access.category[1] for one in made.requests]
    assert stops == ["tool_use", "end_turn", "tool_use"]
    assert [len(one.keys) for one in made.requests] == [3, 6, 7]
    assert made.requests[0].keys == made.requests[1].keys[:3]


def test_a_call_to_an_api_is_a_query_that_has_ended() -> None:
    made = traces.load("synthetic_b", None, None, True, 0)
    assert len({one.access.query for one in made.requests}) == len(made.requests)
    assert {one.access.reads for one in made.requests} == {NEVER}


def test_a_trace_that_is_not_there_or_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no file"):
        traces.names(None, tmp_path / "none")
    (tmp_path / "bad").write_text("[1, 2]")
    with pytest.raises(InputError, match="bad"):
        traces.load("bad", None, tmp_path / "bad", True, 0)
    with pytest.raises(SystemExit):
        main(["--capacities", "0,x"])


@pytest.fixture(scope="module")
def trace_a() -> Trace:
    return traces.load("synthetic_a", None, None, False, 0)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "ratio"),
    [("fifo", 0.104), ("lru", 0.1100), ("gdfs", 0.1104), ("workload_aware", 0.1287)],
)
def test_trace_a_is_as_in_the_check_of_the_sheet(trace_a: Trace, name: str, ratio: float) -> None:
    """Within 4 % of the figures of the sheet, which are of one other seed."""
    found = replayed(trace_a, make_policy(name), 10_000).hit_ratio
    assert found == pytest.approx(ratio, rel=0.04)


def test_what_the_workload_teaches_finds_more_on_a_short_trace_a() -> None:
    made = traces.load("synthetic_a", None, None, True, 0)
    lru, aware = (
        replayed(made, make_policy(name), made.capacities[0]).hit_ratio
        for name in ("lru", "workload_aware")
    )
    assert aware > 1.05 * lru > 0
