"""experiments.decoding: tokens are compared with plain transformers', and its page says so."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from experiments.common.tiny_model import make_model
from experiments.decoding import __main__ as command
from experiments.decoding import checking


def test_the_page_says_what_was_checked_and_where() -> None:
    report = {
        "rows": [{"system": "teola", "sequences": 8, "first_s": 0.0123, "step_ms": 2.61,
                  "tokens_per_s": 3012.4}],
        "checked": {"prompts": 60, "equal": 59, "output_tokens": 24},
        "about": {"machine": {"cpu": "a processor", "accelerator": "a GPU",
                              "packages": {"torch": "2.11.0"}}},
    }  # fmt: skip
    section = command.section(report)
    assert "| teola | 8 | 0.012 | 2.61 | 3,012 |" in section
    assert "59 of 60 answers have the tokens" in section
    assert "a GPU, torch 2.11.0" in section
    shown = StringIO()
    command.show(report, Console(width=120, file=shown))
    assert "59 of 60" in shown.getvalue()


@pytest.mark.slow
def test_the_engine_says_what_plain_transformers_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(tmp_path, hidden=64, layers=2, heads=4, kv_heads=2, vocabulary=512)
    monkeypatch.setattr(checking, "LENGTHS", (5, 60))
    checked = checking.check(model, 4, seed=0)
    assert (checked["prompts"], checked["equal"]) == (4, 4)


def test_the_page_has_the_kept_report() -> None:
    report = json.loads(command.PAGE.with_name("report.json").read_text())
    assert command.section(report) in command.PAGE.read_text()
