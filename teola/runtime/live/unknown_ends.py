"""What people are asked where nobody knows whether a call happened: its server ended meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from teola.graph import Primitive, ToolParams
from teola.runtime.observe.excerpts import excerpts

TAKE: Final = "take"


def unknown_end_question(p: Primitive, about: Mapping[str, Any]) -> str:
    """The question. about: the call, see `about_call`."""
    worked = f"tool {about['tool']!r}" if "tool" in about else repr(p.component)
    return (
        f"the server ended while {worked} was at work: what it does may have happened. Shall "
        "it be repeated, is its result to be taken, or is it to fail?"
    )


def about_call(
    p: Primitive, inputs: Mapping[str, Any], hide: Callable[[str], str]
) -> Mapping[str, Any]:
    """What people are told of a call with these inputs."""
    assert isinstance(p.params, ToolParams)
    by_hand = p.params.by_hand
    if by_hand is None:
        return {"component": p.component, "inputs": excerpts(inputs, hide)}
    tool, arguments = by_hand.about(inputs)
    return {"tool": tool, "arguments": excerpts(arguments, hide)}


def schema_of_answer(p: Primitive, items: int) -> Mapping[str, Any]:
    """JSON schema of what people may answer where it is not known what became of a call for `items`
    items."""
    params = p.params
    assert isinstance(params, ToolParams)
    schemas = dict(zip(p.outputs, params.schemas or ({},) * len(p.outputs), strict=True))
    if p.batchable:
        one_each = {"type": "array", "minItems": items, "maxItems": items}
        schemas = {port: {**schema, **one_each} for port, schema in schemas.items()}
    result: Mapping[str, Any] = {
        "type": "object",
        "properties": schemas,
        "required": [*schemas],
        "additionalProperties": False,
    }
    if len(schemas) == 1:
        (result,) = schemas.values()
    return {
        "type": "object",
        "properties": {
            "do": {"enum": ["repeat", TAKE, "fail"]},
            "result": {**result, "description": "what it gave; with take"},
        },
        "required": ["do"],
        "additionalProperties": False,
        "if": {"properties": {"do": {"const": TAKE}}},
        "then": {"required": ["result"]},
        "else": {"maxProperties": 1},
    }


def outputs_taken(p: Primitive, inputs: Mapping[str, Any], value: Any) -> Any:
    """The outputs of a call of which people say that it gave `value`."""
    assert isinstance(p.params, ToolParams)
    by_hand = p.params.by_hand
    if by_hand is not None:
        return {p.outputs[0]: by_hand.output(inputs, value)}
    return {p.outputs[0]: value} if len(p.outputs) == 1 else value
