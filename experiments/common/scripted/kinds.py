"""How the model servers of the world differ, each difference with where it is documented.

`Manners` are OpenAI's own where a kind says nothing else. A kind is a list of differences, so that
the table can be read beside the pages that it was made from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from experiments.common.scripted import refusals
from experiments.common.scripted.refusals import Refuses


@dataclass(frozen=True, slots=True)
class Manners:
    """How a server answers.

    path: where its API begins. listed: its entry of /models, besides the name. version: what GET
    /version answers, if anything. lost: status and body where there is nothing.
    keyed: it wants an API key. any_model: it serves what it has, whatever model is asked for.
    limits: names of the longest answer that it knows. unknown: fields that it refuses. ignored:
    fields that it takes and does not heed. warm_only: it takes no temperature but 1.
    first: the first event of an answer: `role`, `null` (the same with content null), `filter` (what
    a filter found, without choices, then role), or none. role: each event repeats it.
    end: how an answer ends: `own` (an event without content), `blank` (one with an empty content),
    or `last` (in the event of the last piece). usage: counts come when they are asked for, with the
    last event, with each event, or never. more: further fields of each choice. comments: lines
    before an answer.
    tools: how calls are streamed: `pieces`, `whole` (each in one event), `bare` (the same without
    an index) or `alone` (a call in place of a list). tools_end: the finish reason of an answer that
    calls. thoughts: the field of what a model thinks, if it tells it.
    budgets: which headers tell what is left. refuses: what it answers in which situation.
    """

    name: str = "OpenAI"
    path: str = "/v1"
    model: str = "gpt-5-mini"
    listed: Mapping[str, Any] = field(default_factory=lambda: {"owned_by": "system"})
    version: str | None = None
    lost: tuple[int, Any] = (404, {"error": {"message": "Not found"}})
    keyed: bool = True
    any_model: bool = False
    limits: tuple[str, ...] = ("max_tokens", "max_completion_tokens")
    unknown: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    warm_only: bool = False
    first: Literal["role", "null", "filter", "none"] = "role"
    role: bool = False
    end: Literal["own", "blank", "last"] = "own"
    usage: Literal["asked", "last", "each", "never"] = "asked"
    more: Mapping[str, Any] = field(default_factory=dict)
    comments: tuple[str, ...] = ()
    tools: Literal["pieces", "whole", "bare", "alone"] = "pieces"
    tools_end: str = "tool_calls"
    thoughts: str | None = None
    budgets: Literal["openai", "azure", "anthropic", "mistral", "none"] = "none"
    refuses: Mapping[str, Refuses] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of `Manners`, its value, and where that is documented or reported."""

    what: str
    value: Any
    where: str


D = Difference

_OPENAI: Final = "https://platform.openai.com/docs/api-reference/chat/create"
_LIMITS: Final = "https://platform.openai.com/docs/guides/rate-limits"
_AZURE: Final = "https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle"
_GEMINI: Final = "https://ai.google.dev/gemini-api/docs/openai"
_ANTHROPIC: Final = "https://platform.claude.com/docs/en/api/openai-sdk"
_MISTRAL: Final = "https://docs.mistral.ai/api/"
_ROUTER: Final = "https://openrouter.ai/docs/api/reference/streaming"
_OLLAMA: Final = "https://docs.ollama.com/api/openai-compatibility"
_LLAMA: Final = "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md"
_STUDIO: Final = "https://lmstudio.ai/docs/developer/openai-compat"
_STUDIO_LOST: Final = "https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/618"
_VLLM: Final = "https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html"
_SGLANG: Final = "https://docs.sglang.ai/basic_usage/openai_api.html"
_TGI: Final = "https://huggingface.co/docs/text-generation-inference/reference/api_reference"
_TGI_TOOLS: Final = (
    "https://huggingface.co/docs/text-generation-inference/basic_tutorials/using_guidance"
)

KINDS: Final[Mapping[str, tuple[Difference, ...]]] = {
    "OpenAI": (
        D("budgets", "openai", _LIMITS),
        D("refuses", refusals.OPENAI, "https://platform.openai.com/docs/guides/error-codes"),
    ),
    "OpenAI, reasoning": (
        D("model", "o4-mini", "https://platform.openai.com/docs/models/o4-mini"),
        D("unknown", ("max_tokens",), "https://platform.openai.com/docs/guides/reasoning"),
        D("warm_only", True, "https://platform.openai.com/docs/guides/reasoning"),
        D("budgets", "openai", _LIMITS),
        D("refuses", refusals.OPENAI, "https://platform.openai.com/docs/guides/error-codes"),
    ),
    "Azure OpenAI": (
        D("path", "/openai/v1", _AZURE),
        D("model", "my-deployment", _AZURE),
        D("first", "filter", "https://github.com/openai/openai-python/issues/1677"),
        D(
            "more",
            {"content_filter_results": {"hate": {"filtered": False, "severity": "safe"}}},
            "https://learn.microsoft.com/azure/ai-foundry/openai/concepts/content-streaming",
        ),
        D(
            "budgets",
            "azure",
            "https://learn.microsoft.com/azure/ai-foundry/openai/how-to/quota",
        ),
        D(
            "refuses",
            refusals.AZURE,
            "https://learn.microsoft.com/azure/ai-foundry/openai/how-to/quota",
        ),
    ),
    "Gemini": (
        D("path", "/v1beta/openai", _GEMINI),
        D("model", "gemini-3-flash", _GEMINI),
        D("listed", {"owned_by": "google"}, _GEMINI),
        D("first", "none", _GEMINI),
        D("role", True, _GEMINI),
        D("end", "last", _GEMINI),
        D("usage", "each", _GEMINI),
        D("ignored", ("seed",), _GEMINI),
        D("tools", "bare", "https://github.com/openai/openai-python/issues/2806"),
        D("tools_end", "stop", "https://github.com/open-webui/computer/issues/224"),
        D("refuses", refusals.GEMINI, "https://ai.google.dev/gemini-api/docs/troubleshooting"),
    ),
    "Anthropic": (
        D("model", "claude-sonnet-4-5", _ANTHROPIC),
        D("listed", {"owned_by": "anthropic"}, _ANTHROPIC),
        D("ignored", ("seed", "response_format"), _ANTHROPIC),
        D("budgets", "anthropic", "https://platform.claude.com/docs/en/api/rate-limits"),
        D("refuses", refusals.ANTHROPIC, "https://platform.claude.com/docs/en/api/errors"),
    ),
    "Mistral": (
        D("model", "mistral-small-latest", _MISTRAL),
        D("listed", {"owned_by": "mistralai"}, _MISTRAL),
        D("limits", ("max_tokens",), _MISTRAL),
        D(
            "unknown",
            ("seed", "max_completion_tokens"),
            "https://github.com/Vali-98/ChatterUI/issues/143",
        ),
        D("end", "blank", _MISTRAL),
        D("usage", "last", _MISTRAL),
        D("tools", "whole", "https://docs.mistral.ai/capabilities/function_calling/"),
        D("budgets", "mistral", "https://github.com/mistralai/client-ts/issues/169"),
        D("refuses", refusals.MISTRAL, "https://docs.mistral.ai/resources/error-glossary"),
    ),
    "OpenRouter": (
        D("path", "/api/v1", _ROUTER),
        D("model", "openai/gpt-5-mini", _ROUTER),
        D("listed", {}, "https://openrouter.ai/docs/api/api-reference/models/get-models"),
        D("role", True, _ROUTER),
        D("end", "blank", _ROUTER),
        D("comments", (": OPENROUTER PROCESSING",) * 2, _ROUTER),
        D("more", {"native_finish_reason": None}, "https://openrouter.ai/docs/api/reference"),
        D(
            "thoughts",
            "reasoning",
            "https://openrouter.ai/docs/guides/best-practices/reasoning-tokens",
        ),
        D("refuses", refusals.OPENROUTER, "https://openrouter.ai/docs/api/reference/errors"),
    ),
    "Ollama": (
        D("model", "llama3.2", _OLLAMA),
        D("listed", {"owned_by": "library"}, _OLLAMA),
        D("version", None, _OLLAMA),
        D("keyed", False, _OLLAMA),
        D("limits", ("max_tokens",), _OLLAMA),
        D("first", "none", "https://github.com/ollama/ollama/blob/main/openai/openai.go"),
        D("role", True, "https://github.com/ollama/ollama/blob/main/openai/openai.go"),
        D("end", "blank", "https://github.com/ollama/ollama/blob/main/openai/openai.go"),
        D("tools", "whole", "https://github.com/ollama/ollama/issues/9632"),
        D("thoughts", "reasoning", _OLLAMA),
        D("refuses", refusals.OLLAMA, "https://docs.ollama.com/api/errors"),
    ),
    "llama.cpp": (
        D("model", "model.gguf", _LLAMA),
        D("listed", {"owned_by": "llamacpp", "meta": {"n_ctx_train": 4096}}, _LLAMA),
        D("any_model", True, _LLAMA),
        D("first", "null", "https://github.com/ggml-org/llama.cpp/pull/14566"),
        D("thoughts", "reasoning_content", _LLAMA),
        D("refuses", refusals.LLAMA_CPP, "https://github.com/ggml-org/llama.cpp/pull/15780"),
    ),
    "LM Studio": (
        D("model", "qwen3-8b", _STUDIO),
        D("listed", {"owned_by": "organization_owner"}, _STUDIO),
        D(
            "lost",
            (200, {"error": "Unexpected endpoint or method. (GET /version)"}),
            _STUDIO_LOST,
        ),
        D("keyed", False, _STUDIO),
        D("limits", ("max_tokens",), _STUDIO),
        D("role", True, _STUDIO),
        D("thoughts", "reasoning_content", "https://lmstudio.ai/docs/app/api/changelog"),
        D(
            "refuses",
            refusals.LM_STUDIO,
            "https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/2339",
        ),
    ),
    "vLLM": (
        D("model", "meta-llama/Llama-3.1-8B-Instruct", _VLLM),
        D("listed", {"owned_by": "vllm", "max_model_len": 4096}, _VLLM),
        D("version", "0.32.0", _VLLM),
        D(
            "thoughts",
            "reasoning",
            "https://docs.vllm.ai/en/latest/features/reasoning_outputs.html",
        ),
        D("refuses", refusals.VLLM, _VLLM),
    ),
    "SGLang": (
        D("model", "meta-llama/Llama-3.1-8B-Instruct", _SGLANG),
        D("listed", {"owned_by": "sglang", "max_model_len": 4096}, _SGLANG),
        D("more", {"matched_stop": None}, _SGLANG),
        D("any_model", True, _SGLANG),
        D(
            "thoughts",
            "reasoning_content",
            "https://docs.sglang.ai/advanced_features/separate_reasoning.html",
        ),
        D("refuses", refusals.SGLANG, _SGLANG),
    ),
    "TGI": (
        D("model", "tgi", _TGI),
        D("listed", {"owned_by": "meta-llama/Llama-3.1-8B-Instruct"}, _TGI),
        D("keyed", False, _TGI),
        D("any_model", True, _TGI),
        D("limits", ("max_tokens",), _TGI),
        D("unknown", ("response_format",), _TGI_TOOLS),
        D("first", "none", _TGI),
        D("role", True, _TGI),
        D("end", "last", _TGI),
        D("tools", "alone", _TGI_TOOLS),
        D("tools_end", "stop", _TGI_TOOLS),
        D("refuses", refusals.TGI, _TGI),
    ),
}
"""By the name of the kind. The last value of a field counts."""


def manners(kind: str) -> Manners:
    """How a server of this kind answers. Raises KeyError."""
    return replace(Manners(name=kind), **{one.what: one.value for one in KINDS[kind]})
