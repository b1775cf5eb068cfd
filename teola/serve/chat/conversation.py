"""What was said before a question, as inputs of an application.

A conversation is a question with a history, and instructions that hold for all of it (its `system`
and `developer` messages). An application that has the inputs `history` and `instructions` is given
them. Of any other a second form is made, once: the same template with those inputs besides, which
the components that can use them then find, as they would in an application that declares them.

    advanced-rag    question ─▶ expand ─▶ embed ─▶ ...  generate ─▶ answer
    its form        question ─▶ expand ─▶ embed ─▶ ...  generate ─▶ answer
                    history ──────╯                        │
                    instructions ──────────────────────────╯

They stand in a prompt behind the component's own instruction, so that a prefix that is cached stays
of use, and before the question, so that they can be prefilled before anything was found. What is
searched for is the question.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any, Final

from teola.app import App
from teola.errors import TemplateError
from teola.workflow.components import Agent
from teola.workflow.components.transcript import LINE_MARK, marked_lines
from teola.workflow.kinds import Kind
from teola.workflow.wiring import Origin

QUESTION: Final = "question"
HISTORY: Final = "history"
INSTRUCTIONS: Final = "instructions"
CLIENT_TOOLS: Final = "client_tools"
TOOL_CALLS: Final = "tool_calls"
EXCHANGE: Final = "exchange"
"""Input and outputs of an agent, for tools that whoever asks calls itself."""
KINDS: Final = {CLIENT_TOOLS: Kind.ANY}
NOTHING: Final = {HISTORY: "(nothing has been said yet)", INSTRUCTIONS: "(none)"}
"""Values for applications that have such an input and always want one."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Something that was said: by `User`, `Assistant` or `System`."""

    speaker: str
    text: str

    def __str__(self) -> str:
        return f"{self.speaker}: {self.text}"


def of_tool(name: str, result: str) -> Turn:
    """What a call gave. Lines after the first one are marked, so that none looks like a turn."""
    return Turn(f"Tool {name}", marked_lines(result).removeprefix(LINE_MARK))


@dataclass(frozen=True, slots=True)
class Exchange:
    """A call that the client has made since the question, and what it gave."""

    tool: str
    args: dict[str, Any]
    result: str


Made = Exchange | Mapping[str, Any]
"""A call of the client's, or something that an agent has done beside it; see Acting."""


def calls_told(call: Made) -> tuple[Turn, ...]:
    """A call of an earlier question, and what it gave."""
    if not (gave := gave_told(call)):
        return ()
    fields = asdict(call) if isinstance(call, Exchange) else call
    arguments = json.dumps(fields["args"], ensure_ascii=False)
    return Turn("Assistant", f"(calls {fields['tool']}({arguments}))"), *gave


def gave_told(call: Made) -> tuple[Turn, ...]:
    """What a call gave."""
    if isinstance(call, Exchange):
        return (of_tool(call.tool, call.result),)
    return (of_tool(call["tool"], call["result"]["text"]),) if "result" in call else ()


@dataclass(frozen=True, slots=True)
class Conversation:
    """A question, what came before it, and calls of the client's tools since, with what an agent
    has done beside them. tools: what the client offers for that, as an agent takes it."""

    question: str
    turns: tuple[Turn, ...] = ()
    instructions: tuple[str, ...] = ()
    exchange: tuple[Made, ...] = ()
    tools: Mapping[str, Any] | None = None

    def inputs(self, app: App, forms: Forms, most: int) -> tuple[App, dict[str, Any]]:
        """The form of `app` to ask, and its inputs. most: characters of the history."""
        if (self.tools or self.exchange) and writes_by_agent(app):
            return self._with_tools(app, forms, most)
        since = tuple(turn for call in self.exchange for turn in gave_told(call))
        history, instructions = recent((*self.turns, *since), most), self.instructions
        inputs = {HISTORY: lines(history), INSTRUCTIONS: "\n\n".join(instructions)}
        form = forms.of(app, (name for name, text in inputs.items() if text))
        if INSTRUCTIONS not in form.inputs:  # better said by somebody than not at all
            inputs[HISTORY] = lines((*(Turn("System", text) for text in instructions), *history))
            form = forms.of(app, (HISTORY,) if inputs[HISTORY] else ())
        named = {
            name: inputs[name] if form.declared[name].optional else inputs[name] or NOTHING[name]
            for name in inputs
            if name in form.inputs
        }
        return form, {QUESTION: self.question, **named}

    def _with_tools(self, app: App, forms: Forms, most: int) -> tuple[App, dict[str, Any]]:
        _, inputs = replace(self, tools=None, exchange=()).inputs(app, forms, most)
        form = forms.of(app, (*inputs, CLIENT_TOOLS))
        exchange = [asdict(call) if isinstance(call, Exchange) else call for call in self.exchange]
        return form, {**inputs, CLIENT_TOOLS: {**(self.tools or {}), "exchange": exchange}}


def lines(turns: Iterable[Turn]) -> str:
    """A conversation as one text, a turn a line."""
    return "\n".join(map(str, turns))


def recent(turns: Sequence[Turn], most: int) -> tuple[Turn, ...]:
    """The last turns, about `most` characters; of a last one that is longer, its end.

    Turns are dropped from the front in steps of half of `most`: dropped one by one, every question
    of a long conversation would begin its history anew, and no cached prefix would be found.
    """
    if most <= 0 or not turns:
        return ()
    over = sum(len(str(turn)) for turn in turns) - most
    if over <= 0:
        return tuple(turns)
    step = max(1, most // 2)
    drop, at = ceil(over / step) * step, 0
    while drop > 0 and at < len(turns) - 1:
        drop -= len(str(turns[at]))
        at += 1
    kept = turns[at:]
    if len(kept) == 1 and len(kept[0].text) > most:
        return (Turn(kept[0].speaker, kept[0].text[-most:]),)
    return tuple(kept)


class Forms:
    """The forms of applications with which they take part in conversations; each is made once, so
    that its plans are cached like any application's."""

    def __init__(self) -> None:
        self._made: dict[tuple[App, tuple[str, ...]], App] = {}

    def of(self, app: App, inputs: Iterable[str]) -> App:
        """`app` with more inputs: those of `inputs` that something in it can use."""
        names = tuple(sorted(set(inputs) - app.inputs.keys()))
        form = self._made.get((app, names))
        if form is None:
            usable = tuple(name for name in names if _uses(_form(app, (name,)), name))
            form = self._made[app, names] = _form(app, usable)
        return form


def _form(app: App, names: tuple[str, ...]) -> App:
    """`app` with text inputs `names` besides; itself where its template cannot have them."""
    if not names:
        return app
    outputs = {output: sources[0].name for output, sources in app.builder.finals.items()}
    calls = {name: name for name in (TOOL_CALLS, EXCHANGE) if CLIENT_TOOLS in names}
    try:
        return App(
            app.name,
            app.builder.template,
            inputs={**app.declared, **{name: KINDS.get(name, Kind.TEXT) for name in names}},
            outputs={**outputs, **calls},
            description=app.description,
            passes=app.passes,
            runtime=app.runtime,
        )
    except TemplateError:  # a component that wants something else by that name
        return app


def writes_by_agent(app: App) -> bool:
    """Whether an agent writes the answer of `app`, so that clients may bring tools."""
    finals = app.builder.finals
    sources = finals.get("answer") or next(iter(finals.values()))
    by_name = app.builder.template.by_name
    return any(isinstance(by_name.get(source.component), Agent) for source in sources)


def _uses(form: App, name: str) -> bool:
    return any(Origin("", name) in sources for sources in form.builder.wiring.values())
