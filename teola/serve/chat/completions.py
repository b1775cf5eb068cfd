"""What a query has answered, as OpenAI's clients read it: a completion, or the pieces of one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any, Final

from teola.engine import Hit
from teola.plain_json import SPACED, json_of
from teola.query.event_log import Event
from teola.query.result import Result, jsonable
from teola.serve.board import Entry
from teola.serve.chat.conversation import TOOL_CALLS
from teola.serve.problems import problem_of, waits_for_people

_FINGERPRINT: Final = f"teola-{version('teola')}"


def completion(entry: Entry, model: str, said: str, steps: bool = False) -> dict[str, Any]:
    """The body of an answer that comes whole. steps: with what its agents did."""
    message: dict[str, Any] = {"role": "assistant", "content": said, "refusal": None}
    if calls := calls_of(entry.result):
        message = {"role": "assistant", "content": None, "tool_calls": calls, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(entry)}
    head = _head(entry, model, "chat.completion")
    body = {**head, "choices": [choice], "usage": usage(entry)}
    ours = sources_of(entry.result)
    if steps:
        events = (json.loads(e.data) for _, e in entry.events.after(0) if e.kind == "step")
        ours["steps"] = [e for e in events if e["state"] != "started"]
    return {**body, "x_teola": ours} if ours else body


def sources_of(result: Result | None) -> dict[str, Any]:
    """{"sources": the passages that the application gives besides its answer, the nearest first};
    empty where it gives none."""
    if result is None:
        return {}
    beside = (value for value in result.outputs.values() if value is not result.answer)
    lists = (value for value in beside if isinstance(value, list))
    hits = [hit for listed in lists for hit in listed if isinstance(hit, Hit)]
    return {"sources": jsonable(hits)} if hits else {}


def calls_of(result: Result | None) -> list[dict[str, Any]]:
    """Calls of its own tools that the client is to make; [] where there is an answer."""
    calls = result.outputs.get(TOOL_CALLS) if result is not None else None
    return [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["tool"], "arguments": _encode(jsonable(call["args"]))},
        }
        for call in calls or ()
    ]


def answer_text(result: Result) -> str:
    """The answer as a text."""
    answer = jsonable(result.answer)
    if answer is None or isinstance(answer, str):
        return answer or ""
    return json_of(answer, SPACED)


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
    """Why the answer ends: of itself, because the client is to call tools, or because it had all
    the tokens that it might have."""
    if calls_of(entry.result):
        return "tool_calls"
    trace = entry.job.trace
    return "length" if trace is not None and trace.cut else "stop"


class Chunks:
    """The events of a query as pieces of a completion. wants_usage: a last one with it. steps: with
    what its agents do, each in a piece that says nothing else.

    Of the piece for a token only the text differs; what stands before and behind it is encoded once
    a query.
    """

    def __init__(self, entry: Entry, model: str, wants_usage: bool, steps: bool = False) -> None:
        self._entry, self._wants_usage, self._begun = entry, wants_usage, False
        self._steps = steps
        self._head = _head(entry, model, "chat.completion.chunk")
        self._counted = {"usage": None} if wants_usage else {}
        piece = self._chunk({"content": ""}, None)
        self._before, _, self._behind = piece.rpartition('""')

    def encode(self, n: int, event: Event) -> Iterable[str]:
        """Text for the client."""
        if event.kind == "token":
            yield from self._delta(event.text) if event.text else ()
        elif event.kind == "step" and self._steps:
            yield from self._delta("") if not self._begun else ()
            yield self._chunk({}, None, {"x_teola": {"step": json.loads(event.data)}})
        elif event.kind == "done":
            assert self._entry.result is not None
            # an answer that is no text comes whole
            yield from self.rest("" if self._begun else answer_text(self._entry.result))
        elif event.kind == "error":
            assert self._entry.result is not None
            yield line(problem_of(self._entry.result).openai_body())
        elif event.kind == "waiting":
            yield line(waits_for_people(self._entry.id).openai_body())

    def rest(self, text: str) -> Iterator[str]:
        """The last text of the answer, or the calls in its place, and its end."""
        if calls := calls_of(self._entry.result):
            yield from self._calls(calls)
        elif text or not self._begun:
            yield from self._delta(text)
        ours = sources_of(self._entry.result)
        yield self._chunk({}, _reason(self._entry), {"x_teola": ours} if ours else None)
        if self._wants_usage:
            yield line({**self._head, "choices": [], "usage": usage(self._entry)})
        yield "data: [DONE]\n\n"

    def _calls(self, calls: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        """A piece with the name of each, and one with its arguments."""
        for k, call in enumerate(calls):
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            head = {"index": k, **call, "function": {"name": name, "arguments": ""}}
            opening = {} if self._begun else {"role": "assistant", "content": None}
            self._begun = True
            yield self._chunk({**opening, "tool_calls": [head]}, None)
            rest = {"index": k, "function": {"arguments": arguments}}
            yield self._chunk({"tool_calls": [rest]}, None)

    def _delta(self, text: str) -> Iterator[str]:
        if not self._begun:
            self._begun = True
            yield self._chunk({"role": "assistant", "content": ""}, None)
            if not text:
                return
        yield f"{self._before}{_encode(text)}{self._behind}"

    def _chunk(
        self, delta: Mapping[str, Any], reason: str | None, more: Mapping[str, Any] | None = None
    ) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return line({**self._head, "choices": [choice], **self._counted, **(more or {})})


def line(value: Mapping[str, Any]) -> str:
    """A server-sent event as OpenAI's servers write it."""
    return f"data: {_encode(value)}\n\n"


_encode: Final = json.JSONEncoder(ensure_ascii=False).encode
