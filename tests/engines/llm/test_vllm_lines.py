"""The lines between a driver and its vLLM, in both directions: whatever their lengths and however
they are cut, they come whole and in order."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import threading
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from contextlib import suppress
from random import Random

import pytest

from teola_engines.llm.vllm_process import LOG_LINES, VLLMProcess, _lines
from teola_engines.llm.vllm_worker import LineReader

PIECE = 1 << 16
"""Bytes that either end reads at once."""
LENGTHS = (0, 1, 2, PIECE - 2, PIECE - 1, PIECE, 2 * PIECE - 1, 2 * PIECE, 3 * PIECE + 5)
"""Of lines: they end with a piece, one byte before it and behind it, or lie in three and more."""


def lines_of(chance: Random) -> list[bytes]:
    """Each length once, and short ones between them; no two lines are alike."""
    lengths = [*LENGTHS, *(chance.randint(0, 40) for _ in range(30))]
    chance.shuffle(lengths)
    lines = [(b"%d:" % k + b"x" * length)[:length] for k, length in enumerate(lengths)]
    return [b"the arguments", *lines]


def pieces_of(text: bytes, chance: Random) -> Iterator[bytes]:
    at = 0
    while at < len(text):
        size = chance.choice((1, 3, 100, PIECE, PIECE, chance.randint(1, PIECE)))
        yield text[at : at + size]
        at += size


@pytest.mark.parametrize("seed", range(3))
def test_a_worker_reads_each_line_whole(seed: int) -> None:
    chance = Random(seed)
    lines = lines_of(chance)
    ours, theirs = os.pipe()

    def write() -> None:
        for piece in pieces_of(b"".join(line + b"\n" for line in lines), Random(seed)):
            while piece:
                piece = piece[os.write(theirs, piece) :]

    reader, read = LineReader(ours), list[bytes]()
    writer = threading.Thread(target=write)
    writer.start()
    try:
        read.append(reader.first())
        read += (next(reader._lines) for _ in lines[1:])
    finally:
        writer.join()
        os.close(theirs)
        with suppress(StopIteration):
            read.append(next(reader._lines))  # the driver has gone: nothing follows
        os.close(ours)
    assert read == lines


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("seed", range(3))
async def test_a_driver_reads_each_line_whole(seed: int, ends: bool) -> None:
    """Also the last word of a process that died before it ended its line."""
    chance = Random(seed)
    lines = [*lines_of(chance), b"its last word"]
    text = b"\n".join(lines) + b"\n" * ends
    stream = asyncio.StreamReader(limit=4 * PIECE)

    async def write() -> None:
        for piece in pieces_of(text, Random(seed)):
            stream.feed_data(piece)
            if chance.random() < 0.3:
                await asyncio.sleep(0)
        stream.feed_eof()

    writing = asyncio.create_task(write())
    assert [line async for line in _lines(stream)] == lines
    await writing


@pytest.mark.parametrize(
    ("behind", "word"),
    [
        (0, "RuntimeError: it was out of memory"),
        (LOG_LINES - 1, "RuntimeError: it was out of memory"),
        (LOG_LINES, "line 199"),
        (3 * LOG_LINES, "line 599"),
    ],
)
async def test_of_a_long_log_the_last_lines_are_kept_and_an_error_among_them_is_told(
    behind: int, word: str
) -> None:
    """An error that many lines follow was not why it ended; nor is all kept that it ever said."""
    script = (
        "import sys; print('RuntimeError: it was out of memory', file=sys.stderr)\n"
        f"for k in range({behind}): print('line', k, file=sys.stderr)"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
    )
    worker = VLLMProcess("big", process, tempfile.TemporaryDirectory())
    await worker._watch
    assert len(worker._log) == min(behind + 1, LOG_LINES)
    assert str(worker.dead).endswith(f"; its last word: {word}")
