"""Listening over real sockets: connections that come, break off and come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from teola.engine import PrefixChange
from teola.errors import InputError
from teola_engines.llm import block_keys, vllm_feed
from teola_engines.llm.vllm_events import CLEARED, StoredBlocks
from teola_engines.llm.vllm_feed import EventFeed, PrivateFeed
from tests.engines.llm.kv_publisher import publishing

IDS = list(range(100, 140))
KEYS = block_keys.of_ids(IDS, 4, "s").blocks


@pytest.fixture
def endpoint(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/events"


async def following(changes: AsyncIterator[PrefixChange], count: int) -> list[PrefixChange]:
    async with asyncio.timeout(20):
        return [await anext(changes) for _ in range(count)]


async def test_changes_are_told_as_they_come(endpoint: str) -> None:
    feed = EventFeed(endpoint)
    async with aclosing(feed.changes(StoredBlocks(4))) as changes:
        waiting = asyncio.create_task(following(changes, 1))
        await asyncio.sleep(0.05)
        with publishing(endpoint, IDS) as publisher:
            assert await waiting == [CLEARED], "connected"
            await publisher.heard()
            for block in range(3):
                publisher.store(block)
            told = await following(changes, 3)
            assert told == [PrefixChange(stored=(key,)) for key in KEYS[:3]]
            publisher.lose()
            publisher.store(0)
            assert await following(changes, 1) == [PrefixChange(stored=KEYS[:1], cleared=True)]
    feed.close()


async def test_a_restart_clears(endpoint: str) -> None:
    feed = EventFeed(endpoint)
    async with aclosing(feed.changes(StoredBlocks(4))) as changes:
        waiting = asyncio.create_task(following(changes, 1))
        with publishing(endpoint, IDS) as publisher:
            assert await waiting == [CLEARED]
            await publisher.heard()
            publisher.store(0)
            assert await following(changes, 1) == [PrefixChange(stored=KEYS[:1])]
        assert await following(changes, 1) == [CLEARED], "it has gone"
        with publishing(endpoint, IDS) as publisher:
            assert await following(changes, 1) == [CLEARED], "it is back"
            await publisher.heard()
            publisher.store(1)
            publisher.store(0)
            assert await following(changes, 1) == [PrefixChange(stored=KEYS[:1])]
    feed.close()


async def test_all_who_listen_are_told_until_the_end() -> None:
    feed = PrivateFeed()
    folder = Path(feed.config["endpoint"].removeprefix("ipc://")).parent
    assert folder.stat().st_mode & 0o077 == 0, "nobody else may listen"
    with publishing(feed.config["endpoint"], IDS) as publisher:
        listening = [feed.changes(StoredBlocks(4)) for _ in range(2)]
        for changes in listening:
            assert await following(changes, 1) == [CLEARED]
        await publisher.heard(2)
        publisher.store(0)
        for changes in listening:
            assert await following(changes, 1) == [PrefixChange(stored=KEYS[:1])]
        waiting = [asyncio.create_task(anext(changes, None)) for changes in listening]
        await asyncio.sleep(0.05)
        feed.close()
        async with asyncio.timeout(20):
            assert await asyncio.gather(*waiting) == [None, None]
    feed.close()
    assert not folder.exists()


async def test_who_listens_may_be_cancelled(endpoint: str) -> None:
    feed = EventFeed(endpoint)
    with publishing(endpoint, IDS):
        changes = feed.changes(StoredBlocks(4))
        assert await following(changes, 1) == [CLEARED]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(changes)
        assert await anext(changes, None) is None, "closed by its cancellation"
    feed.close()


@pytest.mark.parametrize(
    "wrong", ["tcp://*:5557", "host:5557", "tcp://host", "http://h:1", "ipc://"]
)
def test_endpoints_that_nobody_could_connect_to(wrong: str) -> None:
    with pytest.raises(InputError, match="kv_events must look like tcp://host:5557"):
        vllm_feed.check(wrong, "llm")


@pytest.mark.parametrize("right", ["tcp://host:5557", "tcp://[::1]:5557", "ipc:///tmp/events"])
def test_endpoints(right: str) -> None:
    assert vllm_feed.check(right, "llm") == right
