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
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from pydantic import Field

from teola.engine import Asked
from teola.errors import EngineError, OutputError, TemplateError
from teola.graph import (
    DecodeParams,
    Grow,
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
from teola.tools import PlannedCall, Tool, Toolbox, ToolContext, ToolResult
from teola.workflow.block import Block
from teola.workflow.body import Body
from teola.workflow.build import Builder
from teola.workflow.component import Component, Config
from teola.workflow.components.history import opening_parts
from teola.workflow.kinds import Kind

INSTRUCTION: Final = (
    "You answer questions with the help of tools. Call the tools that you need; when you know "
    "enough, answer briefly and exactly, from what the tools said."
)
TURN, LAST, CALL, PURE = PARTS = "turn", "last", "call", "pure"
READ: Final = ("question", "history", "instructions")
"""What each turn reads of what the agent does."""
OWN: Final = ("transcript", "call", "earlier")
"""What a part is given of its own."""
NOTHING: Final = frozenset[str]()
CHARACTERS: Final = 4
"""Of a token, about."""
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
HEADER: Final = "\n\nCalls so far, and what they gave:"
AGAIN: Final = "Your last reply could not be read: {told}. Reply with one JSON object."
CALL_TOKENS: Final = 22
"""Of a call as a model writes it; for simulations."""


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
        self._made: dict[Config, tuple[Body, ...]] = {}
        self.bodies = self._bodies(self.config)

    def _bodies(self, config: Config) -> tuple[Body, ...]:
        """Templates of its parts, in the order of PARTS."""
        found = self._made.get(config)
        if found is None:
            assert isinstance(config, AgentConfig)
            if len(self._made) >= MOST_CONFIGS:
                self._made.clear()
            called, schema = self.name, self.answer_schema
            parts: tuple[Component, ...] = (
                Turn(f"{called}-{TURN}", self.toolbox, config, schema, self.engine),
                Turn(f"{called}-{LAST}", None, config, schema, self.engine),
                Calling(f"{called}-{CALL}", self.toolbox, pure=False),
                Calling(f"{called}-{PURE}", self.toolbox, pure=True),
            )
            found = self._made[config] = tuple(
                Body(called, one, OWN, tuple(one.outputs)) for one in parts
            )
        return found

    def decompose(self, block: Block) -> None:
        config: AgentConfig = block.config
        feeds = {port: block.may_read(port) for port in (*self.required, *self.extra)}
        inputs: dict[str, Value] = {port: feed.ref for port, feed in feeds.items() if feed}
        builders = [body.builder(block) for body in self._bodies(config)]
        grower = Acts(
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


class Turn(Component):
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
            asked: Asked, call: PlannedCall, earlier: Mapping[int, ToolResult], context: Any = None
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
    typed = dict(answer_schema) if answer_schema is not None else {"type": "string"}
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


# --- how it goes on ------------------------------------------------------------------------


@dataclass(frozen=True)
class Acts:
    """How an Agent grows; see there."""

    parts: tuple[tuple[str, Builder], ...]
    toolbox: Toolbox
    config: AgentConfig
    expect: tuple[int, int]
    effect: bool

    @property
    def bodies(self) -> Mapping[str, Builder]:
        return dict(self.parts)

    @property
    def at_once(self) -> int:
        return self.config.at_once + 1  # the turn that is being written, too

    def growth(self, inputs: Mapping[str, Any]) -> Acting:
        return Acting(self, inputs)

    def planned(self, inputs: Mapping[str, Any]) -> Acting:
        return Expected(self, inputs)


@dataclass
class Acting:
    """One run of an Agent. writing: a turn is being written. calls: by number, all that were read.
    ready, begun: of them. number: of the last one."""

    agent: Acts
    inputs: Mapping[str, Any]
    turn: int = 0
    writing: bool = False
    number: int = 0
    calls: dict[int, PlannedCall] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)
    results: dict[int, ToolResult] = field(default_factory=dict)
    entries: list[Any] = field(default_factory=list)
    shown: int = 0
    answer: Any = None
    again: str = ""

    @property
    def _streams(self) -> bool:
        config = self.agent.config
        return config.mode == "plan" and config.streamed

    def begin(self) -> Sequence[Grow]:
        return (self._turn(),)

    def told(self, key: str, port: str, item: Any) -> Sequence[Grow]:
        self._read(item)
        return self._due()

    def ended(self, key: str, outputs: Mapping[str, Any]) -> Sequence[Grow]:
        what, _, number = key.partition("/")
        if what == CALL:
            self.results[int(number)] = ToolResult(**outputs["result"])
            return self._next()
        self.writing = False
        if not self._streams:
            for item in outputs["calls"] or ():
                self._read(item)
        decision = outputs["decision"]
        if isinstance(decision, Mapping) and "answer" in decision:
            self.answer = decision["answer"]
        return self._next()

    def failed(self, key: str, error: Exception) -> Sequence[Grow]:
        cause = error.__cause__ if error.__cause__ is not None else error
        unread = isinstance(cause, OutputError) and not key.startswith(CALL)
        if not unread or self.again or self.turn >= self.agent.config.at_most:
            raise error
        self.writing, self.again = False, AGAIN.format(told=cause)
        return self._next()

    def result(self) -> Mapping[str, Any]:
        return {"answer": self.answer, "steps": [self._step(k) for k in sorted(self.results)]}

    def _step(self, number: int) -> dict[str, Any]:
        call, result = self.calls[number], self.results[number]
        return {
            "tool": call.tool,
            "args": dict(call.arguments),
            "result": result.text,
            "failed": result.failed,
            "seconds": round(result.seconds, 6),
        }

    def _read(self, item: Any) -> None:
        """A call that the model has written."""
        self.number += 1
        call = self.agent.toolbox.read_call(item, self.number, self.calls)
        self.calls[call.number] = call
        self.number = max(self.number, call.number)

    def _due(self) -> list[Grow]:
        """Calls that can begin: all that they refer to is there."""
        found = []
        for number, call in self.calls.items():
            if number not in self.begun and all(n in self.results for n in call.reads):
                self.begun.add(number)
                found.append(self._begun(number, call))
        return found

    def _begun(self, number: int, call: PlannedCall) -> Grow:
        toolbox = self.agent.toolbox
        pure = call.tool in toolbox and toolbox[call.tool].pure
        earlier = {n: self.results[n] for n in call.reads}
        inputs = {"call": call, "earlier": earlier}
        if "context" in self.inputs:
            inputs["context"] = self.inputs["context"]
        return Grow(PURE if pure else CALL, f"{CALL}/{number}", inputs)

    def _next(self) -> Sequence[Grow]:
        """The calls that can begin; when all have ended and nothing is being written, the next
        turn, if there is no answer yet."""
        due = self._due()
        if due or self.writing or len(self.begun) > len(self.results):
            return due
        if self.answer is not None:
            return ()
        if self.turn >= self.agent.config.at_most:
            raise EngineError(f"it has not answered in {self.turn} turns")
        return (self._turn(),)

    def _turn(self) -> Grow:
        config = self.agent.config
        self.turn += 1
        self.writing = True
        last = self.turn == config.at_most
        self._note()
        inputs = {name: self.inputs[name] for name in READ if name in self.inputs}
        if self.entries:
            inputs["transcript"] = self._transcript()
        tells = frozenset({"calls"}) if self._streams and not last else NOTHING
        return Grow(LAST if last else TURN, f"{TURN}/{self.turn}", inputs, tells, answers=True)

    def _note(self) -> None:
        """What the model is to see of the calls since its last turn."""
        for number in sorted([*self.results][self.shown :]):
            call, result = self.calls[number], self.results[number]
            args = json.dumps(dict(call.arguments), ensure_ascii=False)
            self.entries.append(f"{number}. {call.tool}({args}): {result.text}")
        self.shown = len(self.results)
        if self.again:
            self.entries.append(self.again)

    def _transcript(self) -> list[Any]:
        """The entries, the oldest of which are left out where they are too long in all."""
        left, kept = self.agent.config.results_tokens * CHARACTERS, list[str]()
        for entry in reversed(self.entries):
            left -= len(entry)
            if left < 0:
                kept.append("(earlier calls are left out)")
                break
            kept.append(entry)
        return [HEADER, *reversed(kept)]


class Expected(Acting):
    """One run of an Agent as far as it can be expected: so many turns, with so many calls each."""

    def _turn(self) -> Grow:
        turns, calls = self.agent.expect
        if self.agent.config.mode == "react":
            turns, calls = turns * calls, 1
        grow = super()._turn()
        more = self.turn <= min(turns, self.agent.config.at_most - 1)
        wrote = tuple((CALL_TOKENS * (k + 1), k) for k in range(calls)) if more else ()
        return grow._replace(body=TURN, tells=frozenset({"calls"}), expects=wrote)

    def told(self, key: str, port: str, item: Any) -> Sequence[Grow]:
        self._read(item)
        return self._due() if self._streams else ()

    def ended(self, key: str, outputs: Mapping[str, Any]) -> Sequence[Grow]:
        if key.startswith(CALL):
            self.results[int(key.rpartition("/")[2])] = outputs["result"]
            return self._next()
        self.writing = False
        if len(self.calls) == len(self.results):
            self.answer = outputs["decision"]
        return self._next()

    def result(self) -> Mapping[str, Any]:
        return {"answer": self.answer, "steps": [*self.results.values()]}

    def _read(self, item: Any) -> None:
        self.number += 1
        self.calls[self.number] = PlannedCall(self.number, next(iter(self.agent.toolbox)).name, {})

    def _note(self) -> None:
        results = [*self.results.values()]
        self.entries += results[self.shown :]
        self.shown = len(results)

    def _transcript(self) -> list[Any]:
        return [*self.entries]
