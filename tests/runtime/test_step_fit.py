"""A step time is found from measured runs: the one that they were made with."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest

from teola.errors import InputError, UnknownName
from teola.profile import PUBLISHED, StepTime, load_profile
from teola.runtime.step_fit import (
    MeasuredRate,
    RecordedRequest,
    RecordedRun,
    errors,
    fitted_to_rates,
    measured_rates,
    replay,
)
from tests.planted import catches, edited

TRUE = StepTime(0.009, 6e-5, 3e-8, 3e-5, 7e-10)


def measured(seed: int = 0, noise: float = 0.0) -> list[MeasuredRate]:
    """Runs whose steps take TRUE."""
    chance, found = random.Random(seed), []
    for prompt in (128, 1024, 4096, 12_000):
        for output in (100, 400, 1000):
            for together in (1, 8, 64):
                rate = MeasuredRate(prompt, output, together, 1.0)
                terms = (*(getattr(TRUE, name) for name in TERMS), 0.0)
                tpot = sum(a * b for a, b in zip(terms, rate.terms, strict=True))
                found.append(rate._replace(tpot_s=tpot * chance.uniform(1 - noise, 1 + noise)))
    return found


TERMS = ("base_s", "per_sequence_s", "per_context_s", "per_token_s", "per_pair_s")


def test_the_fit_finds_what_runs_were_made_with() -> None:
    found = fitted_to_rates(measured())
    for name in TERMS:
        assert getattr(found, name) == pytest.approx(getattr(TRUE, name), rel=1e-3)
    assert max(map(abs, errors(measured(), found))) < 1e-6
    noisy = measured(noise=0.03)
    assert sum(map(abs, errors(noisy, fitted_to_rates(noisy)))) / len(noisy) < 0.03


@catches(
    "odd-runs-weigh-as-much",
    "a run that nothing explains pulls the fit away",
    edited(fitted_to_rates, "range(ROUNDS)", "range(0)"),
)
def test_a_run_that_is_far_off_hardly_matters() -> None:
    odd = measured(noise=0.01)
    odd[5] = odd[5]._replace(tpot_s=odd[5].tpot_s / 2)
    found = fitted_to_rates(odd)
    off = errors(measured(), found)
    assert sum(map(abs, off)) / len(off) < 0.006


def test_what_a_run_has_in_a_step_is_what_a_server_has() -> None:
    """Requests one after another on so many places, as benchmarks send them."""
    together, prompt, output = 8, 512, 128
    asked = [RecordedRequest(prompt, output, 0.0, 0.0, 0.0) for _ in range(40 * together)]
    step = StepTime(0.01, 1e-4, 1e-7, 2e-5, 1e-9)
    answered = replay(RecordedRun(tuple(asked), together, 2048), step).answered
    told = [one.tpot_s for one in answered[together * 5 : -together * 5]]
    rate = MeasuredRate(prompt, output, together, sum(told) / len(told))
    assert errors([rate], step)[0] == pytest.approx(0.0, abs=0.05)


def written(folder: Path, *rows: dict[str, object]) -> Path:
    path = folder / "runs.csv"
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, [*rows[0]])
        table.writeheader()
        table.writerows(rows)
    return path


def row(machine: str, isl: object = 100, **more: object) -> dict[str, object]:
    return {"machine": machine, "isl": isl, "osl": 10, "batch_size": 4, "tpot_ms": 5.0, **more}


def test_rows_are_chosen_by_their_columns(tmp_path: Path) -> None:
    rows = [row("a", 100 + k) for k in range(8)] + [row("b") for _ in range(8)]
    found = measured_rates(written(tmp_path, *rows, row("a", ""), row("a", -3)), {"machine": "a"})
    assert [rate.prompt for rate in found] == [*range(100, 108)]
    assert found[0] == MeasuredRate(100, 10, 4, 0.005)
    assert len(measured_rates(written(tmp_path, *rows))) == 16


def test_what_cannot_be_fitted_is_refused(tmp_path: Path) -> None:
    few = written(tmp_path, row("a"), row("a"))
    with pytest.raises(InputError, match="2 runs"):
        measured_rates(few)
    with pytest.raises(UnknownName, match="machin"):
        measured_rates(few, {"machin": "a"})
    with pytest.raises(InputError, match="no column 'concurrency'"):
        measured_rates(written(tmp_path, {"isl": 1}))
    with pytest.raises(InputError, match="absent"):
        measured_rates(tmp_path / "absent.csv")


def test_published_llms_can_be_had_by_name() -> None:
    for name, known in PUBLISHED.items():
        llm = load_profile(name).engines["llm"]
        assert llm.step == known.step
        assert llm.source == known.source
        assert llm.keeps_prefixes
        assert "embedding" in load_profile(name).engines
    eight = load_profile("llama-8b-h100").engines["llm"]
    assert eight.step.seconds(4, 2000) == pytest.approx(6.71e-3 + 2 * 0.046e-3)
    assert eight.step.seconds(0, 0, 1000, 1_000_000) == pytest.approx((6.71 + 23 + 1.06) / 1e3)
    assert (eight.max_batch, eight.max_sequences, eight.kv_blocks) == (2048, 256, 25_750)
