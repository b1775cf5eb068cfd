"""Whatever a test of the scheduler tells a queue or a run, their invariants hold afterwards."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any

import pytest

from teola.schedule.core import Core
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import RunEvent
from teola.schedule.graph_run import GraphRun
from teola.schedule.validate import validate, validate_queue, validate_run

TOLD = ("submit", "withdraw", "completed", "call_ended", "first_token", "member", "down")
TOLD += ("draining", "up", "changed", "waits", "woken", "dispatch", "give_up")


MANY = 100
"""Instances; beyond, looking at all of them after every event would take minutes."""


def _look(queue: EngineQueue, now: float) -> None:
    if len(queue.instances) <= MANY:
        validate_queue(queue, now)


def _watched(method: Callable[..., Any], look: Callable[[Any, float], None]) -> Callable[..., Any]:
    """The method, with a look at what it belongs to after it."""
    taken = signature(method)

    @functools.wraps(method)
    def watched(self: Any, *arguments: Any, **more: Any) -> Any:
        found = method(self, *arguments, **more)
        given = taken.bind(self, *arguments, **more).arguments
        look(self, given.get("now", 0.0))
        return found

    return watched


@pytest.fixture(scope="module", autouse=True)
def validated() -> Iterator[None]:
    handle = GraphRun.handle

    def handling(self: GraphRun, event: RunEvent, now: float) -> None:
        handle(self, event, now)
        validate_run(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GraphRun, "handle", handling)
        for name in TOLD:
            patch.setattr(EngineQueue, name, _watched(getattr(EngineQueue, name), _look))
        for name in ("tell", "handle", "flush"):
            patch.setattr(Core, name, _watched(getattr(Core, name), validate))
        yield
