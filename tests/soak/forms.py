"""The two forms of a test: a short one that always runs or nightly, and the long one of `make soak`
or `make nightly`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

SEED = 20261121
SHORT = (pytest.mark.nightly,)
"""The short forms of whole soaks: other tests look at each of these things alone."""
Figures = Callable[[str, dict[str, Any]], None]
"""Keeps what was seen, under a name: the fixture `figures`."""


def short_and_long(
    names: str,
    short: object,
    long: object,
    tier: pytest.MarkDecorator = pytest.mark.soak,
    short_tier: Sequence[pytest.MarkDecorator] = (),
) -> pytest.MarkDecorator:
    """Parameters of the two forms. tier: the mark of the long one. short_tier: that of the short
    one, where it does not always run."""
    marks = [tier, pytest.mark.timeout(3600)]
    return pytest.mark.parametrize(
        names, [pytest.param(*_tuple(short), id="short", marks=short_tier),
                pytest.param(*_tuple(long), id="long", marks=marks)],
    )  # fmt: skip


def _tuple(values: object) -> tuple[object, ...]:
    return values if isinstance(values, tuple) else (values,)
