"""Tables beside other systems: answers from prompts, the server, two clients, and the page."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from experiments.tables_peers import __main__ as command
from experiments.tables_peers import figures
from experiments.tables_peers.answers import POISON, NoRow, answer_to, fields_in, row_prompt
from experiments.tables_peers.clients import WARM, Job, asyncio_openai, family, ours
from experiments.tables_peers.data import DATA, Table, table
from experiments.tables_peers.installed import ASYNCIO, OURS
from experiments.tables_peers.measure import KEYS, _wrong
from experiments.tables_peers.running import Client, Found
from experiments.tables_peers.server import Model, Server, reply_to
from teola.errors import InputError
from tests.planted import catches, edited

FOLDER = Path(figures.__file__).parent
RULES = "Say what it is. Answer with its code."
ROW = {"title": 'Gull "one" \\ two', "info": "é, ünd: more"}


@catches(
    "in-order",
    "an answer depends on the order of the fields",
    edited(answer_to, "sorted(", "list("),
)
def test_an_answer_is_of_the_row_wherever_it_stands() -> None:
    wanted = answer_to(ROW)
    turned = dict(reversed(ROW.items()))
    plain = row_prompt(RULES, ROW)
    head, _, lines = plain.partition("\n")
    for prompt in (
        plain,
        row_prompt(RULES, turned),
        f"You are a helper. [Prompt]: \N{LEFT-POINTING DOUBLE ANGLE QUOTATION MARK}{plain}\n\nBye.",
        f"system: {head}\nuser: \n{lines}",
        json.dumps({"prompt": plain, "more": "x: y"}),
    ):
        assert answer_to(fields_in(prompt, RULES, list(ROW))) == wanted
    assert answer_to({**ROW, "info": "else"}) != wanted
    for broken in ("title: Gull", RULES, f"{RULES}\ntitle: Gull\nelse"):
        with pytest.raises(NoRow):
            fields_in(broken, RULES, list(ROW))


def made(rows: int) -> Table:
    """So many rows, of which two are equal."""
    found = [{"title": f"film {k}", "info": f"It is about gulls. {k}"} for k in range(rows - 1)]
    return Table(DATA["movies_small by movie"], (*found, found[0]))


@asynccontextmanager
async def serving(of: Table) -> AsyncIterator[tuple[Model, str]]:
    model = Model()
    model.begin(of.asked.instruction, of.names)
    steps = asyncio.create_task(model.run())
    listening = await asyncio.start_server(Server(model).connection, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield model, f"http://127.0.0.1:{port}/v1"
    finally:
        steps.cancel()
        listening.close()


async def test_the_server_counts_and_answers_texts_tools_and_streams() -> None:
    of = made(3)
    prompt = row_prompt(of.asked.instruction, of.rows[0])
    wanted = answer_to(of.rows[0])
    function = {"name": "send", "parameters": {"properties": {"said": {"type": "string"}}}}
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": prompt}]}
    async with serving(of) as (model, url), httpx.AsyncClient(base_url=url) as client:

        async def ask(**more: Any) -> httpx.Response:
            return await client.post("/chat/completions", json=body | more)

        first = (await ask()).json()
        again = (await ask()).json()
        assert first["choices"][0]["message"]["content"] == wanted
        found = [one["usage"]["prompt_tokens_details"]["cached_tokens"] for one in (first, again)]
        assert found[0] == 0
        assert found[1] == first["usage"]["prompt_tokens"] // 16 * 16
        tool = (await ask(tools=[{"type": "function", "function": function}])).json()
        called = tool["choices"][0]["message"]["tool_calls"][0]["function"]
        assert json.loads(called["arguments"]) == {"said": wanted}
        streamed = (await ask(stream=True)).text
        assert wanted in streamed
        assert streamed.endswith("data: [DONE]\n\n")
        body["messages"][0]["content"] = f"{POISON} {prompt}"
        assert (await ask()).status_code == 400
        body["messages"][0]["content"] = WARM
        assert (await ask()).json()["choices"][0]["message"]["content"] == "hello"
        counted = model.counters()
        assert counted["strange"] == 1
        assert (counted["calls"], counted["answered"], counted["refused"]) == (5, 4, 1)
        assert counted["unreadable"] == 0


@catches(
    "asked-again",
    "an answer counts as taken when it was given",
    edited(Server._completes, "model.untaken.add(writer)", "pass"),
)
@catches(
    "never-taken",
    "an answer is not taken by who asks again",
    edited(Server.connection, "self.model.untaken.discard(writer)\n            ahead", "ahead"),
)
async def test_an_answer_is_taken_when_its_client_asks_again_or_leaves() -> None:
    of = made(3)
    prompts = [row_prompt(of.asked.instruction, fields) for fields in of.rows]
    async with serving(of) as (model, url):
        async with httpx.AsyncClient(base_url=url) as client:
            for asked in range(3):
                body = {"messages": [{"role": "user", "content": prompts[asked]}]}
                call = asyncio.create_task(client.post("/chat/completions", json=body))
                async with asyncio.timeout(20):
                    while model.calls <= asked:
                        await asyncio.sleep(0)
                assert model.answered == asked, "it is open"
                assert model.counters()["taken"] == asked
                await call
                assert model.counters()["taken"] == asked
            counted = model.counters()
            assert (counted["answered"], counted["taken"]) == (3, 2)
        async with asyncio.timeout(20):
            while model.counters()["taken"] < 3:
                await asyncio.sleep(0.001)
        model.begin(of.asked.instruction, of.names)
        assert model.counters()["taken"] == 0


async def test_ours_and_asyncio_answer_every_row(tmp_path: Path) -> None:
    of = made(6).poisoned()
    of.write(tmp_path / "rows.jsonl")
    async with serving(of) as (model, url):
        job = Job(
            *(str(tmp_path / "rows.jsonl"), of.asked.instruction, of.names, url, "scripted"),
            *(str(tmp_path), 8),
        )
        for system, calls in ((ours, 6), (asyncio_openai, 7)):
            model.begin(of.asked.instruction, of.names)
            answers = await asyncio.to_thread(system(job))
            assert _wrong(of, Found(answers, 0, 0, "")) == 1, "the poisoned one"
            assert answers[3] is None
            assert model.counters()["calls"] == calls


def test_a_prompt_that_asks_for_json_in_words_gets_it() -> None:
    words = (
        "Example.\n\nOUTPUT FIELDS:\n- other: no\n\nANSWER:\n---\nOUTPUT FIELDS:\n- said: the code"
    )
    content = f"{words}\n\nCONTEXT:\n{{}}\n\n- not: a field"
    body = {"messages": [{"role": "user", "content": content}]}
    assert reply_to(body, "12ab") == ('{"said": "12ab"}', [])
    body["messages"][0]["content"] = "Say it.\n- title: a film"
    assert reply_to(body, "12ab") == ("12ab", [])


STARTS: Final = """
import subprocess, sys
words = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(600)"]
subprocess.Popen(words, start_new_session=True).wait()
"""


@catches(
    "left-its-group",
    "what has left the group of a killed process lives on",
    edited(Client._signal, "for other in others", "for other in others[:1]"),
)
def test_a_kill_reaches_what_has_a_session_of_its_own() -> None:
    client = object.__new__(Client)
    words = [sys.executable, "-c", STARTS]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as client._process:
        assert client._process.stdout is not None
        assert client._process.stdout.readline() == "1\n"
        pid, child = family(client._process.pid)
        assert pid == client._process.pid
        client.kill()
    assert client._process.returncode == -signal.SIGKILL
    ends = time.monotonic() + 10.0
    while (alive := _runs(child)) and time.monotonic() < ends:
        time.sleep(0.01)
    if alive:
        os.kill(child, signal.SIGKILL)
    assert not alive


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def test_rows_that_are_wrong_or_missing_count() -> None:
    of = made(4)
    answers: dict[int, str | None] = {k: answer_to(row) for k, row in enumerate(of.rows)}
    assert _wrong(of, Found(answers, 0, 0, "")) == 0
    answers[0], answers[1] = answers[1], answers[0]
    del answers[3]
    assert _wrong(of, Found(answers, 0, 0, "")) == 3


@catches(
    "rounds-alike",
    "rows of a later round repeat where nothing is to repeat",
    edited("experiments.tables_peers.data:_rounds", "{} if asked.repeats else", "{} if 1 else"),
)
def test_beyond_the_end_of_a_data_set_are_its_rows_once_more(tmp_path: Path) -> None:
    (tmp_path / "beer.csv").write_text("beer/style\nStout\nPorter\n")
    assert [row["style"] for row in table(tmp_path, "beer by style", 5).rows] == [
        *("Stout", "Porter", "Stout", "Porter", "Stout")
    ]
    asked = [{"paragraph": 0, "question": f"q{k}?"} for k in range(2)]
    file = {"paragraphs": [{"text": "It is."}], "questions": asked}
    (tmp_path / "xquad_en.json").write_text(json.dumps(file))
    rows = table(tmp_path, "squad by question", 5).rows
    assert [row["question"] for row in rows] == ["q0?", "q1?", "q0? (2)", "q1? (2)", "q0? (3)"]
    assert {row["context"] for row in rows} == {"It is."}


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"beer\.csv"):
        table(tmp_path, "beer by style", 10)
    for words, said in (
        (["--systems", "pandas", "--data", str(tmp_path)], "asyncio"),
        (["--sets", "wine", "--data", str(tmp_path)], "beer by style"),
    ):
        with pytest.raises(SystemExit, match=said):
            command.main(words)


def test_the_kept_report() -> None:
    report = json.loads((FOLDER / "report.json").read_text())
    assert all(tuple(row) == KEYS for row in report["rows"])
    assert {OURS, ASYNCIO} < {row["system"] for row in figures.ran(report)}
    assert {row["data"] for row in figures.ran(report)} == set(DATA)
    for row in figures.ran(report):
        if row["system"] == OURS:
            assert row["wrong"] == 0
