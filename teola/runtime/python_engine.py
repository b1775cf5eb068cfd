"""PythonEngine: runs the functions that `component()` wraps."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from teola.engine import EngineKind, EngineSpec, Request, Result
from teola.errors import OutputError
from teola.graph import Op, ToolParams


@lru_cache(maxsize=4096)
def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function)


class PythonEngine:
    """Each call is a dispatch of its own; async functions run on the loop, others in threads.

    concurrency: calls in flight at once.
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

    async def start(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to free."""

    async def execute(self, requests: Sequence[Request]) -> Sequence[Result | Exception]:
        """Call the functions, one after the other (a batch holds one request)."""
        results: list[Result | Exception] = []
        for request in requests:
            params = request.params
            assert type(params) is ToolParams
            if _is_async(params.function):
                value = await params.function(**request.inputs)
            else:
                value = await asyncio.to_thread(params.function, **request.inputs)
            results.append(self._result(request, params, value))
        return results

    def _result(self, request: Request, params: ToolParams, value: Any) -> Result:
        for name in params.item_inputs:
            if not isinstance(value, list) or len(value) != len(request.inputs[name]):
                raise OutputError(
                    f"a function with batched={name!r} must return a list as long as that one"
                )
        if params.most is not None:
            _check_length(value, params.most)
        if len(params.outputs) == 1:
            return {params.outputs[0]: value}
        missing = set(params.outputs) - set(value) if isinstance(value, dict) else params.outputs
        if missing:
            raise OutputError(f"it must return a dict with {', '.join(sorted(missing))}")
        return {name: value[name] for name in params.outputs}


def _check_length(value: Any, most: int) -> None:
    if not isinstance(value, list):
        raise OutputError(f"with most={most} it must return a list, not {type(value).__name__}")
    if len(value) > most:
        raise OutputError(
            f"it returned {len(value)} items, and most={most}: raise `most`, or return fewer"
        )
