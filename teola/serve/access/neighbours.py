"""Who may ask a server that has no keys: programs of its own machine, and no page of the web.

Such a server listens on this machine only, but a browser on it runs what other people have written.
A page can send forms and texts to any address without asking (and so put documents into a
collection), and by a name of its own that leads here it could read the answers (DNS rebinding). It
cannot hide under which name it asks, nor from which page it comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

HERE: Final = frozenset({"localhost", "127.0.0.1", "::1"})
REFUSAL: Final = (
    "without API keys only this machine is served, as localhost or 127.0.0.1, and no web pages of "
    "others; create keys with `teola keys create NAME`, and give --keys FILE"
)


def from_here(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request names this machine, and comes from no page of another."""
    host = headers.get(b"host")
    origin = headers.get(b"origin")
    named = host is None or _hostname(b"//" + host) in HERE
    return named and (origin is None or _hostname(origin) in HERE)


def _hostname(url: bytes) -> str | None:
    try:
        return urlsplit(url.decode("latin-1")).hostname
    except ValueError:
        return None
