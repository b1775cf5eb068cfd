"""experiments.ordering at small sizes, and its earliest-deadline-first."""

from __future__ import annotations

import json

import pytest

from experiments.ordering import __main__ as command
from experiments.ordering import measure
from experiments.ordering.measure import CHAT, EDF, MAPPED, Asked, met, model, overload, simulated


def test_earliest_deadline_first_meets_what_others_do_not() -> None:
    """One call at a time, of 0.2 s. Three come together, of which the last has the least time."""
    asked = [Asked(CHAT, 0.0, deadline_s) for deadline_s in (9.0, 0.5, 0.3)]
    asked = [Asked(CHAT, 0.0, 9.0, 30), *asked]
    assert met(simulated(asked, model(1), EDF)) == {"0", "1", "2", "3"}
    assert met(simulated(asked, model(1), "fifo")) == {"0", "1"}


def test_a_map_beside_a_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "MAP", 40)
    found = measure.map_beside_chat(0, one_app=True)
    assert found["beside_p99_s"] <= 2 * found["alone_p99_s"]
    assert found["map_beside_s"] <= 1.15 * found["map_alone_s"]


def test_in_an_overload_some_are_answered() -> None:
    found = overload(2.0, 0, seconds=12.0)
    assert 0 < found["answered"] <= found["asked"]
    assert found["p99_s"] <= 120.0


def test_the_command_prints_what_was_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "MAP", 8)
    command.main(["--cases", "map_beside_chat", "--seeds", "1", "--json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["one_app"] for row in rows] == [False, True]
    with pytest.raises(SystemExit):
        command.main(["--cases", "nothing"])
    assert MAPPED.name == "map"
