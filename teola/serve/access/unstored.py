"""Answers are for whoever asked: no cache on the way may keep them, nor may a browser's."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Unstored:
    """ASGI middleware that says so of every answer that says nothing of caches itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                if all(name.lower() != b"cache-control" for name, _ in headers):
                    message = {**message, "headers": [*headers, (b"cache-control", b"no-store")]}
            await send(message)

        await self._app(scope, receive, told)
