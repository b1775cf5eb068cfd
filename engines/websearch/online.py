"""Asking a search service on the web: deadlines, silence, refusals, and replies that hold no
answer.

Many single requests run at once, each with the deadline of its query. Nothing is retried here: an
error says whether another try may help (`retryable`), and the scheduler decides. Who takes no more
searches now (429, 503), or is not there, has not failed: the scheduler waits. No message repeats
what a service says in words, or what was asked.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import urlsplit

from anyio import fail_after

from teola.engine import EngineResult, EngineSpec, Hit, QueryContext, Request
from teola.errors import (
    EngineAway,
    EngineBusy,
    EngineError,
    EngineUnavailable,
    InputError,
    OutputError,
    TeolaError,
)
from teola.loopback import without_proxy

from ..openai.budget_headers import retry_after
from . import answers
from .answers import Page

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
LARGEST_ANSWER: Final = 4_000_000
"""Bytes of one answer; more is no list of search results."""


@dataclass(frozen=True, slots=True)
class WebCall:
    """One HTTP request: a GET with `params`, or a POST with a form (`data`) or JSON (`body`)."""

    method: str
    url: str
    params: Mapping[str, str | int] = field(default_factory=dict)
    data: Mapping[str, str] | None = None
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class OnlineSearch(ABC):
    """Base of the engines for search services. Each says how it asks and how it reads.

    url: where the service is. timeout_s: longest wait for one answer; the query's deadline holds
    besides. concurrency: requests at once.
    """

    def __init__(
        self, name: str, about: str, url: str | None, timeout_s: float, concurrency: int
    ) -> None:
        if timeout_s <= 0 or concurrency < 1:
            raise InputError(
                f"engine {name!r}: timeout_s must be positive and concurrency at least 1"
            )
        self.url = url
        self._spec = answers.spec(name, about, max_batch=1, concurrency=concurrency)
        self._timeout_s = timeout_s
        self._client: httpx.AsyncClient | None = None

    @property
    def spec(self) -> EngineSpec:
        return self._spec

    # --- what a service is like -----------------------------------------------------------

    @abstractmethod
    def settle(self) -> None:
        """Complete the settings from the environment. Raises EngineUnavailable: what is missing."""

    @abstractmethod
    def asks(self, query: str, top_k: int) -> Sequence[WebCall]:
        """The requests that together give `top_k` results for a query."""

    @abstractmethod
    def pages(self, answer: Any) -> Iterable[Page]:
        """The results in a parsed answer, best first. Raises ValueError (no such answer)."""

    @abstractmethod
    def refusal(self, status: int, answer: Any) -> EngineError | None:
        """The error for a status that means something of its own here; None for the others."""

    # --- life -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Prepare; nothing is sent, for searches cost money. Raises EngineUnavailable."""
        self.settle()
        if not self.url or not answers.is_web_address(self.url):
            raise EngineUnavailable(
                f"the url of {self._spec.name!r} must look like https://host", retryable=False
            )
        self._client = await asyncio.to_thread(self._new_client)

    def _new_client(self) -> httpx.AsyncClient:
        import httpx

        logging.getLogger("httpx").addFilter(_without_questions)
        return httpx.AsyncClient(
            headers={"user-agent": "teola", "accept": "application/json"},
            timeout=httpx.Timeout(None, connect=self._timeout_s),
            limits=httpx.Limits(max_connections=self._spec.concurrency),
            mounts=without_proxy(self.url or ""),
        )

    async def close(self) -> None:
        """Close all connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    @property
    def service(self) -> str:
        """Who is asked, for messages."""
        return f"{self._spec.name} at {urlsplit(self.url or '').hostname}"

    # --- searching ------------------------------------------------------------------------

    async def execute(self, requests: Sequence[Request]) -> Sequence[EngineResult | Exception]:
        """WEB_SEARCH: `queries` -> `hits`, a list for each query, best first. A hit's id is its
        url, its document the title, its text the snippet."""
        return await asyncio.gather(*(self._answer(request) for request in requests))

    async def _answer(self, request: Request) -> EngineResult | Exception:
        try:
            question = answers.read(request)
        except EngineError as error:
            return error
        searches = (self._search(request.context, q, question.top_k) for q in question.queries)
        try:
            return {"hits": await _all(searches)}
        except TeolaError as error:
            return error

    async def _search(self, context: QueryContext, query: str, top_k: int) -> list[Hit]:
        if not query.strip():
            return []
        asks = self.asks(query, top_k)
        lists = await _all(self._ask(context, ask) for ask in asks)
        return answers.hits([page for pages in lists for page in pages], top_k)

    async def _ask(self, context: QueryContext, ask: WebCall) -> list[Page]:
        """The results of one request, by the query's deadline. Raises EngineError."""
        left = context.deadline - time.monotonic()
        if left <= 0:
            raise EngineError(f"not sent to {self.service}: the query's deadline has passed")
        try:
            with fail_after(min(left, self._timeout_s)):
                status, raw, after_s = await self._send(ask)
        except TimeoutError:
            if left < self._timeout_s:
                raise EngineError(
                    f"{self.service} did not answer before the query's deadline"
                ) from None
            raise EngineError(
                f"{self.service} did not answer within {self._timeout_s:g} s", retryable=True
            ) from None
        return self._read(status, raw, after_s)

    async def _send(self, ask: WebCall) -> tuple[int, bytes, float | None]:
        """Status, body, and in how many seconds it wants to be asked again, if it says so. Raises
        EngineAway, OutputError (too large)."""
        import httpx

        client = self._client
        if client is None:
            raise EngineError(f"engine {self._spec.name!r} is not started; call start() first")
        body = bytearray()
        try:
            async with client.stream(
                ask.method,
                ask.url,
                params=ask.params or None,
                data=ask.data,
                json=ask.body,
                headers=ask.headers,
            ) as response:
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > LARGEST_ANSWER:
                        raise OutputError(f"{self.service} sent more than search results")
                return response.status_code, bytes(body), retry_after(response.headers)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            why = type(error).__name__
            raise EngineAway(
                f"no connection to {self.service} ({why}): check the network and its url"
            ) from None
        except httpx.HTTPError as error:
            why = type(error).__name__
            raise EngineAway(f"the connection to {self.service} broke off ({why})") from None

    def _read(self, status: int, raw: bytes, after_s: float | None) -> list[Page]:
        try:
            answer = json.loads(raw)
        except (ValueError, RecursionError):
            answer = None
        if status != 200:
            error = self.refusal(status, answer) or _refusal(self.service, status)
            if isinstance(error, EngineBusy):
                error.after_s = after_s
            raise error
        if not isinstance(answer, Mapping):
            raise OutputError(f"{self.service} sent what is no JSON object: check its url")
        try:
            return list(self.pages(answer))
        except ValueError:
            raise OutputError(
                f"{self.service} sent what are no search results: check its url"
            ) from None


async def _all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results, in order. Raises the first error, once everything has ended."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return cast("list[T]", results)


def setting(given: str | None, variable: str, service: str, what: str, option: str) -> str:
    """A setting, or what the environment has for it. Raises EngineUnavailable if neither is."""
    value = (given or os.environ.get(variable, "")).strip()
    if not value:
        raise EngineUnavailable(
            f"{service} needs {what}: set {variable}, or give its engine the option {option!r}",
            retryable=False,
        )
    return value


def over_quota(service: str, status: int) -> EngineError:
    """The error for a quota that is used up for today or for good. Never retried."""
    return EngineError(
        f"{service} refuses more searches ({status}): its quota is used up; raise the quota"
    )


def bad_key(service: str, status: int, variable: str) -> EngineError:
    """The error for a key that is not accepted."""
    return EngineError(f"{service} refuses the API key ({status}): check {variable}")


def _refusal(service: str, status: int) -> EngineError:
    if status in (429, 503):
        return EngineBusy(f"{service} takes no more searches now ({status})")
    if status in (502, 504):
        return EngineAway(f"{service} is out of reach behind its gateway ({status})")
    if status in (401, 403):
        return EngineError(f"{service} refuses access ({status}): check its key and its url")
    if status == 408 or status >= 500:
        return EngineError(f"{service} failed ({status}): try again later", retryable=True)
    if 300 <= status < 400:
        return EngineError(f"{service} has moved ({status}): give its new url")
    if status in (400, 422):
        return EngineError(f"{service} refuses the search as invalid ({status}): check its options")
    return EngineError(f"{service} has no search there ({status}): check its url")


def _without_questions(record: logging.LogRecord) -> bool:
    """Remove the question from the address that httpx logs: questions do not belong into logs."""
    import httpx

    if isinstance(record.args, tuple):
        record.args = tuple(
            arg.copy_with(query=None) if isinstance(arg, httpx.URL) else arg for arg in record.args
        )
    return True
