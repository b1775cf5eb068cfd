"""Rows as they are sent, one by one: what the core is told of them, and when, turn by turn.

Long because windows and rows go through one object, by one desk.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextvars import Context, copy_context
from math import ceil, inf
from random import Random
from typing import Any

import pytest

from teola.engine import Call, Delta, EngineKind, EngineSpec, Keys, QueryContext, TextPart, Usage
from teola.errors import (
    BudgetSpent,
    EngineAway,
    EngineBusy,
    EngineError,
    InputError,
    QueryCancelled,
)
from teola.graph import DecodeParams, Role
from teola.graph.ops import DECODES, PREFILLS
from teola.policies import batching, routing
from teola.policies.asker import Asker
from teola.policies.ledger import BudgetAccount, Ledger
from teola.policies.work import Slice, ranges
from teola.runtime.asked_rows import WINDOW
from teola.runtime.hosts.local import LocalHost
from teola.runtime.live.row_budget import EXTRA_TOKENS, MARGIN, RowBudget
from teola.runtime.live.row_source import AHEAD, BEHIND, AnswerSink, RowSource
from teola.runtime.live.sent_rows import CHARACTERS, SAMPLED, LiveRows, SentRows
from teola.runtime.observe.noting import working_for
from teola.runtime.observe.trace import Trace
from teola.runtime.rows import Row, RowAnswer, RowsEnd
from teola.schedule.core import Core
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import (
    AbortRows,
    Cancelled,
    Cause,
    Dispatch,
    Finish,
    RowsBegan,
    RowsCame,
    RowsEnded,
    RowsOver,
    SourceEnded,
    Started,
    State,
)
from teola.schedule.instances import Limits
from teola.schedule.quota import Refusal
from teola.schedule.row_run import RowRun, RowSpecs

BLOCK = 5
"""Tokens of a block of the model's cache."""
S = 20.0
"""Longer than anything here takes."""
NEXT = "next"
"""In what a row does: it waits until it is let go on."""


class Model:
    """Does for a row what its script says: it writes deltas, waits (NEXT), or raises. calls: in
    their order, with the queries that they work for. streams: that are open. digests: of prompts,
    by their last part; some cannot be told."""

    block_tokens = BLOCK

    def __init__(self) -> None:
        ops = frozenset(PREFILLS | DECODES)
        self.spec = EngineSpec("llm", EngineKind.LLM, ops, max_batch=10000, max_sequences=100)
        self.scripts: dict[str, Sequence[Any]] = {}
        self.going = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(0))
        self.calls: list[tuple[Call, tuple[str, ...]]] = []
        self.streams = 0
        self.digests: dict[str, Callable[[], tuple[str, ...]]] = {}
        self.asked: list[tuple[Call, bool]] = []

    def start(self) -> None: ...

    def close(self) -> None: ...

    async def prefill(self, call: Call) -> Any:
        raise NotImplementedError

    def count_tokens(self, text: str) -> int:
        raise NotImplementedError

    def keys(self, call: Call, *, complete: bool = True) -> Keys:
        there = threading.current_thread() is threading.main_thread()
        self.asked.append((call, there))
        return Keys(20, self.digests[call.parts[-1].text]())

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        self.calls.append((call, working_for.get()))
        self.streams += 1
        try:
            for piece in self.scripts[call.parts[-1].text]:
                if piece is NEXT:
                    await self.going[call.parts[-1].text].acquire()
                elif isinstance(piece, Exception):
                    raise piece
                else:
                    yield piece
        finally:
            self.streams -= 1


class Bill:
    """What tries that came to nothing have taken."""

    def __init__(self) -> None:
        self.tries: list[tuple[int, Usage]] = []

    def failed(self, i: int, usage: Usage) -> None:
        self.tries.append((i, usage))


class Desk:
    """A driver, as far as rows are concerned. said: what the core would be told, and that it would
    be."""

    def __init__(self, route: str = "least_loaded") -> None:
        self.loop = asyncio.get_running_loop()
        self.model, self.said = Model(), list[Any]()
        limits = [Limits(10000, 100, 1, True, block_tokens=BLOCK)]
        queue = EngineQueue("llm", limits, batching.make("fifo"), routing.make(route))
        self.core = Core({"llm": queue}, lambda run, i: 10)
        self.hosts = {("llm", 0): LocalHost(self.model, 0)}
        self.rows: dict[str, Any] = {}
        self.sent = SentRows(self)

    def tell(self, run: str, event: Any, now: float) -> None:
        self.said.append((run, event))
        self.core.tell(run, event, now)

    def came(self, event: Any) -> None:
        self.said.append(event)

    def wake(self) -> None:
        self.said.append("wake")

    def turn(self) -> None:
        self.said.append("turn")

    def context(self) -> Context:
        return copy_context()

    def heard(self) -> list[Any]:
        said, self.said = self.said, []
        return said

    def run(
        self,
        source: Any = None,
        sink: Any = None,
        *,
        instruction: str = "why",
        warm: bool = False,
        **decode: Any,
    ) -> LiveRows:
        specs = RowSpecs("llm", "rows", interactive=True, output=8)
        run = RowRun("rows", specs, Asker("t", "tables", "p"), most=9, warm=warm)
        made = LiveRows(
            run,
            Trace("rows", "tables", None, 0.0),
            QueryContext("rows"),
            instruction,
            DecodeParams(**decode),
            source,
            sink,
            self.loop.create_future(),
        )
        self.core.add(run)
        self.core.tell("rows", Started({}), 0.0)
        self.rows["rows"] = made
        return made

    def window(self, asked: LiveRows, scripts: Sequence[Sequence[Any]]) -> Any:
        """A window whose rows do this; its work."""
        i = len(asked.run.plan)
        rows = [Row(1000 * i + k, f"{i}.{k}") for k in range(len(scripts))]
        self.model.scripts |= {row.text: script for row, script in zip(rows, scripts, strict=True)}
        asked.opened(rows)
        self.core.tell("rows", RowsCame(len(rows), 10), 0.0)
        return self.core.queues["llm"].works["rows", i]

    def begin(self, work: Any, lo: int, hi: int, batch: int = 0) -> None:
        command = Dispatch("llm", 0, batch, ())
        self.sent.begin(self.hosts["llm", 0], command, Slice(work, lo, hi))


async def turns() -> None:
    """Some turns of the event loop."""
    for _ in range(6):
        await asyncio.sleep(0)


async def until(there: Callable[[], bool]) -> None:
    """A thread has done what is waited for."""
    async with asyncio.timeout(S):
        while not there():
            await asyncio.sleep(0)


# --- one row ----------------------------------------------------------------------------------

BUSY, AWAY = EngineBusy("429", after_s=2.5), EngineAway("nobody is there")
BROKE, WRONG, ODD = EngineError("broke", retryable=True), EngineError("no"), ValueError("odd")
EMPTY = "the engine ended the stream before its first token"
NO_DELTA = "engine 'llm' streamed 'text', not a teola.engine.Delta(text)"
INSTRUCTION = "i" * 41
ESTIMATE = ceil((41 + 3) / CHARACTERS)
"""Tokens of a prompt, by its length."""


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ([Delta("yes")], ("yes",)),
        ([Delta(""), Delta("")], ("",)),
        ([Delta(" \n"), Delta("a "), Delta(" b\n ")], ("a  b",)),
        ([Delta("a", usage=Usage(9, 2, 4)), Delta("b")], ("ab", 9, 4, 2)),
        ([Delta("a", usage=Usage(9, 1, 4)), Delta("b", "stop", Usage(9, 2, 5))], ("ab", 9, 5, 2)),
        ([Delta("a", usage=Usage(9, 2, 0))], ("a", 9, 0, 2)),
        ([Delta("a", usage=Usage(9, 0, 4))], ("a", 9, 4, None)),
        ([Delta("a", usage=Usage(0, 2, 0))], ("a", 0, None, 2)),
        ([Delta("a", usage=Usage(0, 2, 3))], ("a", 0, 3, 2)),
        ([Delta("<think>why</think> so")], ("so",)),
        ([Delta("<thi"), Delta("nk>why</thin"), Delta("k>"), Delta(" so ")], ("so",)),
        ([Delta("so <think>why</think>")], ("so <think>why</think>",)),
        ([Delta("<think>so")], ("",)),
    ],
)
async def test_a_row_is_answered_with_all_that_was_written_and_what_was_counted(
    script: Sequence[Any], answer: tuple[Any, ...]
) -> None:
    """What needs not wait is over at once, and told in this turn."""
    desk = Desk()
    asked = desk.run(instruction=INSTRUCTION)
    desk.begin(desk.window(asked, [script]), 0, 1, batch=7)
    text, *counts = answer
    prompt, cached, written = counts or (0, None, None)
    given = [(RowAnswer(0, text, None, prompt, cached, written), 41 + 3)]
    told = RowsEnded("llm", 7, "rows", 0, 0, [(0, 1)], [], 1, cached, written, given)
    assert desk.heard() == [told, "wake"]
    await turns()
    assert (desk.heard(), bool(desk.sent), desk.sent.tasks(), desk.model.streams) == (
        [],
        False,
        [],
        0,
    )


async def test_what_a_model_thinks_stays_where_that_is_asked_for() -> None:
    desk = Desk()
    asked = desk.run(keep_thoughts=True)
    desk.begin(desk.window(asked, [[Delta(" <think>why</think> so")]]), 0, 1)
    assert desk.heard()[0].given[0][0].text == "<think>why</think> so"


@pytest.mark.parametrize("written", [[], ["ab", "", "cde"], [Usage(9, 2, 1), "x"]])
@pytest.mark.parametrize(
    ("error", "again", "refused"),
    [
        (BROKE, True, None),
        (WRONG, False, None),
        (ODD, False, None),
        (BUSY, True, Refusal("busy", 2.5)),
        (AWAY, True, Refusal("away")),
        (EngineAway("for ever", retryable=False), False, None),
        ("text", False, None),
        (None, True, None),
    ],
)
async def test_a_row_that_comes_to_nothing_says_why_and_pays_for_what_it_has_begun(
    error: Any, again: bool, refused: Refusal | None, written: list[Any]
) -> None:
    if error is None and written:
        return  # that is an answer
    pieces = [Delta(one) if isinstance(one, str) else Delta("", usage=one) for one in written]
    desk = Desk()
    asked = desk.run(instruction=INSTRUCTION)
    asked.budget = bill = Bill()  # type: ignore[assignment]
    script = [*pieces, *([] if error is None else [error])]
    work = desk.window(asked, [[Delta("x"), NEXT], script])
    desk.begin(work, 1, 2)
    (told, wake) = desk.heard()
    (failure,) = told.failed
    assert wake == "wake"
    assert told == RowsEnded("llm", 0, "rows", 0, 1, [], [failure], int(bool(written)), given=[])
    assert (failure.row, failure.begun) == (1, bool(written))
    assert failure.cause == Cause(failure.cause.error, again, False, refused)
    if isinstance(error, Exception):
        assert failure.cause.error is error
    else:
        assert str(failure.cause.error) == (EMPTY if error is None else NO_DELTA)
    length = sum(len(one) for one in written if isinstance(one, str))
    usages = [one for one in written if isinstance(one, Usage)]
    took = usages[-1] if usages else Usage(ESTIMATE, ceil(length / CHARACTERS))
    assert bill.tries == [(0, took)] * bool(written)
    await turns()
    assert (desk.model.streams, desk.heard()) == (0, [])


async def test_what_gives_no_stream_fails_its_rows() -> None:
    desk = Desk()

    async def generate(call: Call) -> str:
        raise AssertionError("it is not awaited")

    desk.model.generate = generate  # type: ignore[assignment, method-assign]
    desk.begin(desk.window(desk.run(), [[]]), 0, 1)
    (failure,) = desk.heard()[0].failed
    assert "gave coroutine for a call, not a stream" in str(failure.cause.error)
    assert (failure.begun, failure.cause.retryable) == (False, False)


async def test_a_row_is_a_call_of_its_run_with_its_windows_urgency() -> None:
    desk = Desk()
    asked = desk.run(max_tokens=7)
    work = desk.window(asked, [[Delta("a")]] * 4)
    work.priority = 3
    token = working_for.set(("somebody",))
    desk.begin(work, 1, 3)
    assert working_for.get() == ("somebody",)
    working_for.reset(token)
    instruction = TextPart(Role.INSTRUCTION, "why")
    assert [call for call, _ in desk.model.calls] == [
        Call(
            asked.context,
            (instruction, TextPart(Role.QUESTION, f"0.{k}")),
            DecodeParams(max_tokens=7),
            None,
            3,
            ("tables", "rows"),
        )
        for k in (1, 2)
    ]
    assert [of for _, of in desk.model.calls] == [("rows",)] * 2


async def test_rows_of_a_run_that_is_over_are_not_asked() -> None:
    desk = Desk()
    work = desk.window(desk.run(), [[Delta("a")]] * 4)
    desk.rows.clear()
    desk.begin(work, 1, 3, batch=5)
    (told, wake) = desk.heard()
    assert told == RowsEnded("llm", 5, "rows", 0, 1, failed=told.failed)
    assert [
        (row, str(cause.error), cause.retryable, begun) for row, cause, begun in told.failed
    ] == [(row, "the run ended before its rows were asked", False, False) for row in (1, 2)]
    assert (wake, desk.model.calls, bool(desk.sent)) == ("wake", [], False)


# --- rows beside each other -------------------------------------------------------------------


class Tally:
    """What has become of a slice since that was told, kept the slow way."""

    def __init__(self, batch: int, i: int, lo: int, hi: int) -> None:
        self.place = "llm", batch, "rows", i, lo
        self.out = set(range(lo, hi))
        self.clear()

    def clear(self) -> None:
        self.answers = dict[int, RowAnswer]()
        self.failed = list[tuple[Any, ...]]()
        self.firsts = 0

    def told(self) -> tuple[Any, ...]:
        rows = sorted(self.answers)
        answers = [self.answers[row] for row in rows]
        cached = [one.cached for one in answers if one.cached is not None]
        written = [one.generated for one in answers if one.generated is not None]
        made = (
            *self.place,
            ranges(rows),
            [*self.failed],
            self.firsts,
            sum(cached) if cached else None,
            sum(written) if written else None,
            [(answer, 3 + 3) for answer in answers],
        )
        self.clear()
        return made


def plainly(said: Sequence[Any]) -> list[Any]:
    """What was said, with errors as texts."""
    return [
        (
            *(one.engine, one.batch, one.run, one.primitive, one.lo, one.ended),
            [(row, repr(cause.error), cause.retryable, begun) for row, cause, begun in one.failed],
            *(one.firsts, one.cached, one.generated, one.given),
        )
        if isinstance(one, RowsEnded)
        else one
        for one in said
    ]


ABORTED = repr(QueryCancelled("aborted"))
COUNTED = [None, Usage(9, 2, 0), Usage(0, 0, 0), Usage(5, 0, 3), Usage(0, 4, 0)]


class Beside:
    """Slices of two windows, whose rows go on one piece at a time. Each row writes two pieces, or
    breaks off before the first or behind it."""

    def __init__(self, seed: int) -> None:
        self.chance, self.desk = Random(seed), Desk()
        self.asked = self.desk.run()
        self.scripts = [[self.script() for _ in range(8)] for _ in range(2)]
        self.works = [self.desk.window(self.asked, scripts) for scripts in self.scripts]
        self.at = {(i, k): 0 for i in range(2) for k in range(8)}
        spans = [(i, lo, lo + 2) for i in range(2) for lo in (0, 2, 4, 6)]
        self.chance.shuffle(spans)
        self.waiting = list(enumerate(spans))
        self.slices: list[Tally] = []
        self.dirty: list[Tally] = []

    def script(self) -> list[Any]:
        usage = self.chance.choice(COUNTED)
        made = [NEXT, Delta("a"), NEXT, Delta("b", usage=usage), NEXT]
        if self.chance.random() < 0.3:
            made[self.chance.choice([1, 3])] = WRONG
        if self.chance.random() < 0.4:
            made.remove(NEXT)
        return made

    def touch(self, tally: Tally) -> None:
        if tally not in self.dirty:
            self.dirty.append(tally)

    def goes_on(self, tally: Tally, i: int, k: int) -> None:
        """A row does what it can do until it waits again, or is over."""
        script, row = self.scripts[i][k], f"{i}.{k}"
        while (at := self.at[i, k]) < len(script):
            piece = script[at]
            self.at[i, k] += 1
            if piece is NEXT:
                return
            before = [one for one in script[:at] if isinstance(one, Delta)]
            if piece is WRONG or not before:
                self.touch(tally)
            if piece is WRONG:
                tally.out.remove(k)
                tally.failed.append((k, repr(WRONG), False, bool(before)))
                self.at[i, k] = len(script)
                return
            tally.firsts += not before
        self.touch(tally)
        tally.out.remove(k)
        usage = next((one.usage for one in script if isinstance(one, Delta) and one.usage), None)
        cached = usage and (usage.cached_tokens if usage.prompt_tokens else None)
        counts = (usage.prompt_tokens, cached, usage.completion_tokens or None) if usage else ()
        tally.answers[k] = RowAnswer(1000 * i + int(row[2:]), "ab", None, *counts)

    def rows_out(self) -> list[tuple[Tally, int, int]]:
        return [(one, one.place[3], k) for one in self.slices for k in sorted(one.out)]

    def let(self, count: int) -> None:
        """Some rows go on in the next turn."""
        out = self.rows_out()
        for tally, i, k in self.chance.sample(out, min(count, len(out))):
            self.desk.model.going[f"{i}.{k}"].release()
            self.goes_on(tally, i, k)

    def begin(self) -> list[Any]:
        """A slice is sent; what is to be told of it at once."""
        if not self.waiting:
            return []
        batch, (i, lo, hi) = self.waiting.pop()
        tally = Tally(batch // 3, i, lo, hi)  # several of one batch
        self.desk.begin(self.works[i], lo, hi, batch // 3)
        self.slices.append(tally)
        around, self.dirty = self.dirty, []
        for k in range(lo, hi):
            self.goes_on(tally, i, k)
        mine, self.dirty = self.dirty, around
        return [tally.told(), "wake"] if mine else []

    def abort(self) -> None:
        """A slice is given up, or one that is not out."""
        tally = self.chance.choice(self.slices)
        _, batch, run, i, lo = tally.place
        for other in ((batch, i, lo + 1), (batch + 9, i, lo), (batch, i + 2, lo)):
            self.desk.sent.abort(AbortRows("llm", 0, other[0], run, other[1], other[2]))
        self.desk.sent.abort(AbortRows("llm", 0, batch, run, i, lo))
        for k in sorted(tally.out):
            self.touch(tally)
            begun = any(isinstance(one, Delta) for one in self.scripts[i][k][: self.at[i, k]])
            tally.failed.append((k, ABORTED, False, begun))
        tally.out.clear()


@pytest.mark.parametrize("seed", range(40))
async def test_what_has_become_of_each_slice_is_told_once_in_a_turn(seed: int) -> None:
    """Of all that were touched, in the order in which they were; of one that begins, at once."""
    beside = Beside(seed)
    desk, chance = beside.desk, beside.chance
    while beside.waiting or beside.rows_out():
        expected: list[Any] = []
        match chance.choice(["let", "let", "begin", "both", "abort", "nothing"]):
            case "let":
                beside.let(chance.randint(1, 5))
            case "begin":
                expected = beside.begin()
            case "both":  # what is sent in a turn in which others go on
                beside.let(chance.randint(1, 3))
                desk.loop.call_soon(lambda said=expected: said.extend(beside.begin()))
            case "abort" if beside.slices:
                beside.abort()
        await turns()
        expected += [tally.told() for tally in beside.dirty]
        expected += ["turn"] * bool(beside.dirty)
        beside.dirty.clear()
        assert plainly(desk.heard()) == expected
        out = len(beside.rows_out())
        assert (len(desk.sent.tasks()), bool(desk.sent), desk.model.streams) == (out, out > 0, out)
    asked = Counter(call.parts[-1].text for call, _ in desk.model.calls)
    assert set(asked.values()) == {1}
    assert len(asked) == 16


# --- windows ----------------------------------------------------------------------------------


class Source(RowSource):
    """Rows that are read, as far as they are read ahead, before anybody takes them; they may end
    with an error."""

    def __init__(self, desk: Desk, lengths: Sequence[int], error: Exception | None = None) -> None:
        def rows() -> Iterator[Row]:
            for k, length in enumerate(lengths):
                yield Row(k, "x" * length)
            if error is not None:
                raise error

        super().__init__(rows(), desk.loop, lambda: desk.sent.look(desk.rows["rows"]))

    async def read(self) -> Source:
        await until(lambda: self._ended or len(self._buffer) == AHEAD)
        await turns()
        return self


def hears(answers: Sequence[RowAnswer]) -> None:
    """Somebody does."""


def sink() -> AnswerSink:
    return AnswerSink(hears, lambda: None, lambda error: None)


def came(desk: Desk) -> list[Any]:
    """How many rows came in each window, from which on; or why there are no more."""
    told = []
    for one in desk.heard():
        if one == "wake":
            continue
        run, event = one
        assert run == "rows"
        told.append(event.error if isinstance(event, SourceEnded) else event.count)
    return told


async def test_a_window_is_taken_for_each_that_is_wanted_until_there_are_no_more() -> None:
    desk = Desk()
    source = await Source(desk, [1] * (2 * WINDOW + 9)).read()
    asked = desk.run(source, sink(), instruction="i" * 39)
    for wanted, windows in ((1, [WINDOW]), (2, [WINDOW, 9]), (2, [None])):
        for _ in range(wanted):
            desk.sent.want(asked)
            assert desk.said == []
        await until(lambda: not asked.wanted)
        assert came(desk) == windows
    assert [row.id for i in range(3) for row in asked.windows[i]] == list(range(2 * WINDOW + 9))


async def test_each_window_and_the_end_wake_the_driver() -> None:
    desk = Desk()
    asked = desk.run(await Source(desk, [1, 3]).read(), sink(), instruction="i" * 38)
    desk.sent.want(asked)
    desk.sent.want(asked)
    await turns()
    assert desk.heard() == [
        ("rows", RowsCame(2, 10, 0, ())),
        "wake",
        ("rows", SourceEnded(None)),
        "wake",
    ]


async def test_a_source_that_fails_ends_its_run_with_that_whatever_it_has_read() -> None:
    desk, error = Desk(), OSError("the disk is gone")
    asked = desk.run(await Source(desk, [1] * 3, error).read(), sink())
    desk.sent.want(asked)
    await turns()
    assert came(desk) == [error]
    assert asked.windows == {}


async def test_the_first_row_goes_alone_where_it_warms_and_the_others_once_it_has_begun() -> None:
    desk = Desk()
    asked = desk.run(await Source(desk, [1] * 5).read(), sink(), warm=True)
    for windows in ([1], [4], [None]):
        desk.sent.want(asked)
        await turns()
        assert came(desk) == windows
        desk.core.tell("rows", RowsBegan(0), 0.0)


async def test_nothing_is_taken_for_a_run_that_is_over_or_while_too_many_answers_wait() -> None:
    desk, given, drained = Desk(), threading.Event(), threading.Event()

    def hear(answers: Sequence[RowAnswer]) -> None:
        given.wait(S)

    full = AnswerSink(hear, drained.set, lambda error: None)
    full.put([RowAnswer(0, "", None)] * BEHIND)
    asked = desk.run(await Source(desk, [1] * 5).read(), full)
    desk.sent.want(asked)
    await turns()
    assert (came(desk), asked.wanted) == ([], 1)
    given.set()
    await until(drained.is_set)
    asked.ended, asked.ended = desk.core.tell("rows", Cancelled(), 0.0)[-1], None  # type: ignore[assignment]
    desk.sent.look(asked)
    assert (came(desk), asked.wanted) == ([5], 0)
    full.end(lambda: None)


# --- keys -------------------------------------------------------------------------------------


def no_keys() -> tuple[str, ...]:
    raise RuntimeError("there is no tokenizer")


ALL = tuple("abcdef")


@pytest.mark.parametrize(
    ("tokens", "make", "keys"),
    [
        (3 * BLOCK, lambda: ALL, "abc"),
        (3 * BLOCK - 1, lambda: ALL, "ab"),
        (BLOCK - 1, lambda: ALL, ""),
        (9 * BLOCK, lambda: ALL, "abcdef"),
        (9 * BLOCK, lambda: (), ""),
        (9 * BLOCK, no_keys, ""),
    ],
)
async def test_a_window_comes_with_the_keys_of_its_first_prompt_as_far_as_its_rows_have_them(
    tokens: int, make: Callable[[], tuple[str, ...]], keys: str
) -> None:
    """They are worked out beside the event loop, where routing goes by them; tokens by lengths."""
    desk = Desk("prefix_affinity")
    texts = [int(tokens * CHARACTERS) - 3 - 2, int(tokens * CHARACTERS) - 3 + 2]
    desk.model.digests = {"x" * texts[0]: make}
    asked = desk.run(await Source(desk, texts).read(), sink())
    desk.sent.want(asked)
    await until(lambda: len(desk.said) == 2)
    assert desk.heard() == [("rows", RowsCame(2, tokens, 0, tuple(keys))), "wake"]
    ((call, on_the_loop),) = desk.model.asked
    instruction = TextPart(Role.INSTRUCTION, "why")
    parts = instruction, TextPart(Role.QUESTION, "x" * texts[0])
    assert call == Call(asked.context, parts, asked.decode, None, 0, ("tables", "rows"))
    assert not on_the_loop


@pytest.mark.parametrize(("route", "keyed"), [("least_loaded", True), ("prefix_affinity", False)])
async def test_nothing_is_worked_out_where_nobody_goes_by_it_or_nobody_can(
    route: str, keyed: bool
) -> None:
    desk = Desk(route)
    if not keyed:
        desk.hosts["llm", 0].keys = None
    asked = desk.run(await Source(desk, [1]).read(), sink())
    desk.sent.want(asked)
    await turns()
    assert desk.heard() == [("rows", RowsCame(1, 1, 0, ())), "wake"]
    assert desk.model.asked == []


async def test_windows_that_are_measured_side_by_side_are_numbered_as_they_come() -> None:
    """The first one's keys come last; each is paid from what was reserved for it. A run that has
    ended meanwhile is told nothing."""
    desk = Desk("prefix_affinity")
    first, last = threading.Event(), threading.Event()

    def wait(event: threading.Event) -> Callable[[], tuple[str, ...]]:
        def made() -> tuple[str, ...]:
            event.wait(S)
            return ()

        return made

    lengths = [*([8] * WINDOW), *([16] * WINDOW), *([24] * WINDOW)]
    desk.model.digests = {"x" * 8: wait(first), "x" * 16: tuple, "x" * 24: wait(last)}
    asked = desk.run(await Source(desk, lengths).read(), sink(), instruction="")
    asked.answered, account = 1, BudgetAccount(most_tokens=10**9)
    asked.budget = budget = RowBudget(Ledger(account), None, 8)
    for _ in range(3):
        desk.sent.want(asked)
    await until(lambda: len(desk.said) == 2)
    first.set()
    await until(lambda: len(desk.said) == 4)
    assert [event.row_tokens for event in (one[1] for one in desk.heard() if one != "wake")] == [
        4,
        2,
    ]
    assert [asked.windows[i][0].id for i in range(2)] == [WINDOW, 0]
    reserved = {i: held.tokens for i, held in budget.held.items()}
    assert reserved == {
        i: WINDOW * (MARGIN * row + EXTRA_TOKENS + 8) for i, row in ((0, 4), (1, 2))
    }
    assert len(budget.pending) == 1
    asked.finished(desk.core.tell("rows", Cancelled(), 0.0)[-1], 0.0)  # type: ignore[arg-type]
    last.set()
    await desk.loop.shutdown_default_executor()
    await turns()
    assert (desk.heard(), len(budget.pending), asked.windows) == ([], 1, {})


# --- budgets ----------------------------------------------------------------------------------

ANSWER = 8
EACH = int(MARGIN * 2 + EXTRA_TOKENS) + ANSWER
"""Tokens that are reserved for a row of two tokens."""


async def paid(
    desk: Desk, rows: int, most_tokens: float = inf, most_cost: float = inf
) -> tuple[LiveRows, Ledger]:
    asked = desk.run(await Source(desk, [8] * rows).read(), sink(), instruction="")
    ledger = Ledger(BudgetAccount(most_tokens=most_tokens, most_cost=most_cost))
    asked.budget = RowBudget(ledger, None, ANSWER)
    return asked, ledger


@pytest.mark.parametrize(
    ("rows", "room", "answered", "windows"),
    [
        (3, 1000, 0, [3, None]),
        (SAMPLED, 1000, 0, [SAMPLED, None]),
        (SAMPLED + 1, 1000, 0, [SAMPLED, 1, None]),
        (2 * SAMPLED + 1, 1000, 1, [2 * SAMPLED + 1, None]),
        (7, 7, 0, [7, None]),
        (8, 7, 0, [4, 2, 1]),
        (6, 7, 0, [6, None]),
        (2, 1, 0, [1]),
    ],
)
async def test_as_many_rows_come_as_can_be_paid_for_and_the_others_first_in_the_next_window(
    rows: int, room: int, answered: int, windows: list[int | None]
) -> None:
    desk = Desk()
    asked, ledger = await paid(desk, rows, room * EACH)
    asked.answered = answered
    for _ in range(len(windows)):
        desk.sent.want(asked)
    await turns()
    assert came(desk) == windows
    come = sum(window or 0 for window in windows)
    ids = [row.id for i in sorted(asked.windows) for row in asked.windows[i]]
    assert ids == list(range(come))
    assert ledger.accounts[0].held_tokens == come * EACH


@pytest.mark.parametrize("rows", [1, 9])
async def test_rows_wait_for_what_is_given_back_and_end_where_nothing_will_be(rows: int) -> None:
    """Nothing is lost of them: the first one comes first."""
    desk = Desk()
    asked, ledger = await paid(desk, rows, EACH)
    (account,) = ledger.accounts
    held = ledger.reserve(EACH - ANSWER, ANSWER)
    assert held is not None
    desk.sent.want(asked)
    await turns()
    assert (came(desk), asked.wanted, len(account.waiting)) == ([], 1, 1)
    in_thread = threading.Thread(target=held.give_back)
    in_thread.start()
    in_thread.join()
    await turns()
    assert (came(desk), asked.wanted) == ([1], 0)
    assert [row.id for row in asked.windows[0]] == [0]
    ledger.took(EACH, 0, 0)
    budget = asked.budget
    assert budget is not None
    budget.settle(0)
    desk.sent.want(asked)
    await turns()
    (error,) = came(desk)
    assert type(error) is (BudgetSpent if rows > 1 else type(None))


async def test_a_bound_in_money_without_a_price_ends_the_run_before_any_row() -> None:
    desk = Desk()
    asked, _ = await paid(desk, 3, most_cost=1.0)
    desk.sent.want(asked)
    await turns()
    (error,) = came(desk)
    assert type(error) is InputError
    assert "needs the price of the rows' model" in str(error)
    assert asked.windows == {}
    assert len(asked.source.take()) == 3


# --- ends -------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", [True, False])
async def test_an_end_is_told_after_the_last_answer_and_lets_go_of_all(waits: bool) -> None:
    desk, goes_on = Desk(), threading.Event()
    given = list[RowAnswer]()

    def hear(answers: Sequence[RowAnswer]) -> None:
        goes_on.wait(S)
        given.extend(answers)

    def broke(error: Exception) -> None:
        raise AssertionError("nobody does")

    asked = desk.run(await Source(desk, [8] * 3).read(), AnswerSink(hear, desk.turn, broke))
    account = BudgetAccount(most_tokens=10 * EACH)
    asked.budget = RowBudget(Ledger(account), None, ANSWER)
    asked.timer = desk.loop.call_later(S, desk.turn)
    desk.sent.want(asked)
    await turns()
    assert account.held_tokens > 0
    asked.sent(0, 0, 2)
    asked.sent(0, 0, 1)
    answers = [RowAnswer(k, "x", None, 9, 4, 2) for k in range(2)]
    asked.give(RowsOver("rows", 0, [(one, 11) for one in answers], []))
    error = EngineError("broke")
    asked.finished(Finish("rows", State.FAILED, Cause(error), ()), asked.run.began + 3.5)
    asked.end(asked.run.began + 3.5)
    assert asked.context.life.over
    assert asked.source._over
    assert asked.timer.cancelled()
    assert (account.held_tokens, account.open, account.tokens) == (0, 0, 2 * (9 + 2))
    await turns()
    assert not asked.done.done()
    if not waits:
        asked.done.cancel()
    goes_on.set()
    if waits:
        async with asyncio.timeout(S):
            end = await asked.done
        assert end == RowsEnd("failed", 2, 0, 3, 18, 8, 4, 3.5, error)
    else:
        await until(lambda: len(given) == 2)
        await turns()
    assert given == answers
