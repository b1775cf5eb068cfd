"""What a query reads again, told to the cache of a local model: from its plan to the blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, ClassVar

import pytest

import teola
from teola.engine import Call, NextRead, QueryContext, TextPart
from teola.graph.ops import DecodeParams
from teola.graph.prompt import Role
from teola.kv import Access
from teola.kv.policies.next_use import NextUse
from teola.query.spec import program_of
from teola.runtime.hosts.local import LocalHost
from teola.runtime.live.live import Live
from teola.runtime.next_reads import END
from teola.runtime.python_engine import PythonEngine
from teola.schedule.plan import Plan
from teola.testing.hash_engines import HashModel
from teola_engines.llm import TransformersModel
from tests.planted import catches, edited
from tests.recording import Bench
from tests.schedule.test_beginnings import twice

BLOCK = 16
TEXTS = ("Be brief and exact. " * 6, "Who keeps the lamp, and since when? " * 4, "Notes. " * 9)
ROLES = (Role.INSTRUCTION, Role.QUESTION, Role.CONTEXT)
PARTS = tuple(TextPart(role, text) for role, text in zip(ROLES, TEXTS, strict=True))


class Told(NextUse):
    """next_use, which notes whose blocks it is told of."""

    accesses: ClassVar[list[Access]] = []

    def touch(
        self, blocks: Sequence[int], keys: Any, position: int, access: Access, now: float
    ) -> None:
        self.accesses.append(access)
        super().touch(blocks, keys, position, access, now)


@pytest.fixture
def engine(model_folder: Path) -> Iterator[TransformersModel]:
    Told.accesses.clear()
    with teola.register("eviction", "told", Told):
        engine = TransformersModel(model=model_folder, eviction="told", block_tokens=BLOCK)
    engine.start()
    yield engine
    engine.close()


def call(*parts: TextPart, reads: Sequence[NextRead] = (), **more: Any) -> Call:
    decode = DecodeParams(max_tokens=2, ignore_eos=True)
    return replace(Call(QueryContext("q"), parts, decode, **more), reads=tuple(reads))


async def generated(engine: TransformersModel, asked: Call) -> None:
    async for _ in engine.generate(asked):
        pass


@catches(
    "parts-for-blocks",
    "parts of a prompt are taken for blocks",
    edited(TransformersModel._reads, "blocks = len(ids) // self._block_tokens", "blocks = until"),
)
async def test_parts_that_are_read_again_are_told_in_the_blocks_that_others_share(
    engine: TransformersModel,
) -> None:
    reads = (NextRead(1, 5.0), NextRead(2, None), NextRead(END, inf))
    other = call(*PARTS[:2], TextPart(Role.CONTEXT, "Something else. " * 9))
    ours, theirs = (engine.keys(one).blocks for one in (call(*PARTS), other))
    shared = next(k for k, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)
    instruction = len(engine.keys(call(PARTS[0]), complete=False).blocks)
    assert 0 < instruction < shared < len(ours)
    expected = (NextRead(instruction, 5.0), NextRead(shared, None), NextRead(END, inf))
    await generated(engine, call(*PARTS, reads=reads))
    assert {access.reads for access in Told.accesses} == {expected}
    handle = await engine.prefill(call(*PARTS[:2]))
    Told.accesses.clear()
    await generated(engine, call(PARTS[2], prefix=handle, reads=reads))
    assert {access.reads for access in Told.accesses} == {expected}, "behind a prefix, too"
    whole = (NextRead(3, 1.0),)
    Told.accesses.clear()
    await generated(engine, call(*PARTS, reads=whole))
    assert {access.reads for access in Told.accesses} == {(NextRead(len(ours), 1.0),)}


def test_who_looks_ahead_says_so() -> None:
    looks = {
        name: TransformersModel(model="m", eviction=name).spec.looks_ahead
        for name in ("lru", "workload_aware", "next_use")
    }
    assert looks == {"lru": False, "workload_aware": False, "next_use": True}


@catches(
    "of-the-query-only",
    "blocks are a query's, and not its session's",
    edited(TransformersModel._job, "call.context.program", "call.context.query_id"),
)
async def test_blocks_are_a_programs(engine: TransformersModel) -> None:
    session = program_of("default", "s")
    asked = replace(call(*PARTS), context=QueryContext("q", part_of=session))
    await generated(engine, asked)
    assert {access.query for access in Told.accesses} == {session}


class Ahead(HashModel):
    """Looks ahead, if it is told to, and notes what it is told."""

    def __init__(self, looks_ahead: bool) -> None:
        super().__init__()
        self.spec = replace(self.spec, looks_ahead=looks_ahead)
        self.told: list[tuple[NextRead, ...]] = []

    def generate(self, call: Call) -> Any:
        self.told.append(call.reads)
        return super().generate(call)


async def told(plan: Plan, looks_ahead: bool) -> list[tuple[NextRead, ...]]:
    model = Ahead(looks_ahead)
    async with Bench({"llm": model, "python": PythonEngine("python")}) as bench:
        await bench.run(plan, {"question": "why?"})
        await bench.settle()
        bench.assert_idle()
    return model.told


@catches(
    "live-untold",
    "live, nobody is told what is read again",
    edited(Live._call, "self.reads(query, i) if host.looks_ahead else ()", "()"),
)
@catches(
    "looks-ahead-unheard",
    "an engine that looks ahead is taken for one that does not",
    edited(LocalHost.start, "self.engine.spec.looks_ahead", "False"),
)
async def test_an_engine_that_looks_ahead_is_told_by_the_graph() -> None:
    first, last = await told(twice(), looks_ahead=True)
    assert [one.until for one in first] == [2, END]
    assert last == (NextRead(1, None), NextRead(END, inf))


async def test_others_are_told_nothing() -> None:
    made = twice()
    assert await told(made, looks_ahead=False) == [(), ()]
    assert "beginnings" not in vars(made)
