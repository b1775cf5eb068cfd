"""Question: what a query asked, as far as it is small, for whoever looks at the query later.

A page that is opened again shows it, and can ask it again. Inputs may be large documents, of which
nobody needs a copy here; what is left out is named.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from teola.engine import Source
from teola.plain_json import is_small
from teola.query.spec import Passes, QuerySpec

INPUT_BYTES: Final = 16 * 2**10
"""An input that is larger than this as JSON is not kept."""
SHORT: Final = 200
"""Characters of a question in a list of queries."""
_NO_QUESTION: Final = ("collection", "history")
"""Texts that tell nothing of what is asked."""
_encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True, slots=True)
class Question:
    """What is kept of what a query asked.

    inputs: those that are kept.
    left_out: names of the other inputs, and `overrides` if those are too large.
    overrides, passes: as they were asked.
    bytes: size of what is kept.
    """

    inputs: Mapping[str, Any]
    left_out: tuple[str, ...]
    overrides: Mapping[str, Any]
    passes: Passes
    bytes: int

    @property
    def text(self) -> str:
        """What is asked, in one text: the input `question`, else the first one that is a text; ""
        where there is none, or it is not kept."""
        texts = {
            name: value for name, value in self.inputs.items() if isinstance(value, str) and value
        }
        others = (value for name, value in texts.items() if name not in _NO_QUESTION)
        return texts.get("question") or next(others, "")

    def to_json(self) -> dict[str, Any]:
        """The question as clients are shown it."""
        return {
            "inputs": self.inputs,
            "left_out": self.left_out,
            "overrides": self.overrides,
            "passes": self.passes,
        }


def question_of(ask: QuerySpec) -> Question:
    """The question of a query, without what is too large to keep."""
    sizes = {name: _size(value) for name, value in ask.inputs.items()}
    inputs = {name: value for name, value in ask.inputs.items() if sizes[name] is not None}
    left_out = [name for name, size in sizes.items() if size is None]
    size, kept = _size(ask.overrides), ask.overrides  # which is no input of that name
    if size is None:
        left_out, kept = [*left_out, "overrides"], {}
    whole = sum(known or 0 for known in (*sizes.values(), size))
    return Question(inputs, tuple(left_out), kept, ask.passes, whole)


def _size(value: Any) -> int | None:
    """Bytes of the value as JSON; None: too large, or a file. A large value is not read to its
    end."""
    if _long(value):
        return None
    size = 0
    try:
        if isinstance(value, str) or is_small(value):
            size = len(_encode.encode(value).encode())
            return size if size <= INPUT_BYTES else None
        for piece in _encode.iterencode(value):
            size += len(piece.encode())
            if size > INPUT_BYTES:
                return None
    except (TypeError, ValueError):  # a program's own object, which JSON has no form for
        return None
    return size


def _long(value: Any) -> bool:
    """Whether that can be told without encoding it."""
    if isinstance(value, list):
        return any(map(_long, value))
    text = value.get("text") if isinstance(value, Mapping) else value
    return isinstance(value, Source) or (isinstance(text, str) and len(text) > INPUT_BYTES)
