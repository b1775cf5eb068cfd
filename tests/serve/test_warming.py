"""Before a server is ready, what its first queries would wait for has been done once."""

from __future__ import annotations

import logging

import pytest

from teola import Runtime
from teola.catalogue import load_app
from teola.serve.warming import warm
from tests.serve.conftest import applications, lent


def warmed(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says was warmed."""
    (told,) = [record for record in caplog.records if record.msg.startswith("warm after")]
    return told.fields["what"].split(", ")  # type: ignore[attr-defined]


def test_engines_reader_and_plans_are_warm(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    app = load_app("advanced-rag")
    apps = {app.name: app, **applications()}
    with lent(apps, runtime), caplog.at_level(logging.INFO, "teola"):
        app.optimisers.pop(runtime, None)
        runtime.start(warm(runtime, apps)).result()
        assert {*warmed(caplog)} == {
            *("embedding", "rerank", "vectorstore", "llm", "documents"),
            *(f"the plan of {name}" for name in apps),
        }
        before = app.optimiser(runtime, None).misses
        app.run(question="Who keeps the lamp?", documents={"name": "a", "text": "Mara does."})
        assert app.optimiser(runtime, None).misses == before


def test_nobody_reads_who_takes_no_documents(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    apps = applications()
    with lent(apps, runtime), caplog.at_level(logging.INFO, "teola"):
        runtime.start(warm(runtime, apps)).result()
    assert {*warmed(caplog)} == {f"the plan of {name}" for name in apps}


def test_what_cannot_be_warmed_is_told_and_the_rest_is(
    runtime: Runtime, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> None:
        raise ValueError("no parser here")

    app = load_app("naive-rag")
    monkeypatch.setattr(runtime.host("documents").engine, "warm", broken)
    with lent({app.name: app}, runtime), caplog.at_level(logging.INFO, "teola"):
        runtime.start(warm(runtime, {app.name: app})).result()
    assert "documents cannot be warmed: ValueError: no parser here" in caplog.text
    assert "documents" not in warmed(caplog)
    assert "the plan of naive-rag" in warmed(caplog)
