"""What the headers of an answer say of when to ask again, and of what is left of budgets."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

from teola.engine import LeftOfMinute

_SPAN: Final = re.compile(
    r"(?:(\d{1,4})h)?(?:(\d{1,5})m)?(?:(\d{1,6}(?:\.\d{0,9})?)s)?(?:(\d{1,7}(?:\.\d{0,9})?)ms)?"
)
_NUMBER: Final = re.compile(r"\d{1,9}(?:\.\d{0,9})?")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """In how many seconds a server wants to be asked again, if it says so: as a number or as the
    date of HTTP (RFC 9110, section 10.2.3), or in milliseconds as OpenAI's do."""
    try:
        if (milliseconds := headers.get("retry-after-ms")) is not None:
            seconds = float(milliseconds) / 1000
        elif (said := headers.get("retry-after")) is None:
            return None
        elif _NUMBER.fullmatch(said):
            seconds = float(said)
        else:
            seconds = parsedate_to_datetime(said).timestamp() - time.time()
    except (ValueError, OverflowError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def left_of_minute(headers: Mapping[str, str]) -> LeftOfMinute | None:
    """What an answer's headers say is left of its server's budgets.

    They are `x-ratelimit-remaining-requests` and its kind (OpenAI, Groq, Azure OpenAI), or
    `anthropic-ratelimit-requests-remaining` and its kind, beside what there is in all
    (`x-ratelimit-limit-requests`). None: nothing that could be read.
    """
    found: dict[str, float] = {}
    for name in ("requests", "tokens"):
        form = "x-ratelimit-{}-" + name
        if form.format("remaining") not in headers:
            form = f"anthropic-ratelimit-{name}-{{}}"
        left, reset, limit = (
            headers.get(form.format(what)) for what in ("remaining", "reset", "limit")
        )
        if left is None or not _NUMBER.fullmatch(left):
            continue
        reset_s = _seconds(reset) if reset is not None else None
        if reset_s is not None:
            found |= {name: float(left), f"{name}_reset_s": reset_s}
            if limit is not None and _NUMBER.fullmatch(limit) and float(limit) > 0:
                found[f"{name}_limit"] = float(limit)
    if not found:
        return None
    return LeftOfMinute(found.pop("requests", None), found.pop("tokens", None), **found)


def _seconds(reset: str) -> float | None:
    """As servers write when a budget is whole again: `1s`, `6m0s`, `120ms`, `59.7`, or a time of
    RFC 3339."""
    if _NUMBER.fullmatch(reset):
        return float(reset)
    if (parts := _SPAN.fullmatch(reset)) is not None and any(parts.groups()):
        hours, minutes, seconds, milliseconds = (float(part or 0) for part in parts.groups())
        return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000
    try:
        at = datetime.fromisoformat(reset.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
    return max(0.0, at - time.time())
