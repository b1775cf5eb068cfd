"""The thread that runs a model: plan, compute, report, step after step.

What to compute is the StepServer's decision, as in the simulator. Everything else reaches the
thread through its inbox, a queue of things to do between two steps, so nothing here needs a lock.

A GPU computes by itself once a step is launched. What the step before brought is made text and
reported only then: neither that nor those who wait for it keep the GPU waiting.
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
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

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
DRAW_BITS: Final = 24
"""Of a random number: as many as a float32 has, so that it stays below 1."""


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
    sampler: Random | None = None

    @property
    def temperature(self) -> float:
        return self.decode.temperature if self.decode else 0.0


class Written(NamedTuple):
    """What a step brought a job that it has not been told: a token, if any, and why it ended."""

    job: ModelJob
    ids: tuple[int, ...]
    reason: str | None


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
        self._written: list[Written] = []
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
        if step is None:
            self._report()
        else:
            self._step(step)
        return step is not None

    def catch_up(self) -> None:
        """Do what was asked for meanwhile, and tell who waits, unless the next step does."""
        with suppress(Empty):
            while not self._stopped:
                self._inbox.get_nowait()()
        if not self._paged.asynchronous:
            self._report()

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
                self._end(job, (), "stop")
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
        chosen = self._choose(jobs, self._paged.forward(rows))
        if self._paged.asynchronous:
            self._report()
        tokens = chosen.tolist()  # waits for the GPU
        return {job.id: token for job, token in zip(jobs, tokens, strict=True) if job is not None}

    def _choose(self, jobs: Sequence[ModelJob | None], logits: torch.Tensor) -> torch.Tensor:
        """The next token of each row: the likeliest, or one that is drawn."""
        import torch

        chosen = logits.argmax(-1)
        drawn = {i: job for i, job in enumerate(jobs) if job is not None and job.temperature > 0}
        if not drawn:
            return chosen
        rows, device = [*drawn], logits.device
        heat = torch.tensor([[job.temperature] for job in drawn.values()], device=device)
        sums = (logits[rows] / heat).softmax(-1).cumsum(-1)
        draws = torch.tensor([[_draw(job)] for job in drawn.values()], device=device)
        tokens = torch.searchsorted(sums, draws * sums[:, -1:], right=True)
        chosen[rows] = tokens[:, 0].clamp(max=logits.shape[-1] - 1)
        return chosen

    def _failed(self, sequences: Sequence[TokenSequence], error: Exception) -> None:
        """A step could not be computed: its calls fail, those that wait go on."""
        self._write()
        for sequence in sequences:
            job = self._jobs[_number(sequence)]
            message = f"{self._name} could not compute a step: {type(error).__name__}: {error}"
            failure = EngineError(" ".join(message.split()), retryable=True)
            self._outbox.append((job, failure))
            self._abort(job.id)

    def _advance(self, job: ModelJob, decode: DecodeParams, token: int, last: bool) -> None:
        job.produced.append(token)
        if token in self._eos and not decode.ignore_eos:
            self._end(job, (), "stop")
        elif last:
            self._end(job, (token,), "length")
        else:
            self._written.append(Written(job, (token,), None))
            if job.stops.strings:  # only its text shows whether it goes on
                self._write()
                if job.stops.reached:
                    self._drop(job)

    def _end(self, job: ModelJob, ids: tuple[int, ...], reason: str) -> None:
        self._written.append(Written(job, ids, reason))
        self._drop(job)

    def _drop(self, job: ModelJob) -> None:
        self.server.abort(job.id, time.monotonic())
        self._jobs.pop(job.id)

    def _write(self) -> None:
        """Make text of what steps brought."""
        written, self._written = self._written, []
        for job, ids, reason in written:
            last = reason is not None
            text = job.stops.feed(job.text.feed(ids, last=last), last=last)
            if job.stops.reached:
                reason = "stop"
            if reason is not None:
                usage = Usage(len(job.ids), len(job.produced), job.sequence.cached)
                self._outbox.append((job, Delta(text, reason, usage)))
            elif text or len(job.produced) == 1:
                self._outbox.append((job, Delta(text)))

    def _fail_all(self) -> None:
        """Nobody may be left waiting: called when the thread ends, and by who comes too late."""
        with self._ending:
            with suppress(Empty):
                while True:
                    self._inbox.get_nowait()()
            self._write()
            for job in list(self._jobs.values()):
                self._refuse(job)
                self._abort(job.id)
            self._report()
            for listener in self._listeners:
                listener.tell(None)
            self._listeners.clear()

    def _refuse(self, job: ModelJob) -> None:
        self._outbox.append((job, EngineError(f"{self._name} was closed", retryable=True)))

    def _report(self) -> None:
        """Hand all outcomes so far to their event loops, one wake-up for each, behind what they
        changed in the cache."""
        self._write()
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


def _draw(job: ModelJob) -> float:
    """A number from 0 to 1, the same for the same seed."""
    if job.sampler is None:
        job.sampler = Random(job.seed)
    return job.sampler.getrandbits(DRAW_BITS) / 2**DRAW_BITS
