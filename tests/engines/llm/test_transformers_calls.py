"""What becomes of calls before a local model computes anything; without a model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from teola.engine import Call, QueryContext, TextPart
from teola.errors import EngineError, InputError
from teola.graph.ops import DecodeParams
from teola.graph.prompt import Role
from teola_engines.llm import TransformersModel
from teola_engines.llm.model_loop import KeptPrefix, ModelJob

WINDOW, BLOCK = 20, 4


@pytest.fixture
def engine() -> TransformersModel:
    """As if it had been started."""
    engine = TransformersModel(model="m", block_tokens=BLOCK)
    engine._window = WINDOW
    engine._tokens = SimpleNamespace(stream=lambda ids: None)  # type: ignore[assignment]
    return engine


def a_call(query: str = "q", **decode: Any) -> Call:
    parts = (TextPart(Role.QUESTION, "why?"),)
    return Call(QueryContext(query), parts, DecodeParams(**decode))


@pytest.mark.parametrize(
    ("prompt", "most", "output"),
    [
        (10, 5, 5),
        (10, 0, 1),
        (15, 5, 5),
        (16, 5, 4),
        (WINDOW - 1, 5, 1),
        (WINDOW, 5, None),
        (WINDOW + 1, 5, None),
    ],
)
async def test_an_answer_has_the_room_that_its_prompt_leaves(
    prompt: int, most: int, output: int | None, engine: TransformersModel
) -> None:
    call = a_call(max_tokens=most)
    if output is None:
        with pytest.raises(EngineError, match=f"has {prompt} tokens and the window {WINDOW}"):
            engine._job(call, [7] * prompt, call.decode)
        return
    job = engine._job(call, [7] * prompt, call.decode)
    assert (job.sequence.output, job.sequence.keep) == (output, False)
    assert len(job.sequence.keys) == prompt // BLOCK


async def test_a_prefix_may_fill_the_window(engine: TransformersModel) -> None:
    call = a_call(max_tokens=5)
    job = engine._job(call, [7] * WINDOW, None)
    assert (job.sequence.output, job.sequence.keep) == (0, True)
    with pytest.raises(EngineError, match="shorten the prompt"):
        engine._job(call, [7] * (WINDOW + 1), None)


async def test_without_a_prefix_cache_blocks_have_no_keys(engine: TransformersModel) -> None:
    engine._prefix_cache = False
    job = engine._job(a_call(), [7] * 10, DecodeParams())
    assert (job.sequence.keys, job.sequence.grown) == ((), None)


async def test_what_was_generated_has_keys_behind_those_of_the_prompt(
    engine: TransformersModel,
) -> None:
    job = engine._job(a_call(), [*range(6)], DecodeParams())
    job.produced += [6, 7, 8]
    assert job.sequence.grown is not None
    whole = engine._job(a_call(), [*range(9)], DecodeParams()).sequence.keys
    assert job.sequence.grown(9) == whole
    assert job.sequence.grown(7) == whole[:1] == job.sequence.keys


def test_equal_calls_have_equal_seeds(engine: TransformersModel) -> None:
    """The try of a query counts by its id, unless the call has a seed of its own; 0 is one."""

    def seed(query: str, ids: list[int], **decode: Any) -> int:
        return engine._seed_of(a_call(query, **decode), ids)

    assert seed("q", [1]) == seed("q", [1])
    assert seed("q", [1], seed=0) == seed("other", [1], seed=0)
    others = [seed("other", [1]), seed("q", [2]), seed("q", [1], seed=0), seed("q", [1], seed=1)]
    assert len({seed("q", [1]), *others}) == 5
    engine._seed = 3
    assert seed("q", [1]) not in others


@pytest.mark.parametrize(("tokens", "kept"), [(0, False), (BLOCK - 1, False), (BLOCK, True)])
async def test_a_prefix_is_kept_if_it_has_a_whole_block(
    tokens: int, kept: bool, engine: TransformersModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[ModelJob] = []

    async def finish(job: ModelJob) -> None:
        done.append(job)

    released: list[int] = []
    loop = SimpleNamespace(release=released.append)
    monkeypatch.setattr(engine, "_call_ids", lambda call, complete: [7] * tokens)
    monkeypatch.setattr(engine, "_finish", finish)
    monkeypatch.setattr(engine, "_started", lambda: loop)
    handle = await engine.prefill(a_call())
    assert (len(done), isinstance(handle.state, KeptPrefix)) == (kept, kept)
    assert handle.token_ids == (7,) * tokens
    for _ in range(2):
        engine.release(handle)
    assert released == [job.id for job in done], "once"


@pytest.mark.parametrize(
    ("option", "wrong"),
    [("kv_blocks", 0), ("host_memory_gib", -0.1), ("host_memory_gib", float("nan"))],
)
def test_numbers_that_no_memory_has_are_refused(option: str, wrong: float) -> None:
    with pytest.raises(InputError, match=f"engine 'llm': {option} must be"):
        TransformersModel(model="m", **{option: wrong})  # type: ignore[arg-type]
    TransformersModel(model="m", kv_blocks=1, host_memory_gib=0.0)
