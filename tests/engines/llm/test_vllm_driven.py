"""A vLLM of our own as an engine: its process is real, and runs a stand-in for vLLM's package.

Long because one engine is driven from its options to its death.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from teola.engine import Call, Delta, QueryContext, TextPart, Usage
from teola.errors import EngineError, EngineUnavailable, InputError
from teola.graph.ops import DecodeParams
from teola.graph.prompt import Role
from teola_engines.llm import block_keys, vllm_process
from teola_engines.llm.vllm_inprocess import VLLMInProcess
from tests.fake_vllm.vllm import ABORTS, BLOCK, BLOCKS, DIES, HANGS, SLOTS, WINDOW

FAKE = Path(__file__).parents[2] / "fake_vllm"
ONE, TWO, THREE = (
    TextPart(Role.CONTEXT, text) for text in ("one two three ", "four five six ", "seven?")
)
KV_TOKENS = BLOCK * BLOCKS


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("FAKE_VLLM_WORKER", str(vllm_process.WORKER))
    monkeypatch.setattr(vllm_process, "WORKER", FAKE / "worker.py")
    monkeypatch.setenv("FAKE_VLLM_LOG", str(tmp_path / "log"))
    return tmp_path / "log"


def noted(log: Path, key: str) -> list[dict[str, Any]]:
    """What vLLM was asked that has this key."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [entry for entry in map(json.loads, lines) if key in entry]


@asynccontextmanager
async def started(model: Path, **options: Any) -> AsyncIterator[VLLMInProcess]:
    defaults = {"dtype": "float32", "block_tokens": BLOCK, "max_num_seqs": SLOTS, "chat": False}
    defaults |= {"kv_events": False, "python": sys.executable, "max_sessions": 2}
    engine = VLLMInProcess(model=str(model), **{**defaults, **options})
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


def a_call(
    *parts: TextPart,
    prefix: Any = None,
    tenant: str = "default",
    deadline: float = float("inf"),
    priority: int = 0,
    **decode: Any,
) -> Call:
    context = QueryContext("q", tenant=tenant, deadline=deadline)
    return Call(context, parts, DecodeParams(**{"max_tokens": 3, **decode}), prefix, priority)


async def answer(engine: VLLMInProcess, call: Call) -> tuple[str, Delta]:
    deltas = [delta async for delta in engine.generate(call)]
    assert all(delta.finish_reason is None and delta.usage is None for delta in deltas[:-1])
    return "".join(delta.text for delta in deltas), deltas[-1]


def ids_of(engine: VLLMInProcess, *parts: TextPart) -> list[int]:
    assert engine._tokens is not None
    return engine._tokens.ids(parts, complete=True)


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.005)


async def test_an_engine_is_made_with_its_options(model_folder: Path, log: Path) -> None:
    options = {"max_model_len": 77, "options": {"seed": 5, "enforce_eager": False}}
    async with started(model_folder, **options, kv_gib=3, cores="0-1") as engine:
        assert engine.spec.window == WINDOW, "what vLLM says of itself"
    (entry,) = noted(log, "model")
    environment = entry.pop("environment")
    assert entry == {
        "model": str(model_folder),
        "dtype": "float32",
        "max_num_seqs": SLOTS,
        "max_num_batched_tokens": 512,
        "block_size": BLOCK,
        "enable_prefix_caching": True,
        "enforce_eager": False,
        "scheduling_policy": "priority",
        "max_model_len": 77,
        "seed": 5,
        "disable_log_stats": True,
    }
    assert Path(environment.pop("VLLM_RPC_BASE_PATH")).name.startswith("teola-vllm-")
    assert environment.pop("FAKE_VLLM_LOG") == str(log)
    del environment["FAKE_VLLM_WORKER"]
    assert environment == {
        "VLLM_CPU_KVCACHE_SPACE": "3",
        "VLLM_CPU_OMP_THREADS_BIND": "0-1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS": "1",
    }
    assert [entry["shutdown"] for entry in noted(log, "shutdown")] == [4.0]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"kv_events": True}, True),
        ({"kv_events": True, "options": {"kv_events_config": {}}}, False),
    ],
)
async def test_its_events_are_told_where_only_this_user_hears_them(
    options: dict[str, Any], told: bool, model_folder: Path, log: Path
) -> None:
    """Unless somebody else is to be told of them."""
    async with started(model_folder, **options) as engine:
        (entry,) = noted(log, "model")
        config = entry["kv_events_config"]
        if told:
            assert engine._feed is not None
            assert config == engine._feed.config
        else:
            assert config == {}
            assert engine._feed is None
            assert [change async for change in engine.prefix_changes()] == []


async def test_a_call_is_sent_whole_and_its_answer_comes_as_text(
    model_folder: Path, log: Path
) -> None:
    async with started(model_folder, salt_key="k") as engine:
        ids = ids_of(engine, ONE, TWO)
        call = a_call(ONE, TWO, tenant="t", priority=3, max_tokens=4, temperature=0.5, seed=0)
        deltas = [delta async for delta in engine.generate(call)]
        assert len(deltas) == 3
        assert [(one.finish_reason, one.usage) for one in deltas] == [
            (None, None), (None, None), ("length", Usage(len(ids), 4, 0)),
        ]  # fmt: skip
        expected = engine._tokens.stream(ids).feed(ids[:-5:-1], last=True)  # type: ignore[union-attr]
        assert "".join(one.text for one in deltas) == expected
        _, last = await answer(engine, call)
        assert last.usage == Usage(len(ids), 4, (len(ids) - 1) // BLOCK * BLOCK)
        assert engine.count_tokens(ONE.text) == len(ids_of(engine, ONE)) - 1
    first, second = noted(log, "ids")
    assert first["id"] != second["id"]
    assert {key: first[key] for key in ("ids", "salt", "priority")} == {
        "ids": ids,
        "salt": block_keys.tenant_salt("k", call.context),
        "priority": -3,
    }
    assert first["params"] == {
        "max_tokens": 4,
        "temperature": 0.5,
        "ignore_eos": False,
        "stop": None,
        "seed": 0,
        "extra_args": None,
        "detokenize": False,
        "structured_outputs": None,
        "output_kind": "delta",
    }


@pytest.mark.parametrize(
    ("decode", "held"),
    [
        ({"schema": "{}"}, {"json": "{}"}),
        ({"choices": ("a", "b")}, {"choice": ["a", "b"]}),
        ({"pattern": "a"}, {"regex": "a"}),
        ({"stop": ("x",)}, None),
    ],
)
async def test_what_sessions_do_not_know_is_asked_without_one(
    decode: dict[str, Any], held: Any, model_folder: Path, log: Path
) -> None:
    async with started(model_folder) as engine:
        prefix = await engine.prefill(a_call(ONE))
        text, last = await answer(engine, a_call(TWO, prefix=prefix, **decode))
        ids = ids_of(engine, ONE, TWO)
        assert last.usage is not None
        assert last.usage.prompt_tokens == len(ids)
        assert engine.sessions.idle == 0
        if "stop" in decode:
            assert text == "".join(f"<{id}>" for id in ids[:-4:-1])
    begun, asked = noted(log, "ids")
    assert (asked["ids"], asked["params"]["structured_outputs"]) == (ids, held)
    assert asked["params"]["stop"] == (["x"] if "stop" in decode else None)
    assert begun["id"] in [entry["ended"] for entry in noted(log, "ended")]


async def test_a_prompt_in_pieces_is_one_session(model_folder: Path, log: Path) -> None:
    async with started(model_folder) as engine:
        first = await engine.prefill(a_call(ONE, priority=2))
        assert (engine.sessions.idle, engine.sessions.idle_tokens) == (1, len(first.token_ids))
        second = await engine.prefill(a_call(TWO, prefix=first))
        assert second.parts == (ONE, TWO)
        assert second.token_ids == tuple(ids_of(engine, ONE, TWO))
        assert (second.engine, second.instance) == ("llm", 0)
        whole = ids_of(engine, ONE, TWO, THREE)
        _, last = await answer(engine, a_call(THREE, prefix=second))
        assert last.usage == Usage(len(whole), 3, len(second.token_ids))
        _, again = await answer(engine, a_call(THREE, prefix=second))
        assert again.usage == Usage(len(whole), 3, (len(whole) - 1) // BLOCK * BLOCK)
        assert engine.sessions.idle == 0
    pieces = noted(log, "ids")
    cuts = [len(first.token_ids), len(second.token_ids), len(whole), len(whole)]
    assert [entry["ids"] for entry in pieces] == [whole[:cut] for cut in cuts]
    assert [entry["params"]["max_tokens"] for entry in pieces] == [1, 1, 3, 3]
    assert [entry["params"]["ignore_eos"] for entry in pieces] == [True, True, False, False]
    assert len({entry["id"] for entry in pieces[:3]}) == 1
    assert pieces[3]["id"] != pieces[0]["id"]
    assert {entry["priority"] for entry in pieces[:2]} == {-2}, "a session keeps its own"


async def test_without_sessions_whole_blocks_are_warmed(model_folder: Path, log: Path) -> None:
    async with started(model_folder, max_sessions=0, block_tokens=4) as engine:
        ids = ids_of(engine, ONE)
        engine._block_tokens = len(ids) + 1
        short = await engine.prefill(a_call(ONE))
        assert noted(log, "ids") == []
        engine._block_tokens = len(ids)
        exact = await engine.prefill(a_call(ONE))
        assert (short.state, exact.state, engine.sessions.idle) == (None, None, 0)
        assert short.token_ids == exact.token_ids == tuple(ids)
        await answer(engine, a_call(TWO, prefix=exact))
        whole = ids_of(engine, ONE, TWO)
    assert [(one["ids"], one["params"]["max_tokens"]) for one in noted(log, "ids")] == [
        (ids, 1), (whole, 3),
    ]  # fmt: skip


@pytest.mark.parametrize("other", ["tenant", "nothing more"])
async def test_a_session_that_a_call_cannot_use_is_closed(
    other: str, model_folder: Path, log: Path
) -> None:
    async with started(model_folder) as engine:
        prefix = await engine.prefill(a_call(ONE, tenant="mine"))
        tenant, parts = ("yours", [TWO]) if other == "tenant" else ("mine", [])
        _, last = await answer(engine, a_call(*parts, prefix=prefix, tenant=tenant))
        assert last.usage is not None
        assert engine.sessions.idle == 0
        begun, asked = noted(log, "ids")
        assert asked["ids"] == ids_of(engine, ONE, *parts)
        await until(lambda: begun["id"] in [entry["ended"] for entry in noted(log, "ended")])
        with pytest.raises(EngineError, match="the prompt is empty"):
            await answer(engine, a_call())


async def test_what_a_model_cannot_take_is_refused_with_the_counts(
    model_folder: Path, log: Path
) -> None:
    async with started(model_folder, name="big") as engine:
        assert engine._process is not None
        engine._process.limits = vllm_process.VLLMLimits(
            len(ids_of(engine, ONE)) + 3, SLOTS, BLOCK, KV_TOKENS
        )
        await answer(engine, a_call(ONE, max_tokens=3))
        for call, output in ((a_call(ONE, max_tokens=4), 4), (a_call(ONE, TWO), 3)):
            with pytest.raises(EngineError) as caught:
                await answer(engine, call)
            count = len(ids_of(engine, *call.parts))
            assert str(caught.value) == (
                f"big: the prompt and its answer ({count} and {output}) exceed the context of "
                f"{engine.spec.window} tokens of '{model_folder}': use fewer or smaller chunks, or "
                "a smaller max_tokens"
            )
            assert not caught.value.retryable
        engine._process.limits = vllm_process.VLLMLimits(
            len(ids_of(engine, ONE)) + 1, SLOTS, BLOCK, KV_TOKENS
        )
        await engine.prefill(a_call(ONE, max_tokens=99))
        with pytest.raises(EngineError) as caught:
            await answer(engine, a_call(TextPart(Role.QUESTION, "")))
        assert str(caught.value) == "big: the prompt is empty: give it a text"
        with pytest.raises(EngineError) as caught:
            await answer(engine, a_call(ONE, schema="{", max_tokens=1))
        assert str(caught.value) == "big: vLLM refuses: ValueError: no JSON schema"


async def test_how_long_it_may_be_silent(model_folder: Path, log: Path) -> None:
    """A call is ended where nobody waits for it any more."""
    async with started(model_folder, timeout_s=0.05) as engine:
        hangs = {"seed": HANGS, "max_tokens": 9}
        with pytest.raises(EngineError) as caught:
            await answer(engine, a_call(ONE, **hangs))
        assert str(caught.value) == "llm: vLLM was silent for 0.05 s"
        assert caught.value.retryable
        engine._timeout_s = 60.0
        with pytest.raises(EngineError) as caught:
            await answer(engine, a_call(ONE, deadline=time.monotonic() + 0.05, **hangs))
        assert str(caught.value) == "llm: no answer before the query's deadline"
        assert not caught.value.retryable
        with pytest.raises(EngineError, match="before the query's deadline"):
            await engine.prefill(a_call(ONE, deadline=time.monotonic() - 1.0))
        with pytest.raises(EngineError) as caught:
            await answer(engine, a_call(ONE, seed=ABORTS))
        assert str(caught.value) == "llm: vLLM ended the call: abort"
        assert caught.value.retryable
        await until(
            lambda: (
                {one["id"] for one in noted(log, "ids")}
                == {one["ended"] for one in noted(log, "ended")}
            )
        )
        assert engine._process is not None
        assert not engine._process._streams


async def test_what_is_free_is_what_nobody_holds_but_idle_sessions(
    model_folder: Path, log: Path
) -> None:
    async with started(model_folder) as engine:
        process = engine._process
        assert process is not None
        assert await engine.capacity() == KV_TOKENS
        async for _ in engine.generate(a_call(ONE, TWO, seed=HANGS, max_tokens=9)):
            break
        process.kv_usage = 0.25
        assert await engine.capacity() == KV_TOKENS * 3 // 4
        prefix = await engine.prefill(a_call(ONE))
        process.kv_usage = 0.25
        assert await engine.capacity() == KV_TOKENS * 3 // 4 + len(prefix.token_ids)
        process.kv_usage = 0.0
        assert await engine.capacity() == KV_TOKENS, "no more than there is"
        engine.release(prefix)
        assert engine.sessions.idle == 0
    assert await engine.capacity() is None


async def test_a_vllm_that_died_fails_its_calls_and_is_started_anew(
    model_folder: Path, log: Path
) -> None:
    async with started(model_folder) as engine:
        prefix = await engine.prefill(a_call(ONE))
        hanging = asyncio.create_task(answer(engine, a_call(TWO, seed=HANGS, max_tokens=9)))
        await until(lambda: len(noted(log, "ids")) == 2)
        with pytest.raises(EngineUnavailable) as caught:
            await answer(engine, a_call(TWO, seed=DIES))
        message = "llm: vLLM's process died (its engine process died); its last word: (nothing)"
        assert (str(caught.value), caught.value.retryable) == (message, True)
        with pytest.raises(EngineUnavailable) as other:
            await hanging
        assert str(other.value) == message
        assert await engine.capacity() is None
        _, last = await answer(engine, a_call(TWO, prefix=prefix))
        assert last.usage is not None
        assert last.usage.prompt_tokens == len(ids_of(engine, ONE, TWO))
    assert len(noted(log, "model")) == 2


async def test_a_start_that_fails_says_why(model_folder: Path, log: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable) as caught:
        async with started(model_folder, dtype="refused"):
            pass
    assert str(caught.value) == (
        "llm: vLLM did not start (ValueError: no such dtype); its last word: (nothing)"
    )
    assert not caught.value.retryable
    with pytest.raises(EngineUnavailable) as caught:
        async with started(model_folder, python="no-such-python"):
            pass
    assert str(caught.value) == "llm: no Python at 'no-such-python': correct the option python"
    assert not caught.value.retryable
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\necho 'INFO 11-27 09:00:00 [a.py:1] it loads' >&2\nexec sleep 60\n")
    slow.chmod(0o755)
    with pytest.raises(EngineUnavailable) as caught:
        async with started(model_folder, python=str(slow), load_timeout_s=2.0):
            pass
    assert str(caught.value) == (
        "llm: vLLM did not load its model within 2 s; its last word: it loads"
    )
    assert caught.value.retryable


async def test_who_waits_for_a_start_shares_it(model_folder: Path, log: Path) -> None:
    async with started(model_folder) as engine:
        assert engine._process is not None
        await engine._process.stop()
        one, two = await asyncio.gather(*(answer(engine, a_call(part)) for part in (ONE, TWO)))
        assert one[1].finish_reason == two[1].finish_reason == "length"
    assert len(noted(log, "model")) == 2


async def test_before_a_start_and_after_an_end_it_says_so(model_folder: Path, log: Path) -> None:
    engine = VLLMInProcess(name="big", model=str(model_folder), python=sys.executable)
    assert (engine.reading, engine.spec.window, engine.spec.prefix_reuse) == (None, None, True)
    assert (engine.count_tokens("x" * 7), engine.count_tokens("x" * 8)) == (2, 3)
    work: list[Callable[[], Awaitable[object]]] = [
        lambda: answer(engine, a_call(ONE)),
        lambda: engine.prefill(a_call(ONE)),
    ]
    for wait in work:
        with pytest.raises(EngineError) as caught:
            await wait()
        assert str(caught.value) == "big: not started"
    async with started(model_folder) as ended:
        assert ended.reading is not None
        process = ended._process
    for wait in (lambda: answer(ended, a_call(ONE)), lambda: ended.prefill(a_call(ONE))):
        with pytest.raises(EngineError, match=r"^llm: not started$"):
            await wait()
    assert process is not None
    with pytest.raises(EngineUnavailable) as caught:
        process.open()
    assert (str(caught.value), caught.value.retryable) == ("llm: closed", False)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs must be 1 or more"),
        *(
            (
                {"max_num_seqs": 4, "max_sessions": sessions},
                "max_sessions must be within 0..4 (max_num_seqs), because every open session holds "
                "a slot",
            )
            for sessions in (-1, 5)
        ),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as caught:
        VLLMInProcess(name="big", model="m", **options)
    assert str(caught.value) == f"engine 'big': {told}"


@pytest.mark.parametrize(
    ("slots", "asked", "sessions"),
    [(1, None, 1), (4, None, 1), (7, None, 1), (8, None, 2), (4, 0, 0), (4, 4, 4)],
)
def test_a_quarter_of_the_slots_may_be_sessions(
    slots: int, asked: int | None, sessions: int
) -> None:
    engine = VLLMInProcess(model="m", max_num_seqs=slots, max_sessions=asked)
    assert engine.sessions.limit == sessions
    assert engine.spec.max_sequences == slots
