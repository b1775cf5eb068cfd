"""The thread that runs a model: plan, compute, report, step after step.

What to compute is the StepServer's decision, as in the simulator. Everything else reaches the
thread through its inbox, a queue of things to do between two steps, so nothing here needs a lock.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from teola.engine import Delta, PrefixChange, Usage
from teola.errors import EngineError
from teola.graph.ops import DecodeParams
from teola.instance import Step, StepServer, TokenSequence
from teola.stops import Stops

from .local_tokens import TextStream

if TYPE_CHECKING:
    import torch

    from .paged_model import BatchRow, PagedModel

JobOutcome = Delta | EngineError


@dataclass(slots=True, eq=False)
class ModelJob:
    """One call on its way. decode: None to prefill only. seed: of its sampling.

    Its outcomes go to `queue` on `loop`; the last one has a finish_reason, or is an error.
    """

    id: int
    ids: tuple[int, ...]
    decode: DecodeParams | None
    sequence: TokenSequence
    text: TextStream
    stops: Stops
    seed: int
    loop: asyncio.AbstractEventLoop
    queue: asyncio.Queue[JobOutcome] = field(default_factory=asyncio.Queue)
    produced: list[int] = field(default_factory=list)
    sampler: torch.Generator | None = None


@dataclass(slots=True, eq=False)
class CacheListener:
    """Somebody on `loop` who is told what the cache keeps; None: nothing more will come."""

    loop: asyncio.AbstractEventLoop
    changes: asyncio.Queue[PrefixChange | None] = field(default_factory=asyncio.Queue)

    def tell(self, change: PrefixChange | None) -> None:
        """Safe from any thread."""
        with suppress(RuntimeError):  # a loop that was closed waits for nothing
            self.loop.call_soon_threadsafe(self.changes.put_nowait, change)


class KeptPrefix:
    """Keeps the KV of a prefix until it is released. Garbage is released too, as a net."""

    def __init__(self, loop: ModelLoop, id: int) -> None:
        self._loop: ModelLoop | None = loop
        self._id = id

    def release(self) -> None:
        """Give it up; a later call computes the prefix again unless it is still in the cache."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.release(self._id)

    __del__ = release


class ModelLoop:
    """Runs `paged` by `server` in a thread of its own. eos: tokens that end an answer.
    threads: of the computation, None as it is."""

    def __init__(
        self,
        name: str,
        paged: PagedModel,
        server: StepServer,
        eos: frozenset[int],
        threads: int | None = None,
    ) -> None:
        self._name, self._paged, self.server, self._eos = name, paged, server, eos
        self._threads = threads
        self._jobs: dict[int, ModelJob] = {}
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._outbox: deque[tuple[ModelJob, JobOutcome]] = deque()
        self._listeners: list[CacheListener] = []
        self._ending = threading.Lock()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # --- from any thread ----------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Finish the step that is being computed; calls that are not done fail."""
        self._inbox.put(self._stop)
        if self._thread.is_alive():
            self._thread.join()

    def submit(self, job: ModelJob) -> None:
        """Queue a job; its outcomes will come."""
        self._inbox.put(partial(self._add, job))
        if self._stopped:
            self._fail_all()

    def abort(self, job: ModelJob) -> None:
        """Drop a job, and what it keeps, before the next step."""
        self._inbox.put(partial(self._abort, job.id))

    def release(self, id: int) -> None:
        """Give up what job `id` keeps. Safe in a finaliser: SimpleQueue.put takes no lock."""
        self._inbox.put(partial(self._release, id))

    def listen(self, listener: CacheListener) -> None:
        """Tell it what the cache keeps, and then what changes, each time before the outcomes of
        the calls that changed it. The cache has to note changes."""
        self._inbox.put(partial(self._listen, listener))
        if self._stopped:
            self._fail_all()

    def leave(self, listener: CacheListener) -> None:
        """Tell it nothing more."""
        self._inbox.put(partial(self._leave, listener))

    # --- in the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        import torch

        if self._threads is not None:
            torch.set_num_threads(self._threads)
        while not self._stopped:
            if not self.step():
                self._inbox.get()()
            self.catch_up()
        self._fail_all()

    def step(self) -> bool:
        """Compute the next step; whether there was one. Where no thread runs the loop, who calls
        this and `catch_up` does."""
        step = self.server.plan(time.monotonic())
        if step is not None:
            self._step(step)
        return step is not None

    def catch_up(self) -> None:
        """Do what was asked for meanwhile, and tell who waits."""
        with suppress(Empty):
            while not self._stopped:
                self._inbox.get_nowait()()
        self._flush()

    def _stop(self) -> None:
        self._stopped = True

    def _add(self, job: ModelJob) -> None:
        if self._stopped:
            self._refuse(job)
            return
        try:
            self.server.add(job.sequence)
        except EngineError as error:
            self._outbox.append((job, error))
        else:
            self._jobs[job.id] = job

    def _abort(self, id: int) -> None:
        self.server.abort(id, time.monotonic())
        self._release(id)
        self._jobs.pop(id, None)

    def _release(self, id: int) -> None:
        self.server.release(id, time.monotonic())

    def _listen(self, listener: CacheListener) -> None:
        self._report_changes()
        self._listeners.append(listener)
        listener.tell(PrefixChange(tuple(self.server.cache.keys()), cleared=True))

    def _leave(self, listener: CacheListener) -> None:
        with suppress(ValueError):  # it was told the end
            self._listeners.remove(listener)

    def _report_changes(self) -> None:
        stored, evicted = self.server.cache.changes()
        if stored or evicted:
            for listener in self._listeners:
                listener.tell(PrefixChange(tuple(stored), tuple(evicted)))

    def _step(self, step: Step) -> None:
        decodes = [*self.server.decoding.values()]
        try:
            tokens = self._compute(step, decodes)
        except Exception as error:  # noqa: BLE001 - the thread's edge: those who wait are told
            self._failed([*decodes, *(sequence for sequence, _ in step.prefills)], error)
            return
        whole = [s for s, chunk in step.prefills if s.computed + chunk == s.length]
        events = self.server.finish(step, time.monotonic())
        ended = {event.id for event in events if event.kind == "end"}
        for sequence in (*decodes, *whole):
            job = self._jobs[_number(sequence)]
            if job.decode is None:
                self._end(job, "stop")
            else:
                self._advance(job, job.decode, tokens[job.id], job.id in ended)

    def _compute(self, step: Step, decodes: Sequence[TokenSequence]) -> dict[int, int]:
        """Run the step; the next token of each job that generates one, by its id."""
        from .paged_model import BatchRow

        if step.swaps:
            self._paged.swap(step.swaps)
        jobs: list[ModelJob | None] = []  # None: its prompt goes on
        rows: list[BatchRow] = []
        for sequence in decodes:
            job = self._jobs[_number(sequence)]
            past = len(job.ids) + len(job.produced) - 1
            rows.append(BatchRow(job.produced[-1:], past, self.server.blocks(sequence)))
            jobs.append(job)
        for sequence, chunk in step.prefills:
            if not chunk:
                continue  # all of a prefix was in the cache
            job, past = self._jobs[_number(sequence)], sequence.computed
            ids = (*job.ids, *job.produced) if job.produced else job.ids  # preempted: both anew
            rows.append(BatchRow(ids[past : past + chunk], past, self.server.blocks(sequence)))
            jobs.append(job if past + chunk == sequence.length else None)
        if not rows:
            return {}
        return self._sample(jobs, rows)

    def _sample(self, jobs: Sequence[ModelJob | None], rows: Sequence[BatchRow]) -> dict[int, int]:
        import torch

        logits = self._paged.forward(rows)
        best = logits.argmax(-1).tolist()
        found: dict[int, int] = {}
        drawn: list[tuple[int, ModelJob, float]] = []
        for i, job in enumerate(jobs):
            if job is None or job.decode is None:
                continue
            found[job.id] = best[i]
            if job.decode.temperature > 0:
                drawn.append((i, job, job.decode.temperature))
        if drawn:  # all at once: each copy from a GPU waits for it
            heat = torch.tensor([[heat] for _, _, heat in drawn], device=logits.device)
            chances = (logits[[i for i, _, _ in drawn]] / heat).softmax(-1).cpu()
            for (_, job, _), weights in zip(drawn, chances, strict=True):
                if job.sampler is None:
                    job.sampler = torch.Generator().manual_seed(job.seed)
                found[job.id] = int(torch.multinomial(weights, 1, generator=job.sampler))
        return found

    def _failed(self, sequences: Sequence[TokenSequence], error: Exception) -> None:
        """A step could not be computed: its calls fail, those that wait go on."""
        for sequence in sequences:
            job = self._jobs[_number(sequence)]
            message = f"{self._name} could not compute a step: {type(error).__name__}: {error}"
            failure = EngineError(" ".join(message.split()), retryable=True)
            self._outbox.append((job, failure))
            self._abort(job.id)

    def _advance(self, job: ModelJob, decode: DecodeParams, token: int, last: bool) -> None:
        job.produced.append(token)
        if token in self._eos and not decode.ignore_eos:
            self._end(job, "stop")
            return
        text = job.stops.feed(job.text.feed([token]))
        if text or len(job.produced) == 1:
            self._outbox.append((job, Delta(text)))
        if job.stops.reached or last:
            self._end(job, "length")

    def _end(self, job: ModelJob, reason: str) -> None:
        rest = job.stops.feed(job.text.feed((), last=True), last=True)
        if job.stops.reached:
            reason = "stop"
        usage = Usage(len(job.ids), len(job.produced), job.sequence.cached)
        self._outbox.append((job, Delta(rest, reason, usage)))
        self.server.abort(job.id, time.monotonic())
        self._jobs.pop(job.id)

    def _fail_all(self) -> None:
        """Nobody may be left waiting: called when the thread ends, and by who comes too late."""
        with self._ending:
            with suppress(Empty):
                while True:
                    self._inbox.get_nowait()()
            for job in list(self._jobs.values()):
                self._refuse(job)
                self._abort(job.id)
            self._flush()
            for listener in self._listeners:
                listener.tell(None)
            self._listeners.clear()

    def _refuse(self, job: ModelJob) -> None:
        self._outbox.append((job, EngineError(f"{self._name} was closed", retryable=True)))

    def _flush(self) -> None:
        """Hand all outcomes of this step to their event loops, one wake-up for each, behind what
        they changed in the cache."""
        if self._listeners:
            self._report_changes()
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[ModelJob, JobOutcome]]] = {}
        with suppress(IndexError):
            while True:
                job, outcome = self._outbox.popleft()
                by_loop.setdefault(job.loop, []).append((job, outcome))
        for loop, outcomes in by_loop.items():
            with suppress(RuntimeError):  # a loop that was closed waits for nothing
                loop.call_soon_threadsafe(_deliver, outcomes)


def _deliver(outcomes: Sequence[tuple[ModelJob, JobOutcome]]) -> None:
    for job, outcome in outcomes:
        job.queue.put_nowait(outcome)


def _number(sequence: TokenSequence) -> int:
    assert isinstance(sequence.id, int)
    return sequence.id
