"""What an error of a model server says, whichever way it is written.

{"error": {"message", "type", "param", "code"}}          OpenAI, and most others
[{"error": {"code", "message", "status", "details"}}]    Gemini, with what to do in the details
{"object": "error", "message", "type", "code"}           Mistral, SGLang
{"error": "words", "error_type": "words"}                TGI; LM Studio and vLLM without a type
{"detail": "words"}                                      gateways
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

MOST: Final = 4096
"""Characters of a message that are looked at."""
_WORD: Final = re.compile(r"[\w.\-\[\]]{1,64}")
MOST_SAID: Final = 500
"""Characters of what a server says in words that an error repeats."""
_ASKS: Final = re.compile(r"(\w+://)(?:[^\s/@]*@)?([^\s?#'\"]*)(?:[?#][^\s'\"]*)?")
_KEY: Final = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|key|api|AIza|hf|or)[-_][\w\-*]{6,}|\bAIza[\w\-]{10,}"
    r"|\bBearer\s+\S+|\b(?=[\w\-]*\d)(?=[\w\-]*[A-Za-z])[\w\-]{28,}"
)
"""What looks like a key: by how it begins, or a long word of letters and digits."""
_DELAY: Final = re.compile(r"(\d{1,7}(?:\.\d{0,9})?)s")


@dataclass(frozen=True, slots=True)
class ErrorFields:
    """message: for people. type, code, param: identifiers, empty where there are none. status: of
    HTTP, where the body tells one. after_s: when to ask again. for_today: a quota of the day is
    used up, and not one of the minute."""

    message: str = ""
    type: str = ""
    code: str = ""
    param: str = ""
    status: int | None = None
    after_s: float | None = None
    for_today: bool = False

    @classmethod
    def of(cls, body: object) -> Self:
        """Of a body as JSON, or the text of one that is none."""
        if isinstance(body, list) and body:
            body = body[0]
        if isinstance(body, str):
            return cls(message=body[:MOST])
        fields: Mapping[str, Any] = body if isinstance(body, Mapping) else {}
        inner = fields.get("error")
        if isinstance(inner, Mapping):
            fields = inner
        said = next((s for s in (fields.get("message"), inner, fields.get("detail")) if s), "")
        message = said if isinstance(said, str) else _text(said)
        code, type = fields.get("code"), fields.get("type") or fields.get("error_type")
        listed = fields.get("details")
        if not isinstance(listed, list):
            listed = []
        details = [one for one in listed if isinstance(one, Mapping)]
        return cls(
            message[:MOST],
            _identifier(type),
            _identifier(code),
            _identifier(fields.get("param")),
            _status(code, type),
            _delay(details),
            any("PerDay" in _text(one.get("violations")) for one in details),
        )

    @property
    def about(self) -> str:
        """The server's identifiers for the error, never its sentences."""
        return "".join(f", {one}" for one in (self.type, self.code, self.param) if one)


def word(value: object) -> str:
    """An identifier; empty where it is a sentence, which may quote a prompt."""
    return value if isinstance(value, str) and _WORD.fullmatch(value) else ""


def sentence(message: str, secret: str = "") -> str:
    """What a server says, on one line of MOST_SAID characters at most, without what may be a key
    and without what URLs ask for. secret: the key that it was sent."""
    said = " ".join(message[: 8 * MOST_SAID].split())
    if secret:
        said = said.replace(secret, "***")
    said = _ASKS.sub(lambda url: f"{url[1]}{url[2]}", said)
    said = _KEY.sub("***", said)
    return said if len(said) <= MOST_SAID else f"{said[: MOST_SAID - 3]}..."


def _identifier(value: object) -> str:
    return word(value) if isinstance(value, str) else ""


def _text(value: object) -> str:
    try:
        return json.dumps(value)[:MOST]
    except (TypeError, ValueError, RecursionError):
        return ""


def _status(code: object, type: object) -> int | None:
    if isinstance(code, int) and not isinstance(code, bool) and 400 <= code < 600:
        return code
    return 529 if type == "overloaded_error" else None


def _delay(details: list[Mapping[str, Any]]) -> float | None:
    """Seconds to wait, as Google's APIs tell them."""
    for one in details:
        delay = one.get("retryDelay")
        if isinstance(delay, str) and (found := _DELAY.fullmatch(delay)):
            return float(found[1])
    return None
