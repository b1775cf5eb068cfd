"""Asking a routing policy by hand, over the queue of an engine of two instances."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from teola.graph import Op
from teola.policies import batching
from teola.policies.routing import RoutingPolicy
from teola.policies.work import Work
from teola.profile import EngineProfile, StepTime
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import CallEnded, Dispatch, FirstToken, PrefixChanged
from teola.schedule.instances import Limits
from tests.recording import work

TOKEN_S = 0.001
"""Of a prompt's token; everything else takes no time."""


def router(
    policy: RoutingPolicy,
    instances: int = 2,
    *,
    block_tokens: int = 1,
    token_s: Sequence[float] = (),
    **limits: Any,
) -> EngineQueue:
    """token_s: seconds of a token of each instance, where they differ."""
    given = {"max_batch": 10**6, "max_sequences": 1000, "concurrency": 1, **limits}
    limit = Limits(**{**given, "continuous": True, "block_tokens": block_tokens})
    profiles = [
        EngineProfile(step=StepTime(per_token_s=each), max_batch=limit.max_batch)
        for each in token_s or [TOKEN_S] * instances
    ]
    made = batching.make("fifo")
    return EngineQueue("e", [limit] * instances, made, policy, profiles)


def prompt(*parts: tuple[Hashable, int]) -> tuple[Hashable, ...]:
    """Keys of blocks of one token, chained: parts are names, and how many tokens they have."""
    said: tuple[Hashable, ...] = ()
    keys: list[Hashable] = []
    for name, tokens in parts:
        for k in range(tokens):
            keys.append((said, name, k))
        said = (*said, name, tokens)
    return tuple(keys)


def call(run: str, keys: tuple[Hashable, ...], now: float = 0.0, **more: Any) -> Work:
    given = {"op": Op.PREFILLING, "lane": None, "cuttable": False, "retries": 2, "total": len(keys)}
    seq = more.pop("seq", 0)
    return work(
        seq,
        **{
            **given,
            "primitive": 0,
            "run": run,
            "arrival": now,
            "admitted": now,
            "keys": keys,
            **more,
        },
    )


def route(
    queue: EngineQueue, run: str, keys: tuple[Hashable, ...], now: float = 0.0, **more: Any
) -> int:
    """Where a call goes, which is sent at once."""
    one = call(run, keys, now, **more)
    queue.submit(one, now)
    send(queue, now)
    return one.affinity


def send(queue: EngineQueue, now: float = 0.0) -> None:
    assert all(isinstance(command, Dispatch) for command in queue.dispatch(now))


def first(queue: EngineQueue, run: str, now: float) -> None:
    """A call's first token, before which its instance tells what it keeps."""
    one = queue.works[run, 0]
    ((i, _),) = one.flying.values()
    queue.prefixes(PrefixChanged("e", i, one.keys), now)
    queue.first_token(FirstToken("e", i, run, 0), now)


def end(queue: EngineQueue, run: str, now: float, generated: int | None = None) -> None:
    """A call's end, which has had its first token."""
    ((_, batch),) = queue.works[run, 0].flying.values()
    queue.call_ended(CallEnded("e", batch, run, 0, {}, 0, generated), now)
