"""Haystack, both ways: a component or a Pipeline as a component of ours, and an App as one of
theirs.

What goes in and comes out keeps its name. On the way, hits become documents, and a text becomes a
chat message where one is asked for; documents become hits, and messages of text only become texts.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Unpack, get_args, get_origin

from teola.adapters import foreign
from teola.adapters.app_use import AppUse, UseOptions, use_of
from teola.app import App
from teola.engine import Chunk, Hit
from teola.errors import InputError, UnknownName
from teola.extras import needs
from teola.query.result import Result
from teola.workflow.components.function import Function, Options
from teola.workflow.kinds import Kind

with needs("haystack", "teola.adapters.haystack"):
    from haystack import Document, Pipeline, SuperComponent, component
    from haystack.core.component import Component, InputSocket, OutputSocket
    from haystack.dataclasses import ChatMessage, ReasoningContent, TextContent

_TYPES: Mapping[Kind, Any] = {Kind.TEXT: str, Kind.TEXTS: list[str]}


def from_haystack(of: Component | Pipeline, **options: Unpack[Options]) -> Function:
    """Make a component of one of Haystack's, or of a Pipeline.

    It takes and gives what that does, by the same names; `outputs` may name some of what it gives.
    Of a Pipeline, it is what no connection gives, and what none takes. The other options are those
    of `component()`. What is only synchronous runs in a worker thread.

    Raises InputError for any other object, and for a Pipeline in which two outputs have one name;
    UnknownName for an output that it does not give.
    """
    if isinstance(of, Pipeline):
        return _function(_as_component(of), "pipeline", options)
    if isinstance(of, type) or not isinstance(of, Component) or not hasattr(of, INPUT):
        raise foreign.refuse("from_haystack", of, "a component or a Pipeline of Haystack")
    return _function(of, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(of).__name__).lower(), options)


def to_haystack(of: App, **options: Unpack[UseOptions]) -> AppComponent:
    """Make a component of Haystack of an application: its inputs and outputs have the same names.

    Options are those of AppUse. Raises InputError, UnknownName.
    """
    if not isinstance(of, App):
        raise foreign.refuse("to_haystack", of, "an App of Teola")
    return AppComponent(use_of(of, options))


# --- from Haystack ----------------------------------------------------------------------------

INPUT = "__haystack_input__"
OUTPUT = "__haystack_output__"
"""Where a component keeps its sockets."""


def _as_component(of: Pipeline) -> Any:
    try:
        return SuperComponent(of)
    except Exception as error:  # it has errors of its own, which it does not export
        raise InputError(
            f"this Pipeline cannot be one component: {error} (make a SuperComponent of it, with "
            "mappings that name what goes in and out)"
        ) from error


class _Warmth:
    """Warms a component up once, in a thread, since that may load a model."""

    def __init__(self, of: Any) -> None:
        self._of, self._lock, self._warm = of, threading.Lock(), False

    def __call__(self) -> None:
        with self._lock:
            if not self._warm and hasattr(self._of, "warm_up"):
                self._of.warm_up()
            self._warm = True


def _function(of: Any, name: str, options: Any) -> Function:
    takes: dict[str, InputSocket] = getattr(of, INPUT)._sockets_dict
    gives: dict[str, OutputSocket] = getattr(of, OUTPUT)._sockets_dict
    name = options.pop("name", None) or name
    outputs = options.pop("outputs", None) or list(gives)
    outputs = [outputs] if isinstance(outputs, str) else list(outputs)
    for output in outputs:
        if output not in gives:
            raise UnknownName("output", output, gives, f"Haystack's {type(of).__name__}")
    warm = _Warmth(of)

    def given(inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {key: _fitted(takes[key], value) for key, value in _present(inputs).items()}

    def returned(reply: Mapping[str, Any]) -> Any:
        values = {output: received(reply.get(output)) for output in outputs}
        return values if len(outputs) > 1 else values[outputs[0]]

    async def call(**inputs: Any) -> Any:
        await asyncio.to_thread(warm)
        if hasattr(of, "warm_up_async"):
            await of.warm_up_async()
        return returned(await of.run_async(**given(inputs)))

    def work(**inputs: Any) -> Any:
        warm()
        return returned(of.run(**given(inputs)))

    function: Any = call if of.__haystack_supports_async__ else work
    function.__name__ = name
    function.__signature__ = _signature(takes)
    function.__annotations__ = {key: _hint(socket.type) for key, socket in takes.items()}
    if len(outputs) == 1:
        function.__annotations__["return"] = _hint(gives[outputs[0]].type)
    return Function(function, name=name, outputs=outputs, **options)


def _signature(takes: Mapping[str, InputSocket]) -> inspect.Signature:
    kind, empty = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    return inspect.Signature(
        [
            inspect.Parameter(name, kind, default=empty if socket.is_mandatory else None)
            for name, socket in takes.items()
        ]
    )


def _hint(type_: Any) -> Any:
    """The annotation from which templates know the kind of a socket."""
    if type_ in (str, list[str]):
        return type_
    return list if get_origin(type_) is list else Any


def _fitted(socket: InputSocket, value: Any) -> Any:
    """A value of ours as a socket takes it. Raises InputError for what is no text where one is
    asked for: a prompt would show it as a `repr`."""
    if _reads_text(socket.type) and not isinstance(value, str):
        raise InputError(
            f"Haystack reads {socket.name!r} as text, and gets {type(value).__name__}: put a "
            "component before it that makes a text of it"
        )
    fitted = sent(value)
    if isinstance(value, str):
        if socket.type is ChatMessage:
            fitted = ChatMessage.from_user(value)
        elif ChatMessage in get_args(socket.type) and str not in get_args(socket.type):
            fitted = [ChatMessage.from_user(value)]
    return [fitted] if socket.is_variadic and socket.wrap_input_in_list else fitted


def _reads_text(type_: Any) -> bool:
    return type_ is str or set(get_args(type_)) == {str, type(None)}


# --- to Haystack ------------------------------------------------------------------------------


@component
class AppComponent:
    """An application in a Pipeline; see `to_haystack`."""

    def __init__(self, use: AppUse) -> None:
        self._use = use
        for name, declared in use.inputs.items():
            kind = _TYPES.get(Kind(declared.kind), Any)
            default = {"default": None} if declared.optional else {}
            component.set_input_type(self, name, kind, **default)
        types: dict[str, Any] = dict.fromkeys(use.app.outputs, Any)
        component.set_output_types(self, **types)

    def run(self, **inputs: Any) -> dict[str, Any]:
        """The outputs by name; blocks."""
        return _outputs(self._use.run(received(_present(inputs))))

    async def run_async(self, **inputs: Any) -> dict[str, Any]:
        """The outputs by name. Cancelling it cancels the query."""
        return _outputs(await self._use.arun(received(_present(inputs))))


def _present(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in inputs.items() if value is not None}


def _outputs(result: Result) -> dict[str, Any]:
    return {name: sent(value) for name, value in result.outputs.items()}


# --- values -----------------------------------------------------------------------------------


def received(value: Any, place: int = 0) -> Any:
    """A value of Haystack's in our words. place: of a document in its list."""
    match value:
        case Document():
            return _hit(value, place) if value.content is not None else value
        case ChatMessage():
            return _said(value)
        case list() | tuple():
            return [received(item, i) for i, item in enumerate(value)]
        case dict():
            return {key: received(item) for key, item in value.items()}
    return value


def sent(value: Any) -> Any:
    """A value of ours as Haystack knows it."""
    match value:
        case Hit():
            about = {**value.metadata, "name": value.document}
            return Document(id=value.id, content=value.text, meta=about, score=value.score)
        case Chunk():
            id = f"{value.document}/{value.index}"
            return Document(id=id, content=value.text, meta={"name": value.name})
        case list() | tuple():
            return [sent(item) for item in value]
        case Mapping():
            return {key: sent(item) for key, item in value.items()}
    return value


def _hit(document: Document, place: int) -> Hit:
    """The document as a hit. Without a score it gets one that keeps the list in order."""
    score = document.score if document.score is not None else 1 / (place + 1)
    meta = document.meta
    name = meta.get("name") or meta.get("file_path") or meta.get("url") or document.id
    return Hit(document.id, str(name), document.content or "", float(score), meta)


def _said(message: ChatMessage) -> Any:
    """The text of a message that has nothing else; otherwise the message itself."""
    contents: Sequence[Any] = message._content
    if all(isinstance(content, TextContent | ReasoningContent) for content in contents):
        return "".join(message.texts)
    return message
