"""Who holds a sequence, and when its engine is told to release it: against a list of holders."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from teola.engine import Call, QueryContext, SequenceHandle, TextPart
from teola.errors import EngineError, OutputError
from teola.graph import DecodeParams, Role
from teola.runtime.hosts.local import LocalHost
from teola.runtime.live.sequences import KeptSequences
from teola.testing.hash_engines import HashModel


class Keeper(HashModel):
    """Gives handles of one state after the other, and notes what is released. fails: releasing
    does."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self.released, self.made, self.fails = list[Any](), 0, fails
        self.gives: Any = None

    async def prefill(self, call: Call) -> SequenceHandle:
        self.made += 1
        return self.gives or SequenceHandle("llm", 7, call.parts, (), [f"state {self.made}"])

    def release(self, handle: SequenceHandle) -> None:
        self.released.append(handle.state)
        if self.fails:
            raise EngineError("its\nline broke")


class Query:
    """As far as what is kept for it goes: a store of outputs, and which of them have ended."""

    def __init__(self) -> None:
        self.ends: set[int] = set()
        self.values: dict[int, Any] = {}
        self.run: Any = SimpleNamespace(state=None, ended=lambda i: i in self.ends)
        self.store = self

    def put(self, i: int, outputs: Any) -> dict[str, int]:
        self.values[i] = outputs
        return {"sequence": 1}


def call(prefix: SequenceHandle | None = None, *texts: str) -> Call:
    parts = tuple(TextPart(Role.QUESTION, text) for text in texts)
    return Call(QueryContext("q"), parts, DecodeParams(), prefix)


@pytest.mark.parametrize("seed", range(30))
async def test_a_sequence_is_released_with_its_last_holder(seed: int) -> None:
    """Stores of queries, and calls that read; pieces without a text share the handle before."""
    chance, kept = Random(seed), KeptSequences()
    model = Keeper()
    host = LocalHost(model, 2)
    queries: Any = [Query() for _ in range(3)]
    holders: list[Any] = []
    reading: list[tuple[Any, ExitStack]] = []
    for _ in range(120):
        query, i = chance.choice(queries), chance.randrange(3)
        held = [one["sequence"] for one in query.values.values()]
        prefix = chance.choice([*held, None])
        what = chance.choice(["prefill", "empty", "drop", "read", "read", "end", "end"])
        if what in ("prefill", "empty"):
            texts = ("why?",) if what == "prefill" else ()
            before, late = query.values.get(i), chance.random() < 0.2
            if late:
                query.ends.add(i)
            counts = await kept.prefill(host, query, i, call(prefix, *texts))
            state = [f"state {model.made}"] if texts else prefix and prefix.state
            if late:
                assert counts == {}
                assert query.values.get(i) is before
                if texts:
                    assert model.released[-1] == state
                query.ends.discard(i)
            else:
                assert counts == {"sequence": 1}
                handle = query.values[i]["sequence"]
                assert (handle.state, handle.instance) == (state, 2)
                if before is not None and before["sequence"].state is not None:
                    holders.remove(before["sequence"].state)
                holders += [state] if state is not None else []
        elif what == "drop" and i in query.values:
            outputs = query.values.pop(i)
            kept.let_go(outputs)
            if outputs["sequence"].state is not None:
                holders.remove(outputs["sequence"].state)
        elif what == "read":
            stack = ExitStack()
            stack.enter_context(kept.reading(host, call(prefix, "why?")))
            if prefix is not None and prefix.state is not None:
                holders.append(prefix.state)
                reading.append((prefix.state, stack))
        elif what == "end" and reading:
            state, stack = reading.pop(chance.randrange(len(reading)))
            stack.close()
            holders.remove(state)
        alive = {state[0] for state in holders}
        everything = {f"state {k}" for k in range(1, model.made + 1)}
        assert sorted(state[0] for state in model.released) == sorted(everything - alive)
        assert len(kept) == len(alive)


@pytest.mark.parametrize(
    "outputs", [None, {}, {"sequence": True}, {"sequence": None}, {"text": "x"}]
)
async def test_what_is_no_handle_is_let_go_by_nobody(outputs: Any) -> None:
    kept = KeptSequences()
    kept.let_go(outputs)
    kept.let_go({"sequence": SequenceHandle("llm", 0, ())})
    assert len(kept) == 0


async def test_an_engine_that_cannot_release_is_noted_and_nothing_more_is_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, kept, query = Keeper(fails=True), KeptSequences(), Query()
    await kept.prefill(LocalHost(model, 0), query, 0, call(None, "why?"))  # type: ignore[arg-type]
    with caplog.at_level(logging.INFO):
        kept.let_go(query.values[0])
    assert len(kept) == 0
    record: Any = caplog.records[0]
    assert (record.levelname, record.event) == ("ERROR", "release_failed")
    assert record.getMessage() == (
        "engine llm could not release a sequence: EngineError: its\nline broke"
    )
    told = {"engine": "llm", "error_type": "EngineError", "error": "its\nline broke"}
    assert record.fields == told


async def test_what_is_no_handle_is_not_kept() -> None:
    model, kept, query = Keeper(), KeptSequences(), Query()
    model.gives = "no handle"
    with pytest.raises(OutputError):
        await kept.prefill(LocalHost(model, 0), query, 0, call(None, "why?"))  # type: ignore[arg-type]
    assert (len(kept), query.values) == (0, {})
