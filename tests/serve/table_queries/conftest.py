"""A server with a table, whose model is a scripted server, and clients of two tenants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from teola import EngineConfig, Runtime
from teola.price import Price
from teola.serve.access.auth import KeyFile
from teola.serve.table_queries.registered_tables import (
    AnswersByTenant,
    RegisteredTables,
    TableLimits,
)
from teola.tables.sources import source_of
from tests.fake_openai import FakeOpenAI
from tests.fake_openai_answer import prompt_text
from tests.serve.conftest import Served, applications, serving

ROWS: Final = 40
LIMITS: Final = TableLimits(questions=ROWS, rows=ROWS, bytes=6000, queries=2)
TONE: Final = "SELECT id, LLM('Tone?', text, choices := ['good', 'bad']) AS tone FROM r"


@dataclass
class Site:
    """A server that runs. folder: with its tables and answers."""

    served: Served
    model: FakeOpenAI
    folder: Path
    keys: dict[str, str]
    tables: RegisteredTables

    def client(self, who: str) -> httpx.Client:
        headers = {"authorization": f"Bearer {self.keys[who]}"}
        return httpx.Client(base_url=self.served.url, headers=headers, timeout=120)

    @property
    def asked(self) -> list[str]:
        """Prompts that came to the model."""
        return [prompt_text(seen.body) for seen in self.model.calls]


def says(messages: Any) -> str:
    return "bad" if "bad" in messages[-1]["content"] else "good"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("tables")
    rows = "".join(f"{i},text {i} is {'bad' if i % 4 else 'good'}\n" for i in range(ROWS))
    (folder / "r.csv").write_text(f"id,text\n{rows}")
    (folder / "big.csv").write_text(
        "id,text\n" + "".join(f"{i},{'long ' * 20}{i}\n" for i in range(ROWS + 1))
    )
    (folder / "blues.csv").write_text("id\n1\n")
    (folder / "changing.csv").write_text("id,text\n1,gentle\n")
    names = ("r", "big", "blues", "changing")
    tables = RegisteredTables(
        {name: source_of(folder / f"{name}.csv") for name in names},
        {"blues": frozenset({"blue"})},
        LIMITS,
        AnswersByTenant(folder / "answers"),
    )
    file = KeyFile(folder / "keys.json")
    keys = {"red": file.create("alice", "red"), "blue": file.create("bob", "blue")}
    keys["poor"] = file.create("carol", "green", cost_a_day=3e-4)
    with (
        FakeOpenAI(says) as model,
        Runtime(
            {"llm": EngineConfig("openai", {"url": model.url})},
            prices={"fake-model": Price(prompt=1.0, answer=1.0)},
            learn=False,
        ) as runtime,
        serving(runtime, applications(), file, tables=tables) as served,
    ):
        yield Site(served, model, folder, keys, tables)


@pytest.fixture
def red(site: Site) -> Iterator[httpx.Client]:
    with site.client("red") as client:
        yield client


@pytest.fixture
def blue(site: Site) -> Iterator[httpx.Client]:
    with site.client("blue") as client:
        yield client
