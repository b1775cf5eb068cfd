"""The experiment with servers that misbehave: what is counted, and a small case on real sockets."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.common.scripted.headers import tagged
from experiments.edge import __main__ as main
from experiments.edge import counting, plans
from experiments.edge.counting import KEYS, Called, Ended, Run
from experiments.edge.measure import SYSTEMS
from experiments.edge.plans import CASES, QUICK
from experiments.edge.serve import Minute

HERE = Path(main.__file__).parent
README = (HERE / "README.md").read_text()


def ended(tag: str, at: float, how: str = "ok", text: str | None = None) -> Ended:
    right = "".join(plans.answer(tag))
    return Ended(tag, 0.0, at, how, (right if text is None else text) if how == "ok" else "")


def called(
    at: float, server: int = 1, tag: str = "0/1", status: int = 200, drew: int = 0
) -> Called:
    return Called(server, tag, at, status, 5, False, drew)


def test_the_page_tells_every_case_and_key() -> None:
    assert re.findall(r"^\| `(\w+)` \|", README, re.MULTILINE)[: len(CASES)] == list(CASES)
    assert [key for key in KEYS if f"`{key}`" not in README] == []
    assert set(QUICK) < set(CASES)


def test_a_row_counts_what_was_lost_and_what_was_wrong() -> None:
    two = Run(
        CASES["one_refuses"],
        0,
        (ended("0/0", 0.2), ended("0/1", 0.4, "deadline"), ended("0/2", 0.6, text="no")),
        tuple(called(at) for at in (0.0, 0.1, 0.2, 0.3)),
    )
    row = counting.row("teola", "least_loaded", [two])
    assert list(row) == list(KEYS)
    told = {key: row[key] for key in ("queries", "ok", "lost", "wrong", "calls", "calls_needed")}
    assert list(told.values()) == [3, 1, 1, 1, 4, 2]
    assert row["p99_s"] == 0.6


def test_a_bad_server_counts_once_it_should_have_been_found_out() -> None:
    early = [called(at, server=0) for at in (0.0, 1.0, 2.0, 3.0, 4.0)]
    late = [called(6.0, server=0), *(called(6.0 + k) for k in range(1, 4))]
    run = Run(CASES["one_refuses"], 0, (), (*early, *late))
    assert run.found_at == 5.0
    assert counting.share_of_bad([run]) == 0.25
    few = Run(CASES["one_refuses"], 0, (), tuple(late))
    assert few.found_at is None
    assert counting.share_of_bad([few]) == 0, "it was called fewer than five times"


def test_a_minute_of_a_budget_is_counted_while_something_waits() -> None:
    taken = [called(k * 0.1, drew=1) for k in range(60)]
    taken += [called(66.0 + k, drew=1) for k in range(54)]
    run = Run(CASES["rpm_60"], 0, (), (*taken, called(121.0, drew=1), called(7.0, status=429)))
    assert counting.quota_used([run]) == pytest.approx((60 + 54) / 120)
    assert counting.refused_share([run]) == pytest.approx(1 / 113, abs=0.002)


def test_the_cheapest_share_counts_what_was_answered() -> None:
    asked = [called(0.0, server=0), called(0.1), called(0.2, server=0, status=429)]
    assert counting.cheapest_share([Run(CASES["two_providers"], 0, (), tuple(asked))]) == 0.5


def test_a_minute_opens_when_the_oldest_call_is_one_old() -> None:
    minute = Minute(3)
    for at in (0.0, 1.0, 2.0):
        minute.draw(1, at)
    assert minute.left(10.0) == 0
    assert minute.opens_in(10.0) == 50.0
    assert minute.left(60.5) == 1


def test_the_earliest_deadline_first_meets_what_can_be_met() -> None:
    case = CASES["urgent"]
    for seed in range(3):
        asked = plans.queries(case, seed)
        met = plans.met_by_deadlines(case, seed)
        patient = {query.tag for query in asked if query.deadline_s == case.deadline_s}
        assert patient <= met
        assert 0.9 * len(asked) <= len(met) <= len(asked)
        assert asked == plans.queries(case, seed), "the same seed asks the same"
        assert tagged(asked[0].question) == asked[0].tag


@pytest.mark.parametrize("name", ["overload_1_2x", "overload_2x"])
def test_more_comes_than_can_be_answered(name: str) -> None:
    case = CASES[name]
    for seed in range(3):
        asked = plans.queries(case, seed)
        assert {query.rows for query in asked} == {0, plans.MIX_ROWS}
        seconds = [sum(plans.call_s(case, tag) for tag in query.calls) for query in asked]
        last = max(query.at for query in asked)
        offered = sum(seconds) / plans.MIX_AT_ONCE
        assert offered > last + case.deadline_s, "some will be late, whoever goes first"
        assert 0.3 < len(plans.met_in_turn(case, seed)) / len(asked) < 0.9


def test_in_turn_a_late_one_is_dropped_for_those_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at once, of a second each: three of the four calls of a map are late, which costs no
    more than the two that had begun."""
    given = [
        plans.Query(0.0, "map", "", 1.5, rows=4),
        plans.Query(0.0, "late", "", 1.5),
        plans.Query(0.0, "patient", "", 9.0),
    ]
    monkeypatch.setattr(plans, "queries", lambda case, seed: given)
    case = replace(CASES["overload_2x"], at_once=2, call_s=1.0)
    assert plans.met_in_turn(case, 0) == {"patient"}
    run = Run(case, 0, (ended("late", 1.0), ended("patient", 1.0, text="no")), ())
    assert counting.mix([replace(run, ended=(replace(run.ended[0], due=0.5),))])["goodput"] == 2.0


def test_the_kept_report_is_whole() -> None:
    report = json.loads((HERE / "report.json").read_text())
    about = report["about"]
    names = (*(QUICK if about["quick"] else tuple(CASES)), *about.get("added", {}))
    assert list(dict.fromkeys(row["case"] for row in report["rows"])) == list(dict.fromkeys(names))
    for row in report["rows"]:
        assert list(row) == list(KEYS)
        assert row["system"] in SYSTEMS
        if not row["policy"].startswith("not run"):
            assert row["ok"] <= row["queries"]
            assert row["wrong"] == 0


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_case_on_real_sockets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--quick", "--cases", "one_refuses", "--systems", "teola,asyncio_openai"]
    main.main([*few, "--queries", "12", "--json", "--out", str(tmp_path)])
    told = json.loads(capsys.readouterr().out)
    assert list(told) == ["rows", "versions"]
    assert [row["system"] for row in told["rows"]] == ["teola", "asyncio_openai"]
    ours = told["rows"][0]
    assert (ours["queries"], ours["ok"], ours["wrong"]) == (12, 12, 0)
    assert ours["calls_needed"] == 12
