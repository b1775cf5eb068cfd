"""`--learn`, `[policies] learn`, and `teola profile show`."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from teola import Runtime
from teola.cli import given
from teola.cli.given import Engines
from teola.cli.remembered import _habit, _machine, duration
from teola.config import Configuration, PoliciesTable
from teola.errors import InputError
from teola.graph import Op
from teola.habit import Habit
from teola.learning import EngineTimes, Learner, Lessons
from teola.profile import Cost, StepTime
from teola.runtime.engines import DEFAULTS
from teola.runtime.remembering import COMPONENTS, Memory, default_folder
from tests.command_line import CommandLine
from tests.planted import catches, edited

QUESTION = "question=Who keeps the lamp?"
SHOW = ("profile", "show")

LESSONS = Lessons(
    engines={
        "embedding": EngineTimes(
            {Op.EMBEDDING: Cost(0.0031, per_token_s=12e-6, item_tokens=180)},
            seen=64,
            varied=frozenset({Op.EMBEDDING}),
        ),
        "rerank": EngineTimes({Op.RERANKING: Cost(per_item_s=0.02)}, seen=3),
        "llm": EngineTimes(step=StepTime(0.012, per_token_s=1e-4), seen=120),
    },
    habits={
        ("advanced-rag", "generate"): Habit(6, 1.25, 96.0, 0.31, 0.75),
        ("search-agent", "judge"): Habit(4, branches={"true": 3, "false": 1}),
        ("search-agent", "fetch"): Habit(2, seconds=1.5),
    },
)


@pytest.fixture
def learned(tmp_path: Path) -> Path:
    """A folder in which something was learned on this machine, with the default engines."""
    learner = Learner()
    memory = Memory(tmp_path / "learned", learner)
    for name in LESSONS.engines:
        memory.recall(name, DEFAULTS[name])
    learner.recall(LESSONS)
    memory.keep()
    components = tmp_path / "learned" / COMPONENTS
    exactly = json.loads(components.read_text())
    exactly["lessons"]["habits"] = LESSONS.to_json()["habits"]
    components.write_text(json.dumps(exactly))
    return components.parent


# --- teola profile show -------------------------------------------------------------------------


def test_what_was_learned_is_shown_within_80_columns(teola: CommandLine, learned: Path) -> None:
    ended = teola(*SHOW, learned)
    assert (ended.code, ended.err) == (0, "")
    lines = [line.rstrip() for line in ended.out.splitlines()]
    assert max(map(len, lines)) <= 80
    assert "embedding  embedding, learned from 64 batches" in lines
    assert "llm  extractive, learned from 120 calls" in lines
    assert len([line for line in lines if f"{os.cpu_count()} cores, " in line]) == 3
    rows = {line.split()[0]: line.split()[1:] for line in lines if line}
    assert " ".join(rows["embedding"]) == "3.1 ms 12 µs 5.26 ms 37.7 ms"
    assert " ".join(rows["reranking"]) == "unknown 20 ms 20 ms 320 ms"
    assert "a step of 16         12 ms" in lines
    assert "prefilling of 1,024  114 ms" in lines
    assert rows["generate"] == ["6", "1.25", "96", "0.31", "0.75"]
    assert rows["judge"] == ["4", "false", "25", "%,", "true", "75", "%"]
    assert rows["fetch"] == ["2", "1.5", "s"]


def test_programs_read_the_same(teola: CommandLine, learned: Path) -> None:
    found = teola(*SHOW, learned, "--json").json
    assert set(found) == {"folder", "engines", "components"}
    engines = {one["engine"]: one for one in found["engines"]}
    assert set(engines["llm"]) == {
        "engine", "type", "machine", "seen", "unit", "costs", "step", "seconds",
    }  # fmt: skip
    assert engines["llm"]["seconds"]["a step of 1"] == 0.012
    assert engines["embedding"]["costs"]["embedding"]["per_token_s"] == 12e-6
    assert {"cpu", "cores", "memory_gib"} <= set(engines["llm"]["machine"])
    judge = next(one for one in found["components"] if one["component"] == "judge")
    assert set(judge) == {"app", "component", "calls", "prompt", "cached", "output", "output_p90",
        "seconds", "branches", "odds", "turns", "billed_calls", "planned", "billed",
        "billed_cached"}  # fmt: skip
    assert judge["odds"] == {"false": 0.25, "true": 0.75}


def test_a_folder_that_holds_nothing_says_so(
    teola: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert teola(*SHOW, tmp_path).out == f"nothing was learned in {tmp_path} yet\n"
    assert teola(*SHOW, tmp_path, "--json").json["engines"] == []
    assert "there is no folder" in teola(*SHOW, tmp_path / "lerned").refused(2)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert teola(*SHOW).out == f"nothing was learned in {tmp_path}/teola/learned yet\n"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0"),
        (2.5e-7, "0.25 µs"),
        (45e-6, "45 µs"),
        (0.0123456, "12.3 ms"),
        (4.0, "4 s"),
        (999.4e-6, "999 µs"),
        (999.6e-6, "1 ms"),
        (1e-3, "1 ms"),
        (0.9996, "1 s"),
        (1.0, "1 s"),
        (999.4, "999 s"),
        (999.6, "1,000 s"),
        (1234.5, "1,234 s"),
    ],
)
def test_times_are_readable(seconds: float, told: str) -> None:
    assert duration(seconds) == told


def test_each_kind_of_component_shows_what_it_does() -> None:
    turns = _habit("each", Habit(4, turns=(4, 4, 2, 2)))
    assert turns == ("each", "4", "", "", "", "", "", "2 turns")
    none = _habit("none", Habit(4, turns=(4,)))
    assert none[-1] == "0 turns"
    decides = _habit("decides", Habit(3, seconds=0.5, branches={"b": 2, "a": 1}))
    assert decides == ("decides", "3", "", "", "", "", "500 ms", "a 33 %, b 67 %")


def test_a_machine_is_a_line() -> None:
    known = {"cpu": "A", "cores": 4, "memory_gib": 16}
    assert _machine(known) == "A, 4 cores, 16 GiB"
    gpus = _machine({**known, "cpu": "", "gpus": ["H", "L", "H"]})
    assert gpus == "4 cores, 16 GiB, 2 x H, 1 x L"
    assert _machine({"cores": 4, "memory_gib": 16}) == "4 cores, 16 GiB"


# --- --learn ------------------------------------------------------------------------------------


def test_explain_goes_by_what_was_learned_and_runs_nothing(
    teola: CommandLine, learned: Path
) -> None:
    told = "learned from 64 batches"
    assert told not in teola("explain", "naive-rag").out
    ended = teola("explain", "naive-rag", "--learn", learned)
    assert (ended.code, ended.err) == (0, "")
    assert told in ended.out
    assert told not in teola("explain", "naive-rag", "--learn", "off").out
    missing = learned / "missing"
    assert "there is no folder" in teola("explain", "naive-rag", "--learn", missing).refused(2)
    assert not missing.exists()


def test_a_run_keeps_what_it_learns_where_it_is_told(teola: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "learned"
    page = tmp_path / "lamp.txt"
    page.write_text(f"Mara keeps the lamp of {tmp_path.name}.")
    words = ("run", "naive-rag", "-i", QUESTION, "-i", f"documents={page}")
    assert teola(*words).code == 0
    assert teola(*words, "--learn", folder).code == 0
    kept = {path.name.rpartition("-")[0] for path in folder.iterdir()}
    assert {"embedding", "llm", "vectorstore"} <= kept
    found = teola(*SHOW, folder, "--json").json
    assert {one["app"] for one in found["components"]} == {"naive-rag"}
    (tmp_path / "file").touch()
    told = teola(*words, "--learn", tmp_path / "file").refused(2)
    assert told.endswith(f"{tmp_path / 'file'} is no folder")


# --- where a server keeps it --------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this user's data."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "teola"


def folder_of(engines: Engines, learn: bool | str = True) -> Path | bool:
    """Where a server keeps what it learns; whether it learns where it keeps nothing."""
    with engines.configured(Configuration(policies=PoliciesTable(learn=learn)), ()) as runtime:
        return runtime.memory.folder if runtime.memory else runtime.learner is not None


@catches(
    "option-unheard",
    "--learn is not read",
    edited(Engines._learn, "if self.learn is None", "if self.learn is not None"),
)
def test_a_server_keeps_it_with_its_data(server: Path, tmp_path: Path) -> None:
    assert folder_of(Engines()) == default_folder() == server / "learned"
    data = tmp_path / "data"
    assert folder_of(Engines(data_dir=data)) == data / "learned"
    assert not data.exists(), "whoever makes it decides who may pass"
    assert folder_of(Engines(), learn=False) is False
    assert folder_of(Engines(), learn=str(tmp_path / "here")) == tmp_path / "here"
    assert folder_of(Engines(learn="off"), learn=str(tmp_path / "here")) is False
    assert folder_of(Engines(learn=str(tmp_path / "there")), learn=False) == tmp_path / "there"


def test_a_server_that_cannot_keep_it_learns_all_the_same(
    server: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.parent.touch()
    assert folder_of(Engines()) is True
    (record,) = [one for one in caplog.records if one.name == given.__name__]
    assert record.getMessage().startswith(f"what is learned is not kept: {server.parent} is no fol")
    with pytest.raises(InputError, match="is no folder"):
        folder_of(Engines(learn=str(server)))


def test_an_application_s_own_runtime_is_heeded(tmp_path: Path) -> None:
    for learn in (True, False, tmp_path):
        with Runtime(learn=learn) as own, Engines().runtime(own) as made:
            assert (made.learner is None) == (own.learner is None)
            assert (made.memory and made.memory.folder) == (own.memory and own.memory.folder)
    with Runtime(learn=tmp_path) as own, Engines(learn="off").runtime(own) as made:
        assert made.learner is None


def test_an_engine_is_probed_if_the_file_says_so() -> None:
    text = {"engines": {"llm": {"type": "extractive", "probe": False}}}
    found = Configuration.model_validate(text).engine_configs()
    assert found["llm"] == replace(DEFAULTS["llm"], probe=False)
    assert found["embedding"].probe is None
    assert json.loads(Configuration.model_validate(text).model_dump_json())["policies"]["learn"]
