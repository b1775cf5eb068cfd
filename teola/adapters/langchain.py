"""LangChain, both ways.

| theirs | ours |
| --- | --- |
| chat model, completion model (`BaseChatModel`, `BaseLLM`) | LLM engine |
| `Embeddings` | embedding engine |
| `BaseRetriever` | component that gives hits |
| `BaseTool` | `Tool` |
| any other `Runnable`: chains, graphs | component |

`to_langchain` makes a Runnable of an App, and a StructuredTool of a Tool.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Unpack, overload

from teola.adapters import foreign
from teola.adapters.app_use import UseOptions, use_of
from teola.adapters.foreign_embedder import EmbedderOptions, Numbers, embedder_config
from teola.adapters.foreign_model import ModelOptions, Piece, PromptMessage, model_config, no_text
from teola.adapters.langchain_app import AppRunnable
from teola.adapters.langchain_tools import structured_tool, tool_of
from teola.adapters.langchain_values import check_prompt, prompt_of, received, sent
from teola.app import App
from teola.engine import Hit, Usage
from teola.errors import InputError, OutputError, UnknownName
from teola.extras import needs
from teola.runtime.engines import EngineConfig
from teola.tools.base import Tool, ToolOptions
from teola.tools.json_schema import target
from teola.workflow.components.function import Function, Options

with needs("langchain", "teola.adapters.langchain"):
    from langchain_core.embeddings import Embeddings
    from langchain_core.language_models import BaseChatModel, BaseLLM
    from langchain_core.messages import BaseMessage
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import Runnable
    from langchain_core.tools import BaseTool, StructuredTool

TAKES: Final = (
    "a chat model, an LLM, Embeddings, a retriever, a tool or any other Runnable of LangChain"
)
INPUT: Final = "input"
"""What a Runnable takes that takes one value."""
ROOT: Final = "root"
"""What LangChain's schemas call a value that is not in a dict."""


class RunnableOptions(Options, total=False):
    """What may be said of a component that is a Runnable; see `from_langchain`."""

    takes: str | Sequence[str] | None
    streams: bool


@overload
def from_langchain(
    of: BaseChatModel | BaseLLM, **options: Unpack[ModelOptions]
) -> EngineConfig: ...
@overload
def from_langchain(of: Embeddings, **options: Unpack[EmbedderOptions]) -> EngineConfig: ...
@overload
def from_langchain(of: BaseTool, **options: Unpack[ToolOptions]) -> Tool: ...
@overload
def from_langchain(of: Runnable[Any, Any], **options: Unpack[RunnableOptions]) -> Function: ...
def from_langchain(of: Any, **options: Any) -> EngineConfig | Tool | Function:
    """Make of an object of LangChain's what it is in Teola; see the module.

    Options of a model are those of ForeignModel and ForeignEmbedder, of a tool those of
    `teola.tools.tool`. Of a component they are those of `component()`, and: takes: the names of
    what a Runnable takes, a list for one that takes a dict; by default what its input schema says.
    streams: it streams text, which is passed on as it comes.

    Raises InputError for any other object, UnknownName for an option that there is not.
    """
    match of:
        case BaseChatModel() | BaseLLM():
            return model_config(_Model(of), options)
        case Embeddings():
            return embedder_config(_Vectors(of), options)
        case BaseTool():
            return tool_of(of, options)  # type: ignore[arg-type]  # checked there
        case BaseRetriever():
            return _retriever(of, options)
        case Runnable():
            return _component(of, options)
    hint = "; give its as_retriever()" if hasattr(of, "as_retriever") else ""
    raise foreign.refuse("from_langchain", of, TAKES, hint)


@overload
def to_langchain(of: App, **options: Unpack[UseOptions]) -> Runnable[Any, Any]: ...
@overload
def to_langchain(of: Tool) -> StructuredTool: ...
def to_langchain(of: App | Tool, **options: Any) -> Runnable[Any, Any] | StructuredTool:
    """Make a Runnable of an application, or a StructuredTool of a tool.

    The Runnable takes a dict of the application's inputs, or the only one that is needed; it gives
    the only output, or a dict of all. It streams the text of the answer. Documents of LangChain go
    in as hits, texts or documents, whatever the application takes, and hits come out as documents.
    Options are those of AppUse.

    Raises InputError, UnknownName.
    """
    match of:
        case App():
            return AppRunnable(use_of(of, options))  # type: ignore[arg-type]  # checked there
        case Tool():
            for option in options:
                raise UnknownName("option", option, (), "to_langchain of a tool")
            return structured_tool(of)
    raise foreign.refuse("to_langchain", of, "an App or a Tool of Teola")


# --- models -----------------------------------------------------------------------------------


def _label(of: object) -> str:
    model = _model_name(of)
    return f"LangChain's {type(of).__name__}{f' {model}' if model else ''}"


def _model_name(of: object) -> str | None:
    """A model's name. LangChain's classes have no common field for it."""
    named = (getattr(of, field, None) for field in ("model_name", "model", "model_id"))
    return next((name for name in named if isinstance(name, str) and name), None)


@dataclass(frozen=True, slots=True, repr=False)
class _Source:
    """An object of LangChain's that is asked, and its names."""

    of: Any

    def __repr__(self) -> str:
        return self.label

    @property
    def label(self) -> str:
        return _label(self.of)

    @property
    def model(self) -> str | None:
        return _model_name(self.of)

    def close(self) -> None:
        """It has no threads of its own."""


class _Model(_Source):
    """A `TextSource`."""

    __slots__ = ()
    of: BaseChatModel | BaseLLM

    async def stream(
        self, turns: Sequence[PromptMessage], stop: Sequence[str], options: Mapping[str, Any]
    ) -> AsyncGenerator[Piece, None]:
        prompt: Any = [("human" if t.role == "user" else t.role, t.text) for t in turns]
        if isinstance(self.of, BaseLLM):
            prompt = "".join(turn.text for turn in turns)
        chunks: Any = self.of.astream(prompt, stop=list(stop) or None, **options)
        wrote, other = False, ""
        async with aclosing(chunks):
            async for chunk in chunks:
                piece = _piece(chunk)
                wrote = wrote or bool(piece.text)
                other = other or _other(chunk)
                yield piece
        if other and not wrote:
            raise no_text(self.label, other)


def _piece(chunk: str | BaseMessage) -> Piece:
    if isinstance(chunk, str):
        return Piece(chunk)
    counts = getattr(chunk, "usage_metadata", None)
    metadata = chunk.response_metadata
    reason = (
        metadata.get("finish_reason") or metadata.get("stop_reason") or metadata.get("done_reason")
    )
    usage = None
    if counts:
        cached = (counts.get("input_token_details") or {}).get("cache_read") or 0
        usage = Usage(counts["input_tokens"], counts["output_tokens"], cached)
    return Piece(str(chunk.text), usage, reason if isinstance(reason, str) else None)


def _other(chunk: str | BaseMessage) -> str:
    """What a piece of an answer has besides text."""
    if isinstance(chunk, str):
        return ""
    if getattr(chunk, "tool_call_chunks", None) or getattr(chunk, "tool_calls", None):
        return "calls of tools"
    blocks = chunk.content if isinstance(chunk.content, list) else []
    kinds = {block.get("type") for block in blocks if isinstance(block, dict)} - {"text"}
    return ", ".join(sorted(f"blocks of type {kind}" for kind in kinds))


class _Vectors(_Source):
    """A `VectorSource`."""

    __slots__ = ()
    of: Embeddings

    async def documents(self, texts: list[str]) -> Numbers:
        return await self.of.aembed_documents(texts)

    async def queries(self, texts: list[str]) -> Numbers:
        return await asyncio.gather(*map(self.of.aembed_query, texts))


# --- components -------------------------------------------------------------------------------


def _retriever(of: BaseRetriever, options: dict[str, Any]) -> Function:
    async def retrieve(question: str) -> list[Hit]:
        return received(await of.ainvoke(question))  # type: ignore[no-any-return]

    defaults = {"name": "retrieve", "outputs": "hits", "pure": True}
    return Function(retrieve, **{**defaults, **options})


def _component(of: Runnable[Any, Any], options: dict[str, Any]) -> Function:
    takes, streams = options.pop("takes", None), options.pop("streams", False)
    parameters = {takes: True} if isinstance(takes, str) else dict.fromkeys(takes or (), True)
    single = isinstance(takes, str)
    if not parameters:
        parameters = _parameters(of)
        single = not parameters
        parameters = parameters or {INPUT: True}
    name = options.pop("name", None) or re.sub(r"\W", "_", of.get_name())
    function = _calling(of, single, options.get("batched"), streams)
    function.__name__ = name
    function.__annotations__ = {"return": AsyncIterator[str]} if streams else {}
    if batched := options.get("batched"):
        function.__annotations__[batched] = list
    function.__signature__ = _signature(name, parameters)  # type: ignore[attr-defined]
    return Function(function, name=name, **options)


def _parameters(of: Runnable[Any, Any]) -> dict[str, bool]:
    """Names of what a Runnable takes in a dict, and whether it needs them; none if it takes
    something else."""
    try:
        schema = of.get_input_jsonschema()
    except Exception as error:  # types may be anybody's
        raise InputError(f"{of.get_name()} cannot tell what it takes: say so by `takes`") from error
    if "$ref" in schema:
        schema = target(schema, schema["$ref"])
    needed, named = schema.get("required", ()), schema.get("properties", ())
    return {name: name in needed for name in named if name != ROOT}


def _signature(name: str, parameters: Mapping[str, bool]) -> inspect.Signature:
    arguments = []
    for parameter in sorted(parameters, key=lambda parameter: not parameters[parameter]):
        if not parameter.isidentifier():
            raise InputError(
                f"{name} takes {parameter!r}, which is no name of an input: put a Runnable before "
                "it, and say what that takes by `takes`"
            )
        default = inspect.Parameter.empty if parameters[parameter] else None
        kind = inspect.Parameter.KEYWORD_ONLY
        arguments.append(inspect.Parameter(parameter, kind, default=default))
    return inspect.Signature(arguments)


def _calling(
    of: Runnable[Any, Any], single: bool, batched: str | None, streams: bool
) -> Callable[..., Any]:
    """A function that calls it. single: with a value, not with a dict."""
    prompt = prompt_of(of)

    def value(inputs: Mapping[str, Any]) -> Any:
        argument = sent(next(iter(inputs.values())) if single else inputs)
        if prompt is not None:
            check_prompt(prompt, argument)
        return argument

    async def call(**inputs: Any) -> Any:
        return received(await of.ainvoke(value(inputs)))

    async def call_many(**inputs: Any) -> list[Any]:
        assert batched is not None
        values = [value({**inputs, batched: item}) for item in inputs[batched]]
        results = await of.abatch(values, return_exceptions=True)
        failed = next((result for result in results if isinstance(result, BaseException)), None)
        if failed is not None:
            raise failed
        return [received(result) for result in results]

    async def stream(**given: Any) -> AsyncIterator[str]:
        chunks: Any = of.astream(value(given))
        async with aclosing(chunks):
            async for chunk in chunks:
                text = received(chunk)
                if not isinstance(text, str):
                    raise OutputError(
                        f"it streams {type(chunk).__name__}, not text: leave `streams` out, or end "
                        "the chain with a StrOutputParser"
                    )
                yield text

    return call_many if batched else stream if streams else call
