"""The JSON list in a model's answer, item by item (see parsers.py).

Only the borders of the items are found here; whether an item is well formed, the json module
says. Nothing is read twice: after a bracket that opened no JSON, the search goes on behind the
part that was read.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any, Final, NoReturn

from teola.runtime.hosts.grammar import END, Emit, Malformed, Scan

MAX_DEPTH: Final = 100
"""Nesting of one item."""

_SPACE: Final = frozenset(" \t\r\n")
_SCALAR: Final = frozenset("+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


class _NotJson(Exception):
    """A bracket opened no JSON. `resume`: the first character not used, "" if all were."""

    def __init__(self, resume: str) -> None:
        self.resume = resume


def json_list(emit: Emit) -> Scan:
    """The items of the first JSON list, each as soon as it is complete."""
    return _JsonList(emit).scan()


def json_calls(emit: Emit) -> Scan:
    """The items of the list `calls` of the first JSON object, if it has one."""
    return _JsonList(emit, "calls").scan()


class _JsonList:
    """Finds the list and walks it. key: it stands in an object under this name, which may have
    none (None: in any, and there is one).

    A bracket that turns out to open no JSON was prose, and the search goes on behind it; once an
    item was emitted there is no way back, and what breaks then is malformed. Numbers alone, in
    the middle of a line ("as [1] says"), may be a citation: they wait for the end of the text,
    and a later list takes their place.
    """

    def __init__(self, emit: Emit, key: str | None = None) -> None:
        self._emit, self._key = emit, key
        self._emitted = 0
        self._held: list[int] | None = None  # the numbers of what may be a citation

    def scan(self) -> Scan:
        citation: list[int] | None = None
        midline = False
        character = yield
        while character != END:
            if character != "{" and (character != "[" or self._key is not None):
                midline = character != "\n" and (midline or not character.isspace())
                character = yield
                continue
            self._held = [] if midline and character == "[" else None
            try:
                has_list = yield from (self._array() if character == "[" else self._object())
            except _NotJson as broken:
                if self._emitted or broken.resume == END:
                    flaw = "does not end" if broken.resume == END else "breaks off"
                    raise Malformed(
                        f"expected a JSON list, it {flaw} (complete items: {self._emitted})"
                    ) from None
                character = broken.resume or (yield)
            else:
                if (has_list and self._held is None) or self._key is not None:
                    return
                citation = self._held if has_list else citation
                character = yield
            midline = True
        if citation is None and self._key is not None:
            return  # whether it is what was asked for, its schema says
        if citation is None:
            raise Malformed("expected a JSON list, found none")
        for number in citation:
            self._emit(number)

    def _array(self) -> Generator[None, str, bool]:
        """The items, from behind "[" to "]"."""
        character = yield from _after_space()
        if character == "]":
            return True
        while True:
            value, character = yield from _value(character)
            self._deliver(value)
            character = yield from _after_space(character)
            if character == "]":
                return True
            if character != ",":
                raise _NotJson(character)
            character = yield from _after_space()

    def _object(self) -> Generator[None, str, bool]:
        """The members, from behind "{" to "}"; whether one of them was a list."""
        has_list = False
        character = yield from _after_space()
        if character == "}":
            return has_list
        while True:
            if character != '"':
                raise _NotJson(character)
            key, character = yield from _value(character)
            if (character := (yield from _after_space(character))) != ":":
                raise _NotJson(character)
            character = yield from _after_space()
            if character != "[" or self._key not in (None, key):
                _, character = yield from _value(character)
            elif has_list:
                raise Malformed("expected one JSON list, the object holds several")
            else:
                has_list, character = (yield from self._array()), ""
            character = yield from _after_space(character)
            if character == "}":
                return has_list
            if character != ",":
                raise _NotJson(character)
            character = yield from _after_space()

    def _deliver(self, value: Any) -> None:
        if self._held is not None and type(value) is int:
            self._held.append(value)
            return
        for item in (*(self._held or ()), value):
            self._emit(item)
            self._emitted += 1
        self._held = None


def _after_space(character: str = "") -> Generator[None, str, str]:
    """The first character, from `character` on, that is no white space."""
    while not character or character in _SPACE:
        character = yield
    return character


def _value(character: str) -> Generator[None, str, tuple[Any, str]]:
    """The JSON value that begins with `character`, and what was read beyond it ("" if nothing)."""
    text, beyond = [character], ""
    if character == '"':
        yield from _string(text)
    elif character in ("[", "{"):
        yield from _nested(text)
    else:
        text, beyond = [], character
        while beyond in _SCALAR:
            text.append(beyond)
            beyond = yield
    try:
        return _checked("".join(text)), beyond
    except (ValueError, RecursionError):
        raise _NotJson(beyond) from None


def _checked(text: str) -> Any:
    """The value of a complete piece of JSON. Raises ValueError, also for lone surrogates."""
    value = json.loads(text, parse_constant=_refuse)
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _string(text: list[str]) -> Scan:
    """Appends up to the closing quote."""
    escaped = False
    while True:
        character = yield
        if character == END:
            raise _NotJson(END)
        text.append(character)
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == '"':
            return


def _nested(text: list[str]) -> Scan:
    """Appends up to the bracket that closes the first one; whether they match is checked later."""
    depth = 1
    while depth:
        character = yield
        if character == END or depth > MAX_DEPTH:
            raise _NotJson(character)
        text.append(character)
        if character == '"':
            yield from _string(text)
        elif character in ("[", "{"):
            depth += 1
        elif character in ("]", "}"):
            depth -= 1
