"""A chat model of LangChain's that says what it was asked, and knows what became of that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForLLMRun,
)
from langchain_core.language_models.fake_chat_models import (
    FakeListChatModel,
)
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk


class Talker(FakeListChatModel):
    """Says what it was asked, letter by letter. seen: what became of its streams, and how many
    there were at once."""

    responses: list[str] = ["unused"]
    pause: float = 0.0
    usage: bool = False
    limit: int | None = None
    seen: dict[str, Any] = {"now": 0, "most": 0, "closed": 0, "asked": []}

    def _call(self, messages: list[BaseMessage], *args: Any, **given: Any) -> str:
        return str(messages[-1].content)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **given: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        self.seen["asked"].append((messages, stop, given))
        self.seen["now"] += 1
        self.seen["most"] = max(self.seen["most"], self.seen["now"])
        try:
            for letter in str(messages[-1].content):
                await asyncio.sleep(self.pause)
                yield ChatGenerationChunk(message=AIMessageChunk(content=letter))
            if self.usage:
                counts = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}
                last = AIMessageChunk(
                    content="",
                    usage_metadata=counts,  # type: ignore[arg-type]
                    response_metadata={"finish_reason": "length"},
                )
                yield ChatGenerationChunk(message=last)
        finally:
            self.seen["now"] -= 1
            self.seen["closed"] += 1


def talker(**fields: Any) -> Talker:
    return Talker(seen={"now": 0, "most": 0, "closed": 0, "asked": []}, **fields)
