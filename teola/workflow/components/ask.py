"""Ask: a person answers, and the query waits as long as that takes.

what the question reads ─▶ ask ─▶ answer
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any, Final

from pydantic import Field

from teola.engine import Hit
from teola.errors import EngineError, TemplateError
from teola.graph import Op, Ref, Value, WaitParams, Wording
from teola.graph.inquiry import WAIT_S
from teola.workflow.block import Block
from teola.workflow.component import Component, Config
from teola.workflow.kinds import Kind

TEXT: Final[Mapping[str, Any]] = {"type": "string"}


class AskConfig(Config):
    """wait_s: how long people have; then the component fails."""

    wait_s: float = Field(WAIT_S, gt=0)


class Ask(Component):
    """Asks a person `question`, whose `{names}` are read from upstream, and gives the answer.

    schema: JSON schema that the answer has to fit; by default it is a text. gives: what the answer
    is called. While nothing else can run, the query holds no engine and its deadline stands still
    (docs/people-in-the-loop.md).

        Ask("May this be sent?\\n\\n{draft}", schema={"enum": ["yes", "no"]}, gives="verdict")
    """

    default_name = "ask"
    config_type = AskConfig

    def __init__(
        self,
        question: str,
        *,
        schema: Mapping[str, Any] | None = None,
        gives: str = "answer",
        name: str | None = None,
        inputs: Mapping[str, str] | None = None,
        outputs: Mapping[str, str] | None = None,
        optional: bool = False,
        **config: Any,
    ) -> None:
        if not isinstance(question, str) or not question.strip():
            raise TemplateError("Ask: the question must be a text that is not empty")
        self.question, self.schema = question, dict(TEXT if schema is None else schema)
        self._words = wording(question, self.schema)
        self.needs = dict.fromkeys(_names(question), Kind.ANY)  # type: ignore[misc]
        kind = Kind.TEXT if self.schema.get("type") == "string" else Kind.ANY
        self.gives = {gives: kind}  # type: ignore[misc]
        super().__init__(name, inputs=inputs, outputs=outputs, optional=optional, **config)

    def decompose(self, block: Block) -> None:
        inputs: dict[str, Value] = {port: block.read(port).ref for port in self.required}
        params = WaitParams(self._words, wait_s=block.config.wait_s)
        (port,) = self.gives
        ask = block.add("ask", Op.WAIT, inputs, (port,), params)
        block.give(port, Ref(ask, port))


def _names(question: str) -> list[str]:
    try:
        names = [name for _, name, _, _ in Formatter().parse(question) if name is not None]
    except ValueError as error:
        raise TemplateError(
            f"Ask: the question cannot be read: {error}; write a brace that is meant as {{{{"
        ) from None
    for name in names:
        if not name.isidentifier():
            raise TemplateError(
                f"Ask: {{{name}}} in the question is no name; write a brace that is meant as {{{{"
            )
    return list(dict.fromkeys(names))


def wording(question: str, schema: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Wording]:
    """What is asked where the inputs are known."""

    def words(inputs: Mapping[str, Any]) -> Wording:
        shown = {name: _shown(name, value) for name, value in inputs.items()}
        return Wording(question.format_map(shown), schema)

    return words


def _text(value: Any) -> str:
    if isinstance(value, Hit):
        return value.text
    raise TypeError


def _shown(name: str, value: Any) -> str:
    """A value as people read it: a text as it is, anything else as JSON. Raises EngineError."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, indent=2, default=_text)
    except (TypeError, ValueError):
        raise EngineError(
            f"{name!r} is no text and no JSON value but {type(value).__name__}, which cannot be "
            "shown to people: let a component make a text of it"
        ) from None
