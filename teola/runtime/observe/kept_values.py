"""What primitives of a query read and gave, as far as it is kept for people who look at it later.

    a value ends, or fails  ->  its first 2 KiB, without secrets  ->  trace.primitive("generate.1")

Of most values that is the value itself, so that keeping costs a reference. Nothing is converted
before its size is bounded, and nothing leaves the process's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from teola.engine import TextPart
from teola.graph import QUERY, Const, Ref
from teola.plain_json import tiny_bytes
from teola.run_secrets import Secrets
from teola.runtime.observe.excerpts import ValueExcerpt, bytes_of_text
from teola.schedule.plan import Plan

KeepValues = Literal["off", "small", "all"]
MOST_BYTES: Final[Mapping[str, int]] = {"small": 2 * 2**10, "all": 64 * 2**10}
"""Bytes that are kept of one value, by level."""
QUERY_BYTES: Final = 8 * 2**20
"""Bytes that are kept of all values of a query, with those of its parts and of queries inside
it."""
INTERNAL: Final = "sequence"
"""The port between an LLM call and its decodings, which holds nothing to look at."""


class ValueRoom:
    """How much may be kept of the values of one query, its parts and the queries inside it.

    level: "small" or "all". hide: takes secrets out of a text (None: there are none). left: bytes;
    none when everything was forgotten, after which nothing is kept any more.
    """

    __slots__ = ("forgotten", "hide", "left", "level", "most")

    def __init__(self, level: KeepValues, hide: Callable[[str], str] | None = None) -> None:
        self.level, self.most, self.hide = level, MOST_BYTES[level], hide
        self.left, self.forgotten = QUERY_BYTES, False

    def close(self) -> None:
        """Keep nothing from now on."""
        self.left, self.forgotten = 0, True

    @property
    def state(self) -> str:
        """The level, or why nothing more is kept: "full", "forgotten"."""
        if self.forgotten:
            return "forgotten"
        return self.level if self.left > 0 else "full"


def room_for(level: KeepValues, secrets: Secrets) -> ValueRoom | None:
    """The room of a query with these secrets; None where nothing is to be kept."""
    return None if level == "off" else ValueRoom(level, secrets.hidden if secrets else None)


class PromptPart(NamedTuple):
    """A part of a prompt. before: an earlier primitive has prefilled it."""

    role: str
    text: str
    before: bool


class KeptValues:
    """What is kept of one graph that ran. Inputs are not kept with each primitive that reads them:
    they are outputs of others, or inputs of the graph, but for pieces of lists."""

    __slots__ = ("_bytes", "_given", "_outputs", "_pieces", "_prompts", "room")

    def __init__(self, room: ValueRoom, inputs: Mapping[str, Any]) -> None:
        self.room = room
        self._bytes = 0
        self._given = self._excerpts(inputs) if room.left > 0 else {}
        self._outputs: dict[int, Mapping[str, Any]] = {}
        self._pieces: dict[int, Mapping[str, Any]] = {}
        self._prompts: dict[int, tuple[PromptPart, ...]] = {}

    @property
    def bytes(self) -> int:
        """Bytes of everything that is kept, about."""
        return self._bytes

    # --- while it runs ------------------------------------------------------------------------

    def gave(self, i: int, outputs: Mapping[str, Any], tiny: int | None = None) -> None:
        """Primitive `i` gave these outputs. Small ones are kept as they are, at once: this is done
        for every primitive. tiny: their `tiny_bytes`, if the caller knows them."""
        room = self.room
        if room.left <= 0:
            return
        if room.hide is None:
            size = tiny_bytes(outputs.values()) if tiny is None else tiny
            if size is not None:
                self._outputs[i] = outputs
                room.left -= size
                self._bytes += size
                return
        self._outputs[i] = self._excerpts(outputs)

    def read(self, i: int, pieces: Mapping[str, Any]) -> None:
        """Primitive `i` reads pieces of lists, by name of the input. Each try reads the same."""
        if self.room.left > 0 and i not in self._pieces:
            self._pieces[i] = self._excerpts(pieces)

    def prompted(self, i: int, before: Sequence[TextPart], parts: Sequence[TextPart]) -> None:
        """The call that primitive `i` leads is made with this prompt, in each of its tries. before:
        of the prefix."""
        most = self.room.most
        if self.room.left <= 0 or i in self._prompts:
            return
        prompt: list[PromptPart] = []
        for k, part in enumerate((*before, *parts)):
            if most <= 0:
                parts_left = len(before) + len(parts) - k
                prompt.append(PromptPart("", f"[cut: {parts_left:,} more parts]", False))
                break
            text = self._excerpt(part.text, most)
            most -= bytes_of_text(text)
            prompt.append(PromptPart(part.role.value, text, k < len(before)))
        self._prompts[i] = tuple(prompt)

    # --- when somebody looks ------------------------------------------------------------------

    def outputs(self, i: int) -> Mapping[str, Any] | None:
        """What primitive `i` gave; None: nothing, or it is not kept."""
        outputs = self._outputs.get(i)
        if outputs is not None and INTERNAL in outputs:
            return {name: value for name, value in outputs.items() if name != INTERNAL}
        return outputs

    def prompt(self, i: int) -> tuple[PromptPart, ...] | None:
        """The prompt of the call that primitive `i` leads."""
        return self._prompts.get(i)

    def inputs(self, plan: Plan, i: int) -> Mapping[str, Any] | None:
        """What primitive `i` reads, without prompts: by name, or, where a control primitive reads
        it, by what gives it. None: nothing of it is kept."""
        p = plan.primitives[i]
        named = p.inputs or tuple((str(ref), ref) for ref in plan.refs[i])
        shown = dict(self._pieces.get(i, {}))
        for name, value in named:
            if isinstance(value, Const):
                shown[name] = ValueExcerpt(self.room.hide, self.room.most, in_bytes=True).of(
                    value.value
                )
            elif isinstance(value, Ref) and name not in shown and value.port != INTERNAL:
                values = self._source(plan, value.producer)
                if value.port in values and value.items is None:
                    shown[name] = values[value.port]
        return shown or None

    def _source(self, plan: Plan, producer: str) -> Mapping[str, Any]:
        if producer == QUERY:
            return self._given
        return self._outputs.get(plan.index[producer], {})

    def forget(self) -> None:
        """Drop everything that is kept of this graph."""
        self._given = {}
        for kept in (self._outputs, self._pieces, self._prompts):
            kept.clear()
        if not self.room.forgotten:  # or it would be open again
            self.room.left += self._bytes
        self._bytes = 0

    def _excerpts(self, values: Mapping[str, Any]) -> dict[str, Any]:
        most = self.room.most
        return {
            name: self._excerpt(value, most) for name, value in values.items() if name != INTERNAL
        }

    def _excerpt(self, value: Any, most: int) -> Any:
        room = self.room
        most = max(0, min(most, room.left))
        excerpt = ValueExcerpt(room.hide, most, most, in_bytes=True)
        shown = excerpt.of(value)
        size = most - max(0, excerpt.left)
        room.left -= size
        self._bytes += size
        return shown


def kept_in(room: ValueRoom | None, inputs: Mapping[str, Any]) -> KeptValues | None:
    """What is kept of a graph that begins with these inputs; None where nothing is to be kept."""
    return None if room is None else KeptValues(room, inputs)
