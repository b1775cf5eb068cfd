"""Processes of a run: the server, and a client that may be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, Self

from experiments.common import environments
from experiments.tables_peers.clients import family
from experiments.tables_peers.data import Table
from teola.errors import InputError, TeolaError

ROOT: Final = Path(__file__).resolve().parents[2]
LIMIT_S: Final = 600.0
"""That a client may take for one run, of up to 20,000 rows."""
ROW_LIMIT_S: Final = 0.03
"""And for each row where there are more."""
LOOK_S: Final = 0.02
"""Between two looks at how far a client is that will be killed."""


class Server(Protocol):
    """Where a model is asked. url, model: for clients."""

    url: str
    model: str

    def begin(self, table: Table) -> None:
        """Count from here."""
        ...

    def counters(self) -> Mapping[str, float]:
        """What was asked since `begin`: calls, prompt_tokens, hit_tokens, and of the scripted
        server answered, taken and more."""
        ...


class ScriptedServer:
    """The scripted one, in a process of its own."""

    model = "scripted"

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "experiments.tables_peers.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environments.variables(ROOT),
        )
        self.url = self._line()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)

    def begin(self, table: Table) -> None:
        self._tell({"instruction": table.asked.instruction, "fields": table.names})

    def counters(self) -> Mapping[str, float]:
        return self._tell({})

    def _tell(self, told: Mapping[str, Any]) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()
        found: dict[str, float] = json.loads(self._line())
        return found

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise TeolaError("the scripted server has ended")
        return line.strip()


METRICS: Final = {
    "calls": "vllm:request_success_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "hit_tokens": "vllm:prefix_cache_hits_total",
}


class GivenServer:
    """A server by its URL, with vLLM's counters. Raises InputError."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        try:
            with urllib.request.urlopen(f"{self.url}/models", timeout=10) as said:
                self.model = str(json.load(said)["data"][0]["id"])
            self._before = self._read()
        except (OSError, ValueError, KeyError, IndexError) as error:
            raise InputError(f"there is no vLLM at {url}: {error}") from None

    def begin(self, table: Table) -> None:
        self._before = self._read()

    def counters(self) -> Mapping[str, float]:
        return {name: count - self._before[name] for name, count in self._read().items()}

    def _read(self) -> dict[str, float]:
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/metrics", timeout=10) as said:
            lines = said.read().decode().splitlines()
        return {name: _sum(lines, metric) for name, metric in METRICS.items()}


def _sum(lines: list[str], metric: str) -> float:
    heads = (f"{metric} ", f"{metric}{{")
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(heads))


class Found(NamedTuple):
    """What a client says of its run. error: why it has none ("": it has)."""

    answers: dict[int, str | None]
    seconds: float
    resident_mb: float
    error: str


class Client:
    """One run of a system on a table. folder: its caches, kept between runs."""

    def __init__(
        self, python: Path, system: str, table: Table, server: Server, folder: Path, at_once: int
    ) -> None:
        place = Path(tempfile.mkdtemp(prefix="run-", dir=folder.parent))
        folder.mkdir(exist_ok=True)
        self._limit_s = max(LIMIT_S, ROW_LIMIT_S * len(table.rows))
        self._result, self._log = place / "result.json", place / "log.txt"
        table.write(place / "rows.jsonl")
        job = {
            "table": str(place / "rows.jsonl"),
            "instruction": table.asked.instruction,
            "fields": table.names,
            "url": server.url,
            "model": server.model,
            "folder": str(folder),
            "at_once": at_once,
            "result": str(self._result),
        }
        (place / "job.json").write_text(json.dumps(job), encoding="utf-8")
        words: list[str | Path] = [python, "-m", "experiments.tables_peers.clients", system]
        words.append(place / "job.json")
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=place,
                env=_variables(folder),
            )

    def wait(self) -> Found:
        """Its result, once it has ended; what it started ends with it."""
        try:
            self._process.wait(self._limit_s)
        except subprocess.TimeoutExpired:
            return Found({}, self._limit_s, 0.0, f"it took more than {self._limit_s:.0f} s")
        finally:
            self.kill()
        if not self._result.exists():
            lines = self._log.read_text(errors="replace").strip().splitlines()
            return Found({}, 0.0, 0.0, lines[-1][:500] if lines else "it ended without a result")
        told = json.loads(self._result.read_text(encoding="utf-8"))
        answers = {int(id): said for id, said in told["answers"].items()}
        return Found(answers, told["seconds"], told["resident_mb"], told["error"])

    def kill_after(self, server: Server, answered: float) -> Mapping[str, float]:
        """Kill it (kill -9) when the server has answered so many of its calls, or it has ended. The
        server's counters of that moment."""
        while self._process.poll() is None and server.counters()["answered"] < answered:
            time.sleep(LOOK_S)
        self._signal(signal.SIGSTOP)  # so that it does nothing more while they are read
        counters = server.counters()
        self.kill()
        return counters

    def kill(self) -> None:
        """The process and those that it started, at once."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        """To its group, and to those that have left it, as Ray's processes do."""
        pid = self._process.pid
        others = family(pid) if self._process.poll() is None else []
        with suppress(ProcessLookupError):
            os.killpg(pid, number)
        for other in others:
            with suppress(ProcessLookupError):
                os.kill(other, number)


def _variables(folder: Path) -> dict[str, str]:
    """Nothing is fetched, told or kept elsewhere."""
    return environments.variables(ROOT) | {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "DO_NOT_TRACK": "true",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OPENAI_API_KEY": "sk-none",
        "HF_HUB_OFFLINE": "1",
        "XDG_CACHE_HOME": str(folder),
        "DOCETL_HOME_DIR": str(folder),
    }
