"""`@tool`: what a function's hints and docstring say to a model, and what it is given."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator

from teola.tools import IdempotencyKey, ToolContext, tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Place(BaseModel):
    """A place on a map."""

    name: str
    height: float = 0.0


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("odd numbers are bad luck")
        return value


@dataclass
class Box:
    wide: int
    inner: Box | None = None


# --- schema -----------------------------------------------------------------------------------


def google(city: str, days: Annotated[int, Field(ge=1)] = 3) -> str:
    """Forecast the weather.

    For a few days ahead.

    Args:
        city: Where, such as
            Oslo.
        days (int): How many days.

    Returns:
        str: The forecast.
    """
    return f"{city} {days}"


def numpy_style(city: str, days: Annotated[int, Field(ge=1)] = 3) -> str:
    """Forecast the weather.

    For a few days ahead.

    Parameters
    ----------
    city : str
        Where, such as
        Oslo.
    days : int, optional
        How many days.

    Returns
    -------
    str
        The forecast.
    """
    return f"{city} {days}"


def sphinx(city: str, days: Annotated[int, Field(ge=1)] = 3) -> str:
    """Forecast the weather.

    For a few days ahead.

    :param city: Where, such as
        Oslo.
    :param days: How many days.
    :returns: The forecast.
    """
    return f"{city} {days}"


@pytest.mark.parametrize("function", [google, numpy_style, sphinx])
def test_hints_and_docstrings_become_a_schema(function: Callable[..., Any]) -> None:
    made = tool(function)
    assert made.name == function.__name__
    assert made.description.split() == [
        "Forecast",
        "the",
        "weather.",
        "For",
        "a",
        "few",
        "days",
        "ahead.",
    ]
    assert made.schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where, such as Oslo."},
            "days": {
                "type": "integer",
                "minimum": 1,
                "default": 3,
                "description": "How many days.",
            },
        },
        "required": ["city"],
        "additionalProperties": False,
    }


def test_a_name_and_a_description_may_be_given() -> None:
    @tool(name="look-up", description="Looks it up.")
    def anything(x: Annotated[str, Field(description="What.")]) -> str:
        """Not told.

        Args:
            x: Not told either.
        """
        return x

    assert (anything.name, anything.description) == ("look-up", "Looks it up.")
    assert anything.schema["properties"]["x"]["description"] == "What."


def test_any_name_may_be_a_parameters() -> None:
    @tool
    def odd(schema: str, model_config: int, title: str, copy: bool, _x: int) -> str:
        """Takes names that pydantic has itself."""
        return f"{schema} {model_config} {title} {copy} {_x}"

    assert list(odd.schema["properties"]) == ["schema", "model_config", "title", "copy", "_x"]
    assert "title" not in odd.schema["properties"]["title"]


async def test_values_are_of_the_types_that_are_asked_for() -> None:
    seen: dict[str, Any] = {}

    @tool
    def take(
        place: Place,
        when: date,
        colour: Colour,
        box: Box,
        way: Literal["up", "down"],
        names: tuple[str, int] | None = None,
        numbers: set[int] = frozenset(),  # type: ignore[assignment]
    ) -> None:
        """Takes much."""
        seen.update(locals())

    result = await take.call(
        {
            "place": {"name": "Oslo"},
            "when": "2026-02-03",
            "colour": "red",
            "box": {"wide": 2, "inner": {"wide": 1}},
            "way": "up",
            "names": ["a", 1],
            "numbers": [1, 2],
        }
    )
    assert not result.failed, result.text
    del seen["seen"]
    assert seen == {
        "place": Place(name="Oslo"),
        "when": date(2026, 2, 3),
        "colour": Colour.RED,
        "box": Box(2, Box(1)),
        "way": "up",
        "names": ("a", 1),
        "numbers": {1, 2},
    }


async def test_a_default_that_is_no_json_is_the_functions_own() -> None:
    marker = object()

    @tool
    def take(x: str = "x", y: Any = marker) -> str:
        """Takes a marker."""
        return str(y is marker)

    assert take.schema["properties"]["y"] == {}
    assert (await take.call({})).value == "True"


async def test_what_a_validator_says_is_told_too() -> None:
    @tool
    def take(it: Even) -> int:
        """Takes an even number."""
        return it.number

    told = (await take.call({"it": {"number": 3}})).text
    assert told.startswith("take was not called: argument 'it.number': value error, odd numbers")
    assert told.endswith("got 3")


class Picky(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def known(cls, value: int) -> int:
        return {1: 1}[value]


async def test_what_breaks_while_arguments_are_checked_is_told() -> None:
    @tool
    def take(it: Picky) -> int:
        """Takes a number."""
        return it.number

    told = (await take.call({"it": {"number": 3}})).text
    assert told == "take was not called: its arguments cannot be checked: KeyError: 3"


async def test_patterns_are_pydantics() -> None:
    @tool
    def take(letters: Annotated[str, Field(pattern=r"^\p{L}+$")]) -> str:
        """Takes letters, in words of Rust's regular expressions."""
        return letters

    assert (await take.call({"letters": "æøå"})).value == "æøå"
    told = (await take.call({"letters": "3"})).text
    assert told.startswith("take was not called: argument 'letters': string should match pattern")


# --- context ----------------------------------------------------------------------------------


async def test_the_context_is_not_the_models_to_give() -> None:
    @tool(retries=1)
    def book(
        seat: int, context: ToolContext, key: IdempotencyKey, other: ToolContext | None
    ) -> str:
        """Books a seat."""
        assert other is context
        return f"{seat} {context.tenant} {context.values['user']} {context.secret('S')} {key}"

    assert list(book.schema["properties"]) == ["seat"]
    assert book.keyed
    context = ToolContext("q", "shop", "k-1", {"user": "ada"}, {"S": "hush"})
    assert (await book.call({"seat": 3}, context)).value == "3 shop ada hush k-1"
    assert "hush" not in repr(context)
    told = (await book.call({"seat": 3, "key": "mine"}, context)).text
    assert told == "book was not called: there is no argument 'key' (it takes seat)"


async def test_a_secret_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    @tool
    def look(context: ToolContext) -> str:
        """Looks."""
        return context.secret("TEOLA_TEST_SECRET")

    told = (await look.call({})).text
    assert told == "look failed: the secret 'TEOLA_TEST_SECRET' is not set"
    empty = ToolContext(secrets={"TEOLA_TEST_SECRET": ""})
    assert (await look.call({}, empty)).text == told
    monkeypatch.setenv("TEOLA_TEST_SECRET", "hush")
    assert (await look.call({})).value == "hush"


async def test_each_call_without_a_context_has_a_key_of_its_own() -> None:
    @tool
    def name(key: IdempotencyKey) -> str:
        """Names the key."""
        return key

    assert (await name.call({})).value != (await name.call({})).value


# --- how it runs ------------------------------------------------------------------------------


async def test_sync_functions_run_off_the_loop_and_async_ones_on_it() -> None:
    @tool
    def away() -> str:
        """Runs in a thread."""
        return threading.current_thread().name

    @tool
    async def here() -> str:
        """Runs on the loop."""
        return threading.current_thread().name

    @tool
    def later() -> Any:
        """Gives a coroutine."""
        return here.carry_out({}, ToolContext())

    own = threading.current_thread().name
    assert (await away.call({})).value == "teola-tool"
    assert (await here.call({})).value == own
    assert (await later.call({})).value == own


async def test_objects_and_methods_are_functions_too() -> None:
    class Shop:
        def price(self, article: str) -> int:
            """What an article costs."""
            return len(article)

        async def __call__(self, article: str) -> str:
            return article

    shop = Shop()
    assert (await tool(shop.price).call({"article": "pen"})).value == 3
    made = tool(shop, name="shop", description="Sells.")
    assert (await made.call({"article": "pen"})).value == "pen"


USER: ContextVar[str] = ContextVar("user", default="nobody")


async def test_a_function_in_a_thread_sees_the_context_that_it_is_called_in() -> None:
    @tool(pure=True)
    def who() -> str:
        """Tell who asks."""
        before = USER.get()
        USER.set("somebody else")
        return before

    USER.set("Ann")
    for _ in range(2):
        assert (await who.call({})).value == "Ann", "what it sets is its own"
    assert USER.get() == "Ann"


async def test_every_parameter_that_asks_for_it_gets_the_key_or_the_context() -> None:
    @tool
    def act(
        x: int,
        one: IdempotencyKey,
        other: IdempotencyKey,
        context: ToolContext,
        more: ToolContext | None = None,
    ) -> list[Any]:
        """Act."""
        return [x, one, other, context.key, more.key if more else None]

    assert list(act.schema["properties"]) == ["x"]
    assert act.keyed
    assert (await act.call({"x": 1}, ToolContext(key="k"))).value == [1, "k", "k", "k", "k"]


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str


async def test_a_model_that_takes_more_fields_takes_them() -> None:
    @tool(pure=True)
    def fields(of: Loose) -> list[str]:
        """List what there is."""
        return sorted([*type(of).model_fields, *(of.model_extra or {})])

    result = await fields.call({"of": {"name": "x", "size": 3}})
    assert result.value == ["name", "size"]
    assert (await fields.call({"of": {"name": "x"}, "size": 3})).failed
