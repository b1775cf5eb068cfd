"""A job: a query as it was asked, checked, and run for whoever listens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import FrozenInstanceError

import pytest

from teola import App, Input, Runtime, Token, component
from teola.ask import Ask, Bounds
from teola.errors import InputError, QueryFailed, UnknownName
from teola.passes import select
from teola.runtime.live.query import Progress


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
        Ask({"question": "why"}).tenant = "other"  # type: ignore[misc]


def test_a_job_is_all_that_was_asked_and_the_defaults_of_the_rest(app: App) -> None:
    job = app.job(Ask({"question": "why"}))
    assert job.given == {"question": "why", "mark": "?"}
    assert (job.tenant, job.passes, job.deadline_s) == ("default", select(app.passes), 120.0)
    ask = Ask({"question": "why"}, passes="none", deadline_s=5.0, tenant="ours")
    job = app.job(ask, id="again")
    assert (job.id, job.tenant, job.passes, job.deadline_s) == ("again", "ours", (), 5.0)


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (Ask({}), InputError),
        (Ask({"question": "why"}, deadline_s=0.0), InputError),
        (Ask({"question": "why"}, {"spel.function": 1}), UnknownName),
        (Ask({"question": "why"}, passes="no-such"), UnknownName),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    app: App, ask: Ask, error: type[Exception]
) -> None:
    with pytest.raises(error):
        app.job(ask)


@pytest.mark.parametrize(("streams", "told"), [(True, ["w", "h", "y", "?"]), (False, ["why?"])])
def test_who_listens_is_told_tokens_or_the_whole(app: App, streams: bool, told: list[str]) -> None:
    heard: list[Token | Progress] = []
    job = app.job(Ask({"question": "why"}))
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
    job = app.job(Ask({"question": "why" * 100}, bounds=bounds))
    with pytest.raises((InputError, QueryFailed), match=told):
        app.home.start(job.run()).result(30).checked()


def test_what_it_was_given_can_be_forgotten(app: App) -> None:
    job = app.job(Ask({"question": "why"}))
    job.forget()
    assert not job.given
