"""Work in a thread of its own: in order, bounded, done before the end."""

from __future__ import annotations

import threading
from time import monotonic

from teola.serve.observe.aside import Aside

LIMIT_S = 30.0


def test_everything_is_done_in_order_and_at_the_end_what_is_left() -> None:
    gulps: list[list[int]] = []
    aside: Aside[int] = Aside("test", gulps.append, most=10_000)
    for k in range(5_000):
        aside.put(k)
    assert aside.close(LIMIT_S)
    assert [one for gulp in gulps for one in gulp] == list(range(5_000))
    assert len(gulps) < 100, "in gulps, not one by one"
    assert aside.dropped == 0


def test_what_comes_later_is_done_too() -> None:
    done = threading.Event()
    aside: Aside[str] = Aside("test", lambda gulp: done.set() if "later" in gulp else None, 10)
    aside.put("first")
    aside.put("later")
    assert done.wait(LIMIT_S)
    done.clear()
    aside.put("later")
    assert done.wait(LIMIT_S)
    assert aside.close(LIMIT_S)


def test_what_is_too_much_is_dropped_and_counted() -> None:
    hold, began = threading.Event(), threading.Event()

    def work(gulp: list[int]) -> None:
        began.set()
        hold.wait(LIMIT_S)

    aside: Aside[int] = Aside("test", work, most=3)
    aside.put(0)
    assert began.wait(LIMIT_S)
    for k in range(5):
        aside.put(k)
    assert aside.dropped == 2
    at = monotonic()
    assert not aside.close(0.05), "work hangs"
    assert monotonic() - at < LIMIT_S
    hold.set()
    assert aside.close(LIMIT_S)
    aside.put(9)
    assert aside.dropped == 3, "it is closed"
