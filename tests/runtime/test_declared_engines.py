"""An engine's slips, in what it declares and in what it gives, are told by its name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from teola import App, EngineConfig, Generate, Runtime, WebSearch
from teola.engine import Call, Delta, EngineKind, EngineSpec, Hit
from teola.errors import InputError, QueryFailed
from teola.graph import Graph, Op, Part, PrefillParams, Primitive, Prompt, Ref, Role
from teola.runtime.live.nesting import Terms
from teola.runtime.live.steps import Steps
from teola.schedule.plan import Plan
from teola.testing.hash_engines import CountsStarts, HashEmbedder, HashModel
from teola.workflow.build import Builder
from teola.workflow.kinds import Kind
from tests.recording import Bench

GRAPH = Builder("asked", Generate(), {"question": Kind.TEXT}, {"answer": "answer"})
HIT = Hit("1", "lamp.txt", "The keeper looks after the lamp.", 0.5)


# --- what it declares -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({"kind": "rerank"}, "kind must be an EngineKind .LLM, .*WEBSEARCH, .*, not 'rerank'$"),
        ({"kind": Op.RERANKING}, "kind must be an EngineKind"),
        ({"ops": {"reranking"}}, "ops must be members of teola.graph.Op .EMBEDDING, .*, not 'rer"),
        ({"ops": Op.RERANKING}, "ops must be a set such as {Op.EMBEDDING}, not <Op.RERANKING"),
        ({"ops": frozenset()}, "ops must be a set such as"),
        ({"name": ""}, "name must be a text"),
        ({"max_batch": 0}, "max_batch must be a whole number from 1, not 0"),
        ({"concurrency": 1.5}, "concurrency must be a whole number from 1, not 1.5"),
    ],
)
def test_a_slip_in_a_spec_is_told(declared: dict[str, Any], told: str) -> None:
    given = {"name": "mine", "kind": EngineKind.RERANK, "ops": frozenset({Op.RERANKING})}
    with pytest.raises(InputError, match=f"^engine '.*': EngineSpec: {told}"):
        EngineSpec(**{**given, **declared})


class NoSpec(CountsStarts):
    async def execute(self, requests: Any) -> Any:
        return []


class OddSpec(NoSpec):
    spec: Any = "rerank"


class NoModel(NoSpec):
    def __init__(self) -> None:
        self.spec = EngineSpec("llm", EngineKind.LLM, frozenset({Op.DECODING}))


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (NoSpec, r"'mine' \(NoSpec\) has no `spec`: let __init__ set self.spec = teola.engine."),
        (
            OddSpec,
            r"'mine' \(OddSpec\): its `spec` must be a teola.engine.EngineSpec, not 'rerank'",
        ),
        (NoModel, "'mine' .NoModel. is of kind 'llm' and lacks the methods prefill, generate, cou"),
        (lambda: None, r"'mine' \(NoneType\) has no `spec`"),
    ],
)
@pytest.mark.parametrize("host", ["local", "process"])
def test_what_is_no_engine_is_told_when_it_is_made(
    made: Callable[[], Any], told: str, host: str
) -> None:
    with pytest.raises(InputError, match=f"^engine {told}"):
        EngineConfig(made, host=host).placed("mine", on_ray=False)


# --- what it gives --------------------------------------------------------------------------


class Web(HashEmbedder):
    """Finds `hits`, whatever it is asked."""

    def __init__(self, hits: Any) -> None:
        self.spec = EngineSpec("websearch", EngineKind.WEBSEARCH, frozenset({Op.WEB_SEARCH}))
        self.hits = hits

    async def execute(self, requests: Any) -> Any:
        return [{"hits": self.hits} for _ in requests]


@pytest.mark.parametrize(
    ("hits", "told"),
    [
        ([[HIT], [HIT]], "2 for 1 items of 'hits', not a list with one for each"),
        ([HIT], "Hit.*as hits.0., not a list of teola.engine.Hit for each query"),
        ([["The keeper"]], r"\['The keeper'\] as hits.0., not a list of teola.engine.Hit"),
        ([[{"text": "The keeper"}]], ".{'text': 'The keeper'}. as hits.0., not a list of teola"),
    ],
)
@pytest.mark.parametrize("several", [False, True])
def test_hits_that_are_none_fail_the_query(hits: Any, told: str, several: bool) -> None:
    kind, queries = ("texts", ["who?"]) if several else ("text", "who?")
    with Runtime({"websearch": lambda: Web(hits)}) as runtime:
        app = App(
            "found",
            WebSearch(inputs={"queries": "asked"}),
            inputs={"asked": kind},
            outputs={"hits": "hits"},
            runtime=runtime,
        )
        with pytest.raises(QueryFailed, match=f"engine 'websearch' gave {told}"):
            app.run(asked=queries, deadline_s=20)


class Words(HashModel):
    """Streams texts where Deltas belong."""

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        yield "a word"  # type: ignore[misc]


class Whole(HashModel):
    """Gives its answer whole."""

    async def generate(self, call: Call) -> Any:  # type: ignore[override]
        return Delta("an answer", "stop")


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (Words, "streamed 'a word', not a teola.engine.Delta"),
        (Whole, "gave coroutine for a call, not a stream: let `generate` be an async generator"),
    ],
)
@pytest.mark.parametrize("steps", [None, Steps("q")])
async def test_a_stream_that_is_none_fails_the_query(
    model: Any, told: str, steps: Steps | None
) -> None:
    plan = Plan(GRAPH.build(GRAPH.configure({}), {}))
    async with Bench({"llm": model()}) as bench:
        ending = await bench.run(plan, {"question": "who?"}, id="q", terms=Terms(steps=steps))
        assert f"engine 'llm' {told}" in str(ending.error)
        await bench.settle()
        bench.assert_idle()


async def test_a_prefix_without_a_handle_fails_the_query() -> None:
    class Handless(HashModel):
        async def prefill(self, call: Call) -> Any:
            return "kept"

    asked = Prompt((Part(Role.QUESTION, Ref("query", "question")),))
    ahead = Primitive(
        "ahead",
        Op.PARTIAL_PREFILLING,
        "asked",
        "llm",
        (("prompt", asked),),
        ("sequence",),
        PrefillParams(),
    )
    plan = Plan(Graph("asked", (ahead,), {"answer": Ref("ahead", "sequence")}, ("question",)))
    async with Bench({"llm": Handless()}) as bench:
        ending = await bench.run(plan, {"question": "who?"})
        told = "engine 'llm' gave 'kept' for a prefix, not a teola.engine.SequenceHandle"
        assert told in str(ending.error)
