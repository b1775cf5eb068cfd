"""What agents may call besides functions: tools of servers and of names, and other agents."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from teola import Agent, App, Runtime
from teola.engine import Call, Delta
from teola.errors import EngineError, InputError, QueryFailed, TemplateError
from teola.query.result import Result
from teola.runtime.live.query import Token
from teola.tools import ToolServer, ToolStep, mcp_tools, tool
from teola.workflow.components.acting import Acting
from teola.workflow.components.agent_tools import AgentTools
from tests.planted import catches, edited
from tests.workflow.test_agent import Writes, add, answer, begun, calls, search

QUESTION = {"question": "text"}
OUTPUTS = {"answer": "answer", "steps": "steps"}


def odd(*, pure: tuple[str, ...] = ("echo", "pid"), **more: Any) -> ToolServer:
    command = [sys.executable, "-m", "tests.tools.odd_server"]
    return mcp_tools(command=command, cwd=str(Path.cwd()), name="odd", pure=pure, **more)


def asked(model: Writes, agent: Agent, tools: dict[str, Any] | None = None, **more: Any) -> Result:
    begun.clear()
    with Runtime({"llm": lambda: model}, tools=tools) as runtime:
        made = App("a", agent, inputs=QUESTION, outputs=OUTPUTS, runtime=runtime)
        return made.run(question="why?", **more)


# --- servers and names --------------------------------------------------------------------------


@catches(
    "all-tools",
    "an agent is told of tools that it may not use",
    edited(ToolServer._offered, "spec.name not in self.only", "False"),
)
def test_tools_of_a_server_are_an_agents_own() -> None:
    model = Writes(calls(("echo", {"text": "hello"})), answer("done"))
    result = asked(model, Agent([add, odd(only=("echo",), pure=("echo",))]))
    assert result.answer == "done"
    assert result["steps"][0]["result"] == "hello"
    told = [json.loads(line)["name"] for line in model.prompt(0).split("\n") if '"name":' in line]
    assert told == ["add", "echo"]
    assert "echo" in (model.calls[0].decode.schema or "")


def test_a_server_ends_with_its_runtime() -> None:
    model = Writes(calls(("pid", {})), answer("done"))
    pid = int(asked(model, Agent([odd(only=("pid",), pure=("pid",))]))["steps"][0]["result"])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_servers_tool_gives_way_to_one_of_that_name() -> None:
    @tool(pure=True)
    def echo(text: str) -> str:
        """Says something else."""
        return f"not {text}"

    listed = [("echo", {"text": "a"}), ("odd_echo", {"text": "a"})]
    result = asked(Writes(calls(*listed), answer("x")), Agent([echo, odd(only=("echo",))]))
    assert [step["result"] for step in result["steps"]] == ["not a", "a"]


def test_tools_may_be_named_and_found_where_it_runs() -> None:
    model = Writes(calls(("echo", {"text": "hello"}), ("add", {"a": 1, "b": 1})), answer("x"))
    result = asked(model, Agent(["odd", "sum"]), {"odd": odd(only=("echo",)), "sum": add})
    assert [step["result"] for step in result["steps"]] == ["hello", "2.0"]


def test_a_name_that_nobody_knows_is_refused() -> None:
    with pytest.raises(QueryFailed, match="unknown tool 'clck'; did you mean 'clock'"):
        asked(Writes(answer("x")), Agent(["clck"]), {"clock": odd()})


def test_a_server_that_cannot_start_says_so() -> None:
    missing = mcp_tools(command=["/no/such/server"], name="gone")
    with pytest.raises(QueryFailed, match="'gone'"):
        asked(Writes(answer("x")), Agent([add, missing]))


def test_who_uses_servers_is_pure_only_where_all_that_they_offer_is() -> None:
    assert AgentTools([odd(only=("echo",), pure=("echo",))]).effect is False
    assert AgentTools([odd(pure=("echo",))]).effect
    assert AgentTools(["odd"]).effect


# --- which tool ---------------------------------------------------------------------------------


def names(schema: str | None) -> set[str]:
    """Tools that a reply may call."""
    return {name for name in ("add", "search") if f'"{name}"' in (schema or "")}


@catches(
    "no-choice",
    "the first turn may call any tool",
    edited(Acting._turn, "self.box.must if self.number == self.before else ()", "()"),
)
def test_a_tool_may_have_to_be_called_first() -> None:
    model = Writes(calls(("add", {"a": 1, "b": 2})), answer("x"))
    asked(model, Agent([search, add], tool_choice="add"))
    first, second = (call.decode.schema for call in model.calls)
    assert names(first) == {"add"}
    assert "answer" not in json.loads(first or "")["properties"]
    assert names(second) == {"add", "search"}


def test_or_any_of_them() -> None:
    model = Writes(calls(("add", {"a": 1, "b": 2})), answer("x"))
    asked(model, Agent([search, add], tool_choice="required"))
    assert names(model.calls[0].decode.schema) == {"add", "search"}
    assert '"answer"' not in (model.calls[0].decode.schema or "")


def test_no_thought_is_asked_for_where_none_is_wanted() -> None:
    model = Writes(json.dumps({"calls": [{"tool": "add", "args": {"a": 1, "b": 2}}]}), answer("x"))
    asked(model, Agent([add], thought=False))
    assert "thought" not in model.prompt(0)
    assert "thought" not in (model.calls[0].decode.schema or "")
    model = Writes(answer("x"))
    asked(model, Agent([add]))
    assert "thought" in model.prompt(0)
    assert "thought" in (model.calls[0].decode.schema or "")


def test_what_it_has_not_cannot_be_chosen() -> None:
    with pytest.raises(InputError, match="unknown tool 'ad'; did you mean 'add'"):
        Agent([add], tool_choice="ad")
    with pytest.raises(InputError, match="at_most must be 2 or more"):
        Agent([add], tool_choice="required", at_most=1)


# --- other agents -------------------------------------------------------------------------------


def billing(**more: Any) -> Agent:
    return Agent([add], name="billing", description="Knows of bills.", engine="other", **more)


@catches(
    "forgets",
    "who takes over is not told what was found",
    edited(Acting._over, "*self._transcript(self.agent.config.results_tokens)", ""),
)
def test_another_agent_answers_what_it_is_handed() -> None:
    first = Writes(
        calls(("search", {"query": "bill"})), calls(("billing", {"why": "it is a bill"}))
    )
    second = Writes(calls(("add", {"a": 1, "b": 2})), answer("3 crowns"))
    with Runtime({"llm": lambda: first, "other": lambda: second}) as runtime:
        agent = Agent([search, billing()])
        made = App(
            "a",
            agent,
            inputs={"question": "text", "history": "text"},
            outputs=OUTPUTS,
            runtime=runtime,
        )
        *events, result = made.stream(question="why?", history="User: hi")
    assert isinstance(result, Result)
    assert result.answer == "3 crowns"
    assert "".join(e.text for e in events if isinstance(e, Token)) == "3 crowns"
    told = second.prompt(0)
    for part in ("User: hi", "found bill", "it is a bill", "Question: why?"):
        assert part in told
    assert [step["tool"] for step in result["steps"]] == ["search", "billing", "add"]
    assert result["steps"][1]["args"] == {"why": "it is a bill"}
    assert result["steps"][1]["result"] == "handed over"
    shown = [(e.agent, e.tool, e.state) for e in events if isinstance(e, ToolStep)]
    assert ("agent", "billing", "started") in shown
    assert ("billing", "add", "finished") in shown


class Breaks(Writes):
    """A server that refuses every call."""

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        raise EngineError("out of paper", retryable=False)
        yield  # what makes it a generator


def test_a_step_whose_agent_fails_is_told_to_have_failed() -> None:
    first = Writes(calls(("billing", {"why": "it is a bill"})))
    steps = []
    with Runtime({"llm": lambda: first, "other": Breaks}) as runtime:
        agent = Agent([search, billing()])
        made = App("a", agent, inputs=QUESTION, outputs=OUTPUTS, runtime=runtime)
        with pytest.raises(QueryFailed, match="out of paper"):
            steps += (e for e in made.stream(question="why?") if isinstance(e, ToolStep))
    assert [(e.agent, e.tool, e.state) for e in steps] == [
        ("agent", "billing", "started"),
        ("agent", "billing", "failed"),
    ]


def test_who_is_handed_over_to_needs_a_name_and_a_description() -> None:
    with pytest.raises(TemplateError, match="needs a description"):
        Agent([Agent([add], name="other")])
    with pytest.raises(TemplateError, match="two agents are called 'agent'"):
        Agent([Agent([add], description="x")])
    with pytest.raises(TemplateError, match="have another schema"):
        Agent([billing()], answer_schema={"type": "object"})
