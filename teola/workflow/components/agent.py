"""Agent: a model that calls tools until it can answer.

turn 1 ─▶ calls ─▶ turn 2 ─▶ calls ─▶ ... ─▶ answer      each turn and each call is a part

react      one call a turn
parallel   the calls of a turn at once, when it has been written
plan       a turn is a plan, whose calls may refer to each other's results ("$1"); each begins when
           it is written and what it refers to is there, while the rest of the plan is still being
           written (`streamed=False`: when all of it is)

After the calls of a turn the model sees their results and answers, or goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema

from teola.errors import InputError, TemplateError
from teola.graph import (
    GrowParams,
    Op,
    Ref,
    Value,
)
from teola.tools.base import Tool
from teola.tools.context import ToolContext
from teola.tools.json_schema import embedded
from teola.workflow.block import Block
from teola.workflow.component import Component, Config
from teola.workflow.components.acting import OVER, PARTS, PURE
from teola.workflow.components.agent_calls import Approving, Calling, Offering
from teola.workflow.components.agent_grower import AgentGrower
from teola.workflow.components.agent_parts import AgentParts, PartsMaker
from teola.workflow.components.agent_tools import AgentTools, AgentToolSource, Box
from teola.workflow.components.agent_turn import AgentConfig, AgentTurn
from teola.workflow.kinds import Kind
from teola.workflow.part_template import PartTemplate

GIVES: Final = ("answer", "steps", "tool_calls", "exchange")
WHY: Final = {
    "type": "object",
    "properties": {"why": {"type": "string", "description": "What it should know or do."}},
    "additionalProperties": False,
}


class Agent(Component):
    """`answer` to `question`, and the `steps` that led there: each a call with its result.

    tools: functions, `tool(...)`s and other Tools, servers of tools (`mcp_tools(...)`), names of
    tools or servers that are known where it runs, and other agents, in the order in which the model
    is told them. What it hands over to another agent, that one answers; it is told what was said
    and found before. description: of this one, for agents that may hand over to it.
    answer_schema: JSON schema of the answer, or a pydantic model, whose schema it is then; the
    answer is a JSON value. Without one it is a text, which streams. `history` goes before the
    question; `context` is what tools may know of the run (`ToolContext.values`); `client_tools` are
    tools that whoever asks calls itself: the calls are then in `tool_calls`, and in `exchange` what
    was done beside them: filled in with what they gave, it is the `exchange` of the `client_tools`
    with which the question is asked again, so that nothing is done twice. shows_steps: to
    whoever follows the query, with arguments and results. expect: turns with calls, and calls in
    each, that simulations assume.
    """

    default_name = "agent"
    default_engine = "llm"
    needs = {"question": Kind.TEXT}
    may_use = {
        "history": Kind.TEXT,
        "instructions": Kind.TEXT,
        "context": Kind.ANY,
        "client_tools": Kind.ANY,
    }
    config_type = AgentConfig

    def __init__(
        self,
        tools: Sequence[AgentToolSource | Agent],
        *,
        description: str = "",
        answer_schema: Mapping[str, Any] | type[BaseModel] | None = None,
        shows_steps: bool = True,
        expect: tuple[int, int] = (1, 3),
        name: str | None = None,
        engine: str | None = None,
        inputs: Mapping[str, str] | None = None,
        outputs: Mapping[str, str] | None = None,
        optional: bool = False,
        **config: Any,
    ) -> None:
        if not tools:
            raise TemplateError("Agent: it needs at least one tool; without any, take Generate")
        self.description, self.shows_steps = description, shows_steps
        schema = schema_of(answer_schema, self.default_name if name is None else name)
        self.answer_schema, self.expect = schema, expect
        self.colleagues = {source.name: source for source in tools if isinstance(source, Agent)}
        sources = [colleague(source) if isinstance(source, Agent) else source for source in tools]
        self.tools = AgentTools(sources)
        self.toolbox = self.tools.own
        kind = Kind.ANY if schema else Kind.TEXT
        self.gives = {"answer": kind, **dict.fromkeys(GIVES[1:], Kind.ANY)}  # type: ignore[misc]
        super().__init__(
            name, engine=engine, inputs=inputs, outputs=outputs, optional=optional, **config
        )
        for other in self.colleagues.values():
            check_colleague(self.name, other, schema)
        self.effect = self.tools.effect  # type: ignore[misc]
        self.parts = AgentParts(self.name, self.tools, self._part)
        self._over = tuple(
            PartTemplate(self.name, agent, ("history",), GIVES)
            for agent in self.colleagues.values()
        )
        self.bodies = self._bodies(self.config)

    def configure(self, values: Mapping[str, Any], base: Config | None = None) -> Config:
        """See Component; also refuses a tool that it has not."""
        config = super().configure(values, base)
        assert isinstance(config, AgentConfig)
        choice = config.tool_choice
        if choice not in ("auto", "required", "none") and not self.tools.asks:
            _ = self.toolbox[choice]
        return config

    def _part(self, what: str, box: Box, must: tuple[str, ...], config: Config) -> Component:
        assert isinstance(config, AgentConfig)
        name, schema = f"{self.name}-{what}", self.answer_schema
        match what:
            case "turn":
                return AgentTurn(name, box.toolbox, config, schema, self.engine, must)
            case "last":
                return AgentTurn(name, None, config, schema, self.engine)
            case "approve":
                return Approving(name, box.toolbox)
            case "offer":
                return Offering(name, self.tools)
        return Calling(name, self.tools, pure=what == PURE)

    def _bodies(self, config: Config) -> tuple[PartTemplate, ...]:
        """Templates of its parts, in the order of PARTS and of the agents that it hands over to."""
        return (*(self.parts.template(what, config) for what in PARTS), *self._over)

    def decompose(self, block: Block) -> None:
        config: AgentConfig = block.config
        feeds = {port: block.may_read(port) for port in (*self.required, *self.extra)}
        inputs: dict[str, Value] = {port: feed.ref for port, feed in feeds.items() if feed}
        builders = [body.builder(block) for body in self._bodies(config)]
        names = (*PARTS, *(f"{OVER}-{name}" for name in self.colleagues))
        lists = tuple((port, feed.items is not None) for port, feed in feeds.items() if feed)
        grower = AgentGrower(
            tuple(zip(names, builders, strict=True)),
            self.toolbox,
            config,
            self.expect,
            self.effect,
            PartsMaker(self.parts, config, lists, tuple(self.colleagues)),
            self.engine,
            self.shows_steps,
        )
        params = GrowParams(grower, optional=tuple(self.extra))
        grow = block.add("grow", Op.GROW, inputs, GIVES, params)
        for port in GIVES:
            block.give(port, Ref(grow, port))


def schema_of(
    given: Mapping[str, Any] | type[BaseModel] | None, called: str
) -> Mapping[str, Any] | None:
    """The JSON schema of an answer. Raises TemplateError."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        try:
            embedded(given, "answer")
        except LookupError as missing:
            raise TemplateError(
                f"agent {called!r}: answer_schema refers to {missing}, which is not in it"
            ) from None
        return given
    if not (isinstance(given, type) and issubclass(given, BaseModel)):
        raise TemplateError(
            f"agent {called!r}: answer_schema is a JSON schema or a pydantic model, not {given!r}"
        )
    try:
        return given.model_json_schema()
    except PydanticInvalidForJsonSchema as error:
        message = f"agent {called!r}: {given.__name__} has no JSON schema: {error.message}"
        raise TemplateError(message) from None


def colleague(other: Agent) -> Tool:
    """Another agent, as the model is told of it."""
    if not other.description.strip():
        raise TemplateError(
            f"agent {other.name!r} needs a description, by which a model hands over to it: "
            "Agent(..., description=...)"
        )
    about = f"Hands over to another agent, which answers in your place. {other.description}"
    return Tool(other.name, about, WHY, not_called, pure=not other.effect)


def check_colleague(called: str, other: Agent, answer_schema: Mapping[str, Any] | None) -> None:
    """Raise TemplateError unless an agent called so can hand over to the other one."""
    if other.name == called:
        raise TemplateError(
            f"two agents are called {called!r}, one of which hands over to the other; give it a "
            "name of its own: Agent(..., name=...)"
        )
    if any(port != name for port, name in (*other.required.items(), *other.outputs.items())):
        raise TemplateError(
            f"agent {other.name!r} is handed over to, and cannot have other names for its inputs "
            "and outputs"
        )
    if other.answer_schema != answer_schema:
        raise TemplateError(
            f"agent {called!r} hands over to {other.name!r}, whose answers have another schema; "
            "give both the same answer_schema"
        )


async def not_called(arguments: Mapping[str, Any], context: ToolContext) -> Any:
    """Of a tool that stands for another agent."""
    raise InputError("what it stands for takes over instead")
