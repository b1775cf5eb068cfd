"""Documents by URL, fetched for clients who must not see by it what only this server can reach.

Whoever may name an address and have it fetched stands inside the firewall (SSRF). So there is one
way to a socket here, `_Pinned`: it resolves the name, wants every address of it to be public, and
connects to the very address that it has looked at; a name that says something else a moment later
gains nothing. Redirects are followed by hand and looked at like the URL itself. Nothing is taken
from the environment, no proxy, no password.

Until a public server has answered there is one message for everything that may go wrong: from it
nobody learns which names exist inside, or which ports are open.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import httpcore
import httpx

from teola.errors import InputError, Overloaded
from teola.serve.intake.addresses import Address
from teola.serve.intake.fetch_policy import FetchPolicy, shown_url, suffix_of
from teola.serve.intake.uploads import Allowance

ADDRESSES: Final = 4
"""Addresses of one name that are tried."""
AT_ONCE: Final = 32
"""Fetches of the whole server; more are refused."""
_BLOCK: Final = 2**20
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_AGENT: Final = f"teola/{version('teola')}"

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""(host, port) -> its addresses as texts. Raises OSError."""
NewPath = Callable[[str], Path]
"""A suffix, which says what is in a file -> a new path of ours."""

_threads = ThreadPoolExecutor(4, thread_name_prefix="teola-resolve")


class Fetcher:
    """Fetches under one policy. resolve: else the system's. tls: else the usual authorities."""

    def __init__(
        self,
        policy: FetchPolicy | None = None,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.policy = policy or FetchPolicy()
        self._backend = _Pinned(self.policy, resolve or resolved)
        self._tls = tls
        self._running = 0

    async def fetch(self, url: str, place: NewPath, allowance: Allowance) -> Path:
        """The document at `url` in a file; cancelling it closes the connection.

        Raises InputError, which says no more than a client may know, and Overloaded.
        """
        parsed = self.policy.checked(url)
        if self._running >= AT_ONCE:
            raise Overloaded(f"{AT_ONCE} documents are being fetched; try again in a moment")
        self._running += 1
        try:
            async with asyncio.timeout(self.policy.total_s), await self._pool() as pool:
                return await self._follow(pool, parsed, place, allowance)
        except (TimeoutError, httpcore.TimeoutException, httpcore.NetworkError):
            message = "no public server answers there; send the document itself"
            raise InputError(f"{shown_url(url)}: {message}") from None
        except httpcore.ProtocolError:
            raise InputError(f"{shown_url(url)}: what answers there does not speak HTTP") from None
        finally:
            self._running -= 1

    async def _pool(self) -> httpcore.AsyncConnectionPool:
        if self._tls is None:
            self._tls = await asyncio.to_thread(httpx.create_ssl_context)
        return httpcore.AsyncConnectionPool(
            ssl_context=self._tls, network_backend=self._backend, max_keepalive_connections=0
        )

    async def _follow(
        self,
        pool: httpcore.AsyncConnectionPool,
        url: httpx.URL,
        place: NewPath,
        allowance: Allowance,
    ) -> Path:
        first_url = str(url)
        for _ in range(self.policy.redirects + 1):
            async with pool.stream(
                "GET", _wire(url), headers=_headers(url), extensions=self._limits()
            ) as response:
                target = _header(response, b"location")
                if response.status not in _REDIRECTS or not target:
                    return await self._store(response, url, first_url, place, allowance)
            try:
                url = self.policy.checked(str(url.join(target)))
            except (httpx.InvalidURL, ValueError):  # InputError is one of them
                raise InputError(
                    f"{shown_url(first_url)}: it leads on to what is not fetched"
                ) from None
        raise InputError(
            f"{shown_url(first_url)}: it leads on more than {self.policy.redirects} times"
        )

    def _limits(self) -> dict[str, dict[str, float]]:
        silence, connect = self.policy.silence_s, self.policy.connect_s
        limits = {"connect": connect, "read": silence, "write": silence, "pool": connect}
        return {"timeout": limits}

    async def _store(
        self,
        response: httpcore.Response,
        url: httpx.URL,
        first_url: str,
        place: NewPath,
        allowance: Allowance,
    ) -> Path:
        """Write the body to a file, a block at a time. Raises InputError."""
        if response.status != 200:
            raise InputError(f"{shown_url(first_url)}: its server answers {response.status}")
        if _header(response, b"content-encoding").lower() not in ("", "identity"):
            raise InputError(f"{shown_url(first_url)}: its server sends it only compressed")
        left, announced = self.policy.most_bytes, _header(response, b"content-length")
        if announced.isdecimal() and int(announced[:20]) > left:
            raise self._too_large(first_url)
        suffix = suffix_of(_header(response, b"content-type"), url.path, first_url)
        path, buffer = place(suffix), bytearray()
        with path.open("wb") as out:  # at once: a thread would open it for nobody
            async for block in response.aiter_stream():
                left -= len(block)
                allowance.take(len(block))
                if left < 0:
                    raise self._too_large(first_url)
                buffer += block
                if len(buffer) >= _BLOCK:
                    await asyncio.to_thread(out.write, bytes(buffer))
                    buffer.clear()
            await asyncio.to_thread(out.write, bytes(buffer))
        return path

    def _too_large(self, url: str) -> InputError:
        most = self.policy.most_bytes / 2**20
        return InputError(f"{shown_url(url)}: it is larger than the {most:g} MiB of a document")


class _Pinned(httpcore.AsyncNetworkBackend):
    """Connections to addresses that the policy allows, and to no others."""

    def __init__(self, policy: FetchPolicy, resolve: Resolve) -> None:
        self._policy, self._resolve = policy, resolve
        self._plain = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Resolved once, looked at, and connected to as it was looked at."""
        failure: Exception = httpcore.ConnectError()
        for address in (await self._addresses(host, port))[:ADDRESSES]:
            try:
                return await self._plain.connect_tcp(
                    str(address), port, timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def _addresses(self, host: str, port: int) -> list[Address]:
        """All addresses of `host`. Raises ConnectError if one of them is not allowed."""
        try:
            addresses = [ip_address(text) for text in await self._resolve(host, port)]
        except (OSError, ValueError) as error:
            raise httpcore.ConnectError() from error
        if not all(map(self._policy.allowed, addresses)):
            raise httpcore.ConnectError()
        return addresses


async def resolved(host: str, port: int) -> list[str]:
    """The system's answer, waited for in threads that nothing else needs."""

    def ask() -> list[str]:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(entry[4][0]) for entry in entries))

    return await asyncio.get_running_loop().run_in_executor(_threads, ask)


def _wire(url: httpx.URL) -> httpcore.URL:
    """The URL as it was looked at, so that no second parser reads its text."""
    scheme, host, target = url.raw_scheme, url.raw_host, url.raw_path
    return httpcore.URL(scheme=scheme, host=host, port=url.port, target=target)


def _headers(url: httpx.URL) -> list[tuple[bytes, bytes]]:
    return [
        (b"host", url.netloc),
        (b"user-agent", _AGENT.encode()),
        (b"accept", b"*/*"),
        (b"accept-encoding", b"identity"),
    ]


def _header(response: httpcore.Response, name: bytes) -> str:
    header = next((value for key, value in response.headers if key.lower() == name), b"")
    return str(header, "latin-1").strip()
