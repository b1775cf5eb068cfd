"""Reading recorded queries: files of calls, and timelines that a server told."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from teola.errors import InputError
from teola.plain_number import is_number
from teola.runtime.sim.staged import StagedCall, StagedQuery, Stages, in_stages

MOST_CALLS: Final = 1000
"""Calls of one query at most; one that has more is no recorded query."""
MOST_QUERIES: Final = 100_000
LONGEST: Final = 10**7
"""Tokens of a prompt or an answer."""


def read_queries(path: Path) -> list[StagedQuery]:
    """All queries of a file, in the order in which they came. Raises InputError that names the
    first thing wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise InputError(f"cannot read {str(path)!r}: {reason}") from None
    queries = [_query(entry, where) for entry, where in _objects(text, path.name)]
    if not queries:
        raise InputError(f"{path.name} has no query: it is empty")
    if len(queries) > MOST_QUERIES:
        raise InputError(f"{path.name}: {len(queries):,} queries, and {MOST_QUERIES:,} are read")
    return sorted(queries, key=lambda query: query.arrival)


def _objects(text: str, name: str) -> Iterable[tuple[Any, str]]:
    """What stands in the file, and where."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        for k, line in enumerate(text.split("\n"), 1):
            if line.strip():
                try:
                    yield json.loads(line), f"{name}, line {k}"
                except (ValueError, RecursionError) as error:
                    raise InputError(f"{name}, line {k}: it is no JSON: {error}") from None
        return
    listed = data if isinstance(data, list) else [data]
    yield from ((entry, f"{name}, query {k}") for k, entry in enumerate(listed))


def _query(told: Any, where: str) -> StagedQuery:
    if not isinstance(told, Mapping):
        raise InputError(f"{where}: a query is an object with `stages`, or a timeline")
    stages = _timeline(told, where) if "spans" in told else _stages(told.get("stages"), where)
    calls = sum(map(len, stages))
    if not calls:
        raise InputError(f"{where}: it has no call of a language model")
    if calls > MOST_CALLS:
        raise InputError(f"{where}: {calls:,} calls, and a query has {MOST_CALLS:,} at most")
    arrival, finish_by_s = told.get("arrival", 0.0), told.get("finish_by_s")
    has_objective = finish_by_s is None or (_number(finish_by_s) and finish_by_s > 0)
    if not _number(arrival) or not has_objective:
        raise InputError(f"{where}: arrival and finish_by_s are seconds, the latter above 0")
    app, tenant = told.get("app", ""), told.get("tenant", "default")
    return StagedQuery(stages, str(app), float(arrival), str(tenant), finish_by_s)


def _number(value: object) -> bool:
    return is_number(value) and abs(value) < 1e12


def _stages(told: Any, where: str) -> Stages:
    if not isinstance(told, list):
        raise InputError(f"{where}: `stages` must be a list of stages, each a list of calls")
    if len(told) > MOST_CALLS:
        raise InputError(f"{where}: {len(told):,} stages, and a query has {MOST_CALLS:,} at most")
    return tuple(tuple(_call(call, where) for call in _listed(stage, where)) for stage in told)


def _listed(stage: Any, where: str) -> list[Any]:
    if not isinstance(stage, list) or not stage:
        raise InputError(f"{where}: a stage is a list of calls, and not an empty one")
    return stage


def _call(told: Any, where: str) -> StagedCall:
    if not isinstance(told, list) or len(told) != 3 or not isinstance(told[0], str) or not told[0]:
        raise InputError(
            f"{where}: a call is [name, prompt tokens, answer tokens], got {told!r:.80}"
        )
    name, *lengths = told
    for length in lengths:
        if type(length) is not int or not 0 < length <= LONGEST:
            raise InputError(
                f"{where}: lengths of {name!r} must be whole numbers from 1 to {LONGEST:,}, "
                f"got {lengths!r:.80}"
            )
    return StagedCall(name, *lengths)


def _timeline(told: Mapping[str, Any], where: str) -> Stages:
    """The calls of a timeline that ended well, with their tokens."""
    try:
        spans = told["spans"]
        by_id = {span["primitive"]: span for span in spans if span["state"] == "done"}
        ends: dict[str, float] = {}
        for span in by_id.values():
            call = span["primitive"].rpartition(".")[0]  # its prompt and its decodings
            ends[call] = max(float(span["end"]), ends.get(call, 0.0))
        calls = []
        for asked_call in told["calls"]:
            span = by_id.get(asked_call["primitive"])
            if span is not None and "answer_tokens" in asked_call:
                lengths = (
                    max(1, int(asked_call["prompt_tokens"])),
                    max(1, int(asked_call["answer_tokens"])),
                )
                end = ends[span["primitive"].rpartition(".")[0]]
                named = StagedCall(span["component"], *lengths)
                calls.append((float(span["queued"]), end, named))
        return in_stages(calls)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{where}: that is no timeline of this version ({error!r})") from None
