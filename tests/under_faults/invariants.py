"""What must hold after every run, whatever went wrong in it: a violation is a line of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import inf

from teola.schedule.events import (
    AlreadyKnown,
    Completed,
    Control,
    Dispatch,
    Failed,
    Finish,
    Skipped,
    State,
    Submit,
)
from tests.recording import Heard, Said
from tests.remembered import remembered
from tests.under_faults import templates
from tests.under_faults.world import Asked, World, oracle

EPSILON_S = 0.01
STOPS_S = 1.0
"""Nothing runs longer than this after its query has ended."""
EFFECTS = {"choice": ("record",), "effects": ("record", "report")}


def violations(world: World) -> list[str]:
    """All that is wrong with a run that has ended."""
    found = list(dict.fromkeys(world.wrongs))
    for asked in world.asked.values():
        found += _ending(world, asked)
        found += _effects(world, asked)
    found += _order(world)
    found += _limits(world)
    found += _held(world)
    for query, at in world.stops:
        ended = world.asked[query].ended
        if ended is not None and at > ended + STOPS_S:
            found.append(f"a call of {query} runs {at - ended:.1f} s after its end")
    return found


def _ending(world: World, asked: Asked) -> Iterator[str]:
    """It ends once, in a state that it may end in, with the right answer if it is `ok`."""
    said = [e.command for e in world.core.log.story if isinstance(e, Said) and e.run == asked.id]
    ends = [command for command in said if isinstance(command, Finish)]
    if len(ends) != 1:
        yield f"{asked.id} ends {len(ends)} times"
        return
    state, ended = ends[0].state, asked.ended or 0.0
    told = oracle(asked.template, asked.question, asked.tenant)
    late = world.zero + asked.at + asked.deadline_s
    gone = world.zero + asked.at + (inf if asked.gone_s is None else asked.gone_s)
    if ended > min(late, gone) + EPSILON_S:
        yield f"{asked.id} ended at {ended:.2f}; its deadline: {late:.2f}, its caller left: {gone}"
    if state is State.CANCELLED:
        if ended < gone - EPSILON_S:
            yield f"{asked.id} was cancelled by nobody"
    elif state is State.DEADLINE:
        if ended < late - EPSILON_S:
            yield f"{asked.id} ended at {ended:.2f} for its deadline at {late:.2f}"
    elif state is State.FAILED:
        yield from _justified(world, asked)
    elif state is State.PARTIAL:
        if ends[0].missing != ("comment",):
            yield f"{asked.id} is partial for want of {ends[0].missing}"
    elif asked.ending is not None and asked.ending.outputs != told:
        yield f"{asked.id} answered {asked.ending.outputs} and not {told}"
    if state is not State.PARTIAL:
        yield from _stream(asked, state, told)


def _stream(asked: Asked, state: State, told: dict[str, object]) -> Iterator[str]:
    """What the client saw is the answer, or its beginning."""
    (answer,) = told.values()
    seen = "".join(asked.tokens)
    whole = state is State.OK and asked.streams and asked.ending is not None
    if isinstance(answer, str) and (seen != answer if whole else not answer.startswith(seen)):
        yield f"{asked.id}: its client saw {seen!r} of {answer!r}"


def _justified(world: World, asked: Asked) -> Iterator[str]:
    """A query that failed is lost if a try was left that the rules allow."""
    ending = asked.ending
    if ending is None:
        return  # in the very moment in which its caller went away
    if ending.failed is None:
        yield f"{asked.id} failed for nothing"
        return
    if ending.failed.optional:
        yield f"{asked.id} failed for want of {ending.failed.id}, which is optional"
    plan = world.plan(asked)
    head = plan.head[plan.index[ending.failed.id]]
    failures = world.failures.get((asked.id, head), [])
    last = [f for f in failures if not f.cause.retryable or f.streamed or not f.budget]
    if not last and len(failures) <= plan.specs[head].retries:
        yield f"{asked.id} is lost: {ending.failed.id} failed {len(failures)} times: {ending.error}"


def _effects(world: World, asked: Asked) -> Iterator[str]:
    """At most once; exactly once if the query is ok and its branch was taken."""
    ok = asked.ending is not None and asked.ending.state is State.OK
    skipped = {
        world.core.log.plans[asked.id].ids[e.command.primitive]
        for e in world.core.log.story
        if isinstance(e, Said) and e.run == asked.id and isinstance(e.command, Skipped)
    }
    for name in EFFECTS.get(asked.template, ()):
        times = world.database.effects[asked.question, name]
        wanted = not any(id.startswith(name) for id in skipped)
        if times > 1 or (ok and wanted and times != 1):
            yield f"{asked.id}: {name} was done {times} times"
    rows = world.database.rows.get((asked.tenant, f"of {asked.id}"), {})
    stores = "documents" in templates.TEMPLATES[asked.template][2]
    if ok and stores and len(rows) != templates.CHUNKS:
        yield f"{asked.id}: {len(rows)} of {templates.CHUNKS} chunks are stored"


def _order(world: World) -> Iterator[str]:
    """Nothing begins before what it depends on has ended; nothing begins twice."""
    log = world.core.log
    ended: set[tuple[str, int]] = set()
    began: Counter[tuple[str, int]] = Counter()
    for entry in log.story:
        if isinstance(entry, Heard) and isinstance(entry.event, (Completed, Failed)):
            ended.add((entry.run, entry.event.primitive))
            if isinstance(entry.event, Failed):  # with all that it leads
                members = log.plans[entry.run].members[entry.event.primitive]
                ended |= {(entry.run, member) for member in members}
        elif isinstance(entry, Heard) and isinstance(entry.event, AlreadyKnown):
            began[entry.run, entry.event.primitive] -= 1  # it is answered instead, by what was kept
        elif isinstance(entry, Said) and isinstance(entry.command, Skipped):
            key = entry.run, entry.command.primitive
            plan = log.plans[entry.run]
            guessed = any(guard.speculative for guard in plan.primitives[key[1]].guards)
            if (key in ended and not guessed) or (key in began and plan.effects[key[1]]):
                yield f"{plan.ids[key[1]]} of {entry.run} was skipped after it had begun"
            ended.add(key)
        elif isinstance(entry, Said) and isinstance(entry.command, (Submit, Control)):
            i, plan = entry.command.primitive, log.plans[entry.run]
            if (entry.run, i) in ended:
                yield f"{plan.ids[i]} of {entry.run} began after it had been skipped"
            began[entry.run, i] += 1
            early = [plan.ids[p] for p in plan.parents[i] if (entry.run, p) not in ended]
            if early:
                yield f"{plan.ids[i]} of {entry.run} began before {early}"
    twice = [key for key, times in began.items() if times > 1]
    if twice:
        yield f"began twice: {twice}"


def _limits(world: World) -> Iterator[str]:
    """No batch is larger than its instance takes, but for one piece that cannot be cut."""
    for entry in world.core.log.story:
        if isinstance(entry, Dispatch):
            limits = world.core.queues[entry.engine].instances[entry.instance].limits
            weight = world.core.log.weights[entry.engine, entry.batch]
            if weight > limits.max_batch and len(entry.slices) > 1:
                yield f"{entry.engine} was sent {weight} at once"


def _held(world: World) -> Iterator[str]:
    """Nothing is queued, in flight, stored, scheduled or kept anywhere."""
    live = world.live
    if live.queries or live._tasks or live._batches or world.core.runs:
        yield f"still there: {live.queries}, {live._tasks}, {live._batches}, {world.core.runs}"
    for name, queue in world.core.queues.items():
        idle = queue.idle and queue.queued == 0
        if not idle or any(i.weight or i.entries or i.batches for i in queue.instances):
            yield f"{name} is not idle: {list(queue.works)} {list(queue.instances)}"
        if not all(instance.up for instance in queue.instances):
            yield f"{name}: an instance did not come back"
        yield from remembered(queue)
    account = world.account
    if account.held_tokens or account.kept_tokens or account.open or not live.billing.idle:
        yield f"of a budget {account.held_tokens} tokens are reserved for nobody"
    if any(queue.followers for queue in world.core.queues.values()) or live._joinable:
        yield "works are followed that have ended"
    for asked in world.asked.values():
        ok = asked.ending is not None and asked.ending.state is State.OK
        if ok and asked.left:
            yield f"{asked.id} left {asked.left} in its store"
    if len(live.sequences):
        yield f"{len(live.sequences)} sequences are held"
    for (name, i), far in world.far.items():
        if far.process is not None and far.process.server._kept:
            yield f"{name} {i} keeps sequences that nobody has"
