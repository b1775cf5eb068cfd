"""AppRunnable: an application in chains and graphs of LangChain."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from typing import Any

from teola.adapters.app_use import AppUse, value_of, waiting_error
from teola.adapters.langchain_values import received, sent
from teola.extras import needs
from teola.query.result import Result

with needs("langchain", "teola.adapters.langchain"):
    from langchain_core.runnables import Runnable, RunnableConfig


class AppRunnable(Runnable[Any, Any]):
    """An application as a Runnable; see `to_langchain`."""

    def __init__(self, use: AppUse) -> None:
        self.use = use
        self.name = use.app.name
        self._alone = len(use.app.outputs) == 1

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """The answer; blocks."""
        return self._call_with_config(self._run, input, config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """The answer. Cancelling it cancels the query."""
        return await self._acall_with_config(self._arun, input, config, **kwargs)

    def batch(
        self,
        inputs: list[Any],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[Any]:
        """Answers of queries that run side by side and share the engines' batches."""
        return self._batch_with_config(
            self._run_all, inputs, config, return_exceptions=return_exceptions, **kwargs
        )

    def stream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[Any]:
        """The text of the answer as it comes; an answer that is none comes as a whole."""
        yield from self._transform_stream_with_config(iter([input]), self._stream, config, **kwargs)

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """`stream` for async code. Leaving it early cancels the query."""

        async def only() -> AsyncIterator[Any]:
            yield input

        chunks = self._atransform_stream_with_config(only(), self._astream, config, **kwargs)
        async with aclosing(chunks):  # type: ignore[type-var]
            async for chunk in chunks:
                yield chunk

    def _run(self, value: Any) -> Any:
        return _answer(self.use.run(received(value)))

    async def _arun(self, value: Any) -> Any:
        return _answer(await self.use.arun(received(value)))

    def _run_all(self, values: list[Any]) -> list[Any]:
        return [
            _answer_or_error(result) for result in self.use.batch([received(v) for v in values])
        ]

    def _stream(self, values: Iterator[Any]) -> Iterator[Any]:
        for value in values:
            with closing(self.use.stream(received(value), texts=self._alone)) as pieces:
                for piece in pieces:
                    yield piece if isinstance(piece, str) else _answer(piece)

    async def _astream(self, values: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for value in values:
            stream = self.use.astream(received(value), texts=self._alone)
            async with aclosing(stream) as pieces:
                async for piece in pieces:
                    yield piece if isinstance(piece, str) else _answer(piece)


def _answer(result: Result) -> Any:
    return sent(value_of(result))


def _answer_or_error(result: Result) -> Any:
    return (
        _answer(result)
        if result.state in ("ok", "partial")
        else result.error or waiting_error(result)
    )
