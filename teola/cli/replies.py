"""From what was typed to an answer that fits its question; from a question to lines for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from teola.errors import InputError
from teola.graph.inquiry import APPROVE, ASK, UNKNOWN
from teola.runtime.live.people import check_answer

WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    APPROVE: ("approve", "reject"),
    UNKNOWN: ("repeat", "take", "fail"),
}
"""What may be answered to questions of these kinds."""


class Extras(NamedTuple):
    """What goes along with such a word, as it was typed: arguments (JSON) with approve, a reason
    with reject, a result (JSON or a text) with take."""

    arguments: str | None = None
    reason: str | None = None
    result: str | None = None


_GOES_WITH: Final = {"arguments": "approve", "reason": "reject", "result": "take"}


def reply(kind: str, schema: Mapping[str, Any], typed: str, extras: Extras = Extras()) -> Any:  # noqa: B008
    """The answer that was typed. Raises InputError."""
    typed_extras = {name: text for name, text in extras._asdict().items() if text is not None}
    value = read_value(schema, typed) if kind == ASK else _json(typed)
    if kind == ASK or isinstance(value, dict):
        if typed_extras:
            raise InputError(f"--{next(iter(typed_extras))} does not go with this question")
        return value
    words = WORDS[kind]
    if typed not in words:
        raise InputError(f"the answer must be {' or '.join(words)}, got {typed!r}")
    for name in typed_extras:
        if _GOES_WITH[name] != typed:
            raise InputError(f"--{name} goes with {_GOES_WITH[name]}, not with {typed}")
    if typed == "take" and "result" not in typed_extras:
        raise InputError("say with --result what it gave")
    return {
        "do": typed,
        **{name: _extra(name, text, schema) for name, text in typed_extras.items()},
    }


def _extra(name: str, text: str, schema: Mapping[str, Any]) -> Any:
    if name == "reason":
        return text
    if name == "result":
        return read_value(schema["properties"]["result"], text)
    value = _json(text)
    if not isinstance(value, dict):
        raise InputError('--arguments must be a JSON object, such as \'{"to": "Mara"}\'')
    return value


def read_value(schema: Mapping[str, Any], typed: str) -> Any:
    """What was typed, as a text or as JSON: whichever fits. A text, where neither does."""
    value = _json(typed)
    if value is None and typed != "null":
        return typed
    candidates = [typed, value] if schema.get("type") == "string" else [value, typed]
    return next((candidate for candidate in candidates if _fits(candidate, schema)), candidates[0])


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    try:
        check_answer(value, schema)
    except InputError:
        return False
    return True


def _json(text: str) -> Any:
    """The text read as JSON; None if it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def question_lines(ask: Mapping[str, Any]) -> str:
    """A question in lines: what is asked, what about, and what may be answered."""
    lines = [ask["question"]]
    about = ask.get("about") or {}
    if "tool" in about:
        lines.append(f"{about.get('tool')} {one_line_json(about.get('arguments'))}")
    elif about:
        lines.append(one_line_json(about))
    return "\n".join([*lines, f"({answers_in_words(ask['kind'], ask['schema'])})"])


def answers_in_words(kind: str, schema: Mapping[str, Any]) -> str:
    """What may be answered, in words."""
    if kind in WORDS:
        return ", ".join(WORDS[kind])
    if "enum" in schema:
        return ", ".join(map(typed_text, schema["enum"]))
    if schema.get("type") == "boolean":
        return "true, false"
    if schema.get("type") == "string":
        return "a text"
    return f"JSON that fits {one_line_json(schema)}" if schema else "a text or JSON"


def typed_text(value: Any) -> str:
    """A value as one types it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else one_line_json(value)


def one_line_json(value: Any) -> str:
    """A value as JSON of one line."""
    return json.dumps(value, ensure_ascii=False, default=str)
