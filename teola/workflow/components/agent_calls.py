"""What an agent does besides asking its model: finding tools, calling them, asking people first."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from teola.engine import AskedBy
from teola.errors import InputError
from teola.graph import ByHand, Op, Ref, ToolParams, Value, WaitParams, Wording
from teola.plain_json import Weighed
from teola.run_secrets import ReadSecrets
from teola.tools.base import MOST_CHARS, Tool
from teola.tools.context import ToolContext
from teola.tools.decision import PlannedCall
from teola.tools.json_schema import embedded
from teola.tools.loop_life import here
from teola.tools.offered import listed_tools
from teola.tools.references import substituted
from teola.tools.tool_result import ToolResult, as_text, cut
from teola.tools.toolbox import Toolbox
from teola.workflow.block import Block
from teola.workflow.component import Component
from teola.workflow.components.acting import APPROVAL
from teola.workflow.components.agent_tools import AgentTools
from teola.workflow.kinds import Kind


class Offering(Component):
    """Asks servers, and where it runs, for tools that are not known before."""

    default_engine = "python"
    gives = {"offered": Kind.ANY}

    def __init__(self, name: str, tools: AgentTools) -> None:
        super().__init__(name)

        async def offer(asked: AskedBy) -> list[dict[str, Any]]:
            return listed_tools(await tools.here(asked.tools))

        self._offer = offer

    def decompose(self, block: Block) -> None:
        params = ToolParams(self._offer, ("offered",), pure=True, asks=True)
        call = block.add("call", Op.TOOL_CALL, {}, ("offered",), params)
        block.give("offered", Ref(call, "offered"))


class Calling(Component):
    """Makes one call of a tool. pure: all that it is given are of tools that change nothing."""

    default_engine = "python"
    needs = {"call": Kind.ANY, "earlier": Kind.ANY}
    may_use = {"context": Kind.ANY}
    gives = {"result": Kind.ANY}

    def __init__(self, name: str, tools: AgentTools, *, pure: bool) -> None:
        super().__init__(name)
        self.effect = not pure  # type: ignore[misc]
        self._pure = pure

        async def make(
            asked: AskedBy,
            call: PlannedCall,
            earlier: Mapping[int, ToolResult],
            context: Any = None,
        ) -> Weighed:
            values = context if isinstance(context, Mapping) else {}
            secrets = ReadSecrets(asked.secrets)
            about = ToolContext(asked.query_id, asked.tenant, asked.key, values, secrets)
            own = call.problem or call.tool in tools.own
            box = tools.own if own else await tools.here(asked.tools)
            result = await box.run(call, earlier, about)
            hide = partial(secrets.hidden, result.to_json())
            json_values = await here().aside(hide, result.value, result.text)
            return Weighed(json_values, result.nbytes + len(result.text))

        def repeatable(inputs: Mapping[str, Any]) -> bool:
            call: PlannedCall = inputs["call"]
            if call.tool not in tools.own:
                return pure or bool(call.problem)
            return tools.own[call.tool].keyed or tools.own[call.tool].pure

        def about(inputs: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
            call: PlannedCall = inputs["call"]
            arguments = call.arguments
            if not call.literal:
                with suppress(InputError):  # it was not called: they stay as they were written
                    arguments = substituted(arguments, inputs["earlier"])
            return call.tool, arguments

        def output(inputs: Mapping[str, Any], value: Any) -> dict[str, Any]:
            name = inputs["call"].tool
            most = tools.own[name].most_chars if name in tools.own else MOST_CHARS
            text = value if isinstance(value, str) else as_text(value)
            return {"text": cut(text, most), "value": value}

        self._make, self._repeatable = make, repeatable
        self._by_hand = ByHand(about, output)

    def decompose(self, block: Block) -> None:
        inputs: dict[str, Value] = {port: block.read(port).ref for port in self.required}
        if (context := block.may_read("context")) is not None:
            inputs["context"] = context.ref
        params = ToolParams(
            self._make,
            ("result",),
            optional=("context",),
            pure=self._pure,
            retries=0,
            asks=True,
            repeatable=self._repeatable,
            by_hand=self._by_hand,
        )
        call = block.add("call", Op.TOOL_CALL, inputs, ("result",), params)
        block.give("result", Ref(call, "result"))


class Approving(Component):
    """Asks a person whether a literal call may be made, and says with which arguments."""

    needs = {"call": Kind.ANY, "earlier": Kind.ANY}
    gives = {"answer": Kind.ANY}

    def __init__(self, name: str, toolbox: Toolbox) -> None:
        super().__init__(name)

        def words(inputs: Mapping[str, Any]) -> Wording:
            call: PlannedCall = inputs["call"]
            about = {"tool": call.tool, "arguments": dict(call.arguments)}
            return Wording(f"May {call.tool} be called?", approval(toolbox[call.tool]), about)

        self._words = words

    def decompose(self, block: Block) -> None:
        inputs: dict[str, Value] = {port: block.read(port).ref for port in self.required}
        params = WaitParams(self._words, APPROVAL, read=agreed)
        ask = block.add("ask", Op.WAIT, inputs, ("answer",), params)
        block.give("answer", Ref(ask, "answer"))


def agreed(answer: Any, about: Any) -> Any:
    """An answer with the arguments that the call is to be made with: those that were shown, unless
    there are `edited` ones."""
    if answer["do"] != "approve" or "arguments" in answer:
        return answer
    return {**answer, "arguments": about["arguments"], "edited": False}


def approval(tool: Tool) -> dict[str, Any]:
    """JSON schema of what a person may say to a call of `tool`: let it be, with other arguments
    perhaps, or not, for a reason that the model is told."""
    arguments, definitions = embedded(tool.schema, "arguments")
    return {
        "type": "object",
        "properties": {
            "do": {"enum": ["approve", "reject"]},
            "arguments": arguments,
            "reason": {"type": "string"},
        },
        "required": ["do"],
        "additionalProperties": False,
        **({"$defs": definitions} if definitions else {}),
    }
