"""Primitive: the unit of orchestration. Frozen; no status, results or scratch live here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from teola.errors import GraphError
from teola.graph.ops import ITEM_INPUTS, Op, Params, ToolParams
from teola.graph.prompt import Prompt, Ref


@dataclass(frozen=True, slots=True)
class Const:
    """A value known when the graph is built."""

    value: Any


Value = Ref | Const | Prompt | tuple[Ref, ...]
"""An input: one Ref, a constant, a prompt, or the parts of an Aggregate."""


def refs_of(value: Value) -> Iterator[Ref]:
    """Every Ref in an input."""
    if type(value) is Ref:
        yield value
    elif type(value) is Prompt:
        yield from value.refs()
    elif type(value) is tuple:
        yield from value


@dataclass(frozen=True, slots=True)
class Order:
    """Run after `producer` although no data flows. `effect`: it protects a side effect."""

    producer: str
    reason: str
    effect: bool = False


@dataclass(frozen=True, slots=True)
class Guard:
    """Run only if `condition` takes `branch`.

    speculative: it may run before that is decided; its outputs count only if the branch is taken.
    """

    condition: str
    branch: str
    speculative: bool = False


@dataclass(frozen=True, slots=True)
class Primitive:
    """One operation of one query.

    id: unique in its graph. component: the template component it came from. engine: name of the
    engine that runs it ("" for control ops). inputs: (name, Value) pairs. outputs: port names.
    items: planned number of items of a batchable input, or of a list that it grows over (1
    otherwise). after / guards: order and
    guard edges. batchable: its item inputs may be cut. splittable: each item of its output means
    something alone. optional: its failure leaves the query `partial` instead of failed. origin: id
    of the p-graph's primitive it was made from ("" if it is that one, or a pass's Aggregate).
    """

    id: str
    op: Op
    component: str
    engine: str
    inputs: tuple[tuple[str, Value], ...]
    outputs: tuple[str, ...]
    params: Params
    items: int = 1
    after: tuple[Order, ...] = ()
    guards: tuple[Guard, ...] = ()
    batchable: bool = False
    splittable: bool = False
    optional: bool = False
    origin: str = ""

    def __post_init__(self) -> None:
        if self.items < 0:
            raise GraphError(f"primitive {self.id!r}: items must not be negative, got {self.items}")

    def input(self, name: str) -> Value:
        """The input called `name`. Raises GraphError if there is none."""
        for key, value in self.inputs:
            if key == name:
                return value
        raise GraphError(f"primitive {self.id!r} has no input {name!r}")

    def refs(self) -> Iterator[Ref]:
        """Every Ref that this primitive reads, query inputs included."""
        for _, value in self.inputs:
            yield from refs_of(value)

    def item_refs(self) -> list[tuple[str, Ref]]:
        """The aligned list inputs that a batchable primitive may be cut along."""
        params = self.params
        names = params.item_inputs if type(params) is ToolParams else ITEM_INPUTS.get(self.op, ())
        return [(key, value) for key, value in self.inputs if key in names and type(value) is Ref]
