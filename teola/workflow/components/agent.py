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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, Literal

from pydantic import Field

from teola.engine import AskedBy
from teola.errors import TemplateError
from teola.graph import (
    DecodeParams,
    GrowParams,
    Op,
    Part,
    PrefillParams,
    Prompt,
    Ref,
    Role,
    ToolParams,
    Value,
)
from teola.tools.base import Tool
from teola.tools.context import ToolContext
from teola.tools.decision import PlannedCall
from teola.tools.tool_result import ToolResult
from teola.tools.toolbox import Toolbox
from teola.workflow.block import Block
from teola.workflow.component import Component, Config
from teola.workflow.components.acting import CALL, LAST, PARTS, PURE, TURN, AgentGrower
from teola.workflow.components.history import opening_parts
from teola.workflow.kinds import Kind
from teola.workflow.part_template import PartTemplate

INSTRUCTION: Final = (
    "You answer questions with the help of tools. Call the tools that you need; when you know "
    "enough, answer briefly and exactly, from what the tools said."
)
OWN: Final = ("transcript", "call", "earlier")
"""What a part is given of its own."""
MOST_CALLS: Final = 16
MOST_CONFIGS: Final = 64
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
    plans. at_once: calls side by side. tool_choice: whether it may call tools, has to in its first
    turn, or may not. max_tokens: of a turn. results_tokens: of all calls and results that a turn
    reads; the oldest are left out first."""

    mode: Literal["react", "parallel", "plan"] = "plan"
    instruction: str = INSTRUCTION
    at_most: int = Field(8, ge=1)
    at_once: int = Field(16, ge=1)
    streamed: bool = True
    tool_choice: Literal["auto", "required", "none"] = "auto"
    max_tokens: int = Field(1024, ge=1)
    temperature: float = Field(0.0, ge=0.0, le=2.0)
    seed: int | None = None
    results_tokens: int = Field(16_000, ge=1)


class Agent(Component):
    """`answer` to `question`, and the `steps` that led there: each a call with its result.

    tools: functions, `tool(...)`s, and other Tools, in the order in which the model is told them.
    answer_schema: JSON schema of the answer, which is then a JSON value; else it is a text, which
    streams. `history` goes before the question; `context` is what tools may know of the run
    (`ToolContext.values`). expect: turns with calls, and calls in each, that simulations assume.
    """

    default_name = "agent"
    default_engine = "llm"
    needs = {"question": Kind.TEXT}
    may_use = {"history": Kind.TEXT, "instructions": Kind.TEXT, "context": Kind.ANY}
    config_type = AgentConfig

    def __init__(
        self,
        tools: Sequence[Tool | Callable[..., Any]],
        *,
        answer_schema: Mapping[str, Any] | None = None,
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
        self.toolbox, self.answer_schema, self.expect = Toolbox(tools), answer_schema, expect
        kind = Kind.ANY if answer_schema else Kind.TEXT
        self.gives = {"answer": kind, "steps": Kind.ANY}  # type: ignore[misc]
        super().__init__(
            name, engine=engine, inputs=inputs, outputs=outputs, optional=optional, **config
        )
        self.effect = not all(one.pure for one in self.toolbox)  # type: ignore[misc]
        self._made: dict[Config, tuple[PartTemplate, ...]] = {}
        self.bodies = self._bodies(self.config)

    def _bodies(self, config: Config) -> tuple[PartTemplate, ...]:
        """Templates of its parts, in the order of PARTS."""
        found = self._made.get(config)
        if found is None:
            assert isinstance(config, AgentConfig)
            if len(self._made) >= MOST_CONFIGS:
                self._made.clear()
            called, schema = self.name, self.answer_schema
            parts: tuple[Component, ...] = (
                AgentTurn(f"{called}-{TURN}", self.toolbox, config, schema, self.engine),
                AgentTurn(f"{called}-{LAST}", None, config, schema, self.engine),
                Calling(f"{called}-{CALL}", self.toolbox, pure=False),
                Calling(f"{called}-{PURE}", self.toolbox, pure=True),
            )
            found = self._made[config] = tuple(
                PartTemplate(called, one, OWN, tuple(one.outputs)) for one in parts
            )
        return found

    def decompose(self, block: Block) -> None:
        config: AgentConfig = block.config
        feeds = {port: block.may_read(port) for port in (*self.required, *self.extra)}
        inputs: dict[str, Value] = {port: feed.ref for port, feed in feeds.items() if feed}
        builders = [body.builder(block) for body in self._bodies(config)]
        grower = AgentGrower(
            tuple(zip(PARTS, builders, strict=True)),
            self.toolbox,
            config,
            self.expect,
            self.effect,
        )
        params = GrowParams(grower, optional=tuple(self.extra))
        grow = block.add("grow", Op.GROW, inputs, ("answer", "steps"), params)
        block.give("answer", Ref(grow, "answer"))
        block.give("steps", Ref(grow, "steps"))


# --- its parts ----------------------------------------------------------------------------------


class TurnConfig(Config):
    """Nothing: what an agent is told holds for its turns."""

    history_first: bool = False


class AgentTurn(Component):
    """One call of the model: its `decision`, and the `calls` in it. toolbox: None where it has to
    answer."""

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
    ) -> None:
        super().__init__(name, engine=engine)
        self._config = config
        calls = toolbox if config.tool_choice != "none" else None
        self._schema = json.dumps(reply_schema(calls, config, answer_schema))
        self._instruction = told(calls, config, answer_schema)
        self._typed = answer_schema is not None

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
            ),
        )
        block.give("decision", Ref(decode, "value"))
        block.give("calls", Ref(decode, "items"))


class Calling(Component):
    """Makes one call of a tool. pure: all that it is given are of tools that change nothing."""

    default_engine = "python"
    needs = {"call": Kind.ANY, "earlier": Kind.ANY}
    may_use = {"context": Kind.ANY}
    gives = {"result": Kind.ANY}

    def __init__(self, name: str, toolbox: Toolbox, *, pure: bool) -> None:
        super().__init__(name)
        self.effect = not pure  # type: ignore[misc]
        self._pure = pure

        async def make(
            asked: AskedBy,
            call: PlannedCall,
            earlier: Mapping[int, ToolResult],
            context: Any = None,
        ) -> dict[str, Any]:
            values = context if isinstance(context, Mapping) else {}
            about = ToolContext(asked.query_id, asked.tenant, asked.key, values)
            return asdict(await toolbox.run(call, earlier, about))

        self._make = make

    def decompose(self, block: Block) -> None:
        inputs: dict[str, Value] = {port: block.read(port).ref for port in self.required}
        if (context := block.may_read("context")) is not None:
            inputs["context"] = context.ref
        params = ToolParams(
            self._make, ("result",), optional=("context",), pure=self._pure, retries=0, asks=True
        )
        call = block.add("call", Op.TOOL_CALL, inputs, ("result",), params)
        block.give("result", Ref(call, "result"))


def reply_schema(
    toolbox: Toolbox | None, config: AgentConfig, answer_schema: Mapping[str, Any] | None
) -> dict[str, Any]:
    """JSON schema of what a turn may reply: calls (with tools), or an answer."""
    typed: dict[str, Any] = dict(answer_schema or {"type": "string"})
    definitions: dict[str, Any] = typed.pop("$defs", {})
    answer: dict[str, Any] = {
        "type": "object",
        "properties": {"answer": typed},
        "required": ["answer"],
        "additionalProperties": False,
    }
    if toolbox is None:
        return {**answer, **({"$defs": definitions} if definitions else {})}
    most = 1 if config.mode == "react" else MOST_CALLS
    decision = toolbox.decision(most=most, least=1, references=config.mode == "plan")
    definitions = {**definitions, **decision.pop("$defs", {})}
    return {"anyOf": [decision, answer], **({"$defs": definitions} if definitions else {})}


def told(
    toolbox: Toolbox | None, config: AgentConfig, answer_schema: Mapping[str, Any] | None
) -> str:
    """What the model is told before the question."""
    shape = json.dumps(answer_schema) if answer_schema is not None else '"..."'
    answer = f'{{"answer": {shape}}}'
    if toolbox is None:
        return f"{config.instruction}\n\nReply with one JSON object: {answer}.\n\n"
    call = '{"thought": "why", "calls": [{"tool": "name", "args": {...}}]}'
    return (
        f"{config.instruction}\n\nTools, each with the JSON schema of its arguments:\n"
        f"{toolbox.text}\n\nReply with one JSON object: {call} to call tools, or {answer} to "
        f"answer. {MODES[config.mode]}\n\n"
    )
