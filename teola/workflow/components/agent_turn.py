"""AgentTurn: one call of an agent's model, what it is told, and in which form it replies.

with tools     {"calls": [...]}, or {"answer": ...}
without        {"answer": ...}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal, Self

from pydantic import Field, NonNegativeFloat, model_validator

from teola.graph import (
    DecodeParams,
    OfferedTools,
    Op,
    Part,
    PrefillParams,
    Prompt,
    Ref,
    Role,
)
from teola.tools.json_schema import embedded
from teola.tools.toolbox import Toolbox
from teola.workflow.block import Block
from teola.workflow.component import Component, Config
from teola.workflow.components.history import opening_parts
from teola.workflow.components.room import Bound
from teola.workflow.kinds import Kind

INSTRUCTION: Final = (
    "You answer questions with the help of tools. Call the tools that you need; when you know "
    "enough, answer briefly and exactly, from what the tools said."
)
MOST_CALLS: Final = 16
MODES: Final = {
    "react": "Make one call at a time.",
    "parallel": "Make all calls that do not depend on each other at once.",
    "plan": (
        "Plan all calls that you need at once. Calls are numbered from 1 on, in order. An argument "
        'of a later call that is "$1", or "$1.name" for a field, stands for the result of call 1; '
        'within a longer text, "${1}" does. To send the text $1 itself, write "$$1".'
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
    """JSON schema of an answer in a reply. No tool can have the names of its definitions."""
    typed, definitions = embedded(answer_schema or {"type": "string"}, ".answer")
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
