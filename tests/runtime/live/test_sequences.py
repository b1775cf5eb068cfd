"""What engines keep of sequences goes when its query no longer needs it, by command: every handle
is remembered here, and the garbage collector is off, so nothing else could release one."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from experiments.common.tiny_model import make_model
from teola.engine import Call, SequenceHandle
from teola.errors import EngineError
from teola.graph import (
    QUERY,
    ConditionParams,
    DecodeParams,
    Graph,
    Guard,
    Op,
    Part,
    PrefillParams,
    Primitive,
    Prompt,
    Ref,
    Role,
    ToolParams,
)
from teola.runtime.driver import Driver
from teola.runtime.engines import EngineConfig
from teola.runtime.hosts.remote import RemoteEngine
from teola.runtime.live.live import Live
from teola.runtime.live.query import LiveQuery
from teola.runtime.live.sequences import KeptSequences
from teola.runtime.python_engine import PythonEngine
from teola.schedule.events import State
from teola.schedule.graph_run import GraphRun
from teola.schedule.plan import Plan
from tests.planted import catches, edited
from tests.recording import Bench
from tests.runtime.live.kept_model import ENDLESS, KeptFar, KeptModel

LONG = "Answer the question from the context, and from nothing else. " * 4
BENCH_INPUTS = {"question": "why?"}

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return make_model(folder, hidden=64, layers=2, heads=2, vocabulary=1024)


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def split(
    late: Callable[..., Any],
    test: Callable[..., Any] | None = None,
    *,
    optional: bool = False,
    tokens: int = 4,
) -> Plan:
    """A call whose beginning is computed while `late` runs, in two pieces, the second of which has
    no text; if there is a test, on a guess of what it says."""
    ahead, rest = (
        ((Guard("test", "then", speculative),) if test else ()) for speculative in (True, False)
    )
    question = Prompt((Part(Role.INSTRUCTION, LONG), Part(Role.QUESTION, Ref(QUERY, "question"))))
    nothing = Prompt((Part(Role.CONTEXT, Ref(QUERY, "notes")),))
    context = Prompt((Part(Role.CONTEXT, Ref("late", "out"), required=True),))

    def llm(id: str, op: Op, after: str, **inputs: Any) -> Primitive:
        sequence = (("sequence", Ref(after, "sequence")),) if after else ()
        decodes = op is Op.DECODING
        params = DecodeParams(max_tokens=tokens, ignore_eos=True) if decodes else PrefillParams()
        outputs = ("text",) if decodes else ("sequence",)
        guards = ahead if op is Op.PARTIAL_PREFILLING else rest
        given = (*inputs.items(), *sequence)
        return Primitive(id, op, "call", "llm", given, outputs, params, guards=guards)

    primitives = [
        llm("ahead", Op.PARTIAL_PREFILLING, "", prompt=question),
        llm("empty", Op.PARTIAL_PREFILLING, "ahead", prompt=nothing),
        Primitive(
            "late",
            Op.TOOL_CALL,
            "late",
            "python",
            (("question", Ref(QUERY, "question")),),
            ("out",),
            ToolParams(late),
            optional=optional,
        ),
        llm("full", Op.FULL_PREFILLING, "empty", prompt=context),
        llm("decode", Op.DECODING, "full"),
    ]
    if test:
        params = ConditionParams(test, ("then", "otherwise"), "then")
        reads = (("x", Ref(QUERY, "question")),)
        primitives.insert(
            0, Primitive("test", Op.CONDITION, "test", "", reads, ("branch",), params)
        )
    outputs = {"answer": Ref("decode", "text")}
    graph = Graph("test", primitives, outputs, ["question", "notes"])
    graph.validate()
    return Plan(graph)


class Stage:
    """A bench with one model, whose pages are counted."""

    def __init__(self, bench: Bench, model: KeptModel | KeptFar) -> None:
        self.bench, self.model = bench, model
        self.go = asyncio.Event()

    async def held(self) -> int:
        """Pages, when what was asked for is done."""
        await self.bench.settle()
        return await self.model.pages()

    async def begun(self, plan: Plan, deadline_s: float = 60.0) -> asyncio.Task[Any]:
        """A query of which the beginning has been computed."""
        query = self.bench.start(plan, BENCH_INPUTS, deadline_s=deadline_s)
        (begun,) = await self.running()
        async with asyncio.timeout(20):
            while not begun.run.ended(plan.index["empty"]):
                await asyncio.sleep(0.001)
        assert await self.model.pages() > 0
        return query

    async def running(self) -> list[LiveQuery]:
        """The queries that have been begun."""
        await asyncio.sleep(0.01)
        return list(self.bench.live.queries.values())

    async def late(self, question: str) -> str:
        await self.go.wait()
        return "It is so. " * 20

    async def fails(self, question: str) -> str:
        await self.go.wait()
        raise EngineError("the line broke")


@asynccontextmanager
async def staged(where: str, folder: Path) -> AsyncIterator[Stage]:
    """The model in this process or in another; nothing is kept in the end."""
    options = {"model": str(folder), "threads": 1}
    model: KeptModel | KeptFar = KeptModel(**options)
    if where == "far":
        model = KeptFar(EngineConfig(KeptModel, options).recipe("llm"))
    async with Bench({"llm": model, "python": PythonEngine()}) as bench:
        stage = Stage(bench, model)
        assert await stage.held() == 0
        yield stage
        assert await stage.held() == 0
        assert model.given, "nothing was kept, so nothing was tested"
        assert not len(bench.live.sequences)


FAR = pytest.param("far", marks=pytest.mark.slow)  # a process that loads torch
EVERYWHERE = pytest.mark.parametrize("where", ["near", FAR])
LAST_READER = catches(
    "last-reader",
    "what was read for the last time is kept on",
    edited(Driver._release, "self.forgotten", "len"),
)
FINISH = catches(
    "finish",
    "what a query still holds at its end is kept on",
    edited(Live.finished, "self.forgotten(values)", "pass"),
)


@EVERYWHERE
@LAST_READER
@catches(
    "shared",
    "a piece without text takes what it shares with the one before along",
    edited(KeptSequences._hold, "kept.holders += 1", "kept.holders = 1"),
)
async def test_of_a_query_that_is_answered(where: str, folder: Path) -> None:
    async with staged(where, folder) as stage:
        query = await stage.begun(split(stage.late))
        stage.go.set()
        assert (await query).state is State.OK


@FINISH
async def test_of_a_query_that_fails(folder: Path) -> None:
    async with staged("near", folder) as stage:
        query = await stage.begun(split(stage.fails))
        stage.go.set()
        assert (await query).state is State.FAILED


@FINISH
async def test_of_a_query_that_is_cancelled(folder: Path) -> None:
    async with staged("near", folder) as stage:
        query = await stage.begun(split(stage.late))
        query.cancel()
        with pytest.raises(asyncio.CancelledError):
            await query


@FINISH
async def test_of_a_query_that_is_too_late(folder: Path) -> None:
    async with staged("near", folder) as stage:
        query = await stage.begun(split(stage.late), deadline_s=2.0)
        assert (await query).state is State.DEADLINE


@LAST_READER
async def test_of_a_call_whose_context_fails(folder: Path) -> None:
    async with staged("near", folder) as stage:
        query = await stage.begun(split(stage.fails, optional=True))
        stage.go.set()
        assert (await query).state is State.PARTIAL


@catches(
    "skipped",
    "what was begun on a wrong guess is kept on",
    edited(Driver._skipped, "self.forgotten(query.store.drop(command.primitive))", "pass"),
    edited(Driver._release, "self.forgotten", "len"),
)
async def test_of_a_guess_that_was_wrong(folder: Path) -> None:
    async with staged("near", folder) as stage:

        async def otherwise(question: str) -> bool:
            await stage.go.wait()
            return False

        query = await stage.begun(split(stage.late, otherwise))
        stage.go.set()
        assert (await query).state is State.OK


def _nobody_reads(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KeptSequences, "reading", lambda *_: nullcontext())


@EVERYWHERE
@catches(
    "while-it-is-read",
    "what a call reads is released under it when its query ends",
    _nobody_reads,
)
async def test_of_a_call_that_is_cancelled_not_before_its_end(where: str, folder: Path) -> None:
    async with staged(where, folder) as stage:
        stage.go.set()
        query = stage.bench.start(split(stage.late, tokens=ENDLESS), BENCH_INPUTS)
        (run,) = [running.run for running in await stage.running()]
        while not run.ended(run.plan.index["full"]):
            await asyncio.sleep(0.001)
        query.cancel()
        with pytest.raises(asyncio.CancelledError):
            await query


@catches(
    "before-the-end",
    "the core counts a call's readers down when its first token comes",
    edited(GraphRun.__init__, "list(plan.open)", "[1] * len(plan)"),
)
async def test_the_core_releases_nothing_before_the_call_that_reads_it_has_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _nobody_reads(monkeypatch)  # else they would hold it themselves
    async with staged("near", folder) as stage:
        stage.go.set()
        assert (await stage.bench.run(split(stage.late), BENCH_INPUTS)).state is State.OK


@EVERYWHERE
@catches(
    "too-late",
    "what comes when its query has ended is kept on",
    edited(KeptSequences.prefill, "self.let_go(outputs)", "pass"),
)
async def test_of_a_prefilling_that_comes_when_its_query_has_ended(
    where: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(where, folder) as stage:
        prefill = stage.model.prefill

        async def stubborn(call: Call) -> SequenceHandle:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return await prefill(call)

        monkeypatch.setattr(stage.model, "prefill", stubborn)
        query = stage.bench.start(split(stage.late), BENCH_INPUTS)
        await stage.running()
        query.cancel()
        with pytest.raises(asyncio.CancelledError):
            await query


@pytest.mark.slow
@catches(
    "not-over-there",
    "an engine in another process is not told",
    edited(RemoteEngine.release, "self._tell_forgotten()", "pass"),
)
async def test_the_other_process_is_told_at_once(folder: Path) -> None:
    async with staged("far", folder) as stage:
        query = await stage.begun(split(stage.late))
        stage.go.set()
        await query


@EVERYWHERE
async def test_a_release_may_be_repeated(where: str, folder: Path) -> None:
    async with staged(where, folder) as stage:
        query = await stage.begun(split(stage.late))
        for handle in stage.model.given * 2:
            stage.model.release(handle)
        assert await stage.model.pages() == 0
        stage.go.set()
        assert (await query).state is State.OK, "the prefix is computed again"


@pytest.mark.slow
async def test_what_a_lost_process_kept_is_forgotten(folder: Path) -> None:
    async with staged("far", folder) as stage:
        query = await stage.begun(split(stage.late))
        assert isinstance(stage.model, KeptFar)
        stage.model.kill()
        async with asyncio.timeout(20):
            while stage.model.dead is None:
                await asyncio.sleep(0.01)
        query.cancel()
        with pytest.raises(asyncio.CancelledError):
            await query
        assert not len(stage.bench.live.sequences)
        await stage.model.start()
