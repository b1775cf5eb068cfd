"""SearXNG: a metasearch engine that one runs oneself; no key, no quota of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from teola.errors import EngineBusy, EngineError

from .answers import Page, pages, shortened
from .online import OnlineSearch, WebCall, setting

LONGEST = 1000
"""Characters of a query; most engines behind it take fewer."""


class SearXNG(OnlineSearch):
    """A SearXNG server (needs its url, and `json` among its search formats).

    url: the server, or SEARXNG_URL. language: such as `en` or `de-CH`. categories, engines: which
    of the server's own to use, comma-separated. time_range: `day`, `month` or `year`. safe: 0 to 2.
    One page of results is asked for, some twenty. For the rest see OnlineSearch.
    """

    def __init__(
        self,
        name: str = "searxng",
        *,
        url: str | None = None,
        language: str | None = None,
        categories: str | None = None,
        engines: str | None = None,
        time_range: str | None = None,
        safe: int | None = None,
        timeout_s: float = 10.0,
        concurrency: int = 16,
    ) -> None:
        super().__init__(name, "a SearXNG server", url, timeout_s, concurrency)
        options = {
            "language": language,
            "categories": categories,
            "engines": engines,
            "time_range": time_range,
            "safesearch": safe,
        }
        self._options = {key: str(value) for key, value in options.items() if value is not None}

    def settle(self) -> None:
        self.url = setting(self.url, "SEARXNG_URL", "SearXNG", "the url of a server", "url")

    def asks(self, query: str, top_k: int) -> Sequence[WebCall]:
        """A POST: questions do not belong into the logs of a server's addresses."""
        form = {"q": shortened(query, LONGEST), "format": "json", **self._options}
        where = (self.url or "").rstrip("/").removesuffix("/search")
        return [WebCall("POST", f"{where}/search", data=form)]

    def pages(self, answer: Any) -> Iterable[Page]:
        """The results. Raises EngineError if there are none and some of the server's engines
        failed."""
        results = list(pages(answer.get("results"), "url", "title", "content", "score"))
        failed = answer.get("unresponsive_engines")
        if not results and isinstance(failed, list) and failed:
            raise EngineError(
                f"{self.service} found nothing, and {len(failed)} of its engines did not answer: "
                "see its statistics page"
            )
        return results

    def refusal(self, status: int, answer: Any) -> EngineError | None:
        if status == 403:
            return EngineError(
                f"{self.service} gives no JSON (403): add json to search.formats in its "
                "settings.yml; most public servers have it switched off"
            )
        if status == 429:
            return EngineBusy(
                f"{self.service} takes no more searches now (429): allow this address in its "
                "limiter.toml, or ask less often"
            )
        return None
