"""All that a core hears and answers in a run, as text: a line for each event and each command.

    0.35 handle BatchCompleted(engine='llm', batch=4, outcomes=[{'sequence': 1}])
    0.35   Dispatch(engine='llm', instance=1, batch=5, slices=[q2/generate/prefill 0:412 ...])

Times are the driver's. What differs from process to process (numbers of simulated texts, and the
keys of blocks that follow from them) is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from hashlib import blake2b
from typing import Any, Final

from teola.policies.work import Work
from teola.runtime.observe.trace import Trace
from teola.schedule.core import Core
from teola.schedule.events import Command, QueueEvent, RunEvent

LONGEST: Final = 300
"""Characters of a value; of a longer one its digest is noted."""
UNSAID: Final = frozenset({"keys", "stored", "evicted"})
"""Fields of which only the length is noted."""


class NotingCore(Core):
    """A core that notes what it is asked and what it answers in `lines`."""

    lines: list[str]

    def tell(self, run: str, event: RunEvent, now: float) -> list[Command]:
        self._note(f"tell {run} {shown(event)}", now)
        return self._answered(super().tell(run, event, now), now)

    def handle(self, event: QueueEvent, now: float) -> list[Command]:
        self._note(f"handle {shown(event)}", now)
        return self._answered(super().handle(event, now), now)

    def flush(self, now: float) -> list[Command]:
        return self._answered(super().flush(now), now)

    def _answered(self, commands: list[Command], now: float) -> list[Command]:
        self.lines += answered(commands, now)
        return commands

    def _note(self, text: str, now: float) -> None:
        self.lines.append(f"{now:.9g} {text}")


def answered(commands: Sequence[Command], now: float) -> list[str]:
    """A line for each command."""
    return [f"{now:.9g}   {shown(command)}" for command in commands]


def shown(value: Any) -> str:
    """The value as text, the same in every process."""
    text = _shown(value)
    if len(text) <= LONGEST or (is_dataclass(value) and not isinstance(value, Work)):
        return text
    return f"{text[:40]}...{blake2b(text.encode(), digest_size=6).hexdigest()}"


def _shown(value: Any) -> str:
    if isinstance(value, Work):
        return _work(value)
    if isinstance(value, BaseException):
        return f"{type(value).__name__}({value})"
    if isinstance(value, Enum):
        return value.name
    if is_dataclass(value):
        given = ((field.name, getattr(value, field.name)) for field in fields(value))
        told = (f"{name}={len(v) if name in UNSAID else shown(v)}" for name, v in given)
        return f"{type(value).__name__}({', '.join(told)})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{shown(k)}: {shown(v)}' for k, v in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(shown, value))}]"
    return repr(value)


def _work(work: Work) -> str:
    asker = work.asker
    who = (asker.tenant, asker.app, asker.program, work.began, work.behind_s)
    where = (work.affinity, work.home, work.avoid, work.found, work.priority)
    return (
        f"{work.run}/{work.primitive} {work.spec.component} of {work.total} seq {work.seq} "
        f"{' '.join(map(_number, who))} at {' '.join(map(_number, where))} tries {work.tries}"
    )


def _number(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def traced(trace: Trace) -> str:
    """A trace as a line: the state and the digest of what happened in it."""
    text = json.dumps(trace.to_json(), default=repr)
    digest = blake2b(text.encode(), digest_size=8).hexdigest()
    return f"trace {trace.query_id} {trace.state} after {trace.latency_s:.9g} s: {digest}"
