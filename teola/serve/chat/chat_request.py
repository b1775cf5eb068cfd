"""The body of a chat completion: what of OpenAI's parameters is taken, and what becomes of it.

A parameter that would change the answer and cannot is refused, as is one that nobody knows; those
that change nothing that an application could tell apart are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from teola.app import App
from teola.engine import NAME_CHARACTERS
from teola.errors import InputError, UnknownName
from teola.query.spec import DEADLINE_S
from teola.serve.chat.conversation import (
    CLIENT_TOOLS,
    HISTORY,
    INSTRUCTIONS,
    QUESTION,
    Conversation,
    Exchange,
    Turn,
    calls_told,
)
from teola.serve.chat.own_calls import Placed, TakenUp
from teola.serve.intake.limits import QueryLimits
from teola.serve.intake.query_request import MOST_DEADLINE_S, checked
from teola.serve.intake.schemas import clients_tools
from teola.tools.json_size import json_size
from teola.tools.offered import chosen_of
from teola.workflow.kinds import Kind

PASSED_OVER: Final = frozenset(
    (
        "audio", "frequency_penalty", "function_call", "logit_bias", "metadata", "modalities",
        "moderation", "prediction", "presence_penalty",
        "prompt_cache_options", "prompt_cache_retention", "reasoning_effort", "safety_identifier",
        "service_tier", "store", "top_logprobs", "top_p", "user", "verbosity",
        "web_search_options",
    )
)  # fmt: skip
"""OpenAI's, without effect here."""
SCHEMA_CHARACTERS: Final = 64 * 1024
STOPS: Final = 4
MESSAGES: Final = 2048
_TALKING: Final = {"user": "User", "assistant": "Assistant"}
_TELLING: Final = ("system", "developer")

Stop = Annotated[str, Field(min_length=1, max_length=256)]


def _tell_passed_over(schema: dict[str, Any]) -> None:
    passed_over = {name: {"description": "Passed over."} for name in sorted(PASSED_OVER)}
    schema["properties"] |= passed_over


class CalledFunction(BaseModel):
    """What was called, with its arguments as JSON."""

    model_config = ConfigDict(strict=True)

    name: str
    arguments: str = "{}"


class ToolCall(BaseModel):
    """A call that an earlier answer asked for."""

    model_config = ConfigDict(strict=True)

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(BaseModel):
    """One message; `content` is a text or a list of text parts. tool_calls: of an assistant's.
    tool_call_id: of a tool's, which call it answers."""

    model_config = ConfigDict(strict=True)

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None

    def text(self, where: int) -> str:
        """Raises InputError for anything but text. where: its place in the list."""
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        for i, part in enumerate(self.content):
            if part.get("type") not in ("text", "refusal"):
                kind = str(part.get("type"))[:40]
                raise InputError(
                    f"messages.{where}.content.{i}: messages may only contain text, not {kind!r}; "
                    "give documents in `documents`"
                )
            if not isinstance(part.get(part["type"]), str):
                raise InputError(f"messages.{where}.content.{i}: its text is missing")
        return "".join(part[part["type"]] for part in self.content)


class StreamOptions(BaseModel):
    """include_usage: a last piece tells how many tokens it took."""

    model_config = ConfigDict(strict=True)

    include_usage: bool = False


class ChatRequest(BaseModel):
    """The body of `POST /v1/chat/completions`; what is ours in it: documents, collection, filters,
    database, hints, overrides, deadline_s, finish_by_s, session, steps, most_tokens, most_cost."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra=_tell_passed_over)

    model: str
    messages: list[Message] = Field(min_length=1, max_length=MESSAGES)
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: Stop | Annotated[list[Stop], Field(max_length=STOPS)] | None = None
    response_format: dict[str, Any] | None = Field(
        None, description="`text`, `json_object`, or `json_schema` with a schema."
    )
    n: Literal[1] | None = Field(1, description="One answer is all that there is.")
    tools: list[Any] | None = Field(
        None,
        description="That the client calls itself, besides those of the application, whose answer "
        "an agent writes then.",
    )
    tool_choice: Any = Field(
        None,
        description="`auto`, `none`, `required`, or one of them by its name.",
    )
    parallel_tool_calls: bool | None = Field(None, description="false: one call at a time.")
    steps: bool = Field(
        False, description="Tell, as `x_teola`, what the application's agents do meanwhile."
    )
    functions: list[Any] | None = Field(None, description="None, as well.")
    logprobs: Literal[False] | None = Field(None, description="Not told.")
    documents: Any = Field(None, description='`{"name", "text"}` or a list, as for a query.')
    collection: str | None = None
    filters: dict[str, Any] | None = None
    database: str | None = Field(
        None, description="For applications that read one: its name in the configuration."
    )
    hints: str | None = Field(None, description="Of which database of the configuration.")
    overrides: dict[str, Any] = Field(default_factory=dict)
    deadline_s: float = Field(DEADLINE_S, gt=0, le=MOST_DEADLINE_S)
    finish_by_s: float | None = Field(
        None, gt=0, le=MOST_DEADLINE_S, description="Seconds by which its answer is wanted."
    )
    session: str | None = Field(
        None,
        min_length=1,
        max_length=NAME_CHARACTERS,
        description="Which conversation this is a turn of, as for a query.",
    )
    most_tokens: int | None = Field(None, ge=1, description="As for a query.")
    most_cost: float | None = Field(None, gt=0, description="As for a query.")
    prompt_cache_key: str | None = Field(
        None, max_length=NAME_CHARACTERS, description="The session, where none is given."
    )

    @field_validator("functions")
    @classmethod
    def _none(cls, value: list[Any] | None) -> None:
        if value:
            raise PydanticCustomError("tools", "an application brings its own tools; send none")

    def conversation(self, placed: Callable[[str], Placed | None]) -> Conversation:
        """placed: where a call belongs among what was done here, by its id. Raises InputError
        unless it ends with a question, or with what tools gave since, and CallsGone."""
        questions = [i for i, m in enumerate(self.messages) if m.role == "user"]
        if not questions or self.messages[-1].role not in ("user", "tool"):
            raise InputError("the last message must be the user's: it is the question")
        at, answered = questions[-1], self._answered()
        open = self._open()
        taken_up = TakenUp.of(
            ((call.id, exchanged(call, answered)) for i in sorted(open) for call in self._calls(i)),
            placed,
        )
        return Conversation(
            self.messages[at].text(at),
            tuple(
                turn
                for i, m in enumerate(self.messages[:at])
                for turn in self._turns(i, m, answered, taken_up if i in open else None)
            ),
            tuple(
                text
                for i, m in enumerate(self.messages)
                if m.role in _TELLING and (text := m.text(i).strip())
            ),
            tuple(
                exchange
                for i in range(at, len(self.messages))
                for call in self._calls(i)
                for exchange in taken_up.beside(call.id, exchanged(call, answered))
            ),
        )

    def _calls(self, i: int) -> Sequence[ToolCall]:
        return self.messages[i].tool_calls or ()

    def _open(self) -> frozenset[int]:
        """The messages with calls after which their question was not answered. What was done for
        the others is no more told than what is done for questions without calls of the client's.
        """
        places, answered = set[int](), False
        for i, message in reversed([*enumerate(self.messages)]):
            if message.role == "user":
                answered = False
            elif message.role == "assistant" and not message.tool_calls:
                answered = True
            elif message.tool_calls and not answered:
                places.add(i)
        return frozenset(places)

    def _turns(
        self, i: int, message: Message, answered: Mapping[str, str], taken_up: TakenUp | None
    ) -> Iterator[Turn]:
        """What a message says, and what the calls in it gave. taken_up: what was done beside the
        calls, to be told with them."""
        text = message.text(i).strip()
        if text and message.role in _TALKING:
            yield Turn(_TALKING[message.role], text)
        for call in message.tool_calls or ():
            exchange = exchanged(call, answered)
            for beside in taken_up.beside(call.id, exchange) if taken_up else (exchange,):
                yield from calls_told(beside)

    def _answered(self) -> dict[str, str]:
        """What was answered to each call of a tool. Raises InputError where it is not."""
        answers: dict[str, str] = {}
        calls: dict[str, int] = {}
        for i, message in enumerate(self.messages):
            if message.role == "tool":
                if message.tool_call_id not in calls or message.tool_call_id in answers:
                    raise InputError(
                        f"messages.{i}: a tool's message must answer a call of the assistant's "
                        "message before it, by its tool_call_id"
                    )
                answers[message.tool_call_id] = message.text(i)
                continue
            if len(answers) < len(calls):
                break
            if message.tool_calls and message.role != "assistant":
                raise InputError(f"messages.{i}: only the assistant's messages have tool_calls")
            for call in message.tool_calls or ():
                if call.id in calls:
                    raise InputError(f"messages.{i}: two calls have the id {call.id!r}")
                calls[call.id] = i
        for id, i in calls.items():
            if id not in answers:
                raise InputError(
                    f"messages.{i}: an assistant message with tool_calls must be followed by a "
                    f"message of a tool for each tool_call_id; {id!r} has none"
                )
        return answers

    async def check_tools(self, limits: QueryLimits) -> None:
        """Check the tools that the client brings; whoever gets them knows that they are checked.
        Raises InputError, UnknownName."""
        if self.tools:
            self.tools = tools = await clients_tools(
                self.tools, limits.client_tools, limits.client_tool_characters
            )
            chosen_of(self.tool_choice, {name: name for name in tools.names})
        elif self.tool_choice not in (None, "none", "auto"):
            raise InputError("tool_choice is only allowed when tools are specified")

    @property
    def turn_of(self) -> str | None:
        """The session, by our name for it or by OpenAI's."""
        return self.session or (self.prompt_cache_key or "").strip() or None

    @property
    def wants_usage(self) -> bool:
        """Whether a stream is to tell it."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def wanted_schema(self) -> dict[str, Any] | None:
        """Schema that the answer must fit; None if it is to be a text. Raises InputError."""
        form = self.response_format or {}
        kind = form.get("type", "text")
        if kind == "text":
            return None
        if kind == "json_object":
            return {"type": "object"}
        wrapped = form.get("json_schema")
        schema = wrapped.get("schema") if isinstance(wrapped, dict) else None
        if kind != "json_schema" or not isinstance(schema, dict):
            raise InputError(
                "response_format: its type is text, json_object, or json_schema with "
                '{"json_schema": {"name": ..., "schema": {...}}}'
            )
        if json_size(schema, SCHEMA_CHARACTERS).characters > SCHEMA_CHARACTERS:
            raise InputError(f"response_format: a schema has up to {SCHEMA_CHARACTERS} characters")
        return schema


def exchanged(call: ToolCall, answered: Mapping[str, str]) -> Exchange:
    """A call, and what was answered to it."""
    return Exchange(call.function.name, arguments_of(call), answered[call.id])


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """Arguments of a call; as a text where they are no JSON object."""
    try:
        arguments = json.loads(call.function.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    return arguments if isinstance(arguments, dict) else {"arguments": call.function.arguments}


def read_chat_request(body: Any) -> ChatRequest:
    """The body, checked. Raises InputError, UnknownName."""
    if isinstance(body, dict):
        names = ChatRequest.model_fields.keys()
        body = {name: value for name, value in body.items() if name not in PASSED_OVER}
        for name in body.keys() - names:
            raise UnknownName("request argument", name, names)
    return checked(ChatRequest, body)


def check_chats(app: App, model: str) -> None:
    """Raise InputError if `app` wants to know more than a conversation tells."""
    others = [
        name
        for name, declared in app.declared.items()
        if name not in (QUESTION, HISTORY, INSTRUCTIONS, CLIENT_TOOLS)
        and declared.kind is not Kind.DOCUMENTS
        and not declared.optional
    ]
    if app.inputs.get(QUESTION) is not Kind.TEXT or others:
        raise InputError(
            f"application {app.name!r} takes more than a question; ask it at "
            f"/v1/apps/{model}/queries"
        )


def decoding(app: App, request: ChatRequest, schema: Any) -> dict[str, Any]:
    """Overrides of the components that write the answer, as far as they have such parameters."""
    stop = [request.stop] if isinstance(request.stop, str) else request.stop
    stated = {
        "max_tokens": request.max_completion_tokens or request.max_tokens,
        "temperature": request.temperature,
        "seed": request.seed,
        "stop": stop or None,
        "json_schema": schema,
    }
    values = {key: value for key, value in stated.items() if value is not None}
    writers = {source.component for sources in app.builder.finals.values() for source in sources}
    overrides: dict[str, Any] = {}
    for component in app.builder.template.components:
        fields = component.config_type.model_fields.keys()
        mine = {key: value for key, value in values.items() if key in fields}
        if component.name in writers and "max_tokens" in fields and mine:
            for key, value in _seeded(component.config, mine).items():
                overrides[f"{component.name}.{key}"] = value
    return overrides


def _seeded(config: Any, values: dict[str, Any]) -> dict[str, Any]:
    """The parameters, without a seed where nothing is left to chance: every seed would be a plan of
    its own."""
    temperature = values.get("temperature", getattr(config, "temperature", 0.0))
    if temperature == 0:
        return {key: value for key, value in values.items() if key != "seed"}
    return values
