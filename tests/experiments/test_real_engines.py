"""The comparison on real engines compares like with like, and its report says what was measured."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any, cast

import pytest

from experiments.real_engines import bounds, calls, pages, prompts, report, servers, systems
from experiments.real_engines.__main__ import main
from experiments.real_engines.measure import ONE, Measurement, Point, Sample
from experiments.real_engines.recording import Completion, Log, differences
from experiments.real_engines.steps import System
from experiments.real_engines.workload import APPS, Query, Workload, arrivals
from teola.engine import Splitting
from teola.errors import InputError
from teola.runtime.observe.trace import Trace
from teola_engines.documents.splitting import split
from tests.fake_openai import FakeOpenAI

CHUNKS = 4
RUN = {"system", "style", "app", "chunks", "load", "p50_s", "p95_s", "ttft_p50_s", "queries"}
RATIO = {"app", "chunks", "load", "against", "style", "ratio"}
PATH = {"app", "chunks", "bound_s", "p50_s", "fastest_s"}


class SmallWorkload(Workload):
    """With a short history: the stand-in for the LLM has no tokenizer file."""

    @property
    def _history(self) -> str:  # type: ignore[override]
        return "User: What is a name?\nAssistant: It is bound to an object."


def answer(messages: list[dict[str, Any]]) -> str:
    """Rewritings where they are wanted, else a text that depends on the whole prompt."""
    text = str(messages[-1]["content"])
    if re.fullmatch(r"\[[\d, ]+\]", text):
        text = "".join(map(chr, json.loads(text))).removeprefix("\x01")
    if "expanded queries" in text:
        return json.dumps({"queries": prompts.rewritings("it")})
    if re.search(r"Rewritings:\n$|Queries:|multiple perspectives", text):
        return prompts.expansion_text("it")
    return f"Found {zlib.crc32(text.encode())}."


@pytest.mark.server
@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # peers' connections
async def test_every_matched_and_expert_variant_makes_the_calls_that_ours_makes() -> None:
    """Real embedder, reranker and store; a stand-in for the remote LLM. `check_same` asserts."""
    with FakeOpenAI(answer, tokenizes=True) as llm, servers.embedded() as (dsn, _):
        async with (
            calls.opened(llm.url, llm.model, dsn) as engines,
            systems.ready(engines, systems.NAMES) as ready,
        ):
            workload = SmallWorkload(
                lambda text: split(text, Splitting(), engines.shared.encode), Path()
            )
            names = {systems.label(system) for system in ready}
            assert len(names) == len(ready) == 11
            logs = {app: await systems.check_same(ready, workload, app, CHUNKS) for app in APPS}
            asked = [seen.body or {} for seen in llm.requests]
    salts = {body["cache_salt"] for body in asked if body.get("max_tokens", 0) > 1}  # no probes
    assert len(salts) == len(names), "vLLM must find for nobody what it computed for another"
    chunks = len(logs["naive-rag"].stored)
    assert logs["naive-rag"].counts == (chunks + 1, chunks, 1, 0, 4)
    assert logs["advanced-rag"].counts == (chunks + 3, chunks, 3, 1, 4)
    assert all("Conversation so far" in c.prompt for c in logs["chat-rag"].completions)
    del ready, logs
    gc.collect()  # what the peers left open is reported here, and in no test that comes after


def test_other_calls_are_told_apart_and_other_answers_are_not() -> None:
    ours, theirs = _refined("Paris"), _refined("Rome")
    assert differences(ours, theirs) == []
    theirs.completions[1].prompt += " Be brief."
    assert [found.partition(":")[0] for found in differences(ours, theirs)] == ["prompts"]
    theirs = _refined("Paris")
    theirs.embedded.append("more")
    theirs.searched[0] = (2, ("chunk b",))
    found = [one.partition(":")[0] for one in differences(ours, theirs)]
    assert found == ["embedded texts", "searches"]


def _refined(text: str) -> Log:
    first = Completion(prompts.answer("Where?", None, "chunk a"), 32, text)
    second = Completion(prompts.refine("Where?", None, "chunk b", text), 32, f"{text}!")
    return Log(["chunk a"], ["chunk a"], [(2, ("chunk a",))], [], [first, second])


def test_arrivals_are_the_same_for_all_and_have_the_rate() -> None:
    times = arrivals(0.5, 8)
    assert times == sorted(times) == arrivals(0.5, 8)
    assert times[-1] == pytest.approx(8 / 0.5)
    assert times != [2.0 * (i + 1) for i in range(8)]


def test_every_query_is_new_and_documents_have_the_size() -> None:
    def lines(text: str) -> list[str]:
        return [text[i : i + 500] for i in range(0, len(text), 500)]

    workload = SmallWorkload(lines, Path())
    one, two = (workload.query("chat-rag", 20, ONE, place) for place in range(2))
    assert workload.query("chat-rag", 20, ONE, 0) == one
    others = [("chat-rag", 20, "50%", 0), ("chat-rag", 21, ONE, 0), ("naive-rag", 20, ONE, 0)]
    assert len({query.edition for query in [one, two, *(workload.query(*o) for o in others)]}) == 5
    assert one.document[:10] != two.document[:10]
    assert one.question[:10] != two.question[:10]
    assert str(one.history)[:10] != str(two.history)[:10]
    assert len(lines(one.document)) == pytest.approx(20, abs=2)
    assert workload.query("naive-rag", 20, ONE, 0).history is None
    long = workload.query("naive-rag", 4000, ONE, 0).document
    assert len(lines(long)) == pytest.approx(4000, rel=0.02)
    with pytest.raises(InputError, match="no text for 100,000 chunks"):
        workload.query("naive-rag", 100_000, ONE, 0)


class Instant:
    """A system that answers at once and notes the order, and what it was asked."""

    style = "expert"

    def __init__(self, name: str, order: list[str]) -> None:
        self.name, self._order = name, order
        self.asked: list[Query] = []

    async def answer(self, query: Query, log: Log) -> str:
        self._order.append(self.name)
        self.asked.append(query)
        log.first_token()
        return query.edition


async def test_systems_take_turns_and_loads_are_points_of_their_own() -> None:
    order: list[str] = []
    instant = [cast("System", Instant(name, order)) for name in ("teola", "asyncio")]
    workload = SmallWorkload(lambda text: [text[:900]] * (len(text) // 900 + 1), Path())
    ended: list[str] = []
    measured = Measurement(workload, {"process": os.getpid()}, ended.append)
    await measured.in_turns(instant, "naive-rag", 3, 2)
    assert order[0] == "asyncio"
    assert sorted(order[1:3]) == sorted(order[3:]) == ["asyncio", "teola"]
    await measured.arriving(instant[0], "naive-rag", 3, "50%", 200.0, 5)
    assert await measured.capacity(instant, "naive-rag", 3, 4) > 0
    assert len(ended) == 4 + 5 + 8
    sizes = {(p.system, p.load): len(p.samples) for p in measured.points.values()}
    assert sizes == {("teola", ONE): 2, ("asyncio", ONE): 2, ("teola", "50%"): 5}


async def test_all_systems_are_asked_the_same_queries_and_none_twice() -> None:
    order: list[str] = []
    found = [Instant(name, order) for name in ("teola", "asyncio", "haystack")]
    instant = cast("list[System]", found)
    workload = SmallWorkload(lambda text: [text[:900]] * (len(text) // 900 + 1), Path())
    measured = Measurement(workload, {"process": os.getpid()}, lambda name: None)
    await measured.in_turns(instant, "naive-rag", 3, 6)
    assert found[-1].asked.pop(0)  # the query that is not measured
    turns = [tuple(order[i : i + 3]) for i in range(1, len(order), 3)]
    assert {frozenset(turn) for turn in turns} == {frozenset(("teola", "asyncio", "haystack"))}
    assert len({(turn[i - 1], turn[i]) for turn in turns for i in (1, 2)}) > 2  # whom one follows
    await measured.capacity(instant, "naive-rag", 3, 4)
    for system in instant:
        await measured.arriving(system, "naive-rag", 3, "50%", 500.0, 7)
    one, *others = [sorted(one.asked, key=lambda query: query.edition) for one in found]
    assert others == [one, one]
    assert len({query.edition for query in one}) == 6 + 4 + 7


@pytest.fixture
def made() -> Any:
    """A report of two systems."""

    def point(system: str, style: str, seconds: float) -> Point:
        samples = [Sample(seconds, seconds / 2), Sample(seconds * 1.1, seconds / 2)]
        busy = {"vllm": 1.0, "process": 2.0, "postgres": 0.1}
        return Point(system, style, "chat-rag", 45, ONE, samples, busy)

    ours, theirs = point("teola", "", 2.0), point("haystack", "matched", 3.0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(report, "bounds", lambda traces: bounds.Bounds(1.5, 1.8))
        ours.traces = [cast("Trace", None)]
        about = {"vllm": "0.32.0", "model_parameters": 82_000_000}
        return report.make([ours, theirs], [], **about, repetitions=[2], load_queries=0)


def test_the_report_has_the_keys_that_are_promised(made: Any) -> None:
    assert [set(run) for run in made["runs"]] == [RUN, RUN]
    assert [set(ratio) for ratio in made["ratios"]] == [RATIO]
    for name, seconds in (("critical_path", 1.5), ("shared_model_path", 1.8)):
        [path] = made[name]
        assert set(path) == PATH
        assert (path["bound_s"], path["fastest_s"]) == (seconds, 2.0)
    assert made["ratios"][0]["ratio"] == pytest.approx(1.5)
    assert made["busy"][0]["process_s"] == pytest.approx(1.0)
    assert made["machine"]["vllm"] == "0.32.0"


def test_the_section_replaces_its_own_and_nothing_else(made: Any, tmp_path: Path) -> None:
    page, picture = tmp_path / "benchmarks.md", Path("images/latency.svg")
    pages.write_section(made, page, picture)
    page.write_text(page.read_text() + "\n## Another experiment\n")
    before = page.read_text()
    pages.write_section(made, page, picture)
    assert page.read_text() == before
    assert before.count("## The same engines") == 1
    options = "--apps chat-rag --chunks 45 --repetitions 2 --load-queries 0"
    assert f"`python -m experiments.real_engines {options}`" in before
    assert "Nine in ten repetitions lie between -5% and +5% of their median," in before
    assert "| chat-rag | 45 | 1.50 | 1.80 | 2.10 | 2.00 | 1.75 |  |" in before
    assert "| chat-rag | 45 | haystack matched | 3.15 | 3.29 | 1.50 | 1.50 | 2 |" in before
    pages.plot(made, tmp_path / picture)
    assert "haystack matched" in (tmp_path / picture).read_text()


def test_what_a_child_used_is_still_told_when_it_has_ended() -> None:
    busy = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    told = f"{parent}; print('ended', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", told], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ended\n"
        assert servers.busy_s({"parent": process.pid})["parent"] >= 0.2
        process.communicate()


def test_noise_is_told_of_all_repetitions() -> None:
    """Of 41 repetitions one is 21 % late; a median of maxima would not tell it."""
    quiet = [Sample(2.0 + 0.001 * i, 1.0) for i in range(-10, 11)]
    late = [Sample(2.0, 1.0)] * 19 + [Sample(2.42, 1.0)]
    points = [
        Point(name, "expert", "naive-rag", 45, ONE, samples)
        for name, samples in (("asyncio", quiet), ("haystack", late))
    ]
    loaded = Point("asyncio", "expert", "naive-rag", 45, "90%", [Sample(1, 1), Sample(9, 1)])
    found = report.make([*points, loaded], [])
    assert found["noise"] == pytest.approx(0.21)
    assert found["noise_interval"] == pytest.approx([-0.004, 0.004], abs=1e-3)
    once = report.make([Point("asyncio", "expert", "naive-rag", 45, ONE, late[:1])], [])
    assert (once["noise"], once["noise_interval"]) == (0.0, None)


def test_an_earlier_report_is_shown_again_and_unknown_names_are_refused(
    made: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "report.json"
    file.write_text(json.dumps(made))
    main(["--report", str(file), "--json"])
    assert json.loads(capsys.readouterr().out) == made
    with pytest.raises(SystemExit):
        main(["--systems", "dify"])
    assert "valid: teola, asyncio" in capsys.readouterr().err
