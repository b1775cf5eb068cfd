"""Prompts as data: ordered parts, each with a role, so that splitting one is slicing a tuple."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from teola.errors import GraphError

QUERY = "query"
"""The reserved producer: `Ref(QUERY, name)` is what the caller gave for `name`."""


@dataclass(frozen=True, slots=True)
class Ref:
    """Names data: a port of a producer, or a range `items` = (lo, hi) of its items.

    `hi` may be None: to the end, however many items there turn out to be.
    """

    producer: str
    port: str
    items: tuple[int, int | None] | None = None

    def __str__(self) -> str:
        if self.items is None:
            return f"{self.producer}.{self.port}"
        lo, hi = self.items
        return f"{self.producer}.{self.port}[{lo}:{'' if hi is None else hi}]"


class Role(Enum):
    """What a prompt part is for. Engines without a chat template may ignore it."""

    INSTRUCTION = "instruction"
    QUESTION = "question"
    CONTEXT = "context"
    ANSWER = "answer"
    HISTORY = "history"

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a prompt: literal text, or a Ref (a list is joined by `separator`).

    required: without this part's data the whole call makes no sense and is skipped.
    """

    role: Role
    content: str | Ref
    required: bool = False
    separator: str = "\n\n"


@dataclass(frozen=True, slots=True)
class Prompt:
    """Ordered parts. Each is tokenised on its own, so a prefix keeps its token ids."""

    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise GraphError("a prompt needs at least one part")

    def refs(self) -> Iterator[Ref]:
        """The Refs among the parts, in order."""
        for part in self.parts:
            if isinstance(part.content, Ref):
                yield part.content
