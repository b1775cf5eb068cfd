"""The bodies of answers: what is sent for a reply, event by event or whole, in a kind's manners."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from experiments.common.scripted.kinds import Manners

CREATED = 1_760_000_000
PIECE = 12
"""Characters of arguments in one event, where they come in pieces."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. pieces: its text, a token each. thoughts: of the model, before it. calls: of tools
    (name, arguments as JSON), if the request offers any. value: what it says where it is held to a
    schema. first_s, each_s: until its first token, and between two."""

    pieces: tuple[str, ...] = ("The", " answer", " is", " forty", "-two", ".")
    thoughts: tuple[str, ...] = ()
    calls: tuple[tuple[str, str], ...] = ()
    value: str = '{"answer": 42}'
    first_s: float = 0.0
    each_s: float = 0.0


def stream_events(
    manners: Manners, reply: Reply, body: Mapping[str, Any]
) -> Iterator[tuple[bytes, bool]]:
    """The events of a streamed answer, and whether each is a piece of text, thought or call."""
    if "messages" not in body:
        yield from _completion(manners, reply, body)
        return
    parts = _deltas(manners, reply, body)
    reason, written = _reason(manners, reply, body), 0
    for comment in manners.comments:
        yield f"{comment}\n\n".encode(), False
    if manners.first == "filter":
        found = {"prompt_index": 0, "content_filter_results": {}}
        yield _event(manners, {"choices": [], "prompt_filter_results": [found]}), False
    if manners.first != "none":
        content = None if manners.first == "null" else ""
        yield _chat(manners, body, {"role": "assistant", "content": content}, None, 0), False
    for at, delta in enumerate(parts):
        written += 1
        last = manners.end == "last" and at == len(parts) - 1
        yield _chat(manners, body, delta, reason if last else None, written), True
    if manners.end != "last" or not parts:
        ending = {"content": ""} if manners.end == "blank" else {}
        yield _chat(manners, body, ending, reason, written, ends=True), False
    if manners.usage == "asked" and _wants_usage(body):
        yield _event(manners, {"choices": [], "usage": usage_of(body, written)}), False
    yield b"data: [DONE]\n\n", False


def whole_answer(
    manners: Manners, reply: Reply, body: Mapping[str, Any]
) -> tuple[dict[str, Any], int]:
    """The same in one piece, and how many tokens it has."""
    pieces = _text(manners, reply, body)
    reason, text = _reason(manners, reply, body), "".join(pieces)
    calls = _offered(reply, body)
    usage = usage_of(body, len(pieces))
    stamp = {"id": "chatcmpl-1", "created": CREATED, "model": manners.model, "usage": usage}
    if "messages" not in body:
        choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": reason}
        return {**stamp, "object": "text_completion", "choices": [choice]}, len(pieces)
    message: dict[str, Any] = {"role": "assistant", "content": None if calls else text}
    if calls:
        message["tool_calls"] = [_call(k, *call, manners) for k, call in enumerate(calls)]
    if manners.thoughts and reply.thoughts:
        message[manners.thoughts] = "".join(reply.thoughts)
    choice = {"index": 0, "message": message, "finish_reason": reason, **manners.more}
    return {**stamp, "object": "chat.completion", "choices": [choice]}, len(pieces)


def usage_of(body: Mapping[str, Any], written: int) -> dict[str, Any]:
    """Counts at four characters a token of the prompt. An eighth of it was kept."""
    prompt = sum(len(str(one.get("content") or "")) for one in body.get("messages", ())) // 4 + 1
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": prompt // 8},
    }


# --- what is said ---------------------------------------------------------------------------------


def _offered(reply: Reply, body: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The calls that it makes: none without tools, and one if that is wanted."""
    if not body.get("tools"):
        return ()
    return reply.calls[: 1 if body.get("parallel_tool_calls") is False else None]


def _limit(manners: Manners, body: Mapping[str, Any]) -> int | None:
    return next((int(body[name]) for name in manners.limits if name in body), None)


def _text(manners: Manners, reply: Reply, body: Mapping[str, Any]) -> tuple[str, ...]:
    """The pieces of the answer, up to a stop and to the longest that is wanted."""
    if _offered(reply, body):
        return ()
    pieces = reply.pieces
    if body.get("response_format") and "response_format" not in manners.ignored:
        value = reply.value
        pieces = tuple(value[at : at + 4] for at in range(0, len(value), 4))
    text = "".join(pieces)
    for stop in body.get("stop") or ():
        text = text.split(stop)[0]
    if len(text) < len("".join(pieces)):
        pieces = (text,) if text else ()
    return pieces[: _limit(manners, body)]


def _reason(manners: Manners, reply: Reply, body: Mapping[str, Any]) -> str:
    if _offered(reply, body):
        return manners.tools_end
    limit = _limit(manners, body)
    return "length" if limit is not None and len(reply.pieces) > limit else "stop"


def _deltas(manners: Manners, reply: Reply, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Thoughts, text and calls, in this order."""
    found: list[dict[str, Any]] = []
    if manners.thoughts:
        found = [{"content": None, manners.thoughts: one} for one in reply.thoughts]
    calls = _offered(reply, body)
    if manners.tools == "pieces" and calls:
        for k, (name, arguments) in enumerate(calls):
            head = {"name": name, "arguments": ""}
            found.append(_calling({"index": k, "id": f"call_{k}", "type": "function"}, head))
            for at in range(0, len(arguments), PIECE):
                found.append(_calling({"index": k}, {"arguments": arguments[at : at + PIECE]}))
    elif calls:
        for k, call in enumerate(calls):
            one = _call(k, *call, manners)
            found.append({"tool_calls": one if manners.tools == "alone" else [one]})
    found += [{"content": piece} for piece in _text(manners, reply, body)]
    return found


def _calling(head: dict[str, Any], function: dict[str, Any]) -> dict[str, Any]:
    return {"tool_calls": [{**head, "function": function}]}


def _call(k: int, name: str, arguments: str, manners: Manners) -> dict[str, Any]:
    """One call as a whole."""
    function = {"name": name, "arguments": arguments}
    call: dict[str, Any] = {"id": f"call_{k}", "type": "function", "function": function}
    return call if manners.tools == "bare" else {"index": k, **call}


# --- events ---------------------------------------------------------------------------------------


def _chat(
    manners: Manners,
    body: Mapping[str, Any],
    delta: dict[str, Any],
    reason: str | None,
    written: int,
    *,
    ends: bool = False,
) -> bytes:
    if manners.role and not ends:
        delta = {"role": "assistant", **delta}
    choice = {"index": 0, "delta": delta, "finish_reason": reason, **manners.more}
    event: dict[str, Any] = {"choices": [choice]}
    if manners.usage == "each" or (manners.usage == "last" and reason is not None):
        event["usage"] = usage_of(body, written)
    elif manners.usage == "asked" and _wants_usage(body):
        event["usage"] = None
    return _event(manners, event)


def _completion(
    manners: Manners, reply: Reply, body: Mapping[str, Any]
) -> Iterator[tuple[bytes, bool]]:
    """A text that is gone on with, without a chat."""
    pieces = _text(manners, reply, body)
    for piece in pieces:
        choice: dict[str, Any] = {"index": 0, "text": piece, "finish_reason": None}
        yield _event(manners, {"choices": [choice]}, "text_completion"), True
    choice = {"index": 0, "text": "", "finish_reason": _reason(manners, reply, body)}
    yield _event(manners, {"choices": [choice]}, "text_completion"), False
    yield b"data: [DONE]\n\n", False


def _event(manners: Manners, fields: dict[str, Any], kind: str = "chat.completion.chunk") -> bytes:
    stamp = {"id": "chatcmpl-1", "object": kind, "created": CREATED, "model": manners.model}
    return f"data: {json.dumps({**stamp, **fields}, ensure_ascii=False)}\n\n".encode()


def _wants_usage(body: Mapping[str, Any]) -> bool:
    return bool((body.get("stream_options") or {}).get("include_usage"))
