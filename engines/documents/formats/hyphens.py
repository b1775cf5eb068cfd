"""Words that a line's end has cut, made whole.

    ... for each exam-              ... for each example
    ple that was found      ─▶      that was found

A hyphen of the word itself stays, where the document has the word with it elsewhere: `well-` and
`known` are `well-known` if that stands within some line. `pre- and post-` at a line's end is left
as it is, and so is what goes on with a capital.
"""

from __future__ import annotations

import re

_CUT = re.compile(r"(?<=[^\W\d_]{2})[-\u2010\xad]\n(?=[^\W\d_]{2})")
"""A hyphen (or a soft one) between letters and a line's end, with letters behind that."""
_COMPOUND = re.compile(r"(?<=[^\W\d_])[-\u2010](?=[^\W\d_])")
_LONGEST = 64
"""Letters of half a word that are looked at."""
_LEFT = re.compile(r"[^\W\d_]{1,64}\Z")
_RIGHT = re.compile(r"[^\W\d_]{1,64}")
_REST = re.compile(r"\S{0,128}")
_SUSPENDED = frozenset({"and", "or", "to", "und", "oder", "bis", "et", "ou"})
"""Words behind a hyphen that stands for the rest of a compound."""


def joined(text: str) -> str:
    """`text` with the words whole that its lines' ends have cut, each in its first line."""
    cuts = list(_CUT.finditer(text))
    if not cuts:
        return text
    compounds = {
        _around(text, compound.start(), compound.end()) for compound in _COMPOUND.finditer(text)
    }
    pieces, at = [], 0
    for cut in cuts:
        left, right = _around(text, cut.start(), cut.end())
        if not right[:1].islower() or right in _SUSPENDED or cut.start() < at:
            continue
        soft = cut[0].startswith("\xad")
        hyphen = "-" if not soft and (left, right) in compounds else ""
        rest = _REST.match(text, cut.end())
        end = rest.end() if rest else cut.end()
        pieces += [text[at : cut.start()], hyphen, text[cut.end() : end], "\n"]
        at = end + 1 if text[end : end + 1] in (" ", "\n") else end
    return "".join(pieces) + text[at:]


def _around(text: str, start: int, end: int) -> tuple[str, str]:
    """The letters before `start` and behind `end`, in small letters before it."""
    left = _LEFT.search(text[max(0, start - _LONGEST) : start])
    right = _RIGHT.match(text, end, end + _LONGEST)
    return (left[0].lower() if left else "", right[0] if right else "")
