"""Google Programmable Search, through its Custom Search JSON API.

Google takes no new customers for this API and ends it on 1 January 2027; it is here for those who
have a key. Ten results are a page, and every page counts against the quota.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from teola.errors import EngineBusy, EngineError

from .answers import Page, pages, shortened
from .online import OnlineSearch, WebCall, bad_key, over_quota, setting

API: Final = "https://customsearch.googleapis.com/customsearch/v1"
PAGE: Final = 10
MOST: Final = 100
"""Results that the API gives for a query, in pages of ten."""
LONGEST: Final = 2000
"""Characters of a query, which travels in the address."""
_USED_UP: Final = {"dailyLimitExceeded", "quotaExceeded"}
_TOO_FAST: Final = {"rateLimitExceeded", "userRateLimitExceeded"}
_NO_KEY: Final = {"API_KEY_INVALID", "keyInvalid", "keyExpired"}


class Google(OnlineSearch):
    """Google Programmable Search (needs an API key and a search engine's id).

    api_key: or GOOGLE_API_KEY. engine_id: the search engine's `cx`, or GOOGLE_CSE_ID. language:
    two letters, of the results. country: two letters, whose results to prefer. safe: filter adult
    content. For the rest see OnlineSearch.
    """

    def __init__(
        self,
        name: str = "google",
        *,
        api_key: str | None = None,
        engine_id: str | None = None,
        language: str | None = None,
        country: str | None = None,
        safe: bool = False,
        url: str = API,
        timeout_s: float = 10.0,
        concurrency: int = 16,
    ) -> None:
        super().__init__(name, "Google Programmable Search", url, timeout_s, concurrency)
        self._api_key, self._engine_id = api_key, engine_id
        options = {
            "lr": language and f"lang_{language}",
            "gl": country,
            "safe": "active" if safe else None,
        }
        self._options = {key: value for key, value in options.items() if value}

    def settle(self) -> None:
        what = "an API key (https://developers.google.com/custom-search/v1)"
        self._api_key = setting(self._api_key, "GOOGLE_API_KEY", "Google", what, "api_key")
        what = "the id of a Programmable Search Engine (its cx)"
        self._engine_id = setting(self._engine_id, "GOOGLE_CSE_ID", "Google", what, "engine_id")

    def asks(self, query: str, top_k: int) -> Sequence[WebCall]:
        """One request for each page. The key is a header: addresses end up in logs."""
        headers = {"x-goog-api-key": self._api_key or ""}
        shared = {"cx": self._engine_id or "", "q": shortened(query, LONGEST), **self._options}
        return [
            WebCall(
                "GET",
                self.url or API,
                {**shared, "num": min(PAGE, top_k - first + 1), "start": first},
                headers=headers,
            )
            for first in range(1, min(top_k, MOST) + 1, PAGE)
        ]

    def pages(self, answer: Any) -> Iterable[Page]:
        """`items` is missing where nothing was found."""
        if "items" not in answer and "searchInformation" not in answer and "kind" not in answer:
            raise ValueError("no answer of this API")
        return pages(answer.get("items", []), "link", "title", "snippet")

    def refusal(self, status: int, answer: Any) -> EngineError | None:
        reasons = set(_reasons(answer))
        fast = status == 429 or reasons & _TOO_FAST
        if reasons & _USED_UP or (fast and "per day" in _message(answer)):
            return over_quota(self.service, status)
        if fast:
            return EngineBusy(f"{self.service} takes no more searches now ({status})")
        if reasons & _NO_KEY or status == 401:
            return bad_key(self.service, status, "GOOGLE_API_KEY")
        if status == 403:
            return EngineError(
                f"{self.service} refuses the API key (403): enable the Custom Search API for its "
                "project, and allow the key to use it"
            )
        if status == 400:
            return EngineError(
                f"{self.service} refuses the search (400): check GOOGLE_CSE_ID and the options"
            )
        return None


def _message(answer: Any) -> str:
    """What Google's error object says in words."""
    error = answer.get("error") if isinstance(answer, Mapping) else None
    return str(error.get("message", "")) if isinstance(error, Mapping) else ""


def _reasons(answer: Any) -> Iterable[str]:
    """The reasons in Google's error objects, which stand in either of two places."""
    error = answer.get("error") if isinstance(answer, Mapping) else None
    if not isinstance(error, Mapping):
        return
    for place in ("errors", "details"):
        for detail in error.get(place) or ():
            if isinstance(detail, Mapping) and isinstance(detail.get("reason"), str):
                yield detail["reason"]
