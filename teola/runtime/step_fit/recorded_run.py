"""A published run: what was asked when, and when each answer began and ended.

A folder has `requests.jsonl`, a line for each request (input_toks, output_toks, and queued_ts,
first_token_ts and last_token_ts in seconds of one clock), and `meta.json` with vLLM's own arguments
(engine_kwargs: max_num_seqs, max_num_batched_tokens, block_size, num_gpu_blocks_override,
enable_prefix_caching) and what it found room for (kv_cache: num_gpu_blocks, block_size, and
own_blocks, which no request gets: one unless it says otherwise).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from teola.errors import InputError

SEQUENCES: Final = 128
BATCHED_TOKENS: Final = 2048
"""Limits that a run is taken to have had if it does not say."""
BLOCK_TOKENS: Final = 16
OWN_BLOCKS: Final = 1
"""KV blocks that vLLM keeps for itself; nothing is ever in them."""


class RecordedRequest(NamedTuple):
    """One request. Lengths in tokens; seconds after the run's first request."""

    prompt: int
    output: int
    queued: float
    first: float
    last: float

    @property
    def ttft_s(self) -> float:
        """Seconds to the first token."""
        return self.first - self.queued

    @property
    def tpot_s(self) -> float:
        """Seconds between two tokens."""
        return (self.last - self.first) / max(1, self.output - 1)

    @property
    def latency_s(self) -> float:
        return self.last - self.queued


@dataclass(frozen=True)
class RecordedRun:
    """requests: in order of their coming. The limits are vLLM's. kv_blocks: what its KV memory
    holds, in blocks of `block_tokens` tokens (None: the run does not tell). finds: whether a
    request that was preempted finds again what it had computed."""

    requests: tuple[RecordedRequest, ...]
    max_sequences: int
    token_budget: int
    kv_blocks: int | None = None
    block_tokens: int = BLOCK_TOKENS
    finds: bool = True

    @property
    def largest(self) -> int:
        """Blocks of the request that needs most of them; the last token of an answer needs none."""
        tokens = (one.prompt + max(0, one.output - 1) for one in self.requests)
        return -(-max(tokens) // self.block_tokens)


def load(folder: Path) -> RecordedRun:
    """Read a run. Raises InputError if it is none, or too short to learn from."""
    try:
        lines = (folder / "requests.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines if line.strip()]
        meta = json.loads((folder / "meta.json").read_text())
        limits, memory = meta.get("engine_kwargs") or {}, meta.get("kv_cache") or {}
        blocks = memory.get("num_gpu_blocks") or limits.get("num_gpu_blocks_override")
        block_tokens = memory.get("block_size") or limits.get("block_size") or BLOCK_TOKENS
        requests = _requests(rows)
        run = RecordedRun(
            requests,
            int(limits.get("max_num_seqs") or SEQUENCES),
            int(limits.get("max_num_batched_tokens") or BATCHED_TOKENS),
            int(blocks) - int(memory.get("own_blocks", OWN_BLOCKS)) if blocks else None,
            int(block_tokens),
            limits.get("enable_prefix_caching") is not False,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{folder} is no recorded run: {error}") from None
    if len(requests) < 30:
        raise InputError(f"{folder} has {len(requests)} requests; it takes at least 30")
    if run.kv_blocks is not None and run.largest > run.kv_blocks:
        raise InputError(
            f"{folder}: a request takes {run.largest} KV blocks of {run.block_tokens} tokens, and "
            f"meta.json tells of {run.kv_blocks}: correct kv_cache there"
        )
    return run


def _requests(rows: list[dict[str, Any]]) -> tuple[RecordedRequest, ...]:
    rows = sorted(rows, key=lambda row: row["queued_ts"])
    start = rows[0]["queued_ts"] if rows else 0.0
    return tuple(
        RecordedRequest(
            int(row["input_toks"]),
            int(row["output_toks"]),
            *(float(row[at] - start) for at in ("queued_ts", "first_token_ts", "last_token_ts")),
        )
        for row in rows
    )
