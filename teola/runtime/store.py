"""Store: the values of one query, from the moment they exist until their last reader is done.

It also does what needs values but no engine: resolving references, joining slices, and the control
primitives (Aggregate, Condition).
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import isasyncgen, isawaitable, isgenerator
from typing import Any

from teola.engine import TextPart
from teola.errors import EngineError
from teola.graph import (
    QUERY,
    AggregateParams,
    ConditionParams,
    Const,
    Prompt,
    Ref,
)
from teola.plain_json import tiny_bytes
from teola.runtime.gathering import gather
from teola.runtime.observe.kept_values import KeptValues
from teola.runtime.returned import LookedThrough
from teola.runtime.tally import Tally
from teola.runtime.values import RemoteList, bytes_of, counts_of, joined_lists, text_of, tokens_of
from teola.schedule.plan import Plan


@dataclass(slots=True)
class _Arriving:
    """Slices of a primitive's outputs that have come, by their first item, each with the item
    behind its last one. items: how many there are in all of them."""

    slices: dict[int, tuple[int, Mapping[str, Any]]] = field(default_factory=dict)
    items: int = 0


class Store:
    """Values by primitive and port.

    inputs: the caller's, by name.
    nulls: inputs that are there although they are None.
    tally: of the whole query, if this is a part's.
    held_bytes: of what batches computed, about; only if it `weighs` that.
    kept: what stays of values when they are gone, for people (None: nothing).
    """

    def __init__(
        self,
        plan: Plan,
        inputs: Mapping[str, Any],
        *,
        weighs: bool = True,
        tally: Tally | None = None,
        nulls: frozenset[str] = frozenset(),
        kept: KeptValues | None = None,
    ) -> None:
        self.kept = kept
        self.weighs, self._tally = weighs, tally or Tally()
        self.plan, self.inputs, self._nulls = plan, dict(inputs), nulls
        self.values: dict[int, Mapping[str, Any]] = {}
        self._slices: dict[int, _Arriving] = {}
        self._dropped: set[int] = set()
        self._lengths: dict[int, int] = {}
        self._bytes: dict[int, int] = {}
        self.held_bytes = 0

    def counts(self) -> dict[str, int]:
        """Items of each input of the query."""
        found = counts_of(self.inputs)
        for name in self._nulls:
            found[name] = 1
        return found

    def read(self, ref: Ref) -> Any:
        """The value behind `ref`; None if it is absent."""
        if ref.producer == QUERY:
            value = self.inputs.get(ref.port)
        else:
            produced = self.values.get(self.plan.index[ref.producer])
            value = None if produced is None else produced.get(ref.port)
        if ref.items is None or value is None:
            return value
        lo, hi = ref.items
        return _as_list(value)[lo:hi]

    def resolve(self, i: int, lo: int = 0, hi: int | None = None) -> dict[str, Any]:
        """Inputs of primitive `i` by name; its item inputs cut to lo..hi. Absent ones are left out.

        Prompts are resolved by `prompt`.
        """
        p = self.plan.primitives[i]
        cut = self.plan.item_inputs[i]
        inputs: dict[str, Any] = {}
        for name, value in p.inputs:
            if type(value) is Ref:
                data = self.read(value)
                if name in cut and data is not None:
                    data = _as_list(data)
                    if lo or hi is not None:
                        data = data[lo:hi]
                if data is not None or (value.producer == QUERY and value.port in self._nulls):
                    inputs[name] = data
            elif type(value) is Const:
                inputs[name] = value.value
        return inputs

    def prompt(self, i: int) -> tuple[TextPart, ...]:
        """The parts of primitive `i`'s prompt that are present, as text."""
        parts = []
        for part in self._prompt(i).parts:
            if isinstance(part.content, str):
                parts.append(TextPart(part.role, part.content))
                continue
            value = self.read(part.content)
            if value is not None:
                parts.append(TextPart(part.role, text_of(value, part.separator)))
        return tuple(parts)

    def prompt_tokens(self, i: int) -> int:
        """Tokens of primitive `i`'s prompt, without any prefix computed before."""
        length = self._lengths.get(i)
        if length is None:
            parts = [part.content for part in self._prompt(i).parts]
            length = sum([tokens_of(p if isinstance(p, str) else self.read(p)) for p in parts])
            self._lengths[i] = length
        return length

    def _prompt(self, i: int) -> Prompt:
        prompt = self.plan.primitives[i].input("prompt")
        assert isinstance(prompt, Prompt)
        return prompt

    def items(self, i: int) -> int:
        """Items of primitive `i`, by which it may be cut (1 if it may not)."""
        return self.given(i) if self.plan.primitives[i].batchable else 1

    def given(self, i: int) -> int:
        """Length of primitive `i`'s item inputs (1 if it has none)."""
        refs = self.plan.item_refs[i]
        return min([len(_as_list(self.read(ref) or [])) for _, ref in refs], default=1)

    def cut(self, i: int, lo: int = 0, hi: int | None = None) -> Any:
        """Items lo..hi of the first list that primitive `i` may be cut along."""
        _, ref = self.plan.item_refs[i][0]
        return _as_list(self.read(ref))[lo:hi]

    def put(self, i: int, result: Mapping[str, Any], tiny: int | None = None) -> dict[str, int]:
        """Keep the outputs of primitive `i`; their counts. tiny: their `tiny_bytes`, if the caller
        knows them."""
        if i not in self._dropped:
            self.values[i] = result
            if (kept := self.kept) is not None:
                if i in self.plan.pieces:
                    self.keep_pieces(i)
                kept.gave(i, result, tiny)
        return counts_of(result)

    def put_slice(
        self, i: int, lo: int, hi: int, total: int, result: Mapping[str, Any]
    ) -> dict[str, int]:
        """Keep items lo..hi of the outputs; once all `total` are there, they are joined."""
        dropped, tiny = i in self._dropped, None
        if self.weighs and not dropped:
            if type(result) is LookedThrough:
                size = result.nbytes
            elif (tiny := tiny_bytes(result.values())) is not None:
                size = tiny
            else:
                size = sum(map(bytes_of, result.values()))
            self._bytes[i] = self._bytes.get(i, 0) + size
            self.held_bytes += size
            self._tally.held_bytes += size
        if hi - lo >= total:
            return self.put(i, result, tiny)
        if dropped:
            return counts_of(result)
        arriving = self._slices.get(i)
        if arriving is None:
            arriving = self._slices[i] = _Arriving()
        slices = arriving.slices
        before = slices[lo][0] if lo in slices else lo  # another try may deliver a slice again
        slices[lo] = (hi, result)
        arriving.items += hi - before
        if arriving.items >= total:
            parts = [slices[lo][1] for lo in sorted(slices)]
            del self._slices[i]
            self.put(i, {port: joined_lists([part[port] for part in parts]) for port in result})
        return counts_of(result)

    def keep_pieces(self, i: int) -> None:
        """Primitive `i` has ended or failed: what stays of the pieces of lists that it read."""
        if self.kept is not None and i in self.plan.pieces:
            refs = ((name, ref) for name, ref in self.plan.primitives[i].inputs if type(ref) is Ref)
            self.kept.read(i, {name: self.read(ref) for name, ref in refs if ref.items is not None})

    def drop(self, i: int) -> Mapping[str, Any] | None:
        """Primitive `i` is skipped: forget its outputs, also those that are still to come. What it
        held of them."""
        self._dropped.add(i)
        self._slices.pop(i, None)
        return self.release(i)

    def release(self, i: int) -> Mapping[str, Any] | None:
        """Forget the outputs of primitive `i`. What it held of them."""
        if size := self._bytes.pop(i, 0):
            self.held_bytes -= size
            self._tally.held_bytes -= size
        return self.values.pop(i, None)

    def close(self) -> None:
        """Forget everything: the query has ended."""
        self._tally.held_bytes -= self.held_bytes
        self.held_bytes = 0
        for kept in (self.values, self.inputs, self._slices, self._bytes):
            kept.clear()

    def control(self, i: int) -> Mapping[str, Any] | Coroutine[Any, Any, Mapping[str, Any]]:
        """Run an Aggregate or a Condition; a coroutine is left to run where a Condition's test is
        asynchronous. Raises EngineError if the test fails."""
        p, values = self.plan.primitives[i], [self.read(ref) for ref in self.plan.refs[i]]
        if isinstance(p.params, AggregateParams):
            return {p.outputs[0]: gather(p.params, values)}
        assert isinstance(p.params, ConditionParams)
        return _decide(p.params, values)

    @property
    def empty(self) -> bool:
        """Whether nothing but the query's inputs is held."""
        return not self.values and not self._slices


def _as_list(value: Any) -> Any:
    return value if type(value) is list or type(value) is RemoteList else [value]


def _decide(
    params: ConditionParams, values: Sequence[Any]
) -> Mapping[str, Any] | Coroutine[Any, Any, Mapping[str, Any]]:
    try:
        answer = params.test(*values)
    except Exception as error:  # the developer's own code: whatever it raises fails the query
        raise _raised(error) from error
    return _awaited(params, answer) if isawaitable(answer) else _taken(params, answer)


async def _awaited(params: ConditionParams, answer: Awaitable[Any]) -> Mapping[str, Any]:
    try:
        found = await answer
    except Exception as error:  # as above
        raise _raised(error) from error
    return _taken(params, found)


def _raised(error: Exception) -> EngineError:
    return EngineError(f"its test raised {type(error).__name__}: {error}")


def _taken(params: ConditionParams, answer: Any) -> Mapping[str, Any]:
    """The branch that an answer stands for. Raises EngineError where it stands for none."""
    if isgenerator(answer) or isasyncgen(answer):
        raise EngineError("its test returned a generator, which is neither true nor false")
    if isinstance(answer, str) and answer in params.branches:
        return {"branch": answer}
    return {"branch": params.branches[0] if answer else params.branches[-1]}
