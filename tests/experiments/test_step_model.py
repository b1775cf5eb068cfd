"""The fit finds the terms that a run was made with, and predicts what it has not seen."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.common import pages
from experiments.step_model.__main__ import FIGURES, PAGE, main, measure, section
from teola.errors import InputError
from teola.profile import EngineProfile, Profile, StepTime, to_json
from teola.runtime.step_fit import RecordedRequest, RecordedRun, fitted, learned, load
from teola.runtime.step_fit.stepping import replay
from tests.planted import catches, edited

TRUE = StepTime(0.012, 5e-5, 1e-7, 3e-5, 1e-9, prefill_s=0.004)


def run(rate: float = 4.0, count: int = 150, kv_blocks: int | None = None) -> RecordedRun:
    chance, at = random.Random(0), 0.0
    asked = []
    for _ in range(count):
        asked.append(
            RecordedRequest(chance.randint(10, 3000), chance.randint(1, 400), at, 0.0, 0.0)
        )
        at += chance.expovariate(rate)
    return RecordedRun(tuple(asked), 24, 1024, kv_blocks)


def written(
    folder: Path, noise: float = 0.0, made: RecordedRun | None = None, *, tells: bool = True
) -> Path:
    """A run whose steps take TRUE, in the form of a published one. tells: of its KV memory, if that
    is bounded."""
    made, chance = made or run(), random.Random(1)
    folder.mkdir(exist_ok=True)
    lines = []
    for one in replay(made, TRUE).answered:
        late = chance.gauss(0.0, noise) * (one.last - one.first)
        entry = {
            "input_toks": one.prompt,
            "output_toks": one.output,
            "queued_ts": 1000 + one.queued,
            "first_token_ts": 1000 + one.first,
            "last_token_ts": 1000 + one.last + late,
        }
        lines.append(json.dumps(entry))
    (folder / "requests.jsonl").write_text("\n".join(lines))
    kwargs = {"max_num_seqs": made.max_sequences, "max_num_batched_tokens": made.token_budget}
    meta: dict[str, object] = {"engine_kwargs": kwargs}
    if made.kv_blocks is not None and tells:
        meta["kv_cache"] = {"num_gpu_blocks": made.kv_blocks + 1, "block_size": 16}
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def test_a_replay_without_load_takes_the_time_of_its_steps() -> None:
    alone = replay(replace(run(), requests=(RecordedRequest(1500, 11, 5.0, 0, 0),)), TRUE).answered[
        0
    ]
    chunks = [(1024, 1024 * 1025 // 2), (476, 476 * (2 * 1024 + 477) // 2)]
    assert alone.ttft_s == pytest.approx(sum(TRUE.seconds(0, 0, *chunk) for chunk in chunks))
    assert alone.tpot_s == pytest.approx(TRUE.seconds(1, 1501, repeat=10) / 10)


@catches(
    "terms-of-the-whole-run",
    "terms are not those of the answer's own steps",
    edited(replay, "decode[id] = spent - until_first[id]", "decode[id] = spent"),
)
def test_the_fit_finds_what_the_run_was_made_with(tmp_path: Path) -> None:
    found = fitted(load(written(tmp_path)), 50)
    for b, context, tokens in ((1, 500, 0), (20, 30_000, 0), (20, 30_000, 1024), (0, 0, 600)):
        pairs = tokens * (tokens + 1) // 2
        given = (b, context, tokens, pairs)
        assert found.seconds(*given) == pytest.approx(TRUE.seconds(*given), rel=0.1)


def test_it_says_four_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--run", str(written(tmp_path, noise=0.01)), "--json"])
    errors = json.loads(capsys.readouterr().out)
    assert [*errors] == ["ttft_mean_error", "ttft_p99_error", "tpot_error", "latency_mean_error"]
    assert max(errors["tpot_error"], errors["latency_mean_error"]) < 0.04
    assert max(errors["ttft_mean_error"], errors["ttft_p99_error"]) < 0.1


def test_a_table_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--run", str(written(tmp_path))])
    out = capsys.readouterr().out
    assert "first token, p99" in out
    assert "1 % longer" in out


def test_a_profile_is_scored_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, file = written(tmp_path), tmp_path / "profile.json"
    for step, right in ((TRUE, True), (replace(TRUE, base_s=0.03), False)):
        file.write_text(json.dumps(to_json(Profile("mine", {"llm": EngineProfile(step=step)}))))
        main(["--run", str(folder), "--profile", str(file), "--json"])
        errors = json.loads(capsys.readouterr().out)
        assert all((error < 1e-3) is right for error in errors.values())


TIGHT = 300
"""Blocks that hold a third of what 24 requests need."""


@catches(
    "unlimited-replay",
    "a replay knows of no memory",
    edited(replay, "BlockCache(run.kv_blocks,", "BlockCache(None,"),
)
@catches(
    "one-block-more",
    "the block that vLLM keeps for itself is taken for room",
    edited(load, 'memory.get("own_blocks", OWN_BLOCKS)', "-40"),
)
def test_with_little_memory_the_step_is_found_that_was_found_with_enough(tmp_path: Path) -> None:
    roomy = written(tmp_path / "roomy", made=run(rate=2.0, count=80))
    tight = written(tmp_path / "tight", made=run(rate=2.0, count=80, kv_blocks=TIGHT))
    report = measure(tight, other=roomy)
    assert (report["kv_blocks"], report["learned"]) == (TIGHT, 0)
    assert report["preemptions"] > 3
    assert all(row["error"] < 0.02 for row in report["figures"].values())
    assert measure(roomy, other=roomy)["figures"]["ttft_mean_error"]["recorded_s"] < (
        0.2 * report["figures"]["ttft_mean_error"]["recorded_s"]
    )


@catches(
    "never-memory",
    "memory is never found to have been the limit",
    edited("teola.runtime.step_fit.capacity:_blocks", "FEWER * would_run(None)", "0.0"),
)
def test_memory_is_found_from_how_many_ran_at_once(tmp_path: Path) -> None:
    made = run(count=60, kv_blocks=TIGHT)
    found, _ = learned(load(written(tmp_path / "tight", made=made, tells=False)), 40)
    assert found.kv_blocks == pytest.approx(TIGHT, rel=0.1)
    unlimited, _ = learned(load(written(tmp_path / "roomy", made=run(count=60))), 40)
    assert unlimited.kv_blocks is None


def test_a_request_that_the_memory_cannot_hold_is_an_error_of_the_run(tmp_path: Path) -> None:
    folder = written(tmp_path, made=run(count=40))
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({**meta, "kv_cache": {"num_gpu_blocks": 9}}))
    with pytest.raises(InputError, match="tells of 8: correct kv_cache there"):
        load(folder)


def test_runs_on_a_gpu_are_kept_with_their_memory() -> None:
    """An engine that keeps no block for itself says so."""
    found = load(PAGE.with_name("h100") / "packed-tight")
    assert (found.kv_blocks, found.block_tokens, len(found.requests)) == (160, 32, 200)
    assert load(PAGE.with_name("h100") / "packed-plenty").kv_blocks == 8192


KEPT = PAGE.with_name("report.json")


def test_the_readme_says_what_the_kept_report_does() -> None:
    found = section(json.loads(KEPT.read_text()))
    whole = f"{pages.begin('step_model')}\n{found}\n{pages.end('step_model')}"
    assert whole in PAGE.read_text()


def test_the_kept_errors_follow_from_what_was_recorded_and_predicted() -> None:
    report = json.loads(KEPT.read_text())
    assert [*report["figures"]] == [*FIGURES]
    for row in report["figures"].values():
        error = abs(row["predicted_s"] / row["recorded_s"] - 1)
        assert row["error"] == pytest.approx(error, abs=1e-4)


def test_a_report_is_kept_and_written_into_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "README.md"
    page.write_text(f"Before.\n\n{pages.begin('step_model')}\n{pages.end('step_model')}\n")
    monkeypatch.setattr("experiments.step_model.__main__.PAGE", page)
    main(["--run", str(written(tmp_path)), "--out", str(tmp_path / "kept"), "--docs"])
    file, first = tmp_path / "kept" / "report.json", capsys.readouterr().out
    assert json.loads(file.read_text()) == measure(tmp_path)
    assert section(measure(tmp_path)) in page.read_text()
    main(["--report", str(file)])
    assert capsys.readouterr().out == first


@pytest.mark.parametrize("line", ["{", '{"input_toks": 3}', ""])
def test_what_is_no_run_is_refused(
    tmp_path: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "requests.jsonl").write_text(line)
    (tmp_path / "meta.json").write_text("{}")
    with pytest.raises(SystemExit):
        main(["--run", str(tmp_path)])
    assert str(tmp_path) in " ".join(capsys.readouterr().err.split())
