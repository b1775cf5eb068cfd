"""Which URLs are fetched for clients, and what of that which they lead to is a document.

A URL is parsed once, and what was parsed is what is sent: where two parsers read one text, one of
them can be deceived about the host.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

import httpx

from teola.config import URL_PORTS
from teola.errors import InputError
from teola.runtime.documents import SUFFIXES
from teola.serve.intake.addresses import Address, public

MOST_BYTES: Final = 50 * 2**20
URL_CHARACTERS: Final = 2000
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_HOST: Final = re.compile(r"[a-z0-9._-]{1,253}|[0-9a-f:.]{2,45}")
_SUFFIXES: Final = {
    "application/epub+zip": ".epub",
    "application/pdf": ".pdf",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/x-ipynb+json": ".ipynb",
    "application/x-pdf": ".pdf",
    "application/xhtml+xml": ".html",
    "message/rfc822": ".eml",
    "text/csv": ".csv",
    "text/html": ".html",
    "text/markdown": ".md",
    "text/tab-separated-values": ".tsv",
    "text/x-markdown": ".md",
}
_VAGUE: Final = ("", "application/octet-stream", "binary/octet-stream", "text/plain")
_OWN: Final = SUFFIXES
_TEXT: Final = re.compile(r"text/[\w.+-]+|application/([\w.-]+\+)?(json|xml|yaml)|")


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """hosts: names that may be fetched from, ".x.org" being all below it; none: all that are
    public. most_bytes: of one document. connect_s: to one address. silence_s: of a server.
    total_s: for everything. allowed: whether an address may be connected to."""

    hosts: tuple[str, ...] = ()
    ports: tuple[int, ...] = URL_PORTS
    most_bytes: int = MOST_BYTES
    redirects: int = 3
    connect_s: float = 5.0
    silence_s: float = 10.0
    total_s: float = 30.0
    allowed: Callable[[Address], bool] = public

    def checked(self, url: str) -> httpx.URL:
        """Parsed. Raises InputError unless it may be tried."""
        if len(url) > URL_CHARACTERS or "\\" in url or " " in url or not url.isprintable():
            raise InputError(
                f"{shown_url(url)}: a URL has up to {URL_CHARACTERS} characters, no spaces and "
                "no \\"
            )
        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, ValueError):
            raise InputError(f"{shown_url(url)}: this is not a URL") from None
        if parsed.scheme not in _DEFAULT_PORTS:
            raise InputError(f"{shown_url(url)}: a document's URL begins with https:// or http://")
        if parsed.userinfo:
            raise InputError(
                f"{shown_url(url)}: a URL with a name or password in it is not fetched"
            )
        host = parsed.raw_host.decode("ascii")
        if not _HOST.fullmatch(host):
            raise InputError(f"{shown_url(url)}: this URL names no host")
        if (parsed.port or _DEFAULT_PORTS[parsed.scheme]) not in self.ports:
            listed = ", ".join(map(str, self.ports))
            raise InputError(f"{shown_url(url)}: only these ports are fetched from: {listed}")
        if not self._lists(host):
            raise InputError(f"{shown_url(url)}: this server does not fetch documents from there")
        return parsed

    def _lists(self, host: str) -> bool:
        name = host.rstrip(".")
        return not self.hosts or any(
            name.endswith(allowed) if allowed.startswith(".") else name == allowed
            for allowed in self.hosts
        )


def suffix_of(content_type: str, path: str, url: str) -> str:
    """The file suffix that selects a reader for the document. Raises InputError if no reader takes
    it."""
    kind = content_type.partition(";")[0].strip().lower()
    own = PurePosixPath(path).suffix.lower()
    if kind in _SUFFIXES:
        return _SUFFIXES[kind]
    if kind in _VAGUE and own in _OWN:
        return own
    if _TEXT.fullmatch(kind):
        return ".txt"
    raise InputError(
        f"{shown_url(url)}: it is {kind[:60]!r}; name text, HTML, PDF or an office file"
    )


def shown_url(url: str, most: int = 120) -> str:
    """A URL as errors repeat it."""
    clean = "".join(c if c.isprintable() else "?" for c in url[:most])
    return repr(clean + ("..." if len(url) > most else ""))
