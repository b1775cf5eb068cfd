"""What primitives of a query read and gave, as far as it is kept for people who look at it later.

    a value ends, or fails  ->  its first 2 KiB, without secrets  ->  trace.primitive("generate.1")

Of most values that is the value itself, so that keeping costs a reference. Nothing is converted
before its size is bounded, and nothing leaves the process's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from teola.engine import TextPart
from teola.run_secrets import Secrets
from teola.runtime.observe.excerpts import Excerpt, bytes_of_text

KeepValues = Literal["off", "small", "all"]
MOST_BYTES: Final[Mapping[str, int]] = {"small": 2 * 2**10, "all": 64 * 2**10}
"""Of one value."""
QUERY_BYTES: Final = 8 * 2**20
"""Of all values of a query, with those of its parts and of queries inside it."""
INTERNAL: Final = "sequence"
"""The port between an LLM call and its decodings, which holds nothing to look at."""


class ValueRoom:
    """How much may be kept of the values of one query, its parts and the queries inside it.

    level: "small" or "all". hide: takes secrets out of a text (None: there are none). left: bytes.
    open: False once everything was forgotten: nothing is kept any more.
    """

    __slots__ = ("hide", "left", "level", "most", "open")

    def __init__(self, level: KeepValues, hide: Callable[[str], str] | None = None) -> None:
        self.level, self.most, self.hide = level, MOST_BYTES[level], hide
        self.left, self.open = QUERY_BYTES, True

    @property
    def state(self) -> str:
        """The level, or why nothing more is kept: "full", "forgotten"."""
        if not self.open:
            return "forgotten"
        return self.level if self.left > 0 else "full"


def room_for(level: KeepValues, secrets: Secrets) -> ValueRoom | None:
    """Of a query with these secrets; None where nothing is to be kept."""
    return None if level == "off" else ValueRoom(level, secrets.hidden if secrets else None)


class PromptPart(NamedTuple):
    """A part of a prompt. before: an earlier primitive has prefilled it."""

    role: str
    text: str
    before: bool


class Kept(NamedTuple):
    """What is kept of one primitive; None: nothing."""

    prompt: tuple[PromptPart, ...] | None = None
    inputs: Mapping[str, Any] | None = None
    outputs: Mapping[str, Any] | None = None


NOTHING: Final = Kept()


def kept_in(room: ValueRoom | None) -> KeptValues | None:
    """Of a graph that begins; None where nothing is to be kept."""
    return None if room is None else KeptValues(room)


class KeptValues:
    """What is kept of one graph that ran, by the index of the primitive."""

    __slots__ = ("_bytes", "_of", "room")

    def __init__(self, room: ValueRoom) -> None:
        self.room = room
        self._of: dict[int, Kept] = {}
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """Of everything that is kept, about."""
        return self._bytes

    def of(self, i: int) -> Kept:
        """What is kept of primitive `i`."""
        return self._of.get(i, NOTHING)

    def prompted(self, i: int, before: Sequence[TextPart], parts: Sequence[TextPart]) -> None:
        """The call that primitive `i` leads is made with this prompt, in each of its tries. before:
        of the prefix."""
        if self._has_room() and self.of(i).prompt is None:
            most = self.room.most
            prompt = [*self._parts(before, True), *self._parts(parts, False)]
            for k, part in enumerate(prompt):
                if most <= 0:
                    prompt[k:] = [PromptPart("", f"[cut: {len(prompt) - k:,} more parts]", False)]
                    break
                text = self._excerpt(part.text, most)
                most -= bytes_of_text(text)
                prompt[k] = part._replace(text=text)
            self._of[i] = self.of(i)._replace(prompt=tuple(prompt))

    def _parts(self, parts: Sequence[TextPart], before: bool) -> Iterator[PromptPart]:
        return (PromptPart(part.role.value, part.text, before) for part in parts)

    def ended(
        self, i: int, inputs: Mapping[str, Any], outputs: Mapping[str, Any] | None = None
    ) -> None:
        """Primitive `i` has read and given this. outputs: None where it failed or was cut off."""
        if self._has_room():
            gave = self._excerpts(outputs) if outputs is not None else None
            prompt, read, _ = self.of(i)  # each try reads the same
            self._of[i] = Kept(prompt, self._excerpts(inputs) if read is None else read, gave)

    def read_so_far(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Excerpts of what a primitive reads that has not ended; they are not kept."""
        return KeptValues(ValueRoom(self.room.level, self.room.hide))._excerpts(inputs)

    def forget(self) -> None:
        """Drop everything that is kept of this graph."""
        self._of.clear()
        self.room.left += self._bytes
        self._bytes = 0

    def _has_room(self) -> bool:
        return self.room.open and self.room.left > 0

    def _excerpts(self, values: Mapping[str, Any]) -> dict[str, Any]:
        most = self.room.most
        return {
            name: self._excerpt(value, most) for name, value in values.items() if name != INTERNAL
        }

    def _excerpt(self, value: Any, most: int) -> Any:
        room = self.room
        most = min(most, max(0, room.left))
        if type(value) is str and len(value) <= most and value.isascii() and room.hide is None:
            size, shown = len(value), value
        else:
            excerpt = Excerpt(room.hide, most, most, in_bytes=True)
            shown = excerpt.of(value)
            size = most - max(0, excerpt.left)
        room.left -= size
        self._bytes += size
        return shown
