"""What a server waits for before it is ready, and what it does without; without a socket."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from teola import App, Generate, Runtime, component
from teola.errors import EngineUnavailable
from teola.serve import server
from teola.serve.server import Readiness
from tests.runtime.test_optional_parts import Late, report


@pytest.fixture(autouse=True)
def garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Is collected in this process as before."""
    gone = SimpleNamespace(freeze=lambda: None, set_threshold=lambda *_: None)
    monkeypatch.setattr(server, "gc", gone)


def starting(runtime: Runtime, apps: list[App]) -> Readiness:
    """How ready a server is after its start. Raises what keeps it from starting."""
    readiness = Readiness()

    async def start() -> None:
        listens = asyncio.Event()
        listens.set()
        await server._start(runtime, {app.name: app for app in apps}, readiness, None, listens)

    try:
        runtime.start(start()).result()
    finally:
        assert readiness.ready == (readiness.error is None)
    return readiness


@pytest.mark.parametrize(
    ("optional", "starts"),
    [([True], True), ([True, True], True), ([False], False), ([True, False], False)],
)
@pytest.mark.parametrize("down", [True, False])
def test_only_engines_that_some_application_needs_keep_a_server_from_starting(
    optional: list[bool], starts: bool, down: bool
) -> None:
    with Runtime({"llm2": lambda: Late(99 if down else 0, OSError("no route"))}) as runtime:
        apps = [
            App(
                f"app{k}",
                Generate(engine="llm2", optional=one) >> component(report),
                inputs={"question": "text"},
                outputs={"report": "report"},
                runtime=runtime,
            )
            for k, one in enumerate(optional)
        ]
        if down and not starts:
            with pytest.raises(EngineUnavailable, match="no route"):
                starting(runtime, apps)
            return
        assert starting(runtime, apps).ready
        state = {app.run(question="why?").state for app in apps}
        assert state == {"partial" if down else "ok"}
