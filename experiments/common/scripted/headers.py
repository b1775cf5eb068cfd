"""What stands in requests and in the headers of answers."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any


def budget_headers(style: str, left: Mapping[str, int]) -> dict[str, str]:
    """What is left of a minute, and of how much, as a kind writes it."""
    headers = {}
    for name in ("requests", "tokens"):
        if name not in left:
            continue
        count, reset = str(left[name]), left.get("reset", 60)
        if style == "openai":
            headers[f"x-ratelimit-remaining-{name}"] = count
            headers[f"x-ratelimit-reset-{name}"] = f"{reset // 60}m{reset % 60}s"
            if "limit" in left:
                headers[f"x-ratelimit-limit-{name}"] = str(left["limit"])
        elif style == "azure":  # without telling when
            headers[f"x-ratelimit-remaining-{name}"] = count
        elif style == "anthropic":
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + reset))
            headers[f"anthropic-ratelimit-{name}-remaining"] = count
            headers[f"anthropic-ratelimit-{name}-reset"] = at
            if "limit" in left:
                headers[f"anthropic-ratelimit-{name}-limit"] = str(left["limit"])
        elif style == "mistral":
            short = "req" if name == "requests" else name
            headers[f"x-ratelimit-remaining-{short}-minute"] = count
    return headers


def prompt_of(body: Mapping[str, Any]) -> str:
    """The text of a request's prompt."""
    if "messages" not in body:
        return str(body.get("prompt") or "")
    return "\n".join(str(one.get("content") or "") for one in body["messages"])


def tagged(prompt: str) -> str | None:
    """What stands between brackets in a prompt, such as `[[3/17]]`: its number in an experiment."""
    found = re.search(r"\[\[([^\]]{1,64})\]\]", prompt)
    return found[1] if found else None
