"""What a query did, as operations of the GenAI conventions: its trace, one entry for each primitive
or LLM call instead of one for each slice.

Names and attributes: opentelemetry.io/docs/specs/semconv/gen-ai. What they have no word for
(reranking, ingestion, Python functions) has ours, and attributes of ours begin with `teola.`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from teola.engine import Usage
from teola.graph import DecodeParams, Op
from teola.graph.ops import PREFILLS
from teola.runtime.observe.trace import NOT_RUN, Span, Trace

AttributeValue = str | int | float | list[int]
_KNOWN: Final = {
    Op.EMBEDDING.value: "embeddings",
    Op.SEARCHING.value: "retrieval",
    Op.WEB_SEARCH.value: "execute_tool",
    Op.SQL.value: "execute_tool",
}
GENAI: Final = frozenset({"chat", "text_completion", *_KNOWN.values()})
"""Operations that the conventions' metrics are about."""
_PREFILLS: Final = frozenset(op.value for op in PREFILLS)


class Maker(NamedTuple):
    """Who performs an engine's operations. call: what an LLM call of it is called."""

    provider: str
    model: str | None = None
    call: str = "chat"


@dataclass(frozen=True, slots=True)
class Operation:
    """One primitive or LLM call. start, end: seconds since the query was admitted."""

    kind: str
    name: str
    maker: Maker
    start: float
    end: float
    failed: bool
    attributes: Mapping[str, AttributeValue]
    usage: Usage | None = None


def operations(trace: Trace, made_by: Callable[[str], Maker]) -> Iterator[Operation]:
    """All of a trace, by start. made_by: of an engine."""
    if trace.plan is None:
        return
    plan, calls = trace.plan, trace.calls
    groups: dict[str, list[Span]] = {}
    for span in trace.spans:
        if not span.engine:
            if span.primitive not in plan.index:
                yield _step(span)
        elif span.state not in NOT_RUN:
            head = plan.ids[plan.head[plan.index[span.primitive]]]
            groups.setdefault(head, []).append(span)
    for head, spans in groups.items():
        usage = calls.get(head)
        attributes = _decoding(trace, head)
        yield _operation(head, spans, made_by(spans[0].engine), usage, attributes)


def _step(span: Span) -> Operation:
    """Work outside the graph: loading documents, optimising."""
    name = f"teola.{span.primitive}"
    return Operation(name, name, Maker("teola"), span.start, span.end, span.state == "failed", {})


def _operation(
    head: str,
    spans: list[Span],
    maker: Maker,
    usage: Usage | None,
    attributes: Mapping[str, AttributeValue],
) -> Operation:
    first = spans[0]
    call = bool(attributes)
    kind = maker.call if call else _KNOWN.get(first.op, first.op)
    own = [span for span in spans if span.primitive == head]
    return Operation(
        kind,
        _name(kind, maker, first),
        maker,
        min(span.start for span in spans),
        max(span.end for span in spans),
        own[-1].state == "failed" if own else False,
        {**_where(head, own or spans), **_words(kind, maker, first), **attributes},
        usage if usage and usage.prompt_tokens + usage.completion_tokens else None,
    )


def _name(kind: str, maker: Maker, span: Span) -> str:
    """As the conventions say where they say it."""
    if kind in ("chat", "text_completion", "embeddings"):
        return f"{kind} {maker.model}" if maker.model else kind
    if kind in GENAI:
        return f"{kind} {span.engine}"
    return f"{kind} {span.component}"


def _words(kind: str, maker: Maker, span: Span) -> dict[str, AttributeValue]:
    """Attributes of the conventions."""
    if kind not in GENAI:
        return {}
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": kind,
        "gen_ai.provider.name": maker.provider,
    }
    if maker.model:
        attributes["gen_ai.request.model"] = maker.model
    if kind == "retrieval":
        attributes["gen_ai.data_source.id"] = span.engine
    if kind == "execute_tool":
        attributes |= {"gen_ai.tool.name": span.engine, "gen_ai.tool.type": "datastore"}
    return attributes


def _where(head: str, spans: Iterable[Span]) -> dict[str, AttributeValue]:
    """Where and with whom it ran, and of an LLM call why there."""
    listed = list(spans)
    first = listed[0]
    return {
        **({"teola.why": listed[-1].why} if listed[-1].why else {}),
        "teola.primitive": head,
        "teola.component": first.component,
        "teola.op": first.op,
        "teola.engine": first.engine,
        "teola.instances": sorted({span.instance for span in listed}),
        "teola.queued_s": round(max(0.0, first.start - first.queued), 6),
        "teola.batch_size": max(span.batch_size for span in listed),
        "teola.slices": len(listed),
        "teola.items": sum(max(0, span.hi - span.lo) for span in listed if span.state == "done"),
    }


def _decoding(trace: Trace, head: str) -> dict[str, AttributeValue]:
    """What an LLM call was asked for; empty for everything else."""
    plan = trace.plan
    assert plan is not None
    i = plan.index[head]
    if plan.primitives[i].op.value not in _PREFILLS or not plan.members[i]:
        return {}
    params = plan.primitives[plan.members[i][0]].params
    assert isinstance(params, DecodeParams)
    return {
        "gen_ai.request.max_tokens": params.max_tokens,
        "gen_ai.request.temperature": params.temperature,
    }
