"""Who may ask a server that has no keys: programs of its own machine, and the page that it serves.

Such a server listens on this machine only, but a browser on it runs what other people have written.
A page can send forms and texts to any address without asking (and so put documents into a
collection), and by a name of its own that leads here it could read the answers (DNS rebinding). It
cannot hide under which name it asks, nor from which page it comes. A page that another server of
this machine sends, at another port, is not ours either.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final
from urllib.parse import SplitResult, urlsplit

HERE: Final = frozenset({"localhost", "127.0.0.1", "::1"})
REFUSAL: Final = (
    "without API keys only this machine is served, as localhost or 127.0.0.1, and no web pages of "
    "others; create keys with `teola keys create NAME`, and give --keys FILE"
)
_PORTS: Final = {"http": 80, "https": 443}


def from_here(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request names this machine, each way once, and comes from no page but ours."""
    named = [(name, value) for name, value in headers if name in (b"host", b"origin")]
    by_name = dict(named)
    if len(by_name) < len(named):
        return False
    return _from_here(by_name.get(b"host"), by_name.get(b"origin"))


@lru_cache(maxsize=64)
def _from_here(host_named: bytes | None, page: bytes | None) -> bool:
    try:
        host = _split(b"//" + host_named) if host_named is not None else None
        if host is not None and host.hostname not in HERE:
            return False
        if page is None:
            return True
        origin = _split(page)
        default = _PORTS.get(origin.scheme)
        if host is None or default is None:
            return False
        same = (origin.hostname, origin.port or default) == (host.hostname, host.port or default)
        return same and origin.username is None
    except ValueError:  # a port or an address that is none
        return False


def _split(url: bytes) -> SplitResult:
    return urlsplit(url.decode("latin-1"))
