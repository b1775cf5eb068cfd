"""A server of applications that talk to a language model, which remembers what it was sent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serve.chat.talking import Model, talking
from tests.serve.conftest import Served


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[Served, Model]]:
    with talking() as found:
        yield found


@pytest.fixture
def model(world: tuple[Served, Model]) -> Model:
    """Without a memory of earlier tests."""
    found = world[1]
    found.server.requests.clear()
    found.says.clear()
    return found


@pytest.fixture
def served(world: tuple[Served, Model]) -> Served:
    return world[0]
