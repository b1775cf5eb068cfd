"""PythonEngine: runs the functions that `component()` wraps."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, closing
from contextvars import copy_context
from functools import lru_cache
from typing import Any

from teola.engine import AskedBy, EngineKind, EngineResult, EngineSpec, Request
from teola.errors import EngineError, OutputError, QueryCancelled
from teola.graph import Op, ToolParams
from teola.plain_json import is_small, tiny_bytes
from teola.run_secrets import OF_NONE
from teola.runtime.live.nesting import Terms, calling
from teola.runtime.returned import LookedThrough
from teola.threads import Threads


@lru_cache(maxsize=4096)
def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function)


class PythonEngine:
    """Each call is a dispatch of its own; async functions run on the loop, others in threads.

    concurrency: calls in flight at once, besides those that wait for queries which they began.
    """

    def __init__(self, name: str = "python", concurrency: int = 256) -> None:
        self.spec = EngineSpec(
            name=name,
            kind=EngineKind.TOOL,
            ops=frozenset({Op.TOOL_CALL}),
            max_batch=64,
            max_sequences=1,
            concurrency=concurrency,
            description="Python functions, in this process",
        )
        self._threads = Threads(name)

    async def start(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to free but threads; those in the midst of a call end after it."""
        self._threads.close()

    async def execute(self, requests: Sequence[Request]) -> Sequence[EngineResult | Exception]:
        """Call the functions, one after the other (a batch holds one request)."""
        results: list[EngineResult | Exception] = []
        for request in requests:
            results.append(await self._one(request))
        return results

    async def _one(self, request: Request) -> EngineResult:
        params, inputs = request.params, request.inputs
        assert type(params) is ToolParams
        if params.asks:
            query, context = request.context.query_id.partition("/")[0], request.context
            terms = _terms()
            tools = terms.runtime.tools if terms and terms.runtime else None
            secrets = terms.secrets if terms else OF_NONE
            asked_by = AskedBy(query, context.tenant, request.key, tools, secrets)
            inputs = {**inputs, "asked": asked_by}
        try:
            if params.timeout is None and _is_async(params.function) and not params.streams:
                value = await params.function(**inputs)
            elif params.timeout is None:
                value = await self._value(params, inputs)
            else:
                value = await self._in_time(params, inputs, params.timeout)
        except (SystemExit, KeyboardInterrupt) as error:  # they would end the loop's thread
            raise EngineError(f"it raised {type(error).__name__}") from error
        outputs = _result(request, params, value)
        if tiny_bytes(outputs.values()) is None and not is_small(outputs):
            outputs = await self._threads.run(lambda: LookedThrough(outputs))
        return outputs

    async def _in_time(self, params: ToolParams, inputs: Mapping[str, Any], limit: float) -> Any:
        timer = asyncio.timeout(limit)
        try:
            async with timer:
                return await self._value(params, inputs)
        except TimeoutError:
            if not timer.expired():
                raise
            raise EngineError(f"it took longer than its timeout of {limit:g} s") from None

    async def _value(self, params: ToolParams, inputs: Mapping[str, Any]) -> Any:
        function = params.function
        if params.streams:
            return await self._joined(function(**inputs))
        if _is_async(function):
            return await function(**inputs)
        within = copy_context()
        value = await self._threads.run(lambda: within.run(function, **inputs))
        return await value if inspect.isawaitable(value) else value

    async def _joined(self, pieces: AsyncIterator[Any] | Generator[Any, Any, Any]) -> str:
        """The text of a function that yields it, which its caller is told piece by piece."""
        caller = calling.get()
        tell = caller.tell if caller is not None and caller.shown else _to_nobody
        if inspect.isasyncgen(pieces):
            texts = []
            async with aclosing(pieces):
                async for piece in pieces:
                    texts.append(text := _text(piece))
                    tell(text)
            return "".join(texts)
        assert inspect.isgenerator(pieces)
        loop, within = asyncio.get_running_loop(), copy_context()

        def pass_on(text: str) -> None:
            if caller is not None and caller.over:
                raise QueryCancelled("nobody waits for this text any more")
            loop.call_soon_threadsafe(tell, text)

        return str(await self._threads.run(lambda: within.run(_drained, pieces, pass_on)))


def _terms() -> Terms | None:
    """The terms of the query that is worked for."""
    caller = calling.get()
    return None if caller is None or caller.over else caller.query.terms


def _drained(pieces: Generator[Any, Any, Any], pass_on: Callable[[str], None]) -> str:
    texts: list[str] = []
    with closing(pieces):
        for piece in pieces:
            texts.append(text := _text(piece))
            pass_on(text)
    return "".join(texts)


def _text(piece: object) -> str:
    if not isinstance(piece, str):
        raise OutputError(f"it must yield texts, and yielded {type(piece).__name__}")
    return piece


def _to_nobody(text: str) -> None:
    """The text is part of no answer that somebody watches."""


def _result(request: Request, params: ToolParams, value: Any) -> EngineResult:
    for name in params.item_inputs:
        if not isinstance(value, list) or len(value) != len(request.inputs[name]):
            raise OutputError(
                f"a function with batched={name!r} must return a list as long as that one"
            )
    if params.most is not None:
        _check_length(value, params.most)
    if len(params.outputs) == 1:
        return {params.outputs[0]: _value_of(value)}
    missing = set(params.outputs) - set(value) if isinstance(value, dict) else params.outputs
    if missing:
        raise OutputError(f"it must return a dict with {', '.join(sorted(missing))}")
    return {name: _value_of(value[name]) for name in params.outputs}


def _value_of(value: Any) -> Any:
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        raise OutputError(
            "it returned a generator, which is no value: let the function itself yield, to stream "
            "a text, or return a list"
        )
    return value


def _check_length(value: Any, most: int) -> None:
    if not isinstance(value, list):
        raise OutputError(f"with most={most} it must return a list, not {type(value).__name__}")
    if len(value) > most:
        raise OutputError(
            f"it returned {len(value)} items, and most={most}: raise `most`, or return fewer"
        )
