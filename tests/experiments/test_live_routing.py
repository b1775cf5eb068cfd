"""Routing policies on real servers beside the simulator, in small; most of it without servers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from experiments.common import pages
from experiments.live_routing import __main__ as live_routing
from experiments.live_routing import pair, simulated
from experiments.live_routing.live import Answered, Learned, Routed, known, routed
from experiments.live_routing.measure import POLICIES, chosen, error, means, turned, worst
from experiments.live_routing.workload import (
    ANSWER_TOKENS,
    GROUPS,
    Asked,
    asked,
    manual,
    recording,
)
from experiments.replay.replay import LLM, Fleet
from teola.cost import StepTime
from teola.engine import EngineKind, EngineSpec, Keys
from teola.errors import UnknownName
from teola.graph.ops import DECODES, PREFILLS
from teola.kv import token_keys
from tests.fake_openai import FakeOpenAI

KEYS = [
    "policy",
    "seed",
    "calls",
    "hit_tokens",
    "hit_ratio",
    "mean_s",
    "p99_s",
    "ttft_mean_s",
    "simulated_hit_tokens",
    "simulated_mean_s",
]
BLOCK = 32
STEP = StepTime(base_s=0.04, per_sequence_s=0.004, per_token_s=0.0025)
SPEC = EngineSpec(
    name=LLM,
    kind=EngineKind.LLM,
    ops=PREFILLS | DECODES,
    max_batch=512,
    max_sequences=pair.SEQUENCES,
    block_tokens=BLOCK,
    kv_blocks=pair.BLOCKS,
)


def sizes(calls: Sequence[Asked]) -> list[Keys]:
    """By tokens of four characters."""
    found = []
    for call in calls:
        text = f"{manual(call.group)}\n\nQuestion: {call.question}"
        ids = [hash(text[k : k + 4]) % 8192 for k in range(0, len(text), 4)]
        found.append(Keys(len(ids), token_keys(ids, BLOCK)))
    return found


def fleet() -> Fleet:
    return simulated.fleet(SPEC, Learned(STEP, 0.0))


# --- the workload ---------------------------------------------------------------------------


def test_a_seed_gives_the_same_calls_at_any_rate() -> None:
    slow, quick = asked(200, 1.0, 3), asked(200, 4.0, 3)
    assert slow == asked(200, 1.0, 3)
    assert [(one.group, one.question) for one in slow] == [
        (one.group, one.question) for one in quick
    ]
    assert [one.at / 4 for one in slow] == pytest.approx([one.at for one in quick])
    assert slow[-1].at == pytest.approx(200, rel=0.2)
    assert [one.group for one in slow] != [one.group for one in asked(200, 1.0, 4)]
    assert len({one.question for one in slow}) == 200


def test_few_manuals_are_popular_and_most_are_asked_about() -> None:
    for seed in range(5):
        counts = Counter(one.group for one in asked(200, 1.0, seed))
        (_, most), (_, second) = counts.most_common(2)
        assert most > second
        assert 0.2 < most / 200 < 0.45
        assert 0.75 * GROUPS < len(counts) <= GROUPS


def test_manuals_differ_and_only_both_caches_keep_them() -> None:
    calls = [Asked(group, group, 0.0, "Why?") for group in range(GROUPS)]
    shared = [set(one.blocks[:-1]) for one in sizes(calls)]
    together = set().union(*shared)
    assert len(together) == sum(map(len, shared))
    one = fleet().kv_tokens // BLOCK
    assert 1.5 * one < len(together) < 2.1 * one


def test_the_simulator_gets_lengths_and_what_is_equal() -> None:
    calls = asked(40, 2.0, 0)
    found, told = recording(calls, sizes(calls), BLOCK), sizes(calls)
    assert [call.at for call in found.calls] == [one.at for one in calls]
    assert {call.output for call in found.calls} == {ANSWER_TOKENS}
    for a, first in zip(found.calls, told, strict=True):
        assert int(a.prompt) == first.tokens
        for b, second in zip(found.calls, told, strict=True):
            same = [x == y for x, y in zip(first.blocks, second.blocks, strict=False)]
            keys = zip(a.prompt.keys(BLOCK, 0), b.prompt.keys(BLOCK, 0), strict=False)
            assert [x == y for x, y in keys] == same


# --- the simulated half ---------------------------------------------------------------------


def test_one_block_of_each_server_is_its_own() -> None:
    assert fleet().kv_tokens == (pair.BLOCKS - 1) * BLOCK
    assert fleet().instances == pair.COUNT
    assert (fleet().budget, fleet().sequences) == (512, pair.SEQUENCES)


def test_what_runs_teach_is_averaged() -> None:
    first, second = StepTime(1.0, 0.2, prefill_s=0.5), StepTime(3.0, 0.4)
    found = simulated.mean_of([Learned(first, 0.5), Learned(second, 0.25)])
    assert found == (StepTime(2.0, pytest.approx(0.3), prefill_s=0.25), 0.375)


def test_the_simulator_predicts_without_servers() -> None:
    calls = asked(200, 1.0, 0)
    found = recording(calls, sizes(calls), BLOCK)
    rate = simulated.rate(found, fleet(), 0.5)
    assert simulated.rate(found, fleet(), 1.0) == pytest.approx(2 * rate)
    rows = {
        policy: simulated.predicted(found.faster(rate), fleet(), policy)
        for policy in ("round_robin", "graph_aware")
    }
    turns, ours = rows["round_robin"], rows["graph_aware"]
    assert [*ours] == ["simulated_hit_tokens", "simulated_mean_s"]
    assert ours["simulated_hit_tokens"] > 1.1 * turns["simulated_hit_tokens"] > 0
    assert 0 < ours["simulated_mean_s"] < turns["simulated_mean_s"]


# --- the report -----------------------------------------------------------------------------


def routed_in(*seconds: float) -> Routed:
    return Routed([Answered(one, one / 2) for one in seconds], 1000, 600, 0.1, Learned(STEP, 0.0))


def row(policy: str, seed: int, mean_s: float, simulated_mean_s: float) -> dict[str, Any]:
    told = {"simulated_hit_tokens": 660, "simulated_mean_s": simulated_mean_s}
    return {"policy": policy, "seed": seed, **routed_in(mean_s).row(), **told}


def report(*rows: dict[str, Any]) -> dict[str, Any]:
    machine = {"cpu": "one", "cores": 2, "load_1min": 2.1, "load_before": 0.1}
    about = {"queries": 1, "quick": False, "groups": 24, "zipf": 1.1, "seeds": 1}
    return {
        "rows": list(rows),
        "worst_error": {name: worst(rows, name) for name in ("hit_tokens", "mean_s")},
        "profile": {"kv_tokens": 10240},
        "learned": [{"others": 0.1}, {"others": 0.3}],
        "about": {**about, "load": 0.4, "rate": 1.5},
        "machine": machine,
    }


def test_a_row_has_the_promised_keys() -> None:
    found = row("e2", 0, 2.0, 2.2)
    assert [*found] == KEYS
    assert (found["calls"], found["hit_tokens"], found["hit_ratio"]) == (1, 600, 0.6)
    assert routed_in(1.0, 3.0).row()["mean_s"] == 2.0
    assert routed_in(1.0, 3.0).row()["p99_s"] == pytest.approx(2.98)
    assert routed_in(1.0, 3.0).row()["ttft_mean_s"] == 1.0


def test_errors_are_of_what_was_measured() -> None:
    rows = [row("e2", 0, 2.0, 2.2), row("sglang", 0, 4.0, 2.8)]
    assert error(rows[0], "mean_s") == pytest.approx(0.1)
    assert error(rows[1], "mean_s") == pytest.approx(-0.3)
    assert error(rows[1], "hit_tokens") == pytest.approx(0.1)
    assert worst(rows, "mean_s") == 0.3


def test_policies_are_compared_by_their_means_over_seeds() -> None:
    rows = [row("e2", 0, 2.0, 2.0), row("sglang", 0, 1.0, 1.0), row("e2", 1, 3.0, 2.0)]
    assert [(one["policy"], one["mean_s"]) for one in means(rows)] == [("sglang", 1.0), ("e2", 2.5)]


def test_the_section_and_the_table_say_what_the_report_says(tmp_path: Path) -> None:
    made = report(row("e2", 0, 2.0, 2.2), row("sglang", 0, 1.0, 1.5))
    section = live_routing.section(made, pages.picture("live_routing"))
    assert "| sglang | 600 | 660 | +10.0% | 1.00 | 1.50 | +50.0% | 1.00 | 0.50 |" in section
    assert "sglang has the lowest mean latency" in section
    assert "50.0%" in section
    assert "other processes used 0.10 to 0.30 cores" in section
    console = Console(file=StringIO(), record=True, width=200)
    live_routing.show(made, console)
    assert "graph_aware" not in (text := console.export_text())
    assert "sglang" in text
    live_routing.plot(made, tmp_path / "live_routing.svg")
    assert "tokens found" in (tmp_path / "live_routing.svg").read_text()


def test_policies_are_chosen_by_name_and_take_turns() -> None:
    assert chosen(None) == POLICIES
    assert chosen("e2, sglang,e2") == ("e2", "sglang")
    with pytest.raises(UnknownName, match="unknown routing policy 'e3'"):
        chosen("e3")
    assert turned(["a", "b", "c"], 4) == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["--policies", "e3"], "unknown routing policy 'e3'"),
        (["--load", "0"], "a number above 0"),
        (["--python", "/no/python"], "there is no vLLM at /no/python"),
        (["--model", "/no/model"], "there is no folder /no/model"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    argv: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        live_routing.main(argv)
    assert why in f"{stopped.value}{capsys.readouterr().err}"


# --- the live half --------------------------------------------------------------------------


class Fakes(pair.Pair):
    """Two servers that answer at once, and count what they would find."""

    def __init__(self, fakes: Sequence[FakeOpenAI]) -> None:
        servers = tuple(SimpleNamespace(url=fake.url, kv_events="") for fake in fakes)
        super().__init__(servers)  # type: ignore[arg-type]
        object.__setattr__(self, "fakes", fakes)

    @property
    def seen(self) -> list[Any]:
        return [call for fake in self.fakes for call in fake.calls]  # type: ignore[attr-defined]

    def empty(self) -> None:
        for fake in self.fakes:  # type: ignore[attr-defined]
            fake.requests.clear()

    def prefixes(self) -> pair.Prefixes:
        asked = sum(len(call.body["prompt"]) for call in self.seen)
        return pair.Prefixes(asked, sum(call.cached_tokens for call in self.seen))

    def others_s(self) -> float:
        return 0.0


@pytest.fixture
def fakes() -> Iterator[Fakes]:
    with FakeOpenAI(tokenizes=True) as one, FakeOpenAI(tokenizes=True) as two:
        yield Fakes([one, two])


def test_calls_reach_the_servers_as_they_were_sized(fakes: Fakes) -> None:
    coming = asked(6, 40.0, 0)
    about = known(fakes, asked(16, 1.0, 1), [coming])
    assert about.learned.step != StepTime()
    found = routed(fakes, "graph_aware", fleet().profile(BLOCK), coming)
    sent = [len(call.body["prompt"]) for call in fakes.seen if len(call.body["prompt"]) > 1]
    assert sorted(sent) == sorted(size.tokens for size in about.sizes[0])
    assert found.asked >= sum(sent)
    assert len(found.answered) == 6
    assert all(0 < one.ttft_s <= one.latency_s < 60 for one in found.answered)


@pytest.mark.nightly
@pytest.mark.vllm
@pytest.mark.timeout(1800)
def test_real_servers_find_about_what_is_predicted(tmp_path: Path) -> None:
    """Loosely: the machine that runs the tests has other things to do."""
    live_routing.main(["--quick", "--policies", "round_robin,graph_aware", "--out", str(tmp_path)])
    found: dict[str, Any] = json.loads((tmp_path / "report.json").read_text())
    assert [[*one] for one in found["rows"]] == [KEYS] * 2
    assert {one["calls"] for one in found["rows"]} == {40}
    assert found["worst_error"]["hit_tokens"] < 0.15
    turns, ours = found["rows"]
    assert ours["hit_tokens"] >= turns["hit_tokens"] > 0
    assert (tmp_path / "live_routing.svg").is_file()
