"""A job: a query as it was asked, checked, and run for whoever listens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import FrozenInstanceError

import pytest

from teola import App, Input, Runtime, Token, component
from teola.engine import NAME_CHARACTERS
from teola.errors import InputError, QueryFailed, UnknownName
from teola.passes import select
from teola.query.job import Job
from teola.query.result import Result
from teola.query.spec import Bounds, QuerySpec, program_of
from teola.runtime.live.nesting import calling
from teola.runtime.live.query import Progress
from tests.planted import catches, edited


def spell(question: str, mark: str) -> Iterator[str]:
    yield from (*question, mark)


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    with Runtime() as runtime:
        yield App(
            "spell",
            component(spell, outputs="answer"),
            inputs={"question": "text", "mark": Input("text", default="?")},
            outputs={"answer": "answer"},
            runtime=runtime,
        )


def test_what_is_asked_cannot_change_afterwards() -> None:
    with pytest.raises(FrozenInstanceError):
        QuerySpec({"question": "why"}).tenant = "other"  # type: ignore[misc]


def test_a_job_is_all_that_was_asked_and_the_defaults_of_the_rest(app: App) -> None:
    job = app.job(QuerySpec({"question": "why"}))
    assert job.given == {"question": "why", "mark": "?"}
    assert (job.tenant, job.passes, job.deadline_s) == ("default", select(app.passes), 120.0)
    ask = QuerySpec({"question": "why"}, passes="none", deadline_s=5.0, tenant="ours")
    job = app.job(ask, id="again")
    assert (job.id, job.tenant, job.passes, job.deadline_s) == ("again", "ours", (), 5.0)


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (QuerySpec({}), InputError),
        (QuerySpec({"question": "why"}, deadline_s=0.0), InputError),
        (QuerySpec({"question": "why"}, {"spel.function": 1}), UnknownName),
        (QuerySpec({"question": "why"}, passes="no-such"), UnknownName),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    app: App, ask: QuerySpec, error: type[Exception]
) -> None:
    with pytest.raises(error):
        app.job(ask)


@pytest.mark.parametrize(("streams", "told"), [(True, ["w", "h", "y", "?"]), (False, ["why?"])])
def test_who_listens_is_told_tokens_or_the_whole(app: App, streams: bool, told: list[str]) -> None:
    heard: list[Token | Progress] = []
    job = app.job(QuerySpec({"question": "why"}))
    assert app.home.start(job.run(heard.append, streams=streams)).result(30).answer == "why?"
    assert [event.text for event in heard if isinstance(event, Token)] == told


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        (Bounds(most_primitives=0), "more primitives than are allowed"),
        (Bounds(most_bytes=1), "that are held for one"),
    ],
)
def test_bounds_hold_while_it_runs(app: App, bounds: Bounds, told: str) -> None:
    job = app.job(QuerySpec({"question": "why" * 100}, bounds=bounds))
    with pytest.raises((InputError, QueryFailed), match=told):
        app.home.start(job.run()).result(30).checked()


def test_what_it_was_given_can_be_forgotten(app: App) -> None:
    job = app.job(QuerySpec({"question": "why"}))
    job.forget()
    assert not job.given


# --- sessions -------------------------------------------------------------------------------


@catches(
    "one-session-for-all",
    "equal names of two tenants' sessions are one session",
    edited(program_of, "{len(tenant)} {tenant} {session}", "{session}"),
)
def test_a_session_is_a_program_of_its_tenants(app: App) -> None:
    def part_of(tenant: str | None, session: str | None) -> str:
        return app.job(QuerySpec({"question": "why"}, tenant=tenant, session=session)).part_of

    assert part_of("a", None) == part_of(None, None) == ""
    assert part_of("a", "s") == part_of("a", "s") != part_of("b", "s")
    assert part_of(None, "s") == part_of("default", "s")
    names = [("a", "b c"), ("a b", "c"), ("a", " b c"), ("", "a b c"), ("a", "s"), ("a", "S")]
    assert len({part_of(*name) for name in names}) == len(names)


def test_whatever_a_session_is_called_its_program_has_a_short_name(app: App) -> None:
    for session in ("s", "x" * NAME_CHARACTERS, "\ud800", "é\0"):
        assert len(app.job(QuerySpec({"question": "why"}, session=session)).part_of) == 32


@pytest.mark.parametrize(
    ("session", "told"),
    [
        ("", "session is empty"),
        (" ", "session is empty"),
        ("x" * (NAME_CHARACTERS + 1), "session has 256 characters"),
        (7, "session must be a text, not int"),
    ],
)
def test_a_session_is_checked_before_anything_starts(app: App, session: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        app.job(QuerySpec({"question": "why"}, session=session))
    with pytest.raises(InputError, match=told):
        app.run(question="why", session=session)


@catches(
    "a-program-each",
    "a query inside another is a program by itself",
    edited(Job._part_of, "return self.caller.query.context.program", "return ''"),
)
def test_queries_inside_a_query_are_part_of_its_program() -> None:
    programs: list[tuple[str, str]] = []

    def inner(question: str) -> str:
        programs.append((question, _program()))
        return question

    def outer(question: str) -> str:
        programs.append(("outer", _program()))
        asked = {"question": "inside"}, {"question": "ours", "session": "s"}
        asked += ({"question": "theirs", "tenant": "b"},)
        return "".join(inside.run(**one).answer for one in asked)

    kinds = {"inputs": {"question": "text"}, "outputs": {"answer": "answer"}}
    inside = App("inside", component(inner, outputs="answer"), **kinds)  # type: ignore[arg-type]
    with Runtime() as runtime:
        around = App("around", component(outer, outputs="answer"), runtime=runtime, **kinds)  # type: ignore[arg-type]
        for session in (None, "t"):
            programs.clear()
            result = around.run(question="why", session=session)
            found = dict(programs)
            assert found["outer"] == (program_of("default", "t") if session else result.query_id)
            assert found["inside"] == found["outer"]
            assert found["ours"] == program_of("default", "s")
            assert found["theirs"] not in (found["outer"], found["ours"])


@catches(
    "session-dropped",
    "the session of a query is lost on its way",
    edited(Job._run, "part_of=self.part_of", "part_of=''"),
)
@catches(
    "session-unheard",
    "a query is a program by itself, whatever its session",
    edited(Job._execute, "context.program", "context.query_id"),
)
def test_every_way_of_asking_takes_a_session() -> None:
    def tell(question: str) -> str:
        return _program()

    async def elsewhere(**given: str) -> list[str]:
        streamed = [event async for event in app.astream(**given)][-1]
        assert isinstance(streamed, Result)
        return [(await app.arun(**given)).answer, streamed.answer]

    kinds = {"inputs": {"question": "text"}, "outputs": {"answer": "answer"}}
    with Runtime() as runtime:
        app = App("told", component(tell, outputs="answer"), runtime=runtime, **kinds)  # type: ignore[arg-type]
        for more in ({"session": "s"}, {"session": "s", "tenant": "b"}, {}):
            given = {"question": "why", **more}
            streamed = [*app.stream(**given)][-1]
            assert isinstance(streamed, Result)
            ran = app.run(**given)
            found = [ran.answer, streamed.answer, *asyncio.run(elsewhere(**given))]
            if more:
                assert {*found} == {program_of(more.get("tenant", "default"), "s")}
            else:
                assert len({*found}) == 4
                assert ran.answer == ran.query_id


def _program() -> str:
    """Of the query that this function works for."""
    caller = calling.get()
    assert caller is not None
    return caller.query.run.asker.program
