"""RayRows: rows that are asked on workers of a Ray cluster, each with an engine of its own.

    rows ─▶ a file ─▶ shards (teola/runtime/shards.py) ─▶ Ray Data, a task a shard
                                                             │ each a run of rows on its engine
    on_answers ◀── AnswerDesk, an actor beside this process ◀┘ answers, as they come

It is asked as a runtime is (`ask_rows`), so whoever asks does not know where rows are answered. The
desk is the checkpoint: Ray runs the task of a worker that was lost again on another one, which asks
the desk first what is answered. What a task gives back are its counts. Nothing but a lost worker
ends a task with an error: Ray ends all work for one.
"""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from teola.errors import EngineUnavailable, InputError, TeolaError, reason_of
from teola.extras import needs
from teola.policies.ledger import Ledger
from teola.price import Price
from teola.runtime.engines import EngineConfig
from teola.runtime.hosts import ray_actor
from teola.runtime.rows import (
    OnAnswers,
    Row,
    RowAnswer,
    RowPriority,
    RowsCall,
    RowsEnd,
    RowsHandle,
)
from teola.runtime.shards import cut_shards, shard_count

if TYPE_CHECKING:
    import pyarrow as pa

    from teola.runtime.runtime import Runtime

READ: Final = 8192
"""Rows that are written to the file at a time."""
TOLD_S: Final = 0.25
"""How often a worker tells what it has, and this process asks for it."""
CHARACTERS_A_TOKEN: Final = 4
COUNTS: Final = ("asked", "failed", "tries", "prompt_tokens", "cached_tokens", "completion_tokens")


@dataclass(frozen=True, slots=True)
class ShardRun:
    """What a worker needs to know. until: when it ends at the latest, in seconds since 1970."""

    config: EngineConfig
    call: RowsCall
    tenant: str
    app: str
    priority: RowPriority
    until: float | None


class AnswerDesk:
    """An actor: has the answers of shards that are under way, until they are taken."""

    def __init__(self) -> None:
        self._came: list[RowAnswer] = []
        self._answered: dict[int, dict[int, bool]] = {}
        self._stopped = False

    def answered(self, shard: int) -> dict[int, bool]:
        """Rows of a shard that a worker brought which was lost, and whether each has failed."""
        return self._answered.get(shard, {})

    def bring(self, shard: int, answers: Sequence[RowAnswer]) -> bool:
        """Have more answers of a shard; whether its worker shall stop."""
        known = self._answered.setdefault(shard, {})
        self._came += [one for one in answers if one.id not in known]
        for one in answers:
            known.setdefault(one.id, one.error is not None)
        return self._stopped

    def take(self) -> list[RowAnswer]:
        """The answers that came since it was called last."""
        came, self._came = self._came, []
        return came

    def stop(self) -> None:
        """Workers shall stop."""
        self._stopped = True


class ShardWorker:
    """What Ray Data runs in an actor: a runtime with one engine, which it gives shards."""

    def __init__(self, run: ShardRun, desk: Any) -> None:
        self._run, self._desk = run, desk
        self._runtime: Runtime | None = None

    def __call__(self, shard: pa.Table) -> pa.Table:
        """Ask the rows of a shard that have no answer. One row: the counts, and how it ended."""
        import pyarrow as pa

        (number,) = set(shard.column("shard").to_pylist())
        known: dict[int, bool] = self._ask("answered", number)
        columns = [shard.column(name).to_pylist() for name in ("id", "text", "opens")]
        rows = [Row(*one) for one in zip(*columns, strict=True) if one[0] not in known]
        end = self._asked(number, rows)
        counts = {name: getattr(end, name) for name in COUNTS}
        counts["asked"] += len(known)
        counts["failed"] += sum(known.values())
        reason = reason_of(end.error) if end.error is not None else ""
        row = {**counts, "state": end.state, "reason": reason}
        return pa.Table.from_pylist([row])

    def _asked(self, number: int, rows: Sequence[Row]) -> RowsEnd:
        run, lock = self._run, threading.Lock()
        came: list[RowAnswer] = []

        def hear(answers: Sequence[RowAnswer]) -> None:
            with lock:
                came.extend(answers)

        def bring() -> bool:
            with lock:
                some = came[:]
                came.clear()
            return bool(self._ask("bring", number, some))

        left_s = None if run.until is None else run.until - time.time()
        stopped = bring()
        if stopped or (left_s is not None and left_s <= 0) or not rows:
            return RowsEnd("ok" if not rows else "cancelled", 0, 0, 0, 0, 0, 0, 0.0)
        try:
            handle = self._opened().ask_rows(
                run.call,
                iter(rows),
                hear,
                tenant=run.tenant,
                app=run.app,
                deadline_s=left_s,
                priority=run.priority,
            )
        except TeolaError as error:
            return RowsEnd("failed", 0, 0, 0, 0, 0, 0, 0.0, error)
        while True:
            try:
                end = handle.result(TOLD_S)
            except TimeoutError:
                if bring():
                    handle.cancel()
                continue
            bring()
            return end

    def _opened(self) -> Runtime:
        """The runtime, from the first shard on. Raises InputError."""
        from teola.runtime.runtime import Runtime

        if self._runtime is None:
            self._runtime = Runtime({self._run.call.engine: self._run.config})
        return self._runtime

    def _ask(self, method: str, *arguments: Any) -> Any:
        import ray

        return ray.get(getattr(self._desk, method).remote(*arguments))


class RayRows:
    """configs: engines by name; each worker has an instance of the one that is asked. workers: how
    many. address: of the cluster; None: one of its own on this machine. Close it: it has joined the
    cluster from the first row on.

    Raises MissingExtra without Ray and pyarrow, InputError where there is no worker.
    """

    def __init__(
        self, configs: Mapping[str, EngineConfig], workers: int, address: str | None = None
    ) -> None:
        if workers < 1:
            raise InputError(f"rows need at least one worker, got {workers}")
        with needs("ray", "on='ray'"):
            import pyarrow
            import ray

            _ = pyarrow, ray
        self._configs = configs
        self.workers, self._address = workers, address
        self._joined = False

    def ask_rows(
        self,
        call: RowsCall,
        rows: Iterator[Row],
        on_answers: OnAnswers,
        *,
        tenant: str = "",
        app: str = "tables",
        priority: RowPriority = "rows",
        deadline_s: float | None = None,
        budget: Ledger | None = None,
        price: Price | None = None,
    ) -> RowsHandle:
        """See Runtime.ask_rows. All rows are read before the first one is asked. Raises InputError
        for a budget: workers cannot share one."""
        if budget is not None:
            raise InputError(
                "rows on Ray cannot share a budget of tokens or money: give most_calls, or leave "
                "on='ray' out"
            )
        until = None if deadline_s is None else time.time() + deadline_s
        config = self._configs[call.engine]
        run = ShardRun(config, call, tenant, app, priority, until)
        asking = _Asking(self, run, rows, on_answers)
        threading.Thread(target=asking.work, name="teola-shards", daemon=True).start()
        return RowsHandle(asking.done, asking.stopped.set)

    def join(self, config: EngineConfig) -> None:
        """Join the cluster, or start one, and see that it has room for a worker. Raises
        EngineUnavailable."""
        self._joined = ray_actor.connect(self._address) or self._joined
        ray_actor.check_feasible("on='ray'", config.resources)

    def map(self, shards: Sequence[pa.Table], run: ShardRun, desk: Any) -> Iterator[dict[str, Any]]:
        """How each shard ended, as they do."""
        from ray.data import ActorPoolStrategy, DataContext, from_blocks

        logging.getLogger("ray.data").setLevel(logging.ERROR)
        context = DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = False
        wanted = {"num_cpus": 0.0, **run.config.resources}
        own = {name: wanted.pop(name, None) for name in ray_actor.RESOURCES}
        here = replace(run.config, host=None, resources={})
        size = min(self.workers, len(shards))
        # Not from_arrow, which starts a task for each table, to look at its size.
        data = from_blocks(list(shards)).map_batches(
            ShardWorker,
            batch_size=None,
            batch_format="pyarrow",
            compute=ActorPoolStrategy(size=size),
            fn_constructor_args=(replace(run, config=here), desk),
            **own,
            resources=wanted or None,
        )
        for batch in data.iter_batches(batch_size=None, batch_format="pyarrow"):
            yield from batch.to_pylist()

    def close(self) -> None:
        """Leave the cluster; one of its own ends."""
        if self._joined:
            ray_actor.disconnect()


class _Asking:
    """One run of rows, in a thread of its own."""

    def __init__(
        self, place: RayRows, run: ShardRun, rows: Iterator[Row], on_answers: OnAnswers
    ) -> None:
        self._place, self._run, self._rows, self._on_answers = place, run, rows, on_answers
        self.done: Future[RowsEnd] = Future()
        self.stopped = threading.Event()
        self._began = time.monotonic()
        self._counts = dict.fromkeys(COUNTS, 0)
        self._reason = ""
        self._over = threading.Event()
        self._lost: Exception | None = None

    def work(self) -> None:
        """The thread."""
        try:
            with tempfile.TemporaryDirectory(prefix="teola-shards-") as folder:
                self._ask(Path(folder) / "rows.arrow")
        except Exception as error:  # noqa: BLE001 - the thread's edge: told in the run's end
            self.done.set_result(self._end("failed", error))
            return
        late = self._run.until is not None and time.time() >= self._run.until
        if self._reason or self._lost is not None:
            reason = self._reason or f"Ray: {str(self._lost).strip().splitlines()[-1]}"
            self.done.set_result(self._end("failed", EngineUnavailable(reason)))
        elif self.stopped.is_set():
            self.done.set_result(self._end("cancelled"))
        elif late:
            self.done.set_result(self._end("deadline"))
        else:
            self.done.set_result(self._end("partial" if self._counts["failed"] else "ok"))

    def _end(self, state: str, error: Exception | None = None) -> RowsEnd:
        return RowsEnd(state, **self._counts, seconds=time.monotonic() - self._began, error=error)

    def _ask(self, path: Path) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        shards = self._shards(path)
        if not shards or self.stopped.is_set():
            return
        self._place.join(self._run.config)
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        desk: Any = (
            cast("Any", ray)
            .remote(AnswerDesk)
            .options(num_cpus=0, scheduling_strategy=here)
            .remote()
        )
        try:
            mapping = threading.Thread(
                target=self._map, args=(shards, desk), name="teola-ray-data", daemon=True
            )
            mapping.start()
            told = False
            while not self._over.wait(TOLD_S):
                self._take(desk)
                late = self._run.until is not None and time.time() >= self._run.until
                if not told and (late or self._reason or self.stopped.is_set()):
                    ray.get(desk.stop.remote())
                    told = True
            self._take(desk)
        finally:
            ray.kill(desk)

    def _take(self, desk: Any) -> None:
        import ray

        if answers := ray.get(desk.take.remote()):
            self._on_answers(answers)

    def _map(self, shards: Sequence[pa.Table], desk: Any) -> None:
        """In a thread, because Ray Data waits for the next shard as long as it takes."""
        try:
            for end in self._place.map(shards, self._run, desk):
                for name in COUNTS:
                    self._counts[name] += end[name]
                if end["state"] == "failed":
                    self._reason = self._reason or end["reason"]
        except Exception as error:  # noqa: BLE001 - the thread's edge: raised where it is waited for
            self._lost = error
        finally:
            self._over.set()

    def _shards(self, path: Path) -> list[pa.Table]:
        """The rows in shards, which read the file where they stand."""
        import pyarrow as pa

        schema = pa.schema({"id": pa.int64(), "text": pa.string(), "opens": pa.bool_()})
        tokens: list[int] = []
        opens: list[bool] = []
        fixed = len(self._run.call.instruction)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for batch in _batches(self._rows):
                columns = zip(*((row.id, row.text, row.opens) for row in batch), strict=True)
                writer.write(pa.record_batch([pa.array(one) for one in columns], schema))
                tokens += [(fixed + len(row.text)) // CHARACTERS_A_TOKEN + 1 for row in batch]
                opens += [row.opens for row in batch]
                if self.stopped.is_set():
                    return []
        count = shard_count(len(tokens), sum(tokens), self._place.workers)
        with pa.memory_map(str(path)) as file:
            whole = pa.ipc.open_file(file).read_all()
        return [
            whole.slice(low, high - low).append_column("shard", pa.array([n] * (high - low)))
            for n, (low, high) in enumerate(cut_shards(tokens, opens, count))
        ]


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) == READ:
            yield batch
            batch = []
    if batch:
        yield batch
