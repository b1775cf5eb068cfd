"""Two vLLMs of one random model on this machine: how they are started, and what they say of their
prefix caches.

Each has a core of its own where there are two, and room for some two thirds of what it takes to
keep all manuals. They compute as many prompt tokens a step as they are sent at once, so that the
order is decided by the scheduler alone, live as in the simulator.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import psutil

from experiments.real_engines.servers import busy_s
from teola import EngineConfig
from teola.errors import EngineError
from teola.runtime.hosts.model_server import STEP_TOKENS, ModelServer, ServerOptions

MODEL: Final = Path(".teola/models/tiny-82m")
COUNT: Final = 2
BLOCKS: Final = 321
"""Of the KV cache of each. One of them vLLM keeps for itself, and nothing is ever in it."""
SEQUENCES: Final = 8
WINDOW: Final = 2048
LIMIT_S: Final = 60.0
"""For what a server is asked beside its calls."""
RESETS: Final = {"VLLM_SERVER_DEV_MODE": "1"}
"""With it there is a route that empties the prefix cache."""


class Prefixes(NamedTuple):
    """What the servers have counted since they were started, in tokens: of prompts, and of what was
    found of them."""

    asked: int
    found: int

    def since(self, before: Prefixes) -> Prefixes:
        """What came in between."""
        return Prefixes(self.asked - before.asked, self.found - before.found)


@dataclass(frozen=True, slots=True)
class Pair:
    """The servers, running."""

    servers: tuple[ModelServer, ...]

    def engine(self, routing: str) -> EngineConfig:
        """Both as one engine, under this routing policy."""
        options = {
            "max_sequences": SEQUENCES,
            "max_batch": STEP_TOKENS,
            "connect_timeout_s": LIMIT_S,
        }
        pool = [{"url": one.url, "kv_events": one.kv_events} for one in self.servers]
        return EngineConfig("vllm", options, pool=pool, routing=routing)

    def empty(self) -> None:
        """Let them forget all that they keep. Raises EngineError if one does not."""
        for server in self.servers:
            until = time.monotonic() + LIMIT_S
            while not _post(server, "/reset_prefix_cache").get("success"):
                if time.monotonic() > until:
                    raise EngineError(f"{server.url} does not empty its cache: something runs")
                time.sleep(0.1)

    def prefixes(self) -> Prefixes:
        """By their own counters."""
        pages = [_page(server) for server in self.servers]
        asked, found = (
            sum(_counted(page, f"prefix_cache_{what}_total") for page in pages)
            for what in ("queries", "hits")
        )
        return Prefixes(asked, found)

    def others_s(self) -> float:
        """Processor seconds that everything else on this machine has used so far."""
        ours = {"process": os.getpid(), **{one.url: one.pid for one in self.servers}}
        told = psutil.cpu_times()
        busy = sum(told) - told.idle - getattr(told, "iowait", 0.0) - getattr(told, "guest", 0.0)
        return float(busy - sum(busy_s(ours).values()))


@contextmanager
def running(python: Path, model: Path, told: Callable[[str], None]) -> Iterator[Pair]:
    """Start them, and end them again. Raises InputError, EngineUnavailable."""
    cores = sorted(os.sched_getaffinity(0))
    with ExitStack() as stack:
        servers = []
        for i in range(COUNT):
            told(f"starting vLLM {i + 1}")
            options = ServerOptions(
                str(model),
                port=0,
                python=python,
                cores=str(cores[i]) if len(cores) >= COUNT else None,
                window=WINDOW,
                extra=("--num-gpu-blocks-override", str(BLOCKS)),
                environment=RESETS,
            )
            servers.append(stack.enter_context(ModelServer(options)))
        yield Pair(tuple(servers))


def _page(server: ModelServer) -> str:
    return httpx.get(f"{_root(server)}/metrics", timeout=LIMIT_S).raise_for_status().text


def _post(server: ModelServer, route: str) -> dict[str, bool]:
    answer = httpx.post(f"{_root(server)}{route}", timeout=LIMIT_S).raise_for_status()
    found: dict[str, bool] = answer.json()
    return found


def _root(server: ModelServer) -> str:
    return server.url.removesuffix("/v1")


def _counted(page: str, name: str) -> int:
    """A counter's value. Raises EngineError if the server does not have it."""
    found = re.findall(rf"^vllm:{name}(?:\{{.*\}})? (\S+)$", page, re.MULTILINE)
    if not found:
        raise EngineError(f"there is no vllm:{name} among the server's metrics")
    return int(sum(map(float, found)))
