"""What a query asks people: a question, or whether a call of a tool may be made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

ASK: Final = "ask"
APPROVE: Final = "approve"
UNKNOWN: Final = "unknown"
"""Kinds: a question, whether a call may be made, and what became of a call that was cut off."""
WAIT_S: Final = 7 * 86_400.0
"""How long people have."""


class Wording(NamedTuple):
    """What is asked. schema: JSON schema of the answer ({}: anything). about: JSON value that it is
    about, such as the tool and the arguments of a call."""

    question: str
    schema: Mapping[str, Any]
    about: Any = None


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A question that a query waits for.

    id: its own among those of the query, the same after a restart. query_id: of the query that a
    client knows, whatever inside it asks. kind: `ask`, `approve` or `unknown`. component: that
    asks. question, schema, about: see Wording.
    """

    id: str
    query_id: str
    kind: str
    component: str
    question: str
    schema: Mapping[str, Any]
    about: Any = None

    def to_json(self) -> dict[str, Any]:
        """The question as JSON values, without the query that it is of."""
        values: dict[str, Any] = {
            "ask": self.id,
            "kind": self.kind,
            "component": self.component,
            "question": self.question,
            "schema": dict(self.schema),
        }
        return values if self.about is None else {**values, "about": self.about}
