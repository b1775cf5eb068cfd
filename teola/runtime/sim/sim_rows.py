"""Rows in virtual time: each is a sequence with an identity on the StepServer of its instance.

The run, its windows and its slices are those that serve (`RowRun`, `RowSlices`); what a row says is
`Tokens`, so that beginnings that rows share are found in caches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, Protocol

from teola.engine import Usage
from teola.errors import EngineError, QueryCancelled
from teola.instance import StepServer, TokenSequence
from teola.kv import Access, excerpt_keys
from teola.policies.work import Slice, Work, ranges
from teola.profile import EngineProfile
from teola.runtime.asked_rows import NEAR, WINDOW, AskedRows, window_end
from teola.runtime.observe.trace import Trace
from teola.runtime.values import Composite, Tokens, number_of
from teola.schedule.events import (
    AbortRows,
    Cause,
    QueueEvent,
    RowFailure,
    RowsCame,
    RowsEnded,
    State,
)
from teola.schedule.row_run import RowRun

AHEAD: Final = WINDOW + NEAR


class SimRow(NamedTuple):
    """A row. prompt: all that it says, its instruction included. output: tokens of its answer.
    opens: see teola.runtime.rows."""

    prompt: Tokens
    output: int = 1
    opens: bool = False


@dataclass(frozen=True, slots=True)
class SimulatedRows:
    """How a run of rows ended; times in virtual seconds, the rest as in `RowsEnd`."""

    id: str
    state: State
    admitted: float
    finished: float
    asked: int
    failed: int
    tries: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    error: Exception | None

    @property
    def seconds(self) -> float:
        return self.finished - self.admitted


class SimAsked(AskedRows[SimRow]):
    """A run of rows in a simulation. rows: those that are still to come."""

    def __init__(
        self, run: RowRun, trace: Trace, rows: Iterator[SimRow], shared: float = 0.0
    ) -> None:
        super().__init__(run, trace, shared)
        self.wanted = 0
        self._rows, self._ahead = rows, list[SimRow]()

    def take(self) -> list[SimRow]:
        """The next window; none is left if it is empty."""
        ahead = self._ahead
        ahead += islice(self._rows, AHEAD - len(ahead))
        end = window_end(ahead, warming=self.run.warming)
        self._ahead = ahead[end:]
        return ahead[:end]

    def size(self, rows: list[SimRow]) -> tuple[int, int]:
        """Tokens of a row's prompt on average, and how many of them were found so far."""
        tokens = max(1, sum(row.prompt for row in rows) // len(rows))
        return tokens, self.found_of(tokens)

    def result(self, now: float) -> SimulatedRows:
        """How it ended."""
        finish = self.ended
        assert finish is not None
        return SimulatedRows(
            self.id,
            finish.state,
            self.run.began,
            now,
            self.asked,
            self.failed,
            self.tries,
            self.prompt_tokens,
            self.cached_tokens,
            self.completion_tokens,
            finish.cause.error if finish.cause is not None else None,
        )


def row_keys(asked: SimAsked, row: SimRow, profile: EngineProfile) -> tuple[int, ...]:
    """Keys of the full blocks of a row's prompt, where the engine keeps such; salted as calls'
    are."""
    if not profile.prefix_reuse:
        return ()
    tenant = asked.run.asker.tenant
    salt = number_of(tenant if profile.keeps_prefixes else f"query {asked.id}")
    prompt = row.prompt
    if isinstance(prompt, Composite):
        return prompt.keys(profile.block_tokens, salt)
    return excerpt_keys((prompt.excerpt(),), profile.block_tokens, salt)


class RowId(NamedTuple):
    """Names the sequence of a row."""

    batch: int
    run: str
    window: int
    lo: int
    row: int


class _OnServer:
    """A slice on a server, and what has become of it since the core was told last."""

    __slots__ = ("asked", "ended", "failed", "firsts", "left", "sequences", "work")

    def __init__(self, asked: SimAsked | None, work: Work, rows: int) -> None:
        self.asked, self.work, self.left = asked, work, rows
        self.sequences: dict[int, TokenSequence] = {}
        self.ended: list[TokenSequence] = []
        self.failed: list[RowFailure] = []
        self.firsts = 0


class RowsWorld(Protocol):
    """The simulation, as rows on an instance know it."""

    now: float

    def asked(self, run: str) -> SimAsked | None:
        """A run of rows in flight."""
        ...

    def handle(self, event: QueueEvent, now: float) -> None:
        """Tell the core."""
        ...


class RowsOnServer:
    """The rows on one instance."""

    def __init__(
        self, sim: RowsWorld, engine: str, profile: EngineProfile, server: StepServer
    ) -> None:
        self._sim, self._engine, self._profile, self._server = sim, engine, profile, server
        self._slices: dict[tuple[int, str, int, int], _OnServer] = {}
        self._dirty: dict[tuple[int, str, int, int], None] = {}

    def begin(self, batch: int, sent: Slice) -> None:
        """Rows have arrived."""
        work, lo, hi = sent
        asked = self._sim.asked(work.run)
        key = batch, work.run, work.primitive, lo
        on_server = self._slices[key] = _OnServer(asked, work, hi - lo)
        self._dirty[key] = None
        for row in range(lo, hi):
            if asked is None:
                self._fails(
                    on_server, row, QueryCancelled("the run ended before its rows were asked")
                )
                continue
            said = asked.windows[work.primitive][row]
            keys = row_keys(asked, said, self._profile)
            access = Access((asked.run.asker.app, "rows"), 0, asked.run.asker.program)
            id = RowId(*key, row)
            sequence = TokenSequence(id, int(said.prompt), said.output, (), keys, access=access)
            try:
                self._server.add(sequence)
            except EngineError as error:
                self._fails(on_server, row, error)
            else:
                on_server.sequences[row] = sequence

    def _fails(self, one: _OnServer, row: int, error: EngineError | QueryCancelled) -> None:
        one.failed.append(RowFailure(row, Cause(error)))
        one.left -= 1

    def event(self, id: RowId, kind: str) -> None:
        """A row gave its first token, or has ended."""
        key = id[:4]
        on_server = self._slices[key]
        self._dirty[key] = None
        if kind == "first":
            on_server.firsts += 1
        elif kind == "end":
            on_server.ended.append(on_server.sequences.pop(id.row))
            on_server.left -= 1

    def abort(self, command: AbortRows) -> None:
        """Stop what is left of a slice."""
        key = command.batch, command.run, command.primitive, command.lo
        on_server = self._slices.get(key)
        if on_server is None:
            return
        for row, sequence in list(on_server.sequences.items()):
            self._server.abort(sequence.id, self._sim.now)
            begun = sequence.generated > 0
            on_server.failed.append(RowFailure(row, Cause(QueryCancelled("aborted")), begun))
            on_server.left -= 1
        on_server.sequences.clear()
        self._dirty[key] = None

    def tell(self) -> None:
        """Tell the core what has become of them."""
        dirty, self._dirty = self._dirty, {}
        for key in dirty:
            on_server = self._slices[key]
            ended, on_server.ended = on_server.ended, []
            failed, on_server.failed = on_server.failed, []
            firsts, on_server.firsts = on_server.firsts, 0
            if not on_server.left:
                del self._slices[key]
            rows = {sequence.id.row: sequence for sequence in ended}  # type: ignore[attr-defined]
            event = RowsEnded(
                self._engine,
                *key,
                ended=ranges(sorted(rows)),
                failed=failed,
                firsts=firsts,
                cached=sum(sequence.cached for sequence in ended) if ended else None,
                generated=sum(sequence.generated for sequence in ended) if ended else None,
                given=[
                    Usage(sequence.prompt, sequence.generated, sequence.cached)
                    for sequence in ended
                ],
            )
            self._sim.handle(event, self._sim.now)


def came(asked: SimAsked, rows: list[SimRow], profile: EngineProfile, *, by_keys: bool) -> RowsCame:
    """What a run is told of its next window. by_keys: whether its engine's routing wants keys."""
    tokens, found = asked.size(rows)
    keys = row_keys(asked, rows[0], profile)[: tokens // profile.block_tokens] if by_keys else ()
    return RowsCame(len(rows), tokens, found, keys)
