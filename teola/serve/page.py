"""The page at /ui: static files of ours, under a policy that lets nothing in from elsewhere.

It holds no data, so that it needs no key; what it shows it asks the routes under /v1 for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from fastapi.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles

FILES: Final = Path(__file__).parent / "ui"
POLICY: Final = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",  # asked for again each time, and not sent again if unchanged
}


class _Page(StaticFiles):
    """The files with our headers."""

    def file_response(self, *given: Any, **more: Any) -> Response:
        response = super().file_response(*given, **more)
        response.headers.update(HEADERS)
        return response


def mount(app: FastAPI) -> None:
    """Serve the page at /ui/, and send whoever comes to / there."""
    app.mount("/ui", _Page(directory=FILES, html=True), name="ui")

    @app.get("/", include_in_schema=False)
    async def home() -> RedirectResponse:
        return RedirectResponse("ui/")

    @app.get("/ui", include_in_schema=False)
    async def without_slash() -> RedirectResponse:
        return RedirectResponse("ui/")
