"""Which works are equal: a digest of all that their results depend on.

What has chance in it, may change the world, or reads what others may change meanwhile is equal to
nothing: functions and tools, searches of a store, SQL, and calls of LLMs at a temperature above 0.
Nor is it worth a digest that would take more than a hundredth of the work's own time, as learned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from math import inf
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

from teola.engine import Hit
from teola.errors import OutputError
from teola.graph import DecodeParams
from teola.graph.ops import DONE_ONCE
from teola.runtime.live.kept_answers import SHARED_BYTES, KeptAnswer, KeptAnswers
from teola.runtime.live.query import LiveQuery
from teola.schedule.plan import Plan

DIGEST_S, CHARACTER_S = 6e-6, 2e-9
"""What a digest takes, and for each character of what it is made of."""
MOST_SHARE: Final = 0.01
"""The share of a work's time that its digest may take."""
MOST_CHARACTERS: Final = 1_000_000
"""Characters that a digest is made of at most, where no time is known."""
KEPT_ENDS: Final = ("", "length")
"""How calls have ended (see Trace.ends) whose answers are kept."""
ATOMS: Final = (int, float, bool, type(None))


class EqualWork:
    """Makes the digests of one driver, and keeps what applications share."""

    def __init__(self) -> None:
        self.shared = KeptAnswers(most=inf, most_bytes=SHARED_BYTES)
        self._alike: WeakKeyDictionary[Plan, dict[int, bytes | None]] = WeakKeyDictionary()

    def of(self, query: LiveQuery, i: int) -> bytes | None:
        """Digest of primitive `i`, which is ready (None: it is done for itself)."""
        plan = query.plan
        alike = self._alike.get(plan)
        if alike is None:
            alike = self._alike[plan] = {}
        if i not in alike:
            alike[i] = _alike(plan, i)
        fixed = alike[i]
        if fixed is None or query.terms.steps is not None:
            return None
        members, answers = plan.members[i], query.terms.answers
        if members and answers is None:
            return None
        seconds = sum([plan.specs[k].estimate.takes_s for k in (i, *members)])
        if seconds and MOST_SHARE * seconds < DIGEST_S:
            return None
        scope = ""
        if members:
            if answers is not None and not query.terms.shares_s:
                scope = answers.scope
            pieces: Iterator[str | None] = _prompt_pieces(query, i)
        else:
            pieces = _pieces(query.store.resolve(i))
        most = (MOST_SHARE * seconds - DIGEST_S) / CHARACTER_S if seconds else MOST_CHARACTERS
        digested, characters = [query.context.tenant, scope], 0
        try:
            for piece in pieces:
                if piece is None or (characters := characters + len(piece)) > most:
                    return None
                digested.append(piece)
        except OutputError:  # no text: whoever reads it says so
            return None
        # how Python writes a list of texts says where each of them ends
        data = repr(digested).encode("utf-8", "surrogatepass")
        return blake2b(data, digest_size=16, key=fixed).digest()

    def find(self, query: LiveQuery, same: bytes, now: float) -> KeptAnswer | None:
        """What an equal call wrote that has ended."""
        if query.terms.shares_s:
            return self.shared.find(same, now)
        return None if query.terms.answers is None else query.terms.answers.find(same, now)

    def keep(self, query: LiveQuery, same: bytes, text: str, end: str, now: float) -> None:
        """A call has ended well. An empty answer is not kept, nor a refusal: whoever asks again is
        to have another chance."""
        if end not in KEPT_ENDS:
            return
        answer = KeptAnswer(text, end)
        if query.terms.shares_s:
            self.shared.keep(same, answer, now + query.terms.shares_s)
        elif query.terms.answers is not None:
            query.terms.answers.keep(same, answer)


def _alike(plan: Plan, i: int) -> bytes | None:
    """What a primitive's digest begins with, the same for all queries of its plan."""
    p, members = plan.primitives[i], [plan.primitives[m] for m in plan.members[i]]
    if members:
        decode = [cast("DecodeParams", m.params) for m in members]
        if any(params.temperature for params in decode):
            return None
    elif p.op not in DONE_ONCE:
        return None
    sets = sorted(plan.keepable[i]), sorted(plan.shown[i])
    parts = [p.engine, p.op.value, p.params, p.outputs, *sets]
    digested = [*parts, *((m.op.value, m.params, m.outputs) for m in members)]
    return blake2b(repr(digested).encode("utf-8", "surrogatepass"), digest_size=32).digest()


def _prompt_pieces(query: LiveQuery, i: int) -> Iterator[str | None]:
    """Pieces of a call's whole prompt; tokens depend on where one part ends and the next begins."""
    before = query.run.before(i)
    if before >= 0:
        for part in query.store.values[before]["sequence"].parts:
            yield part.role._value_
            yield part.text
    for k in (*query.run.fused.get(i, ()), i):
        for part in query.store.prompt(k):
            yield part.role._value_
            yield part.text


def _pieces(inputs: Mapping[str, Any]) -> Iterator[str | None]:
    """Pieces of a primitive's inputs, by name; None where one is not known by its value."""
    for name, value in inputs.items():
        yield name
        yield from _value_pieces(value)


def _value_pieces(value: Any) -> Iterator[str | None]:
    kind = type(value)
    if kind is str:
        yield "s"
        yield value
    elif kind is list:
        yield f"l{len(value)}"
        for item in value:
            yield from _value_pieces(item)
    elif kind is Hit:
        yield "h"
        yield value.document
        yield value.text
        yield repr((value.id, value.score, value.metadata))
    elif kind in ATOMS:
        yield repr(value)
    else:
        yield None
