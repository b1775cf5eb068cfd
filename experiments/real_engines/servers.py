"""What runs beside the orchestrators: the vLLM on a core of its own, and PostgreSQL with pgvector.

With two cores or more, vLLM gets the first of them, and this process and PostgreSQL the next: the
placement that a machine with one accelerator an engine comes closest to. The random model has 83 M
parameters. On a processor that has to emulate bfloat16 those would be eight times slower than with
it, and the embedder, in float32 anyway, no slower: there the model is so small that a prefill and
a chunk to embed keep their proportion.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from experiments.common.tiny_model import make_model
from teola.runtime.hosts.model_server import ModelServer, ServerOptions, has_bfloat16
from teola_engines.vectorstore.embedded import EmbeddedPostgres

MODEL: Final = "random-llama"
SMALLER: Final = {"hidden": 448, "layers": 5, "heads": 7}
WINDOW: Final = 8192


@dataclass(frozen=True, slots=True)
class Servers:
    """Where everything is. folder: the model's. processes: pids by name, for their times. cores:
    how many they have together."""

    url: str
    model: str
    dsn: str
    folder: Path
    processes: dict[str, int]
    cores: int

    @property
    def tokenizer(self) -> Path:
        return self.folder / "tokenizer.json"

    @property
    def parameters(self) -> int:
        """Of the model."""
        from safetensors import safe_open

        found = 0
        for file in self.folder.glob("*.safetensors"):
            with safe_open(file, "np") as tensors:
                found += sum(math.prod(tensors.get_slice(k).get_shape()) for k in tensors.keys())  # noqa: SIM118
        return found


@contextmanager
def running(
    python: Path | None, model: Path | None, told: Callable[[str, float], None] | None
) -> Iterator[Servers]:
    """Start everything and end it again; nothing is left behind.

    python: of the environment with vLLM. model: a folder; None makes the random one. Raises
    InputError, EngineUnavailable.
    """
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="teola-real-") as folder:
        shape = {} if has_bfloat16() else SMALLER
        where = model or make_model(Path(folder) / MODEL, chat_template=True, **shape)
        options = ServerOptions(
            str(where),
            port=0,
            python=python,
            name=MODEL,
            cores=str(cores[0]) if len(cores) > 1 else None,
            window=WINDOW,
            log=Path(folder) / "vllm.log",
        )
        server = ModelServer(options)
        try:
            server.start(told)
            _allow(cores[1:2] or cores)
            with embedded() as (dsn, postgres):
                processes = {"vllm": server.pid, "process": os.getpid(), "postgres": postgres}
                yield Servers(server.url, MODEL, dsn, where, processes, len(cores))
        finally:
            server.stop()
            _allow(cores)


def _allow(cores: list[int]) -> None:
    """Bind every thread of this process, those of libraries too, and so its later children."""
    for thread in psutil.Process().threads():
        os.sched_setaffinity(thread.id, set(cores))


@contextmanager
def embedded() -> Iterator[tuple[str, int]]:
    """A PostgreSQL of its own: its superuser's dsn (the peers make tables), and its pid."""
    with tempfile.TemporaryDirectory(prefix="teola-real-", ignore_cleanup_errors=True) as folder:
        server = EmbeddedPostgres(folder)
        try:
            dsn, _ = server.start()
            yield dsn, server.pid() or os.getpid()
        finally:
            server.close()


def busy_s(processes: dict[str, int]) -> dict[str, float]:
    """Processor seconds that each has used so far, its children included, also those that ended."""
    found = {}
    for name, pid in processes.items():
        first = psutil.Process(pid)
        if name == "process":  # this one's children are the others
            found[name] = _used(first, ended=False)
        else:
            tree = [first, *first.children(recursive=True)]
            found[name] = sum(_used(process, ended=True) for process in tree)
    return found


def _used(process: psutil.Process, ended: bool) -> float:
    """ended: with those of its children that have ended, whose seconds the system leaves to it."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    own = times.user + times.system
    return float(own + times.children_user + times.children_system if ended else own)
