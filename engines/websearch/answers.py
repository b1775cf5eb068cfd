"""What a web search is asked and what it answers, whichever engine does it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from teola.engine import EngineKind, EngineSpec, Hit, Request
from teola.errors import EngineError
from teola.graph.ops import Op, WebSearchParams
from teola.plain_number import is_number

LONGEST_SNIPPET: Final = 2000
"""Characters of one snippet; some services send whole pages."""


@dataclass(frozen=True, slots=True)
class WebRequest:
    """One request, checked: what to search for, and how many hits each query is to have."""

    queries: tuple[str, ...]
    top_k: int


@dataclass(frozen=True, slots=True)
class Page:
    """One result as its service gives it. score: None if the service gives no scores."""

    url: str
    title: str
    text: str
    score: float | None = None


def spec(name: str, description: str, *, max_batch: int, concurrency: int) -> EngineSpec:
    """What every web search engine declares."""
    return EngineSpec(
        name=name,
        kind=EngineKind.WEBSEARCH,
        ops=frozenset({Op.WEB_SEARCH}),
        max_batch=max_batch,
        concurrency=concurrency,
        description=description,
    )


def read(request: Request) -> WebRequest:
    """Check one request. Raises EngineError."""
    queries = request.inputs.get("queries")
    listed = isinstance(queries, list | tuple) and all(isinstance(q, str) for q in queries)
    if not isinstance(request.params, WebSearchParams) or not listed:
        raise EngineError(
            "a web search engine takes op web_search with `queries`, a list of texts; got op "
            f"{request.op.value} with inputs {sorted(request.inputs)}"
        )
    assert queries is not None
    return WebRequest(tuple(queries), request.params.top_k)


def hits(pages: Iterable[Page], top_k: int) -> list[Hit]:
    """The first `top_k` pages, each url once. A page without a score gets 1 / its rank."""
    by_url: dict[str, Hit] = {}
    for page in pages:
        if len(by_url) == top_k:
            break
        if page.url not in by_url:
            by_url[page.url] = _hit(page, len(by_url) + 1)
    return list(by_url.values())


def _hit(page: Page, rank: int) -> Hit:
    title = page.title or page.url
    score = 1.0 / rank if page.score is None else page.score
    metadata = {"url": page.url, "title": title, "rank": rank}
    return Hit(page.url, title, page.text or title, score, metadata)


def pages(entries: object, url: str, title: str, text: str, score: str = "") -> Iterator[Page]:
    """The pages in a list of JSON objects, whose fields are called `url`, `title`, `text`, `score`.

    Entries without a web address are left out: a link that a reader may click must be one. Raises
    ValueError if it is no list of objects.
    """
    if not isinstance(entries, list) or not all(isinstance(e, Mapping) for e in entries):
        raise ValueError("no list of results")
    for entry in entries:
        address = plain(entry.get(url))
        if is_web_address(address):
            number = entry.get(score)
            scored = is_number(number) and math.isfinite(number)
            body = plain(entry.get(text))[:LONGEST_SNIPPET]
            yield Page(address, plain(entry.get(title)), body, float(number) if scored else None)


def is_web_address(url: str) -> bool:
    """Whether it is an http(s) address with a host."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False


def plain(value: Any) -> str:
    """A text field on one line, without control characters and halves of surrogate pairs."""
    if not isinstance(value, str):
        return ""
    text = value.encode("utf-8", "replace").decode("utf-8")
    return " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", text).split())


def shortened(query: str, limit: int) -> str:
    """`query` on one line, cut at a word to at most `limit` characters."""
    line = " ".join(query.split())
    if len(line) <= limit:
        return line
    cut = line[: limit + 1].rpartition(" ")[0]
    return cut or line[:limit]
