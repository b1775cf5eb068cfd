"""How commands reach a server: its URL, the key, and in one line what went wrong on the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

import typer

if TYPE_CHECKING:
    import httpx

Url = Annotated[str, typer.Option("--url", metavar="URL", help="The server.", envvar="TEOLA_URL")]
OfApp = Annotated[
    str | None,
    typer.Option(
        "--app", metavar="APP", show_default=False, help="Only queries of this application."
    ),
]
MOST: Final = 500
"""Queries that a server lists at most."""
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        show_default=False,
        envvar="TEOLA_API_KEY",
        help="An API key, if the server wants one; better in the environment than here.",
    ),
]
URL: Final = "http://127.0.0.1:8080"
LIMIT_S: Final = 30.0
SHORT_ID: Final = 12
"""Characters of a query's id that are shown at a terminal."""


@contextmanager
def reaching(url: str, key: str | None) -> Iterator[httpx.Client]:
    """A client of the server. Raises InputError for what is no URL, and EngineUnavailable where no
    server answers."""
    import httpx

    from teola.errors import EngineUnavailable, InputError
    from teola.loopback import without_proxy

    url = url.rstrip("/")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        mounts = without_proxy(url)
        with httpx.Client(base_url=url, headers=headers, timeout=LIMIT_S, mounts=mounts) as client:
            yield client
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        raise InputError(f"--url {url!r} is no URL, such as {URL}") from None
    except httpx.HTTPError as error:
        raise EngineUnavailable(
            f"no server answers at {url} ({type(error).__name__}): start one with `teola serve`, "
            "or give --url"
        ) from None


def query_path(id: str) -> str:
    """The path of a query."""
    return f"/v1/queries/{quote(id, safe='')}"


def told(response: httpx.Response) -> dict[str, Any]:
    """The JSON of an answer. Raises InputError with what the server says."""
    from teola.errors import InputError

    try:
        body = response.json()
    except ValueError:
        raise InputError(f"{response.url} is no Teola server: it answers no JSON") from None
    if response.is_success and isinstance(body, dict):
        return body
    error = body.get("error", {}) if isinstance(body, dict) else {}
    message = error.get("message") if isinstance(error, dict) else None
    hint = "; give --key, or set TEOLA_API_KEY" if response.status_code == 401 else ""
    raise InputError(f"{message or f'the server answers {response.status_code}'}{hint}")


def span(seconds: float) -> str:
    """A time in its largest unit, such as `3 min`."""
    for name, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {name}"
    return f"{seconds:.0f} s"
