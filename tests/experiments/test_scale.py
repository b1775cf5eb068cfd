"""The scale experiment in small: its rows, and how it works out what grows."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.scale import __main__ as scale
from experiments.scale import figures
from experiments.scale.measure import (
    FEWER,
    INSTANCES,
    SHARES,
    Size,
    growth,
    shared_out,
    simulate,
)
from teola.policies.batching import BATCHING

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("scale")
    scale.main(["--quick", "--queries", "50", "--out", str(folder)])
    assert (folder / "scale.svg").read_text().startswith("<?xml")
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


@pytest.mark.nightly
def test_every_size_has_a_row(report: dict[str, Any]) -> None:
    sizes = [(row["instances"], row["queries"]) for row in report["rows"]]
    assert len(set(sizes)) == len(sizes) == len(INSTANCES) + len(FEWER) - 1
    assert {1000} <= {instances for instances, _ in sizes}
    for row in report["rows"]:
        assert row["primitives"] > 20 * row["queries"]
        assert row["primitives_per_s"] == pytest.approx(row["primitives"] / row["wall_s"], rel=0.2)
        assert row["rss_mb"] >= row["start_mb"] > 10


def test_all_instances_are_shared_out() -> None:
    assert sum(SHARES.values()) == pytest.approx(1.0)
    assert shared_out(1000) == {"embedding": 270, "rerank": 270, "llm": 450, "vectorstore": 10}
    assert min(shared_out(10).values()) == 1


@pytest.mark.parametrize("batching", sorted(BATCHING))
def test_the_same_size_simulates_the_same_and_loses_nothing(batching: str) -> None:
    first, second = (simulate(Size(50, 20, batching, 3)) for _ in range(2))
    assert first["virtual_s"] == second["virtual_s"]
    assert first["primitives"] == second["primitives"]
    assert first["virtual_s"] != simulate(Size(50, 20, batching, 5))["virtual_s"]


def test_growth_is_an_exponent() -> None:
    """Time as queries to the power of 1.5 and not with instances; memory with neither."""
    sizes = [(10, 100), (100, 100), (1000, 100), (1000, 1000), (1000, 10)]
    rows = [{"instances": i, "queries": q, "cpu_s": q**1.5 / 100, "rss_mb": 80.0} for i, q in sizes]
    assert growth(rows) == {
        "cpu_s_by_instances": 0.0,
        "rss_mb_by_instances": 0.0,
        "cpu_s_by_queries": 1.5,
        "rss_mb_by_queries": 0.0,
    }


def test_the_picture_has_room_for_every_point() -> None:
    """Fewer queries leave out less memory and a lower rate than the largest simulation has."""
    sizes = [(10, 100), (1000, 100), (1000, 10), (1000, 1000)]
    rows = [
        {"instances": i, "queries": q, "primitives_per_s": q * 100, "rss_mb": float(q)}
        for i, q in sizes
    ]
    figure = figures.drawn({"rows": rows})
    points = [axis.lines[0].get_ydata() for axis in figure.axes]
    assert max(map(max, points)) == 100_000
    for axis, ys in zip(figure.axes, points, strict=True):
        low, high = axis.get_ylim()
        assert low == 0
        assert max(ys) < 0.95 * high


@pytest.mark.nightly
def test_what_is_shown(report: dict[str, Any]) -> None:
    console = Console(width=110, file=StringIO())
    scale.EXPERIMENT.table(report, console)
    assert "ten times the queries" in " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    section = scale.EXPERIMENT.section(report, Path("images/scale.svg"))
    assert "| 1,000 | 50 |" in section
