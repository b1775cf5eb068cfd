"""Which condition with calls goes first: the one that removes most for what it costs.

    rank = (selectivity - 1) / cost of a row        the smallest first

The formula is that of Hellerstein and Stonebraker, Predicate Migration, 1993.

Selectivity and the length of answers are those of earlier runs, which the answers file keeps, and
of the rows that this run has asked. Of a condition of which nothing is known half of the rows are
taken to pass.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from math import ceil, prod
from typing import Final

import duckdb

from teola.tables.orders import rank, row_cost
from teola.tables.plan_steps import AskCall, Conjunct
from teola.tables.row_asking import CallAsker

SELECTIVITY: Final = 0.5
"""Assumed share of rows that pass a condition, until it was computed for some."""
SAMPLE: Final = 64
"""Rows that have to be seen before a condition's share counts as known."""
LENGTHS: Final = 1000
"""Rows from which the mean length of values is estimated."""
CHARACTERS_A_TOKEN: Final = 4.0
PREFILL_S, DECODE_S = 1e-4, 2e-3
"""Seconds of a token of a prompt and of an answer, about: only their ratio counts here."""


@dataclass(slots=True)
class Judged:
    """Rows that a condition was computed for, and those that passed."""

    rows: int = 0
    passed: int = 0


@dataclass(slots=True)
class ConditionRanks:
    """What one run knows of its conditions."""

    asker: CallAsker
    _now: dict[Conjunct, Judged] = field(default_factory=lambda: defaultdict(Judged))
    _before: dict[Conjunct, Judged] = field(default_factory=dict)

    def judged(self, conjunct: Conjunct, rows: int, passed: int) -> None:
        """Count rows for which a condition was computed, and those that passed."""
        judged = self._now[conjunct]
        judged.rows += rows
        judged.passed += passed

    def keep(self) -> None:
        """Store what this run has seen, for later runs."""
        for conjunct, seen in self._now.items():
            if seen.rows:
                self.asker.answers.judged(self._digest(conjunct), seen.rows, seen.passed)
        self._now.clear()
        self._before.clear()

    def selectivity(self, conjunct: Conjunct) -> float | None:
        """Share of rows that pass; None: too few were seen."""
        now, before = self._now[conjunct], self._earlier(conjunct)
        rows, passed = now.rows, now.passed
        if rows < SAMPLE:
            rows, passed = rows + before.rows, passed + before.passed
        # One more of each, so that nothing is sure that was seen a few times only.
        return (passed + 1) / (rows + 2) if rows >= SAMPLE else None

    def known(self, conjuncts: Sequence[Conjunct]) -> bool:
        """Whether enough rows were seen for each of them."""
        return all(self.selectivity(conjunct) is not None for conjunct in conjuncts)

    def together(self, conjuncts: Sequence[Conjunct]) -> float:
        """Share of rows that pass all of them."""
        shares = [self.selectivity(conjunct) for conjunct in conjuncts]
        passing = prod(share for share in shares if share is not None)
        return passing * (SELECTIVITY if None in shares else 1.0)

    def window(self, conjuncts: Sequence[Conjunct], rows: int, least: int) -> int:
        """How many rows to take, so that so many of them are likely to pass."""
        return max(least, ceil(rows / max(self.together(conjuncts), 1e-6)))

    def ordered(self, conjuncts: Sequence[Conjunct]) -> list[Conjunct]:
        """The conditions, those first that are to be computed first; of equal ones as written."""
        if len(conjuncts) < 2:
            return list(conjuncts)
        return sorted(
            conjuncts,
            key=lambda conjunct: rank(
                self.selectivity(conjunct) or SELECTIVITY, self._cost(conjunct)
            ),
        )

    def _cost(self, conjunct: Conjunct) -> float:
        """Seconds of a condition's calls for one row."""
        calls = [ask for ask in conjunct.asks if isinstance(ask, AskCall)]
        return sum(self._call_s(ask) for ask in calls) or 1e-6

    def _call_s(self, ask: AskCall) -> float:
        call, answers = ask.call, self.asker.answers
        characters = float(len(call.prompt) + sum(len(name) + 3 for name in call.names))
        if ask.fields:
            lengths = " + ".join(
                f"coalesce(strlen(CAST(({field}) AS VARCHAR)), 0)" for field in ask.fields
            )
            with suppress(duckdb.BinderException):  # a field that is a call, not asked yet
                ((mean,),) = self.asker.con.execute(
                    f"SELECT avg({lengths}) FROM (SELECT * FROM {ask.table} LIMIT {LENGTHS})"
                ).fetchall()
                characters += float(mean or 0.0)
        written = answers.mean_answer(self.asker.operator(call).digest)
        return row_cost(
            characters / CHARACTERS_A_TOKEN,
            float(call.max_tokens) if written is None else written,
            prefill_s=PREFILL_S,
            decode_s=DECODE_S,
        )

    def _earlier(self, conjunct: Conjunct) -> Judged:
        if conjunct not in self._before:
            rows, passed = self.asker.answers.judged_before(self._digest(conjunct))
            self._before[conjunct] = Judged(rows, passed)
        return self._before[conjunct]

    def _digest(self, conjunct: Conjunct) -> str:
        """Digest of a condition and its calls, whatever their columns are called."""
        names, operators = dict[str, str](), []
        for at, ask in enumerate(conjunct.asks):
            names[ask.value] = f"value {at}"
            if isinstance(ask, AskCall):
                names[ask.error] = f"error {at}"
                operators.append(self.asker.operator(ask.call).digest)
            else:
                operators.append(ask.call.digest)
        text = re.sub(r"\w+", lambda word: names.get(word[0], word[0]), conjunct.condition)
        return sha256(repr([text, operators]).encode()).hexdigest()[:32]
