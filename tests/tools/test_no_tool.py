"""Functions that no model could call are refused when they are declared."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from teola.errors import InputError, UnknownName
from teola.tools import IdempotencyKey, Tool, tool


def undocumented(x: int) -> int:
    return x


def untyped(x) -> int:  # type: ignore[no-untyped-def]
    """Says nothing of x."""
    return int(x)


def listed(*x: int) -> int:
    """Takes many."""
    return len(x)


def unknown(x: Missing) -> int:  # type: ignore[name-defined]  # noqa: F821
    """Takes a type that there is not."""
    return 1


def impossible(x: threading.Lock) -> int:
    """Takes a lock."""
    return 1


def called_back(x: Callable[[], int]) -> int:
    """Takes a function."""
    return 1


def yields(x: int) -> Iterator[int]:
    """Yields."""
    yield x


def fine(x: int) -> int:
    """Is fine."""
    return x


@pytest.mark.parametrize(
    ("function", "options", "told"),
    [
        (undocumented, {}, "tool 'undocumented' needs a description"),
        (untyped, {}, "annotate 'x'"),
        (listed, {}, "parameter 'x' cannot be given by name"),
        (unknown, {}, "its annotations cannot be read: name 'Missing' is not defined"),
        (impossible, {}, "a parameter has no form in JSON"),
        (called_back, {}, "a parameter has no form in JSON"),
        (yields, {}, "it yields; let it return its result"),
        (fine, {"name": "no spaces"}, "a name is 1 to 64 letters"),
        (fine, {"name": "x" * 65}, "a name is 1 to 64 letters"),
        (lambda x: x, {}, "annotate 'x'"),
        (fine, {"retries": 1}, "retries=1 calls it again .* say pure=True"),
        (fine, {"retries": -1}, "retries must be 0, 1, 2"),
        (fine, {"retries": True}, "retries must be 0, 1, 2"),
        (fine, {"timeout_s": 0}, "timeout_s must be positive"),
        (fine, {"timeout_s": float("inf")}, "timeout_s must be positive"),
        (fine, {"at_once": 0}, "at_once must be 1, 2, 3"),
        (fine, {"at_once": True}, "at_once must be 1, 2, 3"),
        (fine, {"most_chars": 10}, "most_chars must be at least 200"),
        (fine, {"approval": "yes"}, "approval is true, false or a function"),
    ],
)
def test_what_no_model_could_call_is_refused(
    function: Callable[..., Any], options: Any, told: str
) -> None:
    with pytest.raises(InputError, match=told):
        tool(function, **options)


def test_an_option_that_there_is_not_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"unknown option 'timeout'.*did you mean 'timeout_s'"):
        tool(fine, timeout=3)  # type: ignore[call-overload]


def test_pure_and_keyed_functions_may_be_repeated() -> None:
    def keyed(key: IdempotencyKey) -> str:
        """Takes a key."""
        return key

    assert tool(fine, pure=True, retries=3).retries == 3
    assert tool(keyed, retries=3).retries == 3
    assert isinstance(tool(fine), Tool)
