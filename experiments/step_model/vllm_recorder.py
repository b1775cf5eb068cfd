"""Records a run of a real vLLM, in the form that `--run` reads. Started by `record.py`.

Run by path, with the interpreter of an environment that has vLLM; it imports nothing of Teola. It
reads what to do from stdin, one JSON object (`Recording` of recording.py), and writes the run to
a folder.

vLLM's engine runs here, step by step, and its clock is the processor time of this process: other
work on the machine hardly changes what is recorded. While nothing is to be done, the clock jumps to
the next request.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

WARM_UP = 8
"""Requests that run before any is recorded, so that what is loaded on first use is there."""
VOCABULARY = 8000
KEPT_BACK = 100
"""Token ids below this are special ones."""


def main() -> None:
    import vllm
    from vllm import EngineArgs, LLMEngine, SamplingParams
    from vllm.inputs import tokens_input

    told = json.load(sys.stdin)
    folder = Path(told["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    engine = LLMEngine.from_engine_args(EngineArgs(**told["engine_kwargs"], enforce_eager=True))
    cache = engine.vllm_config.cache_config
    chance = random.Random(told["seed"])
    asked = [_request(chance, told) for _ in range(told["requests"])]

    def add(name: str, prompt: list[int], output: int) -> None:
        params = SamplingParams(max_tokens=output, temperature=0.0, ignore_eos=True)
        engine.add_request(name, tokens_input(prompt), params)

    other = random.Random(-1)
    for number in range(WARM_UP):
        add(f"warm-{number}", _ids(other, 300), 40)
    while engine.has_unfinished_requests():
        engine.step()
    engine.reset_prefix_cache()

    at, arrivals = 0.0, []
    for _ in asked:
        arrivals.append(at)
        at += chance.expovariate(told["rate"])
    rows: list[dict[str, Any]] = []
    coming, ahead = 0, -time.process_time()
    while coming < len(asked) or engine.has_unfinished_requests():
        if not engine.has_unfinished_requests():
            ahead = max(ahead, arrivals[coming] - time.process_time())
        now = ahead + time.process_time()
        while coming < len(asked) and arrivals[coming] <= now:
            prompt, output = asked[coming]
            add(str(coming), prompt, output)
            row = {"input_toks": len(prompt), "output_toks": output, "queued_ts": arrivals[coming]}
            rows.append({"request_id": str(coming), **row})
            coming += 1
        for out in engine.step():
            row, now = rows[int(out.request_id)], ahead + time.process_time()
            if out.outputs and out.outputs[0].token_ids:
                row.setdefault("first_token_ts", now)
            if out.finished:
                assert len(out.outputs[0].token_ids) == row["output_toks"]
                row["last_token_ts"] = now
    meta = {
        "schema_version": 1,
        "vllm_version": vllm.__version__,
        "engine_kwargs": told["engine_kwargs"],
        "kv_cache": {"num_gpu_blocks": cache.num_gpu_blocks, "block_size": cache.block_size},
        "clock": "processor seconds of the engine's process",
    }
    (folder / "meta.json").write_text(json.dumps(meta, indent=2) + "\n")
    (folder / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _request(chance: random.Random, told: dict[str, Any]) -> tuple[list[int], int]:
    prompt = _ids(chance, chance.randint(*told["prompt"]))
    return prompt, chance.randint(*told["output"])


def _ids(chance: random.Random, length: int) -> list[int]:
    return [chance.randrange(KEPT_BACK, VOCABULARY) for _ in range(length)]


if __name__ == "__main__":
    main()
