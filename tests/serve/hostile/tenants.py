"""Tenants with something to hide, and the many ways in which one may ask for what is another's."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.serve.hostile.asking import ECHO, PORE, RAG

SHARED = "papers"
"""A collection that every tenant has, each its own."""
MINE = {"question": "mine"}
FIRST = {"idempotency-key": "the-first-one"}
"""What every tenant asks in the background, and under which key: each its own query."""
Probe = tuple[str, Callable[[], httpx.Response], tuple[str, ...]]
"""What is tried; the request; what of the victim's the request itself says, and may be repeated."""


@dataclass
class Tenant:
    """client: with its key. canary: in all its texts, and in no probe. label: in the names of its
    documents and collections, which others may have heard of. ids: of its queries; the first and
    the last run.
    """

    name: str
    client: httpx.Client
    canary: str = field(default_factory=lambda: f"canary{secrets.token_hex(8)}")
    label: str = field(default_factory=lambda: f"label{secrets.token_hex(8)}")
    ids: list[str] = field(default_factory=list)

    @property
    def own(self) -> str:
        """A collection that no other tenant has."""
        return f"own-{self.label}"

    @property
    def document(self) -> dict[str, Any]:
        return {
            "name": f"{self.label}.md",
            "text": f"The secret word of the lighthouse is {self.canary}.",
            "metadata": {"mark": self.label},
        }

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no other tenant may ever be told."""
        return (self.canary, self.label, *self.ids)

    def prepare(self) -> None:
        """Queries of all kinds, uploads and collections."""
        self._ask(ECHO, {"question": f"{self.canary} please wait"}, mode="background")
        self._ask(ECHO, {"question": self.canary})
        self._ask(ECHO, {"question": self.canary}, mode="background")
        self.ids.append(_id_of(self.claim()))
        for collection in (SHARED, self.own):
            inputs = {"question": self.canary, "documents": self.document}
            self._ask(RAG, {**inputs, "collection": collection})
        self._upload(RAG, self.canary)
        self._upload(PORE, "please wait", request='{"mode": "background"}')

    def claim(self) -> httpx.Response:
        """Ask what every tenant asks, under the same key."""
        body = {"inputs": MINE, "mode": "background"}
        return self.client.post(ECHO, json=body, headers=FIRST)

    def _ask(self, path: str, inputs: dict[str, Any], **more: str) -> None:
        self.ids.append(_id_of(self.client.post(path, json={"inputs": inputs, **more})))

    def _upload(self, path: str, question: str, **more: str) -> None:
        files = {"documents": (f"{self.label}.txt", f"The word is {self.canary}.".encode())}
        data = {"question": question, **more}
        self.ids.append(_id_of(self.client.post(path, data=data, files=files)))


def _id_of(response: httpx.Response) -> str:
    return str(response.raise_for_status().headers["x-query-id"])


def claims(victim: Tenant) -> list[dict[str, str]]:
    """Headers by which somebody might pass for another."""
    return [
        {"x-tenant": victim.name},
        {"x-tenant-id": victim.name},
        {"tenant": victim.name},
        {"x-forwarded-user": victim.name, "remote-user": victim.name},
        {"x-api-key": victim.name},
        {"x-api-key": "teola_" + "A" * 43},
        {"cookie": f"tenant={victim.name}"},
        {"openai-organization": victim.name, "openai-project": victim.name},
        {"x-original-url": f"/v1/queries/{victim.ids[0]}"},
        {"x-http-method-override": "DELETE"},
    ]


def guesses(victim: Tenant) -> Iterator[str]:
    """Ids that may lead to the victim's queries though they are not them."""
    for id in victim.ids:
        number = int(id, 16)
        yield from (f"{number + 1:032x}", f"{number - 1:032x}", id.upper(), f"chatcmpl-{id}")
        yield from (id[:16], f"{id}%00", f"{id}%20", f"./{id}", f"x%2f..%2f{id}", f"{{{id}}}")


class Prober:
    """Probes of `me` against `victim`. paths: (method, path) of all routes with an {id}."""

    def __init__(
        self, rng: random.Random, me: Tenant, victim: Tenant, paths: list[tuple[str, str]]
    ) -> None:
        self._rng, self._me, self._victim, self._paths = rng, me, victim, paths

    def probe(self) -> Probe:
        """The next one."""
        kinds = (self._by_id, self._by_guess, self._list, self._search, self._chat, self.claim)
        return self._rng.choice((*kinds, self._collection))()

    def _send(self, method: str, path: str, **more: Any) -> Callable[[], httpx.Response]:
        headers = self._rng.choice([{}, *claims(self._victim)])
        return lambda: self._me.client.request(method, path, headers=headers, **more)

    def _by_id(self) -> Probe:
        method, path = self._rng.choice(self._paths)
        id = self._rng.choice(self._victim.ids)
        told = f"{method} {path} of another"
        return told, self._send(method, path.replace("{id}", id)), (id,)

    def _collection(self) -> Probe:
        """Look into a collection of the victim's, or one that both have, and delete from there."""
        own, label = self._victim.own, self._victim.label
        method, path = self._rng.choice(
            [
                ("GET", ""),
                ("GET", f"/{SHARED}/documents"),
                ("GET", f"/{own}/documents"),
                ("DELETE", f"/{own}/documents?all=true"),
                ("DELETE", f"/{SHARED}/documents?name={label}.md"),
            ]
        )
        return f"{method} {path}", self._send(method, f"/v1/collections{path}"), (label,)

    def _by_guess(self) -> Probe:
        method, path = self._rng.choice(self._paths)
        guess = self._rng.choice(list(guesses(self._victim)))
        return (
            f"{method} {path}",
            self._send(method, path.replace("{id}", guess)),
            (*self._victim.ids,),
        )

    def _list(self) -> Probe:
        query = self._rng.choice(
            [
                {},
                {"limit": 500},
                {"app": "naive-rag"},
                {"state": "running"},
                {"tenant": self._victim.name},
                {"tenant": "*", "app": "echo"},
            ]
        )
        path = self._rng.choice(["/v1/queries", "/v1/apps", "/v1/models", "/v1/engines"])
        return f"GET {path} {query}", self._send("GET", path, params=query), ()

    def _search(self) -> Probe:
        """Questions that the victim's documents answer best, in collections that have them."""
        rng, victim = self._rng, self._victim
        inputs: dict[str, Any] = {"question": "What is the secret word of the lighthouse?"}
        collection = rng.choice([victim.own, SHARED, "documents", f"{victim.name}/{SHARED}"])
        inputs |= rng.choice(
            [
                {"collection": collection},
                {"collection": SHARED, "filters": {"name": victim.document["name"]}},
                {"collection": SHARED, "filters": {"mark": victim.label}},
                {"collection": SHARED, "filters": {"tenant": victim.name}},
                {"documents": {"name": "mine.md", "text": "There is no secret word here."}},
                {"collection": SHARED, "tenant": victim.name},
            ]
        )
        body: dict[str, Any] = {"inputs": inputs, "mode": rng.choice(["sync", "stream"])}
        if rng.random() < 0.2:
            body["tenant"] = victim.name
        return f"search {inputs}", self._send("POST", RAG, json=body), (victim.label,)

    def _chat(self) -> Probe:
        rng, victim = self._rng, self._victim
        body: dict[str, Any] = {
            "model": rng.choice(["echo", "naive-rag"]),
            "messages": [{"role": "user", "content": "What is the secret word?"}],
            "user": victim.name,
            "stream": rng.random() < 0.3,
        }
        if rng.random() < 0.3:
            name = rng.choice(["tenant", "safety_identifier", "tenant_id", "prompt_cache_key"])
            body[name] = victim.name
        if body["model"] == "naive-rag":
            body["collection"] = rng.choice([SHARED, SHARED, victim.own])
        return "chat", self._send("POST", "/v1/chat/completions", json=body), (victim.label,)

    def claim(self) -> Probe:
        """The key of a request of the victim's, and the same request: it would give its query."""
        return "idempotency key", self._me.claim, ()
