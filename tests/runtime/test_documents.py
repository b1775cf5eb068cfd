"""What documents are before they are read: their keys, which threads find out in slices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from teola.engine import EngineKind, EngineSpec, Fingerprint, Source, Splitting
from teola.errors import DocumentError
from teola.runtime import documents
from teola.runtime.documents import Preparer
from teola.runtime.hosts.local import LocalHost
from teola.testing.hash_engines import HashEmbedder
from tests.planted import catches, edited


class Reading:
    """A loader of which only fingerprints are asked."""

    spec = EngineSpec("documents", EngineKind.DOCUMENTS, frozenset())

    def start(self) -> None: ...

    def close(self) -> None: ...

    def pipeline(self, splitting: Splitting) -> str:
        return "p"

    def fingerprint(self, source: Source) -> Any:
        return Fingerprint(f"sha of {source.text}", "text")


class Remote(Reading):
    async def fingerprint(self, source: Source) -> Any:
        return Fingerprint(f"sha of {source.text}", "text")


class Counting(LocalHost):
    calls = 0

    async def call(self, method: Any, *arguments: Any) -> Any:
        self.calls += 1
        return await super().call(method, *arguments)


@pytest.fixture(params=[Reading, Remote])
async def loader(request: pytest.FixtureRequest) -> AsyncIterator[Counting]:
    host = Counting(request.param(), 0)
    await host.start()
    yield host
    await host.close()


def given(count: int) -> list[Source]:
    return [Source(f"{n}.txt", text=f"text {n}", metadata={"n": n}) for n in range(count)]


class Named(HashEmbedder):
    identity = "hash"


def prepares(loader: Counting) -> Preparer:
    return Preparer(loader, LocalHost(Named(), 0), loader)


@catches(
    "last-slice-lost",
    "a document that begins a slice and ends it is left out",
    edited(Preparer._keys, "range(0, len(given), READ", "range(0, len(given) - 1, READ"),
)
async def test_keys_come_in_order_and_in_slices(
    loader: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "READ_AT_ONCE", 3)
    for count in (0, 1, 3, 4, 6, 7):
        loader.calls = 0
        keys = await prepares(loader)._keys(given(count), Splitting(64, 0))
        assert [(k.name, k.sha256, k.metadata["n"]) for k in keys] == [
            (f"{n}.txt", f"sha of text {n}", n) for n in range(count)
        ]
        assert loader.calls == (0 if isinstance(loader.engine, Remote) else -(-count // 3))


async def test_a_name_that_is_not_utf_8_fails_wherever_it_stands(loader: Counting) -> None:
    wrong = [*given(70), Source("a\udcff.txt", text="x")]
    with pytest.raises(DocumentError, match="is not UTF-8; rename the file"):
        await prepares(loader)._keys(wrong, Splitting(64, 0))
