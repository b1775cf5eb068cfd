"""Teola's application, and the same steps by hand with asyncio, on the scripted model.

Each answers a list of jobs, so many at a time, and tells for each the statement that stands, or
what it could not tell, and how long it took.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from openai import AsyncOpenAI

from experiments.text_to_sql.questions import Question
from teola import EngineConfig
from teola.errors import TeolaError, ToolError
from teola.sql.linking import Linker
from teola.sql.lookup import SqlAddress, look_up
from teola.sql.sql_rows import LookupLimits
from teola.sql.sql_schema import Schema
from teola.sql.statement_facts import facts_of
from teola.testing import running
from teola_apps.asking_sql import answering, attempts, choosing, prompts, replies, wanted
from teola_apps.text_to_sql import REPAIRS, app

SECONDS = 1.0
"""That a statement may run, on all sides."""
MOST_TOKENS = 700
WAIT_S = 600.0
"""For the model, connecting included: a busy machine may take its time."""


class Answered(NamedTuple):
    """sql: the statement that stands ("": none). cannot: whether it was said not to be told."""

    sql: str
    cannot: bool
    seconds: float


class Place(NamedTuple):
    """A database: its engine's options, and what the side by hand needs of it."""

    options: Mapping[str, Any]
    address: SqlAddress
    schema: Schema
    linker: Linker
    find: Callable[[str, int], Any]


async def side_by_side(
    asked: Sequence[Question], at: int, ask: Callable[[Question], Awaitable[Answered]]
) -> list[Answered]:
    """All of them, so many at a time, in their order."""
    gate = asyncio.Semaphore(at)

    async def one(question: Question) -> Answered:
        async with gate:
            return await ask(question)

    return list(await asyncio.gather(*map(one, asked)))


def by_teola(
    asked: Sequence[Question], at: int, url: str, places: Mapping[str, Place], folder: str
) -> list[Answered]:
    """The application as it is."""
    named = {name: dict(place.options) for name, place in places.items()}
    engines: Any = {
        "llm": EngineConfig(
            "openai", {"url": url, "model": "teola", "api_key": "none", "connect_timeout_s": 60.0}
        ),
        "databases": EngineConfig("sql-databases", {"named": named, "data_dir": folder}),
    }

    async def ask(question: Question) -> Answered:
        began = time.monotonic()
        try:
            result = await app.arun(question=question.text, database=question.database)
        except TeolaError as error:
            raise RuntimeError(f"{question.text}: {error}") from error
        seconds = time.monotonic() - began
        sql = result["sql"] if result["answerable"] else ""
        return Answered(sql, result["answer"].startswith("I cannot tell"), seconds)

    with running(app, engines, debug=False) as runtime:
        first = {question.database: question for question in asked}.values()
        for question in first:  # files are indexed and connections opened beforehand, for all
            runtime.start(ask(question)).result()
        return runtime.start(side_by_side(asked, at, ask)).result()


def by_asyncio(
    asked: Sequence[Question], at: int, url: str, places: Mapping[str, Place]
) -> list[Answered]:
    """As parallel as it can be by hand: both candidates at once, tests at once."""
    limits = LookupLimits(seconds=SECONDS)

    async def all_of_them() -> list[Answered]:
        client = AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=WAIT_S)
        hand = ByHand(client, places, limits)
        first = {question.database: question for question in asked}.values()
        for question in first:
            await hand.ask(question)
        try:
            return await side_by_side(asked, at, hand.ask)
        finally:
            await client.close()

    return asyncio.run(all_of_them())


class ByHand:
    """The application's steps without Teola's runtime."""

    def __init__(
        self, client: AsyncOpenAI, places: Mapping[str, Place], limits: LookupLimits
    ) -> None:
        self.client, self.places, self.limits = client, places, limits

    async def ask(self, question: Question) -> Answered:
        began = time.monotonic()
        place = self.places[question.database]
        asked = wanted.begin(question.text, "auto", False, False)["wanted"]
        linked = await asyncio.to_thread(place.linker.link, question.text, place.find)
        told = {
            "dialect": place.address.dialect,
            "schema": linked.schema,
            "offered": [],
            "values": [vars_of(value) for value in linked.values],
            "examples": [],
        }
        start = prompts.prepare(asked, told, [])
        tried = await asyncio.gather(*(self._candidate(n, start, asked, place) for n in (1, 2)))
        both = choosing.compare(*tried, "auto")
        compared = both["compared"]
        if compared["differ"]:
            shown = f"{prompts.QUESTION}{start['plain_question']}\n\n{both['shown']}"
            tests = (await self._say(prompts.TESTS + shown, 256)).splitlines()
            verdicts = await asyncio.gather(
                *(self._say(f"{prompts.EVALUATE}{shown}\n\nTest: {test}", 16) for test in tests[:5])
            )
            outcome = choosing.vote(compared, verdicts)
        else:
            outcome = choosing.outcome(compared)
        said = None
        if answering.wants_words(outcome, ""):
            facts = answering.facts(outcome)
            prompt = f"{prompts.ANSWER}{prompts.QUESTION}{question.text}\n\nRows:\n{facts}"
            said = await self._say(f"{prompt}\n\nAnswer: ", 200)
        result = answering.finish(outcome, asked, 0, said)
        sql = result["sql"] if result["answerable"] else ""
        return Answered(sql, bool(outcome["cannot"]), time.monotonic() - began)

    async def _candidate(
        self, n: int, start: Mapping[str, Any], asked: Mapping[str, Any], place: Place
    ) -> list[Any]:
        attempt, tried = start[f"attempt_{n}"], list[Any]()
        for _ in range(1 + REPAIRS):
            prompt = (
                f"{prompts.WRITE}\n{start['schema']}{start['examples']}{prompts.QUESTION}"
                f"{start['plain_question']}\n\n{attempt}"
            )
            read = replies.read_reply(await self._say(prompt, MOST_TOKENS))
            result = {}
            if read["sql_text"]:
                result = await asyncio.to_thread(self._run, place, read["sql_text"])
            turn = attempts.judge(
                read["statement"], result, tried, asked, start["started"], start[f"style_{n}"]
            )
            tried, attempt = turn["tried"], turn["attempt"]
            if turn["verdict"] == "done":
                break
        return tried

    def _run(self, place: Place, sql: str) -> dict[str, Any]:
        try:
            rows = look_up(place.address, sql, self.limits, place.schema)
        except ToolError as error:
            return {"error": str(error)}
        result = {**rows.result(), "sql": sql, "tables": []}
        if not rows.rows:
            near = []
            for text in facts_of(sql, place.address.dialect, place.schema).texts:
                alike = place.find(text, 3)
                if alike and all(value.value != text for value in alike):
                    near += [{"text": text, **value._asdict()} for value in alike]
            result["near"] = near
        return result

    async def _say(self, prompt: str, most: int) -> str:
        stream = await self.client.chat.completions.create(
            model="asyncio",
            messages=[{"role": "user", "content": prompt}],
            max_tokens=most,
            temperature=0.0,
            stream=True,
        )
        pieces = []
        async for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                pieces.append(chunk.choices[0].delta.content)
        return "".join(pieces)


def vars_of(value: Any) -> dict[str, str]:
    """A linked value as JSON has it."""
    return {"text": value.text, "table": value.table, "column": value.column, "value": value.value}
