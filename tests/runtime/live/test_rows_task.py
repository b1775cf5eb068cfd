"""Rows that a live runtime asks: from the caller's iterator to the caller's function.

Long because one pair of servers and callers is what all of it uses.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest

from teola.engine import (
    LONGEST_ANSWER,
    Call,
    Delta,
    EngineKind,
    EngineSpec,
    Keys,
    SequenceHandle,
    Usage,
)
from teola.errors import BudgetSpent, EngineBusy, EngineError, InputError, UnknownName
from teola.graph import DecodeParams
from teola.graph.ops import DECODES, PREFILLS
from teola.policies.ledger import BudgetAccount, Ledger
from teola.runtime.asked_rows import NEAR, WINDOW, window_end
from teola.runtime.collector import YOUNG
from teola.runtime.engines import EngineConfig
from teola.runtime.live.row_budget import RowBudget
from teola.runtime.live.row_source import AHEAD, AnswerSink, RowSource
from teola.runtime.live.rows_task import RowsTask
from teola.runtime.live.sent_rows import LiveRows, SentRows
from teola.runtime.rows import Row, RowAnswer, RowsCall, RowsEnd, RowsHandle
from teola.runtime.runtime import Runtime
from tests.planted import catches, edited

S = 10.0
"""Longer than anything here takes."""


class Model:
    """Answers a row's text in upper case, in two pieces. troubles: how rows fail, the last first.
    opened: what calls wait for. slow: rows that end once so many have begun. begun: calls so far
    when a row gave its first token."""

    def __init__(self, at_once: int = 8, troubles: dict[str, list[Any]] | None = None) -> None:
        ops = frozenset(PREFILLS | DECODES)
        self.spec = EngineSpec("llm", EngineKind.LLM, ops, max_batch=10000, max_sequences=at_once)
        self.troubles = troubles or {}
        self.calls: Counter[str] = Counter()
        self.slow, self.begun = dict[str, int](), dict[str, int]()
        self.running = self.most = 0
        self.opened = threading.Event()
        self.opened.set()

    def start(self) -> None: ...

    def close(self) -> None:
        self.opened.set()

    async def prefill(self, call: Call) -> SequenceHandle:
        raise NotImplementedError

    def count_tokens(self, text: str) -> int:
        return len(text) // 4 + 1

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        instruction, text = (part.text for part in call.parts)
        self.calls[text] += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0)
            while not self.opened.is_set():
                await asyncio.sleep(0.001)
            if waiting := self.troubles.get(text):
                raise waiting.pop()
            self.begun[text] = sum(self.calls.values())
            yield Delta(f"<think>{instruction}</think>{text[:1]}".upper().replace("THINK", "think"))
            await asyncio.sleep(0)
            while text in self.slow and len(self.begun) < self.slow[text]:
                await asyncio.sleep(0.001)
            yield Delta(text[1:].upper(), "stop", Usage(20, 3, 16))
        finally:
            self.running -= 1


class Keyed(Model):
    """One whose routing goes by what prompts share, so that windows are measured off the loop."""

    block_tokens = 16

    def keys(self, call: Call, *, complete: bool = True) -> Keys:
        return Keys(20, (hash(call.parts[0].text),))


class Heard(list[RowAnswer]):
    """All answers, in a test's own thread."""

    def __call__(self, some: Sequence[RowAnswer]) -> None:
        assert threading.current_thread().name == "teola-answers"
        self.extend(some)


def asked(
    model: Model, rows: Iterator[Row], heard: Any, **options: Any
) -> tuple[Runtime, RowsHandle]:
    runtime = Runtime({"llm": EngineConfig(lambda: model)}, learn=False)
    return runtime, runtime.ask_rows(RowsCall("why"), rows, heard, **options)


def test_rows_wait_for_the_first_token_of_the_one_that_warms_and_no_longer() -> None:
    model = Model(8)
    model.slow = {"t0": 41}  # it ends after all others have begun
    heard = Heard()
    runtime = Runtime({"llm": EngineConfig(lambda: model)}, learn=False)
    with runtime:
        end = runtime.ask_rows(RowsCall("why", warm=True), numbered(41), heard).result(S)
    assert (end.state, end.asked, end.tries, len(heard)) == ("ok", 41, 41, 41)
    assert model.begun["t0"] == 1


def numbered(count: int) -> Iterator[Row]:
    return (Row(k, f"t{k}", k % 10 == 0) for k in range(count))


@catches(
    "answered-early",
    "a row that failed is answered at once, though it is tried again",
    edited(
        LiveRows.give,
        "lost = self.over",
        "answers += [RowAnswer(0, None, 'early')] * (not given)\n    lost = self.over",
    ),
)
@catches(
    "thoughts-kept",
    "what a model thinks is part of a row's answer",
    edited(SentRows._row, "if OPENS in text and", "if False and"),
)
def test_each_row_is_answered_once_and_in_the_end_some_are_errors() -> None:
    again, wrong = EngineError("it broke", retryable=True), ValueError("no such row")
    model = Model(8, {"t3": [again], "t5": [again] * 9, "t7": [wrong]})
    heard = Heard()
    runtime, handle = asked(model, numbered(300), heard)
    with runtime:
        end = handle.result(S)
    found = {answer.id: answer for answer in heard}
    assert len(heard) == len(found) == 300
    assert found[3] == RowAnswer(3, "T3", None, 20, 16, 3)
    assert (found[5].text, found[5].error) == (None, "it broke")
    assert (found[7].text, found[7].error) == (None, "ValueError: no such row")
    assert (end.state, end.asked, end.failed, end.tries) == ("partial", 300, 2, 303)
    assert (end.prompt_tokens, end.cached_tokens) == (298 * 20, 298 * 16)
    assert end.completion_tokens == 298 * 3
    assert model.most == 8
    assert end.error is None


@catches(
    "rows-searched-through",
    "rows are looked through for garbage at each few",
    edited(RowsTask.run, "with seldom_collecting():", "if True:"),
)
def test_rows_are_seldom_searched_for_garbage_until_they_are_over() -> None:
    before, during = gc.get_threshold(), set[int]()
    runtime, handle = asked(Model(), numbered(30), lambda _: during.add(gc.get_threshold()[0]))
    with runtime:
        assert handle.result(S).state == "ok"
    assert during == {YOUNG}
    assert gc.get_threshold() == before


def test_a_refusal_is_waited_out_and_costs_no_row_anything() -> None:
    busy = [EngineBusy("429", after_s=0.05) for _ in range(2)]
    model, heard = Model(4, {"t2": busy}), Heard()
    runtime, handle = asked(model, numbered(20), heard)
    with runtime:
        end = handle.result(S)
    assert (end.state, len(heard)) == ("ok", 20)
    assert end.tries == 22
    assert set(model.calls) - {"t2"} == {text for text, n in model.calls.items() if n == 1}


@catches(
    "waits-for-more",
    "a window is not taken until it is full",
    edited(RowSource.take, "(self._due and waiting)", "False"),
)
@catches(
    "one-is-none",
    "a row that comes alone is not asked until another one comes",
    edited(RowSource._read, "self._tell_at <= waiting", "self._tell_at < waiting"),
)
def test_a_source_may_wait_for_the_answers_to_what_it_gave() -> None:
    heard, more = Heard(), threading.Semaphore(1)

    def rows() -> Iterator[Row]:
        for k in range(6):
            assert more.acquire(timeout=S)
            yield Row(k, f"t{k}")

    def hear(some: Sequence[RowAnswer]) -> None:
        heard.extend(some)
        more.release(len(some))

    runtime, handle = asked(Model(), rows(), hear)
    with runtime:
        assert handle.result(1.0).asked == len(heard) == 6


@catches(
    "broken-and-called",
    "a function that has raised is called again",
    edited(AnswerSink._give, "broken = True", "pass"),
)
def test_who_has_raised_is_given_nothing_more_and_its_end_is_told() -> None:
    given, broke, over = list[int](), list[Exception](), threading.Event()

    def hear(some: Sequence[RowAnswer]) -> None:
        given.extend(answer.id for answer in some)
        raise ValueError(given[-1])

    sink = AnswerSink(hear, lambda: None, broke.append)
    for k in range(3):
        sink.put([RowAnswer(k, "x", None)])
        ends = time.monotonic() + S
        while sink._given <= k and time.monotonic() < ends:
            time.sleep(0.001)
    sink.end(over.set)
    assert over.wait(S)
    assert given == [0]
    assert [str(error) for error in broke] == ["0"]
    assert not sink.full()


@catches(
    "reads-on",
    "a source is read though nobody has room for its rows",
    edited(RowSource._read, "waiting >= AHEAD", "False"),
)
def test_a_source_is_held_back_by_the_engine() -> None:
    model, read, most = Model(), threading.Event(), 3 * (WINDOW + NEAR) + AHEAD
    model.opened.clear()

    def rows() -> Iterator[Row]:
        yield from numbered(most)
        read.set()
        yield from numbered(WINDOW)

    runtime, handle = asked(model, rows(), Heard())
    with runtime:
        assert not read.wait(0.6)
        handle.cancel()
        assert handle.result(S).state == "cancelled"


def test_windows_end_where_a_row_opens_if_one_does_near_their_end() -> None:
    rows = [Row(k, "", k in (100, WINDOW - 3, WINDOW + 2)) for k in range(WINDOW + NEAR)]
    assert window_end(rows) == WINDOW + 2
    assert window_end(rows[: WINDOW + 2]) == WINDOW - 3
    assert window_end([Row(k, "") for k in range(WINDOW + 9)]) == WINDOW
    assert window_end(rows[:50]) == 50


def test_a_run_ends_with_its_source_its_deadline_or_who_hears_it() -> None:
    def fails() -> Iterator[Row]:
        yield from numbered(10)
        raise OSError("the disk is gone")

    heard = Heard()
    runtime, handle = asked(Model(), fails(), heard)
    with runtime:
        end = handle.result(S)
        assert (end.state, repr(end.error)) == ("failed", "OSError('the disk is gone')")
        never = threading.Event()
        slow = (Row(0, "t") for _ in iter(lambda: never.wait(0.2), True))
        late = runtime.ask_rows(RowsCall("why"), slow, heard, deadline_s=0.05).result(S)
        assert late.state == "deadline"

        def deaf(some: Sequence[RowAnswer]) -> None:
            raise OSError("no room")

        with pytest.raises(OSError, match="no room"):
            runtime.ask_rows(RowsCall("why"), numbered(5), deaf).result(S)
        never.set()


@pytest.mark.parametrize(
    ("call", "options", "told"),
    [
        (RowsCall("why", "lm"), {}, "unknown engine 'lm'"),
        (RowsCall("why", "embedding"), {}, "rows are asked of a language model"),
        (RowsCall("why", decode=DecodeParams(items=3)), {}, "a row has one answer"),
        (RowsCall("why"), {"priority": "high"}, "priority 'high'"),
        (RowsCall("why"), {"deadline_s": 0}, "deadline_s must be seconds above 0"),
    ],
)
def test_what_cannot_be_asked_is_refused_at_once(call: RowsCall, options: Any, told: str) -> None:
    config = EngineConfig(Model)
    with Runtime({"llm": config}, learn=False) as runtime, pytest.raises(InputError) as error:
        runtime.ask_rows(call, iter(()), Heard(), **options)
    assert told in str(error.value)
    assert isinstance(error.value, UnknownName) == (" 'lm'" in told or " 'high'" in told)


@catches(
    "paid-by-nobody",
    "rows reserve nothing",
    edited(SentRows.look, "asked.budget is not None:", "False:"),
)
@catches(
    "never-given-back",
    "what rows did not take of what they reserved is not given back",
    edited(LiveRows.give, "self.budget.settle(i)", "pass"),
)
def test_rows_keep_to_a_budget_and_use_all_of_it() -> None:
    """A row takes 23 tokens, and reserves about twice as many."""
    keeps_to_it(EngineConfig(Model))


@catches(
    "rows-asleep",
    "rows that wait for money hear nothing of what another thread gives back",
    edited(SentRows._look_soon, "call_soon_threadsafe", "call_soon"),
)
@catches(
    "a-window-forgotten",
    "a window for which there was no money is not asked for again",
    edited(SentRows._afford, "asked.wanted += 1", "pass"),
)
def test_rows_wait_for_what_another_runtimes_query_gives_back() -> None:
    account, heard = BudgetAccount(most_tokens=2_000), Heard()
    ledger = Ledger(account)
    for taken in (1_000, 2_000):
        held = ledger.reserve(taken - account.tokens - 16, 16)
        assert held is not None
        with Runtime({"llm": EngineConfig(Model)}, learn=False) as runtime:
            handle = runtime.ask_rows(RowsCall("why"), numbered(3), heard, budget=ledger)
            if taken == 2_000:
                while not account.waiting:
                    time.sleep(0.001)
                time.sleep(0.05)  # the loop is asleep, too
            held.give_back()
            assert handle.result(S).state == "ok"
        assert (account.held_tokens, account.open, len(account.waiting)) == (0, 0, 0)
    assert len(heard) == 6


class Breaks(Model):
    """Breaks off the first try of each row after its first piece."""

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        first = not self.calls[call.parts[1].text]
        async for delta in super().generate(call):
            yield delta
            if first:
                raise EngineError("it broke off", retryable=True)


@catches(
    "tries-are-free",
    "tries that failed are not counted",
    edited(LiveRows.tried, "self.budget is None", "True"),
)
def test_tries_that_fail_are_paid_for() -> None:
    """A prompt has 20 tokens, an answer 3; the piece before it breaks off has 92 characters."""
    account = BudgetAccount(most_tokens=10_000)
    with Runtime({"llm": EngineConfig(Breaks)}, learn=False) as runtime:
        call, ledger = RowsCall("why " * 19), Ledger(account)
        end = runtime.ask_rows(call, numbered(10), Heard(), budget=ledger).result(S)
    assert (end.state, end.tries) == ("ok", 20)
    assert account.tokens == 10 * (20 + 3) + 10 * (20 + 23)
    assert account.held_tokens == account.open == 0


class Endless(Model):
    """Answers as long as one may be, and with one character more where a row asks for more."""

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        for _ in range(LONGEST_ANSWER >> 20):
            yield Delta("x" * 2**20)
        if "more" in call.parts[1].text:
            yield Delta("y")


def test_an_answer_to_a_row_that_never_ends_is_stopped() -> None:
    heard = Heard()
    with Runtime({"llm": EngineConfig(Endless)}, learn=False) as runtime:
        rows = (Row(k, text) for k, text in enumerate(["all", "more"]))
        end = runtime.ask_rows(RowsCall("why"), rows, heard).result(S)
    assert (end.state, end.asked, end.failed) == ("partial", 2, 1)
    whole, stopped = sorted(heard, key=lambda answer: answer.id)
    assert (len(whole.text), whole.error) == (LONGEST_ANSWER, None)
    assert "llm writes an answer of more than 16,777,216 characters" in str(stopped.error)


class TellsAt(Model):
    """Answers in three pieces. A row's text says with which of them it tells what the row has taken
    by then; and behind which it breaks off, the first time."""

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        text = call.parts[1].text
        tells, _, breaks = text.partition(" breaks ")
        self.calls[text] += 1
        for k in range(3):
            yield Delta("abc"[k], usage=Usage(20, k + 1, 16) if str(k) in tells else None)
            await asyncio.sleep(0)
            if breaks == str(k) and self.calls[text] == 1:
                raise EngineError("it broke off", retryable=True)


@pytest.mark.parametrize("breaks", ["", "0", "1", "2"])
def test_what_a_row_took_is_told_with_any_piece_and_the_last_that_tells_counts(breaks: str) -> None:
    """Of a try that broke off, too. Where nothing is told, a token has four characters."""
    account, heard = BudgetAccount(most_tokens=100_000), Heard()
    tells = ["", "0", "1", "2", "01", "12", "02", "012"]
    if breaks:  # of those that have told something by then
        tells = [one for one in tells if one and one[0] <= breaks]
    texts = [f"{one} breaks {breaks}" if breaks else one for one in tells]
    with Runtime({"llm": EngineConfig(lambda: TellsAt(8))}, learn=False) as runtime:
        rows = (Row(k, text) for k, text in enumerate(texts))
        end = runtime.ask_rows(RowsCall(""), rows, heard, budget=Ledger(account)).result(S)
    assert (end.state, end.tries) == ("ok", (2 if breaks else 1) * len(tells))
    expected = 0
    for answer in heard:
        one = tells[answer.id]
        took = int(one[-1]) + 1 if one else None
        assert answer == RowAnswer(answer.id, "abc", None, *((20, 16, took) if took else ()))
        expected += 20 + took if took else 1
        if breaks:
            expected += 20 + max(int(piece) + 1 for piece in one if piece <= breaks)
    assert account.tokens == expected
    assert account.held_tokens == account.open == 0


@catches(
    "given-up-is-free",
    "what is stopped when its run has ended is not counted",
    edited(RowBudget.failed, "if i in self.held:", "if True:"),
)
def test_rows_that_are_given_up_are_paid_for() -> None:
    model, account = Model(at_once=8), BudgetAccount(most_tokens=10_000)
    model.opened.clear()
    with Runtime({"llm": EngineConfig(lambda: model)}, learn=False) as runtime:
        call, ledger = RowsCall("why " * 19), Ledger(account)
        handle = runtime.ask_rows(call, numbered(10), Heard(), budget=ledger)
        while model.running < 8:
            time.sleep(0.001)
        handle.cancel()
        assert handle.result(S).state == "cancelled"
    assert account.tokens == 8 * 20
    assert account.held_tokens == account.open == 0


def test_so_they_do_where_windows_are_measured_side_by_side() -> None:
    keeps_to_it(EngineConfig(Keyed, routing="prefix_affinity"))


def keeps_to_it(config: EngineConfig) -> None:
    account, heard = BudgetAccount(most_tokens=2300), Heard()
    decode = DecodeParams(max_tokens=8)
    with Runtime({"llm": config}, learn=False) as runtime:
        call = RowsCall("why " * 19, decode=decode)
        end = runtime.ask_rows(call, numbered(300), heard, budget=Ledger(account)).result(2.0)
    assert (end.state, type(end.error)) == ("partial", BudgetSpent)
    assert account.tokens == 23 * end.asked == 23 * len(heard)
    assert 0.9 * 2300 <= account.tokens <= 1.02 * 2300
    assert account.held_tokens == account.open == 0


class Late(Model):
    """One that is there once it is opened, or not at all."""

    error: Exception | None = None

    def start(self) -> None:
        self.opened.wait(S)
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("state", ["failed", "deadline", "cancelled"])
def test_of_rows_whose_server_was_never_there_none_was_asked(state: str) -> None:
    """The caller's iterator is not touched then."""
    model = Late()
    model.opened.clear()
    if state == "failed":
        model.error = EngineError("out of memory")
        model.opened.set()

    def rows() -> Iterator[Row]:
        raise AssertionError("nobody asks for rows")
        yield Row("a")

    heard = Heard()
    runtime, handle = asked(model, rows(), heard, deadline_s=0.05 if state == "deadline" else None)
    with runtime:
        if state == "cancelled":
            handle.cancel()
            model.opened.set()
        end = handle.result(S)
        model.opened.set()
    assert end == RowsEnd(state, 0, 0, 0, 0, 0, 0, end.seconds, end.error)
    assert end.seconds >= 0.0
    assert ("out of memory" in str(end.error)) == (state == "failed")
    assert (end.error is None) == (state != "failed")
    assert (heard, model.calls) == ([], Counter())


def test_as_many_queries_are_busy_as_there_are_runs_of_rows() -> None:
    """Each counts until it has ended, however it does."""
    model = Model(8)
    model.opened.clear()
    with Runtime({"llm": EngineConfig(lambda: model)}, learn=False) as runtime:

        async def outermost(runs: int) -> int:
            while len(runtime.live.rows) != runs:
                await asyncio.sleep(0)
            return runtime.live.outermost

        handles = list[RowsHandle]()
        for count in (1, 2, 3, 4):
            handles.append(runtime.ask_rows(RowsCall("why"), numbered(3), Heard()))
            assert runtime.start(outermost(count)).result(S) == count
        for left in (3, 2):
            handles[left].cancel()
            assert handles[left].result(S).state == "cancelled"
            assert runtime.start(outermost(left)).result(S) == left
        model.opened.set()
        assert [handles[k].result(S).state for k in (0, 1)] == ["ok", "ok"]
        assert runtime.start(outermost(0)).result(S) == 0
