"""The same queries on a real engine with a random model, and what its cache found.

The planner, the scheduler and the engine are those that serve; the model is random, so what it says
is replaced by the script's answers, and all systems give the same rows. Two engines stand side by
side, one without a prefix cache, and one query runs at a time, which finds nothing of the others.

`live` is a vLLM on the CPU with a small model; hits are its own counters, and seconds its processor
time. It needs `make vllm`. `local` is the engine `transformers` in this process, on a GPU if there
is one, with a model of three billion parameters; hits are what it says of each answer, and seconds
are the clock's.
"""

from __future__ import annotations

import os
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import numpy as np
from rich.progress import Progress

from experiments.common.command import Report
from experiments.common.tiny_model import make_model
from experiments.tables.generated import table
from experiments.tables.groups import arranged
from experiments.tables.model import AROUND
from experiments.tables.queries import QUERIES, Asked, answer_of
from experiments.tables.runs import SYSTEMS, System, text_of
from teola import EngineConfig, tables
from teola.profile import StepTime
from teola.runtime.hosts.model_server import ModelServer, ServerOptions
from teola.runtime.rows import OnAnswers, Row, RowAnswer, RowsCall, RowsHandle
from teola.runtime.runtime import Runtime
from teola_engines.llm import TransformersModel, VLLMServer

CELLS: Final = tuple(cell for cell in QUERIES if cell[1] == "movies")
ROWS: Final = (300, 100)
HIT_ROWS: Final = 500
OUTPUT: Final = 16
"""Tokens of an answer that is not held to choices."""
SHAPE: Final = {"hidden": 192, "layers": 4, "heads": 4, "vocabulary": 2048}
LOCAL: Final = {
    "hidden": 3072, "layers": 28, "heads": 24, "kv_heads": 8, "intermediate": 8192,
    "vocabulary": 8192, "dtype": "bfloat16",
}  # fmt: skip
"""The shape of Llama 3.2 3B, with fewer words."""
SEQUENCES: Final = 64
"""Answers that the engine in this process decodes at once."""
STEP_TOKENS: Final = 4096
NO_CACHE_GIB: Final = 8.0
"""Of KV, for the answers that are decoded at once."""
BLOCK_TOKENS: Final = 32
"""Blocks of 16, as the paper has them, are refused by vLLM on a CPU: multiples of 32 are not."""
COUNTED: Final = ("vllm:prompt_tokens_total", "vllm:prefix_cache_hits_total")


@dataclass(frozen=True)
class Counts:
    """Of a server since it started: tokens of prompts, and those that its cache had."""

    prompt: int
    hits: int

    def since(self, before: Counts) -> Counts:
        return Counts(self.prompt - before.prompt, self.hits - before.hits)


class Server:
    """A vLLM with the small model. cache: whether it keeps prefixes."""

    def __init__(self, folder: Path, *, cache: bool) -> None:
        extra = ["--block-size", str(BLOCK_TOKENS)]
        if not cache:
            extra.append("--no-enable-prefix-caching")
        self._server = ModelServer(
            ServerOptions(
                str(folder),
                port=0,
                dtype="float32",
                kv_gib=1,
                kv_events="" if not cache else None,
                extra=extra,
                environment={"VLLM_SERVER_DEV_MODE": "1"},  # it can be told to forget then
            )
        )

    def __enter__(self) -> Server:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def engine(self) -> EngineConfig:
        """To ask it."""
        return EngineConfig(VLLMServer, {"url": self._server.url})

    def counts(self) -> Counts:
        """Its own counters, of all since it started."""
        page = _opened(f"{self._server.url.removesuffix('/v1')}/metrics").decode()
        found = dict.fromkeys(COUNTED, 0.0)
        for line in page.splitlines():
            name = line.partition("{")[0]
            if name in found:
                found[name] += float(line.rpartition(" ")[2])
        return Counts(*(int(found[name]) for name in COUNTED))

    def processor_s(self) -> float:
        """Processor time of its engine, all processes but the one that serves HTTP. That is what it
        takes on an idle machine, for it computes in one thread; the clock of a machine that others
        use as well tells less."""
        ticks = 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = path.read_text().rpartition(")")[2].split()
                if int(fields[2]) == self._server.pid != int(path.parent.name):
                    ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def forget(self) -> None:
        """Empty its cache."""
        _opened(f"{self._server.url.removesuffix('/v1')}/reset_prefix_cache", method="POST")

    def measure(self, model: LiveModel, ask: Callable[[], None]) -> Measured:
        """Ask a query, which begins with an empty cache."""
        self.forget()
        before, began_s = self.counts(), self.processor_s()
        ask()
        counts, seconds = self.counts().since(before), self.processor_s() - began_s
        written = model.completion_tokens
        return Measured(model.calls, counts.prompt, counts.hits, written, seconds, model.seconds)


class Local:
    """The engine `transformers` in this process. cache: whether it keeps prefixes."""

    def __init__(self, folder: Path, *, cache: bool) -> None:
        self._folder, self._cache = folder, cache

    def __enter__(self) -> Local:
        return self

    def __exit__(self, *_: object) -> None:
        """The runtime that asks it closes it."""

    def engine(self) -> EngineConfig:
        """To ask it."""
        return EngineConfig(
            TransformersModel,
            {
                "model": str(self._folder),
                "max_batch": STEP_TOKENS,
                "max_sequences": SEQUENCES,
                "prefix_cache": self._cache,
                "kv_memory_gib": None if self._cache else NO_CACHE_GIB,
            },
        )

    def measure(self, model: LiveModel, ask: Callable[[], None]) -> Measured:
        """Ask a query, as a tenant of its own: nobody finds what another tenant has computed."""
        model.tenant = uuid4().hex
        ask()
        seconds = model.seconds
        return Measured(
            model.calls,
            model.prompt_tokens,
            model.cached_tokens,
            model.completion_tokens,
            seconds,
            seconds,
        )


def _opened(url: str, method: str = "GET") -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60) as page:
        return bytes(page.read())


class LiveModel:
    """Asked by `TableQuery.run(ask_rows=...)`: asks a runtime, and answers by the script.

    asked: the calls that it knows, by instruction. grouped: see SimulatedModel. tenant: on whose
    behalf it asks. calls, tokens, seconds: of all runs so far.
    """

    def __init__(self, runtime: Runtime, asked: dict[str, Asked], *, grouped: bool) -> None:
        self._runtime, self._asked, self._grouped = runtime, asked, grouped
        self.tenant = ""
        self.calls = self.prompt_tokens = self.cached_tokens = self.completion_tokens = 0
        self.seconds = 0.0

    def __call__(
        self, call: RowsCall, rows: Iterator[Row], on_answers: OnAnswers, **limits: Any
    ) -> RowsHandle:
        """All rows of a run, before it returns."""
        asked, said = self._asked[call.instruction], dict[int, str]()
        choices = call.decode.choices
        if not choices:
            call = replace(call, decode=replace(call.decode, max_tokens=OUTPUT))

        def read() -> Iterator[Row]:
            for row in arranged(list(rows)) if self._grouped else rows:
                answer = answer_of(asked, row.text.split("\n")[1:])
                said[row.id] = answer if choices else AROUND.format(answer)
                yield row

        def hear(some: Sequence[RowAnswer]) -> None:
            on_answers([one._replace(text=said.pop(one.id)) if one.text else one for one in some])

        handle = self._runtime.ask_rows(call, read(), hear, **limits | {"tenant": self.tenant})
        end = handle.result()
        assert end.state == "ok", end
        self.calls += end.asked
        self.prompt_tokens += end.prompt_tokens
        self.cached_tokens += end.cached_tokens
        self.completion_tokens += end.completion_tokens
        self.seconds += end.seconds
        return handle


@contextmanager
def random_model(**shape: Any) -> Iterator[Path]:
    """A folder with a model."""
    with tempfile.TemporaryDirectory(prefix="teola-tables-") as name:
        yield make_model(Path(name) / "model", **shape)


def measure(
    where: str, rows: int, seed: int, progress: Progress
) -> tuple[list[Report], list[Report]]:
    """Rows of the report, and of each query what bounds it. where: live or local."""
    found: dict[tuple[tuple[str, str], str], Measured] = {}
    task = progress.add_task(where, total=len(CELLS) * len(SYSTEMS))
    kind = Server if where == "live" else Local
    with (
        random_model(**SHAPE if where == "live" else local_shape()) as folder,
        kind(folder, cache=False) as plain,
        kind(folder, cache=True) as keeping,
        Runtime({"llm": plain.engine()}) as without,
        Runtime({"llm": keeping.engine()}) as caching,
    ):
        for runtime in (without, caching):
            runtime.start(runtime.ensure(["llm"])).result()
        if where == "local":  # what is loaded or recorded on first use is there afterwards
            for asked, name in (((plain, without), "no_cache"), ((keeping, caching), "ours")):
                _asked(*asked, CELLS[0], SYSTEMS[name], rows, seed + 1)
        for cell in CELLS:
            for name, system in SYSTEMS.items():
                asked = (keeping, caching) if system.cache else (plain, without)
                found[cell, name] = _asked(*asked, cell, system, rows, seed)
                progress.advance(task)
    progress.remove_task(task)
    step = learned([one for (_, name), one in found.items() if name != "ours"])
    return (
        [_row(where, *key, rows, one) for key, one in found.items()],
        [_bound(where, cell, step, found[cell, "ours"], found[cell, "no_cache"]) for cell in CELLS],
    )


def local_shape() -> dict[str, Any]:
    """The shape of the model in this process, and where its weights are drawn."""
    import torch

    return {**LOCAL, "device": "cuda" if torch.cuda.is_available() else "cpu"}


class Measured(NamedTuple):
    """One query. seconds: of vLLM's processor, else of the clock, as wall_s is."""

    calls: int
    prompt: int
    hits: int
    written: int
    seconds: float
    wall_s: float

    @property
    def computed(self) -> int:
        return self.prompt - self.hits


def _asked(
    engine: Server | Local,
    runtime: Runtime,
    cell: tuple[str, str],
    system: System,
    rows: int,
    seed: int,
) -> Measured:
    query = QUERIES[cell]
    known = {call.question: call for call in query.calls}
    model = LiveModel(runtime, known, grouped=system.grouped)
    source = {"t": table(query.data, rows, seed)}
    asked = tables.sql(text_of(query, system, rows, seed), source, passes=system.passes)

    def ask() -> None:
        done = asked.run(ask_rows=model, answers=False)
        assert done.state == "ok", done.reason
        done.close()

    return engine.measure(model, ask)


def _row(where: str, cell: tuple[str, str], system: str, rows: int, one: Measured) -> Report:
    return {
        "where": where,
        "query": cell[0],
        "data": cell[1],
        "system": system,
        "rows": rows,
        "calls": one.calls,
        "prompt_tokens": one.prompt,
        "hit_tokens": one.hits,
        "hit_share": round(one.hits / one.prompt, 4),
        "seconds": round(one.seconds, 2),
    }


def _bound(
    where: str, cell: tuple[str, str], step: StepTime, ours: Measured, none: Measured
) -> Report:
    return {
        "where": where,
        "query": cell[0],
        "data": cell[1],
        "computed_tokens": ours.computed,
        "written_tokens": ours.written,
        "bound_s": round(least_s(step, ours.computed, ours.written), 2),
        "seconds": round(ours.seconds, 2),
        "wall_s": round(ours.wall_s, 2),
        "no_cache_wall_s": round(none.wall_s, 2),
    }


def learned(runs: Sequence[Measured]) -> StepTime:
    """Seconds of a computed and of a written token, by least squares over runs."""
    counts = np.array([[one.computed, one.written] for one in runs], dtype=float)
    seconds = np.array([one.seconds for one in runs])
    terms = np.linalg.lstsq(counts, seconds, rcond=None)[0]
    return StepTime(per_token_s=max(0.0, terms[0]), per_sequence_s=max(0.0, terms[1]))


def least_s(step: StepTime, computed: int, written: int) -> float:
    """What an engine takes to compute so many tokens of prompts and to write so many."""
    return float(step.per_token_s * computed + step.per_sequence_s * written)


# --- what `explain` and the answers tell of hits --------------------------------------------


def hits(rows: int, seed: int) -> list[Report]:
    """Tokens that were found, as the server counts them, as the answers tell, and as `explain`
    expects them before; of Q1 on both data sets."""
    found = []
    with (
        random_model(**SHAPE) as folder,
        Server(folder, cache=True) as server,
        Runtime({"llm": server.engine()}) as runtime,
    ):
        runtime.start(runtime.ensure(["llm"])).result()
        for data in ("movies", "products"):
            server.forget()
            found.append(_hits(server, runtime, data, rows, seed))
    return found


def _hits(server: Server, runtime: Runtime, data: str, rows: int, seed: int) -> Report:
    asked: Asked = QUERIES["Q1", data].calls[0]
    call = asked.sql([*asked.fields, "max_tokens := 4"], choices=False, fixed=False)
    query = tables.sql(f"SELECT {call} FROM t", {"t": table(data, rows, seed)}, answers=False)
    began = time.monotonic()
    estimate = query.explain(runtime=runtime).to_json()["total"]
    explained_s, before = time.monotonic() - began, server.counts()
    done = query.run(runtime=runtime)
    counts = server.counts().since(before)
    report = done.report
    done.close()
    return {
        "data": data,
        "rows": rows,
        "calls": report["asked"],
        "prompt_tokens": report["prompt_tokens"],
        "cached_tokens": report["cached_tokens"],
        "engine_prompt_tokens": counts.prompt,
        "engine_hit_tokens": counts.hits,
        "explained_prompt_tokens": estimate["prompt_tokens"],
        "explained_cached_tokens": estimate["cached_tokens"],
        "explain_s": round(explained_s, 2),
    }
