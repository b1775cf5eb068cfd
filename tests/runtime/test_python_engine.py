"""What functions return: lists as long as they were told, outputs by name, and no generators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from teola.engine import QueryContext, Request
from teola.errors import EngineError, OutputError
from teola.graph import Op, ToolParams
from teola.runtime.python_engine import PythonEngine
from teola.runtime.returned import LookedThrough


async def called(function: Callable[..., Any], inputs: dict[str, Any], **params: Any) -> Any:
    engine = PythonEngine()
    request = Request(Op.TOOL_CALL, ToolParams(function, **params), inputs, QueryContext("q"), "k")
    try:
        (found,) = await engine.execute([request])
    finally:
        await engine.close()
    return found


@pytest.mark.parametrize("count", [1, 2, 3, None])
async def test_a_batched_function_gives_as_many_as_it_is_given(count: int | None) -> None:
    given: Any = {"xs": ["a", "b"], "y": 1}
    value: Any = "ab" if count is None else ["x"] * count
    asked = called(lambda xs, y: value, given, item_inputs=("xs",))
    if count == 2:
        assert await asked == {"out": ["x", "x"]}
        return
    with pytest.raises(OutputError, match="a function with batched='xs' must return a list as"):
        await asked


@pytest.mark.parametrize("count", [0, 2, 3])
async def test_a_list_has_at_most_as_many_items_as_was_said(count: int) -> None:
    asked = called(lambda: ["x"] * count, {}, most=2)
    if count <= 2:
        assert await asked == {"out": ["x"] * count}
        return
    with pytest.raises(OutputError) as raised:
        await asked
    told = "it returned 3 items, and most=2: raise `most`, or return fewer"
    assert str(raised.value) == told
    with pytest.raises(OutputError, match="with most=2 it must return a list, not tuple"):
        await called(lambda: ("x",), {}, most=2)


async def test_one_output_is_what_is_returned_and_several_stand_in_a_dict() -> None:
    both: Any = {"outputs": ("a", "b")}
    assert await called(lambda: {"a": 1}, {}, outputs=("a",)) == {"a": {"a": 1}}
    assert await called(lambda: {"b": 2, "a": 1, "c": 3}, {}, **both) == {"a": 1, "b": 2}
    for value, missing in (({"a": 1}, "b"), ({}, "a, b"), ([1, 2], "a, b"), (None, "a, b")):
        with pytest.raises(OutputError, match=f"^it must return a dict with {missing}$"):
            await called(lambda value=value: value, {}, **both)


async def test_a_generator_is_no_value() -> None:
    def pieces() -> Any:
        yield "x"

    async def late() -> Any:
        yield "x"

    for made in (pieces, late):
        with pytest.raises(OutputError, match="it returned a generator, which is no value"):
            await called(lambda made=made: made(), {})
        with pytest.raises(OutputError, match="it returned a generator, which is no value"):
            await called(lambda made=made: {"a": 1, "b": made()}, {}, outputs=("a", "b"))


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt])
async def test_what_would_end_the_process_ends_the_call(raised: type[BaseException]) -> None:
    def ends() -> None:
        raise raised

    with pytest.raises(EngineError, match=f"^it raised {raised.__name__}$"):
        await called(ends, {})


async def test_what_is_large_is_looked_through_where_it_holds_up_nobody() -> None:
    assert type(await called(lambda: "x", {})) is dict
    large = await called(lambda: [[k, str(k)] for k in range(20_000)], {})
    assert type(large) is LookedThrough
    assert large.refusals == {}
