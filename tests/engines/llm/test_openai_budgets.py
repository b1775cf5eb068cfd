"""What answers say is left of a server's budgets, with the age of what they answer."""

from __future__ import annotations

import asyncio

import pytest

from teola.engine import LeftOfMinute, QueryContext, Usage
from teola.errors import EngineBusy
from teola_engines.openai import connection as connections
from teola_engines.openai.connection import Connection

BEGINS_S, ENDS_S = 7.0, 90.0
"""What the server takes to begin an answer, and to end it, on the clock of the connection."""
EVENTS = b"""data: {"choices": [{"index": 0, "delta": {"content": "yes"}, "finish_reason": "stop"}]}

data: [DONE]

"""


class Server:
    """Tells with each answer but every third how many requests it has had, as what is left."""

    def __init__(self) -> None:
        self.now, self.asked, self.status, self.streams = 1000.0, 0, 200, False

    def monotonic(self) -> float:
        return self.now

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if b"content-length" in line)
        await reader.readexactly(int(length.partition(b":")[2]))
        self.asked += 1
        self.now += BEGINS_S
        lines = [f"HTTP/1.1 {self.status} .", "connection: close"]
        if self.asked % 3:
            lines.append(f"x-ratelimit-remaining-requests: {self.asked}")
            lines.append("x-ratelimit-reset-requests: 60s")
        lines.append(f"content-type: {'text/event-stream' if self.streams else 'application/json'}")
        writer.write("\r\n".join([*lines, "\r\n"]).encode())
        await writer.drain()
        if self.streams:
            await asyncio.sleep(0.01)
            self.now += ENDS_S
        writer.write(EVENTS if self.streams else b"{}")
        writer.close()


async def test_what_is_left_is_told_with_the_age_of_its_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of an answer that is streamed, too, it is that of its beginning; what was refused is told as
    just now, and an answer that says nothing of it is not told."""
    server, query, heard = Server(), QueryContext("q"), list[LeftOfMinute]()
    monkeypatch.setattr(connections, "time", server)
    async with await asyncio.start_server(server.serve, "127.0.0.1") as listening:
        port = listening.sockets[0].getsockname()[1]
        connection = Connection("llm", f"http://127.0.0.1:{port}/v1", None, None, 30.0)
        connection.on_left = heard.append
        await connection.open()
        await connection.post(query, "/embeddings", {})
        server.streams = True
        events = connection.stream(query, {"messages": []}, lambda written: Usage())
        assert [delta.text async for delta in events] == ["yes", ""]
        server.streams = False
        await connection.post(query, "/embeddings", {})
        server.status = 429
        with pytest.raises(EngineBusy):
            await connection.post(query, "/embeddings", {})
        server.status = 200
        await connection.send(query, {"messages": []})
        connection.on_left = None
        await connection.post(query, "/embeddings", {})
        await connection.close()
    told = [(left.requests, left.ago_s) for left in heard]
    assert told == [(1, BEGINS_S), (2, BEGINS_S), (4, 0.0), (5, BEGINS_S)]
