"""ToolContext: what a tool may know of the run that calls it, and its model must not choose."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NewType

from teola.errors import InputError

IdempotencyKey = NewType("IdempotencyKey", str)
"""Annotates the parameter of a tool that gets the key of its call."""


def _environment() -> Mapping[str, str]:
    return os.environ


def _new_key() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class ToolContext:
    """A parameter that is annotated with it is not in the tool's schema.

    query_id, tenant: of the query that calls.
    key: the same for every try of one call, and of no other call.
    values: what whoever runs the query wants its tools to know, such as the user's id.
    secrets: by name; the environment, unless the run has others.
    """

    query_id: str = ""
    tenant: str = "default"
    key: str = field(default_factory=_new_key)
    values: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=_environment, repr=False)

    def secret(self, name: str) -> str:
        """The secret called `name`. Raises InputError."""
        value = self.secrets.get(name)
        if not value:
            raise InputError(f"the secret {name!r} is not set")
        return value
