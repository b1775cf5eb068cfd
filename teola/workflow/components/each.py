"""Each: the same for every item of a list, side by side.

           ┌▶ item 0 ─┐
over ──────┼▶ item 1 ─┼──▶ lists of what the parts gave, in the order of the items
           └▶ ...     ┘

A list that a model writes need not be complete: the part of an item begins when that is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from pydantic import Field

from teola.errors import InputError, TemplateError, reason_of
from teola.graph import (
    NOBODY,
    Failures,
    Grow,
    GrowParams,
    Op,
    Ref,
    Remarks,
    Repeated,
    Value,
)
from teola.workflow.block import UNKNOWN_ITEMS, Block
from teola.workflow.build import Builder
from teola.workflow.component import Component, Config, Template
from teola.workflow.kinds import Kind
from teola.workflow.part_template import PartTemplate

ITEM = "item"
ONE = frozenset({ITEM})


class EachConfig(Config):
    """at_most: items; more fail the query. at_once: of them, side by side. on_error: what a part
    that fails does: fail the query, or leave None in its place. streamed: parts begin as a model
    writes their items; once one has begun, the model's call is not repeated when it fails."""

    at_most: int = Field(5000, ge=1)
    at_once: int = Field(64, ge=1)
    on_error: Literal["fail", "none"] = "fail"
    streamed: bool = True


class Each(Component):
    """Runs `body` for each item of the list `over`, which it reads as `item`.

    gives: name of a list -> what a part gives of it; the lists are in the order of the items, with
    None where a part gave nothing. The body reads anything else that is upstream.

        Each(search >> summarise, over="topics", item="topic", gives={"notes": "note"})
    """

    default_name = "each"
    config_type = EachConfig

    def __init__(
        self,
        body: Component | Template,
        *,
        over: str,
        item: str,
        gives: Mapping[str, str],
        name: str | None = None,
        outputs: Mapping[str, str] | None = None,
        optional: bool = False,
        **config: Any,
    ) -> None:
        called = name or self.default_name
        if not isinstance(gives, Mapping) or not gives:
            raise TemplateError("Each: gives must map names, such as {'notes': 'note'}")
        self.body = PartTemplate(called, body, (item,), tuple(gives.values()))
        if item not in self.body.needs and item not in self.body.may_use:
            raise TemplateError(f"component {called!r}: nothing in its body reads {item!r}")
        self.over, self.item, self.listed = over, item, dict(gives)
        self.needs = {over: Kind.ANY, **self.body.captured(self.body.needs)}  # type: ignore[misc]
        self.may_use = self.body.captured(self.body.may_use)  # type: ignore[misc]
        self.may_use.pop(over, None)
        self.gives = {  # type: ignore[misc]
            port: Kind.TEXTS if self.body.kinds[output] is Kind.TEXT else Kind.ANY
            for port, output in gives.items()
        }
        self.effect = self.body.effect  # type: ignore[misc]
        self.bodies = (self.body,)
        super().__init__(name, outputs=outputs, optional=optional, **config)

    def decompose(self, block: Block) -> None:
        feeds = {port: block.may_read(port) for port in (*self.required, *self.extra)}
        inputs: dict[str, Value] = {port: feed.ref for port, feed in feeds.items() if feed}
        config, over = block.config, block.read(self.over)
        grower = EachGrower(
            self.body.builder(block),
            self.over,
            self.item,
            tuple((port, self.listed[port]) for port in self.outputs),
            config.at_most,
            config.at_once,
            config.on_error,
            self.effect,
        )
        fed_by = self.over if config.streamed else ""
        params = GrowParams(grower, optional=tuple(self.extra), feeds=fed_by)
        items = over.items or UNKNOWN_ITEMS
        grow = block.add("grow", Op.GROW, inputs, tuple(self.outputs), params, planned=items)
        for port in self.outputs:
            block.give(port, Ref(grow, port), items, open=True)


@dataclass(frozen=True)
class EachGrower:
    """How an Each grows; see there."""

    body: Builder
    over: str
    item: str
    gives: tuple[tuple[str, str], ...]
    at_most: int
    at_once: int
    on_error: str
    effect: bool
    gathers: bool = True

    @cached_property
    def bodies(self) -> Mapping[str, Builder]:
        return {ITEM: self.body}

    @cached_property
    def repeated(self) -> Repeated:
        return Repeated(ITEM, ONE, at_once=self.at_once)

    def growth(self, inputs: Mapping[str, Any]) -> Going:
        return Going(self, inputs)

    planned = growth


@dataclass
class Going:
    """One run of an Each. count: items that it knows of."""

    each: EachGrower
    inputs: Mapping[str, Any]
    count: int = 0
    failures: Failures = field(default_factory=Failures)
    found: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def begin(self) -> Iterable[Grow]:
        over = self.each.over
        return self._upto(self.inputs[over]) if over in self.inputs else ()

    def told(self, key: str, port: str, item: Any) -> Iterable[Grow]:
        self._check(self.count + 1)
        self.count += 1
        return (self._part(self.count - 1, item),)

    def ended(self, key: str, outputs: Mapping[str, Any]) -> Iterable[Grow]:
        if not key:  # the list is complete
            return self._upto(outputs[self.each.over])
        self.found[int(key.rpartition("/")[2])] = outputs
        return ()

    def failed(self, key: str, error: Exception) -> Iterable[Grow]:
        if self.each.on_error == "fail":
            raise error
        cause = error.__cause__ if error.__cause__ is not None else error
        why = reason_of(cause) if isinstance(cause, Exception) else str(error)
        self.failures.add(why)
        return ()

    def result(self) -> Mapping[str, Any]:
        outputs, nothing = self.found, dict[str, Any]()
        return {
            port: [outputs.get(k, nothing).get(output) for k in range(self.count)]
            for port, output in self.each.gives
        }

    def remarks(self) -> Remarks:
        """How many parts failed, and why."""
        self.failures.parts = self.count
        return Remarks(failures=self.failures if self.each.on_error == "none" else None)

    def _upto(self, over: Any) -> Iterator[Grow]:
        """The parts of the items that it did not know of."""
        items = over if isinstance(over, list) else [over]
        first, self.count = self.count, max(self.count, len(items))
        self._check(self.count)
        return (self._part(k, items[k]) for k in range(first, self.count))

    def _check(self, count: int) -> None:
        each = self.each
        if count > each.at_most:
            raise InputError(
                f"{each.over!r} has {count} items, and at most {each.at_most} are allowed here: "
                "give it fewer, or raise at_most"
            )

    def _part(self, k: int, item: Any) -> Grow:
        each = self.each
        read = each.body.inputs
        own = {name: value for name, value in self.inputs.items() if name in read}
        own[each.item] = item
        nulls = frozenset({each.item}) if item is None else NOBODY
        return Grow(ITEM, f"{ITEM}/{k}", own, nulls=nulls)
