"""Calls as engines get them, and what who hears a call is told of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from teola.engine import NextRead, QueryContext, SequenceHandle, TextPart
from teola.graph import DecodeParams, Op, Ref, Role
from teola.runtime.live.call import Hearer, Lives, call_of
from teola.runtime.live.nesting import Terms
from teola.runtime.live.query import LiveQuery, Progress, Token
from teola.runtime.observe.trace import Trace
from teola.runtime.store import Store
from teola.schedule.events import Completed, Dispatch, FirstToken, MemberCompleted, Started, State
from teola.schedule.graph_run import GraphRun
from teola.schedule.plan import Plan
from tests.schedule.plans import call, plan

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


@pytest.mark.parametrize("by_text", [True, False])
@pytest.mark.parametrize("instance", [0, 1])
def test_what_stands_before_a_call_is_of_use_on_its_own_instance(
    instance: int, by_text: bool
) -> None:
    """Elsewhere its text is, and its token ids where instances share them."""
    query, _ = live_query(plan(*call("m", ahead=True)))
    part = TextPart(Role.QUESTION, "why?")
    held = SequenceHandle("llm", 1, (part,), (1, 2), "state")
    query.store.put(0, {"sequence": held})
    query.run.handle(Completed(0, {"sequence": 1}), 0.0)
    made = call_of(query, 1, instance, by_text=by_text)
    if instance == 1:
        assert made.prefix is held
    else:
        ids = () if by_text else (1, 2)
        assert made.prefix == replace(held, state=None, token_ids=ids)
    assert made.parts == (part,)


# --- what is heard --------------------------------------------------------------------------------


def hearer(
    items: int = 2, follows: bool = False, streams: bool = True, used: bool = False
) -> tuple[Hearer, LiveQuery, list[Any], list[Any], list[Any]]:
    """Of a call with so many decodings (0: with an answer): what its watcher, the core and the
    list's readers are told."""
    prefill, decode = call("m")
    answering = plan(prefill, replace(decode, outputs=("text",)), outputs={"a": Ref("m", "text")})
    query, heard = live_query(plan(*call("m", items)) if items else answering, streams)
    told, wrote = list[Any](), list[Any]()

    def write(of: LiveQuery, head: int, sent: Dispatch, k: int, item: Any) -> bool:
        wrote.append((head, k, item))
        return used

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


@pytest.mark.parametrize("used", [True, False])
def test_items_are_numbered_and_told_where_somebody_reads_them(used: bool) -> None:
    """A call is not made again once one of them was used."""
    one, query, _, _, wrote = hearer(used=used)
    one.item("a")
    assert (one.items, wrote, one.sent) == (1, [], False)
    query.plan.feeding[0] = ()  # type: ignore[index]
    one.item("b")
    one.item("c")
    assert (one.items, wrote, one.sent) == (3, [(0, 1, "b"), (0, 2, "c")], used)
    query.run.state = State.OK
    one.item("d")
    assert (one.items, len(wrote)) == (3, 2)


def test_text_is_shown_that_belongs_to_the_answer_as_long_as_the_query_runs() -> None:
    one, query, heard, _, _ = hearer(items=0)
    for text in ("It ", "", "rains."):
        one.token(text)
    assert heard == [Token("It "), Token("rains.")]
    assert one.sent
    query.run.state = State.OK
    one.token("More")
    assert len(heard) == 2
    unseen, _, nothing, _, _ = hearer(items=0, streams=False)
    unseen.token("It ")
    assert (nothing, unseen.sent) == ([], False)
    empty, _, _, _, _ = hearer(items=0)
    empty.token("")
    assert not empty.sent


def test_a_try_begins_without_what_the_one_before_it_said_of_its_end() -> None:
    one, query, _, _, _ = hearer()
    one.ends("length")
    one.finished("length")
    assert (query.ends, query.finishes) == ({0: "length"}, {0: "length"})
    Hearer(query, 0, SENT, one.live, follows=False)
    assert (query.ends, query.finishes) == ({}, {})
