"""What model servers answer when they do not take a call, as each of them writes it.

Situations: `key` (a wrong API key), `model` (one that it does not have), `long` (a prompt beyond
the context), `field` (a field that it does not know), `tools` (a model without tools), `busy` (it
takes no more now), `used_up` (nothing more until somebody pays, or the next day), and `stream` (it
fails while it answers, which is an event of the stream). A situation that is missing does not
arise. Words in braces are filled in: {model}, {field}, {asked} and {limit} (tokens), {seconds}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

CONTEXT: Final = 4096
"""Tokens that a scripted server takes, at four characters each."""


@dataclass(frozen=True, slots=True)
class Refuses:
    """An answer that refuses. body: as JSON, or text as it is. event: of a stream, the name of the
    event, if it has one."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)
    event: str = ""

    def text(self, **words: object) -> str:
        """The body, filled in."""
        text = self.body if isinstance(self.body, str) else json.dumps(self.body)
        for name, value in words.items():
            text = text.replace(f"{{{name}}}", str(value))
        return text


R = Refuses
_SOON: Final = {"retry-after": "{seconds}"}


def _openai(message: str, type: str, code: Any = None, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


def _numbered(message: str, type: str, code: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "type": type}}


OPENAI: Final = {
    "key": R(401, _openai("Incorrect API key provided: sk-none. You can find your API key at "
        "https://platform.openai.com/account/api-keys.", "invalid_request_error",
        "invalid_api_key")),
    "model": R(404, _openai("The model `{model}` does not exist or you do not have access to it.",
        "invalid_request_error", "model_not_found")),
    "long": R(400, _openai("This model's maximum context length is {limit} tokens. However, your "
        "messages resulted in {asked} tokens. Please reduce the length of the messages.",
        "invalid_request_error", "context_length_exceeded", "messages")),
    "field": R(400, _openai("Unsupported parameter: '{field}' is not supported with this model.",
        "invalid_request_error", "unsupported_parameter", "{field}")),
    "tools": R(400, _openai("Invalid request: this model does not support tools.",
        "invalid_request_error", "unsupported_parameter", "tools")),
    "busy": R(429, _openai("Rate limit reached for {model} in organization org-1 on requests per "
        "min (RPM): Limit 3, Used 3, Requested 1. Please try again in {seconds}s.", "requests",
        "rate_limit_exceeded"), {"retry-after": "{seconds}", "retry-after-ms": "{seconds}000"}),
    "used_up": R(429, _openai("You exceeded your current quota, please check your plan and billing "
        "details.", "insufficient_quota", "insufficient_quota")),
    "stream": R(200, _openai("The server had an error while processing your request. Sorry about "
        "that!", "server_error")),
}  # fmt: skip

AZURE: Final = {
    "key": R(401, {"error": {"code": "401", "message": "Access denied due to invalid subscription "
        "key or wrong API endpoint. Make sure to provide a valid key for an active "
        "subscription."}}),
    "model": R(404, {"error": {"code": "DeploymentNotFound", "message": "The API deployment for "
        "this resource does not exist. If you created the deployment within the last 5 minutes, "
        "please wait a moment and try again."}}),
    "long": OPENAI["long"],
    "field": OPENAI["field"],
    "tools": OPENAI["tools"],
    "busy": R(429, {"error": {"code": "429", "message": "Requests to the "
        "ChatCompletions_Create Operation have exceeded token rate limit of your current pricing "
        "tier. Please retry after {seconds} seconds."}}, _SOON),
    "stream": OPENAI["stream"],
}  # fmt: skip

_GEMINI_QUOTA: Final = "type.googleapis.com/google.rpc.QuotaFailure"


def _gemini(code: int, status: str, message: str, *details: dict[str, Any]) -> Any:
    error: dict[str, Any] = {"code": code, "message": message, "status": status}
    return [{"error": error | ({"details": list(details)} if details else {})}]


GEMINI: Final = {
    "key": R(400, _gemini(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API "
        "key.", {"@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "API_KEY_INVALID"})),
    "model": R(404, _gemini(404, "NOT_FOUND", "models/{model} is not found for API version v1main, "
        "or is not supported for generateContent.")),
    "long": R(400, _gemini(400, "INVALID_ARGUMENT", "The input token count ({asked}) exceeds the "
        "maximum number of tokens allowed ({limit}).")),
    "field": R(400, _gemini(400, "INVALID_ARGUMENT", 'Invalid JSON payload received. Unknown name '
        '"{field}": Cannot find field.')),
    "tools": R(400, _gemini(400, "INVALID_ARGUMENT", "Function calling is not enabled for "
        "models/{model}; tools are not supported")),
    "busy": R(429, _gemini(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, please "
        "check your plan and billing details.", {"@type": _GEMINI_QUOTA, "violations": [
        {"quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "{seconds}s"})),
    "used_up": R(429, _gemini(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, please "
        "check your plan and billing details.", {"@type": _GEMINI_QUOTA, "violations": [
        {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "{seconds}s"})),
    "stream": R(200, _gemini(503, "UNAVAILABLE", "The model is overloaded. Please try again "
        "later.")),
}  # fmt: skip

ANTHROPIC: Final = {
    "key": R(401, _openai("invalid x-api-key", "authentication_error", "authentication_error")),
    "model": R(404, _openai("model: {model}", "not_found_error", "not_found_error")),
    "long": R(400, _openai("prompt is too long: {asked} tokens > {limit} maximum",
        "invalid_request_error", "invalid_request_error")),
    "tools": R(400, _openai("tools: this model does not support tools", "invalid_request_error",
        "invalid_request_error")),
    "busy": R(529, _openai("Overloaded", "overloaded_error", "overloaded_error"), _SOON),
    "used_up": R(400, _openai("Your credit balance is too low to access the Anthropic API. Please "
        "go to Plans & Billing to upgrade or purchase credits.", "invalid_request_error",
        "invalid_request_error")),
    "stream": R(200, _openai("Overloaded", "overloaded_error", "overloaded_error")),
}  # fmt: skip


def _mistral(message: Any, type: str, code: str | None) -> dict[str, Any]:
    return {"object": "error", "message": message, "type": type, "param": None, "code": code}


MISTRAL: Final = {
    "key": R(401, {"detail": "Unauthorized"}),
    "model": R(400, _mistral("Invalid model: {model}", "invalid_model", "1500")),
    "long": R(400, _mistral("Prompt contains {asked} tokens, too large for model with {limit} "
        "maximum context length", "invalid_request_prompt", "3051")),
    "field": R(422, _mistral({"detail": [{"type": "extra_forbidden", "loc": ["body", "{field}"],
        "msg": "Extra inputs are not permitted", "input": 7}]}, "invalid_request_error", None)),
    "tools": R(400, _mistral("Function calling is not enabled for this model; tools are not "
        "supported", "invalid_request_function_call", "3230")),
    "busy": R(429, _mistral("Rate limit exceeded", "rate_limited", "1300"), _SOON),
    "stream": R(200, _mistral("Internal server error", "internal_server_error", "3000")),
}  # fmt: skip


def _openrouter(code: int, message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "code": code, **more}}


OPENROUTER: Final = {
    "key": R(401, _openrouter(401, "No auth credentials found")),
    "model": R(400, _openrouter(400, "{model} is not a valid model ID")),
    "long": R(400, _openrouter(400, "This endpoint's maximum context length is {limit} tokens. "
        "However, you requested about {asked} tokens ({asked} of text input). Please reduce the "
        "length of either one.")),
    "tools": R(404, _openrouter(404, "No endpoints found that support tool use. To learn more "
        "about provider routing, visit: https://openrouter.ai/docs/provider-routing")),
    "busy": R(429, _openrouter(429, "Provider returned error", metadata={"raw": "{model} is "
        "temporarily rate-limited upstream.", "provider_name": "Somebody"}), _SOON),
    "used_up": R(402, _openrouter(402, "Insufficient credits. Add more using "
        "https://openrouter.ai/credits")),
    "stream": R(200, {"id": "gen-1", "object": "chat.completion.chunk", "created": 1760000000,
        "model": "{model}", "provider": "Somebody", "error": {"code": "server_error",
        "message": "Provider disconnected unexpectedly"}, "choices": [{"index": 0,
        "delta": {"content": ""}, "finish_reason": "error", "native_finish_reason": "error"}]}),
}  # fmt: skip

OLLAMA: Final = {
    "model": R(404, _openai('model "{model}" not found, try pulling it first', "not_found_error")),
    "tools": R(400, _openai("registry.ollama.ai/library/{model} does not support tools",
        "invalid_request_error")),
    "busy": R(503, _openai("server busy, please try again.  maximum pending requests exceeded",
        "api_error")),
    "stream": R(200, _openai("an error was encountered while running the model: CUDA error",
        "api_error")),
}  # fmt: skip

LLAMA_CPP: Final = {
    "key": R(401, _numbered("Invalid API Key", "authentication_error", 401)),
    "long": R(400, {"error": {"code": 400, "message": "request ({asked} tokens) exceeds the "
        "available context size ({limit} tokens), try increasing it",
        "type": "exceed_context_size_error", "n_prompt_tokens": 5000, "n_ctx": CONTEXT}}),
    "tools": R(500, _numbered("tools param requires --jinja flag", "server_error", 500)),
    "busy": R(503, _numbered("Loading model", "unavailable_error", 503)),
    "stream": R(200, _numbered("Context size has been exceeded.", "server_error", 500)),
}  # fmt: skip

LM_STUDIO: Final = {
    "model": R(404, _openai("Model \"{model}\" not found. Please specify a valid model.",
        "invalid_request_error", "model_not_found", "model")),
    "long": R(400, {"error": "Trying to keep the first {asked} tokens when context the overflows. "
        "However, the model is loaded with context length of only {limit} tokens, which is not "
        "enough. Try to load the model with a larger context length, or provide a shorter input"}),
    "stream": R(200, {"error": {"message": "The model has crashed without additional information. "
        "(Exit code: 6)"}}, event="error"),
}  # fmt: skip

VLLM: Final = {
    "key": R(401, {"error": "Unauthorized"}),
    "model": R(404, _openai("The model `{model}` does not exist.", "NotFoundError", 404, "model")),
    "long": R(400, _openai("This model's maximum context length is {limit} tokens. However, you "
        "requested {asked} tokens in the messages, Please reduce the length of the messages.",
        "BadRequestError", 400)),
    "tools": R(400, _openai('"auto" tool choice requires --enable-auto-tool-choice and '
        "--tool-call-parser to be set", "BadRequestError", 400)),
    "busy": R(503, _openai("The server has too many queued requests.", "ServiceUnavailable", 503),
        _SOON),
    "stream": R(200, _openai("EngineCore encountered an issue. See stack trace (above) for the "
        "root cause.", "InternalServerError", 500)),
}  # fmt: skip


def _sglang(message: str, type: str, code: int) -> dict[str, Any]:
    return {"object": "error", "message": message, "type": type, "param": None, "code": code}


SGLANG: Final = {
    "key": R(401, {"error": "Unauthorized"}),
    "long": R(400, _sglang("The input ({asked} tokens) is longer than the model's context length "
        "({limit} tokens).", "BadRequestError", 400)),
    "busy": R(503, _sglang("The request queue is full.", "ServiceUnavailable", 503)),
    "stream": R(200, {"error": _sglang("Aborted: the scheduler was stopped", "InternalServerError",
        500)}),
}  # fmt: skip

TGI: Final = {
    "long": R(422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must "
        "be <= {limit}. Given: {asked} `inputs` tokens and 16 `max_new_tokens`",
        "error_type": "validation"}),
    "field": R(422, "Failed to deserialize the JSON body into the target type: {field}: missing "
        "field `value` at line 1 column 200"),
    "busy": R(429, {"error": "Model is overloaded", "error_type": "overloaded"}),
    "stream": R(200, {"error": "Request failed during generation: Server error: CUDA out of memory",
        "error_type": "generation"}),
}  # fmt: skip
