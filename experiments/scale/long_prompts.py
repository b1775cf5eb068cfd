"""Calls with prompts of 7,000 tokens, most of which other calls have had: how many a second."""

from __future__ import annotations

import random
import time
from typing import Any, Final

from teola.graph import Graph, Op, Primitive, Ref
from teola.graph.ops import DecodeParams, PrefillParams
from teola.graph.prompt import Part, Prompt, Role
from teola.profile import EngineProfile, Profile, StepTime
from teola.runtime.sim import Sim
from teola.runtime.sim.outcome import Planned
from teola.runtime.values import Tokens
from teola.schedule.plan import Plan

INSTANCES: Final = 16
BEGINNINGS, SHARED, OWN, ANSWER = 50, 6500, 500, 40
RATE: Final = 20.0
"""Calls a second of virtual time, of all instances."""
LLM: Final = EngineProfile(
    step=StepTime(0.0067, 0.0, 4.6e-8, 2.3e-5, 1.06e-9),
    max_batch=2048,
    max_sequences=256,
    instances=INSTANCES,
    prefix_reuse=True,
    keeps_prefixes=True,
    kv_blocks=412_000 // 16,
)
"""An 8B model on an H100."""


def measure(calls: int, routing: str, seed: int) -> dict[str, Any]:
    """Simulate so many calls; a row."""
    draw = random.Random(seed)
    beginnings = [Tokens(SHARED) for _ in range(BEGINNINGS)]
    sim = Sim(
        Profile("long", {"llm": LLM}), routing=routing, outcomes=Planned(answer_tokens=ANSWER)
    )
    plan, at = Plan(_graph()), 0.0
    for _ in range(calls):
        at += draw.expovariate(RATE)
        sim.submit(plan, {"prompt": [draw.choice(beginnings), Tokens(OWN)]}, at=at)
    began = time.perf_counter()
    results = sim.run()
    wall = time.perf_counter() - began
    assert len(results) == calls, "the simulator lost calls"
    return {
        "instances": INSTANCES,
        "prompt_tokens": SHARED + OWN,
        "routing": routing,
        "calls": calls,
        "calls_per_s": round(calls / wall),
        "mean_s": round(sum(result.latency_s for result in results) / calls, 4),
    }


def _graph() -> Graph:
    prompt = Prompt((Part(Role.CONTEXT, Ref("query", "prompt"), required=True),))
    prefill = Primitive(
        id="prefill",
        op=Op.PREFILLING,
        component="ask",
        engine="llm",
        inputs=(("prompt", prompt),),
        outputs=("sequence",),
        params=PrefillParams(),
    )
    decode = Primitive(
        id="decode",
        op=Op.DECODING,
        component="ask",
        engine="llm",
        inputs=(("sequence", Ref("prefill", "sequence")),),
        outputs=("text",),
        params=DecodeParams(max_tokens=ANSWER),
    )
    return Graph("long", [prefill, decode], {"answer": Ref("decode", "text")}, ("prompt",))
