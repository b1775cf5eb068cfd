"""Decision: the calls that a model wants made, as it writes them down.

    {"thought": "I need both.",
     "calls": [{"tool": "weather", "args": {"city": "Oslo"}},
               {"id": 7, "tool": "translate", "args": {"text": "$1", "to": "nb"}}]}

A call's number is its `id`, or else its place in the list. Calls that refer to none may run at
once, the others as soon as those that they refer to have ended.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from teola.errors import OutputError
from teola.tools.json_schema import REFERENCES, JsonSchema, decodable, flattened, shown
from teola.tools.references import referring

MOST_CALLS: Final = 16
_CALL_FIELDS: Final = frozenset({"id", "tool", "args"})
_FIELDS: Final = frozenset({"thought", "calls"})


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One call. reads: numbers of the calls that its arguments refer to. problem: why it cannot be
    made, for the model; empty if it can. literal: its arguments are sent as they are, whatever
    looks like a reference in them."""

    number: int
    tool: str
    arguments: Mapping[str, Any]
    reads: tuple[int, ...] = ()
    problem: str = ""
    literal: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """See the module."""

    thought: str
    calls: tuple[PlannedCall, ...]

    def stages(self) -> list[list[PlannedCall]]:
        """The calls in the order in which they may run: all of one list at the same time."""
        at: dict[int, int] = {}
        stages: list[list[PlannedCall]] = []
        for call in self.calls:
            at[call.number] = max((at[n] + 1 for n in call.reads if n in at), default=0)
            if at[call.number] == len(stages):
                stages.append([])
            stages[at[call.number]].append(call)
        return stages


def decision_schema(
    tools: Mapping[str, JsonSchema],
    *,
    most: int = MOST_CALLS,
    least: int = 0,
    thought: bool = True,
    references: bool = True,
) -> dict[str, Any]:
    """JSON schema of a decision of `least` to `most` calls. tools: name -> schema of arguments.

    It is what vLLM's `structured_outputs.json` takes: bounds that a server may not know are left
    out, and checked when the arguments are there. references: whether any argument may be one.
    """
    definitions: dict[str, Any] = dict(REFERENCES) if references else {}
    calls = []
    for name, schema in tools.items():
        parts = flattened(schema, name)
        for key, part in parts.items():
            plain = decodable(part)
            definitions[key] = referring(plain) if references else plain
        calls.append(_call_schema(name))
    properties: dict[str, Any] = {"thought": {"type": "string"}} if thought else {}
    listed = {"type": "array", "items": {"anyOf": calls}, "minItems": least, "maxItems": most}
    return {
        "type": "object",
        "properties": {**properties, "calls": listed},
        "required": [*properties, "calls"],
        "additionalProperties": False,
        "$defs": definitions,
    }


def _call_schema(name: str) -> JsonSchema:
    return {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "minimum": 1},
            "tool": {"const": name},
            "args": {"$ref": f"#/$defs/{name}"},
        },
        "required": ["tool", "args"],
        "additionalProperties": False,
    }


def opened_decision(decision: Any) -> tuple[str, Sequence[Any]]:
    """Thought and calls of what a model wrote, as they stand there. Raises OutputError."""
    if not isinstance(decision, Mapping):
        raise OutputError(f"a decision must be an object with calls, got {shown(decision)}")
    for name in decision:
        if name not in _FIELDS:
            raise OutputError(f"a decision has thought and calls, not {shown(name)}")
    thought, calls = decision.get("thought", ""), decision.get("calls")
    if not isinstance(thought, str):
        raise OutputError(f"thought must be a text, got {shown(thought)}")
    if not isinstance(calls, list):
        raise OutputError(f"calls must be a list, got {shown(calls)}")
    return thought, calls


def decision_fields(call: Any, place: int, taken: Collection[int]) -> tuple[int, str, Any]:
    """Number, tool and arguments of one call. place: its number, if it gives itself none. Raises
    OutputError; what is wrong with its arguments is that call's own affair."""
    where = f"call {place}"
    if not isinstance(call, Mapping):
        raise OutputError(f"{where} must be an object with tool and args, got {shown(call)}")
    for name in call:
        if name not in _CALL_FIELDS:
            raise OutputError(f"{where} has id, tool and args, not {shown(name)}")
    number = call.get("id", place)
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise OutputError(f"{where}: id must be an integer >= 1, got {shown(number)}")
    if number in taken:
        raise OutputError(f"{where}: another call has the number {number}; leave ids out")
    tool, arguments = call.get("tool"), call.get("args", {})
    if not isinstance(tool, str):
        raise OutputError(f"{where}: tool must be a name, got {shown(tool)}")
    return number, tool, arguments
