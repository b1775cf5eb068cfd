"""Pages of metrics: one engine core or several, and what is not told."""

from __future__ import annotations

import pytest

from teola_engines.llm.vllm_metrics import VLLMMetrics, read

CONFIG = (
    'vllm:cache_config_info{block_size="16",enable_prefix_caching="True",num_gpu_blocks="10"} 1'
)


def usage(engine: int, share: float) -> str:
    return f'vllm:kv_cache_usage_perc{{engine="{engine}"}} {share}'


def waits(reason: str, count: int) -> str:
    return f'vllm:num_requests_waiting_by_reason{{engine="0",reason="{reason}"}} {count}.0'


def running(engine: int, count: int) -> str:
    return f'vllm:num_requests_running{{engine="{engine}"}} {count}.0'


@pytest.mark.parametrize(
    ("lines", "told", "free"),
    [
        ([CONFIG], VLLMMetrics(160, 0.0, 16, prefix_caching=True), 160),
        ([CONFIG, usage(0, 0.25)], VLLMMetrics(160, 0.25, 16, prefix_caching=True), 120),
        ([CONFIG, usage(0, 0.5), usage(1, 0.25), running(0, 2), running(1, 3)],
         VLLMMetrics(320, 0.375, 16, prefix_caching=True, running=5), 200),
        ([CONFIG, usage(0, 1.5)], VLLMMetrics(160, 1.5, 16, prefix_caching=True), 0),
        ([CONFIG, waits("capacity", 1), "vllm:num_requests_waiting 4"],
         VLLMMetrics(160, 0.0, 16, prefix_caching=True, waiting=4, starved=1), 0),
        ([CONFIG, waits("deferred", 1)], VLLMMetrics(160, 0.0, 16, prefix_caching=True), 160),
        ([CONFIG.replace("True", "False")], VLLMMetrics(160, 0.0, 16, prefix_caching=False), 160),
        ([CONFIG.replace('"10"', '"None"')], VLLMMetrics(None, 0.0, 16, prefix_caching=True), None),
        ([running(0, 1)], VLLMMetrics(running=1), None),
    ],
)  # fmt: skip
def test_what_a_page_tells(lines: list[str], told: VLLMMetrics, free: int | None) -> None:
    page = "\n".join(["# HELP vllm:x of vllm:y", "python_info 1", *lines])
    assert read(page) == told
    assert told.free_tokens == free


def test_labels_may_hold_any_text() -> None:
    labels = 'model_name="a \\"b\\", } x",block_size="16",num_gpu_blocks="2"'
    assert read(f"vllm:cache_config_info{{{labels}}} 1.0").kv_tokens == 32


@pytest.mark.parametrize("page", ["", "python_info 1.0", "# vllm:x 1", "sglang:num_requests 3"])
def test_a_page_of_another_server_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="no metrics of a vLLM"):
        read(page)
