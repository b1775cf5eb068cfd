"""The two systems: each answers a question with at most one turn of calls and one of an answer."""

from __future__ import annotations

import time
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from experiments.agents_on_vllm.tools_asked import TOOLS, for_langgraph
from teola import Agent, App, Runtime
from teola.errors import TeolaError

CALL_TOKENS: Final = 512
"""That a turn may take."""
ANSWER_TOKENS: Final = 64
TEMPERATURE: Final = 1.0
"""Without seeds: vLLM 0.32 on a CPU dies of one that is drawn with."""
NO_CALL: Final = "it made no call, though one is required"
INSTRUCTION: Final = "You advise ships. Use the tools, then answer briefly."


@dataclass(frozen=True, slots=True)
class Went:
    """How one agent went. calls, invalid: of tools, and those of them that no tool could take.
    tokens: that the model wrote. failure: "" if it came to an answer."""

    seconds: float
    calls: int = 0
    invalid: int = 0
    tokens: int = 0
    failure: str = ""


Side = Callable[[str], Awaitable[Went]]
"""Question -> how it went."""


def teola(runtime: Runtime) -> Side:
    """Ours. Its replies are held to one JSON schema; its turns are parts of one graph."""
    agent = Agent(
        TOOLS,
        mode="parallel",
        instruction=INSTRUCTION,
        tool_choice="required",
        thought=False,
        at_most=2,
        max_tokens=CALL_TOKENS,
        temperature=TEMPERATURE,
        answer_schema={"enum": ["yes", "no"]},
    )
    outputs = {"answer": "answer", "steps": "steps"}
    app = App("agents", agent, inputs={"question": "text"}, outputs=outputs, runtime=runtime)

    async def ask(question: str) -> Went:
        began = time.perf_counter()
        try:
            result = await app.arun(question=question)
        except TeolaError as error:
            return Went(time.perf_counter() - began, failure=str(error))
        seconds = time.perf_counter() - began
        if not result["steps"]:
            return Went(seconds, failure=NO_CALL)
        tokens = result.trace.completion_tokens if result.trace else 0
        invalid = sum(step["failed"] for step in result["steps"])
        return Went(seconds, len(result["steps"]), invalid, tokens)

    return ask


def langgraph(url: str, model: str, http: Any) -> Side:
    """Its prebuilt agent: the server's own tool calling, required in the first turn, and strict,
    because this server holds arguments to their schemas only then. http: its client, which who made
    it closes."""
    from langchain_openai import ChatOpenAI

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has moved to a package that brings much else
        from langgraph.prebuilt import create_react_agent

    tools = for_langgraph()

    def made() -> Any:
        about: dict[str, Any] = {
            "base_url": url,
            "api_key": "none",
            "model": model,
            "temperature": TEMPERATURE,
            "http_async_client": http,
        }
        calling = ChatOpenAI(**about, max_tokens=CALL_TOKENS)
        calls = calling.bind_tools(tools, tool_choice="required", strict=True)
        answers = ChatOpenAI(**about, max_tokens=ANSWER_TOKENS)

        def model_of(state: Any, runtime: Any) -> Any:
            return answers if any(m.type == "tool" for m in state["messages"]) else calls

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return create_react_agent(model_of, tools, prompt=INSTRUCTION)

    async def ask(question: str) -> Went:
        agent = made()
        began = time.perf_counter()
        try:
            state = await agent.ainvoke({"messages": [("user", question)]})
        except Exception as error:  # noqa: BLE001 - whatever it raises, it is counted and told
            return Went(time.perf_counter() - began, failure=f"{type(error).__name__}: {error}")
        seconds = time.perf_counter() - began
        return _went(seconds, state["messages"])

    return ask


def _went(seconds: float, messages: list[Any]) -> Went:
    """By the messages of an agent."""
    replies = [message for message in messages if message.type == "ai"]
    results = [message for message in messages if message.type == "tool"]
    unread = sum(len(reply.invalid_tool_calls) for reply in replies)
    refused = sum(result.status == "error" for result in results)
    tokens = sum(reply.usage_metadata["output_tokens"] for reply in replies)
    failure = "" if results or unread else NO_CALL
    return Went(seconds, len(results) + unread, refused + unread, tokens, failure)
