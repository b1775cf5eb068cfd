"""Which calls of a query begin alike, and when the next of them reads what this one leaves.

    generate.1   instruction │ question │ piece 1   ──╮ at once: it reads what comes next
    generate.2   instruction │ question │ piece 2   ◀─╯──╮ 1.2 s later
    generate.3   instruction │ question │ piece 3      ◀─╯ nobody reads the question any more, and
                                                           of the others nobody read the pieces

Whoever keeps KV blocks is so told what is needed soon and what not any more. All of it follows from
the plan: parts that are the same literal or the same Ref hold the same tokens, and a call comes
when it has to begin at the latest (`Estimate.latest_s`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from teola.graph import Part, Primitive, Prompt, Role
from teola.graph.ops import PREFILLS
from teola.policies.work import WorkSpec

NEXT: Final = 4
"""Calls that are looked at for each beginning: of those that are planned behind a call some may
have come before it, and some may never come."""
GOES_ON: Final = (Role.INSTRUCTION, Role.HISTORY)
"""What the next query of a conversation says again."""


class LaterRead(NamedTuple):
    """Primitive `reader` begins with the first `parts` parts of another one's whole prompt, so many
    seconds after the end of that one's call (None: nobody knows how many)."""

    reader: int
    parts: int
    seconds: float | None


class Beginning(NamedTuple):
    """What a prefilling's prompt begins with.

    parts: the whole prompt, with the pieces of it that are computed before.
    common: how many of them, from the first on, other queries say as well: literals, and what was
        said of a whole conversation.
    later: who reads some of them again, first those that read most, of these the soonest.
    """

    parts: tuple[Part, ...]
    common: int
    later: tuple[LaterRead, ...]


class _Node:
    """Prefillings whose prompts begin alike, in the order in which they are planned."""

    __slots__ = ("after", "readers")

    def __init__(self) -> None:
        self.after: dict[Part, _Node] = {}
        self.readers: dict[int, int] = {}
        """Reader -> its place in that order."""


def beginnings(
    primitives: Sequence[Primitive], specs: Sequence[WorkSpec], sequence_of: Sequence[int]
) -> dict[int, Beginning]:
    """The beginning of every prefilling whose whole prompt is known, by primitive. specs,
    sequence_of: as a Plan has them."""
    prompts = {i: _whole(primitives, sequence_of, i) for i, p in enumerate(primitives) if _reads(p)}
    order = sorted(prompts, key=lambda i: (specs[i].estimate.latest_s, -specs[i].depth, i))
    roots: dict[str, _Node] = {}
    paths: dict[int, list[_Node]] = {}
    for i in order:
        node = roots.setdefault(specs[i].engine, _Node())
        path = paths[i] = []
        for part in prompts[i]:
            node = node.after.setdefault(part, _Node())
            node.readers[i] = len(node.readers)
            path.append(node)
    listed = {id(node): [*node.readers] for path in paths.values() for node in path}
    by_primitive = {}
    for i, path in paths.items():
        later: dict[int, LaterRead] = {}
        for count in range(len(path), 0, -1):
            node = path[count - 1]
            behind = node.readers[i] + 1
            for j in listed[id(node)][behind : behind + NEXT]:
                later.setdefault(j, LaterRead(j, count, _seconds(specs, i, j)))
        by_primitive[i] = Beginning(prompts[i], _common(prompts[i]), tuple(later.values()))
    return by_primitive


def _reads(p: Primitive) -> bool:
    return p.op in PREFILLS


def _whole(primitives: Sequence[Primitive], sequence_of: Sequence[int], i: int) -> tuple[Part, ...]:
    """The parts of its prompt and of those before it; none if it goes on with an answer."""
    parts: tuple[Part, ...] = ()
    while i >= 0:
        p = primitives[i]
        if not _reads(p):
            return ()
        prompt = p.input("prompt")
        assert isinstance(prompt, Prompt)
        parts, i = prompt.parts + parts, sequence_of[i]
    return parts


def _common(parts: Sequence[Part]) -> int:
    said_again = takewhile(lambda p: isinstance(p.content, str) or p.role in GOES_ON, parts)
    return sum(1 for _ in said_again)


def _seconds(specs: Sequence[WorkSpec], i: int, j: int) -> float | None:
    """From the end of call `i` to the beginning of call `j`."""
    call = [specs[k].estimate for k in (i, *specs[i].members)]
    if not call[0].total_s:  # times are not known
        return None
    end_s = max(estimate.latest_s + estimate.takes_s for estimate in call)
    return max(0.0, specs[j].estimate.latest_s - end_s)
