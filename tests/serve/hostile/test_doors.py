"""Contents of `experiments.doors`, against a server in this process: no turn of its loop takes
longer than `MOST_S` of processor time, through whichever door they come."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from experiments.doors import apps, site
from experiments.doors.contents import Content, of_kinds
from experiments.doors.doors import DOORS, Door
from experiments.doors.fakes import Fakes
from experiments.doors.measure import url_of
from teola import App, EngineConfig, Runtime
from teola.catalogue import load_app
from tests.longest_turn import MOST_S, longest_turn
from tests.serve.conftest import serving


@dataclass(frozen=True)
class Attacked:
    """A server in this process."""

    site: site.Site
    runtime: Runtime


@pytest.fixture(scope="module")
def attacked(
    data_dir: Path, admin: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Attacked]:
    rows = tmp_path_factory.mktemp("doors") / "rows.db"
    site.fill_sqlite(rows)
    dsn = url_of(admin)
    site.fill_postgres(dsn)
    with Fakes() as fakes, pytest.MonkeyPatch.context() as patch:
        patch.setenv(apps.MCP_URL, f"{fakes.url}/mcp")
        patch.setenv(apps.SQLITE, str(rows))
        patch.setenv(apps.POSTGRES, dsn)
        engines = {
            "vectorstore": EngineConfig("vectorstore", {"data_dir": data_dir}),
            "websearch": EngineConfig("searxng", {"url": fakes.url}),
            "llm": EngineConfig("openai", {"url": f"{fakes.url}/v1"}),
        }
        served: dict[str, App] = {name: getattr(apps, name) for name in apps.APPS}
        served["naive-rag"] = load_app("naive-rag")
        with Runtime(engines) as runtime, serving(runtime, served) as found:
            yield Attacked(site.Site(found.url, fakes), runtime)
    site.drop_postgres(dsn)


def _params() -> Iterator[Any]:
    """Views of a query differ in little from the query itself: the nightly tests look at them."""
    for door in DOORS:
        view = door.name.startswith("GET /v1/queries/{id}/")
        yield pytest.param(door, id=door.name, marks=[pytest.mark.nightly] if view else [])


@pytest.mark.parametrize("door", list(_params()))
def test_no_turn_is_long(attacked: Attacked, door: Door) -> None:
    assert _long(attacked, door, quick=True) == {}


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_no_turn_is_long_with_any_content(attacked: Attacked, door: Door) -> None:
    assert _long(attacked, door, quick=False) == {}


def _long(attacked: Attacked, door: Door, quick: bool) -> dict[str, float]:
    """Content -> seconds of the longest turn, where it is too long."""
    contents = of_kinds(door.kinds, quick)
    longest = {one.name: _longest_s(attacked, door, one) for one in contents}
    return {name: seconds for name, seconds in longest.items() if seconds > MOST_S}


def _longest_s(attacked: Attacked, door: Door, content: Content) -> float:
    made = content.make()
    door.before(attacked.site, content)
    with longest_turn(attacked.runtime.loop) as longest:
        door.way(attacked.site, content, made)
        attacked.runtime.start(asyncio.sleep(0.05)).result()
    attacked.site.fakes.replies, attacked.site.fakes.pages = [], []
    return longest.seconds
