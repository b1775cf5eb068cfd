"""The driver's end of `vllm_worker.py`: start it, speak with it, see it die, leave none behind."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from teola.errors import EngineError, EngineUnavailable, MissingExtra

WORKER: Final = Path(__file__).with_name("vllm_worker.py")
PROJECT: Final = Path(__file__).parents[2]
STOP_LIMIT_S: Final = 6.0
LOG_LIMIT_S: Final = 1.0
LOG_LINES: Final = 200
SHOWN: Final = 300

WorkerEvent = dict[str, Any]


@dataclass(frozen=True, slots=True)
class VLLMLimits:
    """What a running vLLM told of itself. kv_tokens: what its KV cache holds."""

    max_model_len: int
    max_num_seqs: int
    block_tokens: int
    kv_tokens: int


class VLLMProcess:
    """A worker that is running, or has died. Use from one event loop."""

    def __init__(
        self, name: str, process: Process, folder: tempfile.TemporaryDirectory[str]
    ) -> None:
        self.name = name
        self.limits: VLLMLimits
        self.kv_usage = 0.0
        """Share of the KV cache that sequences hold, a tenth of a second ago."""
        self.running = 0
        """Sequences that vLLM was running then; idle sessions do not count."""
        self.dead: EngineUnavailable | None = None
        """Why it serves no more."""
        self._process, self._folder = process, folder
        self._ids = itertools.count()
        self._streams: dict[int, asyncio.Queue[WorkerEvent | EngineError]] = {}
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self._failure = ""
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watch = asyncio.create_task(self._run(), name=f"{name}-worker")

    @property
    def pid(self) -> int:
        """The worker's process id, which is its process group's as well."""
        return self._process.pid

    # --- life ---------------------------------------------------------------------------------

    @classmethod
    async def start(
        cls,
        name: str,
        python: str,
        environment: Mapping[str, str],
        arguments: Mapping[str, Any],
        timeout_s: float,
    ) -> VLLMProcess:
        """Start a worker and wait until its model is loaded. Raises EngineUnavailable."""
        folder = tempfile.TemporaryDirectory(prefix="teola-vllm-")  # for sockets, which vLLM leaves
        try:
            process = await asyncio.create_subprocess_exec(
                python,
                str(WORKER),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env={**os.environ, "VLLM_RPC_BASE_PATH": folder.name, **environment},
            )
        except BaseException:
            folder.cleanup()
            raise
        worker = cls(name, process, folder)
        try:
            worker._write(dict(arguments))
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(worker._ready)
        except TimeoutError:
            await worker.stop()
            raise EngineUnavailable(
                f"{name}: vLLM did not load its model within {timeout_s:g} s; its last word: "
                f"{worker._last_word()}"
            ) from None
        except BaseException:
            await worker.stop()
            raise
        return worker

    async def stop(self) -> None:
        """End the worker with all its children; what is open fails."""
        self.dead = self.dead or EngineUnavailable(f"{self.name}: closed", retryable=False)
        self._signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_LIMIT_S):
                await asyncio.shield(self._watch)
        self._kill()
        await self._watch

    def _kill(self) -> None:
        """Kill the whole group: vLLM's engine is a child of the worker."""
        self._signal(signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def _signal(self, number: int) -> None:
        """Process.send_signal would reap a worker that has ended before asyncio can."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def _run(self) -> None:
        """Deliver events until the worker is gone, then make sure of it and tell everyone."""
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        log = asyncio.create_task(self._read_log(stderr))
        try:
            with suppress(ValueError, KeyError):
                async for line in _lines(stdout):
                    self._deliver(json.loads(line))
        finally:
            self._kill()
            stdin.close()
            await asyncio.wait([log], timeout=LOG_LIMIT_S)
            log.cancel()
            await self._process.wait()
            self._folder.cleanup()
            self._process._transport.close()  # type: ignore[attr-defined]  # what a pipe still holds
            self._fail()

    def _fail(self) -> None:
        if self.dead is None:
            why = self._failure or f"exit status {self._process.returncode}"
            retryable = self._ready.done()
            doing = "vLLM's process died" if retryable else "vLLM did not start"
            message = f"{self.name}: {doing} ({why}); its last word: {self._last_word()}"
            self.dead = EngineUnavailable(message, retryable=retryable)
        for stream in self._streams.values():
            stream.put_nowait(self.dead)
        if not self._ready.done():
            self._ready.set_exception(self.dead)
            self._ready.exception()

    async def _read_log(self, stream: asyncio.StreamReader) -> None:
        async for line in _lines(stream):
            self._log.append(line.decode(errors="replace").strip())

    def _last_word(self) -> str:
        """The last error in the log, if there is one, else its last line; one line, shortened."""
        lines = [line for line in self._log if line] or ["(nothing)"]
        errors = [line for line in lines if _ERROR.search(line)]
        found = _PREFIX.sub("", errors[-1] if errors else lines[-1])
        return found if len(found) <= SHOWN else found[: SHOWN - 1] + "…"

    # --- messages -----------------------------------------------------------------------------

    def open(self) -> int:
        """An id for a new call or session, whose events are kept from now on.

        Raises EngineUnavailable if the worker has died.
        """
        if self.dead is not None:
            raise self._death()
        id = next(self._ids)
        self._streams[id] = asyncio.Queue()
        return id

    def send(self, op: str, id: int, **fields: Any) -> None:
        """Send a request; it is lost if the worker has died, of which `receive` tells."""
        if self.dead is None:
            self._write({"op": op, "id": id, **fields})

    async def receive(self, id: int) -> WorkerEvent:
        """The next `tokens` event of an id. Raises EngineError, EngineUnavailable."""
        stream = self._streams[id]
        if not stream.empty():  # else who is behind would keep the loop until it has caught up
            await asyncio.sleep(0)
        event = await stream.get()
        if isinstance(event, EngineUnavailable):
            stream.put_nowait(event)
            raise self._death()
        if isinstance(event, EngineError):
            raise event
        return event

    def close(self, id: int, *, abort: bool) -> None:
        """Forget an id; abort: the worker is still at it."""
        if self._streams.pop(id, None) is not None and abort:
            self.send("abort", id)

    def _death(self) -> EngineUnavailable:
        """A fresh error for each who asks: a traceback grows on one that is raised again."""
        assert self.dead is not None
        return EngineUnavailable(str(self.dead), retryable=self.dead.retryable)

    def _write(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def _deliver(self, event: WorkerEvent) -> None:
        kind = event["event"]
        if kind == "tokens":
            if stream := self._streams.get(event["id"]):
                stream.put_nowait(event)
        elif kind == "error":
            if stream := self._streams.get(event["id"]):
                stream.put_nowait(EngineError(f"{self.name}: vLLM refuses: {event['message']}"))
        elif kind == "load":
            self.kv_usage, self.running = event["kv_usage"], event["running"]
        elif kind == "failed":
            self._failure = event["message"]
        elif kind == "ready":
            self.limits = VLLMLimits(**{field: event[field] for field in VLLMLimits.__slots__})
            self._ready.set_result(None)


_ERROR: Final = re.compile(r"\b\w*(?:Error|Exception)\b: (?!Engine core init)")
_PREFIX: Final = re.compile(r"^(\([^)]*\) )?(?:[A-Z]+ [\d-]+ [\d:.]+ \[[^\]]*\] )?\s*")


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length."""
    rest = b""
    while chunk := await stream.read(1 << 16):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
    if rest:
        yield rest


def environment(model: str, kv_gib: int, cores: str | None) -> dict[str, str]:
    """What a worker's vLLM reads from its environment: settings for a CPU, and no telemetry.

    PYTHONSAFEPATH: the worker's folder must not be searched for modules.
    """
    found = {
        "PYTHONSAFEPATH": "1",
        "VLLM_CPU_KVCACHE_SPACE": str(kv_gib),
        "VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
    if Path(model).is_dir():
        found["HF_HUB_OFFLINE"] = "1"
    if cores is not None:
        found["VLLM_CPU_OMP_THREADS_BIND"] = cores
    return found


def find_python(name: str, wanted: str | None) -> str:
    """The Python of an environment with vLLM. Raises MissingExtra, EngineUnavailable (wanted).

    wanted: a path, or a command on the PATH; None: this very interpreter if it has vLLM, else
    .venv-vllm beside pyproject.toml, in the current folder or in the checkout that we run from.
    """
    if wanted is not None:
        found = shutil.which(wanted)
        if found is None:
            raise EngineUnavailable(
                f"{name}: no Python at {wanted!r}: correct the option python", retryable=False
            )
        return found
    here = importlib.util.find_spec("vllm")
    if here is not None and here.origin:  # not merely a folder of that name
        return sys.executable
    for folder in (Path.cwd(), PROJECT):
        python = folder / ".venv-vllm" / "bin" / "python"
        if (folder / "pyproject.toml").is_file() and python.is_file():
            return str(python)
    raise MissingExtra(
        f"engine {name!r}",
        "vllm",
        "vllm",
        "run `make vllm`, or name the Python of an environment that has it (option python)",
    )
