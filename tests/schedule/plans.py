"""Small e-graphs to feed events to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from teola.graph import (
    QUERY,
    AggregateParams,
    Aggregation,
    ConditionParams,
    DecodeParams,
    Graph,
    Guard,
    Op,
    Order,
    Part,
    PrefillParams,
    Primitive,
    Prompt,
    Ref,
    Role,
    ToolParams,
    Value,
)
from teola.schedule.events import Outbox, RunEvent
from teola.schedule.graph_run import NAMES, GraphRun
from teola.schedule.plan import Plan


def nothing(**_: Any) -> None:
    """Stands for a function that is never called."""


def tool(id: str, *reads: str | Ref, optional: tuple[str, ...] = (), **more: Any) -> Primitive:
    """A primitive that reads the `out` of others (or Refs), as x0, x1, ..."""
    refs = [read if isinstance(read, Ref) else Ref(read, "out") for read in reads]
    inputs: tuple[tuple[str, Value], ...] = tuple((f"x{k}", ref) for k, ref in enumerate(refs))
    item_inputs = ("x0",) if more.get("batchable") else ()
    params = ToolParams(nothing, item_inputs=item_inputs, optional=optional)
    return Primitive(id, Op.TOOL_CALL, id, "python", inputs, ("out",), params, **more)


def aggregate(id: str, *reads: str, mode: Aggregation = Aggregation.FIRST) -> Primitive:
    parts = tuple(Ref(read, "out") for read in reads)
    params = AggregateParams(mode)
    return Primitive(id, Op.AGGREGATE, id, "", (("parts", parts),), ("out",), params)


def condition(id: str, read: str | Ref = "question", **more: Any) -> Primitive:
    ref = read if isinstance(read, Ref) else Ref(QUERY, read)
    params = ConditionParams(nothing, ("then", "otherwise"), "then")
    return Primitive(id, Op.CONDITION, id, "", (("x", ref),), ("branch",), params, **more)


def call(
    id: str, items: int = 0, *, ahead: bool = False, late: str = "", **more: Any
) -> list[Primitive]:
    """An LLM call: `<id>.prefill` (after `<id>.ahead`) and `<id>`, or partial decodings <id>.0..

    items: how many partial decodings; they give `out`, the last one `text` too. late: what the
    prefill behind `<id>.ahead` reads, too.
    """
    prompt = Prompt((Part(Role.QUESTION, Ref(QUERY, "question"), required=True),))
    found: list[Primitive] = []
    inputs: tuple[tuple[str, Value], ...] = (("prompt", prompt),)
    if ahead:
        found.append(_llm(f"{id}.ahead", Op.PARTIAL_PREFILLING, inputs, ("sequence",), **more))
        if late:
            rest = Part(Role.CONTEXT, Ref(late, "out"), required=False)
            inputs = (("prompt", Prompt((*prompt.parts, rest))),)
        inputs = (("sequence", Ref(f"{id}.ahead", "sequence")), *inputs)
    head = f"{id}.prefill"
    op = Op.FULL_PREFILLING if ahead else Op.PREFILLING
    found.append(_llm(head, op, inputs, ("sequence",), **more))
    if not items:
        return [*found, _llm(id, Op.DECODING, _after(head), ("out",), **more)]
    for k in range(items):
        before = head if k == 0 else f"{id}.{k - 1}"
        outputs = ("out", "sequence")
        params = DecodeParams(items=items, parser="lines", item=k)
        decoding = _llm(f"{id}.{k}", Op.PARTIAL_DECODING, _after(before), outputs, params, **more)
        found.append(decoding)
    return found


def _after(producer: str) -> tuple[tuple[str, Value], ...]:
    return (("sequence", Ref(producer, "sequence")),)


def _llm(
    id: str,
    op: Op,
    inputs: tuple[tuple[str, Value], ...],
    outputs: tuple[str, ...],
    params: DecodeParams | None = None,
    **more: Any,
) -> Primitive:
    decodes = op in (Op.DECODING, Op.PARTIAL_DECODING)
    given = params or (DecodeParams() if decodes else PrefillParams())
    return Primitive(id, op, id.split(".")[0], "llm", inputs, outputs, given, **more)


def plan(*primitives: Primitive, outputs: Mapping[str, Ref] | None = None) -> Plan:
    """A validated plan; by default the last primitive's `out` is the answer."""
    found = dict(outputs) if outputs is not None else {"answer": Ref(primitives[-1].id, "out")}
    graph = Graph("test", primitives, found, ["question", "notes"])
    graph.validate()
    return Plan(graph)


def run(plan: Plan) -> GraphRun:
    return GraphRun("q", plan)


def heard(run: GraphRun, event: RunEvent, now: float = 1.0) -> Outbox:
    """What a run of no core says to an event, and what it wants of the queues."""
    run.out.clear()
    run.handle(event, now)
    return run.out.copy()


def status(run: GraphRun) -> dict[str, str]:
    return {id: NAMES[run.status[i]] for i, id in enumerate(run.plan.ids)}


__all__ = [
    "QUERY",
    "Guard",
    "Order",
    "Ref",
    "aggregate",
    "call",
    "condition",
    "heard",
    "nothing",
    "plan",
    "run",
    "status",
    "tool",
]
