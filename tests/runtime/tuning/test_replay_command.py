"""`teola replay`: what it says of recorded calls, and what it refuses."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from teola.cli import call
from teola.cost import StepTime
from teola.profile import EngineProfile, Profile, to_json
from teola.runtime.sim.staged import StagedCall, StagedPlans, StagedQuery
from teola.runtime.tuning.recorded_queries import read_queries
from teola.runtime.tuning.whatif import habits_of

STAGES = [[["plan", 300, 20]], [["look", 4000, 100], ["look", 3000, 90]], [["report", 6000, 300]]]


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    members = tuple(
        EngineProfile(step=StepTime(step, per_token_s=token), max_batch=2048)
        for token, step in ((0.000245, 0.022), (0.00075, 0.037))
    )
    engine = replace(members[0], pool=members, instances=2)
    path = tmp_path / "pool.json"
    path.write_text(json.dumps(to_json(Profile("two", {"llm": engine}))))
    return path


def written(folder: Path, *queries: Any) -> Path:
    path = folder / "calls.jsonl"
    path.write_text("\n".join(map(json.dumps, queries)))
    return path


def test_policies_know_how_long_calls_are_on_average() -> None:
    calls = [StagedCall("plan", 300, 20), StagedCall("plan", 500, 40), StagedCall("look", 3000, 90)]
    asked = StagedQuery(((calls[0], calls[1]), (calls[2],)), "notes")
    spec_of = {}
    plan = StagedPlans(Profile("p", {"llm": EngineProfile()}, habits=habits_of([asked]))).plan(
        asked
    )
    for spec in plan.specs:
        spec_of.setdefault(spec.component, spec)
    assert spec_of["plan"].expected_output == 30
    assert spec_of["look"].expected_output == 90


def test_other_policies_are_compared_with_those_that_serve(
    tmp_path: Path, pool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = written(tmp_path, *({"arrival": float(k), "stages": STAGES} for k in range(12)))
    words = ["replay", str(calls), "--pool", str(pool), "--rate", "0.5", "--json"]
    sets = ("routing=workload_balanced", "routing.alpha=0.2", "batching=urgency")
    asked = [*words, *(word for told in sets for word in ("--set", told))]
    assert call(asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["queries"], found["instances"]) == (12, 2)
    first, second = found["rows"]
    assert first["routing"] == "workload_balanced"
    assert first["options"] == {"routing": {"alpha": 0.2}}
    assert (second["batching"], second["routing"]) == ("critical_path", "least_loaded")
    for row in found["rows"]:
        assert row["curve"] == sorted(row["curve"])
        assert row["curve"][4] == row["attained"]  # five times what a query takes alone
        assert row["mean_s"] <= row["p95_s"]
    assert call(words) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [second]
    page = tmp_path / "page.html"
    assert call([*asked[:-7], *asked[-6:], "--page", str(page)]) == 0
    assert "12 queries on 2 instances" in capsys.readouterr().out
    drawn = page.read_text()
    assert "<td>workload_balanced (alpha=0.2)</td>" in drawn
    (line, _) = re.findall(r'<polyline points="([^"]*)"', drawn)
    heights = [float(point.partition(",")[2]) for point in line.split()]
    assert len(heights) == len(first["curve"]) == 40
    assert heights[0] - heights[4] == pytest.approx(
        264 * (first["attained"] - first["curve"][0]), abs=0.11
    )
    assert call([*words, "--page", str(tmp_path / "no" / "page.html")]) == 2
    assert "cannot write the page" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ([], "a query is an object"),
        ({"stages": []}, "no call of a language model"),
        ({"stages": [[]]}, "not an empty one"),
        ({"stages": [[["", 1, 1]]]}, "a call is [name, prompt tokens, answer tokens]"),
        ({"stages": [[["a", 0, 1]]]}, "whole numbers from 1"),
        ({"stages": [[["a", 1, -1]]]}, "whole numbers from 1"),
        ({"stages": [[["a", 1, 1]]] * 1_000_000}, "1,000,000 stages"),
        ({"stages": [[["a", 1, 1]]], "finish_by_s": 0}, "finish_by_s"),
        ({"spans": [{"primitive": "x"}], "calls": []}, "no timeline of this version"),
    ],
)
def test_what_is_no_recorded_query_is_refused_by_its_place(
    tmp_path: Path, pool: Path, capsys: pytest.CaptureFixture[str], query: Any, told: str
) -> None:
    calls = written(tmp_path, {"stages": STAGES}, query)
    assert call(["replay", str(calls), "--pool", str(pool)]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert "line 2" in said


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--set", "routing=best"], "best"),
        (["--set", "alpha=0.2"], "say batching=NAME"),
        (["--set", "routing=paced"], "set batching to 'paced', too"),
        (["--set", "routing.alpha=0.2"], "alpha"),
        (["--rate", "0"], "--rate must be"),
        (["--slo-scale", "0"], "slo_scale must be"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    tmp_path: Path, pool: Path, capsys: pytest.CaptureFixture[str], more: list[str], told: str
) -> None:
    calls = written(tmp_path, {"stages": STAGES})
    assert call(["replay", str(calls), "--pool", str(pool), *more]) == 2
    assert told in capsys.readouterr().err


def test_an_empty_file_and_a_pool_without_times_are_refused(
    tmp_path: Path, pool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (empty := tmp_path / "empty.jsonl").write_text("\n")
    assert call(["replay", str(empty), "--pool", str(pool)]) == 2
    assert "it is empty" in capsys.readouterr().err
    untimed = tmp_path / "untimed.json"
    untimed.write_text(json.dumps(to_json(Profile("x", {"llm": EngineProfile()}))))
    calls = written(tmp_path, {"stages": STAGES})
    assert call(["replay", str(calls), "--pool", str(untimed)]) == 2
    assert "measure them with `teola profile`" in capsys.readouterr().err


def test_a_timeline_is_calls_side_by_side_and_after_each_other(tmp_path: Path) -> None:
    def span(primitive: str, queued: float, end: float) -> dict[str, Any]:
        component = primitive.partition(".")[0]
        return {
            "primitive": primitive, "component": component, "state": "done",
            "queued": queued, "end": end,
        }  # fmt: skip

    told = {
        "app": "x",
        "spans": [
            span("a.prefill", 0.0, 1.0),
            span("a.decode", 1.0, 5.0),
            span("b.prefill", 5.0, 6.0),
            span("c.prefill", 5.0, 7.0),
            span("b.decode", 6.0, 8.0),
            span("c.decode", 7.0, 9.0),
        ],
        "calls": [
            {"primitive": f"{name}.prefill", "prompt_tokens": n, "answer_tokens": n + 1}
            for n, name in enumerate("abc", 10)
        ],
    }
    (query,) = read_queries(written(tmp_path, told))
    assert [[call.component for call in stage] for stage in query.stages] == [["a"], ["b", "c"]]
    assert query.stages[0][0][:3] == ("a", 10, 11)
