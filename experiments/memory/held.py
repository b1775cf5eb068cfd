"""What a query holds while it waits for people, and what the pieces of a streamed answer hold.

    python -m experiments.memory.held WHAT QUERIES PIECES MEASURE   one figure, by itself

Each figure is taken in a process of its own, in which `QUERIES` queries follow a tenth as many for
warming up: what they added, by query.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

import psutil

from teola import App, Ask, EngineConfig, Generate, Runtime, component
from teola.engine import Call, Delta, EngineKind, EngineSpec, SequenceHandle, Usage
from teola.graph.ops import DECODES, PREFILLS
from teola.query.spec import QuerySpec
from teola.serve.board import Board, Entry
from teola.serve.server import ServerLimits, board_for

DAY_S: Final = 86_400.0


@component(outputs="sent")
def send(topic: str, verdict: str) -> str:
    """Is not reached: nobody answers."""
    return f"{verdict}: {topic}"


class Words:
    """An engine whose answers have `max_tokens` pieces."""

    def __init__(self, name: str = "llm") -> None:
        self.spec = EngineSpec(
            name, EngineKind.LLM, PREFILLS | DECODES, max_batch=65_536, max_sequences=8
        )

    async def start(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to free."""

    def count_tokens(self, text: str) -> int:
        """Its words."""
        return len(text.split())

    async def prefill(self, call: Call) -> SequenceHandle:
        """Only remembers the parts."""
        return SequenceHandle(self.spec.name, 0, call.all_parts)

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        """A piece at a time."""
        pieces = call.decode.max_tokens
        for n in range(pieces):
            if not n % 64:
                await asyncio.sleep(0)
            yield Delta(f"word{n} ")
        yield Delta("", "stop", Usage(8, pieces))


def waiting_app(runtime: Runtime) -> App:
    """It asks whether to send, and then waits."""
    return App(
        "letter",
        Ask("Send?\n{topic}", schema={"enum": ["yes", "no"]}, gives="verdict") >> send,
        inputs={"topic": "text"},
        outputs={"sent": "sent"},
        runtime=runtime,
    )


def saying_app(runtime: Runtime, pieces: int) -> App:
    """It answers in so many pieces."""
    return App(
        "talk",
        Generate(mode="simple", inputs={"context": "question"}, max_tokens=pieces),
        inputs={"question": "text"},
        outputs={"answer": "answer"},
        runtime=runtime,
    )


def waiting_in_sdk(runtime: Runtime, pieces: int) -> Callable[[int], None]:
    """Begins queries by `App.run`, which returns once they wait."""
    app = waiting_app(runtime)

    def begin(n: int) -> None:
        result = app.run(topic=topic(n), deadline_s=DAY_S)
        assert result.state == "waiting", result.state

    return begin


def waiting_in_server(runtime: Runtime, pieces: int) -> Callable[[int], None]:
    """Begins queries on a server's board, until they wait."""
    app, board = served(runtime, waiting_app(runtime))

    async def begun(n: int) -> None:
        entry = board.start(app, asked(topic=topic(n)), mode="sync")
        while not entry.waiting:
            await asyncio.sleep(0.001)
        if not n:  # admission takes 256 queries of which it knows nothing
            entry.job.people.answer(None, "yes")
            while entry.result is None:
                await asyncio.sleep(0.001)

    return lambda n: runtime.start(begun(n)).result()


def streamed_in_server(runtime: Runtime, pieces: int) -> Callable[[int], int]:
    """Streams answers from a server's board, to their ends; gives the bytes that it counts."""
    app, board = served(runtime, saying_app(runtime, pieces))

    async def streamed(n: int) -> Entry:
        entry = board.start(app, asked(question=topic(n)), mode="stream")
        while entry.result is None:
            await asyncio.sleep(0.001)
        assert entry.result.state == "ok", entry.result
        assert len(entry.events) >= pieces
        return entry

    return lambda n: runtime.start(streamed(n)).result().bytes


def served(runtime: Runtime, app: App) -> tuple[App, Board]:
    """The application on a server's board."""
    return app, board_for(runtime, {app.name: app}, ServerLimits(queries=64))


def asked(**inputs: str) -> QuerySpec:
    """A query as a server has it."""
    return QuerySpec(inputs, deadline_s=DAY_S, tenant="default")


def topic(n: int) -> str:
    """Another one for each query."""
    return f"Pier {n} is closed until the crane is mended. " * 4


BEGINS: Final[dict[str, Callable[[Runtime, int], Callable[[int], Any]]]] = {
    "waiting_sdk": waiting_in_sdk,
    "waiting_server": waiting_in_server,
    "streamed_server": streamed_in_server,
}


def rows(quick: bool) -> list[dict[str, Any]]:
    """A row for each of BEGINS. counted_bytes: as the server counts an answered query, which bounds
    how many it keeps; nothing counts waiting ones, so there it is what all their objects take."""
    found = []
    for what in BEGINS:
        streams = what.startswith("streamed")
        pieces = (2_000 if quick else 20_000) if streams else 0
        queries = (4 if quick else 32) if streams else (20 if quick else 1_000)
        held = _figures(what, queries, pieces, "resident")
        objects = None if streams else _figures(what, queries, pieces, "objects")
        counted = objects["bytes"] if objects else held["counted"]
        row = {"what": what, "queries": queries, "pieces": pieces}
        figures = {"resident_bytes": round(held["bytes"]), "counted_bytes": round(counted)}
        found.append(row | figures | {"ratio": round(held["bytes"] / counted, 2)})
    return found


def _figures(what: str, queries: int, pieces: int, measure: str) -> dict[str, float]:
    command = [
        sys.executable,
        "-m",
        "experiments.memory.held",
        what,
        str(queries),
        str(pieces),
        measure,
    ]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    figures: dict[str, float] = json.loads(printed)
    return figures


def each(what: str, queries: int, pieces: int, measure: str) -> dict[str, float]:
    """Bytes that a query adds: `bytes`, and `counted` as the board says, if it does.

    measure: resident, the process's memory; objects, Python's own objects with all that they refer
    to, which a walk adds up.
    """
    taken = resident if measure == "resident" else objects
    with Runtime({"llm": EngineConfig(Words)}) as runtime:
        begin = BEGINS[what](runtime, pieces)
        warm = max(1, queries // 10)
        for n in range(warm):
            begin(n)
        before = taken()
        counted = [begin(warm + n) for n in range(queries)]
        total, counts = taken() - before, sum(filter(None, counted))
    return {"bytes": total / queries, "counted": counts / queries}


def resident() -> int:
    """Bytes of this process in memory."""
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def objects() -> int:
    """Bytes of all objects that the collector knows, and of what only they refer to."""
    gc.collect()
    total, seen, known = 0, set[int](), gc.get_objects()
    for thing in known:
        total += sys.getsizeof(thing)
        total += _untracked(gc.get_referents(thing), seen)
    return total


def _untracked(things: Iterable[Any], seen: set[int]) -> int:
    """Bytes of what the collector does not know, such as texts, and of what these refer to."""
    total, todo = 0, [*things]
    while todo:
        thing = todo.pop()
        if gc.is_tracked(thing) or id(thing) in seen:
            continue
        seen.add(id(thing))
        total += sys.getsizeof(thing)
        todo += gc.get_referents(thing)
    return total


if __name__ == "__main__":
    print(json.dumps(each(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])))
