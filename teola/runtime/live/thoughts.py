"""Reasoning that models write at the beginning of an answer, `<think>...</think>`, is left out.

    start -- "<think>" --> thinking -- "</think>" --> after -- no space --> answer, to the end
    start -- anything else ---------------------------------------------> answer

A tag may come in pieces, so what may become one is held back. Tags further on are text. Reasoning
that is not closed lasts to the end: nothing of the answer is left.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from enum import Enum
from typing import Final

from teola.engine import Call, Delta, LanguageModel
from teola.runtime.outputs import no_delta, stream_of

OPENS: Final = "<think>"
CLOSES: Final = "</think>"
MOST_SPACE: Final = 64
"""Characters of white space before the tag; more is an answer."""


class _At(Enum):
    START = "start"
    THINKING = "thinking"
    AFTER = "after"
    ANSWER = "answer"


class WithoutThoughts:
    """Calls `model` and passes on what it writes without its reasoning. The first delta comes when
    the model's does, perhaps without text."""

    def __init__(self, model: LanguageModel) -> None:
        self._model, self.spec = model, model.spec

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        """See LanguageModel."""
        spoken, first = Spoken(), True
        async with stream_of(self._model, call) as stream:
            async for delta in stream:
                if not isinstance(delta, Delta):
                    raise no_delta(self.spec.name, delta)
                text = spoken.feed(delta.text)
                if delta.finish_reason is not None:
                    text += spoken.end()
                if first or text or delta.finish_reason is not None or delta.usage is not None:
                    first = False
                    yield delta if text == delta.text else replace(delta, text=text)
        if rest := spoken.end():
            yield Delta(rest)


class Spoken:
    """Passes on a text that comes in pieces, without the reasoning that it begins with."""

    def __init__(self) -> None:
        self._at = _At.START
        self._held = ""

    def feed(self, text: str) -> str:
        """What more of the answer there is."""
        if self._at is _At.ANSWER:
            return text
        self._held += text
        if self._at is _At.START:
            begun = self._held[:MOST_SPACE].lstrip()
            if begun.startswith(OPENS):
                self._at = _At.THINKING
            elif len(self._held) >= MOST_SPACE or not OPENS.startswith(begun):
                self._at = _At.ANSWER
        if self._at is _At.THINKING:
            _, closed, rest = self._held.partition(CLOSES)
            self._held = rest if closed else self._held[-len(CLOSES) + 1 :]
            self._at = _At.AFTER if closed else _At.THINKING
        if self._at is _At.AFTER:
            self._held = self._held.lstrip()
            self._at = _At.ANSWER if self._held else _At.AFTER
        return self._rest() if self._at is _At.ANSWER else ""

    def end(self) -> str:
        """What was held back and was no tag after all."""
        return self._rest() if self._at is _At.START else ""

    def _rest(self) -> str:
        held, self._held = self._held, ""
        return held
