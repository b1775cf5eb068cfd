"""docs/main-loop.md says of the code what is true: its stations, its events and its commands."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any, Final, get_args

import pytest

from teola.runtime import driver
from teola.runtime.live import live
from teola.schedule import core, events, graph_run, row_run

PAGE: Final = (Path(__file__).parents[2] / "docs" / "main-loop.md").read_text()
STATIONS: Final = 15


def rows(heading: str) -> list[list[str]]:
    """Cells of the table rows in a section, without heads."""
    section = re.search(rf"^## {heading}$(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert section is not None, heading
    lines = [line for line in section[1].splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if "`" in row[-1]]


def found(file: str, name: str) -> Any:
    """A function by its file and its name. Raises AttributeError where there is none."""
    thing: Any = import_module(file.removesuffix(".py").replace("/", "."))
    for part in name.split("."):
        thing = getattr(thing, part)
    return thing


def test_each_station_is_where_the_page_says() -> None:
    stations = rows("Fifteen stations of a query")
    assert [row[0] for row in stations] == [str(k) for k in range(1, STATIONS + 1)]
    for *_, where in stations:
        file = ""
        for place in re.findall(r"`([^`]+)`", where):
            before, _, name = place.rpartition(": ")
            file = before or file
            function = inspect.unwrap(found(file, name))
            assert function.__code__.co_filename.endswith(file), f"{name} is not in {file}"


def test_what_somebody_looks_for_is_where_the_page_says() -> None:
    root = Path(__file__).parents[2]
    for question, where in rows("Where to look"):
        for place in re.findall(r"`([^`]+/[^`]*)`", where):
            file, _, name = place.partition(": ")
            assert (root / file).is_dir() == file.endswith("/"), question
            assert not name or found(file, name), question


def test_every_event_has_the_handler_that_the_page_names() -> None:
    table = {**row_run._HANDLERS, **graph_run._HANDLERS, **core._AT_QUEUE}
    told = {event: f"`{function.__qualname__}`" for event, function in table.items()}
    named = {f"`{event.__name__}`": handler for event, handler in told.items()}
    assert {row[0]: row[-1] for row in rows("Events")} == named
    assert set(table) == {*get_args(events.RunEvent), *get_args(events.QueueEvent)}


def test_every_command_is_performed_by_what_the_page_names() -> None:
    by = {row[0].strip("`"): row[-1].strip("`") for row in rows("Commands")}
    assert by.keys() == {command.__name__ for command in driver._PERFORM}
    assert set(driver._PERFORM) == set(get_args(events.Command))
    for command, perform in driver._PERFORM.items():
        own = found("teola/runtime/driver.py", by[command.__name__])
        called = perform is own or own.__name__ in perform.__code__.co_names
        assert called, f"{command.__name__} is not performed by {own.__qualname__}"


@pytest.mark.parametrize("bound", [live.ROUNDS, live.ROUNDS_S * 1000])
def test_the_page_knows_the_bounds_of_a_turn(bound: float) -> None:
    assert f"{bound:g} " in PAGE
