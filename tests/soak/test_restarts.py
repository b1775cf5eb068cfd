"""Servers that are restarted, in order and not, while clients count on their background queries."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from tests.serve.killing import kill_during_ingestion
from tests.soak import restarting
from tests.soak.forms import SEED, SHORT, Figures, short_and_long

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]


@short_and_long("restarts", 2, 10, short_tier=SHORT)
def test_restarts_in_turn_fail_no_background_query(figures: Figures, restarts: int) -> None:
    found = restarting.restarting(restarts, SEED)
    figures("restarting", found)
    assert found["exit_codes"] == [0] * restarts
    assert found["states"] == {"ok": found["queries"]}
    assert found["chunks_equal"]


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_servers_killed_while_they_ingest(figures: Figures) -> None:
    """Its short form is in tests/serve/journal/test_restart.py."""
    found = kill_during_ingestion(50, SEED)
    figures("killed_during_ingestion", asdict(found))
    assert found.kills == 50
    assert found.amid >= 10, "kills must come amid an ingestion"
