"""A published run: what was asked when, and when each answer began and ended.

A folder has `requests.jsonl`, a line for each request (input_toks, output_toks, and queued_ts,
first_token_ts and last_token_ts in seconds of one clock), and `meta.json` with vLLM's own arguments
(engine_kwargs: max_num_seqs, max_num_batched_tokens).
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
    """requests: in order of their coming. The limits are vLLM's."""

    requests: tuple[RecordedRequest, ...]
    max_sequences: int
    token_budget: int


def load(folder: Path) -> RecordedRun:
    """Read a run. Raises InputError if it is none, or too short to learn from."""
    try:
        lines = (folder / "requests.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines if line.strip()]
        limits = json.loads((folder / "meta.json").read_text()).get("engine_kwargs", {})
        requests = _requests(rows)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{folder} is no recorded run: {error}") from None
    if len(requests) < 30:
        raise InputError(f"{folder} has {len(requests)} requests; it takes at least 30")
    return RecordedRun(
        requests,
        limits.get("max_num_seqs") or SEQUENCES,
        limits.get("max_num_batched_tokens") or BATCHED_TOKENS,
    )


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
