"""Answers as servers and what stands before them send them, and what is to be read.

Each is the body of an answer to a request for a stream, byte for byte, with where it was reported.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from experiments.common.scripted.server import Raw


@dataclass(frozen=True, slots=True)
class Odd:
    """name: what is odd. where: it was reported, or is documented. raw: what is sent. text: to be
    read; calls: instead; fails: the call fails, and whether it may be tried again."""

    name: str
    where: str
    raw: Raw
    text: str | None = None
    calls: list[dict[str, Any]] | None = None
    fails: bool | None = None


def _event(delta: object, reason: str | None = None, **more: Any) -> bytes:
    choice: dict[str, Any] = {"index": 0, "finish_reason": reason, **more}
    if delta is not ...:
        choice["delta"] = delta
    return _data({"choices": [choice]})


def _data(fields: Any) -> bytes:
    if isinstance(fields, dict) and "choices" in fields:
        stamp = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        fields = stamp | fields
    return f"data: {json.dumps(fields, ensure_ascii=False)}\n\n".encode()


def _call(
    arguments: object, name: str = "", id: str = "", index: int | None = None
) -> dict[str, Any]:
    function: dict[str, Any] = {"arguments": arguments}
    if name:
        function["name"] = name
    call: dict[str, Any] = {"type": "function", "function": function}
    return call | ({"id": id} if id else {}) | ({} if index is None else {"index": index})


def _calls(*calls: dict[str, Any]) -> bytes:
    return _event({"tool_calls": list(calls)})


HEAD: Final = _event({"role": "assistant", "content": ""})
HELLO: Final = (_event({"content": "Hel"}), _event({"content": "lo"}))
STOP: Final = _event({}, "stop")
CALLED: Final = _event({}, "tool_calls")
USAGE: Final = _data({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}})
DONE: Final = b"data: [DONE]\n\n"
OSLO: Final = '{"city": "Oslo"}'
ROME: Final = '{"city": "Rome"}'
ONE: Final = [{"tool": "weather", "args": {"city": "Oslo"}}]
TWO: Final = [*ONE, {"tool": "weather", "args": {"city": "Rome"}}]


def _text(name: str, where: str, *body: bytes, text: str = "Hello", **more: Any) -> Odd:
    return Odd(name, where, Raw(body, **more), text=text)


def _tools(name: str, where: str, *body: bytes, calls: list[dict[str, Any]]) -> Odd:
    return Odd(name, where, Raw((HEAD, *body, CALLED, DONE)), calls=calls)


def _error(name: str, where: str, *body: bytes, retryable: bool = True, **more: Any) -> Odd:
    return Odd(name, where, Raw(body, **more), fails=retryable)


_GITHUB: Final = "https://github.com"
_SSE: Final = "https://html.spec.whatwg.org/multipage/server-sent-events.html"
_JSON: Final = "application/json"

ODD: Final = (
    _text("no [DONE]", f"{_GITHUB}/ollama/ollama/issues/7363", HEAD, *HELLO, STOP),
    _text("no usage", "https://docs.mistral.ai/api/", HEAD, *HELLO, STOP, DONE),
    _text(
        "comments",
        "https://openrouter.ai/docs/api/reference/streaming",
        b": OPENROUTER PROCESSING\n\n" * 3,
        HEAD,
        HELLO[0],
        b":\n\n",
        HELLO[1],
        b": ping - 2026-01-01\n\n",
        STOP,
        DONE,
    ),
    _text("lines that end with CR LF", _SSE,
        *(one.replace(b"\n", b"\r\n") for one in (HEAD, *HELLO, STOP, DONE))),
    _text("no space behind the colon", _SSE,
        *(one.replace(b"data: ", b"data:") for one in (HEAD, *HELLO, STOP, DONE))),
    _text("other fields of events", _SSE, b"retry: 3000\n\n",
        *(b"event: message\nid: 7\n" + one for one in (HEAD, *HELLO, STOP, DONE))),
    _text("a character cut in two", _SSE, HEAD,
        *(bytes([byte]) for byte in _event({"content": "Zürich"})), STOP, DONE, text="Zürich"),
    _text("other separators of lines within a text", f"{_GITHUB}/openai/openai-python/issues/1532",
        HEAD, _event({"content": "a\u2028b\x85c"}), STOP, DONE, text="a\u2028b\x85c"),
    _text("a line of 300 KB", "https://docs.vllm.ai", HEAD, _event({"content": "x" * 300_000}),
        STOP, DONE, text="x" * 300_000),
    _text("the last line lacks its end", f"{_GITHUB}/sashabaranov/go-openai/issues/792", HEAD,
        *HELLO, STOP.rstrip(b"\n")),
    _text("a filter's findings first, without choices", f"{_GITHUB}/simonw/llm/issues/294",
        _data({"choices": [], "prompt_filter_results": []}), HEAD, *HELLO, STOP, DONE),
    _text("a choice without a delta", f"{_GITHUB}/langchain-ai/langchain/issues/18977",
        HEAD, *HELLO, _event(..., None, content_filter_results={}), STOP, DONE),
    _text("content null", f"{_GITHUB}/ggml-org/llama.cpp/pull/14566",
        _event({"role": "assistant", "content": None}), *HELLO, STOP, DONE),
    _text("content in parts", "https://docs.mistral.ai/capabilities/reasoning/", HEAD,
        _event({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]}),
        _event({"content": [{"type": "text", "text": "Hello"}]}), STOP, DONE),
    _text("no content", "https://platform.openai.com/docs/api-reference/chat-streaming",
        _event({"role": "assistant"}), *HELLO, STOP, DONE),
    _text("a message in place of a delta", f"{_GITHUB}/lm-sys/FastChat/issues/2512",
        _event(..., None, message={"role": "assistant", "content": "Hello"}),
        _event(..., "stop", message={"content": ""}), DONE),
    _text("counts of null", f"{_GITHUB}/vllm-project/vllm/issues/9693", HEAD, *HELLO, STOP,
        _data({"choices": [], "usage": {"prompt_tokens": None, "completion_tokens": None}}), DONE),
    _text("reasoning_content", "https://api-docs.deepseek.com/guides/reasoning_model",
        _event({"content": None, "reasoning_content": "Hm."}), *HELLO, STOP, DONE),
    _text("an end that nobody documents", f"{_GITHUB}/BerriAI/litellm/issues/12481", HEAD, *HELLO,
        _event({}, "eos_token"), DONE),
    _text("whole, though a stream was asked for", "https://docs.ollama.com/api/openai-compatibility",
        json.dumps({"object": "chat.completion", "choices": [{"index": 0, "finish_reason": "stop",
        "message": {"role": "assistant", "content": "Hello"}}]}).encode(), type=_JSON),
    _tools("calls without an index", f"{_GITHUB}/openai/openai-python/issues/2806",
        _calls(_call(OSLO, "weather", "a")), _calls(_call(ROME, "weather", "b")), calls=TWO),
    _tools("calls that all have index 0", f"{_GITHUB}/su-kaka/gcli2api/pull/406",
        _calls(_call(OSLO, "weather", "a", 0)), _calls(_call(ROME, "weather", "b", 0)), calls=TWO),
    _tools("calls that come interleaved", "https://docs.sglang.ai/advanced_features/tool_parser.html",
        _calls(_call("", "weather", "a", 0), _call("", "weather", "b", 1)),
        _calls(_call(ROME[:6], index=1)), _calls(_call(OSLO[:9], index=0)),
        _calls(_call(ROME[6:], index=1)), _calls(_call(OSLO[9:], index=0)), calls=TWO),
    _tools("whole calls in one event", "https://docs.mistral.ai/capabilities/function_calling/",
        _calls(_call(OSLO, "weather", "a", 0), _call(ROME, "weather", "b", 1)), calls=TWO),
    _tools("a call in place of a list", "https://huggingface.co/docs/text-generation-inference",
        _event({"tool_calls": _call(OSLO, "weather", "a", 0)}), calls=ONE),
    _tools("arguments that are no text", f"{_GITHUB}/ollama/ollama/issues/6473",
        _calls(_call({"city": "Oslo"}, "weather", "a", 0)), calls=ONE),
    _error("an error in the stream", "https://platform.openai.com/docs/guides/error-codes", HEAD,
        HELLO[0], _data({"error": {"message": "The server had an error", "type": "server_error"}})),
    _error("an error in a list", f"{_GITHUB}/n4ze3m/page-assist/issues/406", HEAD, HELLO[0],
        _data([{"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}])),
    _error("an error that is a text", "https://huggingface.co/docs/text-generation-inference", HEAD,
        HELLO[0], _data({"error": "Request failed during generation", "error_type": "generation"})),
    _error("an error beside a choice", "https://openrouter.ai/docs/api/reference/errors", HEAD,
        HELLO[0], _data({"error": {"code": "server_error", "message": "Provider disconnected"},
        "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]})),
    _error("an error as a field of its own", f"{_GITHUB}/ggml-org/llama.cpp/issues/16104", HEAD,
        HELLO[0], b'error: {"code": 500, "message": "Context size has been exceeded."}\n\n'),
    _error("an error as an event of its own", "https://lmstudio.ai/docs/developer/openai-compat",
        HEAD, HELLO[0], b"event: error\n" + _data({"error": {"message": "The model has crashed"}})),
    _error("an error as JSON, with status 200",
        f"{_GITHUB}/lmstudio-ai/lmstudio-bug-tracker/issues/618",
        json.dumps({"error": "Unexpected endpoint or method. (POST /chat/completions)"}).encode(),
        type=_JSON),
    _error("a proxy's page, with status 200", f"{_GITHUB}/openai/openai-python/issues/2161",
        b"<html><body>Welcome</body></html>", type="text/html"),
    _error("a proxy's page, with status 502", "https://nginx.org/en/docs/http/ngx_http_proxy_module.html",
        b"<html><body>502 Bad Gateway</body></html>", type="text/html", status=502),
    _error("an end before the end", f"{_GITHUB}/openai/openai-python/issues/1304", HEAD, *HELLO),
    _error("an end within an event", f"{_GITHUB}/vllm-project/vllm/issues/4565", HEAD, *HELLO,
        STOP[:30]),
    _error("an end that gives up", "https://docs.vllm.ai", HEAD, *HELLO, _event({}, "abort"), DONE),
)  # fmt: skip
