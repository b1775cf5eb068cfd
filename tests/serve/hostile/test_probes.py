"""Tenants that look for what is another's: found is nothing, not even that it exists."""

from __future__ import annotations

import random
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from teola import App, Indexing, Runtime
from teola.catalogue import load_app
from teola.serve.access.auth import OPEN, KeyFile
from tests.serve.conftest import Served, say, serving
from tests.serve.databases import journal_in, new_database, rows
from tests.serve.fuzz.conftest import instant
from tests.serve.hostile.asking import ECHO
from tests.serve.hostile.tenants import Prober, Tenant
from tests.serve.routes import every_route
from tests.soak.forms import Figures, short_and_long

NAMES = ("red", "blue", "green")
FREE = {*OPEN, "/", "/ui", "/ui/index.html"}
"""Paths that need no key: they say nothing of anybody."""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeyFile:
    return KeyFile(tmp_path_factory.mktemp("keys") / "keys.json")


@pytest.fixture(scope="module")
def secrets(keys: KeyFile) -> dict[str, str]:
    return {name: keys.create(name, name) for name in NAMES}


@pytest.fixture(scope="module")
def database(admin: str) -> Iterator[str]:
    """DSN of the journal's, as the superuser."""
    with new_database(admin) as dsn:
        yield dsn


@pytest.fixture(scope="module")
def guarded(
    runtime: Runtime, database: str, keys: KeyFile, secrets: dict[str, str]
) -> Iterator[Served]:
    inputs = {"question": "text", "documents": "documents"}
    pore = App("pore", Indexing() >> say, inputs=inputs, outputs={"answer": "answer"})
    apps = {**instant(), "pore": pore, "naive-rag": load_app("naive-rag")}
    with serving(runtime, apps, keys, journal_in(database)) as found:
        yield found


@pytest.fixture(scope="module")
def tenants(guarded: Served, secrets: dict[str, str]) -> Iterator[list[Tenant]]:
    with ExitStack() as stack:
        found = []
        for name, secret in secrets.items():
            headers = {"authorization": f"Bearer {secret}"}
            client = httpx.Client(base_url=guarded.url, headers=headers, timeout=120)
            found.append(Tenant(name, stack.enter_context(client)))
            found[-1].prepare()
        yield found
        for tenant in found:
            for id in (tenant.ids[0], tenant.ids[-1]):
                tenant.client.delete(f"/v1/queries/{id}")


def of_a_query(tenant: Tenant) -> list[tuple[str, str]]:
    """Every route with the id of a query in its path, as published."""
    paths = tenant.client.get("/openapi.json").json()["paths"]
    return [(m.upper(), path) for path in paths if "{id}" in path for m in paths[path]]


def test_no_answer_may_be_taken_for_another_type(guarded: Served, secrets: dict[str, str]) -> None:
    """Of any route, with a key and without, nor of a connection that is refused as a whole."""
    with httpx.Client(base_url=guarded.url, timeout=120) as nobody:
        key = {"authorization": f"Bearer {secrets['red']}"}
        for method, path in every_route():
            for headers in (key, {}):
                given = nobody.build_request(method, path, headers=headers, json={})
                answer = nobody.send(given, stream=True)
                answer.close()
                assert answer.headers["x-content-type-options"] == "nosniff", (method, path)
        with socket.create_connection((given.url.host, given.url.port)) as connection:
            connection.sendall(b"nonsense\r\n\r\n")
            refused = connection.makefile("rb").read()
        assert b"x-content-type-options: nosniff\r\n" in refused


# --- the door -------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path"), every_route())
def test_every_route_refuses_who_has_no_key(guarded: Served, method: str, path: str) -> None:
    where = guarded.url + path.replace("{", "").replace("}", "")
    for headers in (
        {},
        {"authorization": "Bearer teola_" + "A" * 43},
        {"authorization": "Bearer"},
        {"authorization": "Basic dGVvbGE6dGVvbGE="},
        {"authorization": f"Bearer {'x' * 60_000}"},
        {"x-api-key": "red"},
        {"cookie": "authorization=Bearer x"},
    ):
        response = httpx.request(method, where, headers=headers)
        if path in FREE:
            assert response.status_code not in (401, 403)
        else:
            assert response.status_code == 401, (path, headers)
            assert response.headers["www-authenticate"] == "Bearer"


def test_every_published_operation_is_tried_there(guarded: Served, secrets: dict[str, str]) -> None:
    headers = {"x-api-key": secrets["red"]}
    paths = httpx.get(f"{guarded.url}/openapi.json", headers=headers).json()["paths"]
    published = {(method.upper(), path) for path, of in paths.items() for method in of}
    assert len(published) > 10
    assert published <= {*every_route()}


def test_a_key_in_the_url_is_none(guarded: Served, secrets: dict[str, str]) -> None:
    for name in ("key", "api_key", "access_token"):
        response = httpx.get(f"{guarded.url}/v1/apps", params={name: secrets["red"]})
        assert response.status_code == 401


# --- what is another's ----------------------------------------------------------------------


def test_what_is_anothers_does_not_exist(tenants: list[Tenant]) -> None:
    red, blue, _ = tenants
    paths = of_a_query(red)
    assert len(paths) >= 5
    for method, path in paths:
        for id in blue.ids:
            unknown = "0" * len(id)
            foreign = red.client.request(method, path.replace("{id}", id))
            missing = red.client.request(method, path.replace("{id}", unknown))
            assert foreign.status_code == missing.status_code == 404
            assert foreign.content.replace(id.encode(), unknown.encode()) == missing.content
            assert differences(foreign, missing) <= {"date"}
    states = [blue.client.get(f"/v1/queries/{id}").json()["state"] for id in blue.ids]
    assert states == ["running", *["ok"] * 6, "running"]


def differences(one: httpx.Response, other: httpx.Response) -> set[str]:
    both = {*one.headers, *other.headers}
    return {name for name in both if one.headers.get(name) != other.headers.get(name)}


def test_everybody_finds_their_own(tenants: list[Tenant], database: str) -> None:
    """Else the probes below would show nothing."""
    kept = rows(database, "SELECT tenant FROM teola_journal.files ORDER BY tenant")
    assert kept == [(name,) for name in sorted(NAMES)]
    for tenant in tenants:
        listed = tenant.client.get("/v1/queries").json()["queries"]
        assert {query["query_id"] for query in listed} >= {*tenant.ids}
        shown = tenant.client.get(f"/v1/queries/{tenant.ids[4]}").text
        assert tenant.canary in shown
        assert tenant.label in shown


def probe(tenants: list[Tenant], count: int, seed: int) -> Counter[int]:
    """`count` probes; how they were answered. Fails at the first leak, saying how to repeat it."""
    rng, paths, statuses = random.Random(seed), of_a_query(tenants[0]), Counter[int]()
    for number in range(count):
        me, victim, *_ = rng.sample(tenants, len(tenants))
        told, send, said = Prober(rng, me, victim, paths).probe()
        response = send()
        statuses[response.status_code] += 1
        everything = response.text + str(response.headers.multi_items())
        for secret in victim.secrets:
            if secret not in said:
                assert secret not in everything, f"seed {seed}, probe {number}, {me.name}: {told}"
        assert response.status_code < 500, f"seed {seed}, probe {number}: {told} {response.text}"
        assert response.status_code != 403
    return statuses


@short_and_long("count", 100, 2000)
def test_probes(tenants: list[Tenant], figures: Figures, count: int) -> None:
    statuses = probe(tenants, count, seed=count)
    figures("probes", {str(status): n for status, n in sorted(statuses.items())})
    assert {200, 202, 404, 422} <= statuses.keys()


def test_a_probe_would_have_been_noticed(tenants: list[Tenant]) -> None:
    """Whoever is given another's key sees what the probes look for."""
    red, blue, _ = tenants
    stolen = Tenant(red.name, blue.client, red.canary, red.label, red.ids)
    with pytest.raises(AssertionError, match="seed 3"):
        probe([stolen, blue, Tenant("third", blue.client, ids=red.ids)], 100, seed=3)


def test_a_key_that_gives_anothers_query_would_have_been_noticed(tenants: list[Tenant]) -> None:
    red, blue, _ = tenants
    stolen = Tenant(red.name, blue.client, red.canary, red.label, red.ids)
    for me in (red, stolen):
        _, send, said = Prober(random.Random(4), me, blue, []).claim()
        response = send()
        assert response.status_code == 202
        assert response.headers["idempotency-replayed"] == "true"
        assert said == ()
        assert any(id in response.text for id in blue.secrets) == (me is stolen)


def test_a_tenant_in_the_body_is_nobody(tenants: list[Tenant]) -> None:
    red, blue, _ = tenants
    for more in ({"tenant": blue.name}, {"inputs": {"question": "x", "tenant": blue.name}}):
        body = {"inputs": {"question": "x"}, **more}
        assert red.client.post(ECHO, json=body).status_code == 422


def test_collections_of_others_are_not_named(tenants: list[Tenant]) -> None:
    red, blue, _ = tenants
    inputs = {"question": "x?", "collection": blue.own}
    told = red.client.post("/v1/apps/naive-rag/queries", json={"inputs": inputs}).json()["error"]
    assert red.own in told["message"]  # its own are listed
    assert told["message"].count(blue.label) == told["message"].count(blue.own)
    unknown = {**inputs, "collection": "none"}
    other = red.client.post("/v1/apps/naive-rag/queries", json={"inputs": unknown}).json()["error"]
    assert told["message"].replace(blue.own, "none") == other["message"]


def test_folders_of_keys_stay_closed(keys: KeyFile, secrets: dict[str, str]) -> None:
    text = Path(keys.path).read_text()
    assert not any(secret in text for secret in secrets.values())
