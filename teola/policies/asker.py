"""Asker: on whose behalf a query runs, and what it is to keep to.

    Job -> GraphRun -> Work        one object, made once a query
             └─ parts of it -> Work

The query, all its parts and all their works hold the very same object. A new fact about a query is
one field here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from teola.policies.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks a query, and until when it is wanted.

    tenant: whose query it is.
    app: the application that is asked.
    program: the program that its calls belong to: a session, the query around it, or itself.
    admitted: when the query was admitted, on the driver's clock.
    finish_by: when its answer is wanted, on the same clock: an objective, not the deadline at which
        it is given up.
    budget: what it may still take, with all its parts and the queries inside it (None: there is no
        bound).
    """

    tenant: str = "default"
    app: str = ""
    program: str = ""
    admitted: float = 0.0
    finish_by: float = inf
    budget: Ledger | None = None
