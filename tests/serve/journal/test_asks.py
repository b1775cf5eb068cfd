"""Questions of a query that is nowhere, where it has several: answered one by one, in any order."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from types import MappingProxyType

import pytest

from teola.errors import InputError, UnknownName
from teola.graph import Inquiry
from teola.query.journal import durable, statements
from teola.query.journal.durable import Filed
from teola.query.journal.journal import SEALING, Journal
from teola.query.journal.lost import Answered
from tests.serve.journal.conftest import rows
from tests.serve.journal.test_holders import reached

ASKS = ("first", "second", "third")


async def filed(
    journal: Journal, id: str, steps: Mapping[str, str | None] = MappingProxyType({})
) -> None:
    """A query of this id, which waits for answers to all of them."""
    query = Filed(id, "t", "app", "{}", time.time(), 60.0, 60.0, "code")
    schema = {"type": "boolean"}
    asks = [Inquiry(ask, id, "ask", "c", f"{ask}?", schema) for ask in ASKS]
    await durable.file(journal, query, steps, asks)


async def still_open(journal: Journal, *ids: str) -> dict[str, list[str] | None]:
    found = await durable.open_of(journal, "t", list(ids))
    return {
        id: asks if asks is None else [ask["ask"] for ask in asks] for id, asks in found.items()
    }


async def test_each_is_answered_once_and_the_others_stay_open(made: str) -> None:
    async with reached(made) as journal:
        await filed(journal, "q")
        with pytest.raises(InputError, match="say which"):
            await durable.answer(journal, "t", "q", None, True, takes=False)
        for k, ask in enumerate(("second", "first", "third")):
            given = ask if k < 2 else None  # the last one need not be named
            with pytest.raises(InputError):
                await durable.answer(journal, "t", "q", given, "no boolean", takes=False)
            answered = await durable.answer(journal, "t", "q", given, True, takes=False)
            assert answered == (ask, None)
            with pytest.raises(Answered) as raised:
                await durable.answer(journal, "t", "q", ask, True, takes=False)
            assert str(raised.value) == "query q does not wait for this answer (any more)"
            if k < 2:
                with pytest.raises(UnknownName, match="fourth"):
                    await durable.answer(journal, "t", "q", "fourth", True, takes=False)
        assert await still_open(journal, "q") == {}
        assert (await durable.steps_of(journal, "t", "q"))["first"] == '{"answer": true}'


async def test_who_goes_on_gets_answers_for_all_that_has_no_result(made: str) -> None:
    """Also for what was begun, of which people were asked what had become of it; what has a result
    keeps that, and what nobody has answered is as it was."""
    steps = {"second": None, "third": '{"value": 1}', "before": '{"value": 2}', "begun": None}
    async with reached(made) as journal:
        await filed(journal, "q", steps)
        told = {"first?": "null", "second?": "null", "third?": "null"}
        assert await durable.steps_of(journal, "t", "q") == {**steps, **told}
        answers = dict[str, str]()
        for ask, answer in (("second", True), ("first", False), ("third", True)):
            await durable.answer(journal, "t", "q", ask, answer, takes=False)
            if ask != "third":
                answers[ask] = json.dumps({"answer": answer})
            found = await durable.steps_of(journal, "t", "q")
            assert found == {**steps, **told, **answers}


@pytest.mark.parametrize("broken", ASKS)
async def test_one_that_cannot_be_read_hides_those_of_its_query_alone(
    made: str, broken: str
) -> None:
    async with reached(made) as journal:
        for id in ("p", "q"):
            await filed(journal, id)
        change = "UPDATE teola_journal.asks SET told = '{' WHERE query = 'p' AND id = %s"
        await asyncio.to_thread(rows, made, change, broken)
        assert await still_open(journal, "p", "q") == {"p": None, "q": list(ASKS)}


async def test_what_could_not_be_read_is_tried_again_once_the_journal_is_sealed_anew(
    made: str,
) -> None:
    async with reached(made) as journal, journal.session() as session:
        journal.unreadable.add("q")
        await journal.look_at_note(session)
        assert journal.unreadable == {"q"}, "nothing is otherwise than before"
        await journal.database.note(statements.BEGIN_SEALING, SEALING)
        await journal.look_at_note(session)
        assert not journal.unreadable
