"""What rows have taken, and how long they are, against everything added up."""

from __future__ import annotations

from math import ceil
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from teola.engine import QueryContext, Usage
from teola.errors import EngineError
from teola.graph import DecodeParams
from teola.runtime.asked_rows import NEAR, WINDOW, window_end
from teola.runtime.live.sent_rows import CHARACTERS, SAMPLED, LiveRows
from teola.runtime.rows import Row, RowAnswer
from teola.schedule.events import Cause, RowsOver


class Bill:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told = list[tuple[str, int, Usage | None]]()

    def used(self, i: int, usage: Usage) -> None:
        self.told.append(("used", i, usage))

    def failed(self, i: int, usage: Usage) -> None:
        self.told.append(("failed", i, usage))

    def settle(self, i: int) -> None:
        self.told.append(("settled", i, None))


def asked_rows(instruction: str = "why") -> tuple[LiveRows, list[RowAnswer], Bill]:
    """A run of rows, the answers that it gives, and what is paid."""
    given, bill = list[RowAnswer](), Bill()
    run: Any = SimpleNamespace(id="rows", plan=[], warming=False)
    sink: Any = SimpleNamespace(put=given.extend)
    none: Any = None
    context = QueryContext("rows")
    made = LiveRows(run, none, context, instruction, DecodeParams(), none, sink, none)
    made.budget = bill  # type: ignore[assignment]
    return made, given, bill


def opened(rows: LiveRows, i: int, count: int) -> list[Row]:
    """The next window."""
    window = [Row(100 * i + k, "x" * k) for k in range(count)]
    rows.opened(window)
    rows.run.plan.append(None)  # type: ignore[attr-defined]
    return window


@pytest.mark.parametrize("seed", range(20))
def test_all_that_rows_take_is_counted_once(seed: int) -> None:
    chance = Random(seed)
    rows, given, bill = asked_rows()
    answers, all_failed = list[RowAnswer](), 0
    counted_characters = 0
    for i in range(3):
        window = opened(rows, i, count := chance.randint(1, 12))
        places = list(range(count))
        rows.sent(i, 0, half := chance.randint(0, count))
        rows.sent(i, half, count)
        again = chance.randint(0, count)
        rows.sent(i, again, count)
        while places:
            some = [places.pop(chance.randrange(len(places))) for _ in range(min(len(places), 4))]
            cut = chance.randint(0, len(some))
            pairs = []
            for k in some[:cut]:
                tells = chance.random() < 0.6
                usage = (chance.randint(1, 30), chance.choice([None, 5]), chance.choice([None, 7]))
                answer = RowAnswer(window[k].id, "y" * k, None, *(usage if tells else (0, None)))
                pairs.append((answer, 3 + k))
            failed = [(k, Cause(EngineError(f"broke at {k}"))) for k in some[cut:]]
            bill.told.clear()
            rows.give(RowsOver("rows", i, pairs, failed))
            told = [one for one, _ in pairs if one.prompt_tokens]
            silent = sum(characters for one, characters in pairs if not one.prompt_tokens)
            unread = sum(len(one.text or "") for one, _ in pairs if one.generated is None)
            usage = Usage(
                sum(one.prompt_tokens for one in told),
                sum(one.generated or 0 for one in told),
                sum(one.cached or 0 for one in told),
            )
            estimate = Usage(ceil(silent / CHARACTERS), ceil(unread / CHARACTERS))
            assert bill.told == [
                ("used", i, usage),
                ("used", i, estimate),
                *([] if places else [("settled", i, None)]),
            ]
            answers += [one for one, _ in pairs]
            answers += [RowAnswer(window[k].id, None, f"broke at {k}") for k, _ in failed]
            all_failed += len(failed)
            counted_characters += sum(n for one, n in pairs if one.prompt_tokens)
            assert given == answers
            assert (rows.answered, rows.failed) == (len(answers) - all_failed, all_failed)
            assert rows.prompt_tokens == sum(one.prompt_tokens for one in answers)
            assert rows.cached_tokens == sum(one.cached or 0 for one in answers)
            assert rows.completion_tokens == sum(one.generated or 0 for one in answers)
            if rows.prompt_tokens:  # by what was counted, all rows of one length
                each = rows.row_tokens([Row(0, "x" * 97)] * 5)
                assert each == max(1, round(100 * rows.prompt_tokens / counted_characters))
        assert (rows.asked, rows.windows) == (len(answers), {})
        rows.tries, tries = 0, rows.tries
        assert tries == count + count - again


@pytest.mark.parametrize("count", [1, 2, SAMPLED - 1, SAMPLED, 2 * SAMPLED - 1, 2 * SAMPLED, 999])
def test_rows_are_as_long_as_those_that_are_looked_at(count: int) -> None:
    """Every so many; before an engine has counted, a token has four characters."""
    rows, _, _ = asked_rows("i" * 40)
    window = [Row(k, "x" * k) for k in range(count)]
    some = [k for k in range(count) if k % max(1, count // SAMPLED) == 0]
    assert rows.row_tokens(window) == max(1, round((40 + sum(some) / len(some)) / 4))
    assert asked_rows("")[0].row_tokens([Row(0, "")]) == 1


def test_a_try_that_counts_nothing_is_estimated() -> None:
    rows, _, bill = asked_rows("i" * 40)
    opened(rows, 0, 1)
    row = Row(0, "x" * 40)
    rows.tried(0, row, ["ab", "cde"], None)
    rows.tried(0, row, ["ab", "cde"], Usage(0, 3))
    rows.tried(0, row, ["ab"], Usage(9, 3, 4))
    assert bill.told == [
        ("failed", 0, Usage(20, 2)),
        ("failed", 0, Usage(20, 2)),
        ("failed", 0, Usage(9, 3, 4)),
    ]
    rows.budget = None
    rows.tried(0, row, ["ab"], None)


@pytest.mark.parametrize("seed", range(20))
def test_a_window_ends_at_the_nearest_row_that_opens(seed: int) -> None:
    chance = Random(seed)
    edge = chance.choice([0, 1, NEAR - 1, NEAR, -1, 1 - NEAR, -NEAR])
    for waiting in (
        1,
        WINDOW - 1,
        WINDOW,
        WINDOW + 1,
        WINDOW + edge,
        WINDOW + edge + 1,
        2 * WINDOW,
    ):
        opens = {WINDOW + edge, *chance.sample(range(2 * WINDOW), 3)}
        rows: Any = [SimpleNamespace(opens=k in opens) for k in range(waiting)]
        near = [k for k in opens if abs(k - WINDOW) < NEAR and k < waiting]
        nearest = min(near, key=lambda k: (abs(k - WINDOW), -k), default=WINDOW)
        assert window_end(rows) == (waiting if waiting <= WINDOW else nearest)
        assert window_end(rows, warming=True) == 1
    assert window_end([]) == window_end([], warming=True) == 0


def test_what_is_found_is_less_than_a_prompt_has() -> None:
    rows, _, _ = asked_rows()
    rows.shared = 0.5
    assert [rows.found_of(tokens) for tokens in (1, 10, 11)] == [0, 5, 5]
    rows.shared = 1.0
    assert rows.found_of(10) == 9
    rows.run.warming = True  # type: ignore[misc]
    assert rows.found_of(10) == 0
    rows.answered, rows.cached_tokens = 4, 39
    assert [rows.found_of(tokens) for tokens in (9, 10, 11)] == [8, 9, 9]
