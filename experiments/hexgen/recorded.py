"""Queries of text-to-SQL as they were recorded: the calls of each, with their lengths.

    [{"Text2SQLRequest": [{"step": "revise", "input_length": 5859, "output_length": 74}, ...]}, ...]

Consecutive candidates are parallel, and so are consecutive evaluations; all else is one after
another. Which texts they had the file does not tell, so nothing is found in a cache.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from teola.errors import InputError, UnknownName

NAMES: Final = {
    "Information Retriever": "linking",
    "extract_keywords": "keywords",
    "generate_candidate_llama-agent": "candidate",
    "revise": "revise",
    "unit_tester": "testing",
    "generate_unit_test": "tests",
    "evaluate": "evaluate",
}
"""Stages of the graph, by what the file calls them."""
ROOT: Final = "Text2SQLRequest"
MOST_STEPS: Final = 1000
"""Of one query; a query of more is no query of text-to-SQL."""
MOST_REPAIRS: Final = 10
PARALLEL: Final = frozenset({"candidate", "evaluate"})
GROUPS: Final = {
    "linking": "linking",
    "keywords": "linking",
    "candidate": "candidates",
    "revise": "correction",
    "testing": "evaluation",
    "tests": "evaluation",
    "evaluate": "evaluation",
}
"""The stages of the paper's table 1."""


class Call(NamedTuple):
    """Of one stage. prompt, answer: tokens."""

    stage: str
    prompt: int
    answer: int


@dataclass(frozen=True)
class RecordedQuery:
    """calls: in the order of the file. stages: those that run one after another, each with calls
    that run side by side."""

    calls: tuple[Call, ...]

    @property
    def stages(self) -> list[list[Call]]:
        found: list[list[Call]] = []
        for stage, some in groupby(self.calls, key=lambda call: call.stage):
            if stage in PARALLEL:
                found.append(list(some))
            else:
                found += [[call] for call in some]
        return found

    def of(self, stage: str) -> list[Call]:
        """Its calls of one stage."""
        return [call for call in self.calls if call.stage == stage]


def read(path: Path) -> list[RecordedQuery]:
    """All queries of a file. Raises InputError, and UnknownName for a step that the graph has
    not."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise InputError(
            f"there is no file {path}: give --data FOLDER, or TEOLA_DATA, with hexgen_trace1.json"
        ) from None
    except ValueError as error:
        raise InputError(f"{path} is no JSON file: {error}") from None
    if not isinstance(told, list) or not told:
        raise InputError(f"{path} must be a list of queries, and not an empty one")
    return [_query(one, f"{path.name}, query {k}") for k, one in enumerate(told)]


def _query(one: Any, where: str) -> RecordedQuery:
    steps = one.get(ROOT) if isinstance(one, dict) else None
    if not isinstance(steps, list) or not steps:
        raise InputError(f"{where}: {ROOT!r} must be a list of steps, and not an empty one")
    if len(steps) > MOST_STEPS:
        raise InputError(f"{where}: {len(steps):,} steps, and at most {MOST_STEPS:,} are read")
    query = RecordedQuery(tuple(_call(step, f"{where}, step {k}") for k, step in enumerate(steps)))
    _check_order(query, where)
    return query


def _call(step: Any, where: str) -> Call:
    if not isinstance(step, dict) or not isinstance(step.get("step"), str):
        raise InputError(f"{where}: it has no name; a step is {{'step', 'input_length', ...}}")
    name = step["step"]
    if name not in NAMES:
        raise UnknownName("step", name, NAMES, where)
    lengths = step.get("input_length"), step.get("output_length")
    for length in lengths:
        if type(length) is not int or length < 1:
            raise InputError(f"{where}: lengths must be whole numbers from 1 on, got {lengths}")
    return Call(NAMES[name], *lengths)  # type: ignore[arg-type]


ORDER: Final = ("linking", "candidate", "revise", "testing")
"""What has to follow what; keywords stand among linking, tests and evaluations among testing."""
WITHIN: Final = {"keywords": "linking", "tests": "testing", "evaluate": "testing"}


def _check_order(query: RecordedQuery, where: str) -> None:
    ranks = [ORDER.index(WITHIN.get(call.stage, call.stage)) for call in query.calls]
    counts = len(query.of("linking")), len(query.of("candidate")), len(query.of("testing"))
    if len(query.of("revise")) > MOST_REPAIRS:
        raise InputError(f"{where}: more than {MOST_REPAIRS} repairs, which the graph never makes")
    if ranks != sorted(ranks) or counts != (4, 2, 3) or len(query.of("keywords")) > 1:
        stages = [stage for stage, _ in groupby(query.calls, key=lambda call: call.stage)]
        raise InputError(f"{where}: the graph has no such order of steps: {', '.join(stages)}")


def shuffled(queries: Sequence[RecordedQuery], source: Any, times: int = 1) -> list[RecordedQuery]:
    """They in another order, so many times over."""
    found = [*queries] * times
    source.shuffle(found)
    return found
