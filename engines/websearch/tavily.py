"""Tavily: a search service made for language models; its snippets are excerpts of the pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from teola.errors import EngineError, UnknownName

from .answers import Page, pages, shortened
from .online import OnlineSearch, WebCall, bad_key, over_quota, setting

API: Final = "https://api.tavily.com"
MOST: Final = 20
"""Results that the service gives for a query."""
LONGEST: Final = 400
"""Characters of a query."""
DEPTHS: Final = ("basic", "advanced", "fast", "ultra-fast")
TOPICS: Final = ("general", "news", "finance")


class Tavily(OnlineSearch):
    """Tavily's search service (needs an API key).

    api_key: or TAVILY_API_KEY. depth: `basic` (one credit), `advanced` (two), `fast`,
    `ultra-fast`. topic: `general`, `news` or `finance`. include_domains, exclude_domains: sites
    to search only, or not at all. At most 20 results a query. For the rest see OnlineSearch.
    """

    def __init__(
        self,
        name: str = "tavily",
        *,
        api_key: str | None = None,
        depth: str = "basic",
        topic: str = "general",
        include_domains: Sequence[str] = (),
        exclude_domains: Sequence[str] = (),
        url: str = API,
        timeout_s: float = 10.0,
        concurrency: int = 16,
    ) -> None:
        super().__init__(name, "Tavily's search service", url, timeout_s, concurrency)
        for option, value, valid in (("depth", depth, DEPTHS), ("topic", topic, TOPICS)):
            if value not in valid:
                raise UnknownName(option, value, valid, f"engine {name!r}")
        self._api_key = api_key
        self._options: dict[str, Any] = {"search_depth": depth, "topic": topic}
        if include_domains:
            self._options["include_domains"] = list(include_domains)
        if exclude_domains:
            self._options["exclude_domains"] = list(exclude_domains)

    def settle(self) -> None:
        what = "an API key (https://app.tavily.com)"
        self._api_key = setting(self._api_key, "TAVILY_API_KEY", "Tavily", what, "api_key")

    def asks(self, query: str, top_k: int) -> Sequence[WebCall]:
        body = {"query": shortened(query, LONGEST), "max_results": min(top_k, MOST)}
        headers = {"authorization": f"Bearer {self._api_key}"}
        where = f"{(self.url or API).rstrip('/')}/search"
        return [WebCall("POST", where, body={**body, **self._options}, headers=headers)]

    def pages(self, answer: Any) -> Iterable[Page]:
        return pages(answer.get("results"), "url", "title", "content", "score")

    def refusal(self, status: int, answer: Any) -> EngineError | None:
        if status in (432, 433):  # the plan is used up; so is pay-as-you-go
            return over_quota(self.service, status)
        if status in (401, 403):
            return bad_key(self.service, status, "TAVILY_API_KEY")
        return None
