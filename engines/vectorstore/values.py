"""What may go into the database, checked before it does, so that one bad request fails alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from teola.engine import NAME_CHARACTERS, ChunkPlace, check_metadata
from teola.errors import LONGEST_NAME, InputError

ChunkVector = NDArray[np.float32]


def check_name(what: str, text: str) -> None:
    """A name is text that is not empty and that PostgreSQL can hold."""
    if not isinstance(text, str) or not text or clean(text) != text:
        shown = ascii(text)[:LONGEST_NAME]
        raise InputError(
            f"the {what} {shown} is not a name: give text without NUL characters and halves of "
            "surrogate pairs"
        )


def check_key(what: str, text: str) -> None:
    """Raise InputError unless the text is a name that fits into an index: rows are found by it."""
    check_name(what, text)
    if len(text) > NAME_CHARACTERS:
        raise InputError(
            f"the name of the {what} has {len(text)} characters, more than the {NAME_CHARACTERS} "
            "that it may have: shorten it"
        )


def clean(text: str) -> str:
    """The text as PostgreSQL can hold it: without NUL characters and lone surrogates."""
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


def check_place(place: ChunkPlace | None) -> None:
    """Raise InputError unless a chunk's place is nothing, or texts and whole numbers by name."""
    if place is None:
        return
    pairs = place.items() if isinstance(place, Mapping) else ()
    if not pairs or any(
        type(key) is not str or type(name) not in (str, int) for key, name in pairs
    ):
        raise InputError(
            f"the place of a chunk is {repr(place)[:LONGEST_NAME]}: give None, or texts and whole "
            'numbers by name, such as {"page": 12}'
        )


def clean_place(place: ChunkPlace | None) -> dict[str, str | int] | None:
    """The place of a chunk as PostgreSQL can hold it."""
    if place is None:
        return None
    return {key: clean(name) if isinstance(name, str) else name for key, name in place.items()}


def json_text(metadata: Mapping[str, Any]) -> str:
    """Metadata as JSON. Raises InputError unless it is plain JSON, and short."""
    try:
        text = json.dumps(dict(metadata), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"metadata is not plain JSON ({error}): use text, numbers, lists"
        ) from None
    if "\\u0000" in text or "\\ud" in text:  # a NUL, or perhaps half a surrogate pair
        _check_characters(metadata)
    check_metadata(metadata)
    return text


def _check_characters(value: Any) -> None:
    if isinstance(value, str) and clean(value) != value:
        raise InputError(
            "metadata holds a character that cannot be stored (NUL, or half a surrogate pair): "
            "remove it"
        )
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_characters(key)
            _check_characters(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_characters(item)


def vector(value: Any, dimensions: int) -> ChunkVector:
    """A vector as float32, checked: its size, finite, and not zero (it would have no direction)."""
    array = np.asarray(value, dtype=np.float32)
    if array.shape != (dimensions,):
        raise InputError(
            f"a vector of shape {array.shape} does not fit the store, which holds {dimensions} "
            "dimensions: give the engine of the store those of the embedder (`--dimensions`)"
        )
    if not np.isfinite(array).all() or not array.any():
        raise InputError("a vector is zero or not finite: the embedder failed on this text")
    return array
