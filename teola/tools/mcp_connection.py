"""A connection to a server of the Model Context Protocol, kept alive from one event loop.

The SDK's client has to be entered and left in one task, so each connection has one, which does
nothing else: connect, wait until the server is lost, tidy up, wait a little, connect again. Who
calls meanwhile waits for the attempt that comes next. After several attempts in vain the
connection is given up for a while. The task ends with the runtime, and takes the server's process,
its pipes and its streams along.

That task is cancelled by anyio's scopes only. While the SDK ends a process it is shielded from
those; `Task.cancel` would get through, and leave the process and a task that waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import Context
from math import inf
from typing import TYPE_CHECKING, Any, Final

from teola.errors import EngineUnavailable, ToolError, ToolLost
from teola.tools.mcp_messages import Ear, MessageRefused

if TYPE_CHECKING:
    from anyio import CancelScope
    from mcp import Client, MCPError
    from mcp.client import IncomingMessage
    from mcp.types import CallToolResult
    from mcp.types import Tool as ListedTool

TRIES: Final = 5
"""Attempts in vain after which a connection is given up."""
AGAIN_S: Final = 30.0
"""How long it stays given up."""
PAUSE_S: Final = 0.5
"""Before the second attempt; doubled before each further one."""
MOST_PAUSE_S: Final = 30.0
STEADY_S: Final = 10.0
"""A connection that lasted so long makes good for all attempts before it."""
WROTE_CHARS: Final = 500
"""Of what a server wrote before it ended, that its error says."""
MOST_GARBAGE: Final = 100
"""Lines that are no messages, from one process, before it counts as no server."""
SILENT: Final = 3
"""Calls in a row that were given up, without a word from the server, before it counts as hung."""
SILENT_S: Final = 5.0
"""How long such a call has to have lasted."""
CHANGES: Final = 4
"""Times in a row that a list is read because it changed meanwhile."""
PAGES: Final = 100
"""Of one list of tools."""
ENOUGH_LISTED: Final = 1_024
"""Tools of one list after which no further ones are read."""
FORGOTTEN: Final = "Session terminated"
"""What the SDK says of a server by URL that does not know the session any more."""
STREAM_FAILED: Final = "SSE stream failed: "
"""What the SDK says before the reason why it no longer reads an answer by URL."""

log = logging.getLogger(__name__)


class McpConnection:
    """One server, from the loop that runs.

    name: of the server.
    transport: what connects to it, made anew for each attempt.
    start_s: seconds that an attempt may take, and a list of tools.
    """

    def __init__(
        self,
        name: str,
        transport: Callable[[], AbstractAsyncContextManager[Any]],
        start_s: float,
    ) -> None:
        self.name = name
        self._transport, self._start_s = transport, start_s
        self._loop = asyncio.get_running_loop()
        self._up: asyncio.Future[Client] = self._loop.create_future()
        """The client of the attempt that is being made, or comes next."""
        self._lost = asyncio.Event()
        self._reached = False
        """Whether this attempt has come so far."""
        self._task: asyncio.Task[None] | None = None
        self._scope: CancelScope | None = None
        """The task's; cancelling it ends the task."""
        self._given_up: float | None = None
        self._closed = False
        self._listing: list[ListedTool] | None = None
        self._listed = asyncio.Lock()
        self._list_failed: tuple[float, str] | None = None
        """When a list was not told in time last, and the error's text."""
        self._changes = 0
        """Times that the list of tools may have changed."""
        self._heard = 0
        """Messages from the server."""
        self._silent = self._garbage = 0
        self._silent_since = 0.0
        self._deaf = False
        """Whether it would not be told of changes."""
        self._refused: str | None = None
        """Why this connection reads no more."""

    # --- what is asked of it --------------------------------------------------------------

    async def tools(self) -> list[ListedTool]:
        """What the server offers now. Raises EngineUnavailable, ToolLost, ToolError."""
        began = self._loop.time()
        async with self._listed:
            if self._list_failed is not None and self._list_failed[0] > began:
                # who waited meanwhile need not wait as long once more
                raise EngineUnavailable(self._list_failed[1])
            listing = None if self._deaf else self._listing
            for _ in range(CHANGES):
                if listing is not None:
                    break
                changes = self._changes
                listed = await self._ask(self._pages)
                if changes == self._changes:
                    listing = self._listing = listed
            return listed if listing is None else listing

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        """What the server answers. Raises EngineUnavailable, ToolLost, ToolError."""
        result: CallToolResult = await self._ask(lambda client: client.call_tool(tool, arguments))
        return result

    async def close(self) -> None:
        """End the connection, and the server if it is ours. Nothing of it is left."""
        self._closed = True
        task = self._task
        if self._scope is not None:
            self._scope.cancel()
        if task is not None:
            await asyncio.wait([task])
        if not self._up.done():
            self._refuse(self._is_closed())

    async def _ask(self, question: Callable[[Client], Awaitable[Any]]) -> Any:
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        client = await self._client()
        heard, began = self._heard, self._loop.time()
        try:
            return await question(client)
        except EngineUnavailable:
            raise
        except asyncio.CancelledError:
            if heard == self._heard:
                self._was_silent(began)
            raise
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                reason = self._refused or _stream_failed(error)
                hint = f": {reason}" if reason else ""
                raise ToolLost(f"the tool server {self.name!r} was lost{hint}") from None
            if error.message == FORGOTTEN:
                self._ends()
                raise EngineUnavailable(f"the tool server {self.name!r} began anew") from None
            raise ToolError(error.message) from None
        except (RuntimeError, ValueError) as error:  # the SDK's, of results that fit no schema
            first = str(error).partition("\n")[0]
            raise ToolError(f"the tool server {self.name!r} answered wrongly: {first}") from None

    async def _client(self) -> Client:
        """A client that is connected. Raises EngineUnavailable."""
        if self._closed:
            raise self._is_closed()
        waits = self._given_up is not None and self._loop.time() < self._given_up + AGAIN_S
        if (self._task is None or self._task.done()) and not waits:
            from anyio import CancelScope

            self._renew()
            self._scope = CancelScope()
            # in a context of its own, since it outlives the query that happens to begin it
            self._task = self._loop.create_task(self._keep(self._scope), context=Context())
        return await asyncio.shield(self._up)

    def _is_closed(self) -> EngineUnavailable:
        return EngineUnavailable(f"the tool server {self.name!r} is closed", retryable=False)

    async def _pages(self, client: Client) -> list[ListedTool]:
        """All pages of the list, in `start_s`: an answer may be one that the SDK drops."""
        tools: list[ListedTool] = []
        cursor = None
        heard, began = self._heard, self._loop.time()
        try:
            async with asyncio.timeout(self._start_s):
                for _ in range(PAGES):
                    page = await client.list_tools(cursor=cursor)
                    tools += page.tools
                    cursor = page.next_cursor
                    if cursor is None or len(tools) >= ENOUGH_LISTED:
                        break
        except TimeoutError:
            if heard == self._heard:
                self._was_silent(began)
            message = f"the tool server {self.name!r} did not list its tools in {self._start_s:g} s"
            self._list_failed = (self._loop.time(), f"{message} (start_s)")
            raise EngineUnavailable(f"{message} (start_s)") from None
        if cursor is not None or len(tools) > ENOUGH_LISTED:
            del tools[ENOUGH_LISTED:]
            log.warning("tool server %s: its list goes on after %d tools", self.name, len(tools))
        return tools

    # --- its life -------------------------------------------------------------------------

    async def _keep(self, scope: CancelScope) -> None:
        with scope:
            await self._connect()

    async def _connect(self) -> None:
        """Connect, again and again."""
        failures, pause = 0, PAUSE_S
        while True:
            began, self._reached = self._loop.time(), False
            error: Exception | None = None
            try:
                await self._live()
            except Exception as caught:  # noqa: BLE001 - a server may break in any way
                error = caught
            failures = 0 if self._reached else failures + 1
            if self._reached:
                self._renew()
            if self._loop.time() - began >= STEADY_S:
                pause = PAUSE_S
            message = "tool server %s was lost" if self._reached else "tool server %s did not start"
            log.warning(message, self.name)
            if not self._reached:
                self._refuse(self._unavailable(error))
            if failures >= TRIES:
                self._given_up = self._loop.time()
                return
            await asyncio.sleep(pause)
            self._renew()
            pause = min(2 * pause, MOST_PAUSE_S)

    async def _live(self) -> None:
        """Connect once, until the server is lost."""
        from anyio import CancelScope, create_task_group
        from mcp import Client

        self._garbage = self._silent = 0
        self._deaf, self._refused = False, None
        self._lost.clear()
        connecting = Client(self._watched(), cache=None, message_handler=self._message)
        with CancelScope(deadline=self._loop.time() + self._start_s) as scope:
            async with connecting as client, create_task_group() as tasks:
                scope.deadline = inf
                self._stale()
                self._reached = True
                self._up.set_result(client)
                tasks.start_soon(self._listen, client)
                await self._lost.wait()
                tasks.cancel_scope.cancel()
        if scope.cancelled_caught:
            raise TimeoutError

    def _renew(self) -> None:
        if self._up.done():
            self._up = self._loop.create_future()

    def _refuse(self, error: EngineUnavailable) -> None:
        """Tell whoever waits for this attempt that it failed."""
        self._up.set_exception(error)
        self._up.exception()  # nobody may wait for it

    def _unavailable(self, error: BaseException | None) -> EngineUnavailable:
        """Why an attempt was in vain, with the end of what the server wrote; more of it is in the
        notes."""
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        notes = list(getattr(error, "__notes__", ()))
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
            notes += getattr(error, "__notes__", ())
        match error:
            case _ if self._refused is not None:
                reason = self._refused
            case _ if self._garbage >= MOST_GARBAGE:
                reason = "what it writes are no messages"
            case None:
                reason = "it ended at once"
            case TimeoutError():
                reason = f"it was not ready in {self._start_s:g} s"
            case MCPError() if error.code == CONNECTION_CLOSED:
                reason = _stream_failed(error) or "it ended at once"
            case _:
                reason = str(error) or type(error).__name__
        wrote = " ".join(" ".join(notes).split())
        if len(wrote) > WROTE_CHARS:
            wrote = f"...{wrote[-WROTE_CHARS:]}"
        tail = f"; {wrote}" if wrote else ""
        unavailable = EngineUnavailable(
            f"the tool server {self.name!r} did not start: {reason}{tail}"
        )
        for line in notes:
            unavailable.add_note(line)
        return unavailable

    # --- what it hears --------------------------------------------------------------------

    async def _message(self, message: IncomingMessage) -> None:
        from mcp.types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._stale()

    async def _listen(self, client: Client) -> None:
        """Servers of the newer protocol tell of changes only to who asks for it."""
        from mcp import MCPError
        from mcp.client.subscriptions import SubscriptionLost
        from mcp.types.version import MODERN_PROTOCOL_VERSIONS

        offered = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        if offered is None or not offered.list_changed:
            return
        self._deaf = True
        while True:
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    if not changes.honored.tools_list_changed:
                        return
                    self._stale()  # what changed before it listened, it was not told
                    self._deaf = False
                    async for _ in changes:
                        self._stale()
            except (MCPError, RuntimeError, TimeoutError) as error:
                if not isinstance(error, SubscriptionLost):
                    return
            finally:
                self._deaf = True
            await asyncio.sleep(PAUSE_S)

    def _was_silent(self, began: float) -> None:
        """A call that began then was given up, and nothing was heard meanwhile. Of several that are
        given up together one counts."""
        now = self._loop.time()
        if now < max(began, self._silent_since) + SILENT_S:
            return
        self._silent, self._silent_since = self._silent + 1, now
        if self._silent >= SILENT:
            self._ends()

    def _stale(self) -> None:
        self._changes += 1
        self._listing = None

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[tuple[Any, Any]]:
        """The transport, with a listener to what comes in."""
        async with self._transport() as (incoming, outgoing):
            yield Ear(incoming, self._hears, self._ends), outgoing

    def _hears(self, item: object) -> bool:
        """Something came in. Whether to go on listening."""
        if isinstance(item, MessageRefused):
            self._refused = str(item)
            return False
        if isinstance(item, Exception):
            self._garbage += 1
            return self._garbage < MOST_GARBAGE
        self._heard += 1
        self._silent = 0
        return True

    def _ends(self) -> None:
        """Nothing more will come in on this connection."""
        self._renew()
        self._lost.set()


def _stream_failed(error: MCPError) -> str | None:
    """Why the SDK no longer read an answer by URL, if that is what an error tells."""
    reason = error.message.removeprefix(STREAM_FAILED)
    return None if reason == error.message else reason
