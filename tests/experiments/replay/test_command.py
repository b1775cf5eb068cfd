"""The command line of the replay: what it reads, and a row for each combination of policies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.replay.__main__ import main
from tests.docs.blocks import ROOT, blocks
from tests.planted import catches, edited

README = ROOT / "experiments" / "replay" / "README.md"


def told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    main([*words, "--json"])
    return json.loads(capsys.readouterr().out)


@catches(
    "fleet-ignored",
    "limits that are given do not reach the fleet",
    edited("experiments.replay.__main__:_fleet", "if value}", "if not value}"),
)
def test_a_row_for_each_combination(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("toolbench", "--calls", "60", "--rate", "30", "--instances", "3")
    policies = ("--routing", "round_robin", "prefix_affinity", "--batching", "fifo", "topology")
    report = told(capsys, *words, *policies, "--kv-tokens", "40000")
    named = [(row["routing"], row["batching"]) for row in report["rows"]]
    assert named == [
        ("round_robin", "fifo"),
        ("round_robin", "topology"),
        ("prefix_affinity", "fifo"),
        ("prefix_affinity", "topology"),
    ]
    assert all(row["calls"] == 60 and row["refused"] == 0 for row in report["rows"])
    small = told(capsys, *words, "--kv-tokens", "900")
    assert small["rows"][0]["refused"] > 0


def test_a_profile_gives_the_times(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("programs", "--calls", "20", "--rate", "1")
    fast, slow = (
        told(capsys, *words, "--profile", name)["rows"][0]["latency_s"]
        for name in ("llama-8b-h100", "qwen-32b-h100x2")
    )
    assert fast < 0.7 * slow


def test_traces_come_from_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TEOLA_DATA", raising=False)
    row = {"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [0, 1]}
    (tmp_path / "mooncake_conversation_trace.jsonl").write_text(json.dumps(row))
    (tmp_path / "mine.jsonl").write_text(json.dumps({**row, "input_length": 20}))
    (tmp_path / "azure_llm_code_2023.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
    )
    (tmp_path / "llm_serving").mkdir()
    fields = "in,out,reuse_tokens,think_time,api_time,stop"
    requests = [[640, 2, 0, 0, 1, ""], [700, 2, 640, 1.0, 1, ""], [900, 2, 640, 1.0, 1, ""]]
    thread = {"id": "t", "parent": None, "fields": fields, "requests": requests}
    (tmp_path / "llm_serving" / "agent_sessions.jsonl").write_text(json.dumps(thread))
    data = ("--data", str(tmp_path))
    for name in ("mooncake", "azure-code", str(tmp_path / "mine.jsonl")):
        assert told(capsys, name, *data)["rows"][0]["calls"] == 1
    for name in ("agents", "agents_at_scale"):
        report = told(capsys, name, *data, "--sessions", "2", "--horizon", "320")
        assert (report["threads"], report["horizon_s"], report["warm_up_s"]) == (1, 320.0, 300.0)
        assert report["rows"][0]["hit_ratio"] > 0.3
    with pytest.raises(SystemExit):
        main(["mooncake"])
    assert "data folder" in capsys.readouterr().err


def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    main(["trace-a", "--seconds", "5"])
    out = capsys.readouterr().out
    assert "trace trace-a" in out
    assert "least_loaded" in out


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["mooncaek"], ["toolbench", "--calls", "5", "--routing", "nosuch"]):
        with pytest.raises(SystemExit):
            main(words)
        assert "valid: " in capsys.readouterr().err


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = (block.text for block in blocks(README) if block.language == "python")
    exec(compile(code, str(README), "exec"), {})
    assert len(capsys.readouterr().out.splitlines()) == 4
