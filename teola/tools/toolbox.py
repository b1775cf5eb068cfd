"""Toolbox: the tools that a model is given, in order, each with a name of its own."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from teola.errors import InputError, OutputError, UnknownName
from teola.tools.arguments import ArgumentChecker
from teola.tools.base import NAME, Tool
from teola.tools.context import ToolContext
from teola.tools.decision import (
    MOST_CALLS,
    Decision,
    PlannedCall,
    decision_fields,
    decision_schema,
    opened_decision,
)
from teola.tools.function_tool import tool
from teola.tools.json_schema import REFERENCES, JsonSchema, shown
from teola.tools.loop_life import here
from teola.tools.mcp_server import ToolServer
from teola.tools.references import referred, referring, substituted, unknown
from teola.tools.tool_result import ToolResult

ToolSource = Tool | ToolServer | Callable[..., Any]
"""What tools come from; a function is as good as `tool(function)`."""


class Toolbox:
    """An ordered set of tools, which does not change. Raises InputError for a name that two have,
    and for a server's tools, which have to be asked for: `await Toolbox.of(...)`."""

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]]) -> None:
        self._tools: dict[str, Tool] = {}
        for source in tools:
            if isinstance(source, ToolServer):
                raise InputError(
                    f"the tools of server {source.name!r} are not known before it runs: "
                    "await Toolbox.of(...)"
                )
            entry = source if isinstance(source, Tool) else tool(source)
            if entry.name in self._tools:
                raise InputError(f"two tools are called {entry.name!r}; give one a name of its own")
            self._tools[entry.name] = entry
        self._referring: dict[str, ArgumentChecker] = {}

    @classmethod
    async def of(cls, *sources: ToolSource) -> Toolbox:
        """The tools of these, servers being asked (side by side) for what they offer now.

        A server's tool whose name another one has, too, gets its server's name in front. Raises
        InputError, MissingExtra, EngineUnavailable.
        """
        servers = [source for source in sources if isinstance(source, ToolServer)]
        offered = dict(zip(servers, await _offers(servers), strict=True))
        tools: list[Tool] = []
        for source in sources:
            if isinstance(source, ToolServer):
                tools += offered[source]
            else:
                tools.append(source if isinstance(source, Tool) else tool(source))
        names = Counter(entry.name for entry in tools)
        return cls(_prefixed(entry) if names[entry.name] > 1 else entry for entry in tools)

    @property
    def names(self) -> list[str]:
        """In order."""
        return list(self._tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __getitem__(self, name: str) -> Tool:
        """The tool called `name`. Raises UnknownName, which names the nearest."""
        entry = self._tools.get(name)
        if entry is None:
            raise UnknownName("tool", name, self._tools)
        return entry

    # --- what a model is told -------------------------------------------------------------

    @cached_property
    def text(self) -> str:
        """A line of JSON for each tool: name, description, and schema of its arguments."""
        return "\n".join(
            json.dumps(
                {"name": entry.name, "description": entry.description, "args": entry.schema},
                ensure_ascii=False,
            )
            for entry in self
        )

    @cached_property
    def openai(self) -> list[dict[str, Any]]:
        """As `tools` in requests to servers that speak OpenAI's API."""
        return [
            {
                "type": "function",
                "function": {
                    "name": entry.name,
                    "description": entry.description,
                    "parameters": entry.schema,
                },
            }
            for entry in self
        ]

    def functions(self, *, references: bool) -> list[dict[str, Any]]:
        """As `openai`, with arguments that may refer to results ("$1") where `references`."""
        if not references:
            return self.openai
        return [
            {**spec, "function": {**spec["function"], "parameters": _opened_up(self[name].schema)}}
            for name, spec in zip(self.names, self.openai, strict=True)
        ]

    def decision(
        self,
        *,
        most: int = MOST_CALLS,
        least: int = 0,
        thought: bool = True,
        references: bool = True,
    ) -> dict[str, Any]:
        """JSON schema of a Decision, for constrained decoding. references: whether arguments may
        refer to results ("$1")."""
        schemas = {entry.name: entry.schema for entry in self}
        if not schemas:
            raise InputError("there is no tool to decide on")
        return decision_schema(
            schemas, most=most, least=least, thought=thought, references=references
        )

    # --- what it answers ------------------------------------------------------------------

    def read(
        self, decision: str | Mapping[str, Any], *, first: int = 1, earlier: Iterable[int] = ()
    ) -> Decision:
        """What a model decided: its text, or the object in it. Calls that cannot be made say why.

        first: number of the first call. earlier: numbers of calls of earlier decisions, to which
        these may refer. Raises OutputError for what is no decision.
        """
        if isinstance(decision, str):
            try:
                decision = json.loads(decision)
            except (ValueError, RecursionError) as error:
                raise OutputError(f"a decision must be JSON: {error}") from None
        thought, listed = opened_decision(decision)
        numbers = set(earlier)
        calls = []
        for place, call in enumerate(listed, first):
            calls.append(self.read_call(call, place, numbers))
            numbers.add(calls[-1].number)
        return Decision(thought, tuple(calls))

    def read_call(
        self, call: Any, place: int, earlier: Iterable[int], *, references: bool = True
    ) -> PlannedCall:
        """One call of a decision, as soon as it is there. place: its number, if it gives itself
        none. references: its arguments may refer to results; else they are what they are. Raises
        OutputError for what is none."""
        numbers = frozenset(earlier)
        number, name, arguments = decision_fields(call, place, numbers)
        if not isinstance(arguments, Mapping):
            message = (
                f"{name} was not called: its arguments must be an object, got {shown(arguments)}"
            )
            return PlannedCall(number, name, {}, (), message, literal=True)
        if not references:
            problem = self._literal_problem(name, arguments)
            return PlannedCall(number, name, arguments, (), problem, literal=True)
        reads = tuple(sorted({reference.call for reference in referred(arguments, numbers)}))
        problem = self._problem(name, arguments, reads, numbers)
        return PlannedCall(number, name, arguments, reads, problem)

    async def run(
        self,
        call: PlannedCall,
        results: Mapping[int, ToolResult],
        context: ToolContext | None = None,
    ) -> ToolResult:
        """Make a call. results: of the calls that it reads, by number. Like `Tool.call`, it raises
        nothing but a cancellation."""
        if call.problem:
            return ToolResult(call.problem, failed=True)
        read = [results[number].value for number in call.reads if number in results]
        try:
            call = await here().aside(partial(self.literal, call, results), *read)
        except InputError as error:
            return ToolResult(f"{call.tool} was not called: {error}", failed=True)
        return await self[call.tool].call(call.arguments, context)

    def to_approve(
        self, call: PlannedCall, results: Mapping[int, ToolResult]
    ) -> PlannedCall | None:
        """The call, literal, if a person has to agree to it. One that cannot be made needs
        nobody."""
        if call.problem or self[call.tool].approval is False:
            return None
        try:
            call = self.literal(call, results)
        except InputError:
            return None
        return call if self[call.tool].needs_approval(call.arguments) else None

    def literal(self, call: PlannedCall, results: Mapping[int, ToolResult]) -> PlannedCall:
        """The call with results in the place of references. Raises InputError."""
        if call.literal:
            return call
        most = self[call.tool].most_argument_chars
        arguments = substituted(call.arguments, results, most)
        return replace(call, arguments=arguments, reads=(), literal=True)

    def _problem(
        self,
        name: str,
        arguments: Mapping[str, Any],
        reads: tuple[int, ...],
        earlier: frozenset[int],
    ) -> str:
        """Why a call cannot be made; "" if it can."""
        try:
            chosen = self[name]
        except UnknownName as error:
            return str(error)
        problems = [
            f"{reference} refers to no earlier call; the text {reference} is written ${reference}"
            for reference in unknown(arguments, earlier)
        ]
        if not problems:
            problems = self._checked(chosen, arguments) if reads else chosen.problems(arguments)
        return f"{name} was not called: {'; '.join(problems)}" if problems else ""

    def _literal_problem(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Why a call with arguments that refer to nothing cannot be made; "" if it can."""
        try:
            problems = self[name].problems(arguments)
        except UnknownName as error:
            return str(error)
        return f"{name} was not called: {'; '.join(problems)}" if problems else ""

    def _checked(self, chosen: Tool, arguments: Mapping[str, Any]) -> list[str]:
        """What is wrong with the arguments, whatever they refer to."""
        checker = self._referring.get(chosen.name)
        if checker is None:
            checker = ArgumentChecker(_opened_up(chosen.checked_schema))
            self._referring[chosen.name] = checker
        return checker.problems(arguments)


def _opened_up(schema: JsonSchema) -> JsonSchema:
    """The schema of arguments that may be references."""
    open_schema = referring(schema)
    open_schema["$defs"] = {**open_schema.get("$defs", {}), **REFERENCES}
    return open_schema


async def _offers(servers: Iterable[ToolServer]) -> list[list[Tool]]:
    """Tools of each. All are waited for, so that no start is left half done."""
    results = await asyncio.gather(*(server.tools() for server in servers), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


def _prefixed(entry: Tool) -> Tool:
    name = f"{entry.source}_{entry.name}"[:64]
    return replace(entry, name=name) if entry.source and NAME.fullmatch(name) else entry
