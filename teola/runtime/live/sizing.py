"""How large prompts are, by the tokenizer of the engine that will compute them.

Tokenising takes longer than a step of the core may. What the core lets measure in one turn of the
loop is measured together in a thread, so that calls which become ready at once stay together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from teola.engine import Call, Keys, MakesKeys
from teola.policies.work import Size, WorkSpec
from teola.runtime.hosts.local import LocalHost
from teola.runtime.live.call import call_of
from teola.runtime.live.query import LiveQuery
from teola.runtime.observe.noting import note
from teola.schedule.events import Sized

log = logging.getLogger(__name__)


class _Job(NamedTuple):
    engine: str
    maker: MakesKeys
    query: LiveQuery
    primitive: int
    call: Call


class Sizing:
    """Measures prompts. hosts: by engine and instance. post: takes an event. wake: is called when
    there are some."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        hosts: Mapping[tuple[str, int], LocalHost],
        post: Callable[[Sized], None],
        wake: Callable[[], None],
    ) -> None:
        self._loop, self._hosts, self._post, self._wake = loop, hosts, post, wake
        self._jobs: list[_Job] = []

    def takes(self, spec: WorkSpec, by_keys: bool) -> bool:
        """Whether primitives like this one are measured here: where the routing goes `by_keys`, or
        the engine has its tokenizer at hand and need not ask a server or another process."""
        host = self._hosts.get((spec.engine, 0)) if spec.lane is None else None
        if host is None or host.keys is None:
            return False
        return by_keys or host.tokenizer is host.engine

    def measure(self, query: LiveQuery, i: int) -> None:
        """Tell the core the size of primitive `i`."""
        engine = query.plan.specs[i].engine
        maker = self._hosts[engine, 0].keys
        assert maker is not None
        if not self._jobs:
            self._loop.call_soon(self._begin)
        self._jobs.append(_Job(engine, maker, query, i, call_of(query, i, 0)))

    def _begin(self) -> None:
        jobs, self._jobs = self._jobs, []
        self._loop.run_in_executor(None, _measured, jobs).add_done_callback(
            lambda found: self._tell(jobs, found)
        )

    def _tell(self, jobs: list[_Job], found: asyncio.Future[list[Keys | None]]) -> None:
        if found.cancelled():
            return
        for job, keys in zip(jobs, found.result(), strict=True):
            if keys is None:
                size = Size(job.query.prompt_tokens(job.primitive))
            else:
                before = job.query.run.before(job.primitive)
                job.query.tokens[job.primitive] = keys.tokens
                own_tokens = keys.tokens - job.query.tokens.get(before, 0)
                size = Size(max(1, own_tokens), keys.blocks)
            self._post(Sized(job.engine, job.query.id, job.primitive, size))
        self._wake()


def _measured(jobs: list[_Job]) -> list[Keys | None]:
    """The sizes of some jobs. None: it failed, which the call itself will do too."""
    measured: list[Keys | None] = []
    for job in jobs:
        try:
            measured.append(job.maker.keys(job.call))
        except Exception as error:  # noqa: BLE001 - the size is estimated then
            name = type(error).__name__
            message = "engine %(engine)s cannot measure a prompt: %(error_type)s"
            note(log, logging.DEBUG, "unmeasured", message, engine=job.engine, error_type=name)
            measured.append(None)
    return measured
