"""What the process of a vLLM of our own does with each line, on a stand-in for vLLM's package."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from teola_engines.llm import vllm_worker
from teola_engines.llm.vllm_worker import SHOWN, LineReader, Worker, Writer

FAKE = Path(__file__).parents[2] / "fake_vllm"
PLAIN = {"max_tokens": 3, "temperature": 0.5, "ignore_eos": True, "stop": []}
SAMPLING = {
    "max_tokens": 3,
    "temperature": 0.5,
    "ignore_eos": True,
    "stop": None,
    "seed": None,
    "extra_args": None,
    "detokenize": False,
    "structured_outputs": None,
    "output_kind": "delta",
}


@pytest.fixture(autouse=True)
def vllm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The stand-in, for one test."""
    monkeypatch.syspath_prepend(FAKE)
    monkeypatch.setenv("FAKE_VLLM_LOG", str(tmp_path / "log"))
    import vllm

    yield vllm
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        del sys.modules[name]


class Told(Writer):
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def send(self, event: str, **fields: Any) -> None:
        self.events.append({"event": event, **fields})

    def of(self, id: int) -> list[dict[str, Any]]:
        return [event for event in self.events if event.get("id") == id]


@pytest.fixture
def told() -> Told:
    return Told()


def a_worker(told: Told) -> Worker:
    return Worker(vllm_worker.load({"dtype": "float32"}, told), told)


def line(op: str, id: int, ids: list[int] | None = None, **more: Any) -> bytes:
    message = {"op": op, "id": id, "ids": ids, "salt": "s", "priority": -2, **PLAIN, **more}
    return json.dumps(message).encode()


async def settle(worker: Worker) -> None:
    """Until all that it does waits for more."""
    for _ in range(50):
        await asyncio.sleep(0)


def tokens(id: int, *pieces: list[int], cached: int = 0) -> list[dict[str, Any]]:
    """A call's events: pieces of its answer, of which the last one ends it."""
    event = {"event": "tokens", "id": id, "text": "", "cached": cached}
    ends = [None] * (len(pieces) - 1) + ["length"]
    return [
        {**event, "ids": ids, "finish": finish} for ids, finish in zip(pieces, ends, strict=True)
    ]


def asked(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]


@pytest.mark.parametrize(
    ("message", "differs"),
    [
        ({}, {}),
        ({"seed": 0}, {"seed": 0}),
        ({"extra": {"a": 1}}, {"extra_args": {"a": 1}}),
        ({"extra": {}}, {}),
        ({"stop": ["x"]}, {"stop": ["x"], "detokenize": True}),
        ({"ignore_eos": False, "max_tokens": 1}, {"ignore_eos": False, "max_tokens": 1}),
        ({"schema": "{}"}, {"structured_outputs": {"json": "{}"}}),
        ({"choices": ["a", "b"]}, {"structured_outputs": {"choice": ["a", "b"]}}),
        ({"pattern": "a+"}, {"structured_outputs": {"regex": "a+"}}),
        (
            {"schema": "{}", "choices": ["a"], "pattern": "b"},
            {"structured_outputs": {"json": "{}"}},
        ),
        ({"choices": ["a"], "pattern": "b"}, {"structured_outputs": {"choice": ["a"]}}),
    ],
)
def test_a_call_is_put_to_vllm_in_its_own_words(
    message: dict[str, Any], differs: dict[str, Any]
) -> None:
    found = vars(vllm_worker.sampling(PLAIN | message))
    if found["structured_outputs"] is not None:
        found["structured_outputs"] = vars(found["structured_outputs"])
    assert found == SAMPLING | differs


async def test_calls_are_answered_side_by_side_each_under_its_id(
    told: Told, tmp_path: Path
) -> None:
    worker = a_worker(told)
    worker.handle(line("call", 7, [1, 2, 3, 4, 5]))
    worker.handle(line("call", 8, [1, 2, 3, 4, 9, 9], max_tokens=1))
    await settle(worker)
    assert told.of(7) == tokens(7, [5], [4, 3])
    assert told.of(8) == tokens(8, [9], cached=4)
    calls = [entry for entry in asked(tmp_path) if "ids" in entry]
    assert [(one["id"], one["ids"], one["salt"], one["priority"]) for one in calls] == [
        ("7", [1, 2, 3, 4, 5], "s", -2),
        ("8", [1, 2, 3, 4, 9, 9], "s", -2),
    ]
    assert not worker._tasks


async def test_a_session_goes_on_with_each_piece_until_the_last(told: Told) -> None:
    worker = a_worker(told)
    worker.handle(line("open", 1, [1, 2], last=False, max_tokens=1))
    await settle(worker)
    assert told.of(1) == tokens(1, [2])
    worker.handle(line("more", 1, [3, 4, 5, 6], last=False, max_tokens=1))
    worker.handle(line("more", 1, [7], last=True, max_tokens=2))
    await settle(worker)
    assert told.of(1) == [
        *tokens(1, [2]), *tokens(1, [6]), *tokens(1, [7], [6], cached=4),
    ]  # fmt: skip
    assert not worker._tasks
    worker.handle(line("more", 1, [8]))
    assert told.of(1)[-1] == {"event": "error", "id": 1, "message": "the session has ended"}


async def test_a_session_of_one_piece_ends_with_it(told: Told) -> None:
    worker = a_worker(told)
    worker.handle(line("open", 1, [1, 2], last=True))
    await settle(worker)
    assert not worker._tasks
    assert not worker._chunks


async def test_what_is_aborted_ends_without_a_word(told: Told, vllm: Any, tmp_path: Path) -> None:
    worker = a_worker(told)
    worker.handle(line("call", 1, [1, 2], seed=vllm.HANGS))
    worker.handle(line("open", 2, [1, 2], last=False, max_tokens=1))
    await settle(worker)
    before = len(told.events)
    for id in (1, 2, 3):  # there is no third one
        worker.handle(json.dumps({"op": "abort", "id": id}).encode())
    await settle(worker)
    assert len(told.events) == before
    assert not worker._tasks
    assert sorted(entry["ended"] for entry in asked(tmp_path) if "ended" in entry) == ["1", "2"]
    assert not worker.ended.is_set()


async def test_a_call_that_fails_is_told_and_others_go_on(told: Told) -> None:
    worker = a_worker(told)
    worker.handle(line("call", 1, [1], schema="{"))
    worker.handle(line("call", 2, [1], max_tokens=1))
    await settle(worker)
    assert told.of(1) == [{"event": "error", "id": 1, "message": "ValueError: no JSON schema"}]
    assert told.of(2) == tokens(2, [1])
    assert not worker.ended.is_set()
    assert not worker._tasks


async def test_the_death_of_its_engine_ends_the_process(told: Told, vllm: Any) -> None:
    worker = a_worker(told)
    worker.handle(line("call", 1, [1], seed=vllm.DIES))
    await settle(worker)
    assert told.events == [{"event": "failed", "message": "its engine process died"}]
    assert worker.ended.is_set()


def test_an_error_is_told_by_its_deepest_cause_in_one_line() -> None:
    deepest = ValueError("a\n  b")
    middle, outer = KeyError("x"), RuntimeError("y")
    middle.__cause__, outer.__cause__ = deepest, middle
    assert vllm_worker.one_line(outer) == "ValueError: a b"
    assert vllm_worker.one_line(RuntimeError("")) == "RuntimeError: "
    exact = "x" * (SHOWN - len("ValueError: "))
    assert vllm_worker.one_line(ValueError(exact)) == f"ValueError: {exact}"
    assert vllm_worker.one_line(ValueError(f"{exact}y")) == f"ValueError: {exact}"


@pytest.mark.parametrize(
    ("arguments", "emulates", "given"),
    [
        ({"dtype": "auto", "model": "m"}, True, {"dtype": "float32", "model": "m"}),
        ({"dtype": "auto"}, False, {"dtype": "auto"}),
        ({"dtype": "half"}, True, {"dtype": "half"}),
        (
            {"dtype": "half", "kv_events_config": {"endpoint": "e"}},
            False,
            {"dtype": "half", "kv_events_config": {"endpoint": "e"}},
        ),
    ],
)
def test_an_engine_is_made_with_what_the_driver_says(
    arguments: dict[str, Any],
    emulates: bool,
    given: dict[str, Any],
    told: Told,
    tmp_path: Path,
    vllm: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vllm_worker, "emulates_bfloat16", lambda: emulates)
    before = dict(arguments)
    llm = vllm_worker.load(arguments, told)
    (entry,) = asked(tmp_path)
    del entry["environment"]
    assert entry == {**given, "disable_log_stats": True}
    assert arguments == before
    assert vllm_worker.limits(llm) == {
        "max_model_len": vllm.WINDOW,
        "max_num_seqs": vllm.SLOTS,
        "block_tokens": vllm.BLOCK,
        "kv_tokens": vllm.BLOCK * vllm.BLOCKS,
    }
    llm.vllm_config.cache_config.num_gpu_blocks = None
    assert vllm_worker.limits(llm)["kv_tokens"] == 0


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("cpu", [True, False])
@pytest.mark.parametrize(("avx", "amx"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_only_a_cpu_that_knows_no_bfloat16_emulates_it(
    machine: str,
    cpu: bool,
    avx: int,
    amx: int,
    vllm: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = SimpleNamespace(
        _is_avx512_bf16_supported=lambda: bool(avx), _is_amx_tile_supported=lambda: bool(amx)
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cpu=known))
    monkeypatch.setattr(vllm.current_platform, "is_cpu", lambda: cpu)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    expected = cpu and machine == "x86_64" and not (avx or amx)
    assert vllm_worker.emulates_bfloat16() is expected
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cpu=SimpleNamespace()))
    assert vllm_worker.emulates_bfloat16() is (cpu and machine == "x86_64"), "an older torch"


async def test_of_the_load_the_last_word_is_told_after_a_while(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_worker, "LOAD_INTERVAL_S", 0.01)
    logger = vllm_worker.load_logger(told)(None)

    def stats(usage: float, running: int, waiting: int, skipped: int) -> SimpleNamespace:
        return SimpleNamespace(
            kv_cache_usage=usage,
            num_running_reqs=running,
            num_waiting_reqs=waiting,
            num_skipped_waiting_reqs=skipped,
        )

    logger.record(None)
    assert logger._due is None
    for count in (1, 2):
        for usage in (0.1, 0.2):
            logger.record(stats(usage * count, count, 3, 1), None, mm_cache_stats=None)
            logger.record(None)
        assert len(told.events) == count - 1, "not at once"
        while len(told.events) < count:
            await asyncio.sleep(0.001)
    logger.log_engine_initialized()
    await asyncio.sleep(0.03)
    assert told.events == [
        {"event": "load", "kv_usage": 0.2 * count, "running": count, "waiting": 4}
        for count in (1, 2)
    ]


def test_events_are_lines_of_json_and_whole_however_a_pipe_takes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = bytearray()

    def write(descriptor: int, data: bytes) -> int:
        assert descriptor == 5
        written.extend(data[:7])
        return min(7, len(data))

    monkeypatch.setattr(os, "write", write)
    Writer(5).send("tokens", id=1, ids=[1, 2])
    Writer(5).send("load")
    assert bytes(written) == b'{"event":"tokens","id":1,"ids":[1,2]}\n{"event":"load"}\n'


async def test_a_process_does_what_each_line_says_until_it_is_to_end(
    told: Told, vllm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first line is what it is made with; others count once it is ready, each for itself."""
    gone = threading.Event()
    monkeypatch.setattr(vllm_worker, "die", gone.set)
    ours, theirs = os.pipe()
    os.write(theirs, b'{"dtype": "float32"}\n')
    serving = asyncio.create_task(vllm_worker.serve(LineReader(ours), told))
    async with asyncio.timeout(20):
        while not told.events:
            await asyncio.sleep(0.001)
        assert [event["event"] for event in told.events] == ["ready"]
        first, second = (line("call", id, [id, 1], max_tokens=1) for id in (7, 8))
        os.write(theirs, first + b"\n" + second + b"\n")
        while not (told.of(7) and told.of(8)):
            await asyncio.sleep(0.001)
        assert [told.of(id) for id in (7, 8)] == [tokens(7, [1]), tokens(8, [1])]
        os.write(theirs, line("call", 9, [1], seed=vllm.DIES) + b"\n")
        await serving
    assert told.events[-1] == {"event": "failed", "message": "its engine process died"}
    os.close(theirs)
    assert await asyncio.to_thread(gone.wait, 20), "its driver has gone"
    os.close(ours)
    asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
