"""Where the LLM calls of a query went, why, and what they found there: for metrics, explanations
and the page, worked out when somebody looks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from teola.engine import Usage
from teola.policies.reason import Reason
from teola.runtime.observe.trace import GraphScope, Trace, scopes


class Placement(NamedTuple):
    """A try of an LLM call. primitive: what leads it, by its path. usage: as its instance
    counted (None: it has not ended, or another try has)."""

    primitive: str
    engine: str
    instance: int
    reason: Reason
    usage: Usage | None

    @property
    def why(self) -> str:
        """In words."""
        return self.reason.words(self.instance)

    def to_json(self) -> dict[str, Any]:
        """The placement as JSON values; tokens only where the instance counted."""
        fields: dict[str, Any] = {
            "primitive": self.primitive,
            "engine": self.engine,
            "instance": self.instance,
            "why": self.why,
        }
        if self.usage is not None:
            fields["prompt_tokens"] = self.usage.prompt_tokens
            fields["found_tokens"] = self.usage.cached_tokens
            fields["answer_tokens"] = self.usage.completion_tokens
        return fields


def placements(trace: Trace) -> list[Placement]:
    """The placements of all calls of a query, with those of its parts and of queries inside, in the
    order in which they were sent."""
    found = [one for scope in scopes(trace) for one in _of_scope(scope)]
    found.sort(key=lambda one: one[0])
    return [one for _, one in found]


def _of_scope(scope: GraphScope) -> Iterator[tuple[float, Placement]]:
    trace, plan = scope.trace, scope.trace.plan
    if plan is None:
        return
    usage, tries = trace.calls, list(trace.reasons)
    last = {sent[0]: k for k, (sent, _) in enumerate(tries)}
    for k, (sent, reason) in enumerate(tries):
        i, p = sent[0], plan.primitives[sent[0]]
        tokens = usage.get(p.id) if last[i] == k else None
        yield sent[4], Placement(scope.id(p.id), p.engine, sent[5], reason, tokens)


class Hits(NamedTuple):
    """Tokens of prompts, and those of them that instances found in their caches."""

    prompt_tokens: int = 0
    found_tokens: int = 0

    def plus(self, usage: Usage) -> Hits:
        """The sum of these tokens and those of another call."""
        prompt, found = self
        return Hits(prompt + usage.prompt_tokens, found + usage.cached_tokens)


class FoundTokens:
    """What the calls of some queries found, by engine and instance, and by engine and app."""

    def __init__(self, traces: Iterable[Trace]) -> None:
        self.by_instance: dict[tuple[str, int], Hits] = {}
        self.by_app: dict[tuple[str, str], Hits] = {}
        for trace in traces:
            for one in placements(trace):
                if one.usage is not None and one.usage.prompt_tokens:
                    here, app = (one.engine, one.instance), (one.engine, trace.app)
                    self.by_instance[here] = self.by_instance.get(here, Hits()).plus(one.usage)
                    self.by_app[app] = self.by_app.get(app, Hits()).plus(one.usage)
