"""Background queries over tables whose servers are killed: they go on from the answers.

`python -m tests.serve.table_queries.test_sql_restart 50000` does it with so many rows.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.serve.conftest import soon
from tests.serve.databases import place_of_servers
from tests.serve.mortal import APPS, Mortal
from tests.serve.process import ready

QUERY = "SELECT id, LLM('Long?', text, choices := ['Yes', 'No']) AS long FROM r"
LIMIT_S = 600
"""Of a machine that does much besides."""


@contextmanager
def serving_tables(folder: Path, at_once: int) -> Iterator[Mortal]:
    """A server with the table r.csv of a folder, ready. Prompts that its model answers are noted in
    `effects`."""
    configuration = folder / "teola.toml"
    configuration.write_text(
        f'[server]\ndrain_s = 0.3\nmax_sql_rows = 100000\n[tables.r]\npath = "{folder}/r.csv"\n'
    )
    words = [f"{APPS}:reading", "--config", str(configuration)]
    words += ["--data-dir", str(folder / "data")]
    known = {"TEOLA_EFFECTS": str(folder / "effects"), "TEOLA_AT_ONCE": str(at_once)}
    with ready(words, folder / "stderr.log", environment={**os.environ, **known}) as found:
        yield Mortal(found[1], found[0])


def survive(rows: int, kills: int, at_once: int, seed: int = 0) -> Counter[str]:
    """A background query over so many rows whose server is killed so often, at moments of chance;
    how often each prompt was answered. Raises AssertionError where a row is lost or wrong."""
    chance = random.Random(seed)
    with place_of_servers() as (folder, _):
        lines = "".join(f"{i},text {i}\n" for i in range(rows))
        (folder / "r.csv").write_text(f"id,text\n{lines}")
        effects = folder / "effects"

        def noted() -> list[str]:
            return effects.read_text().split() if effects.exists() else []

        id = ""
        for _ in range(kills):
            before = len(noted())
            with serving_tables(folder, at_once) as server:
                if not id:
                    body = {"query": QUERY, "background": True}
                    taken = httpx.post(f"{server.url}/v1/sql", json=body, timeout=60)
                    id = taken.json()["query_id"]
                more = before + chance.uniform(0.4, 0.9) * rows / (kills + 1)
                soon(lambda most=more: len(noted()) >= most, LIMIT_S)
                server.end(signal.SIGKILL)
        with serving_tables(folder, at_once) as server:
            found = server.ended(id, LIMIT_S)
        assert found["state"] == "ok", found
        table = found["result"]["outputs"]["table"]
        assert [row[0] for row in sorted(table["rows"])] == list(range(rows))
        assert {row[1] for row in table["rows"]} == {"Yes", "No"}
        assert 0 < table["answered_before"] < rows
        assert table["asked"] + table["answered_before"] == rows
        return Counter(noted())


@pytest.mark.slow
def test_a_background_query_survives_three_kills(servers: None) -> None:
    answered = survive(1200, 3, 16)
    again = sum(answered.values()) - len(answered)
    assert again < 600, "what came back a second before a kill is there"


if __name__ == "__main__":
    counted = survive(int(sys.argv[1]), 3, 256)
    print(f"{len(counted)} prompts, {sum(counted.values()) - len(counted)} answered again")
