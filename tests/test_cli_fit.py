"""`teola profile fit`: what it writes is a profile, and of which runs it was made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from teola.profile import StepTime, load_profile
from teola.runtime.step_fit import RecordedRequest, RecordedRun, replay
from tests.command_line import CommandLine

FIT = ("profile", "fit")


def runs(folder: Path) -> Path:
    """Of two machines: a step of the first takes 10 ms and 1 ms for a sequence, of the other 30."""
    lines = ["machine,isl,osl,concurrency,tpot"]
    for base, machine in ((10, "a"), (30, "b")):
        for isl, osl in ((100, 50), (1000, 50), (100, 500), (3000, 200)):
            lines += [f"{machine},{isl},{osl},{c},{base + c}" for c in (1, 4, 16)]
    path = folder / "runs.csv"
    path.write_text("\n".join(lines))
    return path


def test_runs_of_a_machine_make_its_profile(teola: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "here.json"
    limits = ("--kv-tokens", "4000", "--sequences", "64", "--budget", "512")
    ended = teola(*FIT, runs(tmp_path), "-w", "machine=a", *limits, "--out", file)
    assert (ended.code, ended.err) == (0, "")
    assert "llm: 10 ms for a step, 1 for each sequence" in ended.out
    assert "off by 0.0% on average, of 12 measurements" in ended.out
    llm = load_profile(str(file)).engines["llm"]
    assert llm.step.seconds(5) == pytest.approx(0.015, rel=1e-4)
    assert (llm.max_batch, llm.max_sequences, llm.kv_blocks) == (512, 64, 250)
    words = (*FIT, runs(tmp_path), "--where", "machine=b", "--engine", "big", "--out", file)
    told = teola(*words, "--json").json
    assert told == json.loads(file.read_text())
    both = load_profile(str(file)).engines
    assert both["llm"] == llm
    assert both["big"].step.seconds(5) == pytest.approx(0.035, rel=1e-4)
    assert (both["big"].max_batch, both["big"].kv_blocks) == (2048, None)
    assert {name: about["runs"] for name, about in told["fitted"].items()} == {"llm": 12, "big": 12}


def test_a_recorded_run_makes_one_too(teola: CommandLine, tmp_path: Path) -> None:
    step, file = StepTime(0.01, 0.001, per_token_s=5e-5), tmp_path / "here.json"
    asked = [RecordedRequest(50 + 7 * k, 20 + k % 9, 0.2 * k, 0.0, 0.0) for k in range(60)]
    lines = [
        {
            "input_toks": one.prompt,
            "output_toks": one.output,
            "queued_ts": one.queued,
            "first_token_ts": one.first,
            "last_token_ts": one.last,
        }
        for one in replay(RecordedRun(tuple(asked), 16, 256), step).answered
    ]
    (tmp_path / "requests.jsonl").write_text("\n".join(map(json.dumps, lines)))
    meta = {
        "engine_kwargs": {"max_num_batched_tokens": 256},
        "kv_cache": {"num_gpu_blocks": 2001, "block_size": 32},
    }
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    for given in (tmp_path, tmp_path / "requests.jsonl"):
        assert "memory for 64,000 tokens of KV" in teola(*FIT, given, "--out", file).out
        llm = load_profile(str(file)).engines["llm"]
        assert llm.step.seconds(4) == pytest.approx(step.seconds(4), rel=0.1)
        assert (llm.max_batch, llm.max_sequences) == (256, 128)
        assert (llm.kv_blocks, llm.block_tokens, llm.kv_tokens) == (2000, 32, 64_000)
    assert teola(*FIT, tmp_path, "--kv-tokens", "4000", "--out", file).code == 0
    assert load_profile(str(file)).engines["llm"].kv_blocks == 125
    assert "--where chooses rows" in teola(*FIT, tmp_path, "-w", "a=b").refused(2)


def test_what_cannot_be_done_is_told(teola: CommandLine, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"mine": 1}')
    assert "COLUMN=VALUE" in teola(*FIT, runs(tmp_path), "-w", "machine").refused(2)
    assert "0 runs" in teola(*FIT, runs(tmp_path), "-w", "machine=c").refused(2)
    assert str(other) in teola(*FIT, runs(tmp_path), "--out", other).refused(2)
    assert other.read_text() == '{"mine": 1}'
