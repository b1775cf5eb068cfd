"""What `explain` expects a query to cost, against the bill, for each shipped application: after
twenty queries, the next twenty together cost what was expected, within 20 %.

The model writes answers of very different lengths, calls tools and decides; a word is a token, and
what passes plan is four characters a token. What it draws is spread evenly instead of by chance:
twenty queries by chance differ from the next twenty by more than is to be shown here.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from math import exp
from pathlib import Path
from random import Random
from statistics import NormalDist
from typing import Any, Final

import pytest

from teola import EngineConfig
from teola.catalogue import load_app
from teola.passes.expense import Expense
from teola.price import Price
from teola.testing import ScriptedModel, running
from teola.testing.scripted_model import ScriptedCall
from tests.planted import catches, edited

WORDS: Final = "the harbour has a lamp that Mara keeps and boats are moored there when it is dark"
PRICE: Final = Price(prompt=1.0, answer=4.0, cached=0.25)
LEARNED, COMPARED, WITHIN = 20, 20, 0.2
GOLDEN: Final = 0.6180339887498949
RIGHT, WRONG = "SELECT max(depth) AS d FROM boats", "SELECT max(dept) AS d FROM boats"


class Writer:
    """Answers for all applications."""

    def __init__(self) -> None:
        self._drawn: defaultdict[str, int] = defaultdict(int)

    def draw(self, what: str) -> float:
        """Between 0 and 1, spread evenly over the draws of one name."""
        self._drawn[what] += 1
        return self._drawn[what] * GOLDEN % 1

    def text(self, what: str, mean: int) -> str:
        """Words, log-normally many."""
        sigma = 0.6
        normal = NormalDist().inv_cdf(min(0.999, max(0.001, self.draw(what))))
        count = max(1, round(mean * exp(sigma * normal - sigma * sigma / 2)))
        words = WORDS.split()
        chance = Random(f"{what}/{self._drawn[what]}")
        return " ".join(chance.choice(words) for _ in range(count))

    def answer(self, call: ScriptedCall) -> str | Mapping[str, Any]:
        who = call.component
        if who in ("expand", "plan"):
            return "\n".join(self.text(who, 9) for _ in range(3))
        if who == "judge":
            return "yes" if self.draw(who) < 0.6 else "no"
        if who.startswith("write_"):
            sql = WRONG if self.draw(f"{who} wrong") < 0.3 else RIGHT
            return f"Explanation: {self.text(who, 20)}\n```sql\n{sql}\n```"
        if who.startswith("agent"):
            return self._turn(who, later="Calls so far" in call.prompt)
        return self.text(who, 45)

    def _turn(self, who: str, *, later: bool) -> Mapping[str, Any]:
        if who == "agent-last" or self.draw("agent ends") < (0.45 if later else 0.1):
            return {"answer": self.text("agent answers", 40)}
        sums = (f"{round(99 * self.draw('sum'))} + {k}" for k in range(1 + int(3 * self.draw("n"))))
        calls = [{"tool": "calculator", "args": {"expression": text}} for text in sums]
        return {"thought": self.text("agent thinks", 12), "calls": calls}

    def pages(self, number: int, mean: int) -> list[str]:
        return [self.text("page", mean) for _ in range(number)]


def given(app: str, k: int, writer: Writer, places: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of the k-th query."""
    found = {"question": f"{k}: {writer.text('question', 14)}?"}
    if app.endswith("-rag"):
        found["documents"] = places["documents"][: 1 + k % 3]
    if app == "chat-rag":
        found["history"] = writer.text("history", 150)
    if app == "text-to-sql":
        found["database"] = places["database"]
    return found


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Any]:
    """Documents, a web, and a database."""
    writer, web = Writer(), tmp_path / "web"
    web.mkdir()
    for k, text in enumerate(writer.pages(20, 80)):
        (web / f"{k}.txt").write_text(text)
    with closing(sqlite3.connect(tmp_path / "harbour.db")) as connection, connection:
        connection.execute("CREATE TABLE boats (id INTEGER PRIMARY KEY, name TEXT, depth REAL)")
        rows = [(k, f"boat {k}", 1.5 * k) for k in range(9)]
        connection.executemany("INSERT INTO boats VALUES (?, ?, ?)", rows)
    documents = [{"name": f"{k}.md", "text": "\n\n".join(writer.pages(8, 120))} for k in range(3)]
    return {"web": web, "database": str(tmp_path / "harbour.db"), "documents": documents}


def expected_and_billed(
    name: str, places: Mapping[str, Any], engines: Mapping[str, Any], queries: int = COMPARED
) -> tuple[float, float]:
    """What `queries` cost together."""
    writer, app = Writer(), load_app(name)
    model = ScriptedModel(writer.answer)
    made = {
        "llm": model,
        "proxy": model,
        "judge": model,
        "websearch": EngineConfig("corpus", {"folder": str(places["web"])}),
        "databases": EngineConfig("sql-databases", {"data_dir": str(places["web"].parent / "v")}),
        **engines,
    }
    used = {engine: config for engine, config in made.items() if engine in app.engine_names}
    prices = dict.fromkeys(("llm", "proxy", "judge"), PRICE)
    expected = billed = 0.0
    with running(app, used, prices=prices, debug=False):
        for k in range(LEARNED):
            app.run(given(name, k, writer, places))
        for k in range(LEARNED, LEARNED + queries):
            inputs = given(name, k, writer, places)
            expense: Expense = app.explain(inputs).expenses.expected
            result = app.run(inputs)
            assert expense.cost is not None
            assert result.usage.cost
            expected, billed = expected + expense.cost, billed + result.usage.cost
    return expected, billed


@catches(
    "likeliest-only",
    "of a condition's branches the likeliest is expected for all queries",
    edited("teola.passes.estimate:taken_share", "seen.get(guard.branch, 0) / decided", "1.0"),
)
@catches(
    "own-tokens",
    "prompts are as long as we count, and not as they are billed",
    edited("teola.passes.expense:_primitive", "if habit.planned:", "if False:"),
)
def test_text_to_sql_costs_what_was_expected(places: dict[str, Any]) -> None:
    expected, billed = expected_and_billed("text-to-sql", places, {})
    assert expected == pytest.approx(billed, rel=WITHIN)


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize(
    "name",
    [
        *("naive-rag", "advanced-rag", "search-agent", "research-agent", "function-agent"),
        pytest.param("chat-rag", marks=pytest.mark.nightly),
    ],
)
def test_others_cost_what_was_expected(name: str, places: dict[str, Any], data_dir: Path) -> None:
    store = {"vectorstore": EngineConfig("vectorstore", {"data_dir": data_dir})}
    expected, billed = expected_and_billed(name, places, store)
    assert expected == pytest.approx(billed, rel=WITHIN)
