"""What a query asked of the engines, whoever orchestrated it, and whether two asked the same.

Texts to embed, chunks to store and passages to score are compared one by one: how they are batched
is the orchestrator's own business. LLM calls are compared as prompt texts; in them, answers of
earlier calls are replaced by a mark, because a near-tie of two logits may make them differ.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Completion:
    """One LLM call. tokens: (of the prompt, of its answer), as the server counts."""

    prompt: str
    max_tokens: int
    text: str = ""
    tokens: tuple[int, int] = (0, 0)


@dataclass(slots=True)
class Log:
    """The calls of one query.

    embedded: texts. stored: chunk texts. searched: (top_k, texts found in order). scored:
    (question, passages). first_token_at: of the final answer, on the monotonic clock.
    """

    embedded: list[str] = field(default_factory=list)
    stored: list[str] = field(default_factory=list)
    searched: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    scored: list[tuple[str, frozenset[str]]] = field(default_factory=list)
    completions: list[Completion] = field(default_factory=list)
    first_token_at: float | None = None

    def first_token(self) -> None:
        """The final answer has begun; only the first report counts."""
        if self.first_token_at is None:
            self.first_token_at = time.monotonic()

    @property
    def counts(self) -> tuple[int, ...]:
        """How many of each kind."""
        kinds = (self.embedded, self.stored, self.searched, self.scored, self.completions)
        return tuple(len(kind) for kind in kinds)

    def passages(self) -> list[tuple[str, str]]:
        """(question, passage) of everything that was scored."""
        return [(question, text) for question, texts in self.scored for text in sorted(texts)]

    def prompts(self) -> list[tuple[str, int]]:
        """(prompt, most output tokens) of each call, with earlier answers as marks, sorted."""
        answers = sorted({c.text.strip() for c in self.completions} - {""}, key=len, reverse=True)
        return sorted((_marked(c.prompt, answers), c.max_tokens) for c in self.completions)


def _marked(prompt: str, answers: Iterable[str]) -> str:
    for text in answers:
        prompt = prompt.replace(text, "<answer>")
    return prompt


def differences(ours: Log, theirs: Log) -> list[str]:
    """In what two logs of the same query differ; empty if they asked for the same."""
    found = []
    if Counter(ours.embedded) != Counter(theirs.embedded):
        found.append(_unlike("embedded texts", ours.embedded, theirs.embedded))
    if Counter(ours.stored) != Counter(theirs.stored):
        found.append(_unlike("stored chunks", ours.stored, theirs.stored))
    if Counter(ours.searched) != Counter(theirs.searched):
        found.append(_unlike("searches", ours.searched, theirs.searched))
    scored, as_theirs = ours.passages(), theirs.passages()
    if Counter(scored) != Counter(as_theirs):  # in how many batches is up to each
        found.append(_unlike("reranked passages", scored, as_theirs))
    if ours.prompts() != theirs.prompts():
        found.append(_unlike("prompts", ours.prompts(), theirs.prompts()))
    return found


def _unlike(what: str, ours: Sequence[object], theirs: Sequence[object]) -> str:
    extra, missing = Counter(theirs) - Counter(ours), Counter(ours) - Counter(theirs)
    excerpt = "; ".join(repr(one)[-160:] for one in [*extra][:1] + [*missing][:1])
    return f"{what}: {len(ours)} and {len(theirs)}, {sum(extra.values())} differ ({excerpt})"
