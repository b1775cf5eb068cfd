"""Each invariant of the scheduler is looked at: break it, and it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from teola.policies.work import Work
from teola.schedule.core import Core
from teola.schedule.events import FirstToken
from teola.schedule.graph_run import DONE, FAILED, RUNNING, SKIPPED, WAITING, GraphRun
from teola.schedule.instances import Instance
from teola.schedule.validate import validate, validate_run, validate_stored
from tests.schedule.plans import Guard, aggregate, call, condition, plan, tool
from tests.schedule.test_core import START
from tests.schedule.test_submitting import Bed

Corruption = Callable[[Core, GraphRun], object]


@pytest.fixture
def bed() -> Bed:
    """`q` runs: a call decodes, one that prefills holds up a third; a cut function is half sent."""
    bed = Bed(instances=2)
    p = plan(
        condition("if"),
        tool("cut", batchable=True),
        *call("m", 2),
        tool("x", "m.0", guards=(Guard("if", "then"),)),
        tool("y", "m.1", guards=(Guard("if", "otherwise"),)),
        aggregate("z", "x", "y", "cut"),
    )
    bed.begin("q", p, sizes={"cut": 20})
    bed.sent()
    for k in range(6):
        bed.begin(f"other{k}", plan(*call("n")), sizes={"n.prefill": 40})
    bed.sent()
    where = bed.core.queues["llm"].works["q", p.index["m.prefill"]]
    ((instance, _),) = where.flying.values()
    bed.core.handle(FirstToken("llm", instance, "q", p.index["m.prefill"]), 1.0)
    bed.sent()
    return bed


def test_what_is_sound_stays_silent(bed: Bed) -> None:
    validate(bed.core, 1.0)
    llm = bed.core.queues["llm"]
    assert llm.queued > 0, "nothing waits"
    assert any(work.prefilling for work in llm.works.values())
    assert any(work.flying and not work.prefilling for work in llm.works.values())
    cut = bed.core.queues["python"].works["q", 1]
    assert cut.flying
    assert cut.spans


def _work(core: Core, *, queued: bool) -> Work:
    works = core.queues["llm"].works.values()
    return next(w for w in works if w.queued is queued and bool(w.flying) is not queued)


def _status(run: GraphRun, id: str, status: int) -> None:
    run.status[run.plan.index[id]] = status


def _busy(core: Core) -> Instance:
    return next(i for i in core.queues["llm"].instances if i.entries)


def _limit(core: Core, engine: str, **less: int) -> None:
    queue = core.queues[engine]
    for instance in queue.instances:
        instance.limits = instance.limits._replace(**less)


CORRUPTIONS: dict[str, tuple[Corruption, str]] = {
    "left": (lambda c, r: setattr(r, "left", r.left - 1), "left of"),
    "waits": (lambda c, r: r.waits.__setitem__(r.plan.index["z"], 1), "z waits for 1"),
    "readers": (lambda c, r: r.readers.__setitem__(r.plan.index["cut"], 0), "cut has 0 readers"),
    "open": (lambda c, r: r.open.__setitem__(r.plan.index["m.prefill"], 1), "1 are open of m.pref"),
    "not begun": (lambda c, r: _status(r, "cut", WAITING), "cut is waiting"),
    "begun early": (lambda c, r: _status(r, "z", RUNNING), "z is running"),
    "ended": (lambda c, r: _status(r, "if", SKIPPED), "left of"),
    "failed": (lambda c, r: _status(r, "cut", FAILED), "left of"),
    "queued count": (lambda c, r: setattr(c.queues["llm"].line, "count", 0), "llm: 0 queued"),
    "queued without work": (
        lambda c, r: _work(c, queued=True).spans.clear(),
        r"is queued: True, with \[\]",
    ),
    "spans twice": (
        lambda c, r: c.queues["python"].works["q", 1].spans.insert(0, (0, 4)),
        "has an item twice",
    ),
    "items lost": (lambda c, r: c.queues["python"].works["q", 1].spans.pop(), "is queued"),
    "items counted twice": (
        lambda c, r: setattr(c.queues["python"].works["q", 1], "done", 4),
        "has 24 items and not 20",
    ),
    "too many tries": (lambda c, r: setattr(_work(c, queued=True), "tries", 9), "too often"),
    "withdrawn and queued": (
        lambda c, r: setattr(_work(c, queued=True), "withdrawn", True),
        "was withdrawn and is queued",
    ),
    "bound": (lambda c, r: setattr(_work(c, queued=True), "affinity", 1), "bound to none"),
    "bound to what is down": (
        lambda c, r: (
            c.queues["llm"].line.remove(work := _work(c, queued=True), 1.0),
            setattr(work, "affinity", 1),
            setattr(work, "queued", True),
            c.queues["llm"].line.add(work, 1.0),
            setattr(c.queues["llm"].instances[1], "up", False),
        ),
        "waits for an instance that is down",
    ),
    "a batch forgotten": (lambda c, r: c.queues["python"]._batches.clear(), "are in flight, and"),
    "weight": (lambda c, r: setattr(_busy(c), "weight", 1), "weight 1, not"),
    "entries": (lambda c, r: setattr(_busy(c), "entries", 7), "7 entries"),
    "batches": (lambda c, r: _busy(c).batches.__setitem__(99, 1), "batches"),
    "prefilling": (
        lambda c, r: setattr(_work(c, queued=False), "prefilling", True),
        "weight",
    ),
    "not asked": (lambda c, r: c.queues["llm"].instances._open.drop(0), "instance 0 has room"),
    "nobody waits": (lambda c, r: c.runs.pop("other0"), "which nobody waits for"),
    "nobody works": (lambda c, r: c.queues["python"].works.clear(), "python: 1 queued of 0"),
    "too many calls": (lambda c, r: _limit(c, "llm", max_sequences=1), "calls"),
    "too many tokens": (lambda c, r: _limit(c, "llm", max_batch=60), "tokens in prefilling"),
    "too many batches": (lambda c, r: _limit(c, "python", concurrency=0), "1 batches"),
    "another asker": (
        lambda c, r: setattr(c.queues["python"].works["q", 1], "asker", replace(r.asker)),
        "is asked by",
    ),
    "another beginning": (
        lambda c, r: setattr(c.queues["python"].works["q", 1], "began", 7.0),
        "began 7.0",
    ),
    "unknown to its engine": (
        lambda c, r: c.queues["llm"].withdraw("other5", 0, 1.0),
        "runs, but",
    ),
}


@pytest.mark.parametrize("name", list(CORRUPTIONS))
def test_what_is_broken_is_told(name: str, bed: Bed) -> None:
    corrupt, told = CORRUPTIONS[name]
    corrupt(bed.core, bed.core.runs["q"])
    with pytest.raises(AssertionError, match=told):
        validate(bed.core, 1.0)


def test_what_stands_in_a_branch_that_was_not_taken_is_told() -> None:
    p = plan(condition("if"), tool("x", guards=(Guard("if", "then"),)))
    run = GraphRun("q", p)
    run.handle(START, 0.0)
    run.status, run.waits, run.left = [DONE, RUNNING], [0, 0], 1
    run.readers = [0, run.readers[1]]
    run.branches["if"] = "otherwise"
    with pytest.raises(AssertionError, match="a branch that was not taken"):
        validate_run(run)


def test_what_a_store_holds_is_what_will_be_read() -> None:
    p = plan(tool("a"), tool("b", "a"), tool("c", "b"))
    run = GraphRun("q", p)
    run.status, run.readers = [DONE, RUNNING, WAITING], [1, 1, 1]
    validate_stored(run, {0})
    with pytest.raises(AssertionError, match="a is to be read, but is not there"):
        validate_stored(run, set())
    with pytest.raises(AssertionError, match="c is kept though waiting"):
        validate_stored(run, {0, 2})
    run.readers = [0, 1, 1]
    with pytest.raises(AssertionError, match="a is kept for nobody"):
        validate_stored(run, {0})
