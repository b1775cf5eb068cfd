"""From an answer's text to its value: models ramble, so choices and patterns are searched for.

The match that begins first counts; of those that begin together the longer one, then the one that
was given first. Words are whole words: "No" is not in "cannot".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from teola.tables.llm_call import Choice, LlmCall

Extract = Callable[[str], str | None]
"""An answer's text -> the value's text, or None where nothing matches."""


def extractor(call: LlmCall) -> Extract:
    """The function that reads the value from a call's answer."""
    if call.choices is not None:
        return _choosing(call.choices)
    if call.pattern is not None:
        return _matching(call.pattern)
    if call.schema is not None:
        return _satisfying(json.loads(call.schema))
    return str.strip


def wanted_of(call: LlmCall) -> str:
    """The value that a call's answers are searched for, described in words."""
    if call.choices is not None:
        return "choice of " + ", ".join(map(choice_text, call.choices))
    if call.pattern is not None:
        return f"match of {call.pattern}"
    return "JSON of the schema" if call.schema is not None else f"value of type {call.type}"


def first_match(text: str, patterns: list[str]) -> tuple[int, str] | None:
    """The index of the pattern that matches first, and the text that it matched. patterns: regular
    expressions."""
    best: tuple[int, int, int, str] | None = None
    for at, pattern in enumerate(patterns):
        match = re.search(pattern, text, re.IGNORECASE)
        if match is not None:
            rank = (match.start(), -(match.end() - match.start()), at, match.group())
            best = rank if best is None or rank < best else best
    return None if best is None else (best[2], best[3])


def word(text: str) -> str:
    """A pattern for a text as a whole word, where its ends are parts of words."""
    before = r"\b" if re.match(r"\w", text) else ""
    after = r"\b" if re.search(r"\w$", text) else ""
    return f"{before}{re.escape(text)}{after}"


def choice_text(choice: Choice) -> str:
    """A choice as text."""
    return str(choice).lower() if isinstance(choice, bool) else str(choice)


def enforceable(pattern: str) -> str | None:
    """The pattern as engines can hold an answer to it; None where their grammars have no such
    thing: the answer is searched for it in any case."""
    bare = re.sub(r"^(\^|\\b)+|(\$|\\b)+$", "", pattern)
    unknown = re.search(r"\(\?(?!:)|\\[bBAZz1-9]|[\^$](?![^\[]*\])", bare)
    return None if unknown or not bare else bare


def _choosing(choices: tuple[Choice, ...]) -> Extract:
    texts = [choice_text(choice) for choice in choices]
    patterns = [word(text) for text in texts]
    by_text = {text: text for text in texts}

    def extract(text: str) -> str | None:
        # Nearly all answers are a choice and nothing else.
        if (exact := by_text.get(text)) is not None:
            return exact
        at = first_match(text, patterns)
        return None if at is None else texts[at[0]]

    return extract


def _matching(pattern: str) -> Extract:
    compiled = re.compile(pattern, re.IGNORECASE)

    def extract(text: str) -> str | None:
        match = compiled.search(text)
        return None if match is None else match.group()

    return extract


def _satisfying(schema: Any) -> Extract:
    from teola.validators import Draft202012Validator

    validator = Draft202012Validator(schema)
    decoder = json.JSONDecoder()

    def extract(text: str) -> str | None:
        starts = [0, *(m.start() for m in re.finditer(r"[\[{\"]", text))]
        for start in starts[:100]:
            try:
                value, _ = decoder.raw_decode(text, start)
                fits = validator.is_valid(value)
            except (ValueError, RecursionError):  # "[[[[..." of a model that repeats itself
                continue
            if fits:
                return json.dumps(value, ensure_ascii=False)
        return None

    return extract
