"""The two forms of a test: a short one that always runs, and the long one of `make soak` or
`make nightly`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

SEED = 20261121
Figures = Callable[[str, dict[str, Any]], None]
"""Keeps what was seen, under a name: the fixture `figures`."""


def short_and_long(
    names: str, short: object, long: object, tier: pytest.MarkDecorator = pytest.mark.soak
) -> pytest.MarkDecorator:
    """Parameters of the two forms. tier: the mark of the long one."""
    marks = [tier, pytest.mark.timeout(3600)]
    return pytest.mark.parametrize(
        names, [pytest.param(*_tuple(short), id="short"),
                pytest.param(*_tuple(long), id="long", marks=marks)],
    )  # fmt: skip


def _tuple(values: object) -> tuple[object, ...]:
    return values if isinstance(values, tuple) else (values,)
