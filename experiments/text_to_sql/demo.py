"""text-to-sql without a model: a small harbour, made from a seed, and answers that were written
beforehand.

    python -m experiments.text_to_sql.demo                  asks all of its questions
    python -m experiments.text_to_sql.demo --make harbour.db    writes the database only

Every answer says that a script wrote it.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from teola import EngineConfig
from teola.testing import ScriptedModel, running
from teola.testing.scripted_model import ScriptedCall, ScriptedEngine
from teola_apps.text_to_sql import app

SEED: Final = 7
NOTICE: Final = "a script wrote this answer beforehand: the demo has no language model (--llm URL)"
TABLES: Final = (
    "CREATE TABLE ports (id INTEGER PRIMARY KEY, name TEXT, country TEXT)",
    "CREATE TABLE boats (id INTEGER PRIMARY KEY, name TEXT, kind TEXT, length REAL, "
    "port_id INTEGER REFERENCES ports (id))",
    "CREATE TABLE visits (boat_id INTEGER REFERENCES boats (id), berth INTEGER, arrived TEXT, "
    "nights INTEGER, fee REAL)",
)
PORTS: Final = (("Arrenholm", "Denmark"), ("Sund", "Sweden"), ("Husavik", "Iceland"))
NAMES: Final = ("Kittiwake", "Petrel", "Skua", "Tern", "Gannet", "Fulmar", "Puffin", "Dunlin")
KINDS: Final = ("sloop", "ketch", "trawler")

Script = dict[str, tuple[str, ...]]
QUESTIONS: Final[Script] = {
    "Which port do most boats come from?": (
        "SELECT p.name, COUNT(*) AS boats FROM boats AS b JOIN ports AS p ON p.id = b.port_id "
        "GROUP BY p.name ORDER BY boats DESC, p.name LIMIT 1",
    ),
    "What did the boat KITTIWAKE pay in all?": (
        "SELECT SUM(v.fee) AS paid FROM visits AS v JOIN boats AS b ON b.id = v.boat_id "
        "WHERE b.name = 'KITTIWAKE' GROUP BY b.id",
        "SELECT SUM(v.fee) AS paid FROM visits AS v JOIN boats AS b ON b.id = v.boat_id "
        "WHERE b.name = 'Kittiwake' GROUP BY b.id",
    ),
    "How many nights were paid for in each month?": (
        "SELECT STRFTIME('%Y-%m', arrived) AS month, SUM(night) AS nights FROM visits GROUP BY "
        "month ORDER BY month",
        "SELECT STRFTIME('%Y-%m', arrived) AS month, SUM(nights) AS nights FROM visits GROUP BY "
        "month ORDER BY month",
    ),
    "Who is the captain of the Petrel?": (),
}


def make(path: Path, seed: int = SEED) -> Path:
    """Write the database; the same seed makes the same one."""
    chance = random.Random(seed)
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in TABLES:
            connection.execute(statement)
        for id, (name, country) in enumerate(PORTS):
            connection.execute("INSERT INTO ports VALUES (?, ?, ?)", (id, name, country))
        for id, name in enumerate(NAMES):
            length, port = chance.randint(16, 60) / 2, chance.choice((0, 0, 1, 2))
            boat = (id, name, chance.choice(KINDS), length, port)
            connection.execute("INSERT INTO boats VALUES (?, ?, ?, ?, ?)", boat)
        for _ in range(60):
            nights = chance.randint(1, 9)
            day = f"2026-{chance.randint(4, 9):02}-{chance.randint(1, 28):02}"
            boat_id, berth = chance.randrange(len(NAMES)), chance.randint(1, 12)
            visit = (boat_id, berth, day, nights, nights * 18.5)
            connection.execute("INSERT INTO visits VALUES (?, ?, ?, ?, ?)", visit)
    return path


def _said(call: ScriptedCall) -> str:
    """What the script has for a prompt."""
    question = next((one for one in QUESTIONS if one in call.prompt), "")
    if call.component == "answer":
        rows = call.prompt.partition("Rows:\n")[2].splitlines()[1:]
        return f"The rows say: {'; '.join(row.strip('[]') for row in rows if row.startswith('['))}."
    steps = QUESTIONS.get(question, ())
    if not steps:
        return f"Unanswerable: the tables do not say that\nInstead: {next(iter(QUESTIONS))}"
    sql = steps[1] if "What is wrong:" in call.prompt and len(steps) > 1 else steps[0]
    return f"Explanation: {question.rstrip('?')}, as the tables have it.\n```sql\n{sql}\n```"


class DemoEngine(ScriptedEngine):
    """Says what was written beforehand, and that it was."""

    def __init__(self, name: str = "llm") -> None:
        super().__init__(name, ScriptedModel(_said))
        self.spec = replace(self.spec, notice=NOTICE)


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser("experiments.text_to_sql.demo", description=__doc__)
    parser.add_argument("--make", type=Path, metavar="FILE", help="write the database, ask nothing")
    given = parser.parse_args(argv)
    if given.make:
        print(make(given.make))
        return 0
    with tempfile.TemporaryDirectory(prefix="teola-demo-") as name:
        path = make(Path(name) / "harbour.db")
        options = {"data_dir": str(path.parent / "values")}
        engines: Any = {
            "llm": DemoEngine,
            "databases": EngineConfig("sql-databases", options),
        }
        with running(app, engines, debug=False):
            for question in QUESTIONS:
                result = app.run(question=question, database=str(path))
                print(f"{question}\n  {result['answer']}")
                if result["sql"]:
                    print(f"  {result['sql']}")
                for one in result["attempts"]:
                    if one["candidate"] == 1 and "error" in one:
                        print(f"  repaired: {one['error']}")
                print(f"  {result['calls']} calls; {'; '.join(result.notices)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
