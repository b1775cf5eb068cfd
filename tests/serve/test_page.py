"""The page's files, as a client without a browser sees them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from teola import Runtime
from teola.serve.access.auth import KeyFile
from teola.serve.page import FILES
from tests.serve.conftest import Served, applications, serving

VENDOR = FILES / "vendor"
SCRIPTS = sorted((FILES / "js").glob("*.js"))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    keys = KeyFile(tmp_path_factory.mktemp("keys") / "keys.json")
    keys.create("alice", "red")
    with Runtime() as runtime, serving(runtime, applications(), keys) as found:
        yield found


def test_every_file_is_served_without_a_key_under_a_strict_policy(guarded: Served) -> None:
    with httpx.Client(base_url=guarded.url) as client:
        for file in [f for f in FILES.rglob("*") if f.is_file()]:
            response = client.get(f"/ui/{file.relative_to(FILES).as_posix()}")
            assert response.status_code == 200
            assert response.content == file.read_bytes()
            policy = response.headers["content-security-policy"]
            assert "default-src 'self'" in policy
            assert "unsafe" not in policy
            assert response.headers["x-content-type-options"] == "nosniff"
        assert client.get("/v1/apps").status_code == 401


@pytest.mark.parametrize("path", ["/", "/ui"])
def test_people_are_sent_to_the_page(guarded: Served, path: str) -> None:
    response = httpx.get(guarded.url + path)
    assert response.status_code == 307
    assert response.headers["location"] == "ui/"
    assert "<!doctype html>" in httpx.get(guarded.url + path, follow_redirects=True).text


@pytest.mark.parametrize(
    "path",
    ["/ui/../v1/apps", "/ui/%2e%2e/%2e%2e/page.py", "/ui/..%2fauth.py", "/ui/none.js", "/uix"],
)
def test_nothing_else_is_let_through(guarded: Served, path: str) -> None:
    raw = httpx.URL(guarded.url).copy_with(raw_path=path.encode())
    assert httpx.get(raw).status_code in (401, 404)


def test_unchanged_files_are_not_sent_again(guarded: Served) -> None:
    first = httpx.get(f"{guarded.url}/ui/")
    assert first.headers["cache-control"] == "no-cache"
    again = httpx.get(f"{guarded.url}/ui/", headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304


def test_vendored_files_are_those_that_are_described() -> None:
    listed = dict(re.findall(r"^\| `(\S+)` \| `([0-9a-f]{64})` \|", _readme(), re.MULTILINE))
    there = {f.relative_to(VENDOR).as_posix() for f in VENDOR.rglob("*.js")}
    assert set(listed) == there
    for name, digest in listed.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest
    for folder in {Path(name).parts[0] for name in there}:
        assert (VENDOR / folder / "LICENSE").exists()


def _readme() -> str:
    return (VENDOR / "README.md").read_text()


def test_nothing_comes_from_elsewhere_and_text_stays_text() -> None:
    for file in [*SCRIPTS, *(FILES / "style").glob("*.css"), FILES / "index.html"]:
        text = file.read_text()
        assert not re.search(r"(?:https?:)?//[a-z]", re.sub(r"xmlns=\S+", "", text)), file
        assert not re.search(r"unsafe(HTML|SVG)|innerHTML|outerHTML|insertAdjacent|eval\(", text)
    index = (FILES / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*src=)|<style|style=|\son\w+=", index)
