"""Where a statement goes to be run."""

from __future__ import annotations

from typing import Any

import pytest

from teola.sql import lookup
from teola.sql.lookup import SqlAddress, look_up
from teola.sql.sql_rows import LookupLimits


def test_all_that_a_caller_says_reaches_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    def read(*arguments: Any, **options: Any) -> str:
        told.append((arguments, options))
        return "rows"

    monkeypatch.setattr(lookup, "read_postgres", read)
    monkeypatch.setattr(lookup.children, "read", read)
    limits, options = LookupLimits(), {"trust_role": True, "set_local": {"a.b": "c"}}

    def wanted() -> bool:
        return True

    for dialect in ("postgres", "sqlite"):
        address = SqlAddress(dialect, "there")
        assert look_up(address, "SELECT 1", limits, wanted=wanted, **options) == "rows"  # type: ignore[comparison-overlap, arg-type]
    (postgres, given), (other, nothing) = told
    assert postgres == ("there", "SELECT 1", limits)
    assert given == {**options, "wanted": wanted}
    assert other == ("sqlite", "there", "SELECT 1", limits, None, wanted)
    assert nothing == {}
