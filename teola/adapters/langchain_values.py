"""Values on their way between LangChain and Teola.

| LangChain | Teola |
| --- | --- |
| `Document` | `Hit` |
| message, prompt value, of text only | text |

What has no counterpart stays what it is: another Runnable may know it, and prompts, engines and
answers refuse it.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, Final

from teola.engine import Chunk, Hit
from teola.errors import InputError
from teola.extras import needs

with needs("langchain", "teola.adapters.langchain"):
    from langchain_core.documents import Document
    from langchain_core.messages import BaseMessage
    from langchain_core.prompt_values import PromptValue
    from langchain_core.prompts import BasePromptTemplate
    from langchain_core.runnables import Runnable, RunnableBinding, RunnableSequence

READ_AS_TEXT: Final = (str, int, float)
"""What a prompt may show as it is."""
_THOUGHTS: Final = frozenset({"reasoning", "thinking", "redacted_thinking"})
"""Blocks of a message that are no part of what it says."""
_SCORES: Final = ("score", "relevance_score")
"""Where retrievers and rerankers put the score of a document."""


def received(value: Any) -> Any:
    """A value of LangChain's in our words."""
    match value:
        case Document():
            return hit_of(value, 0)
        case BaseMessage():
            return _said(value)
        case PromptValue():
            messages = value.to_messages()
            texts = [_said(message) for message in messages]
            if not all(isinstance(text, str) for text in texts):
                return value
            return texts[0] if len(texts) == 1 else value.to_string()
        case list() | tuple():
            return [
                hit_of(item, i) if isinstance(item, Document) else received(item)
                for i, item in enumerate(value)
            ]
        case dict():
            return {key: received(item) for key, item in value.items()}
    return value


def hit_of(document: Document, place: int) -> Hit:
    """The document as a hit, from its place in a list. Without a score it gets one that keeps the
    list in order."""
    metadata = document.metadata
    own = next((metadata[key] for key in _SCORES if key in metadata), None)
    score = float(own) if isinstance(own, Real) else 1 / (place + 1)
    name = str(metadata.get("source") or document.id or "document")
    id = document.id or f"{name}/{place}"
    return Hit(id, name, document.page_content, score, metadata)


def sent(value: Any) -> Any:
    """A value of ours as LangChain knows it."""
    match value:
        case Hit():
            about = {**value.metadata, "source": value.document, "score": value.score}
            return Document(id=value.id, page_content=value.text, metadata=about)
        case Chunk():
            id, about = f"{value.document}/{value.index}", {"source": value.name}
            return Document(id=id, page_content=value.text, metadata=about)
        case list() | tuple():
            return [sent(item) for item in value]
        case Mapping():
            return {key: sent(item) for key, item in value.items()}
    return value


def _said(message: BaseMessage) -> Any:
    """The text of a message that has nothing else; otherwise the message itself."""
    content = message.content
    if not isinstance(content, str):
        kinds = {"text" if isinstance(block, str) else block.get("type") for block in content}
        if kinds - {"text"} - _THOUGHTS:
            return message
    if getattr(message, "tool_calls", None):
        return message
    return str(message.text)


# --- prompts ----------------------------------------------------------------------------------


def prompt_of(runnable: Runnable[Any, Any]) -> BasePromptTemplate[Any] | None:
    """The prompt template that a chain begins with."""
    while not isinstance(runnable, BasePromptTemplate):
        if isinstance(runnable, RunnableSequence):
            runnable = runnable.first
        elif isinstance(runnable, RunnableBinding):
            runnable = runnable.bound
        else:
            return None
    return runnable


def check_prompt(prompt: BasePromptTemplate[Any], arguments: Any) -> None:
    """Raise InputError for values that the template would show as a `repr`. Where it takes no
    messages, only texts and numbers may stand."""
    names = [*prompt.input_variables, *prompt.optional_variables]
    if not isinstance(arguments, Mapping):
        arguments = dict.fromkeys(names[:1], arguments)
    for name in names:
        value = arguments.get(name)
        if name in prompt.input_types or value is None or isinstance(value, READ_AS_TEXT):
            continue
        of = f"a list of {type(value[0]).__name__}" if isinstance(value, list) and value else ""
        raise InputError(
            f"the prompt reads {name!r} as text, and gets {of or type(value).__name__}: put a "
            "component before it that makes one text of it"
        )
