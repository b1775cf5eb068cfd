"""A worker of rows, without a cluster: what it asks, tells and counts (tables/test_on_ray.py)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pyarrow as pa
import pytest

from teola.runtime.engines import EngineConfig
from teola.runtime.hosts.ray_rows import READ, AnswerDesk, ShardRun, ShardWorker, _batches
from teola.runtime.rows import Row, RowAnswer, RowsCall
from teola.testing import ScriptedModel


class Near(ShardWorker):
    """Its desk is an object beside it, of which it gets copies, as from another process."""

    def _ask(self, method: str, *arguments: Any) -> Any:
        return deepcopy(getattr(self._desk, method)(*arguments))


@contextmanager
def worker(desk: AnswerDesk, until: float | None = None) -> Iterator[tuple[Near, ScriptedModel]]:
    model = ScriptedModel(lambda call: f"says {call.prompt.split()[-1]}")
    run = ShardRun(EngineConfig(model), RowsCall("why"), "us", "tables", "rows", until)
    one = Near(run, desk)
    try:
        yield one, model
    finally:
        if one._runtime is not None:
            one._runtime.close()


def shard(number: int, ids: Sequence[int]) -> pa.Table:
    texts = [f" row {id}" for id in ids]
    columns = {"id": list(ids), "text": texts, "opens": [False] * len(ids)}
    return pa.table({**columns, "shard": [number] * len(ids)})


def test_all_answers_are_at_the_desk_when_a_shard_ends_and_none_twice() -> None:
    """Also where another worker, which was lost, had brought some; shards do not mix."""
    desk = AnswerDesk()
    before = [RowAnswer(id, "says before", None) for id in (1, 4)]
    desk.bring(0, before)
    desk.bring(0, before[:1])
    desk.bring(1, [RowAnswer(11, "says before", None)])
    with worker(desk) as (one, model):
        (counts,) = one(shard(0, range(6))).to_pylist()
        assert (counts["state"], counts["asked"], counts["failed"]) == ("ok", 6, 0)
        assert len(model.calls) == 4
        came = desk.take()
        assert sorted((answer.id, answer.text) for answer in came) == [
            *((id, "says before" if id in (1, 4) else f"says {id}") for id in range(6)),
            (11, "says before"),
        ]
        assert desk.take() == []
        assert desk.answered(0) == dict.fromkeys(range(6), False)
        (again,) = one(shard(0, range(6))).to_pylist()
        assert (again["state"], again["asked"], len(model.calls)) == ("ok", 6, 4)
        assert desk.take() == []
        (other,) = one(shard(1, range(10, 13))).to_pylist()
        assert (other["state"], other["asked"], len(model.calls)) == ("ok", 3, 6)


def test_rows_that_failed_on_a_worker_that_was_lost_count_as_failed() -> None:
    """By what was brought of each row first, which is what whoever asked is told."""
    desk = AnswerDesk()
    desk.bring(0, [RowAnswer(1, None, "out of memory"), RowAnswer(4, "says 4", None)])
    desk.bring(0, [RowAnswer(1, "says 1", None), RowAnswer(4, None, "out of memory")])
    desk.bring(1, [RowAnswer(0, None, "out of memory")])
    with worker(desk) as (one, model):
        (counts,) = one(shard(0, range(6))).to_pylist()
    assert (counts["asked"], counts["failed"], len(model.calls)) == (6, 1, 4)
    assert sum(answer.error is not None for answer in desk.take()) == 2


@pytest.mark.parametrize("why", ["stopped", "late"])
def test_what_is_stopped_before_it_begins_asks_nothing(why: str) -> None:
    desk = AnswerDesk()
    if why == "stopped":
        desk.stop()
    with worker(desk, time.time() - 1 if why == "late" else None) as (one, model):
        (counts,) = one(shard(0, [1])).to_pylist()
    assert (counts["state"], counts["asked"], model.calls) == ("cancelled", 0, [])


@pytest.mark.parametrize("count", [0, 1, READ - 1, READ, READ + 1, 2 * READ, 2 * READ + 1])
def test_rows_are_written_in_pieces_of_which_none_is_empty_or_lost(count: int) -> None:
    rows = [Row(id, "") for id in range(count)]
    pieces = list(_batches(iter(rows)))
    assert [row for piece in pieces for row in piece] == rows
    assert [len(piece) for piece in pieces[:-1]] == [READ] * (len(pieces) - 1)
    assert all(0 < len(piece) <= READ for piece in pieces)
