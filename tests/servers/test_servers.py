"""The same twenty behaviours on every kind of model server, and the page that tells of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from experiments.common.scripted.kinds import KINDS, Manners
from teola_engines.openai import wire
from tests.planted import catches, edited
from tests.servers import page
from tests.servers.behaviours import BEHAVIOURS, OPTIONS, column
from tests.servers.odd_streams import ODD
from tests.servers.readers import failed, ours, the_clients

PAGE = Path(__file__).parents[2] / "docs" / "servers.md"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_does_what_the_page_says(kind: str) -> None:
    assert await column(kind) == page.read(PAGE.read_text())[kind]


def test_the_page_has_every_kind_and_behaviour() -> None:
    found = page.read(PAGE.read_text())
    assert list(found) == list(KINDS)
    assert all(list(one) == list(BEHAVIOURS) for one in found.values())
    assert len(BEHAVIOURS) == 20
    assert page.sources() in PAGE.read_text()


def test_every_difference_is_documented_somewhere() -> None:
    for kind, differences in KINDS.items():
        for one in differences:
            assert one.what in Manners.__dataclass_fields__, (kind, one.what)
            parts = urlsplit(one.where)
            assert parts.scheme == "https", (kind, one)
            assert parts.netloc, (kind, one)
    assert OPTIONS.keys() <= KINDS.keys()


async def test_odd_answers_are_read() -> None:
    assert await failed(ours) == []


@catches(
    "text-of-error",
    "an error that is a text is taken for nothing",
    edited("teola_engines.openai.wire:read_piece", 'event.get("error") or ', ""),
)
@catches(
    "last-line",
    "what comes after the last line feed is dropped",
    edited("teola_engines.openai.wire:events", 'rest.startswith((b"data:", b"error:"))', "False"),
)
@catches(
    "comment-is-alive",
    "a comment is no sign of life",
    edited("teola_engines.openai.wire:events", 'line.startswith(b":")', "False"),
)
async def test_errors_ends_and_comments_are_seen() -> None:
    names = ("an error that is a text", "the last line lacks its end")
    assert await failed(ours, [odd for odd in ODD if odd.name in names]) == []

    async def body() -> AsyncIterator[bytes]:
        yield b": still at work\n\n"

    assert [data async for data in wire.events(body())] == [wire.ALIVE]


@pytest.mark.slow
async def test_decision_0008_says_what_either_reader_reads() -> None:
    """Its times are those of one machine; what is read, and what is not, is the same everywhere."""
    (decision,) = (PAGE.parent / "decisions").glob("0008-*.md")
    text = " ".join(decision.read_text().split())
    names = await failed(the_clients)
    assert f"ours reads {len(ODD)} of {len(ODD)}, the client's {len(ODD) - len(names)}" in text
    assert [name for name in names if name not in text] == []
