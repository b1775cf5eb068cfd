"""The HTTP connection to one OpenAI-compatible server: deadlines, silence, streams, plain errors.

What is sent is decided elsewhere; here is only how it gets there and what may go wrong meanwhile.
Waits end by anyio's scopes, as HTTPX's own do: any answer's end may close connections that are too
old, which only those leave to finish, and a connection half closed is open for good.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import urlsplit
from urllib.request import getproxies

from anyio import CancelScope, current_time, fail_after, move_on_after

from teola.engine import AccountLimits, Delta, LeftOfMinute, QueryContext, Usage
from teola.errors import EngineAway, EngineBusy, EngineError, EngineUnavailable, InputError
from teola.loopback import is_loopback

from . import probe, wire
from .budget_headers import left_of_minute
from .calls import CallsText

if TYPE_CHECKING:
    import httpx
    from openai import AsyncOpenAI

DRAIN_LIMIT_S: Final = 0.2
FIRST_S: Final = 120.0
"""Longest silence before an answer begins, where nothing else is said: a server may be busy."""
SILENCE_S: Final = 30.0
"""Longest silence within an answer."""

_T = TypeVar("_T")


class Connection:
    """Requests to one server on behalf of queries, whose deadlines hold.

    timeout_s: longest silence of the server (None: FIRST_S, and SILENCE_S within an answer). model:
    for messages, once it is known. Raises InputError (url).
    """

    def __init__(
        self,
        name: str,
        url: str,
        api_key: str | None,
        timeout_s: float | None,
        connect_timeout_s: float,
    ) -> None:
        self.url = probe.api_url(url)
        self.server = f"{name} at {probe.shown(self.url)}"
        self.model: str | None = None
        self._api_key = api_key
        self._timeout_s = FIRST_S if timeout_s is None else timeout_s
        self._silence_s = SILENCE_S if timeout_s is None else timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._client: AsyncOpenAI | None = None
        self.omit: Collection[str] = ()
        """Fields of requests that it does not take."""
        self.on_left: Callable[[LeftOfMinute], None] | None = None
        """Is told what answers say is left of the server's budgets."""

    @property
    def client(self) -> AsyncOpenAI:
        """The SDK's client. Raises EngineError before `open`."""
        if self._client is None:
            raise EngineError(f"{self.server} is not started")
        return self._client

    async def open(self) -> None:
        """Prepare, anew if it was open; nothing is sent."""
        await self.close()
        self._client = await asyncio.to_thread(self._new_client)

    def _new_client(self) -> AsyncOpenAI:
        """Imports the SDK, which takes a second."""
        import httpx
        import openai

        from .spare_connections import SpareConnections

        # Without a transport, httpx asks the environment's proxy.
        near = is_loopback(urlsplit(self.url).hostname or "")
        transport = SpareConnections() if near or not getproxies() else None
        return openai.AsyncOpenAI(
            base_url=self.url,
            api_key=self._api_key or "none",
            max_retries=0,
            timeout=httpx.Timeout(None, connect=self._connect_timeout_s),
            http_client=openai.DefaultAsyncHttpxClient(transport=transport),
        )

    async def close(self) -> None:
        """Close all connections; whoever gives up waiting for it leaves none open."""
        if self._client is not None:
            client, self._client = self._client, None
            await asyncio.shield(client.close())

    # --- requests -----------------------------------------------------------------------------

    async def send(self, context: QueryContext, body: Mapping[str, Any]) -> None:
        """Send a request and drop its answer. Raises EngineError, EngineUnavailable."""
        await self.post(context, _path(body), _whole(body))

    async def post(self, context: QueryContext, path: str, body: Mapping[str, Any]) -> bytes:
        """The answer to a request, as it came.

        Raises EngineError, EngineUnavailable.
        """
        import httpx

        self._check_deadline(context)
        client, sent = self.client, time.monotonic()
        answer = await self._within(
            context, lambda: client.post(path, body=dict(body), cast_to=httpx.Response)
        )
        self._heard(answer.headers, sent)
        return answer.content

    async def stream(
        self,
        context: QueryContext,
        body: Mapping[str, Any],
        estimate: Callable[[int], Usage],
        *,
        empty: bool = False,
        calls: CallsText | None = None,
    ) -> AsyncGenerator[Delta, None]:
        """The streamed answer. Closing the generator closes the connection, and the server stops.

        estimate: usage by the characters written, if the server sends none. empty: a first event
        without text is a token too, and delivered; so is a first thought. calls: writes what the
        server tells of tool calls as a list of them. Raises EngineError, EngineUnavailable.
        """
        reason, usage, written, thought = None, None, 0, False
        async with AsyncExitStack() as stack:
            events = await self._open_stream(context, body, stack)
            while (data := await self._next(context, events, begun=written > 0)) is not None:
                if data == wire.ALIVE:
                    continue
                if data == wire.DONE:
                    await _drain(events)
                    break
                with self.translated():
                    piece = self._piece(data, begun=written > 0)
                usage = piece.usage or usage
                if reason != wire.REFUSED:
                    reason = piece.finish_reason or reason
                text = calls.feed(piece.text, piece.calls) if calls is not None else piece.text
                if text or empty or (piece.thinks and not thought):
                    empty, thought = False, thought or piece.thinks
                    written += len(text)
                    yield Delta(text)
        reason = wire.finish_reason(reason, self.server)
        if calls is not None and (text := calls.end()):
            yield Delta(text)
        yield Delta("", reason, usage or estimate(written))

    async def _open_stream(
        self, context: QueryContext, body: Mapping[str, Any], stack: AsyncExitStack
    ) -> AsyncGenerator[str, None]:
        """The events of the answer, which `stack` will close."""
        import httpx
        import openai

        self._check_deadline(context)
        options: dict[str, Any] = {"stream": True}
        if "stream_options" not in self.omit:
            options["stream_options"] = {"include_usage": True}
        fields, client = _whole(body) | options, self.client

        async def open_response() -> httpx.Response:
            # Not by the SDK's `create`, which compares each field of each message with its types: a
            # third of all that a call takes of the processor.
            response: Any = await client.post(
                _path(body),
                body=fields,
                cast_to=httpx.Response,
                stream=True,
                stream_cls=openai.AsyncStream[Any],
            )
            stack.push_async_callback(response.aclose)
            return cast("httpx.Response", response)

        sent = time.monotonic()
        response = await self._within(context, open_response)
        self._heard(response.headers, sent)
        kind = response.headers.get("content-type", "")
        if "text/html" in kind:
            raise EngineError(
                f"{self.server} sent a web page in place of an answer: check its url, and what "
                "stands before it",
                retryable=True,
            )
        read = wire.whole if "application/json" in kind else wire.events
        return await stack.enter_async_context(aclosing(read(response.aiter_bytes())))

    async def _next(
        self, context: QueryContext, events: AsyncGenerator[str, None], *, begun: bool
    ) -> str | None:
        """The next event of an answer. begun: a part of it has come, so that a server which is lost
        now has not just refused the call."""
        limit_s = self._silence_s if begun else self._timeout_s
        try:
            return await self._within(context, lambda: anext(events, None), limit_s)
        except EngineAway as error:
            if begun:
                raise _lost(error) from None
            raise

    def _piece(self, data: str, *, begun: bool) -> wire.AnswerPiece:
        """What an event says. begun: see `_next`."""
        try:
            return wire.read_piece(data, self.server, str(self.model))
        except (EngineAway, EngineBusy) as error:
            if begun:
                raise _lost(error) from None
            raise

    def _heard(self, headers: Mapping[str, str], sent: float | None = None) -> None:
        """Headers of an answer to what was sent then (None: it was refused just now)."""
        if self.on_left is not None and (left := left_of_minute(headers)) is not None:
            ago_s = 0.0 if sent is None else time.monotonic() - sent
            self.on_left(left._replace(ago_s=ago_s))

    def limits(
        self, requests_per_minute: int | None, tokens_per_minute: int | None
    ) -> AccountLimits:
        """What its API key may draw, with a name for it that tells neither key nor url.

        Raises InputError.
        """
        given = {"requests_per_minute": requests_per_minute, "tokens_per_minute": tokens_per_minute}
        for option, value in given.items():
            if value is not None and (isinstance(value, bool) or value < 1):
                raise InputError(
                    f"{self.server}: {option} is {value!r}: give a whole number from 1"
                )
        account = hashlib.sha256(f"{self.url}\n{self._api_key or ''}".encode()).hexdigest()[:16]
        return AccountLimits(account, requests_per_minute, tokens_per_minute)

    async def get(self, path: str, limit_s: float) -> str:
        """The page at `path`, beside the API. Raises EngineError, EngineUnavailable."""
        import httpx

        try:
            with self.translated(), fail_after(limit_s):
                answer = await self.client.get(self.beside(path), cast_to=httpx.Response)
                return answer.text
        except TimeoutError:
            raise EngineError(
                f"{self.server} was silent for {limit_s:g} s", retryable=True
            ) from None

    def beside(self, path: str) -> str:
        """The url of what a server has outside its /v1."""
        return self.url.rstrip("/").removesuffix("/v1") + path

    # --- time ---------------------------------------------------------------------------------

    def _check_deadline(self, context: QueryContext) -> None:
        if context.deadline <= time.monotonic():
            raise EngineError(f"not sent to {self.server}: the query's deadline has passed")

    async def _within(
        self,
        context: QueryContext,
        wait: Callable[[], Awaitable[_T]],
        limit_s: float | None = None,
    ) -> _T:
        """Awaits the server's next sign of life, and says so if it does not come in time."""
        limit_s = self._timeout_s if limit_s is None else limit_s
        left = context.deadline - time.monotonic()
        end = current_time() + min(left, limit_s)
        with self.translated(), CancelScope(deadline=end):
            return await wait()
        if left < limit_s:
            raise EngineError(f"{self.server} did not answer before the query's deadline")
        raise EngineError(f"{self.server} was silent for {limit_s:g} s", retryable=True)

    def translated(self) -> AbstractContextManager[None]:
        """Turns what the SDK and the connection raise into EngineErrors."""
        secret = self._api_key or ""
        return wire.as_engine_errors(self.server, str(self.model), self._heard, secret)


def _path(body: Mapping[str, Any]) -> str:
    return "/chat/completions" if "messages" in body else "/completions"


def _whole(body: Mapping[str, Any]) -> dict[str, Any]:
    """All fields of a request."""
    fields = dict(body)
    return fields | fields.pop("extra_body", {})


def _lost(error: EngineError) -> EngineUnavailable:
    """What had begun is over: the server has not just refused it."""
    found = EngineUnavailable(str(error))
    found.said = error.said
    return found


async def _drain(events: AsyncGenerator[str, None]) -> None:
    """Reads to the end of the body, so that the connection can be used again; the answer is
    complete, so this neither waits long nor fails."""
    import httpx

    with suppress(ValueError, httpx.TransportError), move_on_after(DRAIN_LIMIT_S):
        async for _ in events:
            pass
