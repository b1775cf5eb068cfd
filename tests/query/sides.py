"""A program with a journal and a server, asked alike."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import httpx

from teola import App, Result, TeolaError
from teola.errors import CodeChanged, InputError, UnknownName
from teola.query.journal.lost import Answered
from tests.serve.conftest import soon

PROGRAM: Final = "program"
SERVER: Final = "server"
TAKEN: Final = "taken"
"""What becomes of an answer that counts."""
_REFUSALS: Final[tuple[tuple[type[TeolaError], str], ...]] = (
    (Answered, "answered"),
    (CodeChanged, "code_changed"),
    (UnknownName, "unknown_name"),
    (InputError, "invalid_input"),
)


class Ended(NamedTuple):
    """How a query ended: its state, its only output, and what its error says."""

    state: str
    output: Any
    error: str


class Side(Protocol):
    """A process that asks queries, answers them and ends them."""

    def ask(self, app: str, topic: str, file: Path | None = None) -> str:
        """Id of a query that waits."""
        ...

    def asks(self, id: str) -> list[Mapping[str, Any]]:
        """What it asks."""
        ...

    def answer(self, id: str, answer: Any, ask: str | None = None, app: str = "mail") -> str:
        """TAKEN, or the code of why it is refused. Wait until the query waits again or ends."""
        ...

    def go_on(self, id: str, app: str = "mail") -> None:
        """See to it that a query whose process has died goes on."""
        ...

    def end(self, id: str) -> Ended:
        """How a query ended that was answered here."""
        ...

    def cancel(self, id: str) -> None:
        """Give up a query that waits."""
        ...


class Program:
    """Side: an SDK's."""

    def __init__(self, apps: Mapping[str, App]) -> None:
        self.apps = apps
        self.results: dict[str, Result] = {}

    def ask(self, app: str, topic: str, file: Path | None = None) -> str:
        inputs = {"topic": topic} if file is None else {"topic": topic, "documents": str(file)}
        result = self.apps[app].run(inputs)
        assert (result.state, result.notices) == ("waiting", ())
        return result.query_id

    def asks(self, id: str) -> list[Mapping[str, Any]]:
        every = [one for app in self.apps.values() for one in app.waiting()]
        return [one.to_json() for one in every if one.query_id == id]

    def answer(self, id: str, answer: Any, ask: str | None = None, app: str = "mail") -> str:
        return self._resumed(id, self.apps[app].aresume(id, answer, ask=ask))

    def go_on(self, id: str, app: str = "mail") -> None:
        assert self._resumed(id, self.apps[app].aresume(id)) == TAKEN

    def _resumed(self, id: str, resuming: Any) -> str:
        try:
            self.results[id] = asyncio.run(resuming)
        except TeolaError as error:
            if error.result is None:
                codes = [code for kind, code in _REFUSALS if isinstance(error, kind)]
                if not codes:
                    raise
                return codes[0]
            self.results[id] = error.result
            self.results[id].__dict__["error"] = error
        return TAKEN

    def end(self, id: str) -> Ended:
        result = self.results[id]
        return Ended(result.state, result.answer, str(result.error or ""))

    def cancel(self, id: str) -> None:
        self.apps["mail"].cancel(id)


class Server:
    """Side: `teola serve`."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def ask(self, app: str, topic: str, file: Path | None = None) -> str:
        request = {"inputs": {"topic": topic}, "mode": "background"}
        where = f"/v1/apps/{app}/queries"
        if file is None:
            response = self.client.post(where, json=request)
        else:
            files = {"documents": (file.name, file.read_bytes())}
            response = self.client.post(where, data={"request": json.dumps(request)}, files=files)
        id: str = response.json()["query_id"]
        assert self._settled(id)["state"] == "waiting"
        return id

    def asks(self, id: str) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = self._shown(id).get("asks", [])
        return found

    def answer(self, id: str, answer: Any, ask: str | None = None, app: str = "mail") -> str:
        before = self.asks(id)
        told = {"answer": answer, "ask": ask}
        response = self.client.post(f"/v1/queries/{id}/answers", json=told)
        if response.status_code != 200:
            code: str = response.json()["error"]["code"]
            return code
        soon(lambda: self.asks(id) != before and self._shown(id)["state"] != "running")
        return TAKEN

    def go_on(self, id: str, app: str = "mail") -> None:
        self._settled(id)

    def end(self, id: str) -> Ended:
        found = self._settled(id)
        result = found.get("result") or {}
        outputs = result.get("outputs") or {None: None}
        return Ended(found["state"], next(iter(outputs.values())), result.get("error", ""))

    def cancel(self, id: str) -> None:
        self.client.delete(f"/v1/queries/{id}")

    def _shown(self, id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(f"/v1/queries/{id}").json()
        return found

    def _settled(self, id: str) -> dict[str, Any]:
        """What is told of it once it does not run any more."""
        soon(lambda: self._shown(id)["state"] != "running")
        return self._shown(id)
