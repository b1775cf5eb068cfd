"""A component's own mistakes, told by its name where its primitives are made."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from teola import App, Component, Runtime, component
from teola.errors import TemplateError
from teola.graph import Op, Ref, ToolParams
from teola.workflow.block import Block
from teola.workflow.kinds import Kind


@component(outputs="a", pure=True)
def first(q: str) -> str:
    return q


class Nowhere(Component):
    """Says not which engine runs it."""

    default_name = "c"
    needs: ClassVar = {"a": Kind.TEXT}
    gives: ClassVar = {"b": Kind.TEXT}

    def decompose(self, block: Block) -> None:
        inputs = {"a": block.read("a").ref}
        params = ToolParams(lambda a: a)
        call = block.add("x", Op.TOOL_CALL, inputs, ("out",), params)
        block.give("b", Ref(call, "out"))


def app(template: Any, runtime: Runtime) -> App:
    return App("x", template=template, inputs={"q": "text"}, outputs={"b": "b"}, runtime=runtime)


def test_a_component_without_an_engine_is_refused_also_behind_another() -> None:
    with Runtime() as runtime:
        told = r"component 'c' \(Nowhere\): no engine is to run its tool_call 'x'; declare"
        with pytest.raises(TemplateError, match=told):
            app(first >> Nowhere(), runtime)
        well = app(first >> Nowhere(engine="python"), runtime)
        assert well.run(q="1")["b"] == "1"
