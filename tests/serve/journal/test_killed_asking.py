"""A server dies while a query does things or waits: the next one ends it, nothing is repeated."""

from __future__ import annotations

import pytest

from tests.serve.killing_asking import kill_while_asking

pytestmark = pytest.mark.slow


def test_what_asks_survives_any_death(servers: None) -> None:
    found = kill_while_asking(6, seed=3)
    assert found.kills == 6
    assert found.unknown + found.waiting > 0, "no death came when it mattered"
