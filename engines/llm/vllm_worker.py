"""A vLLM in a process of its own, driven over pipes: one JSON object a line, in both directions.

Run by path, with the interpreter of an environment that has vLLM; it imports nothing of Teola. The
first line it reads is the arguments of vLLM's engine. Then, each with an `id` chosen by the driver:

    {"op": "call", "ids": [...], ...}   a prompt, answered by a stream
    {"op": "open", "ids": [...], ...}   a session: a prompt to be continued (vLLM's StreamingInput)
    {"op": "more", "ids": [...], ...}   what follows in that session; "last" if nothing follows it
    {"op": "abort"}                     end it, whatever it is; nothing is answered

and it writes

    {"event": "ready", ...}             the limits of the engine
    {"event": "failed", "message"}      it could not start, or its engine died; the process ends
    {"event": "load", ...}              use of the KV cache, at most ten times a second
    {"event": "tokens", "id", ...}      new tokens; with `finish`, the end of a call or of a chunk
    {"event": "error", "id", "message"} this call has failed

Whatever vLLM prints goes to stderr. When the driver dies, so does this process, with its children.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import platform
import select
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import suppress
from multiprocessing import resource_tracker
from typing import Any

PR_SET_PDEATHSIG = 1
SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA = 158, 0x1023, 18  # of Linux on x86_64
LOAD_INTERVAL_S = 0.1
SHOWN = 300
SHUTDOWN_S = 4.0

WorkerMessage = dict[str, Any]


class Writer:
    """Sends events to the driver."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, event: str, **fields: Any) -> None:
        data = json.dumps({"event": event, **fields}, separators=(",", ":")).encode() + b"\n"
        while data:
            data = data[os.write(self._descriptor, data) :]


class Worker:
    """Calls and sessions in progress."""

    def __init__(self, llm: Any, writer: Writer) -> None:
        self._llm, self._writer = llm, writer
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._chunks: dict[int, asyncio.Queue[WorkerMessage]] = {}
        self.ended = asyncio.Event()

    def handle(self, line: bytes) -> None:
        """Does what a line asks for."""
        message = json.loads(line)
        op, id = message["op"], message["id"]
        if op == "abort":
            if id in self._tasks:
                self._tasks[id].cancel()
        elif op == "more":
            if id in self._chunks:
                self._chunks[id].put_nowait(message)
            else:
                self._writer.send("error", id=id, message="the session has ended")
        else:
            if op == "open":
                self._chunks[id] = asyncio.Queue()
            self._tasks[id] = asyncio.create_task(self._run(message))

    async def _run(self, message: WorkerMessage) -> None:
        from vllm.v1.engine.exceptions import EngineDeadError

        id = message["id"]
        try:
            await self._stream(message)
        except EngineDeadError:
            self._writer.send("failed", message="its engine process died")
            self.ended.set()
        except Exception as error:  # noqa: BLE001 - the process's edge: told to the driver
            self._writer.send("error", id=id, message=one_line(error))
        finally:
            self._tasks.pop(id, None)
            self._chunks.pop(id, None)

    async def _stream(self, message: WorkerMessage) -> None:
        id = message["id"]
        params = sampling(message)
        prompt = self._session(message) if id in self._chunks else tokens(message)
        priority = message["priority"]
        async for out in self._llm.generate(prompt, params, str(id), priority=priority):
            if not out.outputs:
                continue
            found = out.outputs[0]
            self._writer.send(
                "tokens",
                id=id,
                ids=list(found.token_ids),
                text=found.text,
                cached=out.num_cached_tokens or 0,
                finish=found.finish_reason,
            )

    async def _session(self, message: WorkerMessage) -> AsyncGenerator[Any, None]:
        """The chunks of a session, as they come."""
        from vllm.engine.protocol import StreamingInput

        chunks = self._chunks[message["id"]]
        yield StreamingInput(tokens(message), sampling(message))
        while not message.get("last"):
            message = await chunks.get()
            yield StreamingInput(tokens(message), sampling(message))


def tokens(message: WorkerMessage) -> Any:
    """The prompt as vLLM takes it; vLLM changes the list that it is given."""
    from vllm.inputs import tokens_input

    return tokens_input(list(message["ids"]), cache_salt=message["salt"])


def sampling(message: WorkerMessage) -> Any:
    """vLLM makes text only where it looks for stop strings: a session would begin its answer with
    the tokens that its earlier chunks were cut off at."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

    held: dict[str, Any] = {}
    if message.get("schema"):
        held = {"json": message["schema"]}
    elif message.get("choices"):
        held = {"choice": list(message["choices"])}
    elif message.get("pattern"):
        held = {"regex": message["pattern"]}
    return SamplingParams(
        max_tokens=message["max_tokens"],
        temperature=message["temperature"],
        ignore_eos=message["ignore_eos"],
        stop=message["stop"] or None,
        seed=message.get("seed"),
        extra_args=message.get("extra") or None,
        detokenize=bool(message["stop"]),
        structured_outputs=StructuredOutputsParams(**held) if held else None,
        output_kind=RequestOutputKind.DELTA,
    )


def one_line(error: BaseException) -> str:
    """An error's class and beginning, its deepest cause's if there is one."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:SHOWN]


# --- life ---------------------------------------------------------------------------------------


def load(arguments: Mapping[str, Any], writer: Writer) -> Any:
    """An AsyncLLM, made on the main thread: its children die with the thread that makes them."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    if arguments["dtype"] == "auto" and emulates_bfloat16():
        arguments = {**arguments, "dtype": "float32"}
    if events := arguments.get("kv_events_config"):
        from vllm.config.kv_events import KVEventsConfig

        arguments = {**arguments, "kv_events_config": KVEventsConfig(**events)}
    args = AsyncEngineArgs(**arguments, disable_log_stats=True)
    return AsyncLLM.from_engine_args(args, stat_loggers=[load_logger(writer)])


def emulates_bfloat16() -> bool:
    """Whether this is a CPU without bfloat16, vLLM's choice, in which it is ten times slower."""
    import torch
    from vllm.platforms import current_platform

    flags = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    known = any(getattr(torch.cpu, flag, bool)() for flag in flags)
    return bool(current_platform.is_cpu()) and platform.machine() == "x86_64" and not known


def load_logger(writer: Writer) -> Callable[..., Any]:
    """vLLM's way to be told of every step's statistics."""
    from vllm.v1.metrics.loggers import StatLoggerBase

    class LoadLogger(StatLoggerBase):  # type: ignore[misc]
        """Passes the last statistics on, not each of them."""

        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
            self._last: tuple[float, int, int] | None = None
            self._due: asyncio.TimerHandle | None = None

        def record(self, scheduler_stats: Any, *args: Any, **more: Any) -> None:
            if scheduler_stats is None:
                return
            stats = scheduler_stats
            waiting = stats.num_waiting_reqs + stats.num_skipped_waiting_reqs
            self._last = (stats.kv_cache_usage, stats.num_running_reqs, waiting)
            if self._due is None:
                self._due = asyncio.get_running_loop().call_later(LOAD_INTERVAL_S, self._tell)

        def _tell(self) -> None:
            self._due = None
            if self._last is not None:
                usage, running, waiting = self._last
                writer.send("load", kv_usage=usage, running=running, waiting=waiting)

        def log_engine_initialized(self) -> None:
            """Nothing to say."""

    return LoadLogger


def limits(llm: Any) -> dict[str, int]:
    """What the driver must know of the engine."""
    config = llm.vllm_config
    cache = config.cache_config
    return {
        "max_model_len": config.model_config.max_model_len,
        "max_num_seqs": config.scheduler_config.max_num_seqs,
        "block_tokens": cache.block_size,
        "kv_tokens": (cache.num_gpu_blocks or 0) * cache.block_size,
    }


async def serve(pipe: LineReader, writer: Writer) -> None:
    """Load, then do what the driver says until SIGTERM."""
    arguments = json.loads(pipe.first())
    pipe.watch()
    try:
        llm = load(arguments, writer)
    except Exception as error:  # noqa: BLE001 - the process's edge: told to the driver
        writer.send("failed", message=one_line(error))
        return
    worker = Worker(llm, writer)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, worker.ended.set)
    pipe.deliver = lambda line: loop.call_soon_threadsafe(worker.handle, line)
    writer.send("ready", **limits(llm))
    await worker.ended.wait()
    llm.shutdown(timeout=SHUTDOWN_S)


class LineReader:
    """Reads the driver's lines on a thread, which also sees that the driver is gone while the main
    thread is busy loading. The driver sends nothing between its first line and `ready`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines = self._read()
        self.deliver: Callable[[bytes], object] = lambda line: None

    def first(self) -> bytes:
        """The first line, waited for."""
        return next(self._lines, b"") or die()

    def watch(self) -> None:
        """Deliver what follows, from a thread."""
        threading.Thread(target=self._run, name="driver", daemon=True).start()

    def _run(self) -> None:
        for line in self._lines:
            self.deliver(line)
        die()

    def _read(self) -> Iterator[bytes]:
        """Lines until the driver closes its end or dies (another process may hold that end)."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        if hasattr(os, "pidfd_open"):
            with suppress(OSError):
                poll.register(os.pidfd_open(os.getppid()), select.POLLIN)
        rest = b""
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if self._descriptor not in ready:
                return
            chunk = os.read(self._descriptor, 1 << 16)
            if not chunk:
                return
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines


def die() -> bytes:
    """End this process and all that it has started, at once. It leads a process group.

    Only the resource tracker stays a moment longer, to free the shared memory of the others.
    """
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def die_with_parent() -> None:
    """For the children: the kernel kills them when this process dies, however it does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def allow_tiles() -> None:
    """Ask the kernel for the tiles (AMX) that vLLM computes attention in bfloat16 with. It does not
    ask itself, and its workers die at their first prompt. Forked children have what was allowed."""
    if sys.platform == "linux" and platform.machine() == "x86_64":
        ctypes.CDLL(None).syscall(SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)


def main() -> None:
    allow_tiles()
    driver, events = os.dup(0), os.dup(1)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # inherited by the tracker, which must outlive us
    resource_tracker.ensure_running()
    if os.getpgrp() != os.getpid():
        os.setsid()  # what is killed with this process, see die; not the tracker

    def in_child() -> None:
        os.close(driver)
        os.close(events)
        die_with_parent()

    os.register_at_fork(after_in_child=in_child)
    asyncio.run(serve(LineReader(driver), Writer(events)))
    die()


if __name__ == "__main__":
    main()
elif __name__ == "__mp_main__":  # a spawned child imports this file first
    die_with_parent()
    allow_tiles()
