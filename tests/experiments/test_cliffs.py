"""The cells in small: keys, halves, and a run that goes on where it was ended."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.cliffs import __main__ as cliffs
from experiments.cliffs import figures, measure
from experiments.cliffs.measure import POLICIES, by_cell, compared, over_best, recording
from tests.planted import catches, edited

KEYS = [
    "file",
    "kv_tokens",
    "speedup",
    "routing",
    "latency_s",
    "ttft_s",
    "ttft_p99_s",
    "hit_ratio",
    "to_best",
]
AMONG = "graph_aware,marginal_cost,lmetric"


def trace(folder: Path, chats: int = 4, turns: int = 3) -> Path:
    """Chats whose turns each begin as the one before."""
    lines = []
    for k in range(chats * turns):
        chat, turn = k % chats, k // chats
        blocks = [1000 * chat + block for block in range(20 * (turn + 1))]
        asked = {"chat_id": k, "parent_chat_id": k - chats if turn else -1, "timestamp": 2.0 * k}
        lengths = {"input_length": 16 * len(blocks), "output_length": 9, "hash_ids": blocks}
        lines.append(json.dumps({**asked, **lengths, "type": "text", "turn": turn + 1}))
    path = folder / "few.jsonl"
    path.write_text("\n".join(lines))
    return path


def told(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    cliffs.main([*argv, "--json", "--workers", "1"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_cell_has_a_row_for_each_policy_and_a_run_goes_on_where_it_was_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "SPEEDUPS", (1.0, 8.0))
    kept, path = tmp_path / "rows.jsonl", str(trace(tmp_path))
    argv = ("--quick", "--kept", str(kept), path, "--policies", AMONG)
    found = told(capsys, *argv)
    assert [*found] == ["rows"]
    assert [[*row] for row in found["rows"]] == [KEYS] * 6
    assert {row["kv_tokens"] for row in found["rows"]} == {60_000}
    lines = kept.read_text().splitlines()
    assert len(lines) == 6
    kept.write_text("\n".join(lines[:4]) + "\n")
    measured: list[Any] = []
    replay = measure.replay

    def counted(*args: Any, **more: Any) -> Any:
        measured.append(args)
        return replay(*args, **more)

    monkeypatch.setattr(measure, "replay", counted)
    assert told(capsys, *argv) == found
    assert len(measured) == 2
    kept.write_text("{")
    with pytest.raises(SystemExit, match="has a line that is no row"):
        told(capsys, *argv)


def test_halves_are_of_sessions_and_make_up_the_whole(tmp_path: Path) -> None:
    path = trace(tmp_path)
    whole, tuned, other = (recording(path, half, 0) for half in (None, "tuned", "other"))
    sessions = [{call.session for call in one.calls} for one in (whole, tuned, other)]
    assert len(sessions[1]) == len(sessions[2]) == 2
    assert sessions[1] | sessions[2] == sessions[0]
    assert len(tuned.calls) + len(other.calls) == len(whole.calls)


def _row(routing: str, latency_s: float, speedup: float = 1.0) -> dict[str, Any]:
    row = {"file": "a.jsonl", "kv_tokens": 60_000, "speedup": speedup, "routing": routing}
    return {**row, "latency_s": latency_s, "ttft_s": 0.1, "ttft_p99_s": 0.2, "hit_ratio": 0.5}


@catches(
    "ours-is-the-best",
    "a policy is compared with itself",
    edited(compared, "if name in ROUTERS", ""),
)
def test_what_is_compared_is_the_best_router() -> None:
    rows = compared(
        [
            *(_row("graph_aware", 1.0), _row("lmetric", 2.0), _row("sglang", 4.0)),
            *(
                _row("graph_aware", 60.0, 8.0),
                _row("lmetric", 20.0, 8.0),
                _row("sglang", 40.0, 8.0),
            ),
        ]
    )
    assert [row["to_best"] for row in rows] == [0.5, 1.0, 2.0, 3.0, 1.0, 2.0]
    found = over_best(rows)["graph_aware"]
    assert found == {"geometric_mean": 1.2247, "worst": 3.0, "worst_within": 0.5}
    assert len(by_cell(rows)) == 2


def test_it_is_shown(tmp_path: Path) -> None:
    rows = compared(_row(name, 1.0, speedup) for speedup in (1.0, 2.0) for name in POLICIES)
    about = {"quick": False, "half": None, "seed": 0, "files": ["a.jsonl"], "instances": 4}
    report = {"about": about, "rows": rows, "over_best": over_best(rows)}
    out = StringIO()
    figures.show(report, Console(file=out, width=200))
    assert "1.00 s (marginal_cost)" in out.getvalue()
    figures.plot(report, tmp_path / "cliffs.svg")
    assert "graph_aware" in (tmp_path / "cliffs.svg").read_text()
    page = figures.table_of(report)["routing.md"]
    assert "`python -m experiments.cliffs a.jsonl`" in page
    assert (
        "| a.jsonl | 60,000 | 2 | 1.00 s | 1.00 s | 1.00 s (marginal_cost) | 0.20 s | 0.20 s |"
        in page
    )


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "give the traces to replay"),
        (["a/x.jsonl", "b/x.jsonl"], "two files have the same name"),
        (["nowhere.jsonl"], "nowhere.jsonl is no trace in the public format"),
    ],
)
def test_what_cannot_be_replayed_is_refused(argv: list[str], message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        cliffs.main(argv)


def test_an_unknown_policy_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cliffs.main(["--policies", "lmetrics", "a.jsonl"])
    assert "no routing policy is called 'lmetrics'" in capsys.readouterr().err
