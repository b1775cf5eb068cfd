"""Ends a streamed text before the first of some strings, giving out nothing that may yet be one."""

from __future__ import annotations

from collections.abc import Sequence


class Stops:
    """stop: the strings; empty ones do not count. What has been given out, at the end, is the
    text before the first of them to be complete."""

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self.strings = tuple(s for s in stop if s)
        self._held = ""
        self.reached = False

    def feed(self, text: str, *, last: bool = False) -> str:
        """The text that is certain now. last: none follows, so nothing is held back."""
        if self.reached:
            return ""
        if not self.strings:
            return text
        text = self._held + text
        ends = [(at + len(stop), at) for stop in self.strings if (at := text.find(stop)) >= 0]
        if ends:
            self.reached = True
            return text[: min(ends)[1]]
        hold = 0 if last else max((_overlap(text, stop) for stop in self.strings), default=0)
        self._held = text[len(text) - hold :]
        return text[: len(text) - hold]


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` with which `stop` begins."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
