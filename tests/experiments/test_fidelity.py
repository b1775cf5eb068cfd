"""The comparison of live and simulated runs, on real engines and in small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.fidelity import __main__ as fidelity
from experiments.fidelity.measure import LOADS, QUICK, Run
from experiments.fidelity.workload import SPLITTING, queries


def words(text: str) -> list[int]:
    """Tokens of a text: its words."""
    return list(range(len(text.split())))


def test_queries_share_nothing_and_have_the_size() -> None:
    asked = queries(6, (5, 9), words, seed=1)
    assert asked == queries(6, (5, 9), words, seed=1)
    assert len({query.document for query in asked}) == 6
    assert len({str(query.overrides()) for query in asked}) == 6
    for query in asked:
        assert 4 <= len(query.chunks) <= 10
        assert max(query.chunks) <= SPLITTING.chunk_size
        assert query.question_tokens == len(query.question.split())


def test_errors_are_fractions_of_the_live_latency() -> None:
    run = Run("arriving", [1.0, 3.0], [1.1, 2.7])
    found = run.errors()
    assert found["mean_error"] == pytest.approx(0.05)
    assert found["p90_error"] == pytest.approx(abs((1.1 + 1.6 * 0.9) / 2.8 - 1), abs=1e-4)
    assert found["p95_error"] == pytest.approx(abs((1.1 + 1.6 * 0.95) / 2.9 - 1), abs=1e-4)


@pytest.mark.nightly
@pytest.mark.server
def test_the_simulator_is_near_real_engines(tmp_path: Path) -> None:
    """Loosely: the machine that runs the tests has other things to do."""
    fidelity.main(["--quick", "--out", str(tmp_path)])
    report: dict[str, Any] = json.loads((tmp_path / "report.json").read_text())
    assert set(report["profile"]) == {"embedding", "rerank", "vectorstore", "llm"}
    runs = report["runs"]
    assert [run["queries"] for run in runs] == [QUICK.queries] * (1 + len(LOADS))
    for name in ("mean_error", "p90_error", "p95_error"):
        assert report[name] == max(run[name] for run in runs)
    assert runs[0]["mean_error"] < 0.5
    assert (tmp_path / "fidelity.svg").is_file()
