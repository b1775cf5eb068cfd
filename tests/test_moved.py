"""Modules and names that are called otherwise now."""

from __future__ import annotations

import pytest

from teola.moved import moved, renamed


def test_a_name_of_a_module_that_moved_is_found_with_a_warning() -> None:
    get = moved("teola.old", "teola.price")
    with pytest.warns(DeprecationWarning, match="teola.old is now teola.price: import Price from"):
        price = get("Price")
    assert price.__module__ == "teola.price"
    assert get("__name__") == "teola.price", "without a warning: importing asks for such names"
    with pytest.raises(AttributeError, match="no attribute 'Prize'"):
        get("Prize")


def test_a_name_that_has_another_one_is_found_with_a_warning() -> None:
    get = renamed("teola.price", {"Cost": "Price"})
    with pytest.warns(DeprecationWarning, match=r"teola\.price\.Cost is now teola\.price\.Price"):
        assert get("Cost").__name__ == "Price"
    for name in ("Price", "FREE", "__path__"):
        with pytest.raises(AttributeError, match=f"'teola.price' has no attribute '{name}'"):
            get(name)
