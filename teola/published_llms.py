"""LLMs on machines of today, by name: the time of a step, fitted to published runs.

`teola profile fit` makes such a profile of runs of your own. These are fitted to runs of serving
engines (in-sample error 1 to 3 %), or added up from tables of kernels or from what a machine's
memory gives; a term of those that is 0 was not to be had.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from teola.cost import StepTime


class PublishedLLM(NamedTuple):
    """step: of chunked prefill, decodes first. token_budget: prompt tokens of a step. sequences: at
    once. kv_tokens: room for KV (None: not told). source: where the times come from."""

    step: StepTime
    source: str
    token_budget: int = 2048
    sequences: int = 256
    kv_tokens: int | None = None


def _step(base: float, sequence: float, context: float, token: float, pair: float = 0) -> StepTime:
    """From milliseconds: of a step, a sequence, 1,000 tokens of context, a prompt token, a pair."""
    return StepTime(base / 1e3, sequence / 1e3, context / 1e6, token / 1e3, pair / 1e3)


_TENSORRT: Final = "fitted to published runs of TensorRT-LLM"
_VLLM: Final = "fitted to published runs of vLLM"
_KERNELS: Final = "added up from tables of kernels, and 2 ms a step"
_MEMORY: Final = (
    "added up from an L4's memory: 13.5 GB of weights and 0.5 MB of KV a token at 300 GB/s; a "
    "prompt token is 13.5 GFLOP at 45 TFLOPS; not fitted to any run"
)

PUBLISHED: Final[Mapping[str, PublishedLLM]] = {
    "llama-8b-h100": PublishedLLM(
        _step(6.71, 0, 0.046, 0.023, 1.06e-6), _TENSORRT, kv_tokens=412_000
    ),
    "qwen-32b-h100x2": PublishedLLM(_step(14.1, 0.030, 0.067, 0.057), _VLLM),
    "qwen-32b-h100x4": PublishedLLM(_step(9.5, 0.055, 0.024, 0.033), _VLLM),
    "llama-70b-fp8-h100x4": PublishedLLM(_step(11.1, 0.050, 0.028, 0.049), _VLLM),
    "llama-70b-fp8-h100x8": PublishedLLM(_step(8.9, 0.060, 0.012, 0.033), _VLLM),
    "llama-8b-a6000": PublishedLLM(_step(25.5, 0, 0, 0.167), _KERNELS),
    "llama-8b-rtx4090": PublishedLLM(_step(19.8, 0, 0, 0.083), _KERNELS),
    "llama-8b-rtxpro6000": PublishedLLM(_step(13.0, 0, 0.092, 0.033), _KERNELS),
    "llama2-7b-l4": PublishedLLM(_step(45, 0, 1.7, 0.3), _MEMORY, kv_tokens=13_600),
}
"""Llama 3.1 8B and Llama 2 7B in 16 bits, 70B in fp8, Qwen3 32B in bfloat16; x4: over four of
them."""
