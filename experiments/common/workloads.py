"""What the simulated queries ask and what they are answered: drawn by seed, the same for all.

The values of one query depend on the seed, the application and its number alone, so every system
sees the very same queries in the same order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import exp
from pathlib import Path
from typing import Any, Final

from experiments.common import datasets
from experiments.common.testbed import Values
from teola import App
from teola.runtime.in_flight import Query
from teola.runtime.sim.outcome import Delivery, Planned
from teola.runtime.values import CHARACTERS_PER_TOKEN, Tokens
from teola.workflow.components.condition import OTHERWISE, THEN

APPS: Final = ("naive-rag", "advanced-rag", "search-agent")
DATASET: Final = {
    "naive-rag": "truthfulqa",
    "advanced-rag": "truthfulqa",
    "search-agent": "hotpotqa",
}
EXAMPLE_CHUNKS: Final = 48


@dataclass(frozen=True, slots=True)
class Drawn:
    """One query. Lengths in tokens; web: how far its web search is from the median, in sigmas."""

    chunks: int
    question: int
    answer: int
    searches: bool
    web: float


def draw(
    app: str, count: int, values: Values, *, seed: int = 0, data: Path | None = None
) -> list[Drawn]:
    """The first `count` queries of an application's workload."""
    return [_one(app, random.Random(f"{seed}/{app}/{i}"), values, data) for i in range(count)]


def _one(app: str, source: random.Random, values: Values, data: Path | None) -> Drawn:
    question, answer = datasets.draw(source, DATASET[app], data)
    chunks = values.chunks_median * source.lognormvariate(0.0, values.chunks_sigma)
    return Drawn(
        chunks=round(min(max(chunks, values.chunks_min), values.chunks_max)),
        question=question,
        answer=answer,
        searches=source.random() < values.searches,
        web=source.gauss(0.0, 1.0),
    )


def example(app: str, *, searches: bool = True) -> Drawn:
    """The query of the paper's example: 48 chunks, mean lengths, a search of median length."""
    question, answer = datasets.MEANS[DATASET[app]]
    return Drawn(EXAMPLE_CHUNKS, question, answer, searches, 0.0)


def find_app(name: str) -> App:
    """One of the three applications."""
    app: App = import_module(f"teola_apps.{name.replace('-', '_')}").app
    return app


def inputs(app: str, query: Drawn, values: Values) -> dict[str, Any]:
    """What the query gives to the application."""
    question = {"question": Tokens(query.question)}
    if app == "search-agent":
        return question
    chunks = [Tokens(values.chunk)] * query.chunks
    return {**question, "chunks": chunks, "scope": Tokens(0)}


def text(length: int) -> str:
    """A text that counts as `length` tokens."""
    return "x" * (CHARACTERS_PER_TOKEN * (length - 1))


def overrides(
    app: str, values: Values, more: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, dict[str, Any]]:
    """Instructions so long that all the literal text of a prompt has the length in `values`.

    The words around the question and the context are the components' own. A refinement or a merge
    adds a line of its own to them, 10 and 12 tokens. more: parameters besides.
    """
    found = _instructions(app, values)
    for component, parameters in (more or {}).items():
        found[component] = {**found.get(component, {}), **parameters}
    return found


def _instructions(app: str, values: Values) -> dict[str, dict[str, Any]]:
    answer = {"instruction": text(values.instruction - _rest("Question: ", *_AROUND))}
    if app == "naive-rag":
        return {"generate": answer}
    if app == "advanced-rag":
        rest = _rest("Question: ", "\n\nRewritings:\n")
        return {
            "expand": {"instruction": text(values.expansion - rest)},
            "generate": answer,
        }
    rest = _rest("Question: ", "\n\nDraft: ", "\n\nIs a search needed? ")
    judge = values.judge - rest - datasets.MEANS["hotpotqa"].question
    alone = {"instruction": text(values.instruction - _rest("Question: ", "\n\nAnswer: "))}
    return {
        "draft": alone,
        "judge": {"instruction": text(max(1, judge))},
        "generate": answer,
        "direct": alone,
    }


_AROUND: Final = ("\n\nContext:\n", "\n\nAnswer: ")


def _rest(*texts: str) -> int:
    return sum(len(text) // CHARACTERS_PER_TOKEN + 1 for text in texts)


class Answers:
    """What the simulated engines answer to the queries of one application (an Outcome source).

    Queries are named by their numbers.
    """

    def __init__(self, app: str, queries: Sequence[Drawn], values: Values) -> None:
        self.app, self.queries, self.values = app, queries, values
        self._planned: dict[str, Planned] = {}

    def _of(self, id: str) -> Planned:
        found = self._planned.get(id)
        if found is None:
            query, values = self.queries[int(id)], self.values
            found = self._planned[id] = Planned(
                answer_tokens=query.answer + values.answer_extra,
                item_tokens=max(1, round(values.rewriting * query.question)),
                chunk_tokens=values.chunk,
                snippet_tokens=values.snippet,
                lengths={"draft": values.draft, "judge": values.verdict},
            )
        return found

    def result(self, query: Query, i: int, lo: int, hi: int) -> Mapping[str, Any]:
        return self._of(query.id).result(query, i, lo, hi)

    def call(self, query: Query, head: int) -> tuple[int, list[Delivery]]:
        return self._of(query.id).call(query, head)

    def branch(self, query: Query, i: int) -> str:
        return THEN if self.queries[int(query.id)].searches else OTHERWISE

    def stretch(self, query: Query, i: int, sigma: float) -> float:
        return exp(sigma * self.queries[int(query.id)].web)

    def forget(self, id: str) -> None:
        """The query has ended."""
        self._planned.pop(id, None)


def numbered(queries: Sequence[Drawn]) -> Iterator[tuple[str, Drawn]]:
    """Queries with the names under which `Answers` knows them."""
    for number, query in enumerate(queries):
        yield str(number), query
