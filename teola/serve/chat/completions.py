"""What a query has answered, as OpenAI's clients read it: a completion, or the pieces of one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any, Final

from teola.result import Result, jsonable
from teola.serve.board import Entry, Event
from teola.serve.problems import problem_of

_FINGERPRINT: Final = f"teola-{version('teola')}"


def completion(entry: Entry, model: str, said: str) -> dict[str, Any]:
    """The body of an answer that comes whole."""
    message = {"role": "assistant", "content": said, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(entry)}
    head = _head(entry, model, "chat.completion")
    return {**head, "choices": [choice], "usage": usage(entry)}


def said(result: Result) -> str:
    """The answer as a text."""
    answer = jsonable(result.answer)
    if answer is None or isinstance(answer, str):
        return answer or ""
    return json.dumps(answer, ensure_ascii=False)


def usage(entry: Entry) -> dict[str, int]:
    """Tokens of all LLM calls of the query, as their engines counted them."""
    trace = entry.job.trace
    prompt = trace.prompt_tokens if trace else 0
    written = trace.completion_tokens if trace else 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
    }


def _head(entry: Entry, model: str, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{entry.id}",
        "object": kind,
        "created": int(entry.created),
        "model": model,
        "system_fingerprint": _FINGERPRINT,
    }


def _reason(entry: Entry) -> str:
    """Why the answer ends: of itself, or because it had all the tokens that it might have."""
    trace = entry.job.trace
    return "length" if trace is not None and trace.cut else "stop"


class Chunks:
    """The events of a query as pieces of a completion. wants_usage: a last one with it.

    Of the piece for a token only the text differs; what stands before and behind it is encoded once
    a query.
    """

    def __init__(self, entry: Entry, model: str, wants_usage: bool) -> None:
        self._entry, self._wants_usage, self._begun = entry, wants_usage, False
        self._head = _head(entry, model, "chat.completion.chunk")
        self._counted = {"usage": None} if wants_usage else {}
        piece = self._chunk({"content": ""}, None)
        self._before, _, self._behind = piece.rpartition('""')

    def encode(self, n: int, event: Event) -> Iterable[str]:
        """Text for the client."""
        if event.kind == "token":
            yield from self._delta(event.text)
        elif event.kind == "done":
            assert self._entry.result is not None
            # an answer that is no text comes whole
            yield from self.rest("" if self._begun else said(self._entry.result))
        elif event.kind == "error":
            assert self._entry.result is not None
            yield line(problem_of(self._entry.result).openai_body())

    def rest(self, text: str) -> Iterator[str]:
        """The last text of the answer, and its end."""
        if text or not self._begun:
            yield from self._delta(text)
        yield self._chunk({}, _reason(self._entry))
        if self._wants_usage:
            yield line({**self._head, "choices": [], "usage": usage(self._entry)})
        yield "data: [DONE]\n\n"

    def _delta(self, text: str) -> Iterator[str]:
        if not self._begun:
            self._begun = True
            yield self._chunk({"role": "assistant", "content": ""}, None)
        yield f"{self._before}{_encode(text)}{self._behind}"

    def _chunk(self, delta: Mapping[str, str], reason: str | None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return line({**self._head, "choices": [choice], **self._counted})


def line(value: Mapping[str, Any]) -> str:
    """A server-sent event as OpenAI's servers write it."""
    return f"data: {_encode(value)}\n\n"


_encode: Final = json.JSONEncoder(ensure_ascii=False).encode
