"""Texts of models, tools and documents, at a terminal: what would command it is made visible.

A terminal obeys some characters: they move its cursor, write to its clipboard, or turn what follows
around, so that another call seems to be asked about than is.
"""

from __future__ import annotations

from typing import Final

PICTURES: Final = 0x2400
"""Where Unicode has a picture of each control character, in their order."""
KEPT: Final = "\t\n"
DROPPED: Final = "\r"
"""It ends lines together with a newline; alone it would write over its line."""
TURNING: Final = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""They turn the direction in which text is written."""
UNSHOWN: Final = "\ufffd"
_TABLE: Final = {
    **{code: chr(PICTURES + code) for code in range(0x20) if chr(code) not in KEPT},
    ord(DROPPED): None,
    0x7F: "\u2421",
    **dict.fromkeys((*range(0x80, 0xA0), *TURNING), UNSHOWN),
}
_ESCAPED: Final = {code: f"\\u{code:04x}" for code in (0x7F, *range(0x80, 0xA0), *TURNING)}


def visible(text: str) -> str:
    """`text`, with the characters that a terminal would obey made visible."""
    return text if text.isascii() and text.isprintable() else text.translate(_TABLE)


def visible_json(text: str) -> str:
    """JSON that means the same, and that no terminal obeys."""
    return text if text.isascii() and text.isprintable() else text.translate(_ESCAPED)
