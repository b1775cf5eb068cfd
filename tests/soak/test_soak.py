"""The whole soak: most tests nightly with small numbers, and once with those that we answer for.

One server for nearly all of them, which the last one stops. Only long forms assert how long
something takes, and they need a machine that does nothing else.
"""

from __future__ import annotations

import pytest

from tests.soak import cancelling, connecting, lasting, shooting, stopping
from tests.soak.forms import SEED, SHORT, Figures, short_and_long
from tests.soak.server import SERVED, Server, serving

pytestmark = [
    pytest.mark.server,
    pytest.mark.slow,
    pytest.mark.timeout(900),  # a machine that does much besides
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # clients leave without closing
]


@short_and_long("count,limit_s", (10, 1e9), (500, 1.0), short_tier=SHORT)
async def test_what_clients_leave_is_free_at_once(
    server: Server, figures: Figures, count: int, limit_s: float
) -> None:
    found = await cancelling.cancelling(server, count, SEED)
    figures("cancelling", found)
    assert found["left"] >= count
    assert found["p99_s"] <= limit_s, found
    assert len(found["where"]) >= 3, "they should leave at different moments"
    assert server.left() == []


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_nothing_grows(server: Server, figures: Figures) -> None:
    found = await lasting.lasting(server, 1500, 600.0, SEED)
    figures("lasting", found)
    before, after = found["before"], found["after"]
    assert found["server_mib_a_minute"] < 1.0, found
    assert found["database_mib_a_minute"] < 1.0, found
    assert after["memory_mib"] - before["memory_mib"] < 60.0, found
    for name in ("tasks", "sockets", "children", "in_transaction"):
        assert after[name] <= before[name], (name, before, after)
    assert after["descriptors"] - after["sessions"] <= before["descriptors"] - before["sessions"]
    assert after["sessions"] <= 12, "the pool has 8, the store one more"
    assert found["temporary_files"] == []
    states = {name.rpartition(" ")[2] for name in found["queries"]}
    assert states == {"200", "left"}, found["queries"]


@short_and_long("count,stay", (4, False), (40, True), short_tier=SHORT)
async def test_who_never_reads_is_cut_off(
    server: Server, figures: Figures, count: int, stay: bool
) -> None:
    found = await connecting.never_reading(server, count, stay=stay)
    figures("never_reading", found)
    assert found["let_in"] >= min(count, 20), "few of them were there at all"


@short_and_long("count", 50, 500, short_tier=SHORT)
async def test_idle_connections_do_no_harm(server: Server, figures: Figures, count: int) -> None:
    figures("idle", await connecting.idle(server, count))


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_who_says_nothing_is_given_up(server: Server, figures: Figures) -> None:
    """Its short form is in tests/serve/test_connections.py."""
    figures("half_open", await connecting.half_open(server, 500))


@short_and_long("count", 300, 5000, short_tier=SHORT)
async def test_more_clients_than_descriptors(figures: Figures, count: int) -> None:
    with serving(f"{SERVED}:null", descriptors=256) as server:
        found = await connecting.more_than_descriptors(server, count)
        figures("more_than_descriptors", found)
        assert found["most_descriptors"] <= 256
        assert server.stop()[0] == 0


@short_and_long("kills", 4, 100, short_tier=SHORT)
async def test_killed_engines_lose_no_query(server: Server, figures: Figures, kills: int) -> None:
    found = await shooting.shooting(server, kills, SEED)
    figures("shooting", found)
    assert (found["lost"], found["wrong"]) == (0, 0), found
    assert found["processes"] == shooting.CHILDREN
    assert found["failed_tries"] > 0, "kills must meet work in flight"


@short_and_long("count", 20, 200, short_tier=SHORT)
async def test_when_it_stops_every_client_is_told(
    server: Server, figures: Figures, count: int
) -> None:
    found = await stopping.stopping(server, count, SEED)
    figures("stopping", found)
    ends = {end.partition(": ")[2] for end in found["ends"]}
    assert ends - {"overloaded"} == {"ok", "cancelled", "draining"}, found
    assert found["exit_code"] == 0, server.told
    assert server.left() == []
