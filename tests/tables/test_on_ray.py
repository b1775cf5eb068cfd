"""Rows on workers of a Ray cluster: the same result, and a lost worker loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from teola import tables
from teola.errors import InputError, UnknownName
from teola.runtime.engines import EngineConfig
from teola.testing import ScriptedModel
from tests.tables.on_ray import Telling

SQL = "SELECT a, LLM('q', b, a, fixed_order := true) AS k FROM t"
ROWS = 1000
TABLE = {"t": pa.table({"a": list(range(ROWS)), "b": [f"group {at % 7}" for at in range(ROWS)]})}


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"on": "spark"}, UnknownName, "ray"),
        ({"on": "ray", "most_tokens": 10}, InputError, "most_calls"),
        ({"on": "ray", "most_cost": 1, "price": "1,1"}, InputError, "most_calls"),
        ({"on": "ray", "workers": 0}, InputError, "at least one worker"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_asked(
    options: dict[str, Any], error: type[Exception], says: str
) -> None:
    model = ScriptedModel(lambda call: "yes")
    with pytest.raises(error, match=says):
        tables.sql(SQL, TABLE, llm=model, answers=False).run(**options)
    assert model.calls == []


@pytest.fixture(scope="module")
def cluster(servers: None) -> Iterator[None]:
    from teola.runtime.hosts import ray_actor

    ray_actor.connect(None)
    yield
    ray_actor.disconnect()


def telling(folder: Path, **options: str) -> EngineConfig:
    return EngineConfig(Telling, {"told": str(folder / "told.txt"), **options})


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_lost_worker_loses_nothing_and_asks_nothing_twice(cluster: None, tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    alone = tables.sql(SQL, TABLE).run(llm=telling(tmp_path / "alone"), answers=False)
    dies = tmp_path / "dies"
    done = tables.sql(SQL, TABLE).run(
        llm=telling(tmp_path, dies=str(dies)),
        answers=tmp_path / "answers.duckdb",
        on="ray",
        workers=2,
    )
    assert dies.exists()
    assert done.rows == alone.rows
    assert (done.state, done.report["asked"]) == ("ok", ROWS)
    assert done.report["prompt_tokens"] == alone.report["prompt_tokens"]
    told = [line.split() for line in (tmp_path / "told.txt").read_text().splitlines()]
    assert len({process for process, _ in told}) >= 2, "several workers"
    assert len(told) == len({digest for _, digest in told}) == ROWS
    again = tables.sql(SQL, TABLE).run(
        llm=telling(tmp_path, dies=str(dies)), answers=tmp_path / "answers.duckdb"
    )
    assert (again.rows, again.report["asked"]) == (alone.rows, 0)
