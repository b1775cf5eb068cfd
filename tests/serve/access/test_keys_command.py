"""`teola keys`, without a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from teola.cli import call
from teola.runtime.day_accounts import DayBudget
from teola.serve.access.auth import KeyFile


@pytest.mark.parametrize(
    ("options", "budget", "shown"),
    [
        ([], None, ""),
        (["--tokens-a-day", "2000"], DayBudget(tokens=2000), "2,000 tokens"),
        (["--cost-a-day", "5"], DayBudget(cost=5.0), "a cost of 5.00"),
        (
            ["--tokens-a-day", "1", "--cost-a-day", "0.001"],
            DayBudget(1, 0.001),
            "1 token, a cost of 0.00100",
        ),
    ],
)
def test_a_key_has_the_budget_that_it_is_created_with(
    options: list[str],
    budget: DayBudget | None,
    shown: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    file = tmp_path / "keys.json"
    assert call(["keys", "create", "alice", "--file", str(file), *options]) == 0
    (key,) = KeyFile(file).read()
    assert key.budget == budget
    capsys.readouterr()
    assert call(["keys", "list", "--file", str(file)]) == 0
    *_, line = capsys.readouterr().out.splitlines()
    assert line.rstrip().endswith(shown)
    assert line.split()[:3] == ["alice", "default", "query"]
