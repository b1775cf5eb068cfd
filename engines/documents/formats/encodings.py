"""Bytes to text as browsers do it: a byte order mark, then what the page declares, then a guess.

Names and order are those of the Encoding Standard (webencodings), so `iso-8859-1` is read as
windows-1252. A page that declares nothing is UTF-8 if nearly all of it is: one damaged byte does
not turn the rest into another encoding. Anything else is guessed by charset-normalizer.
"""

from __future__ import annotations

from html.parser import HTMLParser

import webencodings

_PRESCAN = 1024
"""Bytes that browsers look through for a declaration."""
_SAMPLE = 1 << 16
_GUESSED = {
    "cp1252": "windows-1252",
    "cp1251": "windows-1251",
    "koi8_r": "koi8-r",
    "gb18030": "gb18030",
    "big5": "big5",
    "cp932": "shift_jis",
    "euc_jp": "euc-jp",
    "euc_kr": "euc-kr",
}
"""What browsers guess, too. Among all encodings a short text looks like many of them."""
_DAMAGE = 4
"""So many characters beyond ASCII must be whole for each that is damaged."""


def decoded(data: bytes, declared: str = "") -> str:
    """The text of `data`; what cannot be read is U+FFFD. declared: a name from outside it."""
    named = webencodings.lookup(declared) or webencodings.lookup(_declaration(data))
    if named is not None and named.name.startswith("utf-16"):
        named = webencodings.UTF8  # or the declaration could not have been read
    return str(webencodings.decode(data, named or _guessed(data))[0])


def _declaration(data: bytes) -> str:
    scan = _Declaration()
    scan.feed(data[:_PRESCAN].decode("latin-1"))
    return scan.name


def _guessed(data: bytes) -> str:
    try:
        data.decode()
        return "utf-8"
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
    damaged = text.count("\ufffd")
    if sum(c > "\x7f" for c in text) - damaged >= _DAMAGE * damaged:
        return "utf-8"
    from charset_normalizer import from_bytes

    best = from_bytes(data[:_SAMPLE], cp_isolation=list(_GUESSED), threshold=0.5).best()
    return _GUESSED[best.encoding] if best else "windows-1252"


class _Declaration(HTMLParser):
    """Finds the first `<meta charset>`, or its older form; comments and scripts have none."""

    def __init__(self) -> None:
        super().__init__()
        self.name = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta" or self.name:
            return
        attributes = {name: value or "" for name, value in attrs}
        if "charset" in attributes:
            self.name = attributes["charset"].strip()
        elif attributes.get("http-equiv", "").lower() == "content-type":
            after = attributes.get("content", "").lower().partition("charset=")[2]
            self.name = after.partition(";")[0].strip(" \t\n\"'")
