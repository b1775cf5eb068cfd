"""As much of vLLM as `vllm_worker` uses, where there is no vLLM: a folder to be put on the path.

It answers a prompt with the prompt's own ids, the last one first and round again. What it has
computed it keeps, in whole blocks, apart by salt. Some seeds have it misbehave: SEEDS. All that it
is asked is written to the file FAKE_VLLM_LOG names, one JSON object a line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from itertools import cycle, islice
from types import SimpleNamespace
from typing import Any

DIES, HANGS, ABORTS = 13, 14, 15
"""SEEDS: its engine dies; nothing comes after the first token; the call is ended as aborted."""
BLOCK, WINDOW, SLOTS, BLOCKS = 4, 4000, 4, 1000

_NAMES = (
    "config", "config.kv_events", "engine", "engine.arg_utils", "engine.protocol", "inputs",
    "platforms", "sampling_params", "v1", "v1.engine", "v1.engine.async_llm",
    "v1.engine.exceptions", "v1.metrics", "v1.metrics.loggers",
)  # fmt: skip
for _name in _NAMES:
    sys.modules[f"vllm.{_name}"] = sys.modules[__name__]

current_platform = SimpleNamespace(is_cpu=lambda: True)


class EngineDeadError(Exception):
    """Its engine process died."""


class StatLoggerBase:
    """What loggers of statistics are made of."""


class RequestOutputKind:
    """How much of an answer an output has."""

    DELTA = "delta"


class _Fields(SimpleNamespace):
    """What it was made with."""


class SamplingParams(_Fields):
    """How to go on from a prompt."""


class StructuredOutputsParams(_Fields):
    """What an answer is held to."""


class AsyncEngineArgs(_Fields):
    """Options of an engine."""


class KVEventsConfig(_Fields):
    """Where events are told."""


class StreamingInput(SimpleNamespace):
    """A piece of a session's prompt."""

    def __init__(self, prompt: Any, sampling_params: SamplingParams) -> None:
        super().__init__(prompt=prompt, sampling_params=sampling_params)


def tokens_input(ids: list[int], *, cache_salt: str) -> dict[str, Any]:
    """A prompt."""
    assert type(ids) is list, "vLLM changes it"
    return {"ids": ids, "salt": cache_salt}


def _plain(value: Any) -> Any:
    return vars(value) if isinstance(value, SimpleNamespace) else str(value)


def note(**fields: Any) -> None:
    """Write down what it is asked."""
    if name := os.environ.get("FAKE_VLLM_LOG"):
        with open(name, "a") as file:
            file.write(json.dumps(fields, default=_plain) + "\n")


class AsyncLLM:
    """The engine."""

    def __init__(self, args: AsyncEngineArgs, loggers: list[Any]) -> None:
        self.vllm_config = SimpleNamespace(
            model_config=SimpleNamespace(max_model_len=WINDOW),
            scheduler_config=SimpleNamespace(max_num_seqs=SLOTS),
            cache_config=SimpleNamespace(block_size=BLOCK, num_gpu_blocks=BLOCKS),
        )
        self._loggers = [make(self.vllm_config, 0) for make in loggers]
        self._kept: list[tuple[str, list[int]]] = []
        self._held: dict[str, int] = {}

    @classmethod
    def from_engine_args(cls, args: AsyncEngineArgs, stat_loggers: list[Any]) -> AsyncLLM:
        """Load it."""
        note(**vars(args), environment={k: v for k, v in os.environ.items() if "VLLM" in k})
        if args.dtype == "refused":
            raise RuntimeError("it did not start") from ValueError("no such\n  dtype")
        return cls(args, stat_loggers)

    def shutdown(self, timeout: float) -> None:
        """End it."""
        note(shutdown=timeout)

    async def generate(self, prompt: Any, params: SamplingParams, id: str, *, priority: int) -> Any:
        """Outputs of a prompt, or of each piece of a session as it comes."""
        try:
            if isinstance(prompt, dict):
                async for out in self._answer(prompt["ids"], prompt["salt"], params, id, priority):
                    yield out
            else:
                ids: list[int] = []
                async for piece in prompt:
                    ids += piece.prompt["ids"]
                    salt, params = piece.prompt["salt"], piece.sampling_params
                    async for out in self._answer(ids, salt, params, id, priority):
                        yield out
        finally:
            self._held.pop(id, None)
            self._record()
            note(ended=id)

    async def _answer(
        self, ids: list[int], salt: str, params: SamplingParams, id: str, priority: int
    ) -> Any:
        note(id=id, ids=ids, salt=salt, priority=priority, params=params)
        if params.seed == DIES:
            raise EngineDeadError
        if params.structured_outputs == StructuredOutputsParams(json="{"):
            raise RuntimeError("it cannot go on") from ValueError("no\n JSON schema")
        self._held[id] = len(ids)
        self._record()
        cached = max((_common(ids, kept) for of, kept in self._kept if of == salt), default=0)
        cached = min(cached, len(ids) - 1) // BLOCK * BLOCK
        self._kept.append((salt, list(ids)))
        yield SimpleNamespace(outputs=[])
        answer = list(islice(cycle(reversed(ids)), params.max_tokens))
        sizes = [1, *[2] * len(answer)]
        while answer:
            size = sizes.pop(0)
            piece, answer = answer[:size], answer[size:]
            finish = None if answer else ("abort" if params.seed == ABORTS else "length")
            text = "".join(f"<{k}>" for k in piece) if params.detokenize else ""
            found = SimpleNamespace(token_ids=piece, text=text, finish_reason=finish)
            yield SimpleNamespace(outputs=[found], num_cached_tokens=cached or None)
            if params.seed == HANGS:
                await asyncio.Event().wait()
            await asyncio.sleep(0)

    def _record(self) -> None:
        stats = SimpleNamespace(
            kv_cache_usage=sum(self._held.values()) / (BLOCKS * BLOCK),
            num_running_reqs=len(self._held),
            num_waiting_reqs=0,
            num_skipped_waiting_reqs=0,
        )
        for logger in self._loggers:
            logger.record(stats, None, mm_cache_stats=None)


def _common(ids: list[int], kept: list[int]) -> int:
    return next(
        (k for k, (a, b) in enumerate(zip(ids, kept, strict=False)) if a != b),
        min(len(ids), len(kept)),
    )
