"""Records a run of the engine `transformers` in this process, in the form that `--run` reads.

The engine is asked as an application asks it, and the clock is the machine's: nothing else should
run there. Prompts are random words, of which no two begin alike. As many other requests run before,
so that what is loaded or recorded on first use is there.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from experiments.decoding.asking import text_of
from experiments.step_model.recording import Recording
from teola.engine import Call, Delta, QueryContext, TextPart
from teola.graph.ops import DecodeParams
from teola.graph.prompt import Role
from teola.runtime import machine
from teola_engines.llm import TransformersModel


@dataclass
class _Request:
    """What is asked when, and what became of it: seconds after the run began."""

    text: str
    output: int
    arrival: float
    row: dict[str, Any] = field(default_factory=dict)


def record(told: Recording, blocks: int | None) -> None:
    """Run the requests and write requests.jsonl and meta.json to the folder. blocks: KV blocks
    that the engine has; None: plenty."""
    kwargs = told.engine_kwargs
    engine = TransformersModel(
        model=kwargs["model"],
        dtype=kwargs["dtype"],
        block_tokens=kwargs["block_size"],
        max_batch=kwargs["max_num_batched_tokens"],
        max_sequences=kwargs["max_num_seqs"],
        kv_blocks=blocks,
        chat=False,
    )
    engine.start()
    try:
        warm = random.Random(told.seed + 1_000_003)
        asyncio.run(_run(engine, _requests(engine, told, warm)))
        requests = _requests(engine, told, random.Random(told.seed))
        asyncio.run(_run(engine, requests))
        assert engine.kv is not None
        memory = {"num_gpu_blocks": engine.kv.blocks, "block_size": kwargs["block_size"]}
    finally:
        engine.close()
    meta = {
        "schema_version": 1,
        "engine": "transformers",
        "engine_kwargs": kwargs,
        "kv_cache": {**memory, "own_blocks": 0},
        "clock": "seconds of the clock",
        "transformers_version": version("transformers"),
        "machine": machine.describe(("torch", "transformers")),
    }
    told_folder = Path(told.folder)
    told_folder.mkdir(parents=True, exist_ok=True)
    (told_folder / "meta.json").write_text(json.dumps(meta, indent=2) + "\n")
    lines = (json.dumps(one.row) + "\n" for one in requests)
    (told_folder / "requests.jsonl").write_text("".join(lines))


def _requests(engine: TransformersModel, told: Recording, chance: random.Random) -> list[_Request]:
    found, at = [], 0.0
    for _ in range(told.requests):
        wanted, output = chance.randint(*told.prompt), chance.randint(*told.output)
        found.append(_Request(text_of(engine, chance, wanted), output, at))
        at += chance.expovariate(told.rate)
    return found


async def _run(engine: TransformersModel, requests: list[_Request]) -> None:
    began = time.monotonic()

    async def ask(number: int, request: _Request) -> None:
        decode = DecodeParams(max_tokens=request.output, ignore_eos=True)
        parts = (TextPart(Role.QUESTION, request.text),)
        call, last = Call(QueryContext(str(number)), parts, decode), Delta("")
        row = request.row
        row["request_id"], row["queued_ts"] = str(number), time.monotonic() - began
        async for delta in engine.generate(call):
            last = delta
            row.setdefault("first_token_ts", time.monotonic() - began)
        row["last_token_ts"] = time.monotonic() - began
        assert last.usage is not None
        assert last.usage.cached_tokens == 0, "two prompts begin alike"
        row |= {"input_toks": last.usage.prompt_tokens, "output_toks": last.usage.completion_tokens}

    async with asyncio.TaskGroup() as group:
        for number, request in enumerate(requests):
            await asyncio.sleep(request.arrival - (time.monotonic() - began))
            group.create_task(ask(number, request))
