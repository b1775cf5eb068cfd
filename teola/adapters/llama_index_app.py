"""AppLLM: an application as a language model of LlamaIndex."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing, closing
from typing import Any

from pydantic import PrivateAttr

from teola.adapters.app_use import AppUse
from teola.errors import InputError
from teola.extras import needs
from teola.query.result import Result

with needs("llama-index", "teola.adapters.llama_index"):
    from llama_index.core.base.llms.types import (
        ChatMessage,
        ChatResponse,
        ChatResponseAsyncGen,
        ChatResponseGen,
        CompletionResponse,
        CompletionResponseAsyncGen,
        CompletionResponseGen,
        LLMMetadata,
        TextBlock,
    )
    from llama_index.core.llms import CustomLLM
    from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback


class AppLLM(CustomLLM):
    """Answers prompts by an application; see `to_llama_index`."""

    _use: AppUse = PrivateAttr()

    def __init__(self, use: AppUse) -> None:
        super().__init__()
        self._use = use

    @classmethod
    def class_name(cls) -> str:
        """What LlamaIndex calls the class."""
        return "teola_app"

    @property
    def metadata(self) -> LLMMetadata:
        """The application's name is the model's."""
        return LLMMetadata(model_name=self._use.app.name)

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **options: Any) -> CompletionResponse:
        """The answer; blocks."""
        _check(options)
        return CompletionResponse(text=self._use.text(self._use.run(prompt)))

    @llm_completion_callback()
    async def acomplete(
        self, prompt: str, formatted: bool = False, **options: Any
    ) -> CompletionResponse:
        """The answer. Cancelling it cancels the query."""
        _check(options)
        return CompletionResponse(text=self._use.text(await self._use.arun(prompt)))

    @llm_completion_callback()
    def stream_complete(
        self, prompt: str, formatted: bool = False, **options: Any
    ) -> CompletionResponseGen:
        """The answer as it comes; leaving early cancels the query."""
        _check(options)

        def responses() -> CompletionResponseGen:
            with closing(self._deltas(prompt)) as deltas:
                text = ""
                for delta in deltas:
                    text += delta
                    yield CompletionResponse(text=text, delta=delta)

        return responses()

    @llm_completion_callback()
    async def astream_complete(
        self, prompt: str, formatted: bool = False, **options: Any
    ) -> CompletionResponseAsyncGen:
        """`stream_complete` for async code."""
        _check(options)

        async def responses() -> CompletionResponseAsyncGen:
            async with aclosing(self._adeltas(prompt)) as deltas:
                text = ""
                async for delta in deltas:
                    text += delta
                    yield CompletionResponse(text=text, delta=delta)

        return responses()

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **options: Any) -> ChatResponse:
        """The answer to a conversation; blocks."""
        _check(options)
        return _message(self._use.text(self._use.run(self._prompt(messages))))

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **options: Any) -> ChatResponse:
        """The answer to a conversation. Cancelling it cancels the query."""
        _check(options)
        return _message(self._use.text(await self._use.arun(self._prompt(messages))))

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **options: Any) -> ChatResponseGen:
        """The answer to a conversation as it comes."""
        _check(options)
        prompt = self._prompt(messages)

        def responses() -> ChatResponseGen:
            with closing(self._deltas(prompt)) as deltas:
                text = ""
                for delta in deltas:
                    text += delta
                    yield _message(text, delta)

        return responses()

    @llm_chat_callback()
    async def astream_chat(
        self, messages: Sequence[ChatMessage], **options: Any
    ) -> ChatResponseAsyncGen:
        """`stream_chat` for async code."""
        _check(options)
        prompt = self._prompt(messages)

        async def responses() -> ChatResponseAsyncGen:
            async with aclosing(self._adeltas(prompt)) as deltas:
                text = ""
                async for delta in deltas:
                    text += delta
                    yield _message(text, delta)

        return responses()

    # --- asking -------------------------------------------------------------------------------

    def _prompt(self, messages: Sequence[ChatMessage]) -> str:
        """The text of the only message, or of all. Raises InputError for what is no text."""
        for message in messages:
            for block in message.blocks:
                if not isinstance(block, TextBlock):
                    raise InputError(
                        f"application {self._use.app.name!r} reads text, and a message has a block "
                        f"of type {block.block_type}: leave it out, or say in words what it shows"
                    )
        if len(messages) == 1:
            return messages[0].content or ""
        joined: Any = self.messages_to_prompt
        return str(joined(messages))

    def _deltas(self, prompt: str) -> Generator[str, None, None]:
        with closing(self._use.stream(prompt)) as pieces:
            for piece in pieces:
                yield self._text(piece)

    async def _adeltas(self, prompt: str) -> AsyncGenerator[str, None]:
        async with aclosing(self._use.astream(prompt)) as pieces:
            async for piece in pieces:
                yield self._text(piece)

    def _text(self, piece: str | Result) -> str:
        return piece if isinstance(piece, str) else self._use.text(piece)


def _check(options: dict[str, Any]) -> None:
    """Raise InputError for parameters of a model: an application has others."""
    if options:
        raise InputError(
            f"an application does not take {', '.join(sorted(options))}: say how it answers by "
            "to_llama_index(app, overrides=...)"
        )


def _message(text: str, delta: str | None = None) -> ChatResponse:
    return ChatResponse(message=ChatMessage(role="assistant", content=text), delta=delta)
