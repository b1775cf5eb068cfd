"""Calls as engines get them, and what who hears a call is told of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from teola.engine import Delta, NextRead, QueryContext, SequenceHandle, TextPart, Usage
from teola.errors import OutputError
from teola.graph import DecodeParams, Op, Ref, Role
from teola.policies.work import Slice, Work
from teola.runtime.hosts.local import LocalHost
from teola.runtime.live.call import Hearer, LiveCall, Lives, call_of
from teola.runtime.live.nesting import Terms
from teola.runtime.live.query import LiveQuery, Progress, Token
from teola.runtime.observe.trace import Trace
from teola.runtime.store import Store
from teola.schedule.events import Completed, Dispatch, FirstToken, MemberCompleted, Started, State
from teola.schedule.graph_run import GraphRun
from teola.schedule.plan import Plan
from tests.runtime.faults import Scripted
from tests.schedule.plans import call, plan

ANSWER = {"a": Ref("m", "text")}
SENT = Dispatch("llm", 1, 7, ())


def live_query(made: Plan, streams: bool = True) -> tuple[LiveQuery, list[Any]]:
    """With what its watcher hears."""
    heard = list[Any]()
    run, trace = GraphRun("q", made), Trace("q", "app", made, 0.0)
    store = Store(made, {"question": "why?", "notes": "a note"})
    run.handle(Started(store.counts()), 0.0)
    context = QueryContext("q")
    return LiveQuery(context, made, store, run, trace, None, heard.append, streams, Terms()), heard


# --- what is asked --------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [None, 3, 255, 256, 257])
def test_a_call_may_write_what_it_asks_for_or_less(most: int | None) -> None:
    query, _ = live_query(plan(*call("m")))
    reads = (NextRead(1.0, 2),)
    made = call_of(query, 0, 0, -4, reads, most)
    asked = DecodeParams()
    assert asked.max_tokens == 256
    assert made.decode == replace(asked, max_tokens=min(256, most or 256))
    assert (made.context, made.priority, made.reads) == (query.context, -4, reads)
    assert made.category == ("app", "m")
    assert (made.parts, made.prefix) == ((TextPart(Role.QUESTION, "why?"),), None)
    plain = call_of(query, 0, 0)
    assert (plain.priority, plain.reads) == (0, ())


@pytest.mark.parametrize("by_text", [True, False, None])
@pytest.mark.parametrize("instance", [0, 1])
def test_what_stands_before_a_call_is_of_use_on_its_own_instance(
    instance: int, by_text: bool | None
) -> None:
    """Elsewhere its text is, and its token ids where instances share them."""
    query, _ = live_query(plan(*call("m", ahead=True)))
    part = TextPart(Role.QUESTION, "why?")
    held = SequenceHandle("llm", 1, (part,), (1, 2), "state")
    query.store.put(0, {"sequence": held})
    query.run.handle(Completed(0, {"sequence": 1}), 0.0)
    made = call_of(query, 1, instance, **({} if by_text is None else {"by_text": by_text}))
    if instance == 1:
        assert made.prefix is held
    else:
        ids = () if by_text else (1, 2)
        assert made.prefix == replace(held, state=None, token_ids=ids)
    assert made.parts == (part,)


# --- what is heard --------------------------------------------------------------------------------


def hearer(
    items: int = 2, follows: bool = False, streams: bool = True
) -> tuple[Hearer, LiveQuery, list[Any], list[Any], list[Any]]:
    """Of a call with so many decodings (0: with an answer): what its watcher, the core and the
    list's readers are told."""
    prefill, decode = call("m")
    answering = plan(prefill, replace(decode, outputs=("text",)), outputs=ANSWER)
    query, heard = live_query(plan(*call("m", items)) if items else answering, streams)
    told, wrote = list[Any](), list[Any]()

    def write(of: LiveQuery, head: int, sent: Dispatch, k: int, item: Any) -> None:
        wrote.append((head, k, item))

    query.trace.sent(0, 0, 1, 0.0, 0.0, 1, 7, 1)
    one = Hearer(query, 0, SENT, Lives(told.append, lambda: 2.0, write), follows=follows)
    return one, query, heard, told, wrote


def ends(query: LiveQuery) -> dict[str, tuple[str, float]]:
    return {span.primitive: (span.state, span.end) for span in query.trace.spans}


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("follows", [True, False])
def test_the_first_token_is_told_to_the_core_and_to_who_watches(
    follows: bool, streams: bool
) -> None:
    one, query, heard, told, _ = hearer(items=0, follows=follows, streams=streams)
    one.first()
    state = "shared" if follows else "done"
    assert ends(query)["m.prefill"] == (state, 2.0)
    assert query.store.values[0] == {"sequence": True}
    assert told == [FirstToken("llm", 1, "q", 0, streams)]
    assert heard == [Progress("m.prefill", Op.PREFILLING.value, "llm", "writing", 1)]
    query.run.handle(Completed(0, {"sequence": 1}), 0.0)
    query.store.release(0)
    one.first()
    assert 0 not in query.store.values, "of another try nothing comes back that was let go"
    assert len(told) == 2
    query.run.state = State.OK
    one.first()
    assert (len(told), len(heard)) == (2, 2)


@pytest.mark.parametrize("follows", [True, False])
def test_each_decoding_is_delivered_once_and_to_each_hearer_as_its_own(follows: bool) -> None:
    one, query, _, told, _ = hearer(follows=follows)
    value = {"out": ["a"]}
    for k in (0, 1):
        one.deliver(k, value)
    counts = {"out": 1}
    assert told == [MemberCompleted("llm", 1, "q", 0, member, counts) for member in (1, 2)]
    assert [query.store.values[member] for member in (1, 2)] == [value] * 2
    assert (query.store.values[1]["out"] is value["out"]) is not follows
    query.run.handle(Completed(0, {"sequence": 1}), 0.0)
    query.run.handle(Completed(1, counts), 0.0)
    one.deliver(0, {"out": ["b"]})
    assert (len(told), query.store.values[1]) == (2, value)
    query.run.state = State.OK
    one.deliver(1, {"out": ["b"]})
    assert (len(told), query.store.values[2]) == (2, value)


def test_items_are_numbered_and_told_where_somebody_reads_them() -> None:
    one, query, _, _, wrote = hearer()
    one.item("a")
    assert (one.items, wrote) == (1, [])
    query.plan.feeding[0] = ()  # type: ignore[index]
    one.item("b")
    one.item("c")
    assert (one.items, wrote) == (3, [(0, 1, "b"), (0, 2, "c")])
    query.run.state = State.OK
    one.item("d")
    assert (one.items, len(wrote)) == (3, 2)


def test_text_is_shown_that_belongs_to_the_answer_as_long_as_the_query_runs() -> None:
    one, query, heard, _, _ = hearer(items=0)
    for text in ("It ", "", "rains."):
        one.token(text)
    assert heard == [Token("It "), Token("rains.")]
    query.run.state = State.OK
    one.token("More")
    assert len(heard) == 2
    unseen, _, nothing, _, _ = hearer(items=0, streams=False)
    unseen.token("It ")
    assert nothing == []


def test_a_try_begins_without_what_the_one_before_it_said_of_its_end() -> None:
    one, query, _, _, _ = hearer()
    one.ends("length")
    one.finished("length")
    assert (query.ends, query.finishes) == ({0: "length"}, {0: "length"})
    Hearer(query, 0, SENT, one.live, follows=False)
    assert (query.ends, query.finishes) == ({}, {})


# --- a call ---------------------------------------------------------------------------------------


class MayBeEmpty(Scripted):
    """Whose empty answers are asked for once more, or not."""

    def __init__(self, *scripts: Any, retries_empty: bool) -> None:
        super().__init__(*scripts)
        self.retries_empty = retries_empty


def live_call(
    streams: bool, work: Work | None = None, batch: int = 7, **more: Any
) -> tuple[LiveCall, LiveQuery, list[Any]]:
    """The call that writes an answer, its query, and what the core is told."""
    prefill, decode = call("m")
    made = plan(prefill, replace(decode, outputs=("text",)), outputs=ANSWER)
    query, _ = live_query(made, streams)
    slices = () if work is None else (Slice(work, 0, 1),)
    sent, told = Dispatch("llm", 1, batch, slices), list[Any]()
    query.trace.sent(0, 0, 1, 0.0, 0.0, 1, batch, 1)
    lives = Lives(told.append, lambda: 2.0, lambda *_: False)
    return LiveCall(sent, query, 0, lives, **more), query, told


@pytest.mark.parametrize("shared", [None, False, True])
async def test_a_call_keeps_what_came_for_those_who_join_it_later(shared: bool | None) -> None:
    """And nothing where nobody may."""
    made, query, told = live_call(False, **({} if shared is None else {"shared": shared}))
    model = Scripted([Delta("It "), Delta("rains", "length", Usage(9, 2))])
    await made.run(LocalHost(model, 1), call_of(query, 0, 1))
    assert made.answer == ("It rains" if shared else "", "length")
    assert (query.ends, query.finishes) == ({0: "length"}, {0: "length"})
    assert (made.cached, made.generated) == (0, 2)
    assert (made.characters, made.usage) == (8, Usage(9, 2))
    first, done = told
    assert first == FirstToken("llm", 1, "q", 0, False)
    assert done == MemberCompleted("llm", 1, "q", 0, 1, {"text": 1})
    assert query.store.values[1] == {"text": "It rains"}
    assert ends(query)["m.prefill"] == ("done", 2.0), "it is its own"


@pytest.mark.parametrize("retries_empty", [True, False])
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize(
    ("tries", "excused", "first"), [(0, 0, True), (1, 0, False), (1, 1, True), (2, 1, False)]
)
async def test_an_empty_answer_is_asked_for_once_more_if_nobody_has_seen_it(
    tries: int, excused: int, first: bool, streams: bool, retries_empty: bool
) -> None:
    """By the first try that counts, of an engine whose empty answers may be none."""
    query, _ = live_query(plan(*call("m")))
    work = Work(query.plan.specs[0], "q", 0, 1, 0.0, 0, tries=tries, excused=excused)
    made, query, _ = live_call(streams, work)
    host = LocalHost(MayBeEmpty([" "], retries_empty=retries_empty), 1)
    if first and not streams and retries_empty:
        with pytest.raises(OutputError, match="the answer is empty") as raised:
            await made.run(host, call_of(query, 0, 1))
        assert raised.value.retryable
        assert query.ends == {}
    else:
        await made.run(host, call_of(query, 0, 1))
        assert query.ends == {0: "empty"}


@pytest.mark.parametrize("read", [True, False])
async def test_a_list_is_written_no_longer_than_somebody_reads_it(read: bool) -> None:
    """Its text is read to the end."""
    prefill, one, two = call("m", 2)
    if read:
        two = replace(two, outputs=("out", "text", "sequence"))
    query, _ = live_query(plan(prefill, one, two))
    query.trace.sent(0, 0, 1, 0.0, 0.0, 1, 7, 1)
    told = list[Any]()
    made = LiveCall(SENT, query, 0, Lives(told.append, lambda: 2.0, lambda *_: False))
    await made.run(LocalHost(Scripted(["a\n", "b\n", "more"]), 1), call_of(query, 0, 1))
    assert len(told) == 3
    assert made.characters == (8 if read else 4)
    assert query.store.values[2].get("text") == ("a\nb\nmore" if read else None)


async def test_of_two_tries_at_once_the_one_that_is_first_goes_on() -> None:
    """The other one's trace says so, and nothing that it writes later is heard."""
    slow, query, told = live_call(False)
    assert not slow.leaves()
    assert (slow.rival, slow.lost) == (None, False)
    lives = Lives(told.append, lambda: 2.0, lambda *_: False)
    query.trace.sent(0, 0, 1, 1.0, 1.0, 2, 8, 1)
    fast = LiveCall(Dispatch("llm", 2, 8, ()), query, 0, lives)
    slow.races(fast)
    assert (slow.rival, fast.rival) == (fast, slow)
    assert (slow.batch, fast.batch) == (7, 8)
    await fast.run(LocalHost(Scripted(["rain"]), 2), call_of(query, 0, 2))
    assert (slow.rival, fast.rival) == (None, None)
    assert (slow.lost, fast.lost, slow.started, fast.started) == (True, False, False, True)
    with pytest.raises(asyncio.CancelledError):
        await slow.run(LocalHost(Scripted(["sun"]), 1), call_of(query, 0, 1))
    assert len(told) == 2
    assert query.store.values[1] == {"text": "rain"}
    spans = [(span.primitive, span.instance, span.end, span.state) for span in query.trace.spans]
    assert spans == [
        ("m.prefill", 1, 2.0, "cancelled"),
        ("m.prefill", 2, 2.0, "done"),
        ("m", 2, 2.0, "done"),
    ]


def test_a_try_that_fails_leaves_the_other_alone() -> None:
    one, query, _ = live_call(False)
    lives = Lives(lambda _: None, lambda: 2.0, lambda *_: False)
    other = LiveCall(Dispatch("llm", 2, 8, ()), query, 0, lives)
    one.races(other)
    assert one.leaves()
    assert (one.rival, other.rival) == (None, None)
    assert (one.lost, other.lost) == (False, False)
    assert not other.leaves(), "it is the last one"


@pytest.mark.parametrize("keeps", [True, False])
async def test_a_model_thinks_aloud_where_that_is_wanted(keeps: bool) -> None:
    prefill, decode = call("m")
    params = DecodeParams(keep_thoughts=keeps)
    made = plan(prefill, replace(decode, outputs=("text",), params=params), outputs=ANSWER)
    query, _ = live_query(made)
    query.trace.sent(0, 0, 1, 0.0, 0.0, 1, 7, 1)
    one = LiveCall(SENT, query, 0, Lives(lambda _: None, lambda: 2.0, lambda *_: False))
    await one.run(LocalHost(Scripted(["<think>so</think>", "rain"]), 1), call_of(query, 0, 1))
    assert query.store.values[1] == {"text": "<think>so</think>rain" if keeps else "rain"}


async def test_who_joins_an_equal_call_hears_all_of_it_once_and_after_who_makes_it() -> None:
    """Whether it joins before it begins, while it is written, or when it is over; and once."""
    made, query, told = live_call(True, shared=True)
    writing, goes_on = asyncio.Event(), asyncio.Event()
    heard = dict[str, list[Any]]()
    queries = dict[str, LiveQuery]()

    def join(name: str) -> None:
        other, heard[name] = live_query(query.plan)
        other.id = name
        queries[name] = other
        other.trace.sent(0, 0, 1, 0.0, 0.0, 1, 7, 1)
        for _ in range(2):
            made.join(other, 0, made._live)

    class Waiting(Scripted):
        async def generate(self, call: Any) -> Any:
            yield Delta("It ")
            writing.set()
            await goes_on.wait()
            yield Delta("rains", "length", Usage(9, 2))

    join("before")
    assert (heard["before"], queries["before"].finishes) == ([], {})
    running = asyncio.ensure_future(made.run(LocalHost(Waiting(["-"]), 1), call_of(query, 0, 1)))
    await writing.wait()
    join("meanwhile")
    assert (queries["meanwhile"].ends, queries["meanwhile"].finishes) == ({}, {})
    goes_on.set()
    await running
    join("after")
    for name, other in queries.items():
        texts = [one.text for one in heard[name] if isinstance(one, Token)]
        assert "".join(texts) == "It rains"
        assert (other.ends, other.finishes) == ({0: "length"}, {0: "length"})
        assert other.store.values[1] == {"text": "It rains"}
    firsts = [event.run for event in told if isinstance(event, FirstToken)]
    dones = [event.run for event in told if isinstance(event, MemberCompleted)]
    assert firsts == dones == ["q", "before", "meanwhile", "after"]
