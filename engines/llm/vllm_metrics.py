"""What a vLLM tells at /metrics, in the text format of Prometheus: its KV cache and its queue."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_SAMPLE: Final = re.compile(r"(vllm:\w+)(?:\{(.*)\})? (\S+)$")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class VLLMMetrics:
    """One reading. kv_tokens: tokens that the KV cache holds, None if it is not told.

    kv_usage: share of them that requests in progress hold (0..1); what is merely kept for reuse
    counts as free. running, waiting: requests. starved: those waiting for room in the cache.
    """

    kv_tokens: int | None = None
    kv_usage: float = 0.0
    block_tokens: int | None = None
    prefix_caching: bool | None = None
    running: int = 0
    waiting: int = 0
    starved: int = 0

    @property
    def free_tokens(self) -> int | None:
        """Tokens of KV that a new request would find; 0 while others wait for room."""
        if self.kv_tokens is None:
            return None
        return 0 if self.starved else int(self.kv_tokens * max(0.0, 1.0 - self.kv_usage))


def read(text: str) -> VLLMMetrics:
    """Reads a page; values of several engine cores behind one port are added up (usage: mean).

    Raises ValueError if nothing in it is a vLLM's.
    """
    sums: dict[str, list[float]] = {}
    config: dict[str, str] = {}
    for name, labels, value in _samples(text):
        reason = labels.get("reason", "")
        sums.setdefault(f"{name}/{reason}" if reason else name, []).append(value)
        if name == "vllm:cache_config_info":
            config = labels
    if not sums:
        raise ValueError("no metrics of a vLLM")
    block = _number(config.get("block_size"))
    blocks, engines = _number(config.get("num_gpu_blocks")), len(sums.get(_USAGE, ())) or 1
    caching = config.get("enable_prefix_caching")

    def total(name: str) -> int:
        return int(sum(sums.get(name, ())))

    return VLLMMetrics(
        kv_tokens=block * blocks * engines if block and blocks else None,
        kv_usage=sum(sums.get(_USAGE, ())) / engines,
        block_tokens=block,
        prefix_caching=None if caching is None else caching == "True",
        running=total("vllm:num_requests_running"),
        waiting=total("vllm:num_requests_waiting"),
        starved=total("vllm:num_requests_waiting_by_reason/capacity"),
    )


_USAGE: Final = "vllm:kv_cache_usage_perc"


def _samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for line in text.splitlines():
        if found := _SAMPLE.match(line):
            yield found[1], dict(_LABEL.findall(found[2] or "")), float(found[3])


def _number(value: str | None) -> int | None:
    return int(value) if value and value.isdigit() else None
