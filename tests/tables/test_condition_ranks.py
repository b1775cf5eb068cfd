"""Which condition goes first, against its formula over all that was seen."""

from __future__ import annotations

from collections import Counter
from math import ceil
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

import duckdb
import pytest

from teola.tables.condition_ranks import DECODE_S, PREFILL_S, SAMPLE, SELECTIVITY, ConditionRanks
from teola.tables.plan_steps import AskCall, Conjunct


class Asks(NamedTuple):
    """A call, as far as its costs go by it."""

    prompt: str
    names: tuple[str, ...] = ("a",)
    max_tokens: int = 10


class Answers:
    """What earlier runs have seen, and how long answers are."""

    def __init__(self) -> None:
        self.rows, self.passed = Counter[str](), Counter[str]()
        self.written: dict[str, float] = {}

    def judged(self, condition: str, rows: int, passed: int) -> None:
        self.rows[condition] += rows
        self.passed[condition] += passed

    def judged_before(self, condition: str) -> tuple[int, int]:
        return self.rows[condition], self.passed[condition]

    def mean_answer(self, operator: str) -> float | None:
        return self.written.get(operator)


def conjunct(n: int, *prompts: str, named: int = 0) -> Conjunct:
    asks = []
    for k, prompt in enumerate(prompts, named + 1):
        call: Any = Asks(prompt)
        asks.append(AskCall("t", call, ("a",), None, f"teola_v{k}", f"teola_e{k}"))
    condition = " AND ".join(f"teola_v{k} = '{n}'" for k in range(named + 1, named + 1 + len(asks)))
    return Conjunct(tuple(asks), condition)


def ranks_of(answers: Answers) -> ConditionRanks:
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT * FROM (VALUES ('xx'), (NULL), ('xxxx')) v (a)")
    operator = lambda call: SimpleNamespace(digest=f"op {call.prompt}")  # noqa: E731
    asker: Any = SimpleNamespace(con=con, answers=answers, operator=operator)
    return ConditionRanks(asker)


@pytest.mark.parametrize("seed", range(4))
def test_selectivity_is_of_all_rows_that_were_seen(seed: int) -> None:
    """Of this run's alone where they are enough; kept for the next run once."""
    chance, answers = Random(seed), Answers()
    one, other = conjunct(1, "p" * 7), conjunct(2, "q" * 70, "r")
    before = {one: [0, 0], other: [0, 0]}
    for _ in range(5):
        ranks, now = ranks_of(answers), {one: [0, 0], other: [0, 0]}
        for _ in range(chance.randint(0, 4)):
            which, rows = chance.choice([one, other]), chance.choice([1, 10, SAMPLE - 1, SAMPLE])
            passed = chance.randint(0, rows)
            ranks.judged(which, rows, passed)
            now[which] = [now[which][0] + rows, now[which][1] + passed]
            shares: dict[Conjunct, float | None] = {}
            for known in (one, other):
                seen = list(now[known])
                if seen[0] < SAMPLE:
                    seen = [
                        here + earlier for here, earlier in zip(seen, before[known], strict=True)
                    ]
                shares[known] = (seen[1] + 1) / (seen[0] + 2) if seen[0] >= SAMPLE else None
                assert ranks.selectivity(known) == shares[known]
            found = [share for share in shares.values() if share is not None]
            together = (found[0] if found else 1.0) * (found[1] if found[1:] else 1.0)
            together *= SELECTIVITY if len(found) < 2 else 1.0
            assert ranks.known([one, other]) is (len(found) == 2)
            assert ranks.together([one, other]) == pytest.approx(together)
            assert ranks.window([one, other], 10, 3) == max(3, ceil(10 / max(together, 1e-6)))
        ranks.keep()
        ranks.keep()
        before = {
            known: [here + earlier for here, earlier in zip(now[known], before[known], strict=True)]
            for known in before
        }
        assert sorted(answers.rows.values() or [0]) == sorted(
            [rows for rows, _ in before.values() if rows] or [0]
        )


def test_the_first_removes_most_for_what_it_costs() -> None:
    answers = Answers()
    ranks = ranks_of(answers)
    made = [conjunct(n, "p" * (n + 1) * 40) for n in range(3)] + [conjunct(3, "p", "q")]
    answers.written = {f"op {'p' * 40}": 2.0, "op q": 0.0}
    for which, passed in zip(made, (60, 40, 90, 50), strict=True):
        ranks.judged(which, 100, passed)

    def cost(which: Conjunct) -> float:
        total = 0.0
        for ask in which.asks:
            assert isinstance(ask, AskCall)
            characters = len(ask.call.prompt) + len("a: ") + 1 + 2  # and two of a value, as a mean
            tokens = answers.written.get(f"op {ask.call.prompt}", 10.0)
            total += PREFILL_S * characters / 4 + DECODE_S * tokens
        return total

    shares = {
        which: (passed + 1) / 102 for which, passed in zip(made, (60, 40, 90, 50), strict=True)
    }
    expected = sorted(made, key=lambda which: (shares[which] - 1) / cost(which))
    for _ in range(3):
        assert ranks.ordered(made) == expected
        made.reverse()
    assert ranks.ordered(made[:1]) == made[:1]
    assert ranks.ordered([]) == []
    alike = [conjunct(9, "z"), conjunct(8, "z")]
    assert ranks.ordered(alike) == alike, "of equal ones as written"


def test_a_condition_is_known_by_what_it_asks_and_not_by_its_columns() -> None:
    ranks = ranks_of(Answers())
    same = [ranks._digest(conjunct(1, "p", "q", named=named)) for named in (0, 1, 8, 98)]
    assert len(set(same)) == 1
    ten = [conjunct(1, *"abcdefghij", named=named) for named in (0, 5)]
    assert ranks._digest(ten[0]) == ranks._digest(ten[1]), "v1 is no part of v10"
    others = [conjunct(2, "p", "q"), conjunct(1, "q", "p"), conjunct(1, "p")]
    assert len({same[0], *map(ranks._digest, others)}) == 4
