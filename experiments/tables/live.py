"""The same queries on a real vLLM with a small random model, and what its cache found.

The planner, the scheduler and the server are those that serve; the model is random, so what it says
is replaced by the script's answers, and all systems give the same rows. Hits are the server's own
counters. Two servers run one after the other, one without a prefix cache; the cache is emptied
between queries. It needs `make vllm`.
"""

from __future__ import annotations

import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any, Final

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
from teola.runtime.hosts.model_server import STEP_TOKENS, ModelServer, ServerOptions
from teola.runtime.profiler import Profiler, Sizes
from teola.runtime.rows import OnAnswers, Row, RowAnswer, RowsCall, RowsHandle
from teola.runtime.runtime import Runtime
from teola_engines.llm import VLLMServer

CELLS: Final = tuple(cell for cell in QUERIES if cell[1] == "movies")
ROWS: Final = (300, 100)
HIT_ROWS: Final = 500
OUTPUT: Final = 16
"""Tokens of an answer that is not held to choices."""
SHAPE: Final = {"hidden": 192, "layers": 4, "heads": 4, "vocabulary": 2048}
BLOCK_TOKENS: Final = 32
"""Blocks of 16, as the paper has them, are refused by vLLM on a CPU: multiples of 32 are not."""
SIZES: Final = Sizes(prompts=(64, 256, 512), sequences=(1, 4, 16), context=256, decoded=17)
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

    def forget(self) -> None:
        """Empty its cache."""
        _opened(f"{self._server.url.removesuffix('/v1')}/reset_prefix_cache", method="POST")


def _opened(url: str, method: str = "GET") -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60) as page:
        return bytes(page.read())


class LiveModel:
    """Asked by `TableQuery.run(ask_rows=...)`: asks a runtime, and answers by the script.

    asked: the calls that it knows, by instruction. grouped: see SimulatedModel. calls, prompt and
    completion tokens, seconds: of all runs so far.
    """

    def __init__(self, runtime: Runtime, asked: dict[str, Asked], *, grouped: bool) -> None:
        self._runtime, self._asked, self._grouped = runtime, asked, grouped
        self.calls = self.completion_tokens = 0
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

        handle = self._runtime.ask_rows(call, read(), hear, **limits)
        end = handle.result()
        assert end.state == "ok", end
        self.calls += end.asked
        self.completion_tokens += end.completion_tokens
        self.seconds += end.seconds
        return handle


@contextmanager
def small_model() -> Iterator[Path]:
    """A folder with the model."""
    with tempfile.TemporaryDirectory(prefix="teola-tables-") as name:
        yield make_model(Path(name) / "tiny", **SHAPE)


def measure(rows: int, seed: int, progress: Progress) -> tuple[list[Report], list[Report]]:
    """Rows of the report, and of each query what bounds it."""
    found: dict[tuple[tuple[str, str], str], tuple[LiveModel, Counts]] = {}
    task = progress.add_task("live", total=len(CELLS) * len(SYSTEMS))
    step = StepTime()
    with small_model() as folder:
        for cache in (False, True):
            with (
                Server(folder, cache=cache) as server,
                Runtime({"llm": server.engine()}) as runtime,
            ):
                runtime.start(runtime.ensure(["llm"])).result()
                if cache:
                    profiler = Profiler(runtime.host("llm"), repeats=2, sizes=SIZES)
                    step = runtime.start(profiler.measure()).result().profile.step
                for cell in CELLS:
                    for name, system in SYSTEMS.items():
                        if system.cache is cache:
                            found[cell, name] = _asked(server, runtime, cell, system, rows, seed)
                            progress.advance(task)
    progress.remove_task(task)
    cells = [(cell, name) for cell in CELLS for name in SYSTEMS]
    return (
        [_row(*key, rows, *found[key]) for key in cells],
        [_bound(cell, step, *found[cell, "ours"]) for cell in CELLS],
    )


def _asked(
    server: Server, runtime: Runtime, cell: tuple[str, str], system: System, rows: int, seed: int
) -> tuple[LiveModel, Counts]:
    query = QUERIES[cell]
    if system.cache:
        server.forget()
    known = {call.question: call for call in query.calls}
    model = LiveModel(runtime, known, grouped=system.grouped)
    before = server.counts()
    source = {"t": table(query.data, rows, seed)}
    asked = tables.sql(text_of(query, system, rows, seed), source, passes=system.passes)
    done = asked.run(ask_rows=model, answers=False)
    assert done.state == "ok", done.reason
    done.close()
    return model, server.counts().since(before)


def _row(cell: tuple[str, str], system: str, rows: int, model: LiveModel, counts: Counts) -> Report:
    return {
        "where": "live",
        "query": cell[0],
        "data": cell[1],
        "system": system,
        "rows": rows,
        "calls": model.calls,
        "prompt_tokens": counts.prompt,
        "hit_tokens": counts.hits,
        "hit_share": round(counts.hits / counts.prompt, 4),
        "seconds": round(model.seconds, 2),
    }


def _bound(cell: tuple[str, str], step: StepTime, model: LiveModel, counts: Counts) -> Report:
    computed, written = counts.prompt - counts.hits, model.completion_tokens
    return {
        "query": cell[0],
        "data": cell[1],
        "computed_tokens": computed,
        "written_tokens": written,
        "bound_s": round(least_s(step, computed, written, model.calls), 2),
        "seconds": round(model.seconds, 2),
    }


def least_s(step: StepTime, computed: int, written: int, calls: int) -> float:
    """What a server takes at least to compute so many tokens of prompts and to write so many, in
    full steps. The first token of an answer comes with its prompt."""
    steps = ceil(computed / STEP_TOKENS)
    decoded = max(0, written - calls)
    fixed = steps * (step.base_s + max(0.0, step.prefill_s))
    return fixed + step.per_token_s * computed + step.per_sequence_s * decoded


# --- what `explain` and the answers tell of hits --------------------------------------------


def hits(rows: int, seed: int) -> list[Report]:
    """Tokens that were found, as the server counts them, as the answers tell, and as `explain`
    expects them before; of Q1 on both data sets."""
    found = []
    with (
        small_model() as folder,
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
