"""Slips in the class of a component are told where it is declared, or where its graph is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from teola import App, Component, component
from teola.errors import TemplateError
from teola.graph import Op, Ref, ToolParams
from teola.workflow.block import Block
from teola.workflow.component import Config
from teola.workflow.kinds import Kind

TEXT = {"a": Kind.TEXT}


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({"need": TEXT}, "it declares 'need'; did you mean 'needs'?"),
        ({"mayuse": TEXT}, "it declares 'mayuse'; did you mean 'may_use'?"),
        ({"give": TEXT}, "it declares 'give'; did you mean 'gives'?"),
        ({"effects": True}, "it declares 'effects'; did you mean 'effect'?"),
        ({"config_typ": Config}, "it declares 'config_typ'; did you mean 'config_type'?"),
        ({"decompos": lambda self, block: None}, "'decompos'; did you mean 'decompose'?"),
        ({"engine": "llm"}, "'engine' says nothing on a class; declare 'default_engine'"),
        ({"name": "mine"}, "'name' says nothing on a class; declare 'default_name'"),
        ({"needs": ["a"]}, "needs must map names to kinds, such as"),
        ({"needs": {1: Kind.TEXT}}, "needs must map names to kinds, but 1 is no name"),
        ({"needs": {"a": "text"}}, r"needs\['a'\] must be a Kind .*, not 'text'; write Kind.TEXT$"),
        ({"gives": {"a": str}}, r"gives\['a'\] must be a Kind .*, not <class 'str'>$"),
        ({"effect": "yes"}, "effect must be True or False, not 'yes'"),
        ({"default_engine": None}, "default_engine must be a text, not None"),
        ({"config_type": BaseModel}, "config_type must be a class that inherits from teola"),
    ],
)
def test_a_slip_in_a_class_is_told_when_it_is_declared(declared: dict[str, Any], told: str) -> None:
    with pytest.raises(TemplateError, match=f"^component class Mine: .*{told}"):
        type("Mine", (Component,), declared)


def test_what_only_resembles_a_declaration_is_the_authors_own() -> None:
    own = {"given": 1, "needed": 2, "_need": 3, "give": lambda self: 4, "needs": property(len)}
    assert type("Mine", (Component,), own).given == 1  # type: ignore[attr-defined]


Decompose = Callable[[Component, Block], None]


def call(block: Block, feed: Any) -> Ref:
    return Ref(
        block.add("x", Op.TOOL_CALL, {"a": feed.ref}, ("out",), ToolParams(lambda a: a)), "out"
    )


def gives_nothing(self: Component, block: Block) -> None:
    call(block, block.read("a"))


def gives_another(self: Component, block: Block) -> None:
    block.give("bb", call(block, block.read("a")))


def reads_another(self: Component, block: Block) -> None:
    block.give("b", call(block, block.read("aa")))


def may_read_another(self: Component, block: Block) -> None:
    block.give("b", call(block, block.may_read("mor") or block.read("a")))


def reads_what_may_be_absent(self: Component, block: Block) -> None:
    block.give("b", call(block, block.read("more")))


@pytest.mark.parametrize(
    ("decompose", "told"),
    [
        (
            gives_nothing,
            r"it declares the output 'b' in `gives`, but its `decompose` never calls "
            r"block.give\('b', ...\)$",
        ),
        (gives_another, r"gives 'bb', .* in `gives`; did you mean 'b'\? \(declared: b\)$"),
        (reads_another, r"reads 'aa', .* in `needs` or `may_use`; did you mean 'a'\?"),
        (may_read_another, r"reads 'mor', .*; did you mean 'more'\? \(declared: a, more\)$"),
        (reads_what_may_be_absent, r"reads 'more', which may be absent: use block.may_read\('more"),
    ],
)
@pytest.mark.parametrize("behind", [False, True])
def test_a_slip_in_decompose_is_told_when_the_app_is_declared(
    decompose: Decompose, told: str, behind: bool
) -> None:
    declared = {"needs": TEXT, "may_use": {"more": Kind.TEXT}, "gives": {"b": Kind.TEXT}}
    made = type("Mine", (Component,), {**declared, "decompose": decompose})
    mine: Any = made("mine", engine="python")
    template = component(lambda q: q, name="first", outputs="a") >> mine if behind else mine
    with pytest.raises(TemplateError, match=rf"^component 'mine' \(Mine\): .*{told}"):
        App("x", template, inputs={"q" if behind else "a": "text"}, outputs={"b": "b"})


def test_a_class_without_decompose_is_told_so() -> None:
    made: Any = type("Mine", (Component,), {"gives": {"b": Kind.TEXT}})
    with pytest.raises(TemplateError, match=r"Mine has no method `decompose\(self, block\)`"):
        App("x", made("mine"), inputs={"a": "text"}, outputs={"b": "b"})
