"""A try whose code asks queries inside it, against what it has to lend and to end."""

from __future__ import annotations

import asyncio
from math import inf
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from teola.errors import InputError, Overloaded, QueryCancelled
from teola.runtime.live.nesting import DEEPEST, Caller, Terms


def query_of(most: float = inf, depth: int = 0) -> Any:
    told = list[str]()
    return SimpleNamespace(
        id="q",
        terms=Terms(SimpleNamespace(max_queries=most), depth=depth),  # type: ignore[arg-type]
        plan=SimpleNamespace(ids=["a.call", "b.call"]),
        run=SimpleNamespace(answers=lambda i: i == 1),
        streams=True,
        callers=set(),
        told=told,
        tell=told.append,
    )


@pytest.mark.parametrize("seed", range(10))
async def test_its_place_is_lent_while_any_query_inside_runs(seed: int) -> None:
    """Once, whatever comes and goes; and the same once it has ended."""
    chance, lent = Random(seed), list[tuple[Any, int]]()
    query = query_of(most=3)
    caller = Caller(query, 0, lambda place, change: lent.append((place, change)), ("e", 2))
    inside, expected = list[asyncio.Task[object]](), list[tuple[Any, int]]()

    async def waits() -> None:
        await asyncio.sleep(3600)

    for _ in range(40):
        if chance.random() < 0.6:
            task: asyncio.Task[Any] = asyncio.ensure_future(waits())
            if len(inside) == 3:
                with pytest.raises(Overloaded, match="'a' already runs 3 queries inside"):
                    caller.enter(task, "app")
                task.cancel()
                continue
            caller.enter(task, "app")
            expected += [] if inside else [(("e", 2), 1)]
            inside.append(task)
        elif inside:
            task = inside.pop(chance.randrange(len(inside)))
            caller.leave(task)
            task.cancel()
            expected += [] if inside else [(("e", 2), -1)]
        assert lent == expected
        assert query.callers == ({caller} if lent else set())
    assert not caller.over
    caller.end()
    caller.end()
    assert (caller.over, query.callers) == (True, set())
    await asyncio.sleep(0)
    assert all(task.cancelling() == 1 for task in inside)
    for task in inside:
        caller.leave(task)
    assert sum(change for _, change in lent) == 0
    with pytest.raises(QueryCancelled):
        caller.enter(asyncio.ensure_future(waits()), "app")
    for task in asyncio.all_tasks() - {asyncio.current_task()}:  # type: ignore[operator]
        task.cancel()


async def test_queries_are_inside_each_other_so_deep_and_no_deeper() -> None:
    async def nothing() -> None:
        return None

    for depth in (DEEPEST - 1, DEEPEST):
        task: asyncio.Task[Any] = asyncio.ensure_future(nothing())
        caller = Caller(query_of(depth=depth), 0, lambda place, change: None)
        if depth < DEEPEST:
            caller.enter(task, "app")
        else:
            with pytest.raises(InputError, match=f"would be in {DEEPEST + 1} queries"):
                caller.enter(task, "app")
        await task


def test_what_it_writes_is_told_once_it_is_text_and_as_long_as_it_runs() -> None:
    query = query_of()
    answers, other = (Caller(query, i, lambda place, change: None) for i in (1, 0))
    assert (answers.shown, other.shown) == (True, False)
    assert (answers.primitive, other.position) == ("b.call", 0)
    answers.tell("")
    assert not answers.told
    answers.tell("a")
    answers.end()
    answers.tell("b")
    assert (answers.told, query.told, answers.shown) == (True, ["a"], False)
    with pytest.raises(QueryCancelled):
        _ = answers.primitive
