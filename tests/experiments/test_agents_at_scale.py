"""Agents at scale, in small: its report, its clairvoyant caches, and that gating pays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from experiments.agents_at_scale import __main__ as command
from experiments.agents_at_scale import measure
from experiments.agents_at_scale.clairvoyant import Clairvoyant, Future
from experiments.agents_at_scale.drawn import drawn_sessions
from experiments.agents_at_scale.measure import ABLATION, COMPARED, OURS, Setting, row
from experiments.replay.sessions import MOST_TOKENS
from teola.kv import Access, BlockCache
from tests.planted import catches, edited

KEYS = {
    "sessions",
    "policy",
    "seed",
    "requests",
    "ttft_mean_s",
    "ttft_p99_s",
    "mean_s",
    "hit_ratio",
    "held_per_instance",
}


def test_the_report_has_a_row_for_each_router(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "QUICK_S", (90.0, 10.0))
    monkeypatch.setattr(measure, "COMPARED", COMPARED[-3:])
    monkeypatch.setattr(measure, "ABLATION", ABLATION[:1])
    asked = ["--quick", "--workers", "1", "--count", "4,6", "--json", "--out", str(tmp_path)]
    command.main(asked)
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == {"rows", "ablation"}
    assert [(one["sessions"], one["policy"]) for one in found["rows"]] == [
        (count, setting.name) for count in (6, 4) for setting in COMPARED[-3:]
    ]
    assert [one["policy"] for one in found["ablation"]] == ["without gate"]
    assert all(one.keys() == KEYS and one["requests"] > 0 for one in found["rows"])
    report = json.loads((tmp_path / "report.json").read_text())
    console = Console(width=200, record=True, quiet=True)
    command.EXPERIMENT.table(report, console)
    shown = console.export_text() + command.EXPERIMENT.section(report, Path("images/x.svg"))
    assert "With 6 sessions the mean of " in shown
    assert "of which the first 10 s do not count" in " ".join(shown.split())


def test_counts_are_numbers() -> None:
    with pytest.raises(SystemExit):
        command.main(["--count", "4,x"])


# --- what is drawn ---------------------------------------------------------------------------


def test_drawn_sessions_repeat_and_fit() -> None:
    threads = drawn_sessions()
    assert threads == drawn_sessions()
    assert threads != drawn_sessions(seed=1)
    requests = [request for thread in threads for request in thread.requests]
    assert all(0 < request.prompt <= MOST_TOKENS and request.output > 0 for request in requests)
    assert all(request.reused < request.prompt for request in requests)
    assert {request.stop for request in requests} == {"tool_use", "end_turn"}


# --- the clairvoyant -------------------------------------------------------------------------


def cache(future: Future, blocks: int = 4) -> BlockCache:
    return BlockCache(blocks, 16, Clairvoyant(future))


def hold(one: BlockCache, keys: tuple[str, ...]) -> None:
    table = one.acquire(keys, len(keys), Access())
    assert table is not None
    one.commit(table, keys)
    one.release(table)


@catches(
    "blind",
    "what is told of blocks that may be evicted changes nothing",
    edited(Clairvoyant.told, "if block in self.offered", "if False"),
)
def test_what_is_read_last_goes_first() -> None:
    future = Future()
    one = cache(future)
    hold(one, ("a1", "a2"))
    hold(one, ("b1", "b2"))
    future.reads(("a1", "a2"), 5.0)
    future.reads(("b1",), 9.0)
    hold(one, ("c1",))  # b2 is read no more
    assert set(one.keys()) == {"a1", "a2", "b1", "c1"}
    future.reads(("c1",), 7.0)
    hold(one, ("d1",))
    assert set(one.keys()) == {"a1", "a2", "c1", "d1"}


def test_the_end_of_a_prompt_goes_before_its_beginning() -> None:
    future = Future()
    one = cache(future)
    hold(one, ("a1", "a2", "a3", "a4"))
    future.reads(("a1", "a2", "a3", "a4"), 5.0)
    hold(one, ("b1",))
    assert set(one.keys()) == {"a1", "a2", "a3", "b1"}


# --- what it is worth ------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.slow
def test_gating_serves_more_where_sessions_do_not_fit() -> None:
    ours, stock, known = (
        row(drawn_sessions(), setting, 230, 0, 900.0, 300.0)
        for setting in (
            Setting(OURS, OURS),
            Setting("llm_d", "llm_d"),
            Setting("belady", OURS, clairvoyant=True),
        )
    )
    assert ours["requests"] > 1.2 * stock["requests"]
    assert ours["mean_s"] < stock["mean_s"] / 1.2
    assert known["hit_ratio"] > ours["hit_ratio"] > stock["hit_ratio"]
