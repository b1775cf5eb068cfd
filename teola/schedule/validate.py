"""Invariants of the core between two events: everything that is counted, counted anew.

Each function raises AssertionError with what is wrong, and costs as much as what it looks at is
large: they are for tests, which call them after every event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import pairwise

from teola.policies.routing.base import MOST_HELD_S
from teola.policies.work import Work, ranges
from teola.schedule.core import Core
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.graph_run import DONE, NAMES, RUNNING, WAITING, GraphRun
from teola.schedule.instances import Instance
from teola.schedule.row_run import RowRun
from teola.schedule.run import Run


def validate(core: Core, now: float) -> None:
    """All runs, all queues, and that they agree about what is submitted."""
    for queue in core.queues.values():
        validate_queue(queue, now)
    for run in core.runs.values():
        if isinstance(run, GraphRun):
            validate_run(run)
            _validate_submitted(core, run)
        elif isinstance(run, RowRun):
            _validate_windows(core, run)
    for name, queue in core.queues.items():
        for (id, i), work in queue.works.items():
            owner = core.runs.get(id)
            group = (i, *work.spec.members)
            wanted = owner is not None
            if isinstance(owner, GraphRun):
                wanted = not all(map(owner.ended, group))
            streamed = work.spec.members and not work.prefilling and not work.queued
            assert work.withdrawn or wanted or streamed, (
                f"{name} works on primitive {i} of {id!r}, which nobody waits for"
            )
            _validate_owner(work, owner)


def _validate_submitted(core: Core, run: GraphRun) -> None:
    """What runs is known to its engine's queue."""
    plan = run.plan
    for i, status in enumerate(run.status):
        if status != RUNNING or plan.control[i] or plan.head[i] != i or i in run.known:
            continue
        work = core.queues[plan.primitives[i].engine].works.get((run.id, i))
        assert work is not None, f"{plan.ids[i]} of {run.id!r} runs, but no engine knows it"
        assert not work.withdrawn, f"{plan.ids[i]} of {run.id!r} runs, but was withdrawn"
        assert work.spec == plan.specs[i], f"{plan.ids[i]} of {run.id!r} is queued as {work.spec}"


def _validate_windows(core: Core, run: RowRun) -> None:
    """The windows that a run of rows has open are those that its engine's queue holds for it."""
    works = core.queues[run.engine].works
    held = {i for (id, i), work in works.items() if id == run.id and not work.withdrawn}
    assert held == set(run.open), f"{run.id!r} has {sorted(run.open)} open, and {sorted(held)} held"
    for i in run.open:
        assert works[run.id, i].total == run.open[i], f"window {i} of {run.id!r} has other rows"


def _validate_owner(work: Work, run: Run | None) -> None:
    """A work is its run's, which it shares the asker with."""
    if run is None:
        return
    where = f"primitive {work.primitive} of {run.id!r} "
    assert work.asker is run.asker, f"{where}is asked by {work.asker} and not by {run.asker}"
    assert work.began == run.began, f"{where}began {work.began} and not {run.began}"
    equal = work.same is not None  # it may go for others, which are older or in more of a hurry
    older, sooner = work.admitted < run.admitted, work.deadline < run.deadline
    assert work.admitted == run.admitted or (equal and older), f"{where}came {work.admitted}"
    assert work.deadline == run.deadline or (equal and sooner), f"{where}ends by {work.deadline}"
    assert work.behind_s == run.behind_s, f"{where}has {work.behind_s} s behind it"


# --- runs -----------------------------------------------------------------------------------


def validate_run(run: GraphRun) -> None:
    """Its counters follow from what has ended, and who waits for nothing has begun."""
    if run.state is not None or all(status == WAITING for status in run.status):
        return  # over, or not yet started
    plan, where = run.plan, f"run {run.id!r}: "
    ended = [run.ended(i) for i in range(len(plan))]
    assert run.left == ended.count(False), f"{where}{run.left} left of {ended.count(False)}"
    readers, open = list(plan.readers), list(plan.open)
    fused = {piece for pieces in run.fused.values() for piece in pieces}
    for i, sources in enumerate(plan.sources):
        for source in sources:
            readers[source] -= ended[i] and i not in fused
        open[plan.call[i]] -= ended[i] and plan.call[i] >= 0
        for condition in plan.conditions[i]:
            open[condition] -= ended[i] and run.status[i] != DONE
    for i, sources in enumerate(plan.held):
        for source in sources:
            readers[source] -= not open[i]
    for i, id in enumerate(plan.ids):
        status = run.status[i]
        waits = sum(not ended[parent] for parent in plan.parents[i])
        assert run.waits[i] == waits, f"{where}{id} waits for {run.waits[i]} and not for {waits}"
        assert run.readers[i] == readers[i], f"{where}{id} has {run.readers[i]} readers"
        counted = plan.members[i] or not ended[i]  # what a condition decided on is settled with it
        assert run.open[i] == open[i] or not counted, f"{where}{run.open[i]} are open of {id}"
        needed = readers[i] or plan.effects[i] or (plan.guarded[i] and open[i])
        assert ended[i] or needed, f"{where}{id} is still wanted by nobody"
        if status in (WAITING, RUNNING, DONE):
            assert (status == WAITING) == (waits > 0), f"{where}{id} is {NAMES[status]}"
        if status in (RUNNING, DONE):
            assert _in_its_branch(run, i), f"{where}{id} stands in a branch that was not taken"


def _in_its_branch(run: GraphRun, i: int) -> bool:
    """Whether what is decided by now lets primitive `i` run."""
    taken = run.branches
    return all(
        taken.get(guard.condition, guard.branch if guard.speculative else None) == guard.branch
        for guard in run.plan.primitives[i].guards
    )


def validate_stored(run: GraphRun, stored: Collection[int]) -> None:
    """What a query's store holds, once all commands were performed: what will be read."""
    fused = {piece for pieces in run.fused.values() for piece in pieces}
    for i, id in enumerate(run.plan.ids):
        status, read = run.status[i], run.readers[i] > 0
        if i in fused:
            assert i not in stored, f"run {run.id!r}: {id} was computed with the rest of its prompt"
        elif status == DONE and read:
            assert i in stored, f"run {run.id!r}: {id} is to be read, but is not there"
        elif i in stored:
            streams = run.plan.call[i] >= 0  # the core hears of its parts one after another
            fits = status in (RUNNING, DONE) or (streams and status == WAITING)
            assert fits, f"run {run.id!r}: {id} is kept though {NAMES[status]}"
            assert read, f"run {run.id!r}: {id} is kept for nobody"


# --- queues ---------------------------------------------------------------------------------


def validate_queue(queue: EngineQueue, now: float) -> None:
    """What is in flight is what its instances count; what is queued, what is still to be sent."""
    works = [work for work in queue.works.values() if work.queued]
    assert queue.queued == len(works), f"{queue.engine}: {queue.queued} queued of {len(works)}"
    line, held = queue.line, list(queue.line.held.values())
    line.asking.validate(w for w in works if w is not line.alone and w not in held)
    for work in held:
        where = _told(queue, work)
        assert queue.works.get((work.run, work.primitive)) is work, f"{where}is held, but is gone"
        assert work.affinity < 0, f"{where}is held, and bound to {work.affinity}"
        assert now < work.arrival + MOST_HELD_S + 1, f"{where}is held for too long"
    flying: dict[int, Counter[tuple[str, int, int, int]]] = {}
    entries: Counter[tuple[int, int]] = Counter()
    weights: Counter[int] = Counter()
    yielding: Counter[int] = Counter()
    for (run, i), work in queue.works.items():
        assert (work.run, work.primitive) == (run, i), f"{_told(queue, work)}has another's place"
        _validate_spans(queue, work)
        if work.queued and work.affinity >= 0:
            up = queue.instances[work.affinity].up
            assert up, f"{_told(queue, work)}waits for an instance that is down"
        for row_slice in queue.rows.of(work) if work.row_tokens else ():
            entries[row_slice.instance, row_slice.batch] += len(row_slice.out)
            weights[row_slice.instance] += row_slice.prefilling * work.missing
            yielding[row_slice.instance] += len(row_slice.out) if work.spec.yields else 0
        if queue.hedging is not None and (twice := queue.hedging.running.get((run, i))):
            assert work.prefilling, f"{_told(queue, work)}runs twice, but has given a token"
            entries[twice.instance, twice.batch] += 1
            weights[twice.instance] += work.total
        for (lo, hi), (at, batch) in work.flying.items():
            if work.row_tokens:
                continue
            entries[at, batch] += 1
            flying.setdefault(batch, Counter())[run, i, lo, hi] += 1
            if work.prefilling or not queue.continuous:
                weights[at] += hi - lo - work.found
    for (_, batch), gone in queue.hedging.ending.items() if queue.hedging is not None else ():
        entries[gone.instance, batch] += 1
        weights[gone.instance] += gone.weight
    if not queue.continuous:
        expected_rows = {
            batch: Counter((work.run, work.primitive, lo, hi) for work, lo, hi in dispatch.slices)
            for batch, dispatch in queue._batches.items()
        }
        assert flying == expected_rows, (
            f"{queue.engine}: {flying} are in flight, and not {expected_rows}"
        )
    for k, instance in enumerate(queue.instances):
        batches = {batch: count for (i, batch), count in entries.items() if i == k}
        where = f"{queue.engine}, instance {k}: "
        assert instance.batches == batches, f"{where}batches {instance.batches} and not {batches}"
        assert instance.weight == weights[k], f"{where}weight {instance.weight}, not {weights[k]}"
        assert instance.rows == yielding[k], f"{where}{instance.rows} rows and not {yielding[k]}"
        _validate_room(queue, instance, where)
    queue.instances.validate(now)


def _told(queue: EngineQueue, work: Work) -> str:
    """Which one it is; only for errors, since most works are right at most looks."""
    return f"{queue.engine}: primitive {work.primitive} of {work.run!r} "


def _validate_spans(queue: EngineQueue, work: Work) -> None:
    """Each item is done, in flight or queued, and nothing is twice."""
    begun = work.flying or work.tries or work.done or work.withdrawn or work.window is not None
    if work.queued and not begun and work.total and work.spans == [(0, work.total)]:
        return  # it waits as it came
    where = _told(queue, work)
    assert work.tries <= work.spec.retries + work.excused, f"{where}was tried too often"
    if work.withdrawn:
        assert not work.queued, f"{where}was withdrawn and is queued"
        assert work.flying, f"{where}was withdrawn and is kept"
        return
    assert work.queued == bool(work.spans), f"{where}is queued: {work.queued}, with {work.spans}"
    pieces = sorted([*work.spans, *work.flying])
    if work.window is not None:
        pieces = _validate_rows(queue, work, where)
    assert all(lo < hi for lo, hi in pieces), f"{where}has an empty piece: {pieces}"
    assert all(a[1] <= b[0] for a, b in pairwise(pieces)), f"{where}has an item twice: {pieces}"
    items = work.done + sum(hi - lo for lo, hi in pieces)
    assert items == work.total, f"{where}has {items} items and not {work.total}"


def _validate_rows(queue: EngineQueue, work: Work, where: str) -> list[tuple[int, int]]:
    """Each row of a window is done, out, queued, or to be tried again, and nothing is twice; those
    that are not done."""
    assert work.window is not None
    slices, failed = queue.rows.of(work), work.window.failed
    flying = {
        (row_slice.lo, row_slice.hi): (row_slice.instance, row_slice.batch) for row_slice in slices
    }
    assert flying == work.flying, f"{where}is in flight as {flying}, and not as {work.flying}"
    counts = Counter(list(failed))
    for row_slice in slices:
        assert row_slice.out, (
            f"{where}has slice {row_slice.lo}..{row_slice.hi} in flight, of which nothing is out"
        )
        assert 0 <= row_slice.prefilling <= len(row_slice.out), (
            f"{where}has {row_slice.prefilling} in prefilling"
        )
        counts.update(row_slice.out)
    for lo, hi in work.spans:
        counts.update(range(lo, hi))
    twice = [row for row, count in counts.items() if count > 1]
    assert not twice, f"{where}has rows twice: {twice}"
    over = [row for row, tries in work.window.tries.items() if tries > work.spec.retries]
    assert not over, f"{where}rows were tried too often: {over}"
    return ranges(sorted(counts))


def _validate_room(queue: EngineQueue, instance: Instance, where: str) -> None:
    """It has no more than it can take; what cannot be cut may be too large, and is alone then."""
    limits, count = instance.limits, sum(instance.batches.values())
    assert instance.entries == count, f"{where}{instance.entries} entries and not {count}"
    if limits.continuous:
        assert count <= limits.max_sequences, f"{where}{count} calls"
        assert instance.weight <= limits.max_batch or _alone(queue, instance), (
            f"{where}{instance.weight} tokens in prefilling"
        )
    else:
        assert len(instance.batches) <= limits.concurrency, (
            f"{where}{len(instance.batches)} batches"
        )


def _alone(queue: EngineQueue, instance: Instance) -> bool:
    """Whether one call only is in prefilling there."""
    prefilling = [work for work in queue.works.values() if work.prefilling]
    on_it = [w for w in prefilling if any(b in instance.batches for _, b in w.flying.values())]
    slices = [one for work in queue.works.values() for one in queue.rows.of(work)]
    rows = sum(one.prefilling for one in slices if one.batch in instance.batches)
    backups = 0
    if (hedging := queue.hedging) is not None:
        second = [backup.batch for backup in hedging.running.values()]
        second += [batch for (_, batch), ending in hedging.ending.items() if ending.weight]
        backups = sum(batch in instance.batches for batch in second)
    return len(on_it) + rows + backups == 1
