"""Whether an engine gave what its operation asks for; if not, an error that names the engine.

What is wrong is told where it comes in. Later it would be a wrong answer, or an error of whoever
reads it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from inspect import iscoroutine
from numbers import Real
from typing import Any, Final, cast

from teola.engine import Call, Hit, LanguageModel, SequenceHandle
from teola.errors import OutputError
from teola.graph import Op, Primitive
from teola.graph.ops import ITEM_INPUTS
from teola.runtime.returned import port_refusal
from teola.runtime.values import RemoteList

NO_PORTS: Final[frozenset[str]] = frozenset()
SHOWN: Final = 60
"""Characters of a value that an error repeats."""


def misshapen(
    p: Primitive, items: int, result: Any, shown: frozenset[str] = NO_PORTS
) -> OutputError | None:
    """What is wrong with the outputs that an engine gave for `items` items of `p`, if anything.
    shown: of a function, those that not only functions read."""
    mapping = type(result) is dict or isinstance(result, Mapping)  # the latter takes its time
    if not mapping or not all(map(result.__contains__, p.outputs)):
        ports = ", ".join(map(str, result)) if mapping else type(result).__name__
        return _wrong(p, ports or "nothing", ", ".join(p.outputs))
    for port in p.outputs if p.batchable or p.op in ITEM_INPUTS else ():
        value = result[port]
        listed = isinstance(value, (list, RemoteList))
        if not listed or len(value) != items:
            count = len(value) if listed else type(value).__name__
            return _wrong(p, f"{count} for {items} items of {port!r}", "a list with one for each")
        if p.op in _ITEMS and type(value) is list and (refused := _refusal(p, port, value)):
            return refused
    for port in p.outputs if shown else ():
        if port in shown and (refused := port_refusal(port, result)):
            return refused
    return None


def misnumbered(engine: str, results: Any, requests: int) -> OutputError | None:
    """What is wrong with what `execute` returned for so many requests, if anything."""
    if type(results) is list and len(results) == requests:
        return None
    if not isinstance(results, Sequence) or isinstance(results, str):
        return OutputError(
            f"engine {engine!r} gave {type(results).__name__} for {requests} requests, not a list "
            "with a result for each"
        )
    if len(results) != requests:
        return OutputError(
            f"engine {engine!r} gave {len(results)} results for {requests} requests, not one for "
            "each"
        )
    return None


def stream_of(model: LanguageModel, call: Call) -> aclosing[Any]:
    """What `generate` returns for a call, to be closed at its end. Raises OutputError if that is no
    stream."""
    return aclosing(opened_stream(model, call))


def opened_stream(model: LanguageModel, call: Call) -> AsyncGenerator[Any, None]:
    """The same for who closes it himself, if it is not read to its end."""
    stream: Any = model.generate(call)
    if hasattr(stream, "__aiter__") and hasattr(stream, "aclose"):
        return cast("AsyncGenerator[Any, None]", stream)
    if iscoroutine(stream):
        stream.close()
    raise OutputError(
        f"engine {model.spec.name!r} gave {type(stream).__name__} for a call, not a stream: let "
        "`generate` be an async generator (`async def` with `yield`)"
    )


def no_delta(engine: str, piece: object) -> OutputError:
    """Why a piece of a stream is refused."""
    return OutputError(
        f"engine {engine!r} streamed {_shown(piece)}, not a teola.engine.Delta(text)"
    )


def no_handle(engine: str, given: object) -> OutputError | None:
    """What is wrong with what `prefill` returned, if anything."""
    if isinstance(given, SequenceHandle):
        return None
    return OutputError(
        f"engine {engine!r} gave {_shown(given)} for a prefix, not a teola.engine.SequenceHandle"
    )


def _shown(value: object) -> str:
    told = repr(value)
    return told if len(told) <= SHOWN else f"{told[:SHOWN]}..."


def _refusal(p: Primitive, port: str, value: list[Any]) -> OutputError | None:
    """About the first item of `value` that is not what the operation gives."""
    fits, expected = _ITEMS[p.op]
    for k, item in enumerate(value):
        if not fits(item):
            return _wrong(p, f"{_shown(item)} as {port}[{k}]", expected)
    return None


def _wrong(p: Primitive, given: str, expected: str) -> OutputError:
    return OutputError(f"engine {p.engine!r} gave {given}, not {expected}")


def _is_vector(item: Any) -> bool:
    if isinstance(item, (list, tuple)):
        return bool(item) and isinstance(item[0], Real)
    return hasattr(item, "tolist")  # an array


def _are_hits(item: Any) -> bool:
    return isinstance(item, (list, tuple)) and all(isinstance(hit, Hit) for hit in item)


def _is_score(item: Any) -> bool:
    return isinstance(item, Real) and not isinstance(item, bool)


_LISTS_OF_HITS: Final = (_are_hits, "a list of teola.engine.Hit for each query")
_ITEMS: Final = {
    Op.EMBEDDING: (_is_vector, "a vector (a list of numbers) for each text"),
    Op.SEARCHING: _LISTS_OF_HITS,
    Op.WEB_SEARCH: _LISTS_OF_HITS,
    Op.RERANKING: (_is_score, "a score (a number) for each hit"),
}
"""By operation: whether an item of its output fits, and what it is to be."""
