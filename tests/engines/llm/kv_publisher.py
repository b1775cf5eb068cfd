"""Publishes blocks as a vLLM does, but knows who listens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgpack
import zmq


class Publisher:
    """Blocks of one prompt, `size` tokens each; its hashes are their places."""

    def __init__(self, socket: zmq.Socket[bytes], ids: Sequence[int], size: int, salt: str) -> None:
        self._socket, self._ids, self._size, self._salt = socket, ids, size, salt
        self._number = 0

    async def heard(self, listeners: int = 1) -> None:
        """Wait until so many have come: what is sent before is lost to them."""
        for _ in range(listeners):
            assert await asyncio.to_thread(self._socket.poll, 20_000)
            assert self._socket.recv() == b"\x01"

    def store(self, block: int) -> None:
        """That the prompt's block with this index is kept now."""
        begin = self._size * block
        event = {
            "type": "BlockStored",
            "block_hashes": [block + 1],
            "parent_block_hash": block or None,
            "token_ids": list(self._ids[begin : begin + self._size]),
            "block_size": self._size,
            "extra_keys": [None if block else [self._salt]],
        }
        number = self._number.to_bytes(8, "big")
        self._socket.send_multipart([b"", number, msgpack.packb([1.0, [event], 0])])
        self._number += 1

    def lose(self) -> None:
        """A message that nobody hears."""
        self._number += 1


@contextmanager
def publishing(
    endpoint: str, ids: Sequence[int], size: int = 4, salt: str = "s"
) -> Iterator[Publisher]:
    with zmq.Context() as context, context.socket(zmq.XPUB) as socket:
        socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        socket.setsockopt(zmq.LINGER, 0)
        socket.bind(endpoint)
        yield Publisher(socket, ids, size, salt)
