"""A real vLLM in a process of its own: the same tokens by every way, and nothing left behind.

Long because one vLLM is started for all of them.
"""

import asyncio
import contextlib
import os
import platform
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from experiments.common.tiny_model import make_model
from teola.engine import Call, LanguageModel, QueryContext, TextPart
from teola.errors import EngineError, EngineUnavailable, InputError
from teola.graph.ops import DecodeParams
from teola.graph.prompt import Role
from teola.runtime.hosts.model_server import has_bfloat16
from teola_engines.llm import vllm_process
from teola_engines.llm.vllm_inprocess import VLLMInProcess
from tests.engines.llm.listening import Listener, asked
from tests.soak.forms import short_and_long

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(420), pytest.mark.asyncio(loop_scope="module")]

WINDOW = 131_072
UNENDING = 100_000
"""Tokens of an answer that takes minutes, so that it is still being written when a busy machine
lets anybody look. Nobody waits for its end."""
WORDS = [
    "the",
    "engine",
    "reads",
    "café",
    "a",
    "prompt",
    "東京",
    "and",
    "writes,",
    "one",
    "by",
    "one:",
    "tokens!\n\n",
    "x",
    "=",
    "1",
    "<s>",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    shape = {"hidden": 64, "layers": 2, "heads": 2, "vocabulary": 1024, "positions": WINDOW}
    return str(make_model(folder, **shape, chat_template=True))


def an_engine(model, python, **options):
    defaults = {"dtype": "float32", "max_model_len": WINDOW, "max_num_seqs": 4, "kv_gib": 1}
    defaults["load_timeout_s"] = 500.0  # on a busy machine
    return VLLMInProcess(model=model, python=python, **{**defaults, "max_sessions": 2, **options})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(model, python):
    engine = an_engine(model, python)
    await engine.start()
    worker = psutil.Process(engine._process.pid)
    started = [worker, *worker.children(recursive=True)]
    shared = shared_memory(started)
    yield engine
    assert len(started) > 1
    assert shared
    await engine.close()
    await gone(started)
    await until(lambda: removed(shared))


def shared_memory(processes):
    """Files that vLLM's processes share: 160 MB, which outlive them if nobody removes them."""
    found = set()
    for process in processes:
        with contextlib.suppress(OSError):
            maps = Path(f"/proc/{process.pid}/maps").read_text()
            found |= {word for word in maps.split() if word.startswith("/dev/shm/psm_")}
    return found


def alive(process):
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def text_of(rng, words):
    return " ".join(rng.choice(WORDS) for _ in range(words)) + " "


def some_parts(seed, count=3, words=40):
    rng = random.Random(seed)
    roles = [rng.choice(list(Role)) for _ in range(count)]
    return [TextPart(role, text_of(rng, rng.randint(1, words))) for role in roles]


def a_call(parts, *, prefix=None, tenant="default", deadline=float("inf"), priority=0, **decode):
    options = {"max_tokens": 8, "ignore_eos": True, **decode}
    context = QueryContext("q", tenant=tenant, deadline=deadline)
    return Call(context, tuple(parts), DecodeParams(**options), prefix, priority)


async def answer(engine, call):
    """(text, the last Delta)."""
    async with asyncio.timeout(240):
        deltas = [delta async for delta in engine.generate(call)]
    assert all(delta.finish_reason is None for delta in deltas[:-1])
    return "".join(delta.text for delta in deltas), deltas[-1]


@pytest.mark.nightly
async def test_it_computes_in_bfloat16(model, python):
    """vLLM's attention in bfloat16 takes what the kernel gives only to those who ask for it."""
    engine = an_engine(model, python, dtype="bfloat16")
    await engine.start()
    try:
        _, last = await answer(engine, a_call(some_parts(3)))
    finally:
        await engine.close()
    assert last.usage.completion_tokens == 8


async def test_what_is_more_urgent_begins_first(engine, monkeypatch):
    """While four calls take all the places, and then three do, the last one to come goes first."""
    begun, loads = [], []
    deliver = engine._process._deliver

    def noting(event):
        if event["event"] == "load":
            loads.append((event["running"], event["waiting"]))
        deliver(event)

    monkeypatch.setattr(engine._process, "_deliver", noting)

    async def ask(name, seed, priority, tokens):
        call = a_call(some_parts(seed), priority=priority, max_tokens=tokens)
        async for _ in engine.generate(call):
            if name not in begun:
                begun.append(name)

    async with asyncio.timeout(240):
        long = [asyncio.create_task(ask(f"long {k}", k, 9, UNENDING)) for k in range(4)]
        while len(begun) < 4:
            await asyncio.sleep(0.01)
        short = []
        for name, priority in (("patient", -7), ("normal", 0), ("urgent", 7)):
            short.append(asyncio.create_task(ask(name, priority, priority, 4)))
            await asyncio.sleep(0)  # they come in this order
        while (4, 3) not in loads:  # vLLM has them all, and no place for one
            await asyncio.sleep(0.01)
        long[0].cancel()
        await asyncio.gather(*short)
        for task in long:
            task.cancel()
        await asyncio.wait(long)
    assert begun[4:] == ["urgent", "normal", "patient"]
    await until(lambda: all_free(engine))


@contextlib.contextmanager
def only_warming(engine):
    limit, engine.sessions.limit = engine.sessions.limit, 0
    yield
    engine.sessions.limit = limit


async def until(condition, limit_s=20.0):
    async with asyncio.timeout(limit_s):
        while not await condition():
            await asyncio.sleep(0.02)


async def gone(processes):
    """None is left, but for what the kernel has yet to clear away."""

    async def none_left():
        return not any(alive(process) for process in processes)

    await until(none_left)


async def removed(files):
    return not any(map(os.path.exists, files))


async def all_free(engine):
    process = engine._process
    return process.running == 0 and process.kv_usage == 0.0 and not engine.sessions.idle


# --- the same tokens --------------------------------------------------------------------------


async def in_pieces(engine, parts, cuts, **options):
    handle = None
    for lo, hi in zip([0, *cuts], cuts, strict=False):
        handle = await engine.prefill(a_call(parts[lo:hi], prefix=handle, **options))
    rest = parts[cuts[-1] :] if cuts else parts
    return handle, await answer(engine, a_call(rest, prefix=handle, **options))


@short_and_long("count", 60, 200, pytest.mark.nightly)
@pytest.mark.parametrize("way", ["sessions", "warming"])
async def test_pieces_give_the_tokens_of_the_whole_prompt(engine, way, count):
    """Random prompts, cut at random places; each tenant has a prefix cache of its own."""
    turn = asyncio.Semaphore(2)
    hits = []

    async def one(seed):
        rng = random.Random(seed)
        parts = some_parts(seed, rng.randint(2, 6))
        cuts = sorted(rng.sample(range(1, len(parts)), rng.randint(1, min(2, len(parts) - 1))))
        async with turn:
            handle, (text, last) = await in_pieces(engine, parts, cuts, tenant=f"{way}-{seed}")
            expected, cold = await answer(engine, a_call(parts, tenant=f"cold-{way}-{seed}"))
        assert (text, last.finish_reason) == (expected, "length")
        assert last.usage.completion_tokens == cold.usage.completion_tokens == 8
        assert last.usage.prompt_tokens == cold.usage.prompt_tokens
        assert cold.usage.cached_tokens == 0
        if way == "sessions":
            assert last.usage.cached_tokens >= len(handle.token_ids) > 0
        else:
            assert last.usage.cached_tokens % 32 == 0
        hits.append(last.usage.cached_tokens)

    with only_warming(engine) if way == "warming" else contextlib.nullcontext():
        await asyncio.gather(*map(one, range(count)))
    assert len(hits) == count
    assert sum(hits) > 20 * count
    await until(lambda: all_free(engine))


async def test_a_prefix_can_be_continued_more_than_once(engine):
    assert isinstance(engine, LanguageModel)
    parts = some_parts(1)
    others = [*parts[:2], *some_parts(2, 1)]
    prefix = await engine.prefill(a_call(parts[:2], tenant="twice"))
    assert engine.sessions.idle == 1
    found = await asyncio.gather(
        *(answer(engine, a_call(p[2:], prefix=prefix, tenant="twice")) for p in (parts, others))
    )
    for (text, _), whole in zip(found, (parts, others), strict=True):
        assert text == (await answer(engine, a_call(whole, tenant="once")))[0]
    assert found[0][1].usage.cached_tokens == len(prefix.token_ids)
    assert found[1][1].usage.cached_tokens % 32 == 0


async def test_a_handle_that_was_continued_can_be_dropped(engine):
    parts = some_parts(12)
    first = await engine.prefill(a_call(parts[:1]))
    second = await engine.prefill(a_call(parts[1:2], prefix=first))
    del first
    await asyncio.sleep(0.05)
    assert engine.sessions.idle == 1
    text, last = await answer(engine, a_call(parts[2:], prefix=second))
    assert last.usage.cached_tokens == len(second.token_ids)
    assert text == (await answer(engine, a_call(parts, tenant="once")))[0]


async def test_another_tenant_does_not_continue_a_session(engine):
    parts = some_parts(3, words=200)
    prefix = await engine.prefill(a_call(parts[:2], tenant="mine"))
    _, last = await answer(engine, a_call(parts[2:], prefix=prefix, tenant="yours"))
    assert last.usage.cached_tokens == 0
    assert engine.sessions.idle == 0


async def test_stop_strings_and_schemas_leave_the_session(engine):
    parts = some_parts(4)
    whole, _ = await answer(engine, a_call(parts, max_tokens=24))
    stop = whole[6:8]
    prefix = await engine.prefill(a_call(parts[:2]))
    text, last = await answer(engine, a_call(parts[2:], prefix=prefix, max_tokens=24, stop=(stop,)))
    assert text == whole[: whole.index(stop)]
    assert last.finish_reason == "stop"
    assert engine.sessions.idle == 0
    schema = '{"type": "string", "enum": ["yes", "no"]}'
    prefix = await engine.prefill(a_call(parts[:2]))
    call = a_call(parts[2:], prefix=prefix, max_tokens=24, schema=schema, ignore_eos=False)
    assert (await answer(engine, call))[0] in ('"yes"', '"no"')


# --- slots and memory -------------------------------------------------------------------------


async def test_nothing_waits_for_sessions_that_are_used_up(engine):
    """20 calls whose prefixes are all there before the first of them goes on; 4 slots."""
    prompts = [some_parts(seed) for seed in range(20)]
    prefixes = await asyncio.gather(*(engine.prefill(a_call(p[:2])) for p in prompts))
    assert engine.sessions.idle <= 2
    found = await asyncio.gather(
        *(answer(engine, a_call(p[2:], prefix=h)) for p, h in zip(prompts, prefixes, strict=True))
    )
    for (text, _), whole in zip(found, prompts, strict=True):
        assert text == (await answer(engine, a_call(whole, tenant="once")))[0]


async def test_idle_sessions_give_way_to_what_runs(engine):
    parts = some_parts(5)
    kept = [await engine.prefill(a_call(parts[:2], tenant=f"idle-{i}")) for i in range(2)]
    assert engine.sessions.idle == 2
    two = [answer(engine, a_call(some_parts(i))) for i in range(2)]
    await asyncio.gather(*two)
    assert engine.sessions.idle == 2
    three = [answer(engine, a_call(some_parts(i))) for i in range(3)]
    await asyncio.gather(*three)
    assert engine.sessions.idle == 1
    for i, prefix in enumerate(kept):
        text, last = await answer(engine, a_call(parts[2:], prefix=prefix, tenant=f"idle-{i}"))
        assert text == (await answer(engine, a_call(parts, tenant="once")))[0]
        assert (last.usage.cached_tokens == len(prefix.token_ids)) is (i == 1)


@pytest.mark.parametrize("how", ["release", "drop", "time"])
async def test_a_session_that_nobody_continues_is_closed(engine, how, monkeypatch):
    if how == "time":
        monkeypatch.setattr(engine.sessions, "_idle_s", 0.3)
    handle = await engine.prefill(a_call(some_parts(6)))
    assert engine.sessions.idle == 1
    await until(lambda: is_held(engine))
    if how == "release":
        engine.release(handle)
        assert engine.sessions.idle == 0
    elif how == "drop":
        del handle
    await until(lambda: all_free(engine))
    assert await engine.capacity() == engine._process.limits.kv_tokens


async def is_held(engine):
    return engine._process.kv_usage > 0


async def test_closing_a_stream_frees_its_sequence(engine):
    call = a_call(some_parts(7), max_tokens=UNENDING)
    async with contextlib.aclosing(engine.generate(call)) as out:
        await anext(out)
        await until(lambda: is_held(engine))
        assert await engine.capacity() < engine._process.limits.kv_tokens
    await until(lambda: all_free(engine))


@pytest.mark.parametrize("limit", [0, 2])
async def test_cancelling_a_prefill_frees_its_sequence(engine, limit, monkeypatch):
    monkeypatch.setattr(engine.sessions, "limit", limit)
    long = [TextPart(Role.CONTEXT, text_of(random.Random(8), 600))]
    task = asyncio.create_task(engine.prefill(a_call(long, tenant=f"cancelled-{limit}")))
    await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: all_free(engine))
    assert engine.sessions.available is (limit > 0)


# --- bad calls --------------------------------------------------------------------------------


async def test_bad_prompts_are_refused_and_harm_nobody(engine):
    other = asyncio.create_task(answer(engine, a_call(some_parts(9), max_tokens=64)))
    long = TextPart(Role.CONTEXT, text_of(random.Random(9), WINDOW))
    with pytest.raises(EngineError, match=rf"exceed the context of {WINDOW} tokens.*smaller"):
        await answer(engine, a_call([long]))
    with pytest.raises(EngineError, match="exceed the context"):
        await engine.prefill(a_call([long]))
    with pytest.raises(EngineError, match="the prompt is empty"):
        await answer(engine, a_call([TextPart(Role.QUESTION, "")]))
    with pytest.raises(EngineError, match="not valid Unicode"):
        await answer(engine, a_call([TextPart(Role.QUESTION, "\ud83d")]))
    with pytest.raises(EngineError, match="before the query's deadline"):
        await answer(
            engine, a_call(some_parts(9), deadline=time.monotonic() + 0.05, max_tokens=999)
        )
    with pytest.raises(EngineError, match="vLLM refuses"):
        await answer(engine, a_call(some_parts(9), schema="{"))
    assert (await other)[1].usage.completion_tokens == 64
    await until(lambda: all_free(engine))


async def test_what_it_keeps_is_told_in_the_keys_of_calls(engine):
    """Also of what sessions have computed."""
    listener, parts = Listener(engine), some_parts(12, words=120)
    await listener.until(lambda: listener.clearings)
    whole = a_call(parts, tenant="told", max_tokens=4)
    assert (await asked(engine, listener, whole))[::2] == (0, 0)
    found, keys, cached = await asked(engine, listener, whole)
    assert cached == found * engine.block_tokens > 0
    assert (await asked(engine, listener, a_call(parts, tenant="other", max_tokens=4)))[::2] == (
        0,
        0,
    )
    prefix = await engine.prefill(a_call(parts[:2], tenant="session"))
    begun = await asyncio.to_thread(
        engine.keys, a_call(parts[:2], tenant="session"), complete=False
    )
    await listener.until(lambda: listener.kept.issuperset(begun.blocks))
    call = a_call(parts[2:], prefix=prefix, tenant="session", max_tokens=4)
    found, ended, cached = await asked(engine, listener, call)
    assert ended.tokens == keys.tokens
    assert ended.blocks[: len(begun.blocks)] == begun.blocks
    assert (found, cached) == (len(begun.blocks), begun.tokens), "a session keeps half blocks too"
    await listener.stop()
    late = Listener(engine)
    await late.until(lambda: late.clearings)
    assert not late.kept
    _, keys, cached = await asked(engine, late, whole)
    assert cached > 0, "it kept what nobody here had heard of, and has said so by now"
    assert (await asked(engine, late, whole))[0] == (keys.tokens - 1) // engine.block_tokens
    await late.stop()


@pytest.mark.nightly
async def test_a_worker_killed_in_mid_call_fails_all_calls_and_comes_back(engine):
    parts, listener = some_parts(10), Listener(engine)
    await listener.until(lambda: listener.clearings)
    prefix = await engine.prefill(a_call(parts[:2]))
    await listener.until(lambda: listener.kept)
    worker = psutil.Process(engine._process.pid)
    started = [worker, *worker.children(recursive=True)]
    shared = shared_memory(started)
    assert shared
    begun, before = asyncio.Event(), len(engine._process._streams)

    async def ask():
        async for _ in engine.generate(a_call(parts, max_tokens=UNENDING)):
            begun.set()

    calls = [asyncio.create_task(ask()) for _ in range(3)]
    await until(lambda: are_sent(engine, before + 3))
    await asyncio.wait_for(begun.wait(), 60)
    worker.kill()  # at once: where the machine is busy they end before one more thing is awaited
    await listener.until(lambda: listener.clearings > 1)
    assert not listener.kept
    async with asyncio.timeout(60):  # by themselves they would not end
        errors = await asyncio.gather(*calls, return_exceptions=True)
    for error in errors:
        assert isinstance(error, EngineUnavailable)
        assert error.retryable
        assert "vLLM's process died" in str(error)
        assert "\n" not in str(error)
    await gone(started)
    await until(lambda: removed(shared))
    assert await engine.capacity() is None
    text, _ = await answer(engine, a_call(parts[2:], prefix=prefix))
    await listener.until(lambda: listener.clearings > 2)  # the new one is listened to
    assert text == (await answer(engine, a_call(parts, tenant="once")))[0]
    again = a_call(parts, tenant="once", max_tokens=2)
    await asked(engine, listener, again)
    found, _, cached = await asked(engine, listener, again)
    assert cached == found * engine.block_tokens > 0, "told as before"
    await listener.stop()


async def test_who_is_behind_with_reading_lets_others_go_on(engine):
    """Text is made of tokens on the event loop, which is not one call's alone."""
    deltas = engine.generate(a_call(some_parts(13), max_tokens=1500))
    await anext(deltas)
    *_, stream = engine._process._streams.values()
    await until(lambda: waiting(stream, 100))
    turns = 0

    async def others():
        nonlocal turns
        while True:
            turns += 1  # before it gives way: the first turn counts, too
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    for _ in range(50):  # none of them is waited for
        await anext(deltas)
    other.cancel()
    await deltas.aclose()
    assert turns >= 50


async def waiting(stream, count):
    return stream.qsize() >= count


async def are_sent(engine, count):
    return len(engine._process._streams) == count


async def test_the_death_of_the_engine_within_the_worker_is_seen(engine):
    await answer(engine, a_call(some_parts(11)))
    worker = psutil.Process(engine._process.pid)
    started = worker.children(recursive=True)
    core = next(child for child in worker.children() if "EngineCore" in child.name())
    deltas = engine.generate(a_call(some_parts(11), max_tokens=UNENDING))
    await anext(deltas)  # what vLLM tells of its load may still be of the call before
    core.kill()
    with pytest.raises(EngineUnavailable, match="vLLM's process died"):
        async for _ in deltas:
            pass
    await gone([worker, *started])


# --- bad starts -------------------------------------------------------------------------------


async def refused(engine):
    before = set(psutil.Process().children())
    with pytest.raises(EngineUnavailable) as caught:
        await engine.start()
    await engine.close()
    assert "\n" not in str(caught.value)
    assert not caught.value.retryable or "within" in str(caught.value)
    await gone(set(psutil.Process().children()) - before)
    return str(caught.value)


async def test_a_start_that_cannot_succeed_says_why(model, tmp_path):
    message = await refused(an_engine(model, sys.executable))
    assert "vLLM did not start" in message
    assert "No module named 'vllm'" in message
    message = await refused(an_engine(model, "no-such-python"))
    assert "no Python at 'no-such-python'" in message
    message = await refused(an_engine(str(tmp_path / "nothing"), None))
    assert "no tokenizer of model" in message
    engine = an_engine(model, None)
    with pytest.raises(EngineError, match="not started"):
        await answer(engine, a_call(some_parts(1)))
    await engine.close()


async def test_a_start_that_takes_too_long_is_given_up(model, python):
    message = await refused(an_engine(model, python, load_timeout_s=1.0))
    assert "did not load its model within 1 s" in message


@pytest.mark.nightly
async def test_arguments_that_vllm_refuses_are_told(model, python):
    message = await refused(an_engine(model, python, max_model_len=10 * WINDOW))
    assert "max_model_len" in message


async def test_the_worker_knows_whether_bfloat16_would_be_emulated(python):
    """As the kernel's list of what the processor can do says."""
    probe = "import vllm_worker; print(vllm_worker.emulates_bfloat16())"
    folder = vllm_process.WORKER.parent
    told = subprocess.run([python, "-c", probe], cwd=folder, capture_output=True, text=True)
    known = has_bfloat16() or platform.machine() != "x86_64"
    emulated = not known and not Path("/proc/driver/nvidia").exists()
    assert told.stdout.splitlines()[-1:] == [str(emulated)], told.stderr


async def test_options_are_checked_at_once(model):
    with pytest.raises(InputError, match=r"max_sessions must be within 0\.\.4 "):
        VLLMInProcess(model=model, max_num_seqs=4, max_sessions=5)
    with pytest.raises(InputError, match="max_num_seqs must be 1 or more"):
        VLLMInProcess(model=model, max_num_seqs=0)


OWNER = """
import asyncio, sys
from teola_engines.llm.vllm_inprocess import VLLMInProcess
asyncio.run(VLLMInProcess(model=sys.argv[1], python=sys.argv[2], kv_gib=1).start())
"""


async def test_nothing_survives_the_death_of_its_owner(model, python):
    owner = subprocess.Popen([sys.executable, "-c", OWNER, model, python])
    this = psutil.Process(owner.pid)

    async def engine_is_there():
        with contextlib.suppress(psutil.NoSuchProcess):  # some live for a moment only
            return any("EngineCore" in child.name() for child in this.children(recursive=True))
        return False

    try:
        await until(engine_is_there, 240)
        started = this.children(recursive=True)
        shared = shared_memory(started)
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    await gone(started)
    await until(lambda: removed(shared))
