"""Measuring a profile: how long an engine's ops take by batch size, and how far batching pays.

Batches are doubled until throughput stops growing (paper, section 7.1); costs are fitted to all
measured points by non-negative least squares of the relative error. What was measured is kept in
the profile beside what was fitted. Long because each kind of engine is measured in its own way.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, cast

from teola.engine import (
    BatchEngine,
    Call,
    Chunk,
    DocumentKey,
    DocumentStore,
    EngineSpec,
    Hit,
    LanguageModel,
    QueryContext,
    Request,
    Scope,
    TextPart,
)
from teola.errors import EngineError, InputError
from teola.graph import (
    DecodeParams,
    EmbeddingParams,
    IngestionParams,
    Op,
    RerankParams,
    Role,
    SearchParams,
)
from teola.profile import GAIN_THRESHOLD, Cost, EngineProfile, StepTime
from teola.runtime.hosts.local import LocalHost

CHUNK_WORDS: Final = 180
DIMENSIONS: Final = 384
"""Dimensions of vectors for a store that does not tell its own."""
_WORDS: Final = [
    "time", "engine", "graph", "query", "answer", "table", "river", "machine", "letter", "school",
    "number", "system", "water", "paper", "light", "market", "season", "window", "garden",
    "doctor", "winter", "office", "bridge", "travel", "music", "nature"
]  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """What is tried.

    batches: of a batch engine; without any they are doubled up to four times its largest.
    prompts: tokens of a language model's. sequences: that decode side by side. context: tokens of
    the prompts behind which steps are measured: the longer they are, the longer a step of several
    sequences takes, and a prompt with a retrieved passage has about 256. decoded: tokens of an
    answer whose steps are timed.
    """

    batches: Sequence[int] = ()
    prompts: Sequence[int] = (64, 128, 256, 512, 1024, 2048)
    sequences: Sequence[int] = (1, 2, 4, 8, 16)
    context: int = 256
    decoded: int = 33


THOROUGH: Final = Sizes()
QUICK: Final = Sizes(batches=(1, 4, 16), prompts=(64, 512), sequences=(1, 4), context=64, decoded=9)
"""Seconds on a CPU: enough to tell what depends on the size and what does not."""
MEASURABLE: Final = (Op.PREFILLING, Op.EMBEDDING, Op.RERANKING, Op.SEARCHING)
"""An engine with one of these can be measured alone."""


class Point(NamedTuple):
    """One measurement: the median of `repeats` runs."""

    op: str
    items: int
    tokens: int
    seconds: float


@dataclass
class Measured:
    """A profile with the points it was fitted to."""

    profile: EngineProfile
    points: list[Point] = field(default_factory=list)


OnMeasurement = Callable[[str, int, int], None]
"""What is measured now, how many measurements are done, and how many there are at most."""
Once = Callable[[int], Awaitable[tuple[float, int]]]
"""Run a batch of that many items; seconds and tokens."""


class Profiler:
    """Measures one started engine.

    repeats: runs of each size. limit: largest batch tried. texts: what is embedded and reranked;
    by default random words, `CHUNK_WORDS` each; texts of different lengths take an embedder up to a
    fifth longer a token. sizes: what is tried.
    """

    def __init__(
        self,
        host: LocalHost,
        *,
        repeats: int = 3,
        limit: int | None = None,
        texts: Sequence[str] = (),
        sizes: Sizes = THOROUGH,
        seed: int = 0,
    ) -> None:
        self.host, self.repeats, self.limit = host, repeats, limit
        self._texts, self._sizes = texts, sizes
        self.spec: EngineSpec = host.engine.spec
        self._random = random.Random(seed)
        self._points: list[Point] = []
        self._done, self._planned = 0, 0

    async def measure(self, progress: OnMeasurement = lambda *_: None) -> Measured:
        """Measure every op that can be measured alone. Raises InputError if there is none."""
        self._progress = progress
        if Op.PREFILLING in self.spec.ops:
            profile = await self._language_model()
        elif Op.EMBEDDING in self.spec.ops:
            profile = await self._batches({Op.EMBEDDING: self._embed}, by_tokens=True)
        elif Op.RERANKING in self.spec.ops:
            profile = await self._batches({Op.RERANKING: self._rerank})
        elif Op.SEARCHING in self.spec.ops:
            profile = await self._vectorstore()
        else:
            raise InputError(f"engine {self.spec.name!r} has no op that can be measured alone")
        return Measured(profile, self._points)

    async def once(self) -> None:
        """Run each op that can be measured alone with one item, so that no query's is the first."""
        if Op.PREFILLING in self.spec.ops:
            await self._call(1, 1)
        if Op.EMBEDDING in self.spec.ops:
            await self._embed(1)
        if Op.RERANKING in self.spec.ops:
            await self._rerank(1)
        if Op.SEARCHING in self.spec.ops:
            await self._search(1, Scope("default", f"profile-{uuid.uuid4().hex[:12]}"))

    # --- batch engines --------------------------------------------------------------------

    async def _batches(self, ops: dict[Op, Once], *, by_tokens: bool = False) -> EngineProfile:
        costs: dict[Op, Cost] = {}
        best = 1
        largest = self.limit or 4 * self.spec.max_batch
        fitting = [size for size in self._sizes.batches if size <= largest]
        sizes = fitting or _doubled(largest)
        self._planned = len(ops) * len(sizes)
        for number, (op, once) in enumerate(ops.items()):
            self._done = number * len(sizes)
            points, size = await self._double(op, once, sizes)
            best = max(best, size)
            costs[op] = fit(points, by_tokens=by_tokens)
        return EngineProfile(
            costs=costs,
            max_batch=best,
            max_efficient=best,
            concurrency=self.spec.concurrency,
            max_sequences=self.spec.max_sequences,
        )

    async def _double(self, op: Op, once: Once, sizes: Sequence[int]) -> tuple[list[Point], int]:
        """Points by doubling, and the size past which throughput gains less than 5 %."""
        points: list[Point] = []
        best, before = 1, 0.0
        await once(1)  # warm-up
        for size in sizes:
            point = await self._median(op, once, size)
            points.append(point)
            rate = size / point.seconds
            if rate < before * (1 + GAIN_THRESHOLD):
                break
            best, before = size, rate
        return points, best

    async def _median(self, op: Op, once: Once, size: int) -> Point:
        self._tell(f"{op.value}: batch of {size}")
        runs = [await once(size) for _ in range(self.repeats)]
        seconds = statistics.median(run[0] for run in runs)
        point = Point(op.value, size, runs[0][1], seconds)
        self._points.append(point)
        return point

    def _tell(self, doing: str) -> None:
        self._progress(doing, self._done, self._planned)
        self._done += 1

    async def _execute(self, op: Op, params: Any, inputs: dict[str, Any]) -> Any:
        request = Request(op, params, inputs, QueryContext("profile"), uuid.uuid4().hex)
        began = time.perf_counter()
        results = await self.host.call(cast("BatchEngine", self.host.engine).execute, [request])
        seconds = time.perf_counter() - began
        if op is Op.SEARCHING:
            cast("DocumentStore", self.host.engine).unpin(request.context.whole_id)
        if isinstance(results[0], Exception):
            raise results[0]
        return seconds, results[0]

    async def _embed(self, size: int) -> tuple[float, int]:
        texts = [self._chunk() for _ in range(size)]
        seconds, _ = await self._execute(Op.EMBEDDING, EmbeddingParams(), {"texts": texts})
        return seconds, sum(map(self.host.count_tokens, texts))

    async def _rerank(self, size: int) -> tuple[float, int]:
        hits = [Hit(str(i), "profile", self._chunk(), 0.0) for i in range(size)]
        inputs = {"hits": hits, "question": "Where does the river cross the garden?"}
        seconds, _ = await self._execute(Op.RERANKING, RerankParams(), inputs)
        return seconds, 0

    async def _vectorstore(self) -> EngineProfile:
        store = cast("DocumentStore", self.host.engine)
        scope = Scope("default", f"profile-{uuid.uuid4().hex[:12]}")

        async def ingest(size: int) -> tuple[float, int]:
            key = DocumentKey(uuid.uuid4().hex * 2, "profile", "profile")
            owner = uuid.uuid4().hex
            (claim,) = await store.claim(scope.tenant, scope.collection, [key], owner)
            await store.expect(owner, {claim.document: size})
            chunks = [Chunk(claim.document, i, self._chunk(), "profile") for i in range(size)]
            inputs = {"vectors": self._vectors(size, self._width), "chunks": chunks, "scope": scope}
            seconds, _ = await self._execute(Op.INGESTION, IngestionParams(), inputs)
            await store.release(owner)
            return seconds, 0

        search = partial(self._search, scope=scope)
        try:
            return await self._batches({Op.INGESTION: ingest, Op.SEARCHING: search})
        finally:
            await store.delete(scope.tenant, scope.collection, None)

    async def _search(self, size: int, scope: Scope) -> tuple[float, int]:
        inputs = {"vectors": self._vectors(size, self._width), "scope": scope}
        seconds, _ = await self._execute(Op.SEARCHING, SearchParams(16), inputs)
        return seconds, 0

    @property
    def _width(self) -> int:
        """Numbers of a vector of the store."""
        return (self.host.vectors.dimensions if self.host.vectors else 0) or DIMENSIONS

    def _vectors(self, count: int, width: int) -> list[Any]:
        import numpy

        made = numpy.random.default_rng(self._random.getrandbits(32)).normal(size=(count, width))
        return list((made / numpy.linalg.norm(made, axis=1, keepdims=True)).astype("float32"))

    def _chunk(self) -> str:
        return self._random.choice(self._texts) if self._texts else self._text(CHUNK_WORDS)

    def _text(self, words: int) -> str:
        return " ".join(self._random.choices(_WORDS, k=words))

    # --- language models ------------------------------------------------------------------

    async def _language_model(self) -> EngineProfile:
        tried, limit = self._sizes, self.limit
        sizes = [s for s in tried.prompts if limit is None or s <= limit] or [limit or 1]
        widths = [width for width in tried.sequences if width <= self.spec.max_sequences]
        self._planned = len(sizes) + len(widths)
        prefills, best = await self._prefills(sizes)
        self._done = len(sizes)
        fitting = sizes[: len(prefills)]
        if len(fitting) < len(sizes):  # the window may have no room for an answer behind the last
            fitting = fitting[:-1] or fitting
        context = min(tried.context, fitting[-1])
        steps = [await self._step(width, context) for width in widths]
        self._points += prefills + steps
        return EngineProfile(
            step=StepTime.of(fit(prefills, by_tokens=True), fit(steps)),
            max_batch=max(best, 512),
            max_sequences=self.spec.max_sequences,
            prefix_reuse=self.spec.prefix_reuse,
            keeps_prefixes=self.spec.keeps_prefixes,
            block_tokens=self.spec.block_tokens,
            kv_blocks=self.spec.kv_blocks,
        )

    async def _prefills(self, sizes: Sequence[int]) -> tuple[list[Point], int]:
        """Points by size, as far as the model's window goes, and the size of best throughput."""
        points: list[Point] = []
        best, before = sizes[0], 0.0
        await self._call(sizes[0], 1)
        for size in sizes:
            self._tell(f"prefilling: {size} tokens")
            try:
                runs = [await self._call(size, 1) for _ in range(self.repeats)]
            except EngineError as error:
                if error.retryable or not points:
                    raise
                break  # longer than the model's window
            tokens = int(statistics.median(run[2] for run in runs))
            point = Point("prefilling", 1, tokens, statistics.median(run[0] for run in runs))
            points.append(point)
            rate = tokens / point.seconds
            if rate >= before * (1 + GAIN_THRESHOLD):
                best, before = size, rate
        return points, best

    async def _step(self, width: int, context: int) -> Point:
        """One step of decoding with so many sequences, each behind a prompt of so many tokens.

        Engines that keep prefixes have them by then, so that no prefill stands between the steps.
        """
        self._tell(f"decoding: {width} sequences")
        runs = []
        for _ in range(self.repeats):
            prompts = [self._prompt(context) for _ in range(width)]
            await asyncio.gather(*(self._generate(prompt, 1) for prompt in prompts))
            done = await asyncio.gather(*(self._generate(p, self._sizes.decoded) for p in prompts))
            runs.append(statistics.median(run[1] / max(run[3] - 1, 1) for run in done))
        return Point("decoding", width, 0, statistics.median(runs))

    async def _call(self, tokens: int, output: int) -> tuple[float, float, int, int]:
        """`_generate` with a new prompt of so many tokens."""
        return await self._generate(self._prompt(tokens), output)

    def _prompt(self, tokens: int) -> str:
        """A text that no other begins like."""
        model = cast("LanguageModel", self.host.engine)
        text = f"{self._random.getrandbits(64)} "
        while model.count_tokens(text) < tokens:
            text += self._text(8) + " "
        return text

    async def _generate(self, text: str, output: int) -> tuple[float, float, int, int]:
        """Seconds to the first token, from there to the end, prompt tokens, output tokens."""
        model = cast("LanguageModel", self.host.engine)
        parts = (
            TextPart(Role.INSTRUCTION, "Continue. "),
            TextPart(Role.QUESTION, "What follows?"),
            TextPart(Role.CONTEXT, text),
        )
        decode = DecodeParams(max_tokens=output, ignore_eos=True)
        began, first, written = time.perf_counter(), 0.0, 0
        prompt = model.count_tokens(text)
        async with aclosing(model.generate(Call(QueryContext("profile"), parts, decode))) as deltas:  # type: ignore[type-var]
            async for delta in deltas:
                first = first or time.perf_counter()
                if delta.usage:
                    written = delta.usage.completion_tokens
                    prompt = delta.usage.prompt_tokens or prompt
        ended = time.perf_counter()
        return first - began, ended - first, prompt, max(written, 1)


def _doubled(limit: int) -> list[int]:
    """1, 2, 4 ... up to `limit`."""
    return [1 << power for power in range(limit.bit_length())]


def fit(points: Sequence[Point], *, by_tokens: bool = False) -> Cost:
    """Cost of least relative error: seconds = base + slope x (tokens or items), none negative."""
    sizes = [point.tokens if by_tokens else point.items for point in points]
    base, slope = line(sizes, [point.seconds for point in points])
    typical = int(points[0].tokens / points[0].items) if by_tokens and points[0].items else 0
    return Cost(
        base_s=base,
        per_item_s=0.0 if by_tokens else slope,
        per_token_s=slope if by_tokens else 0.0,
        item_tokens=typical,
    )


def line(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """base and slope, neither negative, of the least sum of ((base + slope x size) / s - 1)^2.

    The normal equations of two unknowns; where they give a negative one, it is 0 and the other one
    stands alone. seconds: above 0.
    """
    ones, scaled = [1 / s for s in seconds], [n / s for n, s in zip(sizes, seconds, strict=True)]
    u, v = sum(ones), sum(scaled)
    uu, vv, uv = _dot(ones, ones), _dot(scaled, scaled), _dot(ones, scaled)
    determinant = uu * vv - uv * uv
    if determinant > 1e-12 * uu * vv:
        base, slope = (u * vv - v * uv) / determinant, (uu * v - u * uv) / determinant
        if base >= 0 and slope >= 0:
            return base, slope
    if v > u and v * v * uu >= u * u * vv * (1 - 1e-9):
        return 0.0, v / vv
    return u / uu, 0.0


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))
