"""`teola.register`: what is added at run time is found everywhere, and only while it is there."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import teola
from teola import App, EngineConfig, Runtime, Search, component
from teola.catalogue import load_app
from teola.cli import call
from teola.engine import EngineKind, EngineSpec, Request
from teola.errors import InputError, TemplateError, UnknownName
from teola.graph import Graph, Op
from teola.kv import make_policy
from teola.kv.policies import Lru
from teola.passes import PIPELINE, select
from teola.passes.rewrite import Rewrite
from teola.policies import batching, routing
from teola.policies.batching import Fifo
from teola.policies.routing import RoundRobin
from teola.profile import Profile, paper
from teola.registering import REGISTRIES
from teola.runtime.optimiser import Optimiser
from teola.runtime.sim import Sim
from teola.runtime.values import Tokens
from teola.tools import named_tools, tool
from teola.workflow import components
from teola_apps.advanced_rag import app as advanced_rag


class Notes(Search):
    """A component of this file's own."""

    default_name = "notes"


class Upper:
    """An engine for functions, which says everything aloud."""

    def __init__(self, name: str = "python") -> None:
        self.spec = EngineSpec(name, EngineKind.TOOL, frozenset({Op.TOOL_CALL}))

    def start(self) -> None:
        pass

    def close(self) -> None:
        pass

    def execute(self, requests: Sequence[Request]) -> list[Any]:
        return [{"said": request.inputs["question"].upper()} for request in requests]


def declining(graph: Graph, profile: Profile) -> tuple[Graph, list[Rewrite]]:
    return graph, [Rewrite("declining", "", False, "it never does anything")]


@component(outputs="said")
def say(question: str) -> str:
    return question


@tool
def act() -> str:
    """Acts."""
    return "done"


def echo() -> App:
    return App("echo", say, inputs={"question": "text"}, outputs={"said": "said"})


THINGS: dict[str, tuple[Any, Callable[[str], Any]]] = {
    "pass": (declining, select),
    "batching": (Fifo, batching.make),
    "routing": (RoundRobin, routing.make),
    "eviction": (Lru, make_policy),
    "engine": (Upper, lambda name: EngineConfig(name).make("python")),
    "component": (Notes, components.named),
    "app": (echo(), load_app),
    "tool": (act, named_tools.ToolsByName({}).__getitem__),
}
"""Something of each kind, and how it is found."""


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    left = {kind: list(registry.registered()) for kind, registry in REGISTRIES.items()}
    assert left == {kind: [] for kind in THINGS}


# --- found, and gone --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", THINGS)
def test_what_is_registered_is_found_until_it_is_unregistered(kind: Any) -> None:
    thing, find = THINGS[kind]
    with pytest.raises(UnknownName):
        find("mine")
    with teola.register(kind, "mine", thing):
        assert find("mine")
        with pytest.raises(UnknownName, match="did you mean 'mine'"):
            find("mein")
    with pytest.raises(UnknownName):
        find("mine")
    assert teola.register(kind, "mine")(thing) is thing
    assert find("mine")
    teola.unregister(kind, "mine")
    with pytest.raises(UnknownName):
        find("mine")


@pytest.mark.parametrize("kind", THINGS)
def test_a_name_that_is_taken_is_refused(kind: Any) -> None:
    thing, _ = THINGS[kind]
    registry = REGISTRIES[kind]
    for name in [*registry.built_in, *registry.offered()]:
        with pytest.raises(InputError, match=f"{name}' (is built in|comes with an installed pack)"):
            teola.register(kind, name, thing)
        with pytest.raises(InputError, match=f"{name}' (is built in|comes with an installed pack)"):
            teola.unregister(kind, name)
    with teola.register(kind, "mine", thing):
        others = {"app": echo(), "component": Search, "tool": replace(act, name="other")}
        other = others.get(kind, lambda *_: None)
        with pytest.raises(InputError, match=r"registered already.*teola\.unregister\('"):
            teola.register(kind, "mine", other)
        assert registry.find("mine") is thing
    with pytest.raises(UnknownName, match=r"unknown registered .* 'mine' \(valid: none\)"):
        teola.unregister(kind, "mine")


@pytest.mark.parametrize(
    ("kind", "name", "thing", "told"),
    [
        ("polic", "mine", Fifo, "unknown kind 'polic'"),
        ("batching", "mi ne", Fifo, "letters, digits, _ and - only"),
        ("batching", "", Fifo, "letters, digits, _ and - only"),
        ("batching", "mine", 3, "must be a class or a function that makes one, not 3$"),
        ("batching", "mine", Fifo(), "give the class Fifo itself$"),
        ("batching", "mine", RoundRobin, "RoundRobin lacks the methods add, remove, choose"),
        (
            "routing",
            "mine",
            Fifo,
            "Fifo lacks the methods attach, order, place, why, free, observe",
        ),
        ("eviction", "mine", Fifo, "Fifo lacks the methods touch, offer, withdraw, evict$"),
        ("engine", "mine", Fifo, "Fifo lacks the methods start, close, execute$"),
        ("component", "mine", Fifo, "must be a Component or a class of them"),
        ("app", "mine", Fifo, "is no teola.App but type$"),
        ("pass", "mine", 3, "must be a function of a graph and a profile, not 3$"),
        ("pass", "mine", lambda graph: graph, "must take a graph and a profile: too many pos"),
        ("pass", "all", declining, "pass 'all' is built in"),
        ("pass", "none", declining, "pass 'none' is built in"),
    ],
)
def test_what_cannot_be_registered_is_told_why(kind: Any, name: str, thing: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        teola.register(kind, name, thing)


def test_what_a_function_makes_is_looked_at_when_it_is_made() -> None:
    with (
        teola.register("batching", "mine", lambda: RoundRobin()),
        pytest.raises(InputError, match="'mine': RoundRobin lacks the methods add, remove"),
    ):
        batching.make("mine")


def test_a_with_block_leaves_alone_what_another_has_registered_since() -> None:
    with teola.register("batching", "mine", Fifo):
        teola.unregister("batching", "mine")
        teola.register("batching", "mine", Fifo)
    assert batching.make("mine")
    teola.unregister("batching", "mine")


# --- found by whom ----------------------------------------------------------------------------


def test_the_runtime_finds_engines_and_policies() -> None:
    made = []

    @teola.register("batching", "noted")
    class Noted(Fifo):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    @teola.register("component", "aloud")
    @component(outputs="said")
    def aloud(question: str) -> str:
        return question

    try:
        with (
            teola.register("engine", "upper", Upper),
            Runtime({"python": EngineConfig("upper", batching="noted")}) as runtime,
        ):
            loud = App(
                "loud",
                components.named("aloud"),
                inputs={"question": "text"},
                outputs={"said": "said"},
                runtime=runtime,
            )
            assert loud.run(question="hello")["said"] == "HELLO"
    finally:
        teola.unregister("batching", "noted")
        teola.unregister("component", "aloud")
    assert len(made) == 1


def test_a_template_finds_components_by_name() -> None:
    with teola.register("component", "notes", Notes):
        template: Any = components.named("embed") >> ["notes", "rerank"] >> "generate"
        assert set(template.by_name) == {"embed", "notes", "rerank", "generate"}
        assert type(template.by_name["notes"]) is Notes
    with pytest.raises(TemplateError, match=r"unknown component 'notes' \(valid: .*web-search"):
        components.named("embed") >> "notes"
    with pytest.raises(TemplateError, match="component 'gather' needs parameters"):
        components.named("embed") >> "gather"


def test_the_simulator_finds_policies() -> None:
    profile = paper("13b")
    plan = Optimiser(advanced_rag.builder, profile).plan({}, {"chunks": 48})
    inputs = {"question": Tokens(14), "chunks": [Tokens(256)] * 48, "scope": Tokens(0)}

    def latency(policy: str) -> float:
        sim = Sim(profile, batching=policy, routing="mine")
        sim.submit(plan, inputs)
        return sim.run()[0].latency_s

    with (
        teola.register("batching", "mine", batching.BATCHING["per_invocation"]),
        teola.register("routing", "mine", RoundRobin),
    ):
        assert latency("mine") == latency("per_invocation") != latency("critical_path")


FILE = """
import teola
from teola import App, component
from teola.passes.rewrite import Rewrite
from teola.policies.batching import Fifo

@teola.register("batching", "of-a-file")
class Mine(Fifo):
    pass

@teola.register("pass", "of-a-file", after="prune_dependencies")
def declining(graph, profile):
    return graph, [Rewrite("of-a-file", "", False, "a file said so")]

@component(outputs="said")
def say(question: str) -> str:
    return question

app = App("echo", say, inputs={"question": "text"}, outputs={"said": "said"})
"""


def test_the_command_line_finds_what_the_file_of_an_app_registers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, config = tmp_path / "echoing.py", tmp_path / "teola.toml"
    file.write_text(FILE)
    config.write_text(f'apps = ["{file}:app"]\n[policies]\nbatching = "of-a-file"\n')
    words = [str(file), "-i", "question=Why?", "--batching", "of-a-file", "--json"]
    try:
        assert call(["config", "check", str(config)]) == 0
        assert call(["explain", *words]) == 0
        assert "a file said so" in capsys.readouterr().out
        assert call(["run", *words, "--passes", "of-a-file"]) == 0
        assert '"said": "Why?"' in capsys.readouterr().out
    finally:
        teola.unregister("pass", "of-a-file")
        teola.unregister("batching", "of-a-file")
        del sys.modules["teola_file_echoing"]


@pytest.mark.parametrize("places", [*product(("after", "before"), repeat=3)])
def test_a_pass_beside_which_another_one_stands_stays(places: tuple[str, ...]) -> None:
    """On either side, and however long the row of them is: the last one goes first."""
    names = ["prune_dependencies", "one", "two", "three"]
    made: list[Any] = []
    for name, (beside, place) in zip(names[1:], zip(names, places, strict=False), strict=True):
        made.append(teola.register("pass", name, declining, **{place: beside}))  # type: ignore[call-overload]
        for other in names[1 : len(made)]:
            with pytest.raises(InputError, match=f"{names[names.index(other) + 1]}' beside it"):
                teola.unregister("pass", other)
    for name in reversed(names[1:]):
        teola.unregister("pass", name)


def test_lists_show_what_is_registered(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        teola.register("app", "mine", advanced_rag),
        teola.register("engine", "upper", Upper),
        teola.register("pass", "declining", declining),
    ):
        assert call(["apps"]) == call(["engines"]) == 0
        out = capsys.readouterr().out
        assert call(["apps", "mine", "--json"]) == 0
        passes = json.loads(capsys.readouterr().out)["passes"]
        assert call(["apps", "--json"]) == 0
        sources = {app["name"]: app["source"] for app in json.loads(capsys.readouterr().out)}
    assert "\nmine " in out
    assert "An engine for functions, which says everything aloud." in out
    assert passes == [*PIPELINE, "declining"]
    assert (sources["mine"], sources["naive-rag"]) == ("registered", "teola_apps.naive_rag:app")


# --- threads ----------------------------------------------------------------------------------


def test_of_many_threads_one_has_the_name() -> None:
    start = threading.Barrier(8)

    def taken(_: int) -> bool:
        start.wait()
        try:
            teola.register("routing", "mine", lambda: RoundRobin())
        except InputError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        for _ in range(20):
            assert sum(threads.map(taken, range(8))) == 1
            teola.unregister("routing", "mine")
