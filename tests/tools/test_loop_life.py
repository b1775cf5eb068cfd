"""What tools keep as long as a loop runs: made once, closed once, and work done beside the loop."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from teola.plain_json import SMALL_VALUES
from teola.tools import loop_life
from teola.tools.loop_life import LoopLife, close_here, here

LARGE = [0] * (SMALL_VALUES + 1)


class Kept:
    """closed: how often."""

    def __init__(self) -> None:
        self.closed = 0

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed += 1


async def test_a_thing_is_made_once_and_closed_once() -> None:
    life, made = LoopLife(), [Kept(), Kept(), Kept()]
    assert not life.keeps("a")
    first = life.keep("a", lambda: made[0])
    assert life.keep("a", lambda: made[1]) is first is made[0]
    assert life.keeps("a")
    other = life.keep("b", lambda: made[2])
    await life.end("a")
    await life.end("a")
    await life.end("never kept")
    assert (first.closed, other.closed, life.keeps("a"), life.keeps("b")) == (1, 0, False, True)
    assert life.keep("a", lambda: made[1]) is made[1]
    await life.close()
    assert [kept.closed for kept in made] == [1, 1, 1]
    assert not life.keeps("b")
    await life.close()
    assert [kept.closed for kept in made] == [1, 1, 1]


@pytest.mark.parametrize(
    ("values", "aside"),
    [((), False), (([0],), False), ((LARGE,), True), (([0], LARGE), True), ((LARGE, [0]), True)],
)
async def test_only_small_values_are_worked_on_here(values: tuple[Any, ...], aside: bool) -> None:
    life = LoopLife()
    where = await life.aside(threading.get_ident, *values)
    assert (where != threading.get_ident()) is aside
    await life.close()


async def test_work_beside_the_loop_is_done_one_after_another() -> None:
    life, let = LoopLife(), threading.Event()

    def work(k: int) -> int:
        let.wait()
        return k

    waiting = [asyncio.ensure_future(life.aside(partial(work, k), LARGE)) for k in range(4)]
    for _ in range(3):
        await asyncio.sleep(0)
    assert life.threads.count == 1
    let.set()
    assert await asyncio.gather(*waiting) == [0, 1, 2, 3]
    with pytest.raises(ZeroDivisionError):
        await life.aside(lambda: 1 // 0, LARGE)
    assert await life.aside(partial(work, 5), LARGE) == 5, "an error lets the next one in"
    await life.close()


def test_each_loop_has_a_life_which_ends_with_it_or_before() -> None:
    lives: list[LoopLife] = []
    kept = Kept()

    async def first() -> None:
        lives.append(here())
        assert here() is lives[0]
        here().keep("a", lambda: kept)
        await here().aside(lambda: None, LARGE)
        await close_here()
        await close_here()
        assert kept.closed == 1
        assert here() is not lives[0]
        lives.append(here())
        await here().aside(lambda: None, LARGE)

    async def second() -> None:
        assert here() not in lives
        await close_here()

    asyncio.run(first())
    assert lives[1] in loop_life._lives.values()
    asyncio.run(second())
    assert not {*lives} & {*loop_life._lives.values()}, "the loop of the first one is over"
    assert all(life.threads._closed for life in lives)
