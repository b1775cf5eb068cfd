"""What clients are told of one primitive: its values, tries and tokens, of their own queries."""

from __future__ import annotations

from typing import Any

import httpx

from teola.serve.board import Entry
from tests.planted import catches, edited
from tests.serve.conftest import Served, soon

CALL = "say.call"
SECRET = "correct-horse-battery"


def asked(client: httpx.Client, question: str = "who?", **more: Any) -> str:
    told = {"inputs": {"question": question}, "mode": "background", **more}
    return str(client.post("/v1/apps/echo/queries", json=told).json()["query_id"])


def ended(client: httpx.Client, question: str = "who?", **more: Any) -> str:
    id = asked(client, question, **more)
    soon(lambda: client.get(f"/v1/queries/{id}").json()["state"] not in ("running", "waiting"))
    return id


def told(client: httpx.Client, id: str, primitive: str = CALL) -> Any:
    return client.get(f"/v1/queries/{id}/primitives/{primitive}").json()


def test_an_ended_one_tells_what_it_read_and_gave(client: httpx.Client) -> None:
    id = ended(client)
    found = told(client, id)
    assert found["query_id"] == id
    assert (found["inputs"], found["outputs"]) == (
        {"question": "who?"},
        {"answer": "you said: who?"},
    )
    assert (found["op"], found["component"], found["engine"]) == ("tool_call", "say", "python")
    assert [one["state"] for one in found["tries"]] == ["done"]
    assert found["batches"][0]["queries"] == [id]
    assert set(found) == {
        "query_id", "primitive", "op", "component", "engine", "state", "inputs", "outputs",
        "prompt", "tokens", "tries", "batches", "kept",
    }  # fmt: skip


def test_one_that_runs_tells_what_it_reads(client: httpx.Client) -> None:
    id = asked(client, "please wait")
    soon(lambda: told(client, id).get("state") == "running")
    found = told(client, id)
    assert (found["inputs"], found["outputs"]) == ({"question": "please wait"}, None)
    client.delete(f"/v1/queries/{id}")
    found = told(client, id)
    assert (found["state"], found["inputs"]) == ("cancelled", {"question": "please wait"})


def test_one_that_failed_tells_why(client: httpx.Client) -> None:
    found = told(client, ended(client, "fail"))
    assert found["inputs"] == {"question": "fail"}
    assert "bad luck" in found["tries"][-1]["error"]


def test_what_is_not_there_is_named(client: httpx.Client) -> None:
    id = ended(client)
    refused = client.get(f"/v1/queries/{id}/primitives/say.cal")
    assert refused.status_code == 404
    assert "did you mean 'say.call'" in refused.json()["error"]["message"]
    assert client.get(f"/v1/queries/nothing/primitives/{CALL}").status_code == 404


@catches(
    "values-outlive-deletion",
    "what was deleted is kept again by what still runs",
    edited("teola.runtime.observe.trace:Trace.forget_values", "self.values.room.close()", "pass"),
)
def test_values_are_deleted_with_what_was_asked(served: Served, client: httpx.Client) -> None:
    id, running = ended(client), asked(client, "please wait")
    for one in (id, running):
        soon(lambda one=one: told(client, one).get("tries"))  # type: ignore[misc]
        assert client.delete(f"/v1/queries/{one}/asked").status_code == 200
    client.delete(f"/v1/queries/{running}")
    for one in (id, running):
        found = told(client, one)
        assert (found["inputs"], found["outputs"], found["kept"]) == (None, None, "forgotten")
        entry = served.board.past[one]
        assert entry.job.trace is not None
        assert entry.job.trace.kept_bytes == 0


def test_what_is_kept_counts_as_kept(served: Served, client: httpx.Client) -> None:
    def kept(question: str) -> Entry:
        id = ended(client, question)
        return served.board.past[id]

    assert kept("x" * 2000).bytes - kept("x" * 1000).bytes >= 3 * 1000


def test_only_its_tenant_sees_it(two_tenants: tuple[httpx.Client, httpx.Client]) -> None:
    mine, other = two_tenants
    id = ended(mine)
    assert told(mine, id)["inputs"] == {"question": "who?"}
    refused = other.get(f"/v1/queries/{id}/primitives/{CALL}")
    assert refused.status_code == 404
    assert "who?" not in refused.text
