"""API keys and tenants: who is let in, and what they see."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from teola import Runtime
from teola.errors import InputError, UnknownName
from teola.serve.access.auth import LOOK_EVERY_S, OPEN, KeyFile, digest
from tests.command_line import CommandLine
from tests.serve.conftest import Served, applications, serving, soon

ECHO = "/v1/apps/echo/queries"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeyFile:
    return KeyFile(tmp_path_factory.mktemp("keys") / "keys.json")


@pytest.fixture(scope="module")
def secrets(keys: KeyFile) -> dict[str, str]:
    return {
        "alice": keys.create("alice", "red"),
        "bob": keys.create("bob", "blue"),
        "prom": keys.create("prom", "ops", ["metrics"]),
    }


@pytest.fixture(scope="module")
def guarded(keys: KeyFile, secrets: dict[str, str]) -> Iterator[Served]:
    with Runtime() as runtime, serving(runtime, applications(), keys) as found:
        yield found


def client(served: Served, key: str | None = None) -> httpx.Client:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.Client(base_url=served.url, headers=headers, timeout=30)


# --- the file -------------------------------------------------------------------------------


def test_the_file_opens_nothing_and_is_for_its_owner(
    keys: KeyFile, secrets: dict[str, str]
) -> None:
    text = keys.path.read_text()
    assert all(secret not in text for secret in secrets.values())
    assert digest(secrets["alice"]) in text
    assert stat.S_IMODE(keys.path.stat().st_mode) == 0o600
    assert len({len(secret) for secret in secrets.values()}) == 1
    assert len(secrets["alice"]) >= len("teola_") + 43  # 256 bits


def test_names_are_unique_and_scopes_known(keys: KeyFile, secrets: dict[str, str]) -> None:
    with pytest.raises(InputError, match="already"):
        keys.create("alice", "green")
    with pytest.raises(UnknownName, match="did you mean 'query'"):
        keys.create("carol", "green", ["qeury"])
    for name in ("", "a\nb", "x" * 65):
        with pytest.raises(InputError, match="1 to 64 printable"):
            keys.create(name, "green")
    assert [key.name for key in keys.read()] == list(secrets)


def test_of_changes_at_the_same_time_none_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    KeyFile(path).create("stays", "red")
    names = [f"key {i}" for i in range(64)]

    def change(name: str) -> None:
        KeyFile(path).create(name, "red")
        if int(name[4:]) % 2:
            KeyFile(path).revoke(name)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(change, names))
    assert {key.name for key in KeyFile(path).read()} == {"stays", *names[::2]}
    assert [found.name for found in tmp_path.iterdir()] == ["keys.json"]


@pytest.mark.slow
def test_changes_of_several_processes(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    code = (
        "import sys; from pathlib import Path; from teola.serve.access.auth import KeyFile\n"
        "for i in range(20): KeyFile(Path(sys.argv[1])).create(sys.argv[2] + str(i), 'red')"
    )
    made = [subprocess.Popen([sys.executable, "-c", code, path, name]) for name in "abc"]
    assert [process.wait(240) for process in made] == [0, 0, 0]
    assert len(KeyFile(path).read()) == 60


def test_a_link_stays_and_its_target_changes(tmp_path: Path) -> None:
    target, link = tmp_path / "secrets" / "keys.json", tmp_path / "keys.json"
    link.symlink_to(Path("secrets") / "keys.json")
    keys = KeyFile(link)
    keys.create("alice", "red")
    keys.create("bob", "blue")
    keys.revoke("alice")
    assert link.is_symlink()
    assert [key.name for key in KeyFile(target).read()] == ["bob"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    with pytest.raises(InputError, match="the keys"):
        KeyFile(circle).create("carol", "red")


def test_the_command_line_creates_lists_and_revokes(teola: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    secret = teola("keys", "create", "alice", "--tenant", "red", "--file", file).out.strip()
    assert secret.startswith("teola_")
    listed = teola("keys", "list", "--json", "--file", file)
    assert [(key["name"], key["tenant"]) for key in listed.json] == [("alice", "red")]
    assert "digest" not in listed.out
    assert "alice" in teola("keys", "list", "--file", file).out
    assert "did you mean 'alice'" in teola("keys", "revoke", "alce", "--file", file).refused(2)
    assert teola("keys", "revoke", "alice", "--file", file).code == 0
    assert json.loads(file.read_text()) == {"keys": []}
    told = teola("serve", "naive-rag", "--keys", file, "--port", "0").refused(2)
    assert "teola keys create" in told
    file.write_text("{}")
    assert "is no file of keys" in teola("keys", "list", "--file", file).refused(2)


# --- the door -------------------------------------------------------------------------------


def test_every_route_refuses_a_missing_key(guarded: Served, secrets: dict[str, str]) -> None:
    with client(guarded, secrets["alice"]) as alice, client(guarded) as nobody:
        paths = alice.get("/openapi.json").json()["paths"]
        asked = 0
        for path, methods in paths.items():
            for method in methods:
                response = nobody.request(method, path.replace("{", "").replace("}", ""))
                assert response.status_code == (200 if path in OPEN else 401), path
                asked += path not in OPEN
        assert asked >= 12
        refused = nobody.get("/openapi.json")
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == "Bearer"
        assert nobody.get("/v1/models").json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("given", ["Bearer nonsense", "Bearer", "Basic YTpi", "Bearer \xff"])
def test_a_wrong_key_is_no_key(guarded: Served, given: str) -> None:
    headers = {b"authorization": given.encode("latin-1")}
    assert httpx.get(f"{guarded.url}/v1/apps", headers=headers).status_code == 401


@pytest.mark.parametrize("name", ["authorization", "x-api-key"])
def test_two_keys_are_no_key(guarded: Served, secrets: dict[str, str], name: str) -> None:
    """Whatever stands in front of the server may have looked at the other one."""
    before = "Bearer " if name == "authorization" else ""
    alice, bob = (before + secrets[who] for who in ("alice", "bob"))
    for first, second in ((alice, bob), (bob, alice), (alice, alice), ("nonsense", alice)):
        headers = [(name, first), (name.upper(), second)]
        assert httpx.get(f"{guarded.url}/v1/apps", headers=headers).status_code == 401
    assert httpx.get(f"{guarded.url}/v1/apps", headers={name: alice}).status_code == 200


def test_no_cache_keeps_an_answer(guarded: Served, secrets: dict[str, str]) -> None:
    with client(guarded, secrets["alice"]) as alice, client(guarded) as nobody:
        body = {"inputs": {"question": "mine"}}
        asked = alice.post(ECHO, json=body)
        answers = [
            asked,
            alice.post(ECHO, json={**body, "mode": "stream"}),
            alice.post(ECHO, content=b"nonsense"),
            alice.get("/v1/apps"),
            alice.get("/v1/models"),
            alice.get("/v1/queries"),
            alice.get(f"/v1/queries/{asked.headers['x-query-id']}"),
            alice.get("/v1/queries/nonsense"),
            alice.post("/v1/chat/completions", json={}),
            nobody.get("/v1/queries"),
            nobody.get("/healthz"),
        ]
        page = nobody.get("/ui/")
    assert [answer.headers["cache-control"] for answer in answers] == ["no-store"] * len(answers)
    assert page.headers["cache-control"] == "no-cache"


def test_a_key_opens_what_it_is_for(guarded: Served, secrets: dict[str, str]) -> None:
    with client(guarded, secrets["prom"]) as prom, client(guarded, secrets["alice"]) as alice:
        assert prom.get("/metrics").status_code == 200
        assert prom.get("/v1/apps").status_code == 403
        assert alice.get("/metrics").status_code == 403
    other = httpx.get(f"{guarded.url}/v1/apps", headers={"x-api-key": secrets["alice"]})
    assert other.status_code == 200


def test_a_tenants_queries_are_nobody_elses(guarded: Served, secrets: dict[str, str]) -> None:
    with client(guarded, secrets["alice"]) as alice, client(guarded, secrets["bob"]) as bob:
        where = alice.post(ECHO, json={"inputs": {"question": "mine"}, "mode": "background"})
        path = where.headers["location"]
        soon(lambda: alice.get(path).json()["state"] == "ok")
        for more in ("", "/events", "/trace", "/graph"):
            assert alice.get(path + more).status_code == 200
            assert bob.get(path + more).status_code == 404
        assert bob.delete(path).status_code == 404
        assert bob.get("/v1/queries").json() == {"queries": []}


def test_batches_are_told_to_those_whose_queries_went_in_them(
    guarded: Served, keys: KeyFile, secrets: dict[str, str]
) -> None:
    def batches(who: httpx.Client) -> int:
        engines = who.get("/v1/engines").json()["engines"]
        return sum(len(engine["recent_batches"]) for engine in engines)

    with (
        client(guarded, secrets["alice"]) as alice,
        client(guarded, keys.create("eve", "e")) as eve,
    ):
        assert alice.post(ECHO, json={"inputs": {"question": "mine"}}).status_code == 200
        soon(lambda: eve.get("/v1/engines").status_code == 200)
        assert batches(alice) >= 1
        assert batches(eve) == 0
        assert eve.post(ECHO, json={"inputs": {"question": "mine"}}).status_code == 200
        assert batches(eve) == 1
    keys.revoke("eve")


def test_a_key_that_was_revoked_opens_nothing(guarded: Served, keys: KeyFile) -> None:
    secret = keys.create("dave", "red")
    with client(guarded, secret) as dave:
        soon(lambda: dave.get("/v1/apps").status_code == 200)
        keys.revoke("dave")
        time.sleep(LOOK_EVERY_S)
        assert dave.get("/v1/apps").status_code == 401


def test_one_tenant_cannot_take_all_there_is(guarded: Served, secrets: dict[str, str]) -> None:
    guarded.board.most_of_tenant = 2
    body = {"inputs": {"question": "wait"}, "mode": "background"}
    with client(guarded, secrets["alice"]) as alice, client(guarded, secrets["bob"]) as bob:
        mine = [alice.post(ECHO, json=body).headers["location"] for _ in range(2)]
        refused = alice.post(ECHO, json=body)
        assert refused.status_code == 429
        assert "of your queries" in refused.json()["error"]["message"]
        theirs = bob.post(ECHO, json=body)
        assert theirs.status_code == 202
        bob.delete(theirs.headers["location"])
        for path in mine:
            alice.delete(path)
        assert alice.post(ECHO, json={"inputs": {"question": "x"}}).status_code == 200
    guarded.board.most_of_tenant = None
    assert not guarded.board.of_tenant
