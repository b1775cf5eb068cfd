"""A simulated LLM instance: a StepServer, driven through virtual time by the `sim` driver.

Long because one sequence passes through all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import Any, NamedTuple, Protocol, cast

from teola.engine import NextRead, Usage
from teola.errors import EngineError, QueryCancelled
from teola.instance import Step, StepServer, TokenSequence
from teola.kv import Access, BlockCache, looks_ahead
from teola.kv.policies import Policy
from teola.profile import EngineProfile
from teola.runtime.in_flight import Query
from teola.runtime.sim.content import (
    Prefix,
    PromptContent,
    answer_of,
    ends_of_parts,
    prompt_said,
    salt_of,
)
from teola.runtime.sim.outcome import Delivery, Outcomes
from teola.runtime.sim.processors import Share
from teola.runtime.sim.sim_rows import RowId, RowsOnServer, SimAsked
from teola.runtime.sim.troubles import Trouble
from teola.schedule.events import (
    AbortRequest,
    AbortRows,
    CallEnded,
    Cause,
    Dispatch,
    FirstToken,
    MemberCompleted,
    Outcome,
    PrefixChanged,
    QueueEvent,
)


class World(Protocol):
    """The simulation, as an instance in it knows it. now: virtual seconds."""

    now: float
    outcomes: Outcomes

    @property
    def queries(self) -> Mapping[str, Query]:
        """Queries in flight, by id."""
        ...

    def at(self, at: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call it at that time."""
        ...

    def work(
        self, server: Stepper, seconds: float, call: Callable[..., None], *arguments: Any
    ) -> Share | None:
        """Call it when so many seconds of work are done. The work, where others hold it up."""
        ...

    def handle(self, event: QueueEvent, now: float) -> None:
        """Tell the core."""
        ...

    def wrote(
        self, query: Query, head: int, place: tuple[str, int, int], k: int, item: Any, now: float
    ) -> None:
        """A call has written an item of its list; see Driver."""
        ...

    def worked(self, engine: str, seconds: float) -> None:
        """An instance has done so many seconds of work."""
        ...

    @property
    def troubles(self) -> Mapping[tuple[str, int], Trouble]:
        """Troubles of instances, by engine and number."""
        ...

    def rest(self, stepper: Stepper) -> None:
        """It has no step under way: `kick` it when all has happened that happens now."""
        ...

    def waits(self, engine: str, id: tuple[str, int]) -> bool:
        """Whether somebody waits for this call."""
        ...

    def outrun(self, engine: str, id: tuple[str, int], batch: int) -> bool:
        """Whether another try of this call goes on alone, and the one in this batch is over."""
        ...

    def reads(self, query: Query, i: int) -> tuple[NextRead, ...]:
        """When the prompt of call `i`, which is about to begin, is read again, by its parts."""
        ...

    def asked(self, run: str) -> SimAsked | None:
        """A run of rows in flight, by its id."""
        ...

    def holds(self, id: tuple[str, int], release: Callable[[], None]) -> None:
        """An instance keeps this prefix until `release` is called: once nobody reads it."""
        ...


NOTHING = PromptContent((), 0)


class Called(NamedTuple):
    """A call that is on an instance. said: its prompt, with the prefix computed before. sequence:
    as the instance sees it (None: it is not there). ends: of the prompt's parts, in tokens, where
    somebody wants to know."""

    batch: int
    deliveries: list[Delivery]
    said: PromptContent
    sequence: TokenSequence | None = None
    ends: tuple[int, ...] = ()


class Stepper:
    """Drives one StepServer through virtual time. eviction: its cache's policy. tells: what
    its cache keeps. dead: its instance died, and another has its place."""

    def __init__(
        self,
        sim: World,
        engine: str,
        instance: int,
        profile: EngineProfile,
        eviction: Policy,
        *,
        tells: bool = False,
    ) -> None:
        self.sim, self.engine, self.instance, self.profile = sim, engine, instance, profile
        self._tells, self.dead = tells, False
        self._looks_ahead = looks_ahead(eviction)
        cache = BlockCache(
            profile.kv_blocks,
            profile.block_tokens,
            eviction,
            noting=tells,
            host=profile.host_blocks,
        )
        self.server = StepServer(profile.max_batch, profile.max_sequences, cache)
        self.calls: dict[tuple[str, int], Called] = {}
        self.rows = RowsOnServer(sim, engine, profile, self.server)
        self._step: Step | None = None
        self._job: Share | None = None
        self._began = self._takes = 0.0
        self._leaving: list[tuple[str, int]] = []
        """Prefixes to be given up when the step under way has ended."""
        self._stretch = 1.0
        """How many times as long as by its profile its step takes."""
        self._hung = 0
        """Repeats of its step that are done but told to nobody before it hangs no longer."""
        self._version = 0

    def arrive(self, command: Dispatch) -> None:
        sim = self.sim
        if self.dead:
            return
        for piece in command.slices:
            work = piece.work
            if work.row_tokens:
                self.rows.begin(command.batch, piece)
                continue
            id = (work.run, work.primitive)
            query = sim.queries.get(work.run)
            over = not sim.waits(self.engine, id) or sim.outrun(self.engine, id, command.batch)
            if query is None or over:
                self._end(id, Called(command.batch, [], NOTHING))
                continue
            self._begin(id, command.batch, query)
        self.rows.tell()
        self._interrupt()

    def _begin(self, id: tuple[str, int], batch: int, query: Query) -> None:
        """Add a call to the server."""
        length, deliveries = self.sim.outcomes.call(query, id[1])
        profile, salt = self.profile, salt_of(query, self.profile)
        content = prompt_said(
            query, id[1], profile.block_tokens if profile.prefix_reuse else 0, salt
        )
        ends = ends_of_parts(query, id[1]) if self._looks_ahead else ()
        category = query.run.asker.app, query.plan.primitives[id[1]].component
        sequence = TokenSequence(
            id,
            content.tokens,
            length,
            tuple([delivery.at for delivery in deliveries]),
            content.keys,
            access=Access(category, 0, query.run.asker.program, self._reads(query, id[1], ends)),
        )
        called = self.calls[id] = Called(batch, deliveries, content, sequence, ends)
        if profile.prefix_reuse:
            sequence.keep = not deliveries
            sequence.grown = partial(content.grown, answer_of(deliveries, length), salt)
        try:
            self.server.add(sequence)
        except EngineError as error:
            self.calls.pop(id)
            self._end(id, called, Cause(error))

    def _reads(self, query: Query, i: int, ends: tuple[int, ...]) -> tuple[NextRead, ...]:
        """When which blocks of a call's prompt are read again, if the cache wants to know."""
        if not self._looks_ahead:
            return ()
        tokens, size = (0, *ends), self.profile.block_tokens
        return tuple(
            NextRead(tokens[until] // size if until <= len(ends) else until, seconds)
            for until, seconds in self.sim.reads(query, i)
        )

    def abort(self, command: AbortRequest) -> None:
        id = (command.run, command.primitive)
        if self.server.abort(id, self.sim.now):
            self._end(id, self.calls.pop(id))
            self._interrupt()

    def abort_rows(self, command: AbortRows) -> None:
        """Stop the rows of a slice."""
        self.rows.abort(command)
        self.rows.tell()
        self._interrupt()

    def release(self, id: tuple[str, int]) -> None:
        """Give up the prefix that a call has left; somebody may wait for its room. Where decodings
        go on that evict others, only when they have come so far."""
        step, server = self._step, self.server
        later = step is not None and server.evicts(step)
        if later:
            self._leaving.append(id)
        else:
            server.release(id, self.sim.now)
        if (later or server.waiting) and not self.dead:
            self._interrupt()

    def kick(self, now: float) -> None:
        """Begin the next step if none is running."""
        if self._step is not None:
            return
        trouble = self._trouble
        if trouble is not None and now < trouble.hangs_until:
            return
        self._stretch = trouble.stretch(now) if trouble is not None else 1.0
        step = self.server.plan(now)
        if step is not None:
            self._step, self._began = step, now
            self._version += 1
            repeat = step.repeat
            self._work(self._seconds(step, repeat), repeat)

    @property
    def _trouble(self) -> Trouble | None:
        return self.sim.troubles.get((self.engine, self.instance))

    def disturb(self) -> None:
        """It begins to hang or to be slow, or does no longer."""
        if not self.dead:
            self._interrupt()

    def _work(self, seconds: float, repeats: int, done: float = 0.0) -> None:
        """Take so long for the step under way, of which so much is done."""
        self._takes = seconds
        left = max(0.0, seconds - done)
        self._job = self.sim.work(self, left, self._done, self._version, repeats)

    def _tell_prefixes(self, now: float) -> None:
        """Tell the core what is kept since it was told last, and what is not any more."""
        if self._tells:
            stored, evicted = self.server.cache.changes()
            if stored or evicted:
                told = PrefixChanged(self.engine, self.instance, stored, evicted)
                self.sim.handle(told, now)

    def _seconds(self, step: Step, repeat: int) -> float:
        profile, swapped = self.profile, step.swapped
        copying = profile.host_swap_s + swapped * profile.host_block_s if swapped else 0.0
        seconds = copying + profile.step.seconds(
            step.decodes, step.context, step.tokens, step.pairs, repeat
        )
        return seconds if self._stretch == 1.0 else self._stretch * seconds

    def _interrupt(self) -> None:
        """Something changed: decode only to the next step boundary, then plan anew."""
        step = self._step
        if step is None:
            self.sim.rest(self)
        elif self._hung:
            self._version += 1
            self._hangs_on()
        elif step.repeat > 1:
            time, passed, job = self.profile.step, self.sim.now - self._began, self._job
            if job is not None:
                passed = self._takes - job.seconds_left()
            repeats = time.steps(passed / self._stretch, step.decodes, step.context)
            if repeats < step.repeat:
                self._version += 1
                seconds = self._seconds(step, repeats)
                if job is not None:
                    job.stop()
                    self._work(seconds, repeats, passed)
                else:
                    at = max(self._began + seconds, self.sim.now)
                    self.sim.at(at, self._done, self._version, repeats)

    def _hangs_on(self) -> None:
        """Tell what is done when it hangs no longer: meanwhile no further step is done."""
        assert self._trouble is not None
        until = self._trouble.hangs_until
        if until < inf:
            self.sim.at(max(until, self.sim.now), self._done, self._version, self._hung)

    def _done(self, version: int, repeats: int) -> None:
        if version != self._version or self._step is None or self.dead:
            return
        trouble = self._trouble
        if trouble is not None and self.sim.now < trouble.hangs_until:
            self._hung = repeats
            self._hangs_on()
            return
        step, self._step, self._hung = self._step, None, 0
        self.sim.rest(self)
        sim, now = self.sim, self.sim.now
        sim.worked(self.engine, now - self._began)
        events = self.server.finish(step, now, repeats)
        while self._leaving:
            self.server.release(self._leaving.pop(0), now)
        self._tell_prefixes(now)
        for event in events:
            if type(event.id) is RowId:
                self.rows.event(event.id, event.kind)
                continue
            run, i = id = cast("tuple[str, int]", event.id)
            query = sim.queries.get(run)
            if sim.outrun(self.engine, id, self.calls[id].batch):
                if event.kind == "end":
                    self._end(id, self.calls.pop(id))
                continue  # by a token of this very moment: what comes of it is nobody's
            if event.kind == "first":
                if query is not None:
                    self._store_sequence(query, i, self.calls[id], now)
                sim.handle(FirstToken(self.engine, self.instance, run, i), now)
            elif event.kind == "mark":
                called = self.calls[id]
                delivery = called.deliveries[event.mark]
                if delivery.item >= 0:
                    self._wrote(query, i, called.batch, delivery, now)
                elif query is not None and not query.run.ended(delivery.primitive):
                    counts = query.store.put(delivery.primitive, delivery.result)
                    if delivery is called.deliveries[-1]:  # with it the query may end
                        _note_usage(query, i, called)
                    query.trace.ended(delivery.primitive, 0, now)
                    member = MemberCompleted(
                        self.engine, self.instance, run, i, delivery.primitive, counts
                    )
                    sim.handle(member, now)
            else:
                called = self.calls.pop(id)
                if query is not None and not called.deliveries:
                    self._store_sequence(query, i, called, now)
                    _note_usage(query, i, called)
                self._end(id, called, {"sequence": 1})
        self.rows.tell()

    def _wrote(
        self, query: Query | None, i: int, batch: int, delivery: Delivery, now: float
    ) -> None:
        """A call has written an item of its list."""
        if query is not None:
            place = self.engine, self.instance, batch
            self.sim.wrote(query, i, place, delivery.item, delivery.result, now)

    def _store_sequence(self, query: Query, i: int, called: Called, now: float) -> None:
        sequence = Prefix(called.said.tokens)
        sequence.said, sequence.ends = called.said, called.ends
        query.store.put(i, {"sequence": sequence})
        query.trace.ended(i, 0, now)

    def _end(
        self,
        id: tuple[str, int],
        called: Called,
        outcome: Outcome | None = None,
    ) -> None:
        """A call is over (None: it was aborted)."""
        sim, now = self.sim, self.sim.now
        outcome = outcome or Cause(QueryCancelled("aborted"))
        if id in self.server.kept:
            sim.holds(id, partial(self.release, id))
        sequence = called.sequence
        cached, generated = (sequence.cached, sequence.generated) if sequence else (None, None)
        sim.handle(CallEnded(self.engine, called.batch, *id, outcome, cached, generated), now)


def _note_usage(query: Query, i: int, called: Called) -> None:
    """Let the query's trace say what its call took."""
    sequence = called.sequence
    if sequence is not None:
        usage = Usage(sequence.prompt, sequence.generated, sequence.cached)
        query.trace.used(usage, i)
