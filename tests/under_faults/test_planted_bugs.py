"""The simulation finds bugs: each of those in `bugs` breaks an invariant within few seeds."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from tests.under_faults.bugs import BUGS
from tests.under_faults.invariants import violations
from tests.under_faults.templates import TEMPLATES
from tests.under_faults.world import QUESTIONS, TENANTS, World, oracle, scenario

WITHIN = 400
DOCUMENTED = Path(__file__).parents[2] / "docs" / "reliability.md"


@pytest.fixture(autouse=True)
def oracles() -> None:
    """Right answers are worked out before a bug is planted."""
    for template in TEMPLATES:
        for tenant in TENANTS:
            for k in range(QUESTIONS):
                oracle(template, f"{tenant}: why {k}?", tenant)


RARE = {
    "effects-repeated": 59,
    "hanging-left-alone": 49,
    "never-asked-again": 140,
    "optional-is-fatal": 188,
    "rest-forgotten": 31,
    "stream-repeated": 76,
}
"""By bug, the seed to begin with, where the first seeds show nothing."""


def first_found(first: int) -> tuple[int, str] | None:
    """The first seed that breaks an invariant, and how."""
    for seed in chain(range(first, WITHIN), range(first)):
        world = World(scenario(seed))
        try:
            found = violations(world.run())
        except Exception as error:  # noqa: BLE001 - a planted bug may break anything
            return seed, f"{type(error).__name__}: {error}"
        if found:
            return seed, found[0]
    return None


@pytest.mark.planted
@pytest.mark.bug
@pytest.mark.parametrize("name", sorted(BUGS))
def test_it_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[name].plant(monkeypatch)
    assert first_found(RARE.get(name, 0)) is not None, f"nobody noticed that {BUGS[name].about}"


def test_the_page_lists_them() -> None:
    page = DOCUMENTED.read_text()
    assert [bug.about for bug in BUGS.values() if bug.about not in page] == []
