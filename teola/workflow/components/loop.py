"""Loop: do it again until it is good enough.

turn 1 ─▶ turn 2 ─▶ ...   each turn is a part, which begins when the one before has ended
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import Field

from teola.errors import EngineError, TemplateError
from teola.graph import Grow, GrowParams, Op, Ref, Remarks, Repeated, Value
from teola.workflow.block import Block
from teola.workflow.build import Builder
from teola.workflow.component import Component, Config, Template
from teola.workflow.kinds import Kind
from teola.workflow.part_template import PartTemplate

TURN = "turn"
ONE = frozenset({TURN})


class LoopConfig(Config):
    """at_most: turns, after which the last one's outputs stand, whatever `until` says."""

    at_most: int = Field(5, ge=1)


class Loop(Component):
    """Runs `body` again and again, until `until(*reads)` is true of a turn's outputs.

    carry: input of the body -> output of the turn before that it reads; the first turn reads it
    from upstream, where it has that name. reads, gives: names that the body gives; `gives` of the
    last turn is what is seen outside. until: quick and pure. expect: turns that estimates and
    simulations assume. The body reads anything else that is upstream of the loop.

        Loop(critique >> rewrite, carry={"draft": "better"}, until=good, reads=["better"],
             gives=["better"], at_most=5)
    """

    default_name = "loop"
    config_type = LoopConfig

    def __init__(
        self,
        body: Component | Template,
        *,
        carry: Mapping[str, str],
        until: Callable[..., Any],
        reads: Sequence[str],
        gives: Sequence[str],
        expect: int = 2,
        name: str | None = None,
        outputs: Mapping[str, str] | None = None,
        optional: bool = False,
        **config: Any,
    ) -> None:
        called = name or self.default_name
        for what, names in (("reads", reads), ("gives", gives)):
            if isinstance(names, str) or not names:
                raise TemplateError(f"Loop: {what} must be a list of names, such as ['better']")
        if not callable(until):
            raise TemplateError("Loop: until must be a function that returns true or false")
        needed = (*gives, *reads, *carry.values())
        self.body = PartTemplate(called, body, (), needed, carried=carry)
        for name_ in carry:
            if name_ not in self.body.needs and name_ not in self.body.may_use:
                raise TemplateError(
                    f"component {called!r} carries {name_!r}, which nothing in its body reads"
                )
        self.needs = self.body.needs  # type: ignore[misc]
        self.may_use = self.body.may_use  # type: ignore[misc]
        self.gives = {port: self.body.kinds[port] for port in gives}  # type: ignore[misc]
        self.effect = self.body.effect  # type: ignore[misc]
        self.bodies = (self.body,)
        super().__init__(name, outputs=outputs, optional=optional, **config)
        self.carry, self.until, self.reads = dict(carry), until, tuple(reads)
        self.expect = expect

    def decompose(self, block: Block) -> None:
        feeds = {port: block.may_read(port) for port in (*self.required, *self.extra)}
        inputs: dict[str, Value] = {port: feed.ref for port, feed in feeds.items() if feed}
        grower = LoopGrower(
            self.body.builder(block),
            tuple(self.carry.items()),
            self.until,
            self.reads,
            tuple(self.outputs),
            block.config.at_most,
            self.expect,
            self.effect,
        )
        params = GrowParams(grower, optional=tuple(self.extra))
        grow = block.add("grow", Op.GROW, inputs, tuple(self.outputs), params)
        for port in self.outputs:
            many = self.gives[port] in (Kind.TEXTS, Kind.HITS)
            block.give(port, Ref(grow, port), 1 if many else None, open=many)


@dataclass(frozen=True)
class LoopGrower:
    """How a Loop grows; see there."""

    body: Builder
    carry: tuple[tuple[str, str], ...]
    until: Callable[..., Any]
    reads: tuple[str, ...]
    gives: tuple[str, ...]
    at_most: int
    expect: int
    effect: bool
    at_once: int = 1
    gathers: bool = False

    @cached_property
    def bodies(self) -> Mapping[str, Builder]:
        return {TURN: self.body}

    @cached_property
    def repeated(self) -> Repeated:
        return Repeated(TURN, ONE, min(self.expect, self.at_most), at_most=self.at_most)

    def growth(self, inputs: Mapping[str, Any]) -> Turning:
        return Turning(self, inputs)

    def planned(self, inputs: Mapping[str, Any]) -> Turning:
        return Turning(self, inputs, min(self.expect, self.at_most))


@dataclass
class Turning:
    """One run of a Loop. turns: how many there are, if that is not for `until` to say."""

    loop: LoopGrower
    inputs: Mapping[str, Any]
    turns: int | None = None
    turn: int = 0
    last: Mapping[str, Any] = field(default_factory=dict)
    _good: bool = False

    def begin(self) -> Sequence[Grow]:
        return (self._next({}),)

    def told(self, key: str, port: str, item: Any) -> Sequence[Grow]:
        return ()

    def ended(self, key: str, outputs: Mapping[str, Any]) -> Sequence[Grow]:
        loop = self.loop
        self.last = outputs
        self._good = self._enough(outputs)
        if self._good or self.turn >= loop.at_most:
            return ()
        return (self._next({name: outputs[output] for name, output in loop.carry}),)

    def stopped(self, key: str) -> Sequence[Grow]:
        """Its query's budget is spent: what the last whole turn gave stands."""
        self._good = True
        return ()

    def failed(self, key: str, error: Exception) -> Sequence[Grow]:
        raise error

    def result(self) -> Mapping[str, Any]:
        return {name: self.last.get(name) for name in self.loop.gives}

    def remarks(self) -> Remarks:
        """Whether it ended because it had to."""
        if self.turns is not None or self._good:
            return Remarks()
        most = self.loop.at_most
        return Remarks((f"`until` was not reached in {most} turns (at_most={most})",))

    def _next(self, carried: Mapping[str, Any]) -> Grow:
        self.turn += 1
        inputs = {**self.inputs, **carried}
        present = {name: value for name, value in inputs.items() if value is not None}
        return Grow(TURN, f"{TURN}/{self.turn}", present, answers=self.turn == self.loop.at_most)

    def _enough(self, outputs: Mapping[str, Any]) -> bool:
        if self.turns is not None:
            return self.turn >= self.turns
        try:
            return bool(self.loop.until(*(outputs[name] for name in self.loop.reads)))
        except Exception as error:  # the developer's own code: whatever it raises fails the query
            message = f"its `until` raised {type(error).__name__}: {error}"
            raise EngineError(message) from error
