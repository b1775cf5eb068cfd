"""What other policies would have done: the settings that are read, and the figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from teola.cost import StepTime
from teola.errors import InputError
from teola.habit import Habit
from teola.profile import EngineProfile, Profile, to_json
from teola.runtime.sim.sim import SimulatedQuery
from teola.runtime.sim.staged import UNNAMED_APP, StagedCall, StagedQuery
from teola.runtime.tuning import whatif
from teola.runtime.tuning.replay_case import ReplayCase, figure
from teola.runtime.tuning.whatif import (
    HEAD,
    WhatIf,
    alone_s,
    habits_of,
    read_pool,
    shown_table,
    table_lines,
)
from teola.runtime.tuning.whatif_page import COLOURS, to_html
from teola.schedule.events import State

TIMED = EngineProfile(step=StepTime(0.1, per_token_s=0.01), max_batch=100)


def pool_of(*members: EngineProfile) -> EngineProfile:
    return replace(members[0], pool=members, instances=len(members))


# --- the pool ---------------------------------------------------------------------------------


def written(folder: Path, **engines: EngineProfile) -> Path:
    path = folder / "pool.json"
    path.write_text(json.dumps(to_json(Profile("p", engines))))
    return path


def test_a_pool_is_the_engine_called_llm_or_the_only_one(tmp_path: Path) -> None:
    slow = replace(TIMED, max_batch=7)
    assert read_pool(written(tmp_path, rerank=slow, llm=TIMED)).max_batch == 100
    assert read_pool(written(tmp_path, rerank=slow)).max_batch == 7
    with pytest.raises(InputError, match="it has several engines, and none of them is called"):
        read_pool(written(tmp_path, rerank=slow, other=TIMED))
    with pytest.raises(InputError, match="cannot read the pool"):
        read_pool(tmp_path / "absent.json")
    (broken := tmp_path / "broken.json").write_text("{")
    with pytest.raises(InputError, match="cannot read the pool"):
        read_pool(broken)


def test_each_instance_of_a_pool_has_times(tmp_path: Path) -> None:
    untimed = replace(TIMED, step=StepTime())
    assert read_pool(written(tmp_path, llm=replace(TIMED, instances=3))).instances == 3
    assert read_pool(written(tmp_path, llm=pool_of(TIMED, TIMED))).instances == 2
    with pytest.raises(InputError, match="the times of an instance are not known"):
        read_pool(written(tmp_path, llm=pool_of(TIMED, untimed)))


# --- settings ---------------------------------------------------------------------------------


def test_settings_name_policies_and_their_options_as_json_or_as_text() -> None:
    sets = ["batching=urgency", "routing=workload_balanced", "routing.alpha=0.2"]
    made = WhatIf.of(sets, 2.5, 3, 4)
    assert made.names == {"batching": "urgency", "routing": "workload_balanced"}
    assert made.options == {"batching": {}, "routing": {"alpha": 0.2}}
    assert (made.rate, made.scale, made.seed) == (2.5, 3.0, 4)
    assert WhatIf.of([], None, 5, 0).names == {
        "batching": "critical_path",
        "routing": "least_loaded",
    }
    assert [whatif._value(text) for text in ("1", "true", '"a"', "a=b", "[1]")] == [
        1, True, "a", "a=b", [1],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "setting", ["routing", "routing=", "=x", "route=x", "routing.=1", "eviction=lru", ".alpha=1"]
)
def test_what_is_no_setting_is_refused(setting: str) -> None:
    with pytest.raises(InputError, match="say batching=NAME, routing=NAME, or an option"):
        WhatIf.of([setting], None, 5.0, 0)


@pytest.mark.parametrize("rate", [0.0, -1.0, 1e9, float("nan")])
def test_what_is_no_rate_is_refused(rate: float) -> None:
    with pytest.raises(InputError, match="--rate must be a number of queries a second above 0"):
        WhatIf.of([], rate, 5.0, 0)


# --- figures ----------------------------------------------------------------------------------


def query(*stages: tuple[int, ...], at: float = 0.0, app: str = "") -> StagedQuery:
    """Calls with prompts of so many tokens and one token of an answer, which comes with the prompt
    and is estimated at a step."""
    made = tuple(tuple(StagedCall("c", prompt, 1) for prompt in stage) for stage in stages)
    return StagedQuery(made, app, at)


def test_a_query_alone_takes_the_longest_of_each_stage_at_the_mean_of_the_instances() -> None:
    twice = EngineProfile(step=StepTime(0.2, per_token_s=0.02), max_batch=100)
    assert alone_s(query((10,)), TIMED) == pytest.approx(0.3)
    assert alone_s(query((10,)), pool_of(TIMED, twice)) == pytest.approx(0.45)
    assert alone_s(query((10, 20), (30,)), TIMED) == pytest.approx(0.4 + 0.5)


def test_means_are_of_an_applications_component() -> None:
    calls = [StagedCall("plan", n, n) for n in range(1, 11)]
    other = StagedCall("look", 64, 32)
    asked = StagedQuery((tuple(calls[:4]), (other,)), "x"), StagedQuery((tuple(calls[4:]),), "x")
    found = habits_of([*asked, StagedQuery(((other,),))])
    assert found.keys() == {("x", "plan"), ("x", "look"), (UNNAMED_APP, "look")}
    planned, answer = 64 / found["x", "look"].prompt, 32 / found["x", "look"].output
    plan = found["x", "plan"]
    assert plan == Habit(calls=10, prompt=5.5 / planned, output=5.5 / answer, output_p90=9 / answer)


def test_a_comparison_has_a_row_for_what_was_asked_and_one_for_what_serves() -> None:
    """At another rate they come in the same order, and the first objectives stay."""
    queries = [replace(query((10,)), arrival=float(k)) for k in range(3)]
    queries[1] = replace(queries[1], finish_by_s=0.1)
    found = WhatIf.of(["batching=urgency"], None, 2.0, 0).compare(queries, TIMED)
    assert (found["queries"], found["instances"]) == (3, 1)
    assert [row["batching"] for row in found["rows"]] == ["urgency", "critical_path"]
    for row in found["rows"]:
        assert (row["mean_s"], row["p95_s"], row["slo95"]) == (0.2, 0.2, 0.6667)
        assert row["attained"] == pytest.approx(2 / 3, abs=1e-4)
        assert row["throughput"] == pytest.approx(3 / 2.2, abs=1e-4)
        assert row["curve"] == [1.0] * 40
    (row,) = WhatIf.of([], None, 0.5, 0).compare(queries, TIMED)["rows"]
    assert (row["attained"], row["options"]) == (0.0, {})
    tuned = WhatIf.of(["batching.patience=0.5"], None, 2.0, 0).compare(queries[:1], TIMED)
    assert [row["options"] for row in tuned["rows"]] == [{"batching": {"patience": 0.5}}, {}]
    rates = WhatIf.of([], 10.0, 2.0, 7)
    arrivals = [one.arrival for one in rates._arriving(queries)]
    assert arrivals == sorted(arrivals)
    assert len({*arrivals}) == 3
    assert arrivals == [one.arrival for one in rates._arriving(queries)]
    assert arrivals[0] > 0


@pytest.mark.parametrize(
    ("percent", "count", "nearest"),
    [(95, 1, 1), (95, 19, 19), (95, 20, 19), (95, 21, 20), (90, 10, 9), (90, 11, 10), (100, 5, 5)],
)
def test_a_percentile_is_the_nearest_rank(percent: float, count: int, nearest: int) -> None:
    assert whatif._nearest(range(count, 0, -1), percent) == nearest
    if percent == 95:
        asked = [replace(query((1,)), arrival=float(k)) for k in range(count)]
        ended = [SimulatedQuery(str(k), "", State.OK, 0.0, float(k + 1), {}) for k in range(count)]
        case = ReplayCase(asked, Profile("p", {"llm": TIMED}), minimise="p95")
        assert figure(case, ended) == nearest


def test_what_is_missed_is_a_part_of_those_that_were_promised() -> None:
    """Where none was, the mean is to be small."""
    ended = [SimulatedQuery(str(k), "", State.OK, 0.0, float(k), {}) for k in range(4)]
    asked = [replace(query((1,)), finish_by_s=2.0) for _ in ended]
    asked[3] = replace(asked[3], finish_by_s=None)
    case = ReplayCase(asked, Profile("p", {"llm": TIMED}), minimise="missed")
    assert figure(case, ended) == 0.0, "one that took just as long is in time"
    asked[2] = replace(asked[2], finish_by_s=1.5)
    assert figure(case, ended) == pytest.approx(1 / 3)
    nothing = replace(case, queries=[replace(one, finish_by_s=None) for one in asked])
    assert figure(nothing, ended) == 1.5


# --- for eyes ---------------------------------------------------------------------------------


def compared(**more: Any) -> dict[str, Any]:
    row = {
        "batching": "paced", "routing": "paced", "options": {}, "mean_s": 1.25, "p95_s": 10.0,
        "slo95": 2.345, "attained": 0.985, "throughput": 0.5, "curve": [0.0, 0.5, 1.0], **more,
    }  # fmt: skip
    return {"queries": 1234, "instances": 2, "scales": [1, 5, 11], "rows": [row]}


def test_a_row_is_told_in_words_that_line_up() -> None:
    found = compared(options={"routing": {"tau": 1, "x": "y"}, "batching": {"z": 0.5}})
    (line,) = table_lines(found)
    told = ("paced", "paced (tau=1,x=y,z=0.5)", "1.2 s", "10.0 s", "2.35", "98 %", "0.500")
    assert line == (*told[:4], line[4], line[5], told[6])
    assert line[4] in ("2.34", "2.35")
    assert line[5] in ("98 %", "99 %")
    assert table_lines(compared())[0][1] == "paced"
    first, head, body = shown_table(found).splitlines()
    assert first == "1,234 queries on 2 instances"
    assert [head.index(name) for name in HEAD[1:]] == [body.index(told) for told in line[1:]]
    assert not head.endswith(" ")


def test_a_page_has_a_line_a_row_in_its_colour_and_quotes_nothing() -> None:
    found = compared(batching="<b>")
    found["rows"] = found["rows"] * (len(COLOURS) + 1)
    page = to_html(HEAD, table_lines(found), found)
    assert "<td>&lt;b&gt;</td>" in page
    assert "<b>" not in page
    colours = [*COLOURS, COLOURS[0]]
    for mark in ('color:{}"', 'stroke="{}"'):
        at = [page.find(mark.format(colour)) for colour in COLOURS]
        assert at == sorted(at)
        assert page.count(mark.format(colours[0])) == 2
    assert page.count('points="44.0,276.0 278.4,144.0 630.0,12.0"') == len(colours)
    assert [f'text-anchor="middle">{n}</text>' in page for n in (1, 5, 11)] == [True, True, False]
