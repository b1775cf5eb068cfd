"""What components of one step add to a graph: how long their lists are planned, and with which
parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from teola import (
    Aggregate,
    Condition,
    Embedding,
    Indexing,
    QueryExpansion,
    Rerank,
    Search,
    WebSearch,
)
from teola.errors import InputError, TemplateError
from teola.graph import Op, Primitive, Ref, Role
from teola.workflow.block import Block, Feed
from teola.workflow.component import Component
from teola.workflow.components.sql import Sql
from teola.workflow.components.write import Write

ONE = Feed(Ref("query", "one"))
FIVE = Feed(Ref("query", "five"), 5)
OPEN = Feed(Ref("query", "open"), 5, open=True)
FEEDS = {"one": ONE, "five": FIVE, "open": OPEN}


def block_of(component: Component, **feeds: Feed) -> Block:
    """What a component makes of what it reads; what nobody names is one value."""
    every = {port: feeds.get(port, ONE) for port in component.required}
    every |= {port: feed for port, feed in feeds.items() if port in component.extra}
    block = Block(component, component.config, every)
    component.decompose(block)
    block.check()
    return block


def planned(block: Block, port: str) -> tuple[int | None, bool]:
    return block.given[port].items, block.given[port].open


def by_op(block: Block) -> dict[Op, Primitive]:
    return {p.op: p for p in block.primitives}


@pytest.mark.parametrize(
    ("component", "reads", "gives", "items"),
    [
        (Embedding(), "texts", "vectors", {"one": 1, "five": 5, "open": 5}),
        (Search(top_k=3), "vectors", "hits", {"one": 3, "five": 15, "open": 15}),
        (WebSearch(top_k=3), "queries", "hits", {"one": 3, "five": 15, "open": 15}),
        (Rerank(top_k=3), "hits", "context", {"one": 1, "five": 3, "open": 3}),
        (Rerank(top_k=9), "hits", "context", {"one": 1, "five": 5, "open": 9}),
    ],
)
def test_a_list_is_planned_as_long_as_what_it_is_made_from(
    component: Component, reads: str, gives: str, items: Mapping[str, int]
) -> None:
    """The best of a list are never more than are asked for, however long it turns out."""
    for name, feed in FEEDS.items():
        block = block_of(component, **{reads: feed})
        stays_open = feed.open and not isinstance(component, Rerank)
        assert planned(block, gives) == (items[name], stays_open)
        first = block.primitives[0]
        assert (first.batchable, first.items) == (feed.items is not None, feed.items or 1)


@pytest.mark.parametrize(
    ("mode", "feeds", "items", "is_open"),
    [
        ("concat", ("one", "five"), 6, False),
        ("union", ("five", "five"), 10, False),
        ("concat", ("one", "open", "five"), 11, True),
        ("first", ("one", "five"), 5, False),
        ("last", ("five", "one", "open"), 5, True),
        ("first", ("one", "one"), None, False),
        ("last", ("one", "one"), None, False),
        ("concat", ("one", "one"), 2, False),
    ],
)
def test_what_is_gathered_is_as_long_as_its_parts_or_as_the_longest(
    mode: str, feeds: tuple[str, ...], items: int | None, is_open: bool
) -> None:
    names = [f"n{k}" for k in range(len(feeds))]
    gather = Aggregate(names, output="all", mode=mode)
    given = {name: FEEDS[feed] for name, feed in zip(names, feeds, strict=True)}
    block = block_of(gather, **given)
    assert planned(block, "out") == (items, is_open)
    (only,) = block.primitives
    assert [ref.port for ref in only.refs()] == list(feeds), "in the order of `reads`"


def test_what_is_stored_is_embedded_as_a_document_and_searched_as_a_query() -> None:
    found = by_op(block_of(Indexing(store="mine"), chunks=FIVE))
    embedding: Any = found[Op.EMBEDDING].params
    assert embedding.role == "document"
    assert (found[Op.EMBEDDING].engine, found[Op.INGESTION].engine) == ("embedding", "mine")
    assert (found[Op.EMBEDDING].items, found[Op.INGESTION].items) == (5, 5)
    query: Any = by_op(block_of(Embedding(), texts=ONE))[Op.EMBEDDING].params
    assert query.role == "query"


def test_a_search_by_words_has_a_language_and_reads_the_question() -> None:
    for mode, language in (("vector", None), ("hybrid", "german"), ("auto", "german")):
        search = by_op(block_of(Search(mode=mode, language="german", top_k=7)))[Op.SEARCHING]
        params: Any = search.params
        assert (params.top_k, params.language) == (7, language)
        assert ("question" in dict(search.inputs)) is (language is not None)
    vectors = Search()
    words = vectors.configure({"mode": "auto"})
    block = Block(vectors, words, dict.fromkeys(vectors.required, ONE))
    with pytest.raises(InputError, match=r"search\.mode: its template has it search by vectors"):
        vectors.decompose(block)


def test_the_best_are_so_many_and_weighed_by_words_as_is_asked() -> None:
    params: Any = block_of(Rerank(top_k=4, lexical_weight=0.25), hits=FIVE).primitives[1].params
    assert (params.k, params.lexical_weight) == (4, 0.25)


def test_an_expansion_asks_for_so_many_in_the_form_that_is_read() -> None:
    expand = QueryExpansion(
        instruction="{n} of {n}, and {m}. ", n=4, parser="numbered", max_tokens=50, temperature=0.5
    )
    block = block_of(expand)
    prompt: Any = block.primitives[0].input("prompt")
    assert prompt.parts[0].content == "4 of 4, and {m}. "
    params: Any = block.primitives[1].params
    assert (params.items, params.parser) == (4, "numbered")
    assert (params.max_tokens, params.temperature) == (50, 0.5)
    assert planned(block, "queries") == (4, False)
    assert block.primitives[1].splittable


def test_a_text_is_written_from_parts_in_their_order() -> None:
    write = Write(
        instruction="Begin. ",
        parts={"b": "B: ", "a": "A: "},
        question="a",
        ending=" End.",
        max_tokens=7,
        temperature=0.5,
        stop=("x",),
        seed=3,
        ignore_eos=True,
    )
    block = block_of(write, a=FIVE)
    prompt: Any = block.primitives[0].input("prompt")
    told = [(part.role, part.content) for part in prompt.parts]
    assert told == [
        (Role.INSTRUCTION, "Begin. "),
        (Role.INSTRUCTION, "B: "),
        (Role.CONTEXT, ONE.ref),
        (Role.INSTRUCTION, "A: "),
        (Role.QUESTION, FIVE.ref),
        (Role.INSTRUCTION, " End."),
    ]
    params: Any = block.primitives[1].params
    assert (params.max_tokens, params.temperature, params.stop) == (7, 0.5, ("x",))
    assert (params.seed, params.ignore_eos, params.items, params.parser) == (3, True, None, None)
    assert planned(block, "text") == (None, False)


def test_a_list_is_written_where_items_are_asked_for() -> None:
    """The question is the part that is called so, unless another one is."""
    write = Write(instruction="x", parts={"question": "", "other": ""}, items=3, parser="json_list")
    block = block_of(write)
    prompt: Any = block.primitives[0].input("prompt")
    roles = [part.role for part in prompt.parts]
    assert roles[1:] == [Role.INSTRUCTION, Role.QUESTION, Role.INSTRUCTION, Role.CONTEXT]
    params: Any = block.primitives[1].params
    assert (params.items, params.parser) == (3, "json_list")
    assert planned(block, "text") == (3, False)
    assert block.given["text"].ref.port == "items"


@pytest.mark.parametrize(("declared", "asked"), [(None, 3), (3, None)])
def test_whether_a_list_is_written_cannot_be_overridden(
    declared: int | None, asked: int | None
) -> None:
    write = Write(instruction="x", parts={"a": ""}, items=declared)
    block = Block(write, write.configure({"items": asked}, write.config), {"a": ONE})
    with pytest.raises(TemplateError, match=r"write\.items: declare whether it writes a list"):
        write.decompose(block)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"parts": {}}, "parts must map names"),
        ({"parts": ["a"]}, "parts must map names"),
        ({"parts": {"a": ""}, "question": "b"}, "question is 'b', which is none of its parts: a"),
    ],
)
def test_parts_that_cannot_be_are_refused(options: Any, told: str) -> None:
    with pytest.raises(TemplateError, match=told):
        Write(instruction="x", **options)


def test_a_statement_is_bounded_and_tells_its_errors_where_that_is_asked() -> None:
    for work, ports in (("query", {"sql"}), ("values", {"text"}), ("schema", set[str]())):
        made = Sql(work=work, max_rows=5, tell_errors=True)
        assert set(made.required) == ports
        params: Any = block_of(made).primitives[0].params
        assert (params.max_rows, params.work.value, params.tell_errors) == (5, work, True)
    default: Any = block_of(Sql()).primitives[0].params
    assert (default.max_rows, default.tell_errors) == (1000, False)
    named = block_of(Sql(), database=ONE).primitives[0]
    assert dict(named.inputs) == {"sql": ONE.ref, "database": ONE.ref}


@pytest.mark.parametrize(("expect", "branch"), [(True, "then"), (False, "otherwise")])
def test_estimates_assume_the_branch_that_is_expected(expect: bool, branch: str) -> None:
    choice = Condition(bool, reads=["a"], then=Embedding(), expect=expect)
    params: Any = block_of(choice).primitives[0].params
    assert params.prefer == branch
