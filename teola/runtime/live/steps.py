"""Steps: what was done for a query that is not to be done twice, so that it can go on elsewhere.

    kept when done   texts of LLM calls, what functions gave that may change the world, what tools
                     gave an agent, branches that were taken, answers of people
    kept when begun  functions that may change the world

Everything else is worked out again from these. What is kept is committed before anybody reads it. A
step's key says where it stands in the query as it was declared, whatever passes made of it, so that
one that was done under one plan is found under another.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final, Protocol

from teola.engine import Hit
from teola.errors import OutputError
from teola.graph import Op, Primitive, ToolParams
from teola.plain_json import json_of
from teola.schedule.graph_run import NOTHING_KNOWN, GraphRun
from teola.tools.loop_life import here

MOST_VALUE: Final = 9 * 2**20  # a tool's result of 8 MiB, and the text that a model reads of it
MOST_QUERY: Final = 64 * 2**20
"""Characters of what is kept: of one step, and of all of a query."""
HIT: Final = "$hit"
ESCAPED: Final = "$map"
SLICE: Final = "#"
ASKED: Final = "?"
"""After the key of a question that was asked before: what it is about, as JSON."""
LONGEST_KEY: Final = 500
"""Characters; a longer one is known by its digest, as databases index no long texts."""


class Keeps(Protocol):
    """Where steps are kept."""

    async def begun(self, key: str) -> None:
        """A step is about to change the world."""
        ...

    async def done(self, key: str, result: str) -> None:
        """What a step gave, as JSON."""
        ...


class Nowhere:
    """Keeps steps only as long as the query is here."""

    async def begun(self, key: str) -> None:
        """Nothing to do."""

    async def done(self, key: str, result: str) -> None:
        """Nothing to do."""


class Steps:
    """Those of one query, and of all its parts. root: its id. found: by key, what was done before,
    as JSON, or None where it is not known whether a step that was begun has ended. on_unknown:
    whether people are asked then (`ask`) or the query fails (`fail`)."""

    def __init__(
        self,
        root: str,
        found: Mapping[str, str | None] | None = None,
        keeps: Keeps | None = None,
        on_unknown: str = "ask",
    ) -> None:
        self.found: dict[str, str | None] = dict(found or {})
        self.keeps: Keeps = keeps or Nowhere()
        self.on_unknown = on_unknown
        self._root = root
        self._size = sum(len(value) for value in self.found.values() if value)

    @property
    def outlive(self) -> bool:
        """Whether they are committed as they are done."""
        return not isinstance(self.keeps, Nowhere)

    def key(self, run: GraphRun, i: int) -> str:
        """The key of primitive `i` of a run; of the call that it leads, if it leads one."""
        return key_of_step(self._root, run, i)

    def known(self, run: GraphRun) -> frozenset[int]:
        """Primitives of a run whose results are kept, and what is needed for them only."""
        if not self.found:
            return NOTHING_KNOWN
        plan = run.plan
        known_indices = {
            i
            for i, p in enumerate(plan.primitives)
            if (plan.members[i] or kept(p)) and self._has(run, i)
        }
        for i in reversed(range(len(plan))):  # pieces of prompts stand before the rest
            if plan.rest[i] in known_indices:
                known_indices.add(i)
        return frozenset(known_indices)

    def _has(self, run: GraphRun, i: int) -> bool:
        key = self.key(run, i)
        cut = run.plan.primitives[i].batchable and any(
            other.startswith(key + SLICE) for other in self.found
        )
        return cut or key in self.found

    def result(self, key: str) -> Any:
        """What a step gave: `{"gives": outputs}` or `{"error": why}`; of an LLM's call its `text`,
        and whether that was `cut`; or the `answer` of people. None where it was begun, and nobody
        knows whether it ended."""
        text = self.found.get(key)
        if text is None:
            return None
        result = json.loads(text)
        return result if "answer" in result else unpacked(result)

    def joined(self, key: str, items: int) -> dict[str, Any] | None:
        """The outputs of a step of so many items that was kept in pieces; None where they are not
        all there."""
        outputs, at = dict[str, list[Any]](), 0
        for lo, hi, piece_key in sorted(self._pieces(key)):
            result = self.result(piece_key)
            if lo != at or result is None or not _is_piece(result.get("gives"), hi - lo):
                return None
            for port, piece in result["gives"].items():
                outputs.setdefault(port, []).extend(piece)
            at = hi
        return outputs if at == items and outputs else None

    def _pieces(self, key: str) -> Iterator[tuple[int, int, str]]:
        """First item, end and key of each piece that was begun."""
        before = key + SLICE
        for other in self.found:
            if other.startswith(before):
                lo, _, hi = other.removeprefix(before).partition(":")
                yield int(lo), int(hi), other

    def asked(self, key: str, about: Any) -> Any:
        """What a question is about: as the journal has it, or else `about`."""
        text = self.found.get(key + ASKED)
        return about if text is None else json.loads(text)

    async def begin(self, key: str) -> None:
        """Commit that a step is about to change the world."""
        await self.keeps.begun(key)
        self._size -= len(self.found.get(key) or "")
        self.found[key] = None

    async def keep(self, key: str, result: Mapping[str, Any]) -> None:
        """Commit what a step gave. Raises OutputError for what cannot be kept."""
        text = await here().aside(lambda: json_of(packed(result, key)), result)
        size = self._size + len(text) - len(self.found.get(key) or "")
        if len(text) > MOST_VALUE or size > MOST_QUERY:
            raise OutputError(
                f"{key}: its result has {len(text):,} characters, more than can be kept for a "
                f"query that outlives its server ({MOST_VALUE:,} each, {MOST_QUERY:,} in all); "
                "give a reference to it instead, or declare the function pure"
            )
        self._size = size  # of others, too, that are kept while this is committed
        await self.keeps.done(key, text)
        self.found[key] = text


def key_of_step(root: str, run: GraphRun, i: int) -> str:
    """What primitive `i` of a run is called in the query `root`, whatever passes made of it; of a
    call's head, the call."""
    plan = run.plan
    p = plan.primitives[plan.members[i][0] if plan.members[i] else i]
    key = f"{run.id}/{p.origin or p.id}".removeprefix(f"{root}/")
    return key if len(key) <= LONGEST_KEY else blake2b(key.encode(), digest_size=32).hexdigest()


def _is_piece(outputs: Any, items: int) -> bool:
    """Whether these are outputs for so many items."""
    return isinstance(outputs, dict) and all(
        isinstance(piece, list) and len(piece) == items for piece in outputs.values()
    )


def kept(p: Primitive) -> bool:
    """Whether what primitive `p` gives is a step; calls of LLMs are, too."""
    if p.op is Op.TOOL_CALL:
        params = p.params
        assert isinstance(params, ToolParams)
        return params.asks or not params.pure
    return p.op in (Op.CONDITION, Op.WAIT)


def packed(value: Any, key: str) -> Any:
    """A value as JSON has it. Raises OutputError for what would not come back as it was."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Hit):
        fields = [value.id, value.document, value.text, value.score, dict(value.metadata)]
        fields += [] if value.lexical is None else [value.lexical]
        return {HIT: packed(fields, key)}
    if isinstance(value, list):
        return [packed(item, key) for item in value]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        entries = {name: packed(item, key) for name, item in value.items()}
        return {ESCAPED: entries} if any(name.startswith("$") for name in value) else entries
    raise OutputError(
        f"{key}: it gave {type(value).__name__}, which cannot be kept for a query that outlives "
        "its server: give texts, numbers, lists, mappings or hits, or declare the function pure"
    )


def unpacked(value: Any) -> Any:
    """What `packed` made JSON of."""
    if isinstance(value, list):
        return [unpacked(item) for item in value]
    if isinstance(value, dict):
        if HIT in value:
            return Hit(*unpacked(value[HIT]))
        return {name: unpacked(item) for name, item in value.get(ESCAPED, value).items()}
    return value
