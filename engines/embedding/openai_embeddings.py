"""An embedding model behind `POST /v1/embeddings` of any OpenAI-compatible server.

Nothing is retried here: whether a failed request may be repeated is the scheduler's business.
What a server sends is looked over before anything is stored: a vector that is too short, or not
all numbers, would make every later search wrong in silence.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal, get_args

import numpy as np

from teola.engine import (
    EngineKind,
    EngineResult,
    EngineSpec,
    LeftOfMinute,
    QueryContext,
    Request,
    any_wanted,
)
from teola.errors import (
    EngineError,
    EngineUnavailable,
    InputError,
    OutputError,
    QueryCancelled,
    UnknownName,
)
from teola.graph.ops import Op

from ..openai import probe
from ..openai.connection import Connection
from ..openai.wire import BadRequest, TooLong
from .encoder import Vector, unit
from .model import sanitise
from .texts import malformed, runnable, texts_of

Encoding = Literal["base64", "float"]

MOST_TEXTS: Final = 2048
"""Of one request, as OpenAI documents it."""
MOST_TOKENS: Final = 300_000
"""Of one request, all texts together, as OpenAI documents it."""
MAX_TOKENS: Final = 8192
"""Of one text, where a server does not tell its own limit; OpenAI's."""
_BYTES_PER_TOKEN: Final = 4
_LARGEST: Final = 1e15
"""Of a vector's numbers; the squares of larger ones are no float32 any more."""
_FIRST: Final = "How long are your vectors?"


class OpenAIEmbeddings:
    """Embeds texts over HTTP; equal ones of a batch of requests are sent once.

    url: where the API begins, usually ending in /v1 (added to a bare host). model: None is the
    first that the server lists. dimensions: asked of models that can shorten their vectors; None is
    what the model gives. encoding_format: how vectors are asked for; base64 is a third of the
    bytes, and either is read, whatever was asked for. max_batch: texts of one request. max_tokens:
    of one text; None is what the server tells, else 8192. concurrency: requests at once. timeout_s:
    longest silence of the server; the queries' deadlines hold besides.
    Raises InputError (url, numbers), UnknownName (encoding_format).
    """

    identity: str = ""
    dimensions: int = 0
    max_tokens: int = 0
    estimates = True
    travels = ("identity", "dimensions", "max_tokens")
    """What those who split documents need of an engine that runs elsewhere."""

    def __init__(
        self,
        name: str = "embedding",
        *,
        url: str,
        model: str | None = None,
        api_key: str | None = None,
        dimensions: int | None = None,
        encoding_format: Encoding = "base64",
        max_batch: int = 128,
        max_tokens: int | None = None,
        concurrency: int = 4,
        timeout_s: float = 60.0,
        connect_timeout_s: float = 5.0,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
    ) -> None:
        if encoding_format not in get_args(Encoding):
            where = f"engine {name!r}"
            raise UnknownName("encoding_format", encoding_format, get_args(Encoding), where)
        if not 1 <= max_batch <= MOST_TEXTS:
            raise InputError(f"engine {name!r}: max_batch must be within 1..{MOST_TEXTS}")
        for option, value in {"dimensions": dimensions, "max_tokens": max_tokens}.items():
            if value is not None and value < 1:
                raise InputError(f"engine {name!r}: {option} must be at least 1")
        self._connection = Connection(name, url, api_key, timeout_s, connect_timeout_s)
        self.account_limits = self._connection.limits(requests_per_minute, tokens_per_minute)
        self._name, self._model = name, model
        self._dimensions, self._encoding = dimensions, encoding_format
        self._max_batch, self._max_tokens = max_batch, max_tokens
        self._concurrency = concurrency

    @property
    def spec(self) -> EngineSpec:
        return EngineSpec(
            name=self._name,
            kind=EngineKind.EMBEDDING,
            ops=frozenset({Op.EMBEDDING}),
            max_batch=self._max_batch,
            concurrency=self._concurrency,
            description=f"{self._model or 'first model'} at {probe.shown(self._url)}",
        )

    @property
    def model(self) -> str | None:
        """The model's name on the server; before `start` perhaps not yet known."""
        return self._model

    @property
    def _url(self) -> str:
        return self._connection.url

    def on_left(self, told: Callable[[LeftOfMinute], None]) -> None:
        """See CallsServer."""
        self._connection.on_left = told

    # --- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Ask the server which models it has, and embed a few words: how long its vectors are.

        Raises EngineUnavailable.
        """
        await self._connection.open()
        server = self._connection.server
        models: dict[str, probe.Listed] = {}
        try:
            listed = await probe.probe(self._connection.client, server)
            models = {one.name: one for one in listed.models}
        except EngineUnavailable as error:
            if error.retryable or self._model is None:
                raise  # else it may still embed
        if self._model is None and not models:
            raise EngineUnavailable(f"{server} lists no model: name one", retryable=False)
        self._model = self._connection.model = self._model or next(iter(models))
        told = models[self._model].max_tokens if self._model in models else None
        self.max_tokens = self._max_tokens or told or MAX_TOKENS
        try:
            (vector,) = await self._ask(QueryContext("start"), [_FIRST])
        except EngineError as error:
            raise EngineUnavailable(str(error), retryable=error.retryable) from error
        self.dimensions = len(vector)
        shown = probe.shown(self._url)
        self.identity = f"{self._model}@{shown}:{self.dimensions}"

    async def close(self) -> None:
        """Close all connections."""
        await self._connection.close()

    def encode(self, text: str) -> list[int]:
        """Four bytes of UTF-8 for a token: an estimate, because the tokenizer is the server's."""
        data = text.encode("utf-8", "replace")
        return [
            int.from_bytes(data[at : at + _BYTES_PER_TOKEN])
            for at in range(0, len(data), _BYTES_PER_TOKEN)
        ]

    # --- texts --------------------------------------------------------------------------------

    async def execute(self, requests: Sequence[Request]) -> list[EngineResult | Exception]:
        """`texts`, a list of str or Chunk -> `vectors`, a list of unit vectors (float32).

        A text that the server does not take fails its own request only, and what the server says of
        several requests is told to nobody, unless all are of one tenant.
        """
        results: list[EngineResult | Exception] = [malformed(request) for request in requests]
        chosen = [i for i, request in enumerate(requests) if runnable(request)]
        try:
            found = await self._results([requests[i] for i in chosen])
        except (BadRequest, TooLong) as error:
            if len(chosen) == 1 and not isinstance(error, TooLong):
                found = [error]
            else:
                found = await asyncio.gather(*(self._alone(requests[i]) for i in chosen))
        except EngineError as error:
            if len({requests[i].context.tenant for i in chosen}) > 1:
                error.said = ""  # it may quote a text of another tenant
            found = [error] * len(chosen)
        for i, result in zip(chosen, found, strict=True):
            results[i] = result
        return results

    async def _alone(self, request: Request) -> EngineResult | Exception:
        try:
            (result,) = await self._results([request])
        except TooLong:
            return EngineError(
                f"a text is longer than model {self._model!r} ({self._connection.server}) reads: "
                "use a smaller chunk_size"
            )
        except EngineError as error:
            return error
        return result

    async def _results(self, requests: Sequence[Request]) -> list[EngineResult | Exception]:
        """Of requests with texts. Raises EngineError, which befell them all, QueryCancelled."""
        if not requests:
            return []
        groups = [texts_of(request) for request in requests]
        last = max(requests, key=lambda request: request.context.deadline)
        vectors: dict[str, Vector] = {}
        distinct = list(dict.fromkeys(text for group in groups for text in group))
        for some in self._parts(distinct):
            if not any_wanted(requests):
                raise QueryCancelled("nobody waits for the rest of this batch")
            found = await self._ask(last.context, some)
            for text, vector in zip(some, found, strict=True):
                if len(vector) != self.dimensions:
                    raise OutputError(
                        f"{self._connection.server} sent a vector of {len(vector)} numbers where "
                        f"they had {self.dimensions} before: its model {self._model!r} is another"
                    )
                vectors[text] = vector
        return [{"vectors": [vectors[text] for text in group]} for group in groups]

    def _parts(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """Texts of one request each, in order."""
        chosen: list[str] = []
        tokens = 0
        for text in texts:
            size = len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN + 1
            if chosen and (len(chosen) == self._max_batch or tokens + size > MOST_TOKENS):
                yield chosen
                chosen, tokens = [], 0
            chosen.append(text)
            tokens += size
        if chosen:
            yield chosen

    async def _ask(self, context: QueryContext, texts: Sequence[str]) -> list[Vector]:
        """Unit vectors, in order. Raises EngineError, EngineUnavailable."""
        body: dict[str, Any] = {
            "model": self._model,
            "input": [sanitise(text) or " " for text in texts],  # an empty one is refused
            "encoding_format": self._encoding,
        }
        if self._dimensions is not None:
            body["dimensions"] = self._dimensions
        try:
            data = await self._connection.post(context, "/embeddings", body)
        except BadRequest as error:
            if self._encoding != "base64":
                raise
            refused = BadRequest(
                f'{error}; if it sends no vectors as base64, set encoding_format = "float" among '
                f"the options of engine {self._name!r}"
            )
            refused.said = error.said
            raise refused from None
        try:
            raw = read(data, len(texts))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise OutputError(
                f"{self._connection.server} sent what are no embeddings ({_reason(error)}): check "
                "its url and its model"
            ) from None
        return list(unit(raw))


def read(data: bytes, count: int) -> Vector:
    """The vectors in an answer, [count, dimensions], in the order of what was asked.

    Each comes as base64 of little-endian float32, or as a list of numbers. Raises ValueError,
    KeyError, TypeError: not so many, or one that is not all finite numbers, or of another length.
    """
    entries = json.loads(data)["data"]
    if not isinstance(entries, list) or len(entries) != count:
        raise ValueError(f"{count} vectors were asked for")
    found: dict[int, Vector] = {}
    for entry in entries:
        index = entry["index"]
        if type(index) is not int or not 0 <= index < count or index in found:
            raise ValueError("their indexes are wrong")
        found[index] = _vector(entry["embedding"])
    if len({len(vector) for vector in found.values()}) > 1:
        raise ValueError("vectors of different lengths")
    return np.stack([found[i] for i in range(count)])


def _vector(value: object) -> Vector:
    if isinstance(value, str):
        try:
            vector = np.frombuffer(base64.b64decode(value, validate=True), "<f4")
        except (binascii.Error, ValueError):
            raise ValueError("a vector is not base64 of float32") from None
    elif isinstance(value, list) and all(type(x) in (int, float) for x in value):
        vector = np.array([x if abs(x) < _LARGEST else np.inf for x in value])
    else:
        raise ValueError("a vector is not a list of numbers")
    if not len(vector):
        raise ValueError("a vector is empty")
    if not (np.abs(vector) < _LARGEST).all():
        raise ValueError("a number is not finite")
    return vector.astype(np.float32)


def _reason(error: Exception) -> str:
    """Never what the server wrote."""
    ours = type(error) is ValueError
    return str(error) if ours else "not as documented"
