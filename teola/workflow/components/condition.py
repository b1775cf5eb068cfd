"""Condition: choose a branch of the template at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from teola.errors import TemplateError
from teola.graph import ConditionParams, Guard, Op, Value
from teola.workflow.block import Block
from teola.workflow.component import Component, Config, Template
from teola.workflow.components.function import yields
from teola.workflow.kinds import Kind

THEN, OTHERWISE = "then", "otherwise"


class ConditionConfig(Config):
    """speculate: searches, embeddings, rerankings and SQL in the branches begin before the branch
    is known; what was not wanted is cancelled. Effects and LLM calls always wait."""

    speculate: bool = False


class Condition(Component):
    """Runs `then` if `test(*inputs)` is true, else `otherwise` (which may be left out).

    test: quick and pure, called with the values of `reads`, names in the template; if it is async,
    it is awaited, and may take its time. expect: which branch estimates assume. What comes after
    `>>` runs in either case; a name that both branches give comes from the one that ran.
    """

    default_name = "condition"
    config_type = ConditionConfig

    def __init__(
        self,
        test: Callable[..., Any],
        *,
        reads: Sequence[str],
        then: Component | Template,
        otherwise: Component | Template | None = None,
        expect: bool = True,
        name: str | None = None,
        **config: Any,
    ) -> None:
        if isinstance(reads, str) or not reads:
            raise TemplateError("Condition: reads must be a list of names, such as ['draft']")
        if not callable(test) or yields(test):
            raise TemplateError(
                "Condition: the test must be a function that returns true or false, or an async one"
            )
        self.needs = dict.fromkeys(reads, Kind.ANY)  # type: ignore[misc]
        super().__init__(name, **config)
        self.test, self.expect = test, expect
        self.branches = branches_of(then, otherwise)

    def decompose(self, block: Block) -> None:
        inputs: dict[str, Value] = {port: block.read(port).ref for port in self.required}
        params = ConditionParams(self.test, (THEN, OTHERWISE), THEN if self.expect else OTHERWISE)
        block.add("test", Op.CONDITION, inputs, ("branch",), params)

    def template(self) -> Template:
        return branching(self, self.branches)


def branching(condition: Component, branches: Mapping[str, Template]) -> Template:
    """`condition` and its branches, each behind a guard; what follows joins the branches' tails."""
    own = Template((condition,), (), (condition.name,), (condition.name,), {})
    tails: list[str] = []
    joined = own
    for branch, inner in branches.items():
        with_inner = own >> inner
        guards = {
            c.name: (Guard(condition.name, branch), *inner.guards.get(c.name, ()))
            for c in inner.components
        }
        joined = Template(
            (*joined.components, *inner.components),
            (*joined.edges, *with_inner.edges),
            own.heads,
            (),
            {**joined.guards, **guards},
        )
        tails += inner.tails
    if OTHERWISE not in branches:
        tails.append(condition.name)
    return Template(joined.components, joined.edges, own.heads, tuple(tails), joined.guards)


def branches_of(
    then: Component | Template, otherwise: Component | Template | None
) -> dict[str, Template]:
    """The branches by name, `otherwise` only if there is one."""
    branches = {THEN: Template.beside(then)}
    if otherwise is not None:
        branches[OTHERWISE] = Template.beside(otherwise)
    return branches
