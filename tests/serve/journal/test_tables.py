"""A query over tables that is interrupted and begun again on the same server."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from teola import EngineConfig
from teola.serve.table_queries.registered_tables import AnswersByTenant, RegisteredTables
from teola.serve.table_queries.table_run import TableRun
from teola.tables.sources import source_of
from tests.fake_openai import FakeOpenAI, Hang
from tests.serve.conftest import soon
from tests.serve.journal.conftest import Serve, ended


def test_it_goes_on_while_its_first_run_still_ends(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow_stop(run: TableRun) -> None:
        threading.Timer(1.0, run.spent.cancelled.set).start()

    monkeypatch.setattr(TableRun, "stop", slow_stop)
    (tmp_path / "r.csv").write_text("id\n" + "".join(f"row {i}\n" for i in range(9)))
    answers = AnswersByTenant(tmp_path / "answers")
    tables = RegisteredTables({"r": source_of(tmp_path / "r.csv")}, answers=answers)
    with FakeOpenAI("No.") as model:
        model.cursed["row 3"] = Hang()
        engines = {"llm": EngineConfig("openai", {"url": model.url})}
        with serve(engines=engines, tables=tables) as (served, client):
            body = {"query": "SELECT id, LLM('Is it?', id) AS a FROM r", "background": True}
            id = client.post("/v1/sql", json=body).json()["query_id"]
            soon(lambda: len(model.calls) >= 9 and model.in_flight >= 1, 60)
            task = served.board.running[id].task
            assert task is not None
            served.runtime.loop.call_soon_threadsafe(task.cancel)
            soon(lambda: id in served.board.running and served.board.running[id].run == 2)
            model.cursed.clear()
            found = ended(client, id)
            assert found["state"] == "ok", found
            table = found["result"]["outputs"]["table"]
            assert table["rows"] == [[f"row {i}", "No."] for i in range(9)]
            assert (table["asked"], table["answered_before"]) == (1, 8)
