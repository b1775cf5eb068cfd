"""JSON and texts as clients send them, and what is refused of them though Python would take it.

Python's parser takes NaN, two equal keys, numbers of any size, half a surrogate pair and almost any
depth. None of that survives the way on: JSON has no NaN, UTF-8 no half pairs, PostgreSQL no NUL,
and whatever walks a value calls itself for each level of it. So it ends here, with what is wrong.

Of a few bytes each, lists and objects take thirty times their size in memory, and nothing else runs
while they are made. So values are counted before they are made, and long bodies parsed off the
event loop, one after the other.
"""

from __future__ import annotations

import json
import re
from asyncio import get_running_loop
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import isinf
from typing import Any, Final, NoReturn

from teola.errors import InputError
from teola.serve.problems import TooLarge

JSON_BYTES: Final = 4 * 2**20
"""Most bytes of one body."""
VALUES: Final = 2**18
"""Texts, numbers, lists and objects in one body."""
DEPTH: Final = 64
"""Levels of lists and objects inside each other."""
LONG: Final = 64 * 2**10
"""Bytes; what is longer is parsed off the event loop."""
_SLICE: Final = 64 * 2**10
"""Bytes that are counted at once."""
_LARGEST: Final = 2**63
_DIGITS: Final = len(str(_LARGEST))
_ESCAPED: Final = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
"""How NUL and surrogates, halves or pairs, are written in JSON; only then texts are looked at."""


class _Refused(ValueError):
    """JSON, but not to be taken."""


_thread: Final = ThreadPoolExecutor(1, thread_name_prefix="teola-json")


async def parsed(text: str | bytes) -> Any:
    """A body from its JSON. Raises InputError, TooLarge."""
    if len(text) > JSON_BYTES:
        raise TooLarge(f"JSON is larger than {JSON_BYTES // 2**20} MiB")
    if len(text) <= LONG:
        return read_json(text)
    return await get_running_loop().run_in_executor(_thread, read_json, text)


def read_json(text: str | bytes, what: str = "the body") -> Any:
    """Parsed. what: names it in errors. Raises InputError."""
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        if len(text) > VALUES and _values(text) > VALUES:
            raise InputError(f"{what} holds more than {VALUES} values; send fewer at once")
        value = _DECODER.decode(text)
    except UnicodeDecodeError as error:
        raise InputError(f"{what} is not JSON: byte {error.start} is not UTF-8") from None
    except (json.JSONDecodeError, _Refused) as error:
        raise InputError(f"{what} is not JSON: {error}") from None
    except RecursionError:
        raise _too_deep(what) from None
    if text.count("[") + text.count("{") > DEPTH:
        _check_depth(what, value)
    if _ESCAPED.search(text):
        for contained in _texts(value):
            check_text(f"a text in {what}", contained)
    return value


def check_text(what: str, text: str) -> None:
    """Raise InputError if nobody behind the server could store or send `text`."""
    if "\0" in text:
        raise InputError(f"{what} holds the character NUL (\\u0000); remove it")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = f"\\u{ord(text[error.start]):04x}"
        raise InputError(f"{what} holds half a character ({code}, a lone surrogate)") from None


def _values(text: str) -> int:
    """How many values a text of JSON has, at least, and at most twice as many; of what is no JSON,
    any number.

    Each is the first behind `[` or `{`, or stands behind `,`. What stands in texts does not count.
    """
    text = text.replace("\\\\", "").replace('\\"', "")
    count, inside = 1, 0
    for start in range(0, len(text), _SLICE):
        pieces = text[start : start + _SLICE].split('"')
        between = "".join(pieces[inside::2])
        count += sum(map(between.count, "[{,"))
        inside ^= (len(pieces) - 1) % 2
    return count


def _check_depth(what: str, value: Any) -> None:
    level = [value]
    for _ in range(DEPTH):
        level = [item for parent in level for item in _inside(parent) if type(item) in (dict, list)]
        if not level:
            return
    raise _too_deep(what)


def _too_deep(what: str) -> InputError:
    return InputError(f"{what} is not JSON that is taken: it nests deeper than {DEPTH} levels")


def _texts(value: Any) -> Iterator[str]:
    """Every text in `value`, keys too."""
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            yield from item
        left += _inside(item)


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise _Refused(f"the key {key[:80]!r} stands twice in one object")
    return mapping


def _whole(digits: str) -> int:
    if len(digits) < _DIGITS:
        return int(digits)
    if len(digits) > _DIGITS + 1 or not -_LARGEST <= int(digits) < _LARGEST:
        raise _Refused(f"the number {digits[:24]}... does not fit into 64 bits")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if isinf(number):
        raise _Refused(f"the number {digits[:24]} is too large")
    return number


def _constant(name: str) -> NoReturn:
    raise _Refused(f"{name} is not a number in JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_whole, parse_float=_finite, parse_constant=_constant
)
