"""QuerySpec: what somebody wants of an application, in one record from the edge to the job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import inf
from typing import Any, Final

from teola.engine import NAME_CHARACTERS
from teola.errors import InputError
from teola.policies.ledger import BudgetAccount, Ledger
from teola.runtime.tally import MOST_PARTS

DEADLINE_S: Final = 120.0

Passes = str | Sequence[str] | None
Overrides = Mapping[str, Any]
"""{"search.top_k": 4} or {"search": {"top_k": 4}}."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one query, with those inside it, may take.

    most_primitives: size that its p-graph may have, and with all its parts the query.
    most_bytes: size of what its engines compute for it that may be held at once.
    most_parts: that it may grow.
    """

    most_primitives: float = inf
    most_bytes: float = inf
    most_parts: float = MOST_PARTS


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """One query as it is asked, unchecked.

    inputs: by name.
    overrides: parameters of components for this query.
    passes: which optimisation passes run; None: those of the application.
    deadline_s: seconds until it is given up.
    finish_by_s: seconds from its admission by which its answer is wanted, its objective; None: that
        of its application, or one by what such queries take.
    tenant: whose documents it sees; None: whose the query around it sees, else "default".
    bounds: what it may take, unless it is inside another query, whose bounds hold for both.
    session: whoever asks will ask more of the same, under this name, as the next turn of a
        conversation; None: a query by itself, or a part of the query around it.
    secrets: that its tools may know by name; of a query around it, those of that one.
    asked: when it was accepted, in seconds since 1970, if that was before it begins.
    most_tokens: of prompts and answers that all its calls of LLMs may take, with those of queries
        inside it. most_cost: the same in money. Of queries inside each other the bounds of all
        hold.
    accounts: that it shares with other queries, such as its key's for the day.
    """

    inputs: Mapping[str, Any]
    overrides: Overrides = field(default_factory=dict)
    passes: Passes = None
    deadline_s: float = DEADLINE_S
    tenant: str | None = None
    bounds: Bounds = Bounds()
    session: str | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    asked: float | None = None
    finish_by_s: float | None = None
    most_tokens: int | None = None
    most_cost: float | None = None
    accounts: tuple[BudgetAccount, ...] = field(default=(), repr=False)


def program_of(tenant: str, session: str) -> str:
    """The program (`Asker.program`) that a session is, of which there is one for each tenant: a
    digest, so that what clients send is neither kept nor long. Raises InputError."""
    if not isinstance(session, str):
        raise InputError(f"session must be a text, not {type(session).__name__}")
    if not session.strip():
        raise InputError("session is empty; leave it out")
    if len(session) > NAME_CHARACTERS:
        raise InputError(
            f"session has {len(session)} characters, more than the {NAME_CHARACTERS} that its name "
            "may have; shorten it"
        )
    named = f"{len(tenant)} {tenant} {session}".encode("utf-8", "surrogatepass")
    return blake2b(named, digest_size=16).hexdigest()


def ledger_of(
    ask: QuerySpec, around: Ledger | None, others: Sequence[BudgetAccount]
) -> Ledger | None:
    """What a query may take, by its own bound, those of the query around it, and others' (None:
    there is no bound)."""
    own: BudgetAccount | None = None
    if ask.most_tokens is not None or ask.most_cost is not None:
        tokens = inf if ask.most_tokens is None else ask.most_tokens
        cost = inf if ask.most_cost is None else ask.most_cost
        own = BudgetAccount("this query", tokens, cost)
    if own is None and not others:
        return around
    return Ledger(own, around=around, others=others)
