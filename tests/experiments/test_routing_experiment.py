"""The comparison of routers in small: its keys, its options, and what it compares."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.replay.replay import LLM, Fleet
from experiments.routing import __main__ as routing
from experiments.routing import figures
from experiments.routing.measure import POLICIES, by_cell, over_best, ratios
from experiments.routing.oracle import OraclePartition
from experiments.routing.routed_per_second import routed_per_s
from experiments.routing.sweep import (
    ABLATION,
    AZURE,
    FACTORS,
    MOONCAKE,
    ORACLE,
    Routing,
    Swept,
    played,
    read,
    row,
    saturation,
)
from teola.errors import InputError
from teola.graph import Op
from teola.policies.routing import ROUTING
from teola.policies.work import Work, WorkSpec
from teola.profile import EngineProfile, Profile, StepTime, to_json
from teola.runtime.values import number_of
from tests.planted import catches, edited

KEYS = [
    "workload",
    "rate",
    "policy",
    "seed",
    "mean_s",
    "p99_s",
    "ttft_mean_s",
    "ttft_p99_s",
    "hit_ratio",
    "held_per_instance",
]


def trace(folder: Path, calls: int = 60) -> Path:
    """In Mooncake's format: half of each prompt is one of three beginnings."""
    lines = []
    for number in range(calls):
        first = 100 * (number % 3)
        blocks = [*range(first, first + 4), *range(1000 + 4 * number, 1004 + 4 * number)]
        asked = {"timestamp": 300 * number, "input_length": 4096, "output_length": 20}
        lines.append(json.dumps({**asked, "hash_ids": blocks}))
    path = folder / "few.jsonl"
    path.write_text("\n".join(lines))
    return path


def told(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    routing.main([*argv, "--json", "--workers", "1"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_trace_has_a_row_for_each_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.routing.measure.routed_per_s", lambda name: 7)
    path = str(trace(tmp_path))
    found = told(capsys, "--trace", path, "--policies", "round_robin, e2,e2", "--speedup", "2")
    assert [*found] == ["rows", "ratios", "routed_per_s"]
    assert [[*one] for one in found["rows"]] == [KEYS] * 2
    assert [one["policy"] for one in found["rows"]] == ["round_robin", "e2"]
    assert {one["workload"] for one in found["rows"]} == {"few/4"}
    (rate,) = {one["rate"] for one in found["rows"]}
    assert rate == pytest.approx(2 / 0.3, rel=0.3)
    assert found["routed_per_s"] == {"e2": 7}
    hits = {one["policy"]: one["hit_ratio"] for one in found["rows"]}
    assert hits["e2"] > hits["round_robin"] > 0


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["--policies", "e3"], "unknown routing policy 'e3'"),
        (["--trace", "no.jsonl"], "no.jsonl cannot be read"),
        (["--profile", "no"], "unknown profile 'no'"),
        (["--instances", "0"], "from 1 to 1000 instances"),
        (["--speedup", "x"], "a number above 0"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    argv: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        routing.main([*argv, "--queries", "5", "--workers", "1"])
    assert why in f"{stopped.value}{capsys.readouterr().err}"


def test_a_profile_says_what_instances_are(tmp_path: Path) -> None:
    step = StepTime(base_s=1.0)
    entry = EngineProfile(step=step, max_batch=100, max_sequences=9, block_tokens=10, kv_blocks=5)
    path = tmp_path / "my.json"
    path.write_text(json.dumps(to_json(Profile("my", {LLM: entry}))))
    fleet = Swept("toolbench", 3, 10, profile=str(path)).fleet(Routing("e2", "e2", {}))
    assert fleet == Fleet(3, step, 50, 9, 100, batching="fifo", routing="e2")
    path.write_text(json.dumps(to_json(Profile("my", {}))))
    with pytest.raises(InputError, match="no engine called 'llm'"):
        Swept("toolbench", 3, 10, profile=str(path)).fleet(Routing("e2", "e2", {}))


@pytest.mark.parametrize("workload", [MOONCAKE, AZURE])
def test_traces_are_replayed_at_the_rate_that_is_asked_for(workload: str, tmp_path: Path) -> None:
    trace(tmp_path).rename(tmp_path / "mooncake_conversation_trace.jsonl")
    times = "".join(f"2023-11-16 18:{15 + k // 60}:{k % 60:02}.0,10,10\n" for k in range(200))
    csv = tmp_path / "azure_llm_conv_2023.csv"
    csv.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + times)
    made = Swept(workload, 4, 40, data=tmp_path).recording(5.0, 1)
    assert len(made.calls) == 40
    assert made.seconds == pytest.approx(8.0)
    with pytest.raises(InputError, match="needs --data"):
        Swept(workload, 4, 40).recording(5.0, 1)


def test_the_two_halves_of_a_mix_share_nothing(tmp_path: Path) -> None:
    times = "".join(f"2023-11-16 18:15:{k:02}.0,10,10\n" for k in range(50))
    csv = tmp_path / "azure_llm_conv_2023.csv"
    csv.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + times)
    calls = Swept(AZURE, 4, 40, data=tmp_path).recording(5.0, 0).calls
    texts = [{part.text for call in calls[k::2] for part in call.prompt.excerpts} for k in (0, 1)]
    assert not texts[0] & texts[1]


def test_formats_are_told_apart(tmp_path: Path) -> None:
    assert read(trace(tmp_path)).block_tokens == 512
    public = {"chat_id": 1, "parent_chat_id": -1, "timestamp": 0, "input_length": 16}
    more = {"output_length": 5, "type": "text", "turn": 1, "hash_ids": [1]}
    path = tmp_path / "public.jsonl"
    path.write_text(json.dumps({**public, **more}))
    assert read(path).block_tokens == 16


def test_saturation_is_what_is_answered_when_all_come_at_once() -> None:
    four, eight = (saturation(Swept("toolbench", n, 150)) for n in (4, 8))
    assert four < eight
    assert four == saturation(Swept("toolbench", 4, 150))


@catches(
    "oracle-piles",
    "the oracle gives all prompts to one instance",
    edited(OraclePartition.__init__, "given[least] += seconds[key]", "pass"),
)
def test_the_oracle_divides_what_is_shared_evenly() -> None:
    swept = Swept("video-questions", 4, 120)
    recording = swept.recording(20.0, 0)
    at: dict[str, set[int]] = {}
    for call in played(swept, recording, Routing(ORACLE, ORACLE, {})).calls:
        at.setdefault(call.session, set()).add(call.instance)
    alone = [session for session, calls in at.items() if len(calls) == 1]
    assert len(alone) == len(at)  # who asks about a video goes where the others went
    assert set.union(*at.values()) == {0, 1, 2, 3}


def test_the_oracle_places_prompts_without_a_block() -> None:
    recording = Swept("toolbench", 2, 4).recording(1.0, 0)
    short = recording.calls[0].prompt.continued(5)
    calls = [call._replace(prompt=short) for call in recording.calls]
    oracle = OraclePartition(calls, EngineProfile(step=StepTime(per_token_s=1.0)), 2)
    spec = WorkSpec(LLM, Op.PREFILLING, "c", None, cuttable=False, depth=0)
    assert short.keys(16, number_of("default")) == ()
    assert oracle.place(Work(spec, "q", 0, 5, 0.0, 0), 0.0) == 0


def test_the_same_cell_is_the_same_again() -> None:
    given = Swept("programs", 4, 60), 20.0, Routing("e2", "e2", {}), 3
    assert row(*given) == row(*given)


# --- what is compared -----------------------------------------------------------------------


def some(policy: str, mean_s: float, rate: float = 1.0, seed: int = 0) -> dict[str, Any]:
    return {
        "workload": "w",
        "rate": rate,
        "policy": policy,
        "seed": seed,
        "mean_s": mean_s,
        "p99_s": 2 * mean_s,
    }


@catches(
    "seeds-apart",
    "seeds are compared one by one",
    edited(by_cell, "fmean(some)", "some[-1]"),
)
def test_policies_are_compared_by_the_mean_of_seeds() -> None:
    rows = [some("a", 1.0), some("a", 3.0, seed=1), some("b", 1.0), some("b", 1.0, seed=1)]
    rows += [some("a", 1.0, 2.0), some("b", 2.0, 2.0), some("other", 0.1, 2.0)]
    assert over_best(by_cell(rows, "mean_s"), {"other"}) == {
        "a": {"geometric_mean": pytest.approx(2**0.5, abs=1e-4), "worst": 2.0},
        "b": {"geometric_mean": pytest.approx(2**0.5, abs=1e-4), "worst": 2.0},
    }


def test_ratios_tell_of_e2_and_its_parts() -> None:
    rows = [some("round_robin", 3.0), some("e2", 1.5)]
    rows += [some(one.name, 2.0) for one in ABLATION if one.name != "e2"]
    rows += [some("round_robin", 8.0, 2.0), some("e2", 2.0, 2.0)]
    found = ratios(rows)
    assert found["e2_ahead"] == {"mean": [2.0, 4.0], "p99": [2.0, 4.0]}
    assert found["oracle_over_e2"] == {"mean": [1.333, 1.333], "p99": [1.333, 1.333]}
    assert [*found["ablation"]] == [*figures.VARIANTS]
    assert found["ablation"]["e2"] == {"mean_s": 1.5, "p99_s": 3.0}
    assert [*found["over_best"]] == ["e2", "round_robin"]
    report = {
        "rows": rows,
        "ratios": found,
        "routed_per_s": {"e2": 5000},
        "about": {"seeds": 5, "queries": 1000},
    }
    console = Console(file=StringIO(), width=120)
    figures.show(report, console)
    page = figures.section(report, Path("images/routing.svg"))
    assert "| e2 | 1.000 | 1.000 |" in page
    assert "5,000 (e2)" in page
    assert figures.drawn(report).axes


def test_all_policies_are_compared() -> None:
    assert set(POLICIES) == set(ROUTING)
    assert len(FACTORS) == 3


@pytest.mark.parametrize("policy", ["marginal_cost", "e2"])
def test_calls_are_placed_while_caches_change(policy: str) -> None:
    assert routed_per_s(policy, calls=50, warm_up=50) > 100


def test_the_map_names_the_best_policy_of_each_load() -> None:
    means = {4: ((1.0, 2.0), (3.0, 2.0), (4.0, 4.4)), 8: ((1.0, 2.0), (3.0, 1.0), (4.0, 4.4))}
    rows = [
        {"workload": f"tools/{count}", "rate": count * (k + 1), "policy": policy, "mean_s": mean}
        for count, cells in means.items()
        for k, cell in enumerate(cells)
        for policy, mean in zip(("graph_aware", "sglang"), cell, strict=True)
    ]
    report = {"rows": rows, "ratios": {"over_best": over_best(by_cell(rows, "mean_s"), set())}}
    assert figures.best_policies(report) == [
        ["`tools`", "`graph_aware`", "`sglang`, 2.12 x", "`graph_aware`"]
    ]
