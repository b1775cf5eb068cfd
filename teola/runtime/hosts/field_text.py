"""A text that stands in a field of a JSON answer, as it comes: `{"answer": "It is ..."}`."""

from __future__ import annotations

import json
import re
from typing import Final

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_WHOLE: Final = re.compile(r'(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*', re.DOTALL)
_HALF: Final = re.compile(r"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})\Z")
"""The first half of a pair of surrogates, which means nothing yet. Two backslashes are one in the
text, and begin nothing."""


class FieldText:
    """Passes on what the first string called `field` says, wherever it stands in the answer. What
    is no JSON any more is passed on no further."""

    def __init__(self, field: str) -> None:
        self._begins = re.compile(r'\s*:\s*"')
        self._key = json.dumps(field)
        self._text = ""
        self._inside = self._over = False

    def feed(self, text: str) -> str:
        """What more of the field's text there is."""
        if self._over:
            return ""
        self._text += text
        if not self._inside and not self._find():
            return ""
        return self._pass_on()

    def _find(self) -> bool:
        """Look for where the field's text begins, string by string."""
        at = 0
        while (start := self._text.find('"', at)) >= 0:
            string = _STRING.match(self._text, start)
            if string is None:
                at = start
                break
            at = string.end()
            if string[0] != self._key:
                continue
            rest = self._text[at:]
            if begins := self._begins.match(rest):
                self._text, self._inside = rest[begins.end() :], True
                return True
            if re.fullmatch(r"\s*(:\s*)?", rest):
                at = start  # what it is a key of is still to come
                break
        else:
            at = len(self._text)
        self._text = self._text[at:]
        return False

    def _pass_on(self) -> str:
        whole = _WHOLE.match(self._text)
        assert whole is not None, "it matches nothing at least"
        said, rest = whole[0], self._text[whole.end() :]
        if half := _HALF.search(said):
            said, rest = said[: half.start(1)], half[1] + rest
        self._over = rest.startswith('"')
        self._text = rest
        try:
            return str(json.loads(f'"{said}"', strict=False))
        except ValueError:
            self._over = True
            return ""
