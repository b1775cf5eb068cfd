"""What a runtime learns, and where it keeps it."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from teola import App, EngineConfig, Generate, Runtime, component
from teola.engine import Call, Delta, Usage
from teola.errors import InputError
from teola.graph import Op
from teola.learning import Learner, Lessons
from teola.profile import EngineProfile, Profile, StepTime
from teola.runtime import remembering
from teola.runtime.remembering import COMPONENTS, Memory, mementos_in
from teola.runtime.sim import Sim
from teola.runtime.sim.outcome import Planned
from teola.runtime.values import Tokens
from teola.testing.hash_engines import HashModel
from tests.planted import catches, edited

PROMPT_S, STEP_S, TOKENS = 0.03, 0.01, 8
SECRET = "sk-do-not-tell"


class Steady(HashModel):
    """A prompt takes 30 ms, a token 10 ms; an answer has eight."""

    def __init__(self, name: str = "llm", api_key: str = "", **_: Any) -> None:
        super().__init__(name)

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        now = asyncio.get_running_loop().time()
        for k in range(TOKENS):
            now += STEP_S if k else PROMPT_S
            await asyncio.sleep(now - asyncio.get_running_loop().time())
            yield Delta("word ")
        yield Delta("", "stop", Usage(20, TOKENS))


def app(runtime: Runtime, template: Any = None) -> App:
    outputs = {"answer": "answer"}
    given = {"inputs": {"question": "text"}, "outputs": outputs, "runtime": runtime}
    return App("asked", template or Generate(), **given)


def steady(learn: bool | str | Path = True, **options: Any) -> Runtime:
    return Runtime({"llm": EngineConfig(Steady, options)}, learn=learn)


MANY = 16
"""Queries that take longer than an epoch."""


def ask(runtime: Runtime, times: int = 8) -> App:
    one = app(runtime)
    for k in range(times):
        one.run(question=f"What is {k}?")
    return one


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that a process would write to if it wrote to any by itself."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(folder)
    return folder


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


# --- what is learned -----------------------------------------------------------------------------


def test_live_calls_teach_what_simulated_ones_do() -> None:
    """Times within what sleeping on a busy machine allows; lengths to the token."""
    with steady() as runtime:
        ask(runtime, 12)
        assert runtime.learner is not None
        live = runtime.learner.snapshot()
        plan = app(runtime).optimiser(runtime, None).plan({}, {})
    true = StepTime(base_s=STEP_S, prefill_s=PROMPT_S - STEP_S)
    learner = Learner()
    profile = Profile("steady", {"llm": EngineProfile(step=true, max_batch=256)})
    sim = Sim(profile, outcomes=Planned(answer_tokens=TOKENS), learner=learner)
    for k in range(12):
        sim.submit(plan, {"question": Tokens(4)}, at=float(k), app="asked")
    sim.run()
    simulated = learner.snapshot()
    (key,) = simulated.habits
    assert live.habits.keys() == simulated.habits.keys()
    assert live.habits[key].output == simulated.habits[key].output == TOKENS / 16
    assert live.habits[key].calls == simulated.habits[key].calls
    assert live.engines["llm"].seen == simulated.engines["llm"].seen
    found, expected = live.engines["llm"].step, simulated.engines["llm"].step
    assert found is not None
    assert expected is not None
    assert found.seconds(1) == pytest.approx(expected.seconds(1), rel=0.5)
    assert found.seconds(1) >= STEP_S * 0.9
    assert found.prefill(20) == pytest.approx(expected.prefill(20), rel=0.6)


def test_functions_are_learned_live() -> None:
    async def slow(question: str) -> str:
        await asyncio.sleep(0.05)
        return question.upper()

    with Runtime() as runtime:
        one = app(runtime, component(slow, outputs="answer", name="slow"))
        for _ in range(3):
            one.run(question="x")
        assert runtime.learner is not None
        habit = runtime.learner.snapshot().habits["asked", "slow"]
    assert 0.045 < (habit.seconds or 0) < 0.5


@catches(
    "learn-false-learns",
    "it learns although it must not",
    edited(
        "teola.runtime.runtime:Runtime.__init__",
        "Learner(AtWork()) if learn else None",
        "Learner()",
    ),
)
def test_it_learns_nothing_where_it_must_not(home: Path) -> None:
    with steady(learn=False) as runtime:
        one = ask(runtime)
        assert runtime.learner is None
        assert "not known yet" in one.explain(question="?").text()
    assert files(home) == []


def test_nothing_is_written_where_no_folder_is_given(home: Path) -> None:
    with steady() as runtime:
        one = ask(runtime, MANY)
        assert "llm: learned from" in one.explain(question="?").text()
        assert runtime.memory is None
    assert files(home) == []


# --- where it is kept ----------------------------------------------------------------------------


def test_each_engine_has_a_file_and_a_second_runtime_recalls_them(tmp_path: Path) -> None:
    folder = tmp_path / "learned" / "here"
    with steady(folder) as runtime:
        assert "not known yet" in app(runtime).explain(question="?").text()
        ask(runtime)
    llm, components = sorted(files(folder), key=lambda name: name == COMPONENTS)
    assert llm.startswith("llm-")
    assert components == COMPONENTS
    kept = {one.path.name: one for one in mementos_in(folder)}
    assert (kept[llm].engine, kept[llm].kind) == ("llm", "Steady")
    assert kept[llm].made_on["cores"] == len(os.sched_getaffinity(0))
    assert set(kept[llm].lessons.engines) == {"llm"}
    assert kept[components].lessons.habits.keys() == {("asked", "generate")}
    with steady(folder) as runtime:
        one = ask(runtime, 1)
        assert "llm: learned from" in one.explain(question="?").text()
        assert runtime.learner is not None
        known = runtime.learner.lessons.engines["llm"]
        assert known == kept[llm].lessons.engines["llm"], "one query does not replace eight"
    assert files(folder) == sorted([llm, components])


def test_nobody_else_looks_into_the_folder(tmp_path: Path) -> None:
    """Nor into what is made above it, which root's PostgreSQL must be able to pass through."""
    folder = tmp_path / "data" / "learned"
    with steady(folder) as runtime:
        ask(runtime)
    assert files(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == (0o711 if os.geteuid() == 0 else 0o700)


@catches(
    "memory-any-model",
    "another model's times are recalled",
    edited(remembering._digest, '"options": dict(config.options)', '"options": {}'),
)
def test_another_model_has_a_file_of_its_own(tmp_path: Path) -> None:
    with steady(tmp_path, model="a") as runtime:
        ask(runtime)
    with steady(tmp_path, model="b") as runtime:
        assert not runtime.profile_for(["llm"]).engine("llm").timed, "before it is probed"


@catches(
    "memory-tells-options",
    "options stand in the file",
    edited(
        remembering._write, '{"engine": engine,', '{"options": "sk-do-not-tell", "engine": engine,'
    ),
)
def test_secrets_do_not_reach_the_files(tmp_path: Path) -> None:
    with steady(tmp_path, api_key=SECRET) as runtime:
        ask(runtime)
    texts = [(tmp_path / name).read_text() for name in files(tmp_path)]
    assert len(texts) == 2
    assert not any(SECRET in text for text in [*texts, *files(tmp_path)])


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"engine": "llm"}', "\udcff"])
def test_a_file_that_cannot_be_read_is_reported_and_replaced(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with steady(tmp_path) as runtime:
        ask(runtime)
    for name in files(tmp_path):
        (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    with caplog.at_level(logging.WARNING), steady(tmp_path) as runtime:
        one = ask(runtime, MANY)
        assert "llm: learned from" in one.explain(question="?").text()
    told = [record.getMessage() for record in caplog.records]
    assert sum("what was learned cannot be read from" in one for one in told) == 2
    assert len(list(mementos_in(tmp_path))) == 2


@catches(
    "memory-in-place",
    "a file is written over in place",
    edited(
        remembering._write,
        "os.replace(file.name, path)",
        "path.write_text(Path(file.name).read_text()), os.unlink(file.name)",
    ),
)
def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """Who has it open reads the old one to its end."""
    with steady(tmp_path) as runtime:
        ask(runtime)
    path = next(tmp_path.glob("llm-*.json"))
    before = path.read_text()
    with path.open() as open_one:
        learner = Learner()
        memory = Memory(tmp_path, learner)
        memory.recall("llm", EngineConfig(Steady))
        learner.recall(Lessons(9, {"llm": one_step(9.0)}))
        memory.keep()
        assert open_one.read() == before
    assert json.loads(path.read_text())["lessons"]["engines"]["llm"]["step"]["base_s"] == 9.0
    assert not list(tmp_path.glob("*.new"))


def one_step(base_s: float) -> Any:
    data = {"costs": {}, "step": {"base_s": base_s}, "seen": 99, "varied": []}
    lessons = {"version": 1, "epoch": 1, "engines": {"llm": data}, "habits": []}
    return Lessons.from_json(lessons).engines["llm"]


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A disk on which nothing can be put in place."""

    def refused(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(remembering.os, "replace", refused)
    yield
    monkeypatch.undo()


@pytest.mark.usefixtures("full")
def test_a_full_disk_is_reported_and_leaves_nothing_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), steady(tmp_path) as runtime:
        ask(runtime)
    assert "what was learned cannot be written" in caplog.text
    assert files(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot keep what is learned"):
        steady(tmp_path / "file" / "here")


def test_any_way_to_make_an_engine_will_do(tmp_path: Path) -> None:
    """Also one that has no name, and engines whose names are none for files."""
    learner = Learner()
    memory = Memory(tmp_path, learner)
    learner.recall(Lessons(1, {"a/../b": one_step(1.0)}))
    assert not memory.recall("a/../b", EngineConfig(functools.partial(Steady)))
    memory.keep()
    assert len(files(tmp_path)) == 1
    again = Learner()
    assert Memory(tmp_path, again).recall("a/../b", EngineConfig(functools.partial(Steady)))
    assert set(again.lessons.engines) == {"a/../b"}


async def test_it_is_written_from_time_to_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembering, "KEPT_S", 0.02)
    learner = Learner()
    memory = Memory(tmp_path, learner)
    memory.recall("llm", EngineConfig(Steady), asyncio.get_running_loop())
    await asyncio.sleep(0.05)
    assert files(tmp_path) == [], "nothing is known"
    learner.recall(Lessons(1, {"llm": one_step(1.0)}))
    for _ in range(100):
        await asyncio.sleep(0.02)
        if any(name.endswith(".json") for name in files(tmp_path)):
            break
    (one,) = mementos_in(tmp_path)
    assert one.lessons.engines["llm"].step == StepTime(base_s=1.0)
    assert one.made_on
    assert Op.DECODING not in one.lessons.engines["llm"].costs
