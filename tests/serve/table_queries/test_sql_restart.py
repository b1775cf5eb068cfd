"""Background queries over tables whose servers are killed: they go on from the answers."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.fake_openai import FakeOpenAI
from tests.fake_openai_answer import prompt_text
from tests.serve.conftest import soon
from tests.serve.databases import place_of_servers
from tests.serve.mortal import APPS, Mortal
from tests.serve.process import ready

QUERY = "SELECT id, LLM('Long?', text, max_tokens := 4) AS long FROM r"


@contextmanager
def serving_tables(folder: Path, model: FakeOpenAI) -> Iterator[Mortal]:
    """A server with the table r.csv of a folder, ready."""
    configuration = folder / "teola.toml"
    configuration.write_text(
        f'[server]\ndrain_s = 0.3\nmax_sql_rows = 100000\n[tables.r]\npath = "{folder}/r.csv"\n'
        f'[engines.llm]\ntype = "openai"\noptions = {{ url = "{model.url}" }}\n'
    )
    words = [f"{APPS}:working", "--config", str(configuration)]
    words += ["--data-dir", str(folder / "data")]
    with ready(words, folder / "stderr.log", environment=dict(os.environ)) as (process, url):
        yield Mortal(url, process)


def survive(rows: int, kills: int, delay_s: float, seed: int = 0) -> Counter[str]:
    """A background query over so many rows whose server is killed so often, at moments of chance;
    how often each prompt was asked. Raises AssertionError where a row is lost or wrong."""
    chance = random.Random(seed)
    with (
        place_of_servers() as (folder, _),
        FakeOpenAI(lambda messages: "no", token_delay_s=delay_s) as model,
    ):
        lines = "".join(f"{i},text {i}\n" for i in range(rows))
        (folder / "r.csv").write_text(f"id,text\n{lines}")
        asked = 0
        for _ in range(kills):
            with serving_tables(folder, model) as server:
                if not asked:
                    body = {"query": QUERY, "background": True}
                    taken = httpx.post(f"{server.url}/v1/sql", json=body, timeout=60)
                    id = taken.json()["query_id"]
                more = chance.uniform(0.5, 1.0) * rows / (kills + 1)
                soon(lambda most=asked + more: len(model.calls) >= most, 1800)
                asked = len(model.calls)
                server.end(signal.SIGKILL)
        with serving_tables(folder, model) as server:
            found = server.ended(id, 1800)
        table = found["result"]["outputs"]["table"]
        assert (found["state"], table["row_count"]) == ("ok", rows), found["state"]
        assert sorted(table["rows"]) == [[i, "no"] for i in range(rows)]
        assert 0 < table["answered_before"] < rows
        assert table["asked"] + table["answered_before"] == rows
        return Counter(prompt_text(seen.body) for seen in model.calls)


@pytest.mark.slow
def test_a_background_query_survives_three_kills(servers: None) -> None:
    asked = survive(1500, 3, 0.02)
    assert len(asked) == 1500
    again = sum(asked.values()) - len(asked)
    assert again < 750, "what came back a second before a kill is there"


if __name__ == "__main__":
    counted = survive(50_000, 3, 0.0)
    print(f"{len(counted)} prompts, {sum(counted.values()) - len(counted)} asked again")
