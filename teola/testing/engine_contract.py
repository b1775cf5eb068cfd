"""check_engine: does an engine keep the contract of `teola.engine`?

It is run as a runtime runs it, by a host: started, asked one by one and side by side, asked for
what cannot be, cancelled in the midst, and closed.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from teola.engine import (
    Call,
    Delta,
    Engine,
    EngineKind,
    Hit,
    LanguageModel,
    QueryContext,
    Request,
    TextPart,
)
from teola.errors import EngineError, InputError, OutputError, TeolaError
from teola.graph import DecodeParams, Op, Primitive, Ref
from teola.graph.ops import (
    EmbeddingParams,
    Params,
    RerankParams,
    ToolParams,
    WebSearchParams,
)
from teola.graph.prompt import Role
from teola.runtime.hosts.local import LocalHost
from teola.runtime.hosts.shapes import check_shape
from teola.runtime.outputs import misnumbered, misshapen, no_delta, stream_of
from teola.runtime.values import counts_of
from teola.testing.checking import ContractBroken, finished
from teola.testing.loader_contract import check_loader
from teola.testing.store_contract import check_store

WITHIN_S: Final = 60.0
"""Longest time that a step of the check may take."""
CLOSE: Final = 1e-4
"""Numbers that differ by less are equal: models compute a little otherwise in larger batches."""

Sample = tuple[Params, Mapping[str, Any]]
"""Parameters and inputs of a request."""


def check_engine(
    engine: Callable[[], Engine],
    *,
    samples: Mapping[Op, Sequence[Sample]] | None = None,
    repeatable: bool = True,
) -> None:
    """Run an engine through what a runtime may do with it. engine: its class, or a function that
    makes a fresh one.

    A batch engine gets two different requests of each of its operations: alone, together, with one
    between them that cannot be done, and one that is cancelled. samples: the requests, where those
    that the check knows do not suit; they are needed for operations that it knows none of. A
    language model gets two prompts, alone and side by side, in two pieces, short of tokens, with a
    schema, and one is aborted; its calls are of the component "check" of the app "check". A
    document store indexes a document and is searched; a loader reads some.
    repeatable: the same request has the same result. Say False where chance decides.

    Raises ContractBroken, which names the engine and what it did, and what it raises itself where
    it cannot be started.
    """
    finished(_check(engine, dict(samples or {}), repeatable))


async def _check(
    factory: Callable[[], Engine], samples: dict[Op, Sequence[Sample]], repeatable: bool
) -> None:
    made = factory()
    try:
        check_shape(made, getattr(getattr(made, "spec", None), "name", "") or "checked")
    except InputError as error:
        raise ContractBroken(str(error)) from None
    checked = _Engine(LocalHost(made, 0), repeatable)
    try:
        await checked.within(checked.host.start(), "start")
        kind = made.spec.kind
        if kind is EngineKind.LLM:
            await _check_model(checked)
        elif kind is EngineKind.DOCUMENTS:
            await check_loader(checked.host, checked.broken)
        elif kind is EngineKind.VECTORSTORE:
            await check_store(checked.host, checked.broken)
        else:
            await _check_batches(checked, samples)
    finally:
        await checked.within(checked.host.close(), "close")


class _Engine:
    """An engine on its host."""

    def __init__(self, host: LocalHost, repeatable: bool) -> None:
        self.host, self.repeatable = host, repeatable
        self.name = host.engine.spec.name
        self.called = f"engine {self.name!r} ({type(host.engine).__name__})"

    def broken(self, what: str) -> ContractBroken:
        return ContractBroken(f"{self.called}: {what}")

    async def within(self, work: Any, what: str) -> Any:
        """`work`, which has to end some time."""
        try:
            async with asyncio.timeout(WITHIN_S):
                return await work
        except TimeoutError:
            raise self.broken(f"{what} has not ended after {WITHIN_S:.0f} s") from None


# --- batch engines --------------------------------------------------------------------------


async def _check_batches(engine: _Engine, samples: dict[Op, Sequence[Sample]]) -> None:
    ops = engine.host.engine.spec.ops
    for op in sorted(ops, key=lambda op: op.value):
        found = samples.get(op) or _SAMPLES.get(op)
        if found is None:
            raise InputError(
                f"check_engine knows no requests for {op.value}: give some, such as "
                f"samples={{Op.{op.name}: [(params, inputs), (params, inputs)]}}"
            )
        await _check_op(engine, op, found)


async def _check_op(engine: _Engine, op: Op, samples: Sequence[Sample]) -> None:
    requests = [_request(op, *sample) for sample in samples]
    alone = [await _results(engine, [request]) for request in requests]
    for request, (result,) in zip(requests, alone, strict=True):
        if isinstance(result, Exception):
            raise engine.broken(f"{op.value} failed: {type(result).__name__}: {result}")
        _check_shape(engine, request, result)
    together = await _results(engine, requests)
    for k, (result, (single,)) in enumerate(zip(together, alone, strict=True)):
        if isinstance(result, Exception):
            raise engine.broken(f"{op.value} number {k} of a batch failed: {result}")
        if engine.repeatable and not _equal(result, single):
            raise engine.broken(
                f"{op.value} number {k} of a batch gave {_told(result)}, and alone "
                f"{_told(single)}: results are to be in the order of the requests"
            )
    await _check_failure(engine, op, requests, alone)
    await _check_abort(engine, op, requests)


async def _check_failure(
    engine: _Engine, op: Op, requests: Sequence[Request], alone: Sequence[Any]
) -> None:
    """A request without inputs fails, and the engine goes on."""
    bad = requests[0]._replace(inputs={})
    try:
        found = await _results(engine, [requests[0], bad, requests[-1]])
    except ContractBroken:
        raise
    except Exception:  # noqa: BLE001 - the whole batch may fail of one; the others are tried again
        found = []
    if found and not isinstance(found[1], Exception):
        raise engine.broken(f"{op.value} without any input gave {_told(found[1])}, and no error")
    (after,) = await _results(engine, [requests[0]])
    if isinstance(after, Exception) or (engine.repeatable and not _equal(after, alone[0][0])):
        raise engine.broken(f"after a request that failed, {op.value} gave {_told(after)}")


async def _check_abort(engine: _Engine, op: Op, requests: Sequence[Request]) -> None:
    """A batch that is cancelled ends soon, and the engine goes on."""
    work = asyncio.ensure_future(engine.host.execute(requests))
    await asyncio.sleep(0)
    work.cancel()
    await engine.within(asyncio.wait([work]), f"{op.value}, cancelled,")
    if not work.cancelled():
        work.exception()  # whatever it is: it was cancelled
    (after,) = await _results(engine, [requests[0]])
    if isinstance(after, Exception):
        raise engine.broken(f"after a batch that was cancelled, {op.value} gave {_told(after)}")


async def _results(engine: _Engine, requests: Sequence[Request]) -> Sequence[Any]:
    found = await engine.within(engine.host.execute(requests), requests[0].op.value)
    if wrong := misnumbered(engine.name, found, len(requests)):
        raise engine.broken(str(wrong))
    return cast("Sequence[Any]", found)


def _request(op: Op, params: Params, inputs: Mapping[str, Any]) -> Request:
    context = QueryContext("check", deadline=time.monotonic() + WITHIN_S)
    return Request(op, params, inputs, context, f"check/{op.value}/{id(inputs)}")


def _check_shape(engine: _Engine, request: Request, result: Any) -> None:
    outputs = _OUTPUTS.get(request.op)
    if outputs is None:
        params = request.params
        named = tuple(result) if isinstance(result, Mapping) else ("a mapping",)
        outputs = params.outputs if isinstance(params, ToolParams) else named
    inputs = tuple((name, Ref("query", name)) for name in request.inputs)
    p = Primitive("check", request.op, "check", engine.name, inputs, outputs, request.params)
    listed = [request.inputs[name] for name, _ in p.item_refs()]
    items = min((len(value) for value in listed), default=1)
    if wrong := misshapen(p, items, result):
        raise engine.broken(str(wrong))
    counts_of(result)


def _equal(a: Any, b: Any) -> bool:
    """Whether two results are the same, numbers by and large."""
    if hasattr(a, "tolist") or hasattr(b, "tolist"):
        a, b = (x.tolist() if hasattr(x, "tolist") else x for x in (a, b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, Hit) and isinstance(b, Hit):
        return (a.id, a.text) == (b.id, b.text) and _equal(a.score, b.score)
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return abs(a - b) <= CLOSE * max(1.0, abs(a), abs(b))
    return bool(a == b)


def _told(value: Any) -> str:
    told = repr(value)
    return told if len(told) <= 120 else f"{told[:120]}..."


_OUTPUTS: Final[Mapping[Op, tuple[str, ...]]] = {
    Op.EMBEDDING: ("vectors",),
    Op.RERANKING: ("scores",),
    Op.WEB_SEARCH: ("hits",),
}
_LAMP, _CAT = "The keeper looks after the lamp.", "The cat sleeps all day on the quay."
_HITS: Final = [Hit("1", "a.txt", _LAMP, 0.5), Hit("2", "b.txt", _CAT, 0.4)]
_SAMPLES: Final[Mapping[Op, Sequence[Sample]]] = {
    Op.EMBEDDING: [
        (EmbeddingParams("document"), {"texts": [_LAMP, _CAT]}),
        (EmbeddingParams("document"), {"texts": ["Fourteen boats are moored here."]}),
    ],
    Op.RERANKING: [
        (RerankParams(), {"hits": _HITS, "question": "Who looks after the lamp?"}),
        (RerankParams(), {"hits": _HITS[::-1], "question": "Who sleeps?"}),
    ],
    Op.WEB_SEARCH: [
        (WebSearchParams(3), {"queries": ["lamp keeper"]}),
        (WebSearchParams(3), {"queries": ["cat", "boats"]}),
    ],
    Op.TOOL_CALL: [
        (ToolParams(lambda text: text.upper(), pure=True), {"text": _LAMP}),
        (ToolParams(lambda text: len(text), pure=True), {"text": _CAT}),
    ],
}


# --- language models ------------------------------------------------------------------------

_PROMPTS: Final = (
    (
        TextPart(Role.INSTRUCTION, "Answer from the context, in one sentence.\n\nContext:\n"),
        TextPart(Role.CONTEXT, _LAMP),
        TextPart(Role.QUESTION, "\n\nQuestion: Who looks after the lamp?\n"),
    ),
    (
        TextPart(Role.INSTRUCTION, "Answer from the context, in one sentence.\n\nContext:\n"),
        TextPart(Role.CONTEXT, _CAT),
        TextPart(Role.QUESTION, "\n\nQuestion: Who sleeps all day?\n"),
    ),
)
_SCHEMA: Final = json.dumps(
    {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
)


async def _check_model(engine: _Engine) -> None:
    model = cast("LanguageModel", engine.host.engine)
    count = model.count_tokens(_LAMP)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise engine.broken(f"count_tokens gave {count!r} for a sentence, not a whole number")
    alone = [await _text(engine, _call(parts)) for parts in _PROMPTS]
    both = await asyncio.gather(*(_text(engine, _call(parts)) for parts in _PROMPTS))
    if engine.repeatable and list(both) != alone:
        raise engine.broken(f"two calls at once gave {both}, and one after the other {alone}")
    await _check_prefix(engine, model, alone[0])
    await _check_length(engine)
    await _check_schema(engine)
    await _check_aborted(engine, model)
    after = await _text(engine, _call(_PROMPTS[0]))
    if engine.repeatable and after != alone[0]:
        raise engine.broken(f"after a call that was aborted it gave {after!r}, not {alone[0]!r}")


def _call(parts: Sequence[TextPart], prefix: Any = None, **decode: Any) -> Call:
    context = QueryContext("check", deadline=time.monotonic() + WITHIN_S)
    params = DecodeParams(**{"max_tokens": 64, "seed": 7, **decode})
    return Call(context, tuple(parts), params, prefix, category=("check", "check"))


@asynccontextmanager
async def _stream(engine: _Engine, call: Call) -> AsyncIterator[AsyncIterator[Delta]]:
    try:
        generated = stream_of(cast("LanguageModel", engine.host.engine), call)
    except OutputError as wrong:
        raise engine.broken(str(wrong)) from None
    async with generated as stream:
        yield stream


async def _deltas(engine: _Engine, call: Call) -> list[Delta]:
    found: list[Delta] = []
    async with _stream(engine, call) as stream:
        async for delta in stream:
            if not isinstance(delta, Delta):
                raise engine.broken(str(no_delta(engine.name, delta)))
            if found and found[-1].finish_reason is not None:
                raise engine.broken("it streams on after a Delta with a finish_reason")
            found.append(delta)
    return found


async def _text(engine: _Engine, call: Call) -> str:
    found: list[Delta] = await engine.within(_deltas(engine, call), "generate")
    if not found:
        raise engine.broken("its stream ended without a Delta; the first one says that it reads")
    last = found[-1]
    if last.finish_reason not in ("stop", "length", "refusal"):
        raise engine.broken(
            f"its last Delta has the finish_reason {last.finish_reason!r}, which is to be 'stop', "
            "'length' or 'refusal'"
        )
    usage = last.usage
    if usage is None:
        raise engine.broken("its last Delta has no usage")
    if usage.completion_tokens > call.decode.max_tokens and last.finish_reason != "length":
        raise engine.broken(
            f"it generated {usage.completion_tokens} tokens, more than max_tokens="
            f"{call.decode.max_tokens}, and does not say that it was cut"
        )
    return "".join(delta.text for delta in found)


async def _check_prefix(engine: _Engine, model: LanguageModel, whole: str) -> None:
    """In two pieces a prompt has the same answer."""
    ahead, rest = _PROMPTS[0][:1], _PROMPTS[0][1:]
    handle = await engine.within(engine.host.prefill(_call(ahead)), "prefill")
    parts = getattr(handle, "parts", None)
    if parts != ahead:
        raise engine.broken(f"prefill gave {_told(handle)}, whose parts are not those of its call")
    try:
        text = await _text(engine, _call(rest, prefix=handle))
    finally:
        engine.host.release(handle)
    if engine.repeatable and text != whole:
        raise engine.broken(f"in two pieces a prompt is answered {text!r}, and whole {whole!r}")


async def _check_length(engine: _Engine) -> None:
    """A call that may have one token stays within it, or says that it was cut."""
    await _text(engine, _call(_PROMPTS[0], max_tokens=1))


async def _check_schema(engine: _Engine) -> None:
    """It says that it cannot, or writes something."""
    try:
        await _text(engine, _call(_PROMPTS[0], schema=_SCHEMA))
    except EngineError as error:
        if error.retryable:
            raise engine.broken(
                f"that it cannot hold an answer to a schema is no matter of another try: {error}"
            ) from error
    except TeolaError:
        pass


async def _check_aborted(engine: _Engine, model: LanguageModel) -> None:
    """Closing the stream after its first piece ends it, soon."""

    async def first() -> None:
        async with _stream(engine, _call(_PROMPTS[1])) as stream:
            async for _ in stream:
                break

    await engine.within(first(), "closing a stream")
