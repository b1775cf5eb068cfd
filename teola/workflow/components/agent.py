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

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, Field, NonNegativeFloat, model_validator
from pydantic.errors import PydanticInvalidForJsonSchema

from teola.errors import InputError, TemplateError
from teola.graph import (
    DecodeParams,
    GrowParams,
    OfferedTools,
    Op,
    Part,
    PrefillParams,
    Prompt,
    Ref,
    Role,
    Value,
)
from teola.tools.base import Tool
from teola.tools.context import ToolContext
from teola.tools.toolbox import Toolbox
from teola.workflow.block import Block
from teola.workflow.component import Component, Config
from teola.workflow.components.acting import OVER, PARTS, PURE
from teola.workflow.components.agent_calls import Approving, Calling, Offering
from teola.workflow.components.agent_grower import AgentGrower
from teola.workflow.components.agent_parts import AgentParts, PartsMaker
from teola.workflow.components.agent_tools import AgentTools, Box, Source
from teola.workflow.components.history import opening_parts
from teola.workflow.components.room import Bound
from teola.workflow.kinds import Kind
from teola.workflow.part_template import PartTemplate

INSTRUCTION: Final = (
    "You answer questions with the help of tools. Call the tools that you need; when you know "
    "enough, answer briefly and exactly, from what the tools said."
)
GIVES: Final = ("answer", "steps", "tool_calls")
MOST_CALLS: Final = 16
WHY: Final = {
    "type": "object",
    "properties": {"why": {"type": "string", "description": "What it should know or do."}},
    "additionalProperties": False,
}
MODES: Final = {
    "react": "Make one call at a time.",
    "parallel": "Make all calls that do not depend on each other at once.",
    "plan": (
        'Plan all calls that you need at once. Calls are numbered from 1 on, in order; "$1" in '
        "the arguments of a later one stands for the result of call 1."
    ),
}


class AgentConfig(Config):
    """mode: see the module. at_most: turns; in the last one the model has to answer. streamed: of
    plans. at_once: calls side by side. thought: whether the model writes why it calls, before it
    does. tool_choice: `auto`: it may call tools; `required`, or a tool's name: it has to call one,
    or that one, before anything else; `none`: it may not. max_tokens: of a turn. results_tokens: of
    all calls and results that a turn reads, the oldest of which are left out first. history_tokens:
    of the conversation, its end. most_tokens, most_cost: that a run may take, prompts included;
    what is left for the last answer is kept for it. prices: of a million tokens of prompts, and of
    answers, in the currency of most_cost."""

    mode: Literal["react", "parallel", "plan"] = "plan"
    instruction: str = INSTRUCTION
    at_most: int = Field(8, ge=1)
    at_once: int = Field(16, ge=1)
    streamed: bool = True
    thought: bool = True
    tool_choice: str = "auto"
    max_tokens: int = Field(1024, ge=1)
    temperature: float = Field(0.0, ge=0.0, le=2.0)
    seed: int | None = None
    results_tokens: int = Field(16_000, ge=1)
    history_tokens: int = Field(8_000, ge=1)
    most_tokens: int | None = Field(None, ge=1)
    most_cost: float | None = Field(None, gt=0)
    prices: tuple[NonNegativeFloat, NonNegativeFloat] = (0.0, 0.0)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.tool_choice not in ("auto", "none") and self.at_most < 2:
            raise ValueError("a call and an answer take two turns: at_most must be 2 or more")
        if self.most_cost is not None and not any(self.prices):
            raise ValueError("most_cost needs prices=(of prompts, of answers)")
        return self

    @property
    def bound(self) -> Bound:
        """What a run may take."""
        return Bound(self.most_tokens, self.most_cost, self.prices)


class Agent(Component):
    """`answer` to `question`, and the `steps` that led there: each a call with its result.

    tools: functions, `tool(...)`s and other Tools, servers of tools (`mcp_tools(...)`), names of
    tools or servers that are known where it runs, and other agents, in the order in which the model
    is told them. What it hands over to another agent, that one answers; it is told what was said
    and found before. description: of this one, for agents that may hand over to it.
    answer_schema: JSON schema of the answer, or a pydantic model, whose schema it is then; the
    answer is a JSON value. Without one it is a text, which streams. `history` goes before the
    question; `context` is what tools may know of the run (`ToolContext.values`); `client_tools` are
    tools that whoever asks calls itself: the calls are then in `tool_calls`. shows_steps: to
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
        tools: Sequence[Source | Agent],
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
        self.colleagues = {one.name: one for one in tools if isinstance(one, Agent)}
        given = [colleague(one) if isinstance(one, Agent) else one for one in tools]
        self.tools = AgentTools(given)
        self.toolbox = self.tools.own
        kind = Kind.ANY if schema else Kind.TEXT
        self.gives = {"answer": kind, "steps": Kind.ANY, "tool_calls": Kind.ANY}  # type: ignore[misc]
        super().__init__(
            name, engine=engine, inputs=inputs, outputs=outputs, optional=optional, **config
        )
        for other in self.colleagues.values():
            check_colleague(self.name, other, schema)
        self.effect = self.tools.effect  # type: ignore[misc]
        self.parts = AgentParts(self.name, self.tools, self._part)
        self._over = tuple(
            PartTemplate(self.name, one, ("history",), GIVES) for one in self.colleagues.values()
        )
        self.bodies = self._bodies(self.config)

    def configure(self, values: Mapping[str, Any], base: Config | None = None) -> Config:
        """See Component; also refuses a tool that it has not."""
        found = super().configure(values, base)
        assert isinstance(found, AgentConfig)
        choice = found.tool_choice
        if choice not in ("auto", "required", "none") and not self.tools.asks:
            _ = self.toolbox[choice]
        return found

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
    if given is None or isinstance(given, Mapping):
        return given
    if not (isinstance(given, type) and issubclass(given, BaseModel)):
        raise TemplateError(
            f"agent {called!r}: answer_schema is a JSON schema or a pydantic model, not {given!r}"
        )
    try:
        return given.model_json_schema()
    except PydanticInvalidForJsonSchema as error:
        told = f"agent {called!r}: {given.__name__} has no JSON schema: {error.message}"
        raise TemplateError(told) from None


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


# --- its parts ----------------------------------------------------------------------------------


class TurnConfig(Config):
    """Nothing: what an agent is told holds for its turns."""

    history_first: bool = False


class AgentTurn(Component):
    """One call of the model: its `decision`, and the `calls` in it. toolbox: None where it has to
    answer. must: see reply_schema."""

    default_engine = "llm"
    needs = {"question": Kind.TEXT}
    may_use = {"history": Kind.TEXT, "instructions": Kind.TEXT, "transcript": Kind.TEXTS}
    gives = {"decision": Kind.ANY, "calls": Kind.ANY}
    config_type = TurnConfig

    def __init__(
        self,
        name: str,
        toolbox: Toolbox | None,
        config: AgentConfig,
        answer_schema: Mapping[str, Any] | None,
        engine: str,
        must: tuple[str, ...] = (),
    ) -> None:
        super().__init__(name, engine=engine)
        self._config = config
        calls = toolbox if config.tool_choice != "none" and toolbox else None
        self._schema = json.dumps(reply_schema(calls, config, answer_schema, must))
        self._check = json.dumps(reply_form(calls, answer_schema, must))
        self._instruction = told(calls, config, answer_schema)
        self._tools = offered(calls, config, answer_schema, must)
        self._typed, self._last = answer_schema is not None, toolbox is None

    def decompose(self, block: Block) -> None:
        config = self._config
        parts = [
            *opening_parts(block, self._instruction),
            Part(Role.INSTRUCTION, "Question: "),
            Part(Role.QUESTION, block.read("question").ref, required=True),
        ]
        if (transcript := block.may_read("transcript")) is not None:
            parts.append(Part(Role.CONTEXT, transcript.ref, separator="\n"))
        parts.append(Part(Role.INSTRUCTION, "\n\nReply: "))
        prompt = Prompt(tuple(parts))
        prefill = block.add(
            "prefill", Op.PREFILLING, {"prompt": prompt}, ("sequence",), PrefillParams()
        )
        decode = block.add(
            "decode",
            Op.DECODING,
            {"sequence": Ref(prefill, "sequence")},
            ("value", "items"),
            DecodeParams(
                max_tokens=config.max_tokens,
                temperature=config.temperature,
                seed=config.seed,
                parser="json_calls",
                schema=self._schema,
                field=None if self._typed else "answer",
                tools=self._tools,
                check=self._check,
                bare=self._last and not self._typed,
            ),
        )
        block.give("decision", Ref(decode, "value"))
        block.give("calls", Ref(decode, "items"))


def reply_schema(
    toolbox: Toolbox | None,
    config: AgentConfig,
    answer_schema: Mapping[str, Any] | None,
    must: tuple[str, ...] = (),
) -> dict[str, Any]:
    """JSON schema of what a turn may reply: calls (with tools), or an answer. must: tools of which
    it has to call some, and no others."""
    answer = answer_form(answer_schema)
    if toolbox is None:
        return answer
    definitions: dict[str, Any] = answer.pop("$defs", {})
    most = 1 if config.mode == "react" else MOST_CALLS
    called = Toolbox(toolbox[name] for name in must) if must else toolbox
    decision = called.decision(
        most=most, least=1, references=config.mode == "plan", thought=config.thought
    )
    if must:
        return decision
    definitions = {**definitions, **decision.pop("$defs", {})}
    return {"anyOf": [decision, answer], **({"$defs": definitions} if definitions else {})}


def reply_form(
    toolbox: Toolbox | None, answer_schema: Mapping[str, Any] | None, must: tuple[str, ...] = ()
) -> dict[str, Any]:
    """JSON schema of the form of a reply, by which it is refused as a whole. What is wrong with one
    call of a list, its model is told as that call's result."""
    if toolbox is None:
        return answer_form(answer_schema)
    call: dict[str, Any] = {"type": "object"}
    if must:
        call |= {"properties": {"tool": {"enum": list(must)}}, "required": ["tool"]}
    calls = {
        "type": "object",
        "properties": {
            "thought": {"type": "string"},
            "calls": {"type": "array", "items": call, "minItems": 1, "maxItems": MOST_CALLS},
        },
        "required": ["calls"],
        "additionalProperties": False,
    }
    if must:
        return calls
    answer = answer_form(answer_schema)
    definitions = answer.pop("$defs", {})
    return {"anyOf": [calls, answer], **({"$defs": definitions} if definitions else {})}


def answer_form(answer_schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """JSON schema of an answer in a reply."""
    typed: dict[str, Any] = dict(answer_schema or {"type": "string"})
    definitions: dict[str, Any] = typed.pop("$defs", {})
    return {
        "type": "object",
        "properties": {"answer": typed},
        "required": ["answer"],
        "additionalProperties": False,
        **({"$defs": definitions} if definitions else {}),
    }


def offered(
    toolbox: Toolbox | None,
    config: AgentConfig,
    answer_schema: Mapping[str, Any] | None,
    must: tuple[str, ...] = (),
) -> OfferedTools | None:
    """The tools, for servers that know tool calls; None where none may be called. must: see
    reply_schema."""
    if toolbox is None:
        return None
    typed, brief = answer_schema is not None, MODES[config.mode]
    if typed:
        brief += f" An answer is one JSON value that fits {json.dumps(answer_schema)}."
    called = Toolbox(toolbox[name] for name in must) if must else toolbox
    choice = must[0] if len(must) == 1 else "required" if must else "auto"
    return OfferedTools(
        json.dumps(called.functions(references=config.mode == "plan")),
        how_to_call(toolbox, config, answer_schema),
        brief,
        typed=typed,
        choice=choice,
        parallel=config.mode != "react",
    )


def told(
    toolbox: Toolbox | None, config: AgentConfig, answer_schema: Mapping[str, Any] | None
) -> str:
    """What the model is told before the question."""
    return f"{config.instruction}\n\n{how_to_call(toolbox, config, answer_schema)}\n\n"


def how_to_call(
    toolbox: Toolbox | None, config: AgentConfig, answer_schema: Mapping[str, Any] | None
) -> str:
    """What a model is told that writes its calls and answers as JSON."""
    shape = json.dumps(answer_schema) if answer_schema is not None else '"..."'
    answer = f'{{"answer": {shape}}}'
    if toolbox is None:
        return f"Reply with one JSON object: {answer}."
    why = '"thought": "why", ' if config.thought else ""
    call = f'{{{why}"calls": [{{"tool": "name", "args": {{...}}}}]}}'
    return (
        f"Tools, each with the JSON schema of its arguments:\n"
        f"{toolbox.text}\n\nReply with one JSON object: {call} to call tools, or {answer} to "
        f"answer. {MODES[config.mode]}"
    )
